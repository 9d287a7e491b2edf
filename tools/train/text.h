/* SPDX-License-Identifier: BSD-3-Clause */
/* The text the model learns: loading, drawing micro-batches from it, and how hard it is for a simpler model. */
#ifndef SHUNT_TRAIN_TEXT_H
#define SHUNT_TRAIN_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_DEFAULT "/usr/share/common-licenses"

struct text {
    uint8_t *bytes; /* owned; free with text_free() */
    size_t n;
};

/* Appends the file at `path`, or the regular files in the folder `path` by name (links are passed over, they would
 * repeat what they point to). 0, or -1 with model_error(). */
int text_add(struct text *text, const char *path);
void text_free(struct text *text);

/*
 * Fills out[batch][context + 1] with pieces of the text. Which ones is a function of seed, step and `index` alone,
 * the number of the micro-batch among those of all replicas in this step: however they are dealt out, the step sees the
 * same pieces. The text must have more than context + 1 bytes.
 */
void text_sample(const struct text *text, uint64_t seed, uint64_t step, uint64_t index, int batch, int context,
                 uint8_t *out);

/* The cross-entropy in nats per byte of the text under its own bigram frequencies, with `smoothing` added to each
 * count: what a table of 256 x 256 numbers achieves. */
double text_bigram_loss(const struct text *text, double smoothing);

#endif
