/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forward and backward passes of a stage, and the order in which gradients are added.
 *
 * B leaves in the slot every gradient by a layer's output that W will need; W makes the parameters' gradients of the
 * micro-batch tensor by tensor, in the tensors' order. Each is made apart and then added to the sum (never accumulated
 * by the matrix product itself, which would round differently), so that a micro-batch whose W comes early can keep
 * its gradients until its turn and the sum still has the same bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/train/layers.h"
#include "tools/train/stage.h"

int model_step_begin(model_stage_t *s, int n)
{
    struct micro_batch *micro;

    if (s->next < s->n_micro)
        return model_fail("the step has %d micro-batches and the backward pass of number %d is missing", s->n_micro,
                          s->next);
    if (n < 1)
        return model_fail("a step needs at least one micro-batch, not %d", n);
    micro = calloc((size_t)n, sizeof(*micro));
    if (!micro)
        return model_fail("out of memory");
    free(s->micro);
    s->micro = micro;
    s->n_micro = n;
    s->next = 0;
    memset(s->gradients, 0, s->count * sizeof(float));
    return 0;
}

void model_step_abandon(model_stage_t *s)
{
    for (int i = 0; i < s->n_micro; i++) {
        if (s->micro[i].slot)
            stage_slot_give(s, s->micro[i].slot);
        free(s->micro[i].early);
    }
    free(s->micro);
    s->micro = NULL;
    s->n_micro = s->next = 0;
}

/* ---- forward ---- */

static void block_forward(struct model_stage *s, int block, struct block_slot *k, float *out)
{
    const struct model_config *c = &s->config;
    int rows = stage_rows(s), width = c->width;
    size_t act = model_activations(c);
#define P(t) parameter(s, block_index(s, block, t))

    norm_forward(k->norm1, k->mean1, k->rstd1, k->x, P(NORM1_GAIN), P(NORM1_BIAS), rows, width);
    linear_forward(k->qkv, k->norm1, P(QKV_WEIGHT), P(QKV_BIAS), rows, width, 3 * width);
    attention_forward(k->att, k->p, k->qkv, c->batch, c->context, width, c->heads);
    linear_forward(k->mid, k->att, P(PROJ_WEIGHT), P(PROJ_BIAS), rows, width, width);
    add_to(k->mid, k->x, act);
    norm_forward(k->norm2, k->mean2, k->rstd2, k->mid, P(NORM2_GAIN), P(NORM2_BIAS), rows, width);
    linear_forward(k->hidden, k->norm2, P(MLP_IN_WEIGHT), P(MLP_IN_BIAS), rows, width, 4 * width);
    activation_forward(k->act, k->hidden, 4 * act);
    linear_forward(out, k->act, P(MLP_OUT_WEIGHT), P(MLP_OUT_BIAS), rows, 4 * width, width);
    add_to(out, k->mid, act);
}

static void embed(const struct model_stage *s, const uint8_t *text, float *out)
{
    const float *position = parameter(s, embedding_index(s, POSITION)), *token = parameter(s, embedding_index(s, TOKEN));
    int width = s->config.width;

    for (int b = 0; b < s->config.batch; b++, text++)
        for (int t = 0; t < s->config.context; t++, text++, out += width) {
            memcpy(out, position + t * width, (size_t)width * sizeof(float));
            add_to(out, token + *text * width, (size_t)width);
        }
}

static double head_forward(struct model_stage *s, struct slot *slot)
{
    int rows = stage_rows(s), context = s->config.context;
    uint8_t *targets = (uint8_t *)s->work; /* rows of context + 1 bytes without their first */

    norm_forward(slot->head_norm, slot->head_mean, slot->head_rstd, slot->head_x, parameter(s, NORM_GAIN),
                 parameter(s, NORM_BIAS), rows, s->config.width);
    linear_forward(slot->d_logits, slot->head_norm, parameter(s, HEAD_WEIGHT), parameter(s, HEAD_BIAS), rows,
                   s->config.width, BYTES);
    for (int b = 0; b < s->config.batch; b++)
        memcpy(targets + b * context, slot->text + b * (context + 1) + 1, (size_t)context);
    return cross_entropy(slot->d_logits, targets, rows);
}

int model_forward(model_stage_t *s, int i, const uint8_t *text, const float *in, float *out, double *loss)
{
    size_t bytes = model_activations(&s->config) * sizeof(float);
    struct slot *slot;
    float *first;

    if (i < 0 || i >= s->n_micro || s->micro[i].slot || s->micro[i].finished)
        return model_fail("forward of micro-batch %d: the step has %d, and each goes forward once", i, s->n_micro);
    if ((s->has_embedding || s->has_head ? !text : 0) || (!s->has_embedding && !in) || (!s->has_head && !out) ||
        (s->has_head && !loss))
        return model_fail("forward of micro-batch %d: a buffer that this stage needs is NULL", i);
    slot = stage_slot_take(s);
    if (!slot)
        return model_fail("out of memory for the activations of micro-batch %d; %d are live", i, s->live);
    if (text)
        memcpy(slot->text, text, model_text_bytes(&s->config));
    first = s->n_blocks ? slot->blocks[0].x : s->has_head ? slot->head_x : out;
    if (s->has_embedding)
        embed(s, slot->text, first);
    else
        memcpy(first, in, bytes);
    for (int b = 0; b < s->n_blocks; b++)
        block_forward(s, b, &slot->blocks[b],
                      b + 1 < s->n_blocks ? slot->blocks[b + 1].x : s->has_head ? slot->head_x : out);
    if (s->has_head)
        *loss = head_forward(s, slot);
    slot->state = FORWARD_DONE;
    s->micro[i].slot = slot;
    return 0;
}

/* ---- backward to the input ---- */

/* k->d_out is the gradient by the block's output; `d_in` gets that by its input. */
static void block_backward_input(struct model_stage *s, int block, struct block_slot *k, float *d_in)
{
    const struct model_config *c = &s->config;
    int rows = stage_rows(s), width = c->width;
    size_t act = model_activations(c);
    float *wide = s->work, *narrow = s->work + 4 * act, *square = s->work + 6 * act;

    linear_backward_input(wide, k->d_out, P(MLP_OUT_WEIGHT), rows, 4 * width, width);
    activation_backward(k->hidden, wide, k->hidden, 4 * act);
    linear_backward_input(k->d_norm2, k->hidden, P(MLP_IN_WEIGHT), rows, width, 4 * width);
    norm_backward_input(k->d_mid, k->d_out, k->d_norm2, k->mid, k->mean2, k->rstd2, P(NORM2_GAIN), rows, width);
    linear_backward_input(narrow, k->d_mid, P(PROJ_WEIGHT), rows, width, width);
    attention_backward(k->d_qkv, narrow, k->p, k->qkv, square, c->batch, c->context, width, c->heads);
    linear_backward_input(k->d_norm1, k->d_qkv, P(QKV_WEIGHT), rows, width, 3 * width);
    norm_backward_input(d_in, k->d_mid, k->d_norm1, k->x, k->mean1, k->rstd1, P(NORM1_GAIN), rows, width);
#undef P
}

/* Where the gradient by the output of block `b` (of the stage) is wanted; b = -1: by the stage's input. */
static float *gradient_of(struct model_stage *s, struct slot *slot, int b, float *grad_in)
{
    return b >= 0 ? slot->blocks[b].d_out : s->has_embedding ? slot->d_embedding : grad_in;
}

static void head_backward_input(struct model_stage *s, struct slot *slot, float *d_in)
{
    int rows = stage_rows(s), width = s->config.width;

    linear_backward_input(slot->d_head_norm, slot->d_logits, parameter(s, HEAD_WEIGHT), rows, width, BYTES);
    norm_backward_input(d_in, NULL, slot->d_head_norm, slot->head_x, slot->head_mean, slot->head_rstd,
                        parameter(s, NORM_GAIN), rows, width);
}

/* ---- backward to the weights ---- */

/* Where the gradients of micro-batch i go: added to the sum at once, or kept in `early`. */
struct sink {
    struct model_stage *s;
    float *early;
    bool last; /* these complete the sum */
};

static float *target(const struct sink *k, int tensor)
{
    return k->early ? k->early + k->s->tensors[tensor].offset : k->s->scratch;
}

static void deliver(const struct sink *k, int tensor)
{
    const struct model_tensor *t = &k->s->tensors[tensor];

    if (k->early)
        return;
    add_to(k->s->gradients + t->offset, k->s->scratch, t->count);
    if (k->last && k->s->final)
        k->s->final(k->s->user, t->offset + t->count);
}

static void linear_weights(const struct sink *k, int weight, int bias, const float *dy, const float *x, int in, int out)
{
    linear_backward_weight(target(k, weight), dy, x, stage_rows(k->s), in, out);
    deliver(k, weight);
    linear_backward_bias(target(k, bias), dy, stage_rows(k->s), out);
    deliver(k, bias);
}

static void norm_weights(const struct sink *k, int gain, int bias, const float *dy, const float *x, const float *mean,
                         const float *rstd)
{
    struct model_stage *s = k->s;
    int width = s->config.width;
    float *both = s->work; /* made at once, delivered one after the other */

    norm_backward_weight(both, both + width, dy, x, mean, rstd, stage_rows(s), width);
    memcpy(target(k, gain), both, (size_t)width * sizeof(float));
    deliver(k, gain);
    memcpy(target(k, bias), both + width, (size_t)width * sizeof(float));
    deliver(k, bias);
}

static void head_backward_weight(const struct sink *k, struct slot *slot)
{
    linear_weights(k, HEAD_WEIGHT, HEAD_BIAS, slot->d_logits, slot->head_norm, k->s->config.width, BYTES);
    norm_weights(k, NORM_GAIN, NORM_BIAS, slot->d_head_norm, slot->head_x, slot->head_mean, slot->head_rstd);
}

static void block_backward_weight(const struct sink *k, int block, struct block_slot *b)
{
    struct model_stage *s = k->s;
    int width = s->config.width;
#define I(t) block_index(s, block, t)

    linear_weights(k, I(MLP_OUT_WEIGHT), I(MLP_OUT_BIAS), b->d_out, b->act, 4 * width, width);
    linear_weights(k, I(MLP_IN_WEIGHT), I(MLP_IN_BIAS), b->hidden, b->norm2, width, 4 * width);
    norm_weights(k, I(NORM2_GAIN), I(NORM2_BIAS), b->d_norm2, b->mid, b->mean2, b->rstd2);
    linear_weights(k, I(PROJ_WEIGHT), I(PROJ_BIAS), b->d_mid, b->att, width, width);
    linear_weights(k, I(QKV_WEIGHT), I(QKV_BIAS), b->d_qkv, b->norm1, width, 3 * width);
    norm_weights(k, I(NORM1_GAIN), I(NORM1_BIAS), b->d_norm1, b->x, b->mean1, b->rstd1);
#undef I
}

static void embedding_backward_weight(const struct sink *k, struct slot *slot)
{
    struct model_stage *s = k->s;
    int width = s->config.width, position = embedding_index(s, POSITION), token = embedding_index(s, TOKEN);
    const float *d = slot->d_embedding;
    const uint8_t *text = slot->text;
    float *out = target(k, position);

    memset(out, 0, s->tensors[position].count * sizeof(float));
    for (int b = 0; b < s->config.batch; b++)
        add_to(out, d + (size_t)b * (size_t)s->config.context * (size_t)width, s->tensors[position].count);
    deliver(k, position);
    out = target(k, token);
    memset(out, 0, s->tensors[token].count * sizeof(float));
    for (int b = 0; b < s->config.batch; b++, text++)
        for (int t = 0; t < s->config.context; t++, text++, d += width)
            add_to(out + *text * width, d, (size_t)width);
    deliver(k, token);
}

/* ---- order ---- */

static int open_sink(struct model_stage *s, int i, struct sink *k)
{
    *k = (struct sink){s, NULL, i == s->n_micro - 1};
    if (i == s->next)
        return 0;
    if (s->n_spare > 0) {
        k->early = s->spare[--s->n_spare];
        return 0;
    }
    k->early = malloc(s->count * sizeof(float));
    return k->early ? 0 : model_fail("out of memory to keep the gradients of micro-batch %d until those before it", i);
}

static void keep_spare(struct model_stage *s, float *buffer)
{
    float **spare = realloc(s->spare, (size_t)(s->n_spare + 1) * sizeof(*spare));

    if (!spare) {
        free(buffer);
        return;
    }
    s->spare = spare;
    s->spare[s->n_spare++] = buffer;
}

/* Adds kept gradients whose turn has come. */
static void close_sink(struct model_stage *s, int i, struct sink *k)
{
    stage_slot_give(s, s->micro[i].slot);
    s->micro[i].slot = NULL;
    s->micro[i].finished = true;
    s->micro[i].early = k->early;
    if (i != s->next)
        return;
    for (s->next++; s->next < s->n_micro && s->micro[s->next].early; s->next++) {
        struct micro_batch *m = &s->micro[s->next];
        bool last = s->next == s->n_micro - 1;

        for (int t = 0; t < s->n_tensors; t++) {
            const struct model_tensor *tensor = &s->tensors[t];

            add_to(s->gradients + tensor->offset, m->early + tensor->offset, tensor->count);
            if (last && s->final)
                s->final(s->user, tensor->offset + tensor->count);
        }
        keep_spare(s, m->early);
        m->early = NULL;
    }
}

static struct slot *slot_in_state(struct model_stage *s, int i, enum slot_state state)
{
    if (i < 0 || i >= s->n_micro || !s->micro[i].slot || s->micro[i].slot->state != state)
        return NULL;
    return s->micro[i].slot;
}

/* B, and with `weights` each layer's W behind it. */
static int backward(struct model_stage *s, int i, const float *grad_out, float *grad_in, bool weights)
{
    struct slot *slot = slot_in_state(s, i, FORWARD_DONE);
    struct sink k;

    if (!slot)
        return model_fail("backward of micro-batch %d: it has not gone forward, or was here already", i);
    if ((!s->has_head && !grad_out) || (!s->has_embedding && !grad_in))
        return model_fail("backward of micro-batch %d: a buffer that this stage needs is NULL", i);
    if (weights && open_sink(s, i, &k) != 0)
        return -1;
    if (s->has_head)
        head_backward_input(s, slot, gradient_of(s, slot, s->n_blocks - 1, grad_in));
    else
        memcpy(gradient_of(s, slot, s->n_blocks - 1, grad_in), grad_out, model_activations(&s->config) * sizeof(float));
    if (s->has_head && weights)
        head_backward_weight(&k, slot);
    for (int b = s->n_blocks - 1; b >= 0; b--) {
        block_backward_input(s, b, &slot->blocks[b], gradient_of(s, slot, b - 1, grad_in));
        if (weights)
            block_backward_weight(&k, b, &slot->blocks[b]);
    }
    if (s->has_embedding && weights)
        embedding_backward_weight(&k, slot);
    if (weights)
        close_sink(s, i, &k);
    else
        slot->state = INPUT_DONE;
    return 0;
}

int model_backward_input(model_stage_t *s, int i, const float *grad_out, float *grad_in)
{
    return backward(s, i, grad_out, grad_in, false);
}

int model_backward(model_stage_t *s, int i, const float *grad_out, float *grad_in)
{
    return backward(s, i, grad_out, grad_in, true);
}

int model_backward_weight(model_stage_t *s, int i)
{
    struct slot *slot = slot_in_state(s, i, INPUT_DONE);
    struct sink k;

    if (!slot)
        return model_fail("weight gradients of micro-batch %d: its input gradients come first, and once", i);
    if (open_sink(s, i, &k) != 0)
        return -1;
    if (s->has_head)
        head_backward_weight(&k, slot);
    for (int b = s->n_blocks - 1; b >= 0; b--)
        block_backward_weight(&k, b, &slot->blocks[b]);
    if (s->has_embedding)
        embedding_backward_weight(&k, slot);
    close_sink(s, i, &k);
    return 0;
}
