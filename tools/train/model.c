/* SPDX-License-Identifier: BSD-3-Clause */
/* Stages: their tensors, initial values, memory, and Adam. */
#include "tools/train/model.h"
#include <cblas.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/train/random.h"
#include "tools/train/stage.h"

static _Thread_local char error_text[256];

const char *model_error(void)
{
    return error_text;
}

int model_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(error_text, sizeof(error_text), fmt, ap);
    va_end(ap);
    return -1;
}

int model_config_check(const struct model_config *c)
{
    if (c->context < 4 || c->context > 4096 || c->context % 4)
        return model_fail("context is %d; it must be a multiple of 4 from 4 to 4096", c->context);
    if (c->width < 4 || c->width > 8192 || c->width % 4)
        return model_fail("width is %d; it must be a multiple of 4 from 4 to 8192", c->width);
    if (c->heads < 1 || c->width % c->heads)
        return model_fail("heads is %d; it must divide the width, %d", c->heads, c->width);
    if (c->blocks < 1 || c->blocks > 1024)
        return model_fail("blocks is %d; it must be from 1 to 1024", c->blocks);
    if (c->batch < 1 || (int64_t)c->batch * c->context > 1 << 20)
        return model_fail("batch is %d; batch * context must be from 1 to 2^20", c->batch);
    return 0;
}

size_t model_activations(const struct model_config *c)
{
    return (size_t)c->batch * (size_t)c->context * (size_t)c->width;
}

size_t model_text_bytes(const struct model_config *c)
{
    return (size_t)c->batch * ((size_t)c->context + 1);
}

double model_block_flops(const struct model_config *c)
{
    double rows = (double)c->batch * c->context;

    return rows * (24.0 * c->width * c->width + 4.0 * c->context * c->width);
}

/* ---- tensors ---- */

static const struct {
    const char *name;
    int rows, columns; /* in widths; 0 means 1 */
    float deviation;   /* of the initial values; < 0: all are 1 */
    bool residual;     /* its output is added to the residual stream: smaller with more blocks */
} block_layout[BLOCK_TENSORS] = {
    [MLP_OUT_WEIGHT] = {"mlp_out.weight", 1, 4, 0.02f, true}, [MLP_OUT_BIAS] = {"mlp_out.bias", 1, 0, 0, false},
    [MLP_IN_WEIGHT] = {"mlp_in.weight", 4, 1, 0.02f, false},  [MLP_IN_BIAS] = {"mlp_in.bias", 4, 0, 0, false},
    [NORM2_GAIN] = {"norm2.gain", 1, 0, -1, false},           [NORM2_BIAS] = {"norm2.bias", 1, 0, 0, false},
    [PROJ_WEIGHT] = {"proj.weight", 1, 1, 0.02f, true},       [PROJ_BIAS] = {"proj.bias", 1, 0, 0, false},
    [QKV_WEIGHT] = {"qkv.weight", 3, 1, 0.02f, false},        [QKV_BIAS] = {"qkv.bias", 3, 0, 0, false},
    [NORM1_GAIN] = {"norm1.gain", 1, 0, -1, false},           [NORM1_BIAS] = {"norm1.bias", 1, 0, 0, false},
};

static void add_tensor(struct model_stage *s, size_t count, const char *name, int block)
{
    struct model_tensor *t = &s->tensors[s->n_tensors++];

    if (block >= 0)
        snprintf(t->name, sizeof(t->name), "block%d.%s", block, name);
    else
        snprintf(t->name, sizeof(t->name), "%s", name);
    t->offset = s->count;
    t->count = count;
    s->count += count;
}

static void list_tensors(struct model_stage *s)
{
    size_t width = (size_t)s->config.width;

    if (s->has_head) {
        add_tensor(s, BYTES * width, "head.weight", -1);
        add_tensor(s, BYTES, "head.bias", -1);
        add_tensor(s, width, "norm.gain", -1);
        add_tensor(s, width, "norm.bias", -1);
    }
    for (int b = s->n_blocks - 1; b >= 0; b--)
        for (int t = 0; t < BLOCK_TENSORS; t++) {
            size_t rows = (size_t)block_layout[t].rows * width;
            size_t columns = block_layout[t].columns ? (size_t)block_layout[t].columns * width : 1;

            add_tensor(s, rows * columns, block_layout[t].name, s->first_block + b);
        }
    if (s->has_embedding) {
        add_tensor(s, (size_t)s->config.context * width, "position", -1);
        add_tensor(s, BYTES * width, "token", -1);
    }
}

static void fill_normal(const struct model_stage *s, int tensor, float deviation)
{
    uint64_t state = random_mix(s->config.seed);
    float *p = parameter(s, tensor);

    for (const char *c = s->tensors[tensor].name; *c; c++)
        state = random_mix(state ^ (uint8_t)*c);
    for (size_t i = 0; i < s->tensors[tensor].count; i++)
        p[i] = deviation * random_normal(&state);
}

static void initialise(struct model_stage *s)
{
    float residual = 1.0f / sqrtf(2.0f * (float)s->config.blocks);

    if (s->has_head) {
        fill_normal(s, HEAD_WEIGHT, 0.02f);
        for (int i = 0; i < s->config.width; i++)
            parameter(s, NORM_GAIN)[i] = 1.0f;
    }
    for (int b = 0; b < s->n_blocks; b++)
        for (int t = 0; t < BLOCK_TENSORS; t++) {
            int tensor = block_index(s, b, (enum block_tensor)t);
            float deviation = block_layout[t].deviation;

            if (deviation > 0)
                fill_normal(s, tensor, block_layout[t].residual ? deviation * residual : deviation);
            else if (deviation < 0)
                for (size_t i = 0; i < s->tensors[tensor].count; i++)
                    parameter(s, tensor)[i] = 1.0f;
        }
    if (s->has_embedding) {
        fill_normal(s, embedding_index(s, POSITION), 0.02f);
        fill_normal(s, embedding_index(s, TOKEN), 0.02f);
    }
}

int model_stage_create(const struct model_config *config, int first_block, int n_blocks, bool has_embedding,
                       bool has_head, model_stage_t **out)
{
    struct model_stage *s;
    size_t largest = 0;

    if (model_config_check(config) != 0)
        return -1;
    if (first_block < 0 || n_blocks < 0 || first_block + n_blocks > config->blocks)
        return model_fail("blocks %d to %d are not all within 0 to %d", first_block, first_block + n_blocks - 1,
                          config->blocks - 1);
    if ((has_embedding && first_block != 0) || (has_head && first_block + n_blocks != config->blocks))
        return model_fail("only the first stage has the embedding and only the last has the head");
    if (n_blocks == 0 && !has_embedding && !has_head)
        return model_fail("a stage without blocks, embedding and head does nothing");
    openblas_set_num_threads(1);
    s = calloc(1, sizeof(*s));
    if (!s)
        return model_fail("out of memory");
    s->config = *config;
    s->first_block = first_block;
    s->n_blocks = n_blocks;
    s->has_embedding = has_embedding;
    s->has_head = has_head;
    s->tensors = calloc((size_t)(HEAD_TENSORS + n_blocks * BLOCK_TENSORS + EMBEDDING_TENSORS), sizeof(*s->tensors));
    if (!s->tensors)
        goto no_memory;
    list_tensors(s);
    for (int t = 0; t < s->n_tensors; t++)
        largest = s->tensors[t].count > largest ? s->tensors[t].count : largest;
    s->parameters = calloc(s->count, sizeof(float));
    s->gradients = calloc(s->count, sizeof(float));
    s->moment1 = calloc(s->count, sizeof(float));
    s->moment2 = calloc(s->count, sizeof(float));
    s->scratch = calloc(largest, sizeof(float));
    s->work = calloc(6 * model_activations(config) + (size_t)config->context * (size_t)config->context, sizeof(float));
    if (!s->parameters || !s->gradients || !s->moment1 || !s->moment2 || !s->scratch || !s->work)
        goto no_memory;
    initialise(s);
    *out = s;
    return 0;

no_memory:
    model_stage_destroy(s);
    return model_fail("out of memory for a stage of %d blocks of width %d", n_blocks, config->width);
}

static void free_slot(struct slot *slot)
{
    if (slot) {
        free(slot->memory);
        free(slot->text);
        free(slot->blocks);
        free(slot);
    }
}

void model_stage_destroy(model_stage_t *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_micro; i++) {
        free_slot(s->micro[i].slot);
        free(s->micro[i].early);
    }
    while (s->free_slots) {
        struct slot *next = s->free_slots->next;

        free_slot(s->free_slots);
        s->free_slots = next;
    }
    for (int i = 0; i < s->n_spare; i++)
        free(s->spare[i]);
    free(s->spare);
    free(s->micro);
    free(s->tensors);
    free(s->parameters);
    free(s->gradients);
    free(s->moment1);
    free(s->moment2);
    free(s->scratch);
    free(s->work);
    free(s);
}

/* ---- slots ---- */

static float *carve(float **at, size_t n)
{
    float *p = *at;

    if (*at)
        *at += n;
    return p;
}

/* Lays the slot's buffers out from `memory`; with NULL it only adds up their size. */
static size_t lay_out(const struct model_stage *s, struct slot *slot, float *memory)
{
    size_t rows = (size_t)stage_rows(s), width = (size_t)s->config.width, act = rows * width, total = 0;
    size_t probabilities = (size_t)s->config.heads * rows * (size_t)s->config.context;
    float *at = memory;

#define BUFFER(field, n) (slot->field = carve(&at, (n)), total += (n))
    for (int b = 0; b < s->n_blocks; b++) {
        BUFFER(blocks[b].x, act);
        BUFFER(blocks[b].norm1, act);
        BUFFER(blocks[b].mean1, rows);
        BUFFER(blocks[b].rstd1, rows);
        BUFFER(blocks[b].qkv, 3 * act);
        BUFFER(blocks[b].p, probabilities);
        BUFFER(blocks[b].att, act);
        BUFFER(blocks[b].mid, act);
        BUFFER(blocks[b].norm2, act);
        BUFFER(blocks[b].mean2, rows);
        BUFFER(blocks[b].rstd2, rows);
        BUFFER(blocks[b].hidden, 4 * act);
        BUFFER(blocks[b].act, 4 * act);
        BUFFER(blocks[b].d_out, act);
        BUFFER(blocks[b].d_norm2, act);
        BUFFER(blocks[b].d_mid, act);
        BUFFER(blocks[b].d_qkv, 3 * act);
        BUFFER(blocks[b].d_norm1, act);
    }
    if (s->has_head) {
        BUFFER(head_x, act);
        BUFFER(head_norm, act);
        BUFFER(head_mean, rows);
        BUFFER(head_rstd, rows);
        BUFFER(d_logits, rows * BYTES);
        BUFFER(d_head_norm, act);
    }
    if (s->has_embedding)
        BUFFER(d_embedding, act);
#undef BUFFER
    return total;
}

struct slot *stage_slot_take(struct model_stage *s)
{
    struct slot *slot = s->free_slots;

    if (slot) {
        s->free_slots = slot->next;
    } else {
        slot = calloc(1, sizeof(*slot));
        if (slot)
            slot->blocks = calloc((size_t)s->n_blocks + 1, sizeof(*slot->blocks));
        if (!slot || !slot->blocks || !(slot->text = malloc(model_text_bytes(&s->config))) ||
            !(slot->memory = calloc(lay_out(s, slot, NULL), sizeof(float)))) {
            free_slot(slot);
            return NULL;
        }
        lay_out(s, slot, slot->memory);
    }
    s->live++;
    s->peak_live = s->live > s->peak_live ? s->live : s->peak_live;
    return slot;
}

void stage_slot_give(struct model_stage *s, struct slot *slot)
{
    slot->state = FREE;
    slot->next = s->free_slots;
    s->free_slots = slot;
    s->live--;
}

/* ---- access ---- */

int model_live(const model_stage_t *s)
{
    return s->live;
}

int model_peak_live(const model_stage_t *s)
{
    return s->peak_live;
}

size_t model_count(const model_stage_t *s)
{
    return s->count;
}

float *model_parameters(model_stage_t *s)
{
    return s->parameters;
}

float *model_gradients(model_stage_t *s)
{
    return s->gradients;
}

float *model_moment(model_stage_t *s, int which)
{
    return which == 1 ? s->moment1 : s->moment2;
}

const struct model_tensor *model_tensors(const model_stage_t *s, int *n)
{
    *n = s->n_tensors;
    return s->tensors;
}

void model_on_final(model_stage_t *s, void (*final)(void *user, size_t n), void *user)
{
    s->final = final;
    s->user = user;
}

void model_update(model_stage_t *s, uint64_t step, float scale, float learning_rate)
{
    const float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
    float correction1 = (float)(1.0 / (1.0 - pow(beta1, (double)step + 1)));
    float correction2 = (float)(1.0 / (1.0 - pow(beta2, (double)step + 1)));

    for (size_t i = 0; i < s->count; i++) {
        float g = s->gradients[i] * scale;

        s->moment1[i] = beta1 * s->moment1[i] + (1 - beta1) * g;
        s->moment2[i] = beta2 * s->moment2[i] + (1 - beta2) * g * g;
        s->parameters[i] -=
            learning_rate * s->moment1[i] * correction1 / (sqrtf(s->moment2[i] * correction2) + epsilon);
    }
}
