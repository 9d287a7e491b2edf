/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails over libfabric's connected endpoints: private to ofi*.c.
 *
 *     ofi.c       the rail: fabric, domain, queues, the listening endpoint, its operations
 *     ofi_conn.c  connections, messages in flight and what arrives
 */
#ifndef SHUNT_RAIL_OFI_H
#define SHUNT_RAIL_OFI_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include "comm/rail/inet.h"
#include "comm/rail/rail.h"

/* The library, opened at run time by the first rail: it starts all its providers when it is loaded. */
#define SHUNT__OFI_FUNCTIONS(F) \
    F(fi_getinfo) \
    F(fi_freeinfo) \
    F(fi_dupinfo) \
    F(fi_fabric) \
    F(fi_strerror)

struct shunt__ofi_api {
#define SHUNT__OFI_MEMBER(name) __typeof__(name) *name;
    SHUNT__OFI_FUNCTIONS(SHUNT__OFI_MEMBER)
#undef SHUNT__OFI_MEMBER
};

#define SHUNT__OFI_RECEIVES 2 /* posted per connection */

/* What a message is. Frames travel only between conns that are up, HELLO and WELCOME before that. */
enum { SHUNT__OFI_FRAME = 0x69666f53, SHUNT__OFI_CLOSE, SHUNT__OFI_CLOSED };

struct shunt__ofi_message {
    uint64_t kind;
    struct shunt__frame frame;
    char payload[];
};

/* A message in flight, or memory for one that comes. */
struct shunt__ofi_op {
    struct fi_context2 context; /* first: some providers write here */
    struct shunt__ofi_op *prev, *next; /* of its conn; next alone in the rail's free list */
    struct shunt__ofi_conn *conn;
    struct fid_mr *mr;
    uint32_t room;   /* for payload */
    uint32_t length; /* of the payload */
    int receiving;
    struct shunt__ofi_message message;
};

enum shunt__ofi_state {
    SHUNT__OFI_STRANGER, /* accepted, HELLO expected; no link yet */
    SHUNT__OFI_GREETING, /* connecting, or HELLO sent and WELCOME expected */
    SHUNT__OFI_UP,
    SHUNT__OFI_LEAVING, /* no link any more: waiting for the echo of CLOSE */
    SHUNT__OFI_GONE
};

struct shunt__ofi_conn {
    struct shunt__ofi_rail *rail;
    struct shunt__link *link;
    enum shunt__ofi_state state;
    struct fid_ep *ep;
    struct shunt__ofi_op *ops;   /* in flight, both directions */
    struct shunt__ofi_op *hello; /* to be sent once the endpoint is connected */
    uint64_t since;
    uint64_t bytes;
    int frames; /* being sent */
    int connected, refused, failed, quiet;
    shunt_status_t status;
    char why[128];
    char name[SHUNT__INET_NAME];
    struct shunt__ofi_conn *prev, *next;
};

struct shunt__ofi_rail {
    struct shunt__rail base;
    const struct shunt__ofi_api *ofi;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_cq *cq;
    struct fid_pep *pep;
    struct shunt__pollable eq_fd, cq_fd;
    struct sockaddr_storage local;
    int prefix; /* of the subnet; -1 while the address is absent */
    uint64_t looked_at;
    struct shunt__ofi_conn *conns;
    int n_strangers;
    int attention; /* some conn has failed, is leaving, or is owed something */
    int moved;
    struct shunt__ofi_op *free_small, *free_big;
};

extern const struct shunt__rail_ops shunt__ofi_ops;

struct shunt__ofi_op *shunt__ofi_op_take(struct shunt__ofi_rail *rail, uint32_t length);
void shunt__ofi_op_give(struct shunt__ofi_rail *rail, struct shunt__ofi_op *op);
void shunt__ofi_op_free_all(struct shunt__ofi_rail *rail);
/* Sends what is in `op`, which is libfabric's from now on. AGAIN: no room, `op` is still the caller's. */
shunt_status_t shunt__ofi_post(struct shunt__ofi_conn *conn, struct shunt__ofi_op *op);

struct shunt__ofi_conn *shunt__ofi_conn_make(struct shunt__ofi_rail *rail, enum shunt__ofi_state state);
void shunt__ofi_conn_free(struct shunt__ofi_conn *conn);
/* Opens and enables the endpoint of a conn, with receives posted; 0 or libfabric's error. */
int shunt__ofi_endpoint(struct shunt__ofi_conn *conn, struct fi_info *info);
void shunt__ofi_fail_later(struct shunt__ofi_conn *conn, shunt_status_t status, const char *fmt, const char *what);
void shunt__ofi_leave(struct shunt__ofi_conn *conn, int say_so);
void shunt__ofi_down(struct shunt__ofi_conn *conn, shunt_status_t status, const char *why);
/* One step towards the end of a conn without a link; nonzero when it is gone. */
int shunt__ofi_step_out(struct shunt__ofi_conn *conn, uint64_t now);
/* Handle everything that the queues hold. */
void shunt__ofi_events(struct shunt__ofi_rail *rail);
void shunt__ofi_completions(struct shunt__ofi_rail *rail);

#endif
