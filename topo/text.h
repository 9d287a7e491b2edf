/* SPDX-License-Identifier: BSD-3-Clause */
/* Text that grows. A failed allocation is remembered and asked for once, at the end. */
#ifndef SHUNT_TOPO_TEXT_H
#define SHUNT_TOPO_TEXT_H

#include <stddef.h>
#include <shunt/status.h>

struct shunt__text {
    char *p;
    size_t n, room;
    int failed;
};

void shunt__text_add(struct shunt__text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void shunt__text_bytes(struct shunt__text *t, const void *bytes, size_t n);
/* With <, >, &, " and ' as XML entities; bytes that are no UTF-8 become '?'. */
void shunt__text_xml(struct shunt__text *t, const char *s);
/* As a JSON string, quotes included. */
void shunt__text_json(struct shunt__text *t, const char *s);
/* Hands the text over (it ends with a 0) or frees it and says that there is no memory. */
shunt_status_t shunt__text_done(struct shunt__text *t, char **text, size_t *size);

/* "400 Gbit/s", "2.5 Gbit/s", "100 Mbit/s" and "12.5 GB/s"; written to `out`, which is returned. */
const char *shunt__print_rate(char out[32], double bits_per_second);
const char *shunt__print_bandwidth(char out[32], double bytes_per_second);

#endif
