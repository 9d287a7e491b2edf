/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verdicts: from links that have become slow to what is to blame. Pure: no clock, no sockets, no context.
 */
#ifndef SHUNT_CORE_VERDICT_H
#define SHUNT_CORE_VERDICT_H

#include <stddef.h>
#include <stdint.h>

/* One link as its sender has measured it lately. */
struct shunt__edge {
    uint64_t from, to;           /* hosts */
    char from_rail[24], to_rail[24];
    char from_name[32], to_name[32];
    float factor;                /* how many times slower than it was; 1: as ever */
    uint8_t slow;
    uint64_t time;               /* when it was reported, the receiver's clock, ns */
};

enum shunt__blame { SHUNT__BLAME_LINK = 1, SHUNT__BLAME_NIC, SHUNT__BLAME_PATH };

struct shunt__verdict {
    enum shunt__blame blame;
    char what[120]; /* "h1:rail0 <-> h2:rail0", "h3:rail1", "leaf1 <-> leaf2 on rail0": equal for equal faults */
    float factor;
    int links;      /* slow links it explains */
};

/* Which switch a NIC hangs on, from the fabric file; NULL: unknown. */
typedef const char *shunt__switch_fn(void *arg, const char *host, const char *rail);

/*
 * Explains the slow links among `edges`, the fewest causes first: a path between two switches if it is slow between several
 * hosts of both and well inside them; a NIC if it is slow towards two hosts or more and well towards none; else the link.
 * Each slow link is explained once. Returns the number of verdicts, at most `max`. O(n^2).
 */
int shunt__verdict_find(const struct shunt__edge *edges, int n, shunt__switch_fn *switch_of, void *arg,
                        struct shunt__verdict *out, int max);

/* ---- one signal that may change ---- */

#define SHUNT__SERIES 8
/* The rate (or the inverse of the latency) of one link, a sample per window of traffic. */
struct shunt__series {
    double recent[SHUNT__SERIES];
    unsigned n;
    double base;   /* what it has been able to do: a maximum that forgets slowly */
    unsigned low, high;
    uint8_t slow;
};

void shunt__series_add(struct shunt__series *s, double sample);
/* Median of the last three; 0 before there are three. */
double shunt__series_now(const struct shunt__series *s);
/* base / now, at least 1; 1 before enough is known. */
double shunt__series_factor(const struct shunt__series *s);
/*
 * After each sample: whether the link is to be called slow. `others` is the median factor of the process's other links at the
 * same time: what slows all of them is the machine, not a link. Hysteresis: slow after 5 windows at more than 3 times
 * slower and twice the others, well after 5 windows under 1.5. Returns nonzero when `slow` has changed.
 */
int shunt__series_judge(struct shunt__series *s, double others);

#endif
