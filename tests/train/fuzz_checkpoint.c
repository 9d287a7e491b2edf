/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a checkpoint, as they are and with the checksum put right so that the rest is looked at. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include "tools/train/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct model_config config = {.context = 4, .width = 4, .heads = 1, .blocks = 3, .batch = 1};
    static model_stage_t *stage;
    uint64_t steps = 12345;
    uint8_t *fixed;

    if (!stage && model_stage_create(&config, 1, 1, false, false, &stage) != 0)
        abort();
    if (model_checkpoint_parse(stage, data, size, &steps) != 0 && steps != 12345)
        abort();
    if (size < 32)
        return 0;
    fixed = malloc(size);
    memcpy(fixed, data, size);
    crypto_generichash(fixed + size - 32, 32, fixed, size - 32, NULL, 0);
    steps = 12345;
    if (model_checkpoint_parse(stage, fixed, size, &steps) != 0 && steps != 12345)
        abort();
    free(fixed);
    return 0;
}
