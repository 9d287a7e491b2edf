/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A reader for the JSON that schedules and traces come in: a cursor over the text, no tree. Objects and
 * arrays are walked with enter and next; what is not wanted is skipped. Nesting is limited, and no input
 * makes it read past the end.
 */
#ifndef SHUNT_SCHED_JSON_H
#define SHUNT_SCHED_JSON_H

#include <stddef.h>

struct shunt__json {
    const char *start, *at, *end;
    int depth, bad;
};

void shunt__json_open(struct shunt__json *json, const char *text, size_t size);
/* The next value's first character: { [ " t f n or a digit or -; 0 at the end or if it is no value. */
char shunt__json_peek(struct shunt__json *json);
/* Enters an object ('{') or array ('['); 0 if the next value is none. */
int shunt__json_enter(struct shunt__json *json, char kind);
/*
 * Inside: 1 if there is a further member, 0 at the end (which is left then), with *first kept by the caller,
 * 1 before the first member. For objects `key` gets the member's name, cut to `size`.
 */
int shunt__json_next(struct shunt__json *json, char kind, int *first, char *key, size_t size);
/* A string, unescaped, cut to `size`; 0 if the next value is none (it is left as it is). */
int shunt__json_string(struct shunt__json *json, char *text, size_t size);
int shunt__json_number(struct shunt__json *json, double *value);
void shunt__json_skip(struct shunt__json *json);
/* Line of the cursor, from 1. */
int shunt__json_line(const struct shunt__json *json);

#endif
