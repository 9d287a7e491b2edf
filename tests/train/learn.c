/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One process learns the licence texts: the loss falls below what a bigram table of the same text achieves.
 */
#include <math.h>
#include <stdbool.h>
#include "tests/tap.h"
#include "tools/train/model.h"
#include "tools/train/text.h"

static const struct model_config config = {
    .context = 32, .width = 64, .heads = 4, .blocks = 2, .batch = 16, .seed = 1};
enum { MICRO = 2, STEPS = 400 };

static struct text text;

static void must(int status)
{
    if (status != 0) {
        printf("Bail out! %s\n", model_error());
        exit(1);
    }
}

static double train_step(model_stage_t *s, uint64_t step)
{
    uint8_t bytes[16 * 33];
    double total = 0, loss;
    float rate = 0.004f * fminf(1.0f, (float)(step + 1) / 20);

    must(model_step_begin(s, MICRO));
    for (int i = 0; i < MICRO; i++) {
        text_sample(&text, 3, step, (uint64_t)i, config.batch, config.context, bytes);
        must(model_forward(s, i, bytes, NULL, NULL, &loss));
        must(model_backward(s, i, NULL, NULL));
        total += loss / MICRO;
    }
    model_update(s, step, 1.0f / MICRO, rate);
    return total;
}

int main(void)
{
    model_stage_t *s;
    double bigram, mean = 0;

    must(text_add(&text, TEXT_DEFAULT));
    bigram = text_bigram_loss(&text, 0.01);
    printf("# %zu bytes of text, bigram loss %.4f\n", text.n, bigram);
    must(model_stage_create(&config, 0, config.blocks, true, true, &s));
    printf("# %zu parameters\n", model_count(s));
    for (uint64_t step = 0; step < STEPS; step++) {
        double loss = train_step(s, step);

        if (step == 0)
            ok(fabs(loss - log(256)) < 0.1, "the first loss is that of guessing: %.4f", loss);
        if (step % 50 == 0)
            printf("# step %llu loss %.4f\n", (unsigned long long)step, loss);
        if (step >= STEPS - 20)
            mean += loss / 20;
    }
    ok(mean < bigram, "after %d steps the mean loss of 20, %.4f, is below the bigram's %.4f", STEPS, mean, bigram);
    model_stage_destroy(s);
    text_free(&text);
    return done();
}
