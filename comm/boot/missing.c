/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/boot/missing.h"
#include <stdarg.h>
#include <stdio.h>

void shunt__boot_missing_start(struct shunt__boot_missing *missing, char *text, size_t size)
{
    missing->text = text;
    missing->size = size;
    missing->n = 0;
}

void shunt__boot_missing_add(struct shunt__boot_missing *missing, int rank)
{
    if (missing->n < SHUNT__BOOT_MISSING_NAMED)
        missing->rank[missing->n] = rank;
    missing->n++;
}

__attribute__((format(printf, 3, 4))) static size_t add(struct shunt__boot_missing *missing, size_t at, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (at >= missing->size)
        return at;
    va_start(ap, fmt);
    n = vsnprintf(missing->text + at, missing->size - at, fmt, ap);
    va_end(ap);
    return n < 0 ? at : at + (size_t)n;
}

void shunt__boot_missing_end(struct shunt__boot_missing *missing)
{
    int named = missing->n < SHUNT__BOOT_MISSING_NAMED ? missing->n : SHUNT__BOOT_MISSING_NAMED;
    size_t at;

    if (missing->n == 0) {
        add(missing, 0, "no rank is missing");
        return;
    }
    at = add(missing, 0, missing->n == 1 ? "rank " : "ranks ");
    for (int i = 0; i < named; i++)
        at = add(missing, at, "%s%d", i == 0 ? "" : i == missing->n - 1 ? " and " : ", ", missing->rank[i]);
    if (missing->n > named)
        at = add(missing, at, " and %d more", missing->n - named);
    add(missing, at, missing->n == 1 ? " is missing" : " are missing");
}
