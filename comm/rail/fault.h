/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rail that wraps another and lets a script play on it: private to fault*.c.
 *
 *     fault.c       the wrapper as a rail: passes calls and events on, in both directions
 *     fault_play.c  what is played: the script's clock, frames that wait, are damaged, doubled or lost
 */
#ifndef SHUNT_RAIL_FAULT_H
#define SHUNT_RAIL_FAULT_H

#include "comm/rail/fault_script.h"
#include "comm/rail/rail.h"

#define FAULT_SCOPES 32

/* What is wrong just now, with everybody (scope 0) or with the peers of one name. */
struct fault_effects {
    uint8_t down, cut, blackhole;
    uint64_t delay, jitter; /* ns */
    double rate;            /* bits/s; 0: unlimited */
    double loss, drop, duplicate, reorder, corrupt, header;
};

struct fault_scope {
    char peer[SHUNT__FAULT_NAME];
    struct fault_effects effects;
};

/* A frame on its way: waiting for its time, or read by the inner rail. */
struct fault_item {
    struct fault_item *prev, *next;
    struct fault_conn *conn;
    uint64_t due;
    uint8_t damage_header;
    struct shunt__frame frame;
    char payload[];
};

struct fault_list {
    struct fault_item *first, *last;
};

struct fault_conn {
    struct shunt__link inner; /* first; inner.rail is the wrapped rail */
    struct shunt__link *outer;
    struct fault_rail *rail;
    struct fault_conn *prev, *next;
    uint8_t closed;    /* a grave */
    uint8_t up;
    uint8_t hanging;   /* connecting into a black hole: no inner connection */
    uint8_t ending;    /* to be reported down: `why` */
    uint8_t starved;   /* the engine waits for writable */
    uint8_t landed;    /* the frame that comes is being written into landing memory */
    const char *why;
    uint64_t deadline; /* of a hanging connect */
    uint64_t queued;   /* bytes that wait */
    uint64_t last_due;
    struct fault_list waiting; /* by due time */
    struct fault_list reading; /* the inner rail still reads them */
    struct fault_list held;    /* came in while in a black hole */
};

struct fault_rail {
    struct shunt__rail rail; /* first */
    struct shunt__rail_ops ops; /* the wrapper's, under the inner rail's name */
    struct shunt__rail *inner;
    struct shunt__rail_events inner_events;
    struct fault_conn *conns, *graves;
    int depth;
    struct shunt__fault_script script;
    int next_event;
    uint64_t opened;    /* time 0 of the script */
    uint64_t n_sent;    /* frames given to this rail */
    struct fault_scope scopes[FAULT_SCOPES];
    int n_scopes;
    uint64_t random;
    double line_free;   /* when a throttled rail has sent what it was given, ns */
    int carrier;        /* what the engine was told last */
    struct shunt__pollable timer;
    uint64_t timer_at;
    char host[64];
};

/* fault.c */
void shunt__fault_enter(struct fault_rail *f);
void shunt__fault_leave(struct fault_rail *f);
void shunt__fault_end(struct fault_conn *c, const char *why); /* reported from the next shunt__fault_play() */
void shunt__fault_carrier(struct fault_rail *f, int up, const char *why);

/* fault_play.c */
/* Does what is due; frames moved. */
int shunt__fault_play(struct fault_rail *f);
/* When something will be due; UINT64_MAX: nothing. */
uint64_t shunt__fault_due(struct fault_rail *f);
/* What is wrong with this connection. */
struct fault_effects shunt__fault_effects(struct fault_rail *f, const struct shunt__link *outer);
/* Takes a copy of a frame; AGAIN when too much waits. */
shunt_status_t shunt__fault_queue(struct fault_conn *c, const struct shunt__frame *frame, const void *payload);
/* Gives the wrapped rail what is due, until it has no room; frames. Never calls back. */
int shunt__fault_release(struct fault_conn *c, uint64_t now);
struct fault_item *shunt__fault_item(struct fault_conn *c, const struct shunt__frame *frame, const void *payload);
void shunt__fault_append(struct fault_list *list, struct fault_item *item);
void shunt__fault_remove(struct fault_list *list, struct fault_item *item);
void shunt__fault_drop(struct fault_list *list);

#endif
