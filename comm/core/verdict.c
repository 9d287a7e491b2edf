/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/core/verdict.h"
#include <stdio.h>
#include <string.h>

#define FORGET 0.998 /* per window: half after some 35 s of traffic */

void shunt__series_add(struct shunt__series *s, double sample)
{
    double now;

    s->recent[s->n++ % SHUNT__SERIES] = sample;
    now = shunt__series_now(s);
    if (s->base * FORGET > now)
        s->base = s->slow ? s->base : s->base * FORGET; /* what is slow now does not become what it can do */
    else
        s->base = now;
}

static double middle(double a, double b, double c)
{
    double low = a < b ? a : b, high = a < b ? b : a;

    return c < low ? low : c > high ? high : c;
}

double shunt__series_now(const struct shunt__series *s)
{
    if (s->n < 3)
        return 0;
    return middle(s->recent[(s->n - 1) % SHUNT__SERIES], s->recent[(s->n - 2) % SHUNT__SERIES],
                  s->recent[(s->n - 3) % SHUNT__SERIES]);
}

double shunt__series_factor(const struct shunt__series *s)
{
    double now = shunt__series_now(s);

    return now <= 0 || s->base <= now ? 1 : s->base / now;
}

int shunt__series_judge(struct shunt__series *s, double others)
{
    double f = shunt__series_factor(s);

    if (!s->slow) {
        s->low = f > 3 && f > 2 * others ? s->low + 1 : 0;
        if (s->low < 5)
            return 0;
        s->slow = 1;
        s->high = 0;
        return 1;
    }
    s->high = f < 1.5 || f < 1.2 * others ? s->high + 1 : 0;
    if (s->high < 5)
        return 0;
    s->slow = 0;
    s->low = 0;
    return 1;
}

/* ---- who is to blame ---- */

static int same_end(const struct shunt__edge *e, uint64_t host, const char *rail, uint64_t *other)
{
    if (e->from == host && strcmp(e->from_rail, rail) == 0) {
        *other = e->to;
        return 1;
    }
    if (e->to == host && strcmp(e->to_rail, rail) == 0) {
        *other = e->from;
        return 1;
    }
    return 0;
}

/* Different hosts at the other end of a NIC's links: slow ones and those that are well. Slow either way counts as slow. */
static void count_ends(const struct shunt__edge *e, int n, uint64_t host, const char *rail, int *slow, int *well, float *factor)
{
    uint64_t other, seen;

    *slow = *well = 0;
    *factor = 1;
    for (int i = 0; i < n; i++) {
        int first = 1, bad = 0;
        if (!same_end(&e[i], host, rail, &other))
            continue;
        for (int k = 0; k < i && first; k++)
            first = !(same_end(&e[k], host, rail, &seen) && seen == other);
        if (!first)
            continue;
        for (int k = i; k < n; k++)
            if (same_end(&e[k], host, rail, &seen) && seen == other && e[k].slow) {
                bad = 1;
                if (e[k].factor > *factor)
                    *factor = e[k].factor;
            }
        *slow += bad;
        *well += !bad;
    }
}

/* Slow in either direction. */
static int pair_slow(const struct shunt__edge *e, int n, int i)
{
    for (int k = 0; k < n; k++)
        if (e[k].slow && strcmp(e[k].from_rail, e[i].from_rail) == 0 &&
            ((e[k].from == e[i].from && e[k].to == e[i].to) || (e[k].from == e[i].to && e[k].to == e[i].from)))
            return 1;
    return 0;
}

struct cut {
    char a[32], b[32], rail[24];
};

static int cut_of(const struct shunt__edge *e, shunt__switch_fn *switch_of, void *arg, struct cut *c)
{
    const char *x = switch_of ? switch_of(arg, e->from_name, e->from_rail) : NULL;
    char first[32];
    const char *y;

    if (!x)
        return 0;
    snprintf(first, sizeof(first), "%.31s", x);
    y = switch_of(arg, e->to_name, e->to_rail);
    if (!y || strcmp(first, y) == 0)
        return 0;
    snprintf(c->a, sizeof(c->a), "%.31s", strcmp(first, y) < 0 ? first : y);
    snprintf(c->b, sizeof(c->b), "%.31s", strcmp(first, y) < 0 ? y : first);
    snprintf(c->rail, sizeof(c->rail), "%s", e->from_rail);
    return 1;
}

static int add(struct shunt__verdict *out, int found, int max, enum shunt__blame blame, const char *what, float factor, int links)
{
    if (found == max)
        return found;
    out[found].blame = blame;
    snprintf(out[found].what, sizeof(out[found].what), "%s", what);
    out[found].factor = factor;
    out[found].links = links;
    return found + 1;
}

static int find_paths(const struct shunt__edge *e, int n, shunt__switch_fn *switch_of, void *arg, unsigned char *done,
                      struct shunt__verdict *out, int max)
{
    int found = 0;

    for (int i = 0; i < n; i++) {
        struct cut c, d;
        int slow = 0, well = 0, hosts_a = 0, hosts_b = 0;
        uint64_t a[64], b[64];
        float factor = 1;
        char what[120];
        if (!e[i].slow || done[i] || !cut_of(&e[i], switch_of, arg, &c))
            continue;
        for (int k = 0; k < n; k++) {
            int swap, bad;
            if (!cut_of(&e[k], switch_of, arg, &d) || strcmp(c.a, d.a) || strcmp(c.b, d.b) || strcmp(c.rail, d.rail))
                continue;
            bad = pair_slow(e, n, k);
            slow += bad;
            well += !bad;
            if (!bad)
                continue;
            factor = e[k].factor > factor ? e[k].factor : factor;
            swap = strcmp(switch_of(arg, e[k].from_name, e[k].from_rail), c.a) != 0;
            uint64_t ha = swap ? e[k].to : e[k].from, hb = swap ? e[k].from : e[k].to;
            int known = 0;
            for (int q = 0; q < hosts_a; q++)
                known |= a[q] == ha;
            if (!known && hosts_a < 64)
                a[hosts_a++] = ha;
            known = 0;
            for (int q = 0; q < hosts_b; q++)
                known |= b[q] == hb;
            if (!known && hosts_b < 64)
                b[hosts_b++] = hb;
        }
        if (slow < 2 || well > slow / 4 || hosts_a < 2 || hosts_b < 2)
            continue; /* one host's NIC would look the same */
        snprintf(what, sizeof(what), "%s <-> %s on %s", c.a, c.b, c.rail);
        found = add(out, found, max, SHUNT__BLAME_PATH, what, factor, slow);
        for (int k = 0; k < n; k++)
            if (cut_of(&e[k], switch_of, arg, &d) && !strcmp(c.a, d.a) && !strcmp(c.b, d.b) && !strcmp(c.rail, d.rail))
                done[k] = 1;
    }
    return found;
}

int shunt__verdict_find(const struct shunt__edge *e, int n, shunt__switch_fn *switch_of, void *arg,
                        struct shunt__verdict *out, int max)
{
    unsigned char done[1024] = {0};
    int found;

    if (n > (int)sizeof(done))
        n = (int)sizeof(done);
    found = switch_of ? find_paths(e, n, switch_of, arg, done, out, max) : 0;
    for (int i = 0; i < n; i++) { /* NICs: the end with more slow links explains more */
        int slow[2], well[2];
        float factor[2];
        uint64_t other;
        char what[120];
        if (!e[i].slow || done[i])
            continue;
        count_ends(e, n, e[i].from, e[i].from_rail, &slow[0], &well[0], &factor[0]);
        count_ends(e, n, e[i].to, e[i].to_rail, &slow[1], &well[1], &factor[1]);
        int end = slow[1] > slow[0];
        if (slow[end] < 2 || well[end] > 0)
            continue;
        uint64_t host = end ? e[i].to : e[i].from;
        const char *rail = end ? e[i].to_rail : e[i].from_rail;
        snprintf(what, sizeof(what), "%s:%s", end ? e[i].to_name : e[i].from_name, rail);
        found = add(out, found, max, SHUNT__BLAME_NIC, what, factor[end], slow[end]);
        for (int k = 0; k < n; k++)
            if (same_end(&e[k], host, rail, &other))
                done[k] = 1;
    }
    for (int i = 0; i < n; i++) {
        char what[120];
        int first;
        if (!e[i].slow || done[i])
            continue;
        first = e[i].from < e[i].to;
        snprintf(what, sizeof(what), "%s:%s <-> %s:%s", first ? e[i].from_name : e[i].to_name,
                 first ? e[i].from_rail : e[i].to_rail, first ? e[i].to_name : e[i].from_name,
                 first ? e[i].to_rail : e[i].from_rail);
        found = add(out, found, max, SHUNT__BLAME_LINK, what, e[i].factor, 1);
        for (int k = 0; k < n; k++)
            if (((e[k].from == e[i].from && e[k].to == e[i].to) || (e[k].from == e[i].to && e[k].to == e[i].from)) &&
                (strcmp(e[k].from_rail, e[i].from_rail) == 0 || strcmp(e[k].from_rail, e[i].to_rail) == 0))
                done[k] = 1;
    }
    return found;
}
