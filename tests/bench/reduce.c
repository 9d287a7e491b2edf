/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Speed of the reduction kernels and of the checksum on one core: GB/s of result for dst = dst op src, per type,
 * operator, set of instructions and buffer size. "ratio" is float32's speed with the same operator over this one.
 *
 *     reduce [SIZE_BYTES...]      default: 32 KiB, 256 KiB, 64 MiB
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/clock.h"
#include "comm/base/crc32c.h"
#include "comm/reduce/reduce.h"

enum { ROUNDS = 5 };

static unsigned char *a, *b;

/* Best of several rounds of at least 4 ms, in GB/s. */
static double reduce_speed(shunt_type_t type, shunt_op_t op, size_t bytes)
{
    size_t count = bytes / shunt_type_size(type), times = 1;
    uint64_t best = 0;

    for (int round = 0; round < ROUNDS;) {
        uint64_t start = shunt__now(), took;

        for (size_t i = 0; i < times; i++)
            shunt__reduce(op, type, a, b, count);
        took = shunt__now() - start;
        if (took < 4000000) {
            times *= 2;
            best = 0;
            continue;
        }
        if (!best || took < best)
            best = took;
        round++;
    }
    return (double)bytes * (double)times / (double)best;
}

static double other_speed(int what, size_t bytes)
{
    volatile uint32_t crc = 0;
    size_t times = 1 + 16000000 / bytes;
    uint64_t best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = shunt__now(), took;

        for (size_t i = 0; i < times; i++)
            switch (what) {
            case 0:
                memcpy(a, b, bytes);
                __asm__ volatile("" : : "r"(a) : "memory");
                break;
            case 1:
                crc = shunt__crc32c(crc, b, bytes);
                break;
            default:
                crc = shunt__crc32c_copy(crc, a, b, bytes);
            }
        took = shunt__now() - start;
        if (!best || took < best)
            best = took;
    }
    return (double)bytes * (double)times / (double)best;
}

/* Small positive values of every type, so that nothing overflows into a special case. */
static void fill(shunt_type_t type, size_t bytes)
{
    unsigned char one[8] = {1};
    size_t size = shunt_type_size(type);

    shunt__reduce_avg_scalar(type, 1, one);
    for (size_t i = 0; i + size <= bytes; i += size) {
        memcpy(a + i, one, size);
        memcpy(b + i, one, size);
    }
}

static void measure(size_t bytes)
{
    static const shunt_op_t ops[] = {SHUNT_SUM, SHUNT_PROD, SHUNT_MAX};
    double reference[3];

    printf("\n%zu bytes: memcpy %.1f  crc32c %.1f  crc32c+copy %.1f GB/s\n", bytes, other_speed(0, bytes),
           other_speed(1, bytes), other_speed(2, bytes));
    printf("%-12s %-12s %8s %6s %8s %6s %8s %6s\n", "instructions", "type", "sum", "ratio", "prod", "ratio", "max",
           "ratio");
    for (const char *const *isa = shunt__reduce_isas; *isa; isa++) {
        if (!shunt__reduce_choose(*isa))
            continue;
        fill(SHUNT_FLOAT32, bytes);
        for (int k = 0; k < 3; k++)
            reference[k] = reduce_speed(SHUNT_FLOAT32, ops[k], bytes);
        for (int type = 0; type < SHUNT_N_TYPES; type++) {
            fill((shunt_type_t)type, bytes);
            printf("%-12s %-12s", *isa, shunt_type_name((shunt_type_t)type));
            for (int k = 0; k < 3; k++) {
                double speed = reduce_speed((shunt_type_t)type, ops[k], bytes);

                printf(" %8.1f %6.2f", speed, reference[k] / speed);
            }
            printf("\n");
        }
    }
    shunt__reduce_choose(NULL);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {32 << 10, 256 << 10, 64 << 20};
    size_t largest = 64 << 20;

    for (int i = 1; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 0);

        if (bytes < 64 || bytes > (size_t)1 << 34) {
            fprintf(stderr, "reduce: %s is no size between 64 and 2^34 bytes\n", argv[i]);
            return 2;
        }
        largest = bytes > largest ? bytes : largest;
    }
    a = aligned_alloc(4096, (largest + 4095) / 4096 * 4096);
    b = aligned_alloc(4096, (largest + 4095) / 4096 * 4096);
    if (!a || !b) {
        fprintf(stderr, "reduce: no memory for two buffers of %zu bytes\n", largest);
        return 1;
    }
    if (argc > 1)
        for (int i = 1; i < argc; i++)
            measure(strtoull(argv[i], NULL, 0));
    else
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            measure(sizes[i]);
    free(a);
    free(b);
    return 0;
}
