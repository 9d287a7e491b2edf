/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layers of the model as plain functions, forward, backward to the input, and backward to the weights.
 * Matrices are row-major; n is the number of rows (positions) everywhere.
 */
#ifndef SHUNT_TRAIN_LAYERS_H
#define SHUNT_TRAIN_LAYERS_H

#include <stddef.h>
#include <stdint.h>

/* y[n][out] = x[n][in] weight[out][in]^T + bias[out] */
void linear_forward(float *y, const float *x, const float *weight, const float *bias, int n, int in, int out);
void linear_backward_input(float *dx, const float *dy, const float *weight, int n, int in, int out);
void linear_backward_weight(float *dweight, const float *dy, const float *x, int n, int in, int out);
void linear_backward_bias(float *dbias, const float *dy, int n, int out);

/* y = (x - mean) * rstd * gain + bias per row of `width`; keeps mean and rstd, n each. */
void norm_forward(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *bias, int n,
                  int width);
/* dx = residual + gradient of the norm's input; residual may be NULL. */
void norm_backward_input(float *dx, const float *residual, const float *dy, const float *x, const float *mean,
                         const float *rstd, const float *gain, int n, int width);
void norm_backward_weight(float *dgain, float *dbias, const float *dy, const float *x, const float *mean,
                          const float *rstd, int n, int width);

/* y = max(0, x)^2; and dx = dy * 2 max(0, x). count elements; dx may be x. */
void activation_forward(float *y, const float *x, size_t count);
void activation_backward(float *dx, const float *dy, const float *x, size_t count);

/* Causal attention of `heads` heads over batch sequences of `context` rows. qkv[n][3 width] holds queries, keys
 * and values; p[batch][heads][context][context] keeps the probabilities. */
void attention_forward(float *y, float *p, const float *qkv, int batch, int context, int width, int heads);
/* scratch: context * context floats. */
void attention_backward(float *dqkv, const float *dy, const float *p, const float *qkv, float *scratch, int batch,
                        int context, int width, int heads);

/* Mean cross-entropy in nats of n rows of 256 logits; logits become its gradient by them. */
double cross_entropy(float *logits, const uint8_t *targets, int n);

/* a += b, count elements. */
void add_to(float *a, const float *b, size_t count);

#endif
