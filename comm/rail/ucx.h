/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails over UCX: private to ucx*.c.
 *
 *     ucx.c       the rail: context, worker, listener, its operations
 *     ucx_conn.c  connections and what arrives on them
 *     ucx_api.c   the library itself, opened at run time
 */
#ifndef SHUNT_RAIL_UCX_H
#define SHUNT_RAIL_UCX_H

#include "comm/rail/inet.h"
#include "comm/rail/rail.h"
#include "comm/rail/ucx_api.h"

#define SHUNT__UCX_MAX_CONNS 4096

/* Active message ids. */
enum { SHUNT__UCX_AM_FRAME, SHUNT__UCX_AM_CLOSE, SHUNT__UCX_AM_CLOSED, SHUNT__UCX_AM_IDS };

struct shunt__ucx_header {
    uint64_t to;   /* the receiver's number of the connection; 0 in HELLO */
    uint64_t from; /* the sender's number of it, in HELLO and WELCOME */
    struct shunt__frame frame;
};

enum shunt__ucx_state {
    SHUNT__UCX_STRANGER, /* accepted, HELLO expected; no link yet */
    SHUNT__UCX_GREETING, /* HELLO sent or on its way, WELCOME expected */
    SHUNT__UCX_UP,
    SHUNT__UCX_LEAVING, /* no link any more: waiting for the echo of CLOSE */
    SHUNT__UCX_CLOSING  /* the endpoint is being closed */
};

struct shunt__ucx_conn {
    struct shunt__ucx_rail *rail;
    struct shunt__link *link;
    enum shunt__ucx_state state;
    ucp_ep_h ep;
    void *close_request;
    uint64_t id, peer_id;
    uint64_t since; /* the state began */
    uint64_t bytes; /* in flight */
    int frames;     /* in flight */
    int refused;    /* events->writable is owed */
    int failed;     /* tear down and report */
    int quiet;      /* nothing more is to come: close now */
    shunt_status_t status;
    char why[128];
    char name[SHUNT__INET_NAME];
    struct shunt__ucx_conn *prev, *next;
};

/* A message in flight, with its own memory. */
struct shunt__ucx_op {
    struct shunt__ucx_op *next;
    struct shunt__ucx_conn *conn;
    struct shunt__ucx_header header;
    uint32_t length;
    uint32_t room; /* SMALL or BIG */
    char payload[];
};

struct shunt__ucx_rail {
    struct shunt__rail base;
    const struct shunt__ucx_api *ucx;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_listener_h listener;
    struct shunt__pollable pollable;
    struct sockaddr_storage local;
    int prefix; /* of the subnet; -1 while the address is absent */
    uint64_t looked_at;
    struct shunt__ucx_conn *conns;
    struct shunt__ucx_conn *slots[SHUNT__UCX_MAX_CONNS];
    ucp_conn_request_h requests[SHUNT__STRANGERS];
    int n_requests, n_strangers;
    int attention; /* some conn has failed, is leaving or closing, or is owed something */
    int moved;     /* frames handed over by the handlers of the current progress() */
    struct shunt__ucx_op *free_small, *free_big;
};

extern const struct shunt__rail_ops shunt__ucx_ops;

struct shunt__ucx_op *shunt__ucx_op_take(struct shunt__ucx_rail *rail, uint32_t length);
void shunt__ucx_op_give(struct shunt__ucx_rail *rail, struct shunt__ucx_op *op);
/* Sends what is in `op`, which is UCX's from now on; nonzero when the conn has failed. */
int shunt__ucx_post(struct shunt__ucx_conn *conn, struct shunt__ucx_op *op, unsigned id, unsigned flags);
/* HELLO or WELCOME with `len` bytes that are in op->payload already. */
int shunt__ucx_post_greeting(struct shunt__ucx_conn *conn, struct shunt__ucx_op *op, enum shunt__frame_type type,
                             size_t len);

struct shunt__ucx_conn *shunt__ucx_conn_make(struct shunt__ucx_rail *rail, enum shunt__ucx_state state);
void shunt__ucx_conn_free(struct shunt__ucx_conn *conn);
ucs_status_t shunt__ucx_endpoint(struct shunt__ucx_conn *conn, ucp_ep_params_t *params);
/* To be reported by the next progress(); the first failure counts. */
void shunt__ucx_fail_later(struct shunt__ucx_conn *conn, shunt_status_t status, const char *fmt, const char *what);
/* The link is free from now on; the endpoint goes when it may. */
void shunt__ucx_leave(struct shunt__ucx_conn *conn, int say_so);
/* The same, and the engine is told. */
void shunt__ucx_down(struct shunt__ucx_conn *conn, shunt_status_t status, const char *why);
/* One step towards the end of a conn without a link; nonzero when it is gone. */
int shunt__ucx_step_out(struct shunt__ucx_conn *conn, uint64_t now);

void shunt__ucx_on_request(ucp_conn_request_h request, void *rail);
void shunt__ucx_accept(struct shunt__ucx_rail *rail);
ucs_status_t shunt__ucx_set_handlers(struct shunt__ucx_rail *rail);

#endif
