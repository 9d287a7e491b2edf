/* SPDX-License-Identifier: BSD-3-Clause */
/* The topology's memory: everything of one topology in blocks that are freed together; and sets of CPUs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topo/model.h"

#define BLOCK 16384

struct shunt__block {
    struct shunt__block *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

static _Alignas(16) unsigned char scrap[65536]; /* written to by nobody who matters once `failed` is set */

void *shunt__arena_get(struct shunt__arena *arena, size_t size)
{
    struct shunt__block *b = arena->block;

    size = (size + 15) & ~(size_t)15;
    if (!b || b->size - b->used < size) {
        size_t room = size > BLOCK ? size : BLOCK;
        b = calloc(1, sizeof(*b) + room);
        if (!b) {
            arena->failed = 1;
            return size <= sizeof(scrap) ? scrap : NULL;
        }
        b->size = room;
        b->next = arena->block;
        arena->block = b;
    }
    b->used += size;
    return b->bytes + b->used - size;
}

const char *shunt__arena_text(struct shunt__arena *arena, const char *text, size_t len)
{
    size_t n = strnlen(text, len);
    char *copy = shunt__arena_get(arena, n + 1);

    if (!copy || arena->failed)
        return "";
    for (size_t i = 0; i < n; i++)
        copy[i] = (unsigned char)text[i] < 32 || text[i] == 127 ? '?' : text[i];
    copy[n] = 0;
    return copy;
}

const char *shunt__arena_print(struct shunt__arena *arena, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return shunt__arena_text(arena, text, sizeof(text));
}

void shunt__arena_free(struct shunt__arena *arena)
{
    while (arena->block) {
        struct shunt__block *b = arena->block;
        arena->block = b->next;
        free(b);
    }
}

int shunt__cpus_has(const struct shunt__cpus *set, unsigned cpu)
{
    return cpu / 64 < set->n_words && (set->words[cpu / 64] >> cpu % 64 & 1);
}

void shunt__cpus_add(struct shunt__arena *arena, struct shunt__cpus *set, unsigned cpu)
{
    if (cpu >= SHUNT__MAX_CPUS)
        return;
    if (cpu / 64 >= set->n_words) {
        unsigned n = cpu / 64 + 1;
        uint64_t *words = shunt__arena_get(arena, n * sizeof(*words));
        if (arena->failed)
            return;
        if (set->n_words)
            memcpy(words, set->words, set->n_words * sizeof(*words));
        set->words = words;
        set->n_words = n;
    }
    set->words[cpu / 64] |= 1ull << cpu % 64;
}

unsigned shunt__cpus_count(const struct shunt__cpus *set)
{
    unsigned n = 0;

    for (unsigned i = 0; i < set->n_words; i++)
        n += (unsigned)__builtin_popcountll(set->words[i]);
    return n;
}

int shunt__cpus_equal(const struct shunt__cpus *a, const struct shunt__cpus *b)
{
    for (unsigned i = 0; i < a->n_words || i < b->n_words; i++)
        if ((i < a->n_words ? a->words[i] : 0) != (i < b->n_words ? b->words[i] : 0))
            return 0;
    return 1;
}
