/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The training job's model: a small language model over bytes, cut into pipeline stages.
 *
 * A token embedding with learned positions, blocks of causal self-attention and a two-layer perceptron (each behind a
 * layer norm, with residuals), a final layer norm and a linear head over the 256 bytes; softmax cross-entropy; Adam.
 * Matrix products by a BLAS on one thread.
 *
 * A stage holds some consecutive blocks, the first stage also the embedding and the last the head. One step:
 *
 *     model_step_begin(stage, m);                       m micro-batches, numbered 0 .. m-1 in this stage
 *     per micro-batch, in any order that respects the dependencies:
 *         model_forward(stage, i, text, in, out, &loss);
 *         model_backward_input(stage, i, grad_out, grad_in);    B: needs its forward
 *         model_backward_weight(stage, i);                      W: needs its B; frees the activations
 *       or model_backward(stage, i, grad_out, grad_in)          B and W at once, layer by layer
 *     ... sum model_gradients() over the replicas ...
 *     model_update(stage, step, 1.0f / micro_batches_of_all_replicas, learning_rate);
 *
 * Results are the same to the last bit for every order of these calls and every cut into stages: matrix shapes
 * don't depend on either, and the gradients of micro-batches are added in the order of their numbers (a W that comes
 * before its turn leaves its gradient in a buffer of its own until then).
 *
 * What travels between stages is model_activations() floats per micro-batch and direction, row-major
 * [batch][context][width]. All buffers are the caller's and free again when a call returns. A stage is used by one
 * thread at a time; stages are independent of each other. Functions that can fail return 0, or -1 with the reason in
 * model_error(), and then have changed nothing.
 */
#ifndef SHUNT_TRAIN_MODEL_H
#define SHUNT_TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_config {
    int context;   /* bytes of text per sequence */
    int width;     /* of activations; a multiple of `heads` */
    int heads;     /* of attention */
    int blocks;    /* in the whole model */
    int batch;     /* sequences per micro-batch */
    uint64_t seed; /* of the initial parameters */
};

typedef struct model_stage model_stage_t;

/* One named tensor of a stage, e.g. "block3.mlp_in.weight": elements [offset, offset + count) of its vectors. */
struct model_tensor {
    char name[32];
    size_t offset, count;
};

/* The text of this thread's last failure. */
const char *model_error(void);
/* Sets it and returns -1, for the other parts of the training job. */
int model_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Whether the configuration makes sense. */
int model_config_check(const struct model_config *config);
/* Floats of one micro-batch between two stages: batch * context * width. */
size_t model_activations(const struct model_config *config);
/* Bytes of text of one micro-batch: batch rows of context + 1 (each byte's successor is its target). */
size_t model_text_bytes(const struct model_config *config);
/* Floating-point operations of the forward pass of one micro-batch through one block; the backward takes twice that. */
double model_block_flops(const struct model_config *config);

/*
 * Blocks first_block .. first_block + n_blocks - 1 (n_blocks may be 0 for a stage of only embedding or head).
 * Parameters are drawn per tensor from the seed and the tensor's name, so that they don't depend on the cut.
 */
int model_stage_create(const struct model_config *config, int first_block, int n_blocks, bool has_embedding,
                       bool has_head, model_stage_t **stage);
void model_stage_destroy(model_stage_t *stage);

/* Zeroes the gradients and expects micro-batches 0 .. n-1. Fails while one of the last step is not finished. */
int model_step_begin(model_stage_t *stage, int n);
/* Gives up the current step, after a failure elsewhere; parameters are as they were before it. */
void model_step_abandon(model_stage_t *stage);

/*
 * Runs micro-batch `i` forward and keeps its activations. `text` (model_text_bytes()) is read by the first and
 * the last stage, `in` by all but the first, `out` written by all but the last; the others are ignored and may be
 * NULL. The last stage sets *loss to the mean cross-entropy of the micro-batch in nats per byte.
 */
int model_forward(model_stage_t *stage, int i, const uint8_t *text, const float *in, float *out, double *loss);

/* The gradient of the loss by the stage's output gives that by its input. The last stage ignores `grad_out`, the
 * first leaves `grad_in` alone. */
int model_backward_input(model_stage_t *stage, int i, const float *grad_out, float *grad_in);
int model_backward_weight(model_stage_t *stage, int i);
/* Both, in layers: parameters of the last layer are ready first. Gives the same bits. */
int model_backward(model_stage_t *stage, int i, const float *grad_out, float *grad_in);

/* Micro-batches whose activations are held now, and the most there were since the stage exists. */
int model_live(const model_stage_t *stage);
int model_peak_live(const model_stage_t *stage);

/*
 * The stage's parameters and gradients, model_count() floats each, and its tensors in their order: that in which the
 * backward pass finishes them (head, last block, ..., first block, embedding). So a prefix of the gradients is final
 * while the last micro-batch's W still runs, and can be reduced meanwhile.
 */
size_t model_count(const model_stage_t *stage);
float *model_parameters(model_stage_t *stage);
float *model_gradients(model_stage_t *stage);
/* Adam's moments, 1 or 2: with the parameters they are the state that one stage can take over from another. */
float *model_moment(model_stage_t *stage, int which);
const struct model_tensor *model_tensors(const model_stage_t *stage, int *n);

/* `final` is called, from within the backward functions, as the final prefix grows to `n` elements; the last call of a
 * step has n = model_count(). NULL: no calls. */
void model_on_final(model_stage_t *stage, void (*final)(void *user, size_t n), void *user);

/* Adam (Kingma and Ba 2015; beta 0.9, 0.95; step counts from 0) with gradients multiplied by `scale` first. */
void model_update(model_stage_t *stage, uint64_t step, float scale, float learning_rate);

/*
 * Writes parameters, Adam's state and the number of steps done to `path`: first to a temporary file beside it, synced,
 * then renamed, so that the file is the old one or the new one. Format version 1, closed by a BLAKE2b checksum.
 */
int model_checkpoint_write(const model_stage_t *stage, uint64_t steps_done, const char *path);
/*
 * Finds every tensor of the stage in the `n` files, which may have been written by stages cut otherwise. Fails, leaving
 * the stage as it was, if one is damaged, of another model, or a tensor is missing, or their steps differ.
 */
int model_checkpoint_read(model_stage_t *stage, const char *const *paths, int n, uint64_t *steps_done);
/* The same from the bytes of one file. */
int model_checkpoint_parse(model_stage_t *stage, const uint8_t *bytes, size_t n, uint64_t *steps_done);

#endif
