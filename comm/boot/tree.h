/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tree of a meeting: rank r's parent is rank (r - 1) / FANOUT. Every step (ready, allgather, barrier) gathers up the
 * tree to rank 0 and spreads down again, so n ranks take 2 log8 n hops, and no rank sends the whole more than 8 times.
 */
#ifndef SHUNT_BOOT_TREE_H
#define SHUNT_BOOT_TREE_H

#include "comm/boot/boot.h"
#include "comm/boot/link.h"

struct shunt__boot {
    int rank, size;
    uint64_t timeout; /* ns */
    uint32_t seq;
    unsigned char epoch[16];
    struct shunt__boot_secret secret;
    int has_parent, n_children; /* links stand at parent and child[0..n_children) */
    struct shunt__boot_link parent, child[SHUNT__BOOT_FANOUT];
    struct shunt__boot_polls polls;
    struct shunt__boot_fail_message failure; /* status SHUNT_OK while there is none */
};

static inline int shunt__boot_parent_of(int rank)
{
    return (rank - 1) / SHUNT__BOOT_FANOUT;
}

static inline int shunt__boot_first_child(int rank)
{
    return rank * SHUNT__BOOT_FANOUT + 1;
}

int shunt__boot_children_of(int rank, int size);

/* One step's state; several calls of progress() run it. */
struct shunt__boot_entry {
    unsigned char *data; /* of the step's table; NULL when len is 0 or data is not wanted */
    size_t len;
    unsigned char have, sent;
};

struct shunt__boot_running {
    struct shunt__boot *boot;
    enum shunt__boot_step step;
    uint32_t seq;
    struct shunt__boot_entry *entry; /* of every rank */
    int have;                        /* entries of the own subtree that are here (rank 0: of all) */
    int want;
    int left[SHUNT__BOOT_FANOUT];    /* entries still to come from each child */
    int next_down;                   /* rank 0: the first rank not yet sent down */
    int down_done;                   /* the last DOWN has been taken in and passed on */
};

/* `mine` is copied. */
shunt_status_t shunt__boot_step_begin(struct shunt__boot_running *running, struct shunt__boot *boot,
                                      enum shunt__boot_step step, const void *mine, size_t len);
/* Adds the links to the set. */
void shunt__boot_step_poll(struct shunt__boot_running *running, struct shunt__boot_polls *polls);
/* SHUNT_OK: the step is over, IN_PROGRESS: not yet; else the failure, which has been passed on to the others. */
shunt_status_t shunt__boot_step_progress(struct shunt__boot_running *running, const struct shunt__boot_polls *polls);
void shunt__boot_step_end(struct shunt__boot_running *running);
/* Ends the whole boot with this failure, tells the neighbours, sets the error text, returns the status. */
shunt_status_t shunt__boot_tree_fail(struct shunt__boot *boot, const struct shunt__boot_link *except,
                                     shunt_status_t status, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
