/* SPDX-License-Identifier: BSD-3-Clause */
/* "rank 3 is missing", "ranks 3, 5 and 9 are missing", "ranks 1, 2, ... and 40 more are missing". */
#ifndef SHUNT_BOOT_MISSING_H
#define SHUNT_BOOT_MISSING_H

#include <stddef.h>

#define SHUNT__BOOT_MISSING_NAMED 16

struct shunt__boot_missing {
    char *text;
    size_t size;
    int n;
    int rank[SHUNT__BOOT_MISSING_NAMED];
};

void shunt__boot_missing_start(struct shunt__boot_missing *missing, char *text, size_t size);
void shunt__boot_missing_add(struct shunt__boot_missing *missing, int rank);
/* Writes the text; "no rank is missing" for an empty list. */
void shunt__boot_missing_end(struct shunt__boot_missing *missing);

#endif
