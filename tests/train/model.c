/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model: gradients against differences, and the promises that pipeline and data parallelism rest on: no cut into
 * stages and no order of the passes changes a bit.
 */
#include <math.h>
#include <stdbool.h>
#include "tests/tap.h"
#include "tools/train/model.h"
#include "tools/train/text.h"

static const struct model_config small = {.context = 12, .width = 16, .heads = 2, .blocks = 4, .batch = 3, .seed = 7};
enum { MICRO = 4 };

static struct text text;

/* A cut: the first block of each stage, closed by the number of blocks. */
struct pipeline {
    int n;
    model_stage_t *stage[6];
};

static struct pipeline cut(const struct model_config *c, int n, const int *first)
{
    struct pipeline p = {.n = n};

    for (int i = 0; i < n; i++)
        if (model_stage_create(c, first[i], first[i + 1] - first[i], i == 0, i == n - 1, &p.stage[i]) != 0) {
            printf("Bail out! %s\n", model_error());
            exit(1);
        }
    return p;
}

static struct pipeline whole(const struct model_config *c)
{
    return cut(c, 1, (const int[]){0, c->blocks});
}

static void destroy(struct pipeline *p)
{
    for (int i = 0; i < p->n; i++)
        model_stage_destroy(p->stage[i]);
}

static void must(int status)
{
    if (status != 0) {
        printf("Bail out! %s\n", model_error());
        exit(1);
    }
}

enum order { FUSED, SPLIT, W_LATE, W_REVERSED, B_REVERSED };

/* One step of all micro-batches through all stages; returns the sum of losses. */
static double run_step(struct pipeline *p, const struct model_config *c, uint64_t step, enum order order)
{
    size_t act = model_activations(c);
    float *a = malloc(act * sizeof(float)), *b = malloc(act * sizeof(float));
    uint8_t *bytes = malloc(model_text_bytes(c));
    double total = 0, loss = 0;

    for (int s = 0; s < p->n; s++)
        must(model_step_begin(p->stage[s], MICRO));
    for (int i = 0; i < MICRO; i++) {
        text_sample(&text, 1, step, (uint64_t)i, c->batch, c->context, bytes);
        for (int s = 0; s < p->n; s++) {
            memcpy(b, a, act * sizeof(float));
            must(model_forward(p->stage[s], i, bytes, b, a, &loss));
        }
        total += loss;
    }
    for (int k = 0; k < MICRO; k++) {
        int i = order == B_REVERSED ? MICRO - 1 - k : k;

        for (int s = p->n - 1; s >= 0; s--) {
            memcpy(b, a, act * sizeof(float));
            if (order == FUSED || order == B_REVERSED)
                must(model_backward(p->stage[s], i, b, a));
            else
                must(model_backward_input(p->stage[s], i, b, a));
            if (order == SPLIT)
                must(model_backward_weight(p->stage[s], i));
        }
    }
    for (int k = 0; k < MICRO && order >= W_LATE && order != B_REVERSED; k++)
        for (int s = 0; s < p->n; s++)
            must(model_backward_weight(p->stage[s], order == W_REVERSED ? MICRO - 1 - k : k));
    free(a);
    free(b);
    free(bytes);
    return total;
}

static void update(struct pipeline *p, uint64_t step)
{
    for (int s = 0; s < p->n; s++)
        model_update(p->stage[s], step, 1.0f / MICRO, 0.01f);
}

/* Every tensor of `p` has the same bits as the tensor of that name in the single stage `q`. */
static int same_tensors(struct pipeline *p, struct pipeline *q, float *(*vector)(model_stage_t *))
{
    int n, m, good = 1, seen = 0;
    const struct model_tensor *all = model_tensors(q->stage[0], &m);

    for (int s = 0; s < p->n; s++) {
        const struct model_tensor *some = model_tensors(p->stage[s], &n);

        for (int i = 0; i < n; i++)
            for (int k = 0; k < m; k++)
                if (strcmp(some[i].name, all[k].name) == 0) {
                    seen++;
                    good &= some[i].count == all[k].count &&
                            memcmp(vector(p->stage[s]) + some[i].offset, vector(q->stage[0]) + all[k].offset,
                                   some[i].count * sizeof(float)) == 0;
                }
    }
    return good && seen == m;
}

/* ---- gradients ---- */

static double loss_of(struct pipeline *p, const struct model_config *c)
{
    double total = run_step(p, c, 5, FUSED);

    return total;
}

/* Along the gradient itself, where the difference is largest against the noise of float32. */
static void gradients(void)
{
    struct pipeline p = whole(&small);
    model_stage_t *s = p.stage[0];
    float *theta = model_parameters(s), *g = malloc(model_count(s) * sizeof(float)),
          *kept = malloc(model_count(s) * sizeof(float));
    int n;
    const struct model_tensor *t = model_tensors(s, &n);

    for (uint64_t step = 0; step < 20; step++) { /* away from the start, where many gradients are tiny */
        run_step(&p, &small, step, FUSED);
        update(&p, step);
    }
    loss_of(&p, &small);
    memcpy(g, model_gradients(s), model_count(s) * sizeof(float));
    memcpy(kept, theta, model_count(s) * sizeof(float));
    for (int i = 0; i < n; i++) {
        double norm = 0, up, down, slope;
        float *at = theta + t[i].offset;
        const float *direction = g + t[i].offset;

        for (size_t k = 0; k < t[i].count; k++)
            norm += (double)direction[k] * direction[k];
        norm = sqrt(norm);
        for (size_t k = 0; k < t[i].count; k++)
            at[k] += (float)(direction[k] / norm * 0.01);
        up = loss_of(&p, &small);
        memcpy(theta, kept, model_count(s) * sizeof(float));
        for (size_t k = 0; k < t[i].count; k++)
            at[k] -= (float)(direction[k] / norm * 0.01);
        down = loss_of(&p, &small);
        memcpy(theta, kept, model_count(s) * sizeof(float));
        slope = (up - down) / 0.02;
        /* the loss, summed over micro-batches, is known to some 4e-7: 2e-5 of the slope */
        ok(norm > 1e-4 && fabs(slope - norm) < 0.002 * norm + 2e-5, "%s: slope %.5f, gradient %.5f", t[i].name, slope,
           norm);
    }
    free(g);
    free(kept);
    destroy(&p);
}

/* ---- same bits ---- */

static void cuts(void)
{
    static const struct {
        const char *name;
        int n, first[6];
    } list[] = {
        {"two equal stages", 2, {0, 2, 4}},
        {"four stages", 4, {0, 1, 2, 3, 4}},
        {"unequal stages", 3, {0, 3, 4, 4}},
        {"embedding and head alone", 3, {0, 0, 4, 4}},
    };

    for (size_t k = 0; k < sizeof(list) / sizeof(list[0]); k++) {
        struct pipeline one = whole(&small), many = cut(&small, list[k].n, list[k].first);
        int good = same_tensors(&many, &one, model_parameters);

        ok(good, "%s start with the same parameters", list[k].name);
        good = 1;
        for (uint64_t step = 0; step < 5; step++) {
            good &= run_step(&one, &small, step, FUSED) == run_step(&many, &small, step, FUSED);
            good &= same_tensors(&many, &one, model_gradients);
            update(&one, step);
            update(&many, step);
        }
        ok(good && same_tensors(&many, &one, model_parameters), "%s: five steps, the same bits", list[k].name);
        destroy(&one);
        destroy(&many);
    }
}

static void orders(void)
{
    static const char *const names[] = {
        [SPLIT] = "B and W apart", [W_LATE] = "all W at the end", [W_REVERSED] = "W in reverse",
        [B_REVERSED] = "backward in reverse"};

    for (enum order o = SPLIT; o <= B_REVERSED; o++) {
        struct pipeline a = whole(&small), b = cut(&small, 2, (const int[]){0, 1, 4});
        int good = 1;

        for (uint64_t step = 0; step < 3; step++) {
            good &= run_step(&a, &small, step, FUSED) == run_step(&b, &small, step, o);
            good &= same_tensors(&b, &a, model_gradients);
            update(&a, step);
            update(&b, step);
        }
        ok(good, "%s: the same bits", names[o]);
        ok(model_live(b.stage[0]) == 0 && model_peak_live(b.stage[0]) == MICRO, "no activations are left");
        destroy(&a);
        destroy(&b);
    }
}

/* ---- the final prefix ---- */

struct watch {
    model_stage_t *stage;
    float *seen;
    size_t n;
    int calls, good;
};

static void on_final(void *user, size_t n)
{
    struct watch *w = user;

    w->good &= n > w->n && n <= model_count(w->stage);
    memcpy(w->seen + w->n, model_gradients(w->stage) + w->n, (n - w->n) * sizeof(float));
    w->n = n;
    w->calls++;
}

static void final_prefix(enum order order, const char *name)
{
    struct pipeline p = whole(&small);
    struct watch w = {.stage = p.stage[0], .good = 1};
    int n;

    model_tensors(p.stage[0], &n);
    w.seen = calloc(model_count(p.stage[0]), sizeof(float));
    model_on_final(p.stage[0], on_final, &w);
    run_step(&p, &small, 0, order);
    ok(w.good && w.calls == n && w.n == model_count(p.stage[0]) &&
           memcmp(w.seen, model_gradients(p.stage[0]), w.n * sizeof(float)) == 0,
       "%s: what is called final no longer changes", name);
    free(w.seen);
    destroy(&p);
}

/* ---- misuse ---- */

static void misuse(void)
{
    struct model_config bad = small;
    struct pipeline p = cut(&small, 2, (const int[]){0, 2, 4});
    size_t act = model_activations(&small);
    float *in = calloc(act, sizeof(float)), *out = calloc(act, sizeof(float));
    uint8_t *bytes = calloc(1, model_text_bytes(&small));
    model_stage_t *none = NULL, *first = p.stage[0], *last = p.stage[1];

    bad.heads = 3;
    ok(model_stage_create(&bad, 0, 4, true, true, &none) != 0 && !none, "heads that don't divide: %s", model_error());
    ok(model_stage_create(&small, 2, 3, false, true, &none) != 0, "a block too many: %s", model_error());
    ok(model_stage_create(&small, 1, 3, true, true, &none) != 0, "embedding in the middle: %s", model_error());
    ok(model_forward(first, 0, bytes, NULL, out, NULL) != 0, "forward without a step: %s", model_error());
    must(model_step_begin(first, 2));
    must(model_step_begin(last, 2));
    ok(model_forward(first, 0, NULL, NULL, out, NULL) != 0, "no text: %s", model_error());
    must(model_forward(first, 0, bytes, NULL, out, NULL));
    ok(model_forward(first, 0, bytes, NULL, out, NULL) != 0, "forward twice: %s", model_error());
    ok(model_backward_weight(first, 0) != 0, "W before B: %s", model_error());
    ok(model_backward_input(first, 1, out, NULL) != 0, "B before F: %s", model_error());
    ok(model_backward_input(first, 0, NULL, NULL) != 0, "no gradient: %s", model_error());
    must(model_backward_input(first, 0, out, NULL));
    must(model_backward_weight(first, 0));
    ok(model_backward_weight(first, 0) != 0, "W twice: %s", model_error());
    ok(model_step_begin(first, 2) != 0, "an unfinished step: %s", model_error());
    model_step_abandon(first);
    ok(model_step_begin(first, 2) == 0, "a step that was given up");
    ok(model_forward(last, 0, bytes, NULL, NULL, NULL) != 0, "no input: %s", model_error());
    model_stage_destroy(NULL);
    free(in);
    free(out);
    free(bytes);
    destroy(&p);
}

int main(void)
{
    must(text_add(&text, TEXT_DEFAULT));
    gradients();
    cuts();
    orders();
    final_prefix(FUSED, "fused");
    final_prefix(W_LATE, "all W at the end");
    final_prefix(W_REVERSED, "W in reverse");
    misuse();
    text_free(&text);
    return done();
}
