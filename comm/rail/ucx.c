/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails over UCX: one context, worker and listener per NIC; frames are eager active messages.
 *
 * Connections are made through UCX's listener, not through worker addresses: connecting never blocks then, both ends
 * have an error handler, and a new connection never meets the leftovers of an old one.
 *
 * The active message's header is the frame's header, with a random number in front that names the connection at its
 * receiver: a message of an earlier connection finds nobody, which is the fence (UCX may deliver late). Payloads are
 * copied into the rail's own buffers, so that UCX never reads or writes user memory: forced closing of an endpoint is
 * no fence over tcp, and a request in flight can't be taken back.
 *
 * Two UCX callbacks may come at any moment of ucp_worker_progress(): endpoints are never closed inside one, but by the
 * next progress(). A link that goes on purpose says so with a CLOSE message and keeps its endpoint until the other
 * side has echoed it or a moment has passed, since closing by force drops what is still queued.
 *
 * Over tcp this backend is not the default, and wants a network on which nobody else can reach it. UCX trusts what it
 * reads: with 1 to 300 bytes of garbage written into the stream of an established connection, UCX 1.13.1 ended the
 * process in 39 of 40 runs (38 times by its assertion on the segment length in tcp_ep.c, once by a wild access), and
 * garbage from a stranger at its listening port ends it too (assertion on the length in tcp_sockcm_ep.c). sock and
 * ofi report the link as down, or turn the stranger away, in all of the same runs. Damage that spares UCX's own
 * headers is found by the frame's checksums, as on every rail. On RDMA devices the fabric checks for itself.
 */
#include <stdio.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/rail/ucx.h"

#define CHUNK (256u << 10)
#define IN_FLIGHT_BYTES (2u << 20) /* of one link; then send() says AGAIN */
#define IN_FLIGHT_FRAMES 256
#define LOOK_EVERY (100 * SHUNT__MS)

static struct shunt__ucx_rail *ucx_of(struct shunt__rail *rail)
{
    return (struct shunt__ucx_rail *)(void *)rail;
}

/* ---- the rail's operations ---- */

static shunt_status_t ucx_connect(struct shunt__rail *rail, struct shunt__link *link, const void *address, size_t len)
{
    struct shunt__ucx_rail *r = ucx_of(rail);
    const struct shunt__rail_params *p = &rail->params;
    struct sockaddr_storage to;
    ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
                          .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER};
    size_t hello = SHUNT__HELLO_MAX;
    ucs_status_t status;
    struct shunt__ucx_conn *c;
    struct shunt__ucx_op *op;

    if (shunt__inet_unpack(address, len, rail->params.device, &to))
        return shunt__fail(SHUNT_ERR_INVALID, "rail %s: not an address of a ucx rail", rail->name);
    c = shunt__ucx_conn_make(r, SHUNT__UCX_GREETING);
    op = c ? shunt__ucx_op_take(r, SHUNT__HELLO_MAX) : NULL;
    if (!op) {
        if (c)
            shunt__ucx_conn_free(c);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "rail %s: no memory for a connection", rail->name);
    }
    shunt__inet_name(&to, c->name);
    ep.sockaddr.addr = (struct sockaddr *)&to;
    ep.sockaddr.addrlen = shunt__inet_size(&to);
    status = shunt__ucx_endpoint(c, &ep);
    if (status != UCS_OK) {
        shunt__ucx_op_give(r, op);
        shunt__ucx_conn_free(c);
        return shunt__fail(SHUNT_ERR_RAIL, "rail %s: UCX can't connect: %s", rail->name,
                           r->ucx->ucs_status_string(status));
    }
    c->link = link;
    link->conn = c;
    p->events->hello(p->engine, link, op->payload, &hello);
    shunt__ucx_post_greeting(c, op, SHUNT__FRAME_HELLO, hello); /* a failure is reported by progress() */
    return SHUNT_OK;
}

static void ucx_disconnect(struct shunt__link *link)
{
    if (link->conn)
        shunt__ucx_leave(link->conn, 1);
}

static shunt_status_t ucx_send(struct shunt__link *link, const struct shunt__frame *frame, const void *payload,
                               uint64_t ref)
{
    struct shunt__ucx_conn *c = link->conn;
    struct shunt__ucx_op *op;

    if (!c || c->state != SHUNT__UCX_UP)
        return shunt__fail(SHUNT_ERR_RAIL, "%s: not connected", link->rail->name);
    if (c->failed)
        return SHUNT_OK; /* lost with the link, which progress() will report */
    if (c->frames >= IN_FLIGHT_FRAMES || (c->frames && c->bytes + frame->length > IN_FLIGHT_BYTES)) {
        c->refused = 1;
        return SHUNT_ERR_AGAIN;
    }
    op = shunt__ucx_op_take(c->rail, frame->length);
    if (!op)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "%s: no memory for a frame", link->rail->name);
    op->header.to = c->peer_id;
    op->header.from = 0;
    op->header.frame = *frame;
    shunt__frame_seal(link->rail, link, &op->header.frame, payload);
    if (frame->length)
        memcpy(op->payload, payload, frame->length);
    shunt__ucx_post(c, op, SHUNT__UCX_AM_FRAME, 0);
    return SHUNT_OK;
}

static void ucx_detach(struct shunt__link *link, uint64_t ref)
{
}

static void ucx_redirect(struct shunt__link *link)
{
}

/* Failures, endings, writable: what must not happen inside UCX. */
static void attend(struct shunt__ucx_rail *r)
{
    const struct shunt__rail_params *p = &r->base.params;
    uint64_t now = shunt__now();
    struct shunt__ucx_conn *next;
    int again = 0;

    r->attention = 0;
    for (struct shunt__ucx_conn *c = r->conns; c; c = next) {
        next = c->next;
        if (c->state >= SHUNT__UCX_LEAVING) {
            again |= !shunt__ucx_step_out(c, now);
        } else if (c->failed) {
            shunt__ucx_down(c, c->status, c->why);
            r->attention = 1;
            return; /* the callback may have changed the list */
        } else if (c->refused && c->bytes <= IN_FLIGHT_BYTES / 2 && c->frames <= IN_FLIGHT_FRAMES / 2) {
            c->refused = 0;
            p->events->writable(p->engine, c->link);
            r->attention = 1;
            return;
        }
    }
    r->attention |= again;
}

static int ucx_progress(struct shunt__rail *rail)
{
    struct shunt__ucx_rail *r = ucx_of(rail);

    r->moved = 0;
    for (int i = 0; i < 16 && r->ucx->ucp_worker_progress(r->worker); i++)
        ;
    if (r->n_requests)
        shunt__ucx_accept(r);
    if (r->attention)
        attend(r);
    return r->moved;
}

static int ucx_arm(struct shunt__rail *rail)
{
    struct shunt__ucx_rail *r = ucx_of(rail);

    for (struct shunt__ucx_conn *c = r->attention ? r->conns : NULL; c; c = c->next)
        if (c->failed || (c->state == SHUNT__UCX_LEAVING && c->quiet))
            return 1;
    return r->n_requests || r->ucx->ucp_worker_arm(r->worker) != UCS_OK;
}

static void ucx_tick(struct shunt__rail *rail, uint64_t now)
{
    struct shunt__ucx_rail *r = ucx_of(rail);

    if (r->prefix < 0 && now - r->looked_at > LOOK_EVERY) { /* the address may have arrived */
        r->looked_at = now;
        r->prefix = shunt__inet_prefix(&r->local);
    }
    for (struct shunt__ucx_conn *c = r->conns; c; c = c->next) {
        if (c->state <= SHUNT__UCX_GREETING && now > c->since && now - c->since > SHUNT__HELLO_TIME)
            shunt__ucx_fail_later(c, SHUNT_ERR_RAIL, "%s", "no answer");
        r->attention |= c->state >= SHUNT__UCX_LEAVING;
    }
}

static shunt_status_t ucx_address(struct shunt__rail *rail, void *buf, size_t *len)
{
    if (*len < SHUNT__INET_WIRE)
        return shunt__fail(SHUNT_ERR_INVALID, "an address of a ucx rail takes %u bytes", SHUNT__INET_WIRE);
    shunt__inet_pack(&ucx_of(rail)->local, buf);
    *len = SHUNT__INET_WIRE;
    return SHUNT_OK;
}

static int ucx_reach(struct shunt__rail *rail, const void *address, size_t len)
{
    struct sockaddr_storage to;

    if (shunt__inet_unpack(address, len, rail->params.device, &to))
        return 0;
    return shunt__inet_reach(&ucx_of(rail)->local, ucx_of(rail)->prefix, &to);
}

static void ucx_stats(struct shunt__link *link, struct shunt__link_stats *stats)
{
    struct shunt__ucx_conn *c = link->conn;

    *stats = (struct shunt__link_stats){.queued = c ? c->bytes : 0};
}

static const char *ucx_describe(struct shunt__link *link)
{
    struct shunt__ucx_conn *c = link->conn;

    return c ? c->name : "not connected";
}

/* ---- opening and closing ---- */

static void worker_ready(struct shunt__pollable *self, uint32_t events)
{
    /* The engine calls progress() after every round of the poller. */
}

static void ucx_close(struct shunt__rail *rail)
{
    struct shunt__ucx_rail *r = ucx_of(rail);
    uint64_t end = shunt__now() + 100 * SHUNT__MS;
    struct shunt__ucx_op *op;

    if (r->worker) {
        for (struct shunt__ucx_conn *c = r->conns; c; c = c->next)
            shunt__ucx_leave(c, 1);
        if (r->listener)
            r->ucx->ucp_listener_destroy(r->listener);
        /* What has been said goes out first. The clock may be a test's, hence also a number of turns. */
        for (int turns = 0; r->conns && turns < 100000; turns++) {
            struct shunt__ucx_conn *next;

            r->ucx->ucp_worker_progress(r->worker);
            for (struct shunt__ucx_conn *c = r->conns; c; c = next) {
                next = c->next;
                if (c->frames == 0 || turns == 90000 || shunt__now() > end)
                    c->quiet = 1;
                if (shunt__now() > end)
                    c->failed = 1;
                shunt__ucx_step_out(c, shunt__now());
            }
        }
        if (r->pollable.fd >= 0)
            shunt__poller_remove(r->base.params.poller, &r->pollable);
        /* With an endpoint that can't be closed yet UCX would end the process here: better lose some memory. */
        if (r->conns)
            shunt__log(SHUNT__LOG_INFO, "rail %s: an endpoint does not close, so UCX's worker stays", rail->name);
        else
            r->ucx->ucp_worker_destroy(r->worker);
    }
    if (r->context && !r->conns)
        r->ucx->ucp_cleanup(r->context);
    while (r->conns)
        shunt__ucx_conn_free(r->conns);
    while ((op = r->free_small)) {
        r->free_small = op->next;
        free(op);
    }
    while ((op = r->free_big)) {
        r->free_big = op->next;
        free(op);
    }
    free(r);
}

/* A setting of Shunt's, unless the user has said SHUNT_UCX_<name>. */
static ucs_status_t set(struct shunt__ucx_rail *r, ucp_config_t *config, const char *name, const char *value)
{
    char variable[64];

    snprintf(variable, sizeof(variable), "SHUNT_UCX_%s", name);
    return getenv(variable) ? UCS_OK : r->ucx->ucp_config_modify(config, name, value);
}

static shunt_status_t open_context(struct shunt__ucx_rail *r)
{
    ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                      .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                      .mt_workers_shared = 0};
    const char *device = r->base.params.device, *bad = NULL;
    int rdma = shunt__inet_is_rdma(device);
    const struct {
        const char *name, *value;
    } settings[] = {
        {"NET_DEVICES", *device ? device : "all"},
        {"TLS", rdma ? "rc_verbs,ud_verbs" : "tcp"},
        {"TCP_CONN_NB", "y"},
        {"TCP_CM_REUSEADDR", "y"},
        {"MAX_EAGER_RAILS", "1"},
        {"KEEPALIVE_INTERVAL", "1s"},
        {"CM_USE_ALL_DEVICES", "n"},
        {"RC_VERBS_TIMEOUT", "130ms"}, /* priority flow control may pause a sender for 100 ms */
        {"RC_VERBS_RETRY_COUNT", "3"},
        {"UD_VERBS_ETH_DGID_CHECK", "n"}, /* or no packet arrives where the GID is an IPv4 address (UCX 1.13) */
        {"RDMA_CM_REUSEADDR", "y"},
        {"RDMA_CM_TIMEOUT", "1s"}, /* and no longer does an attempt keep its endpoint */
    };
    ucp_config_t *config;
    ucs_status_t status = r->ucx->ucp_config_read("SHUNT", NULL, &config);

    if (status != UCS_OK)
        return shunt__fail(SHUNT_ERR_INVALID, "rail %s: UCX does not take the SHUNT_UCX_* settings: %s", r->base.name,
                           r->ucx->ucs_status_string(status));
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (set(r, config, settings[i].name, settings[i].value) != UCS_OK && i < 2)
            bad = settings[i].name;
    status = bad ? UCS_ERR_INVALID_PARAM
                 : r->ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &p, config, &r->context);
    r->ucx->ucp_config_release(config);
    if (status != UCS_OK) {
        r->context = NULL;
        return shunt__fail(SHUNT_ERR_UNSUPPORTED, "rail %s: UCX can't use device %s%s: %s%s", r->base.name, device,
                           rdma ? "" : " over tcp", r->ucx->ucs_status_string(status),
                           status == UCS_ERR_NO_DEVICE ? " (is it up?)" : "");
    }
    return SHUNT_OK;
}

static shunt_status_t open_worker(struct shunt__ucx_rail *r)
{
    ucp_worker_params_t p = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                             .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = r->ucx->ucp_worker_create(r->context, &p, &r->worker);
    int err;

    if (status != UCS_OK)
        r->worker = NULL;
    if (status == UCS_OK)
        status = shunt__ucx_set_handlers(r);
    if (status == UCS_OK)
        status = r->ucx->ucp_worker_get_efd(r->worker, &r->pollable.fd);
    if (status != UCS_OK)
        return shunt__fail(SHUNT_ERR_SYSTEM, "rail %s: UCX: %s", r->base.name, r->ucx->ucs_status_string(status));
    r->pollable.events = EPOLLIN;
    r->pollable.ready = worker_ready;
    err = shunt__poller_add(r->base.params.poller, &r->pollable);
    return err ? shunt__fail_errno(SHUNT_ERR_SYSTEM, err, "rail %s: epoll", r->base.name) : SHUNT_OK;
}

static shunt_status_t open_listener(struct shunt__ucx_rail *r)
{
    uint16_t first, last;
    ucs_status_t status = UCS_ERR_BUSY;
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    shunt_status_t st = shunt__port_range(r->base.params.config, &first, &last);

    if (st != SHUNT_OK)
        return st;
    for (unsigned port = first; port <= last && status != UCS_OK; port++) {
        ucp_listener_params_t p = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                                 UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                   .sockaddr = {(struct sockaddr *)&r->local, shunt__inet_size(&r->local)},
                                   .conn_handler = {shunt__ucx_on_request, r}};
        shunt__inet_set_port(&r->local, (uint16_t)port);
        status = r->ucx->ucp_listener_create(r->worker, &p, &r->listener);
    }
    if (status == UCS_OK)
        status = r->ucx->ucp_listener_query(r->listener, &attr);
    else
        r->listener = NULL;
    if (status != UCS_OK)
        return shunt__fail(SHUNT_ERR_SYSTEM, "rail %s: UCX can't listen on %s%s: %s", r->base.name, r->base.params.ip,
                           first ? " within SHUNT_PORT_RANGE" : "", r->ucx->ucs_status_string(status));
    shunt__inet_set_port(&r->local, shunt__inet_port(&attr.sockaddr));
    return SHUNT_OK;
}

static shunt_status_t ucx_open(const struct shunt__rail_params *params, struct shunt__rail **rail)
{
    const struct shunt__ucx_api *api;
    shunt_status_t status = shunt__ucx_load(&api);
    struct shunt__ucx_rail *r;

    if (status != SHUNT_OK)
        return status;
    r = calloc(1, sizeof(*r));
    if (!r || sodium_init() < 0) {
        free(r);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a ucx rail");
    }
    r->ucx = api;
    r->pollable.fd = -1;
    shunt__rail_init(&r->base, &shunt__ucx_ops, params, 0, CHUNK);
    status = *params->ip       ? shunt__inet_parse(params->ip, params->device, &r->local)
             : *params->device ? shunt__inet_of_device(params->device, &r->local)
                               : shunt__fail(SHUNT_ERR_INVALID, "a ucx rail needs a device or an IP address");
    if (status == SHUNT_OK && !shunt__inet_is_rdma(params->device))
        shunt__log_once(SHUNT__LOG_WARN, "UCX over tcp: damaged or foreign bytes at its ports can end this process; "
                                         "SHUNT_BACKEND=sock does not have that weakness");
    if (status == SHUNT_OK)
        status = open_context(r);
    if (status == SHUNT_OK)
        status = open_worker(r);
    if (status == SHUNT_OK)
        status = open_listener(r);
    if (status != SHUNT_OK) {
        ucx_close(&r->base);
        return status;
    }
    r->prefix = shunt__inet_prefix(&r->local);
    *rail = &r->base;
    return SHUNT_OK;
}

const struct shunt__rail_ops shunt__ucx_ops = {
    .name = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .address = ucx_address,
    .reach = ucx_reach,
    .connect = ucx_connect,
    .disconnect = ucx_disconnect,
    .send = ucx_send,
    .detach = ucx_detach,
    .redirect = ucx_redirect,
    .progress = ucx_progress,
    .arm = ucx_arm,
    .tick = ucx_tick,
    .stats = ucx_stats,
    .describe = ucx_describe,
};
