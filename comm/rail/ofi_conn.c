/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of libfabric rails: messages in flight, what arrives, how a connection begins and ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/clock.h"
#include "comm/base/crc32c.h"
#include "comm/base/log.h"
#include "comm/rail/ofi.h"

#define BIG SHUNT__FRAME_PAYLOAD_MAX
#define SMALL SHUNT__SEND_COPIED
#define FAREWELL (300 * SHUNT__MS) /* how long an endpoint waits for the echo of CLOSE */

/* ---- messages in flight ---- */

struct shunt__ofi_op *shunt__ofi_op_take(struct shunt__ofi_rail *r, uint32_t length)
{
    struct shunt__ofi_op **list = length <= SMALL ? &r->free_small : &r->free_big;
    struct shunt__ofi_op *op = *list;
    uint32_t room = length <= SMALL ? SMALL : BIG;

    if (op) {
        *list = op->next;
    } else {
        op = calloc(1, sizeof(*op) + room);
        if (!op)
            return NULL;
        op->room = room;
        op->mr = NULL;
        if ((r->info->domain_attr->mr_mode & FI_MR_LOCAL) &&
            fi_mr_reg(r->domain, &op->message, sizeof(op->message) + room, FI_SEND | FI_RECV, 0, 0, 0, &op->mr, NULL)) {
            free(op);
            return NULL;
        }
    }
    op->conn = NULL;
    op->length = length;
    op->receiving = 0;
    return op;
}

static void unlink_op(struct shunt__ofi_op *op)
{
    if (!op->conn)
        return;
    if (op->prev)
        op->prev->next = op->next;
    else
        op->conn->ops = op->next;
    if (op->next)
        op->next->prev = op->prev;
    op->conn = NULL;
}

static void link_op(struct shunt__ofi_op *op, struct shunt__ofi_conn *c)
{
    op->conn = c;
    op->prev = NULL;
    op->next = c->ops;
    if (op->next)
        op->next->prev = op;
    c->ops = op;
}

void shunt__ofi_op_give(struct shunt__ofi_rail *r, struct shunt__ofi_op *op)
{
    struct shunt__ofi_op **list = op->room == SMALL ? &r->free_small : &r->free_big;

    unlink_op(op);
    op->next = *list;
    *list = op;
}

void shunt__ofi_op_free_all(struct shunt__ofi_rail *r)
{
    struct shunt__ofi_op *op;

    while ((op = r->free_small ? r->free_small : r->free_big)) {
        *(r->free_small ? &r->free_small : &r->free_big) = op->next;
        if (op->mr)
            fi_close(&op->mr->fid);
        free(op);
    }
}

void shunt__ofi_fail_later(struct shunt__ofi_conn *c, shunt_status_t status, const char *fmt, const char *what)
{
    if (c->failed)
        return;
    c->failed = 1;
    c->status = status;
    snprintf(c->why, sizeof(c->why), fmt, what);
    c->rail->attention = 1;
}

static void fail_ofi(struct shunt__ofi_conn *c, ssize_t err)
{
    shunt__ofi_fail_later(c, SHUNT_ERR_RAIL, "libfabric: %s", c->rail->ofi->fi_strerror((int)(err < 0 ? -err : err)));
}

shunt_status_t shunt__ofi_post(struct shunt__ofi_conn *c, struct shunt__ofi_op *op)
{
    ssize_t err = fi_send(c->ep, &op->message, sizeof(op->message) + op->length, op->mr ? fi_mr_desc(op->mr) : NULL, 0,
                          &op->context);

    if (err == -FI_EAGAIN)
        return SHUNT_ERR_AGAIN;
    if (err) {
        fail_ofi(c, err);
        shunt__ofi_op_give(c->rail, op);
        return SHUNT_ERR_RAIL;
    }
    link_op(op, c);
    c->bytes += op->length;
    c->frames++;
    return SHUNT_OK;
}

static int post_receive(struct shunt__ofi_conn *c, struct shunt__ofi_op *op)
{
    int err;

    if (!op)
        op = shunt__ofi_op_take(c->rail, BIG);
    if (!op)
        return -FI_ENOMEM;
    op->receiving = 1;
    err = (int)fi_recv(c->ep, &op->message, sizeof(op->message) + BIG, op->mr ? fi_mr_desc(op->mr) : NULL, 0,
                       &op->context);
    if (err)
        shunt__ofi_op_give(c->rail, op);
    else if (!op->conn)
        link_op(op, c);
    return err;
}

/* A message without payload; when there is no room the other side has to do without. */
static void post_control(struct shunt__ofi_conn *c, uint64_t kind)
{
    struct shunt__ofi_op *op = c->connected && c->ep ? shunt__ofi_op_take(c->rail, 0) : NULL;

    if (!op)
        return;
    memset(&op->message, 0, sizeof(op->message));
    op->message.kind = kind;
    if (shunt__ofi_post(c, op) == SHUNT_ERR_AGAIN)
        shunt__ofi_op_give(c->rail, op);
}

/* HELLO or WELCOME with op->length bytes that are in its payload already. */
static void post_greeting(struct shunt__ofi_conn *c, struct shunt__ofi_op *op, enum shunt__frame_type type)
{
    op->message.kind = SHUNT__OFI_FRAME;
    op->message.frame = (struct shunt__frame){.type = type, .length = op->length};
    shunt__frame_seal(&c->rail->base, c->link, &op->message.frame, op->message.payload);
    if (shunt__ofi_post(c, op) == SHUNT_ERR_AGAIN) {
        shunt__ofi_op_give(c->rail, op);
        fail_ofi(c, FI_EAGAIN); /* the first message on its endpoint: there always is room */
    }
}

/* ---- life of a conn ---- */

struct shunt__ofi_conn *shunt__ofi_conn_make(struct shunt__ofi_rail *r, enum shunt__ofi_state state)
{
    struct shunt__ofi_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->rail = r;
    c->state = state;
    c->since = shunt__now();
    r->n_strangers += state == SHUNT__OFI_STRANGER;
    c->next = r->conns;
    if (c->next)
        c->next->prev = c;
    r->conns = c;
    return c;
}

/* The endpoint is closed first: then nothing of libfabric's points to the conn or its messages any more. */
void shunt__ofi_conn_free(struct shunt__ofi_conn *c)
{
    struct shunt__ofi_rail *r = c->rail;

    c->state = SHUNT__OFI_GONE;
    if (c->ep) {
        if (c->connected)
            fi_shutdown(c->ep, 0);
        fi_close(&c->ep->fid);
        c->ep = NULL;
        shunt__ofi_completions(r); /* those that the closing itself produced */
        shunt__ofi_events(r);
    }
    while (c->ops)
        shunt__ofi_op_give(r, c->ops);
    if (c->hello)
        shunt__ofi_op_give(r, c->hello);
    if (c->prev)
        c->prev->next = c->next;
    else
        r->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    free(c);
}

int shunt__ofi_endpoint(struct shunt__ofi_conn *c, struct fi_info *info)
{
    struct shunt__ofi_rail *r = c->rail;
    int err = fi_endpoint(r->domain, info, &c->ep, c);

    if (err) {
        c->ep = NULL;
        return err;
    }
    err = fi_ep_bind(c->ep, &r->eq->fid, 0);
    if (!err)
        err = fi_ep_bind(c->ep, &r->cq->fid, FI_TRANSMIT | FI_RECV);
    if (!err)
        err = fi_enable(c->ep);
    for (int i = 0; i < SHUNT__OFI_RECEIVES && !err; i++)
        err = post_receive(c, NULL);
    return err;
}

void shunt__ofi_leave(struct shunt__ofi_conn *c, int say_so)
{
    if (c->state >= SHUNT__OFI_LEAVING)
        return;
    c->rail->n_strangers -= c->state == SHUNT__OFI_STRANGER;
    if (c->link)
        c->link->conn = NULL;
    c->link = NULL;
    if (say_so && c->state == SHUNT__OFI_UP && !c->failed)
        post_control(c, SHUNT__OFI_CLOSE);
    else
        c->quiet = 1;
    c->state = SHUNT__OFI_LEAVING;
    c->since = shunt__now();
    c->rail->attention = 1;
}

void shunt__ofi_down(struct shunt__ofi_conn *c, shunt_status_t status, const char *why)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    struct shunt__link *link = c->link;

    shunt__ofi_leave(c, 0);
    if (link)
        p->events->down(p->engine, link, status, why);
}

int shunt__ofi_step_out(struct shunt__ofi_conn *c, uint64_t now)
{
    if (!((c->quiet && c->frames == 0) || c->failed || now - c->since > FAREWELL))
        return 0;
    shunt__ofi_conn_free(c);
    return 1;
}

/* ---- what arrives ---- */

static void on_hello(struct shunt__ofi_conn *c, const struct shunt__frame *frame, const void *payload)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    struct shunt__ofi_op *op = shunt__ofi_op_take(c->rail, SHUNT__HELLO_MAX);
    size_t len = SHUNT__HELLO_MAX;
    struct shunt__link *link =
        op ? p->events->incoming(p->engine, &c->rail->base, payload, frame->length, op->message.payload, &len) : NULL;

    if (!link) {
        if (op)
            shunt__ofi_op_give(c->rail, op);
        shunt__ofi_leave(c, 0);
        return;
    }
    c->rail->n_strangers--;
    c->state = SHUNT__OFI_UP;
    c->link = link;
    link->conn = c;
    op->length = (uint32_t)len;
    post_greeting(c, op, SHUNT__FRAME_WELCOME);
    if (!c->failed)
        p->events->established(p->engine, link);
}

static void on_welcome(struct shunt__ofi_conn *c, const struct shunt__frame *frame, const void *payload)
{
    const struct shunt__rail_params *p = &c->rail->base.params;

    if (p->events->welcome(p->engine, c->link, payload, frame->length)) {
        if (c->state == SHUNT__OFI_GREETING) {
            post_control(c, SHUNT__OFI_CLOSE);
            shunt__ofi_fail_later(c, SHUNT_ERR_AUTH, "%s", "the other side does not know this job's key");
        }
        return;
    }
    if (c->state != SHUNT__OFI_GREETING)
        return;
    c->state = SHUNT__OFI_UP;
    p->events->established(p->engine, c->link);
}

static void on_message(struct shunt__ofi_conn *c, const struct shunt__ofi_message *m, size_t length)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    struct shunt__frame frame;

    if (length < sizeof(*m)) {
        shunt__ofi_fail_later(c, SHUNT_ERR_RAIL, "%s", "a message that is too short");
        return;
    }
    if (m->kind == SHUNT__OFI_CLOSE || m->kind == SHUNT__OFI_CLOSED) {
        if (c->state == SHUNT__OFI_LEAVING) {
            c->quiet = 1;
            c->rail->attention = 1;
        } else if (m->kind == SHUNT__OFI_CLOSE) {
            post_control(c, SHUNT__OFI_CLOSED);
            shunt__ofi_fail_later(c, SHUNT_ERR_RAIL, "%s", "closed by the other side");
        }
        return;
    }
    if (c->state == SHUNT__OFI_LEAVING || c->failed)
        return;
    frame = m->frame;
    if (m->kind != SHUNT__OFI_FRAME || !shunt__frame_valid(&c->rail->base, &frame) ||
        frame.length != length - sizeof(*m) ||
        (frame.type == SHUNT__FRAME_HELLO) != (c->state == SHUNT__OFI_STRANGER) ||
        (frame.type == SHUNT__FRAME_WELCOME) != (c->state == SHUNT__OFI_GREETING)) {
        shunt__ofi_fail_later(c, SHUNT_ERR_RAIL, "%s", "a damaged frame header");
        return;
    }
    if (c->state == SHUNT__OFI_STRANGER) {
        on_hello(c, &frame, m->payload);
        return;
    }
    if (c->state == SHUNT__OFI_GREETING) {
        on_welcome(c, &frame, m->payload);
        return;
    }
    c->rail->moved++;
    if ((frame.flags & SHUNT__FRAME_CRC) && shunt__crc32c(0, m->payload, frame.length) != frame.payload_crc)
        p->events->damaged(p->engine, c->link, &frame);
    else
        p->events->frame(p->engine, c->link, &frame, m->payload);
}

static void on_completion(struct shunt__ofi_op *op, size_t length, int err)
{
    struct shunt__ofi_conn *c = op->conn;

    if (!c)
        return; /* of an endpoint that has been closed */
    if (!op->receiving) {
        c->bytes -= op->length;
        c->frames--;
        c->rail->attention |= c->refused || c->state >= SHUNT__OFI_LEAVING;
    }
    if (err && c->state < SHUNT__OFI_GONE)
        fail_ofi(c, err);
    if (op->receiving && !err && c->state < SHUNT__OFI_GONE) {
        on_message(c, &op->message, length);
        err = post_receive(c, op);
        if (err)
            fail_ofi(c, err);
        return;
    }
    shunt__ofi_op_give(c->rail, op);
}

void shunt__ofi_completions(struct shunt__ofi_rail *r)
{
    struct fi_cq_msg_entry e[16];
    struct fi_cq_err_entry bad;
    ssize_t n;

    for (int rounds = 0; rounds < 64; rounds++) {
        n = fi_cq_read(r->cq, e, sizeof(e) / sizeof(e[0]));
        if (n == -FI_EAVAIL) {
            memset(&bad, 0, sizeof(bad));
            if (fi_cq_readerr(r->cq, &bad, 0) < 0)
                return;
            if (bad.op_context)
                on_completion(bad.op_context, 0, bad.err ? bad.err : FI_EIO);
            continue;
        }
        if (n <= 0)
            return;
        for (ssize_t i = 0; i < n; i++)
            on_completion(e[i].op_context, e[i].len, 0);
    }
}

/* ---- connection events ---- */

static void on_request(struct shunt__ofi_rail *r, struct fi_info *info)
{
    struct shunt__ofi_conn *c =
        r->n_strangers < SHUNT__STRANGERS ? shunt__ofi_conn_make(r, SHUNT__OFI_STRANGER) : NULL;
    struct sockaddr_storage from = {0};
    int err;

    if (!c) {
        fi_reject(r->pep, info->handle, NULL, 0);
        return;
    }
    if (info->dest_addr && info->dest_addrlen <= sizeof(from)) {
        memcpy(&from, info->dest_addr, info->dest_addrlen);
        shunt__inet_name(&from, c->name);
    }
    err = shunt__ofi_endpoint(c, info);
    if (!c->ep)
        fi_reject(r->pep, info->handle, NULL, 0);
    else if (!err)
        err = fi_accept(c->ep, NULL, 0);
    if (err)
        fail_ofi(c, err);
}

static void on_connected(struct shunt__ofi_conn *c)
{
    struct shunt__ofi_op *op = c->hello;

    c->connected = 1;
    c->hello = NULL;
    if (op && c->state == SHUNT__OFI_GREETING && !c->failed)
        post_greeting(c, op, SHUNT__FRAME_HELLO);
    else if (op)
        shunt__ofi_op_give(c->rail, op);
}

/* The conn whose endpoint an event speaks of; one that is closed by now has none. */
static struct shunt__ofi_conn *conn_of(struct shunt__ofi_rail *r, const struct fid *fid)
{
    for (struct shunt__ofi_conn *c = r->conns; c; c = c->next)
        if (c->ep && &c->ep->fid == fid)
            return c;
    return NULL;
}

void shunt__ofi_events(struct shunt__ofi_rail *r)
{
    char space[sizeof(struct fi_eq_cm_entry) + 512];
    struct fi_eq_cm_entry *e = (struct fi_eq_cm_entry *)(void *)space;
    struct fi_eq_err_entry bad;
    struct shunt__ofi_conn *c;
    uint32_t event;
    ssize_t n;

    for (int rounds = 0; rounds < 64; rounds++) {
        n = fi_eq_read(r->eq, &event, space, sizeof(space), 0);
        if (n == -FI_EAVAIL) {
            memset(&bad, 0, sizeof(bad));
            if (fi_eq_readerr(r->eq, &bad, 0) < 0)
                return;
            c = conn_of(r, bad.fid);
            if (c)
                fail_ofi(c, bad.err ? bad.err : FI_EIO);
            continue;
        }
        if (n < (ssize_t)sizeof(*e))
            return;
        if (event == FI_CONNREQ) {
            on_request(r, e->info);
            r->ofi->fi_freeinfo(e->info);
            continue;
        }
        c = conn_of(r, e->fid);
        if (c && event == FI_CONNECTED)
            on_connected(c);
        else if (c && event == FI_SHUTDOWN)
            shunt__ofi_fail_later(c, SHUNT_ERR_RAIL, "%s", "closed by the other side");
    }
}
