/* SPDX-License-Identifier: BSD-3-Clause */
/* The inside of a stage, shared by model.c, pass.c and checkpoint.c. */
#ifndef SHUNT_TRAIN_STAGE_H
#define SHUNT_TRAIN_STAGE_H

#include "tools/train/model.h"

#define BYTES 256 /* the vocabulary */

/* Tensors of a block, in the order in which its backward pass finishes them. */
enum block_tensor {
    MLP_OUT_WEIGHT,
    MLP_OUT_BIAS,
    MLP_IN_WEIGHT,
    MLP_IN_BIAS,
    NORM2_GAIN,
    NORM2_BIAS,
    PROJ_WEIGHT,
    PROJ_BIAS,
    QKV_WEIGHT,
    QKV_BIAS,
    NORM1_GAIN,
    NORM1_BIAS,
    BLOCK_TENSORS
};
enum head_tensor { HEAD_WEIGHT, HEAD_BIAS, NORM_GAIN, NORM_BIAS, HEAD_TENSORS };
enum embedding_tensor { POSITION, TOKEN, EMBEDDING_TENSORS };

/* What one block keeps of one micro-batch; rows are batch * context. */
struct block_slot {
    float *x, *norm1, *mean1, *rstd1;         /* input and first norm */
    float *qkv, *p, *att;                     /* attention */
    float *mid, *norm2, *mean2, *rstd2;       /* after the first residual */
    float *hidden, *act;                      /* perceptron; `hidden` becomes its gradient */
    float *d_out, *d_norm2, *d_mid, *d_qkv, *d_norm1; /* gradients that W needs */
};

enum slot_state { FREE, FORWARD_DONE, INPUT_DONE };

struct slot {
    enum slot_state state;
    struct slot *next; /* in the list of free ones */
    float *memory;
    uint8_t *text;
    struct block_slot *blocks;
    float *head_x, *head_norm, *head_mean, *head_rstd, *d_logits, *d_head_norm; /* last stage */
    float *d_embedding;                                                        /* first stage */
};

/* One micro-batch of the current step. */
struct micro_batch {
    struct slot *slot;
    float *early; /* its gradients, when its W ran before its turn */
    bool finished;
};

struct model_stage {
    struct model_config config;
    int first_block, n_blocks;
    bool has_embedding, has_head;

    int n_tensors;
    struct model_tensor *tensors; /* head, blocks from the last to the first, embedding */
    size_t count;
    float *parameters, *gradients, *moment1, *moment2;

    int n_micro, next; /* micro-batches of the step; the next whose gradients are due */
    struct micro_batch *micro;
    struct slot *free_slots;
    int live, peak_live;
    float **spare; /* buffers for early gradients that are not in use */
    int n_spare;
    float *scratch, *work; /* one tensor; a few activations that live within one call */

    void (*final)(void *user, size_t n);
    void *user;
};

static inline int stage_rows(const struct model_stage *s)
{
    return s->config.batch * s->config.context;
}

/* Index of a tensor; blocks are numbered within the stage. */
static inline int block_index(const struct model_stage *s, int block, enum block_tensor t)
{
    return (s->has_head ? HEAD_TENSORS : 0) + (s->n_blocks - 1 - block) * BLOCK_TENSORS + (int)t;
}

static inline int embedding_index(const struct model_stage *s, enum embedding_tensor t)
{
    return (s->has_head ? HEAD_TENSORS : 0) + s->n_blocks * BLOCK_TENSORS + (int)t;
}

static inline float *parameter(const struct model_stage *s, int tensor)
{
    return s->parameters + s->tensors[tensor].offset;
}

/* A free slot, made if there is none; NULL without memory. And back. */
struct slot *stage_slot_take(struct model_stage *s);
void stage_slot_give(struct model_stage *s, struct slot *slot);

#endif
