/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt/health.h - what is known about rails and peers, and events when it changes. */
#ifndef SHUNT_HEALTH_H
#define SHUNT_HEALTH_H

#include <shunt/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shunt_rail_state {
    SHUNT_RAIL_IDLE = 0,   /* no connection was needed yet */
    SHUNT_RAIL_CONNECTING, /* the first connection is being made */
    SHUNT_RAIL_UP,
    SHUNT_RAIL_SLOW,    /* works, at a rate far under what it or its like has shown */
    SHUNT_RAIL_SUSPECT, /* silent while another rail to the same peer is not; gets nothing new */
    SHUNT_RAIL_DEAD,    /* lost; waits for its next probe */
    SHUNT_RAIL_PROBING  /* a fresh connection is being tried */
} shunt_rail_state_t;

/* "up", "dead" and so on. Static. */
SHUNT_API const char *shunt_rail_state_name(shunt_rail_state_t state);

typedef enum shunt_event_kind {
    SHUNT_EVENT_RAIL_UP = 1,   /* a rail to a peer came (back) into use */
    SHUNT_EVENT_RAIL_DOWN,     /* was lost */
    SHUNT_EVENT_RAIL_SUSPECT,
    SHUNT_EVENT_PEER_LOST,     /* a peer died, left, or can't be reached */
    SHUNT_EVENT_COMM_ENDED,    /* a communicator was revoked or aborted */
    SHUNT_EVENT_VERDICT        /* slow link, NIC, rank or path; or over again */
} shunt_event_kind_t;

typedef struct shunt_event {
    shunt_event_kind_t kind;
    uint64_t time;        /* nanoseconds of CLOCK_MONOTONIC */
    const char *rail;     /* name of the local rail, "" when none is concerned */
    const char *peer;     /* "host/pid" of the other process, "" when none */
    int rank;             /* its rank in the communicator that was created first, -1: in none */
    const char *text;     /* one line for a person */
} shunt_event_t;

/*
 * From now on `fn` is called for every event, from whichever thread makes progress; it must not call into Shunt
 * and not block. One callback per context; NULL takes it away. The event is valid for the call only.
 */
SHUNT_API void shunt_context_on_event(shunt_context_t *ctx, void (*fn)(const shunt_event_t *event, void *arg),
                                      void *arg);

/* One rail to one peer, as it is now. */
typedef struct shunt_rail_info {
    size_t size;          /* sizeof(shunt_rail_info_t) */
    char rail[64];        /* local rail, "sock:eth1" */
    char peer[96];        /* "host/pid" */
    int rank;             /* rank of the peer in `comm` */
    shunt_rail_state_t state;
    char why[120];        /* reason for the last change of state */
    double since;         /* seconds in this state */
    double rate;          /* bytes/s measured, 0: not known */
    double latency;       /* seconds measured, 0: not known */
    uint64_t outstanding; /* bytes not acknowledged */
    uint64_t bytes_sent, bytes_received, bytes_resent, retransmits, damaged, duplicates;
} shunt_rail_info_t;

/*
 * Rails from this rank to the members of `comm`: fills at most `n` entries of `info` (each with .size set) and sets
 * *n to how many there are: `n` holds the room for entries before the call, and may hold 0. Errors: INVALID.
 */
SHUNT_API shunt_status_t shunt_comm_rails(shunt_comm_t *comm, shunt_rail_info_t *info, int *n);

#ifdef __cplusplus
}
#endif
#endif
