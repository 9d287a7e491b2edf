/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of UCX rails: messages in flight, what arrives, how a connection begins and ends. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/clock.h"
#include "comm/base/crc32c.h"
#include "comm/base/log.h"
#include "comm/rail/ucx.h"

#define BIG SHUNT__FRAME_PAYLOAD_MAX
#define SMALL SHUNT__SEND_COPIED
#define FAREWELL (300 * SHUNT__MS) /* how long an endpoint waits for the echo of CLOSE */

/* ---- operations in flight ---- */

struct shunt__ucx_op *shunt__ucx_op_take(struct shunt__ucx_rail *r, uint32_t length)
{
    struct shunt__ucx_op **list = length <= SMALL ? &r->free_small : &r->free_big;
    struct shunt__ucx_op *op = *list;

    if (op) {
        *list = op->next;
    } else {
        uint32_t room = length <= SMALL ? SMALL : BIG;
        op = malloc(sizeof(*op) + room);
        if (!op)
            return NULL;
        op->room = room;
    }
    op->length = length;
    return op;
}

void shunt__ucx_op_give(struct shunt__ucx_rail *r, struct shunt__ucx_op *op)
{
    struct shunt__ucx_op **list = op->room == SMALL ? &r->free_small : &r->free_big;

    op->next = *list;
    *list = op;
}

void shunt__ucx_fail_later(struct shunt__ucx_conn *c, shunt_status_t status, const char *fmt, const char *what)
{
    if (c->failed)
        return;
    c->failed = 1;
    c->status = status;
    snprintf(c->why, sizeof(c->why), fmt, what);
    c->rail->attention = 1;
}

static void sent(void *request, ucs_status_t status, void *user)
{
    struct shunt__ucx_op *op = user;
    struct shunt__ucx_conn *c = op->conn;

    c->bytes -= op->length;
    c->frames--;
    c->rail->attention |= c->refused || c->state >= SHUNT__UCX_LEAVING;
    if (status != UCS_OK)
        shunt__ucx_fail_later(c, SHUNT_ERR_RAIL, "UCX: %s", c->rail->ucx->ucs_status_string(status));
    shunt__ucx_op_give(c->rail, op);
    c->rail->ucx->ucp_request_free(request);
}

/* Sends what is in `op`; nonzero when the conn has failed. */
int shunt__ucx_post(struct shunt__ucx_conn *c, struct shunt__ucx_op *op, unsigned id, unsigned flags)
{
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                             UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                             .flags = UCP_AM_SEND_FLAG_EAGER | flags,
                             .cb.send = sent,
                             .memory_type = UCS_MEMORY_TYPE_HOST,
                             .user_data = op};
    ucs_status_ptr_t request;

    op->conn = c;
    c->bytes += op->length;
    c->frames++;
    request = c->rail->ucx->ucp_am_send_nbx(c->ep, id, &op->header, sizeof(op->header), op->payload, op->length, &p);
    if (UCS_PTR_IS_PTR(request))
        return 0;
    c->bytes -= op->length;
    c->frames--;
    shunt__ucx_op_give(c->rail, op);
    if (request == NULL)
        return 0;
    shunt__ucx_fail_later(c, SHUNT_ERR_RAIL, "UCX: %s", c->rail->ucx->ucs_status_string(UCS_PTR_STATUS(request)));
    return -1;
}

static int post_control(struct shunt__ucx_conn *c, unsigned id)
{
    struct shunt__ucx_op *op = shunt__ucx_op_take(c->rail, 0);

    if (!op)
        return -1;
    memset(&op->header, 0, sizeof(op->header));
    op->header.to = c->peer_id;
    return shunt__ucx_post(c, op, id, 0);
}

/* HELLO or WELCOME with `len` bytes that are in op->payload already. */
int shunt__ucx_post_greeting(struct shunt__ucx_conn *c, struct shunt__ucx_op *op, enum shunt__frame_type type, size_t len)
{
    op->length = (uint32_t)len;
    op->header = (struct shunt__ucx_header){.to = c->peer_id, .from = c->id, .frame = {.type = type, .length = op->length}};
    shunt__frame_seal(&c->rail->base, c->link, &op->header.frame, op->payload);
    return shunt__ucx_post(c, op, SHUNT__UCX_AM_FRAME, type == SHUNT__FRAME_HELLO ? UCP_AM_SEND_FLAG_REPLY : 0);
}

/* ---- life of a conn ---- */

struct shunt__ucx_conn *shunt__ucx_conn_make(struct shunt__ucx_rail *r, enum shunt__ucx_state state)
{
    struct shunt__ucx_conn *c;
    unsigned slot = 0;

    while (slot < SHUNT__UCX_MAX_CONNS && r->slots[slot])
        slot++;
    if (slot == SHUNT__UCX_MAX_CONNS || !(c = calloc(1, sizeof(*c))))
        return NULL;
    randombytes_buf(&c->id, sizeof(c->id));
    c->id = (c->id & ~(uint64_t)(SHUNT__UCX_MAX_CONNS - 1)) | slot;
    r->slots[slot] = c;
    c->rail = r;
    c->state = state;
    c->since = shunt__now();
    r->n_strangers += state == SHUNT__UCX_STRANGER;
    c->next = r->conns;
    if (c->next)
        c->next->prev = c;
    r->conns = c;
    return c;
}

void shunt__ucx_conn_free(struct shunt__ucx_conn *c)
{
    struct shunt__ucx_rail *r = c->rail;

    r->slots[c->id % SHUNT__UCX_MAX_CONNS] = NULL;
    if (c->prev)
        c->prev->next = c->next;
    else
        r->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    free(c);
}

/* The link is free from now on; the endpoint goes when it may. */
void shunt__ucx_leave(struct shunt__ucx_conn *c, int say_so)
{
    if (c->state >= SHUNT__UCX_LEAVING)
        return;
    c->rail->n_strangers -= c->state == SHUNT__UCX_STRANGER;
    if (c->link)
        c->link->conn = NULL;
    c->link = NULL;
    if (say_so && c->peer_id && !c->failed && c->ep)
        post_control(c, SHUNT__UCX_AM_CLOSE);
    else
        c->quiet = 1;
    c->state = SHUNT__UCX_LEAVING;
    c->since = shunt__now();
    c->rail->attention = 1;
}

void shunt__ucx_down(struct shunt__ucx_conn *c, shunt_status_t status, const char *why)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    struct shunt__link *link = c->link;

    shunt__ucx_leave(c, 0);
    if (link)
        p->events->down(p->engine, link, status, why);
}

/* One step towards the end of a conn without a link; nonzero when it is gone. */
int shunt__ucx_step_out(struct shunt__ucx_conn *c, uint64_t now)
{
    const struct shunt__ucx_api *ucx = c->rail->ucx;
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    if (c->state == SHUNT__UCX_LEAVING) {
        if (!((c->quiet && c->frames == 0) || c->failed || now - c->since > FAREWELL))
            return 0;
        c->state = SHUNT__UCX_CLOSING;
        if (c->ep)
            c->close_request = ucx->ucp_ep_close_nbx(c->ep, &p);
        c->ep = NULL;
    }
    if (UCS_PTR_IS_PTR(c->close_request)) {
        if (ucx->ucp_request_check_status(c->close_request) == UCS_INPROGRESS)
            return 0;
        ucx->ucp_request_free(c->close_request);
        c->close_request = NULL;
    }
    if (c->frames)
        return 0;
    shunt__ucx_conn_free(c);
    return 1;
}

static void endpoint_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct shunt__ucx_conn *c = arg;

    shunt__ucx_fail_later(c, SHUNT_ERR_RAIL, "UCX: %s", c->rail->ucx->ucs_status_string(status));
}

ucs_status_t shunt__ucx_endpoint(struct shunt__ucx_conn *c, ucp_ep_params_t *p)
{
    p->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    p->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    p->err_handler.cb = endpoint_failed;
    p->err_handler.arg = c;
    return c->rail->ucx->ucp_ep_create(c->rail->worker, p, &c->ep);
}

/* ---- what arrives ---- */

static struct shunt__ucx_conn *conn_by_id(struct shunt__ucx_rail *r, uint64_t id)
{
    struct shunt__ucx_conn *c = r->slots[id % SHUNT__UCX_MAX_CONNS];

    return c && c->id == id ? c : NULL;
}

static void on_hello(struct shunt__ucx_rail *r, const struct shunt__ucx_header *h, const void *payload, ucp_ep_h reply)
{
    const struct shunt__rail_params *p = &r->base.params;
    size_t len = SHUNT__HELLO_MAX;
    struct shunt__ucx_conn *c = r->conns;
    struct shunt__link *link;
    struct shunt__ucx_op *op;

    while (c && !(c->state == SHUNT__UCX_STRANGER && c->ep == reply))
        c = c->next;
    if (!c)
        return;
    op = shunt__ucx_op_take(r, SHUNT__HELLO_MAX);
    link = op ? p->events->incoming(p->engine, &r->base, payload, h->frame.length, op->payload, &len) : NULL;
    if (!link) {
        if (op)
            shunt__ucx_op_give(r, op);
        shunt__ucx_leave(c, 0);
        return;
    }
    r->n_strangers--;
    c->state = SHUNT__UCX_UP;
    c->peer_id = h->from;
    c->link = link;
    link->conn = c;
    if (shunt__ucx_post_greeting(c, op, SHUNT__FRAME_WELCOME, len) == 0)
        p->events->established(p->engine, link);
}

static void on_welcome(struct shunt__ucx_conn *c, const struct shunt__ucx_header *h, const void *payload)
{
    const struct shunt__rail_params *p = &c->rail->base.params;

    c->peer_id = h->from;
    if (p->events->welcome(p->engine, c->link, payload, h->frame.length)) {
        if (c->state == SHUNT__UCX_GREETING) {
            post_control(c, SHUNT__UCX_AM_CLOSE);
            shunt__ucx_fail_later(c, SHUNT_ERR_AUTH, "%s", "the other side does not know this job's key");
        }
        return;
    }
    if (c->state != SHUNT__UCX_GREETING)
        return;
    c->state = SHUNT__UCX_UP;
    p->events->established(p->engine, c->link);
}

static ucs_status_t on_frame(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param)
{
    struct shunt__ucx_rail *r = arg;
    const struct shunt__rail_params *p = &r->base.params;
    struct shunt__ucx_header h;
    struct shunt__ucx_conn *c;

    if (header_length != sizeof(h) || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
        return UCS_OK;
    memcpy(&h, header, sizeof(h));
    if (!shunt__frame_valid(&r->base, &h.frame) || h.frame.length != length) {
        c = conn_by_id(r, h.to);
        if (c && c->link)
            shunt__ucx_fail_later(c, SHUNT_ERR_RAIL, "%s", "a damaged frame header");
        return UCS_OK;
    }
    if (h.frame.type == SHUNT__FRAME_HELLO) {
        if (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP)
            on_hello(r, &h, data, param->reply_ep);
        return UCS_OK;
    }
    c = conn_by_id(r, h.to);
    if (!c || !c->link || c->failed)
        return UCS_OK; /* of an earlier connection */
    if (h.frame.type == SHUNT__FRAME_WELCOME) {
        if (c->state == SHUNT__UCX_GREETING)
            on_welcome(c, &h, data);
        return UCS_OK;
    }
    if (c->state != SHUNT__UCX_UP)
        return UCS_OK;
    r->moved++;
    if ((h.frame.flags & SHUNT__FRAME_CRC) && shunt__crc32c(0, data, length) != h.frame.payload_crc)
        p->events->damaged(p->engine, c->link, &h.frame);
    else
        p->events->frame(p->engine, c->link, &h.frame, data);
    return UCS_OK;
}

static ucs_status_t on_close(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param)
{
    struct shunt__ucx_rail *r = arg;
    struct shunt__ucx_header h;
    struct shunt__ucx_conn *c;

    if (header_length != sizeof(h))
        return UCS_OK;
    memcpy(&h, header, sizeof(h));
    c = conn_by_id(r, h.to);
    if (!c)
        return UCS_OK;
    if (c->state <= SHUNT__UCX_UP) {
        post_control(c, SHUNT__UCX_AM_CLOSED);
        shunt__ucx_fail_later(c, SHUNT_ERR_RAIL, "%s", "closed by the other side");
    } else {
        c->quiet = 1;
        r->attention = 1;
    }
    return UCS_OK;
}

static ucs_status_t on_closed(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *param)
{
    struct shunt__ucx_rail *r = arg;
    struct shunt__ucx_header h;
    struct shunt__ucx_conn *c;

    if (header_length != sizeof(h))
        return UCS_OK;
    memcpy(&h, header, sizeof(h));
    c = conn_by_id(r, h.to);
    if (c && c->state == SHUNT__UCX_LEAVING) {
        c->quiet = 1;
        r->attention = 1;
    }
    return UCS_OK;
}

ucs_status_t shunt__ucx_set_handlers(struct shunt__ucx_rail *r)
{
    static const ucp_am_recv_callback_t handlers[SHUNT__UCX_AM_IDS] = {on_frame, on_close, on_closed};
    ucs_status_t status = UCS_OK;

    for (unsigned id = 0; id < SHUNT__UCX_AM_IDS && status == UCS_OK; id++) {
        ucp_am_handler_param_t h = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                                  UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                    .id = id,
                                    .flags = UCP_AM_FLAG_WHOLE_MSG,
                                    .cb = handlers[id],
                                    .arg = r};
        status = r->ucx->ucp_worker_set_am_recv_handler(r->worker, &h);
    }
    return status;
}

void shunt__ucx_on_request(ucp_conn_request_h request, void *arg)
{
    struct shunt__ucx_rail *r = arg;

    if (r->n_requests < SHUNT__STRANGERS && r->n_strangers < SHUNT__STRANGERS)
        r->requests[r->n_requests++] = request;
    else
        r->ucx->ucp_listener_reject(r->listener, request);
}

void shunt__ucx_accept(struct shunt__ucx_rail *r)
{
    ucp_conn_request_attr_t attr = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};

    while (r->n_requests) {
        ucp_conn_request_h request = r->requests[--r->n_requests];
        struct shunt__ucx_conn *c = shunt__ucx_conn_make(r, SHUNT__UCX_STRANGER);
        ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST, .conn_request = request};

        if (!c) {
            r->ucx->ucp_listener_reject(r->listener, request);
            continue;
        }
        if (r->ucx->ucp_conn_request_query(request, &attr) == UCS_OK)
            shunt__inet_name(&attr.client_address, c->name);
        if (shunt__ucx_endpoint(c, &p) != UCS_OK) { /* UCX has let go of the request */
            c->ep = NULL;
            shunt__ucx_leave(c, 0);
        }
    }
}
