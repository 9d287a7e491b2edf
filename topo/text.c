/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"

static int make_room(struct shunt__text *t, size_t more)
{
    size_t room = t->room ? t->room : 1024;

    if (t->failed)
        return -1;
    while (room - t->n <= more)
        room *= 2;
    if (room != t->room) {
        char *bigger = realloc(t->p, room);
        if (!bigger) {
            t->failed = 1;
            return -1;
        }
        t->p = bigger;
        t->room = room;
    }
    return 0;
}

void shunt__text_add(struct shunt__text *t, const char *fmt, ...)
{
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && make_room(t, (size_t)n) == 0) {
        vsnprintf(t->p + t->n, (size_t)n + 1, fmt, again);
        t->n += (size_t)n;
    }
    va_end(again);
}

void shunt__text_bytes(struct shunt__text *t, const void *bytes, size_t n)
{
    if (make_room(t, n))
        return;
    memcpy(t->p + t->n, bytes, n);
    t->n += n;
    t->p[t->n] = 0;
}

/* Length of the UTF-8 sequence at `s`, 0 if it is none (overlong forms and surrogates are left to the
 * reader). */
static size_t sequence(const unsigned char *s)
{
    size_t n = *s < 0x80                 ? 1
               : *s >= 0xc2 && *s < 0xe0 ? 2
               : *s >= 0xe0 && *s < 0xf0 ? 3
               : *s >= 0xf0 && *s < 0xf5 ? 4
                                         : 0;

    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
                   (s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe)))
        return 0;
    if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)))
        return 0;
    return n;
}

void shunt__text_xml(struct shunt__text *t, const char *s)
{
    while (*s) {
        size_t n = sequence((const unsigned char *)s);
        switch (*s) {
        case '<': shunt__text_add(t, "&lt;"); break;
        case '>': shunt__text_add(t, "&gt;"); break;
        case '&': shunt__text_add(t, "&amp;"); break;
        case '"': shunt__text_add(t, "&quot;"); break;
        case '\'': shunt__text_add(t, "&#39;"); break;
        default: shunt__text_bytes(t, n && (unsigned char)*s >= 32 ? s : "?", n ? n : 1); break;
        }
        s += n ? n : 1;
    }
}

void shunt__text_json(struct shunt__text *t, const char *s)
{
    shunt__text_bytes(t, "\"", 1);
    while (*s) {
        size_t n = sequence((const unsigned char *)s);
        if (*s == '"' || *s == '\\')
            shunt__text_add(t, "\\%c", *s);
        else if (n == 1 && (unsigned char)*s < 32)
            shunt__text_add(t, "\\u%04x", *s);
        else
            shunt__text_bytes(t, n ? s : "?", n ? n : 1);
        s += n ? n : 1;
    }
    shunt__text_bytes(t, "\"", 1);
}

shunt_status_t shunt__text_done(struct shunt__text *t, char **text, size_t *size)
{
    shunt__text_bytes(t, "", 0);
    if (t->failed) {
        free(t->p);
        memset(t, 0, sizeof(*t));
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the text of a topology");
    }
    *text = t->p;
    if (size)
        *size = t->n;
    return SHUNT_OK;
}

const char *shunt__print_rate(char out[32], double r)
{
    snprintf(out, 32, r >= 1e9 ? "%.4g Gbit/s" : "%.4g Mbit/s", r >= 1e9 ? r / 1e9 : r / 1e6);
    return out;
}

const char *shunt__print_bandwidth(char out[32], double b)
{
    snprintf(out, 32, b >= 99.95e9 ? "%.0f GB/s" : b >= 0.0995e9 ? "%.1f GB/s" : "%.2g GB/s", b / 1e9);
    return out;
}
