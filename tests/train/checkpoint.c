/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints: going on with the same bits, under the same cut and others; damaged and foreign files. */
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/tap.h"
#include "tools/train/model.h"
#include "tools/train/text.h"

static const struct model_config config = {.context = 8, .width = 8, .heads = 2, .blocks = 2, .batch = 2, .seed = 5};

static char folder[64], path[4][128];

static void must(int status)
{
    if (status != 0) {
        printf("Bail out! %s\n", model_error());
        exit(1);
    }
}

static model_stage_t *stage(int first, int n)
{
    model_stage_t *s;

    must(model_stage_create(&config, first, n, first == 0, first + n == config.blocks, &s));
    return s;
}

static void steps(model_stage_t **stages, int n, uint64_t from, uint64_t to)
{
    static const uint8_t words[] = "to be or not to be, that is the question: whether 'tis nobler";
    struct text text = {(uint8_t *)words, sizeof(words)};
    float a[2 * 8 * 8], b[2 * 8 * 8];
    uint8_t bytes[2 * 9];
    double loss;

    for (uint64_t step = from; step < to; step++) {
        text_sample(&text, 1, step, 0, config.batch, config.context, bytes);
        for (int i = 0; i < n; i++) {
            must(model_step_begin(stages[i], 1));
            memcpy(b, a, sizeof(a));
            must(model_forward(stages[i], 0, bytes, b, a, &loss));
        }
        for (int i = n - 1; i >= 0; i--) {
            memcpy(b, a, sizeof(a));
            must(model_backward(stages[i], 0, b, a));
        }
        for (int i = 0; i < n; i++)
            model_update(stages[i], step, 1, 0.01f);
    }
}

static uint8_t *slurp(const char *file, size_t *n)
{
    FILE *f = fopen(file, "r");
    uint8_t *bytes = malloc(1 << 20);

    *n = f ? fread(bytes, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    return bytes;
}

static int same(model_stage_t *a, model_stage_t *b)
{
    return model_count(a) == model_count(b) &&
           memcmp(model_parameters(a), model_parameters(b), model_count(a) * sizeof(float)) == 0;
}

static void resume(void)
{
    model_stage_t *straight = stage(0, 2), *halves[2] = {stage(0, 1), stage(1, 1)}, *again = stage(0, 2),
                  *other[2] = {stage(0, 1), stage(1, 1)};
    const char *one[] = {path[0]}, *two[] = {path[1], path[2]};
    uint64_t done = 0;

    steps(&straight, 1, 0, 10);
    must(model_checkpoint_write(straight, 10, path[0]));
    steps(halves, 2, 0, 10);
    must(model_checkpoint_write(halves[0], 10, path[1]));
    must(model_checkpoint_write(halves[1], 10, path[2]));
    steps(&straight, 1, 10, 20);

    ok(model_checkpoint_read(again, one, 1, &done) == 0 && done == 10, "a checkpoint is read");
    steps(&again, 1, 10, 20);
    ok(same(straight, again), "and goes on with the same bits");
    done = 0;
    ok(model_checkpoint_read(again, two, 2, &done) == 0 && done == 10, "two stages' files make one stage");
    steps(&again, 1, 10, 20);
    ok(same(straight, again), "with the same bits");
    ok(model_checkpoint_read(other[0], one, 1, &done) == 0 && model_checkpoint_read(other[1], one, 1, &done) == 0,
       "one stage's file makes two stages");
    steps(halves, 2, 10, 20);
    steps(other, 2, 10, 20);
    ok(same(halves[0], other[0]) && same(halves[1], other[1]), "with the same bits");
    ok(access(path[0], R_OK) == 0, "the file is where it was asked for");
    model_stage_destroy(straight);
    model_stage_destroy(again);
    for (int i = 0; i < 2; i++) {
        model_stage_destroy(halves[i]);
        model_stage_destroy(other[i]);
    }
}

static void refused(model_stage_t *s, const char *const *paths, int n, const char *what)
{
    size_t bytes = model_count(s) * sizeof(float);
    float *kept = malloc(bytes);
    uint64_t done = 77;

    memcpy(kept, model_parameters(s), bytes);
    ok(model_checkpoint_read(s, paths, n, &done) != 0 && done == 77 && memcmp(kept, model_parameters(s), bytes) == 0,
       "%s: %s", what, model_error());
    free(kept);
}

static void bad_files(void)
{
    struct model_config wider = config;
    model_stage_t *s = stage(0, 2), *half = stage(1, 1), *wide;
    const char *list[2];
    uint64_t done = 0;
    size_t n;
    uint8_t *bytes = slurp(path[0], &n);
    int taken = 0;
    FILE *f;

    for (size_t i = 0; i < n; i += 1 + i / 64) {
        bytes[i] ^= 0x10;
        taken += model_checkpoint_parse(s, bytes, n, &done) == 0;
        bytes[i] ^= 0x10;
    }
    for (size_t i = 0; i < n; i += 1 + i / 16)
        taken += model_checkpoint_parse(s, bytes, i, &done) == 0;
    is_int(taken, 0, "no flipped bit and no cut of the file is taken");
    ok(model_checkpoint_parse(s, bytes, n, &done) == 0, "the whole one is");
    free(bytes);

    list[0] = path[3];
    refused(s, list, 1, "no such file");
    list[0] = folder;
    refused(s, list, 1, "a folder");
    f = fopen(path[3], "w");
    fputs("hello", f);
    fclose(f);
    list[0] = path[3];
    refused(s, list, 1, "another file");
    list[0] = path[2];
    refused(s, list, 1, "half of the tensors");
    list[1] = path[2];
    refused(s, list, 2, "the same file twice");
    refused(s, list, 0, "no file");
    must(model_checkpoint_write(half, 11, path[3]));
    list[0] = path[1];
    list[1] = path[3];
    refused(s, list, 2, "files of different steps");
    wider.width = 16;
    must(model_stage_create(&wider, 0, 2, true, true, &wide));
    list[0] = path[0];
    refused(wide, list, 1, "another width");
    ok(model_checkpoint_write(s, 1, "/nowhere/at/all") != 0, "a folder that is not there: %s", model_error());
    model_stage_destroy(s);
    model_stage_destroy(half);
    model_stage_destroy(wide);
}

int main(void)
{
    snprintf(folder, sizeof(folder), "/tmp/shunt-checkpoint-XXXXXX");
    if (!mkdtemp(folder)) {
        printf("Bail out! no folder in /tmp\n");
        return 1;
    }
    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof(path[i]), "%s/%d", folder, i);
    resume();
    bad_files();
    for (int i = 0; i < 4; i++)
        unlink(path[i]);
    ok(rmdir(folder) == 0, "no temporary file is left");
    return done();
}
