/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails over libfabric: connected endpoints (FI_EP_MSG), one per link, over the provider "tcp" for plain NICs and
 * "verbs" for RDMA devices.
 *
 * The layered reliable-datagram endpoints (ofi_rxm) are not used: sends to a killed peer never completed there, could
 * not be cancelled, and closing crashed. On a connected endpoint the end of the peer is an event.
 *
 * A message is a frame, header and payload in one buffer of the rail's own: libfabric never reads or writes user
 * memory, so that closing the endpoint fences the link whatever is still in flight. HELLO and WELCOME are ordinary
 * messages, since providers take only some dozens of bytes of connection data. A link that goes on purpose says so
 * with CLOSE and keeps its endpoint until the other side has echoed it or a moment has passed.
 */
#include "comm/rail/ofi.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"

#define CHUNK (256u << 10)
#define IN_FLIGHT_BYTES (2u << 20)
#define IN_FLIGHT_FRAMES 128
#define LOOK_EVERY (100 * SHUNT__MS)
#define API FI_VERSION(1, 12)

static struct shunt__ofi_api table;
static char reason[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Some providers and their libraries take over the signals of the process while they are loaded and started. */
struct signals {
    struct sigaction handler[NSIG];
    unsigned char known[NSIG];
};

static void keep_signals(struct signals *s)
{
    for (int i = 1; i < NSIG; i++)
        s->known[i] = sigaction(i, NULL, &s->handler[i]) == 0;
}

static void restore_signals(const struct signals *s)
{
    struct sigaction now;

    for (int i = 1; i < NSIG; i++)
        if (s->known[i] && sigaction(i, NULL, &now) == 0 && now.sa_handler != s->handler[i].sa_handler)
            sigaction(i, &s->handler[i], NULL);
}

static void load(void)
{
    struct signals signals;
    void *lib;

    keep_signals(&signals);
    lib = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    restore_signals(&signals);
    if (!lib) {
        snprintf(reason, sizeof(reason), "%s", dlerror());
        return;
    }
#define LOAD(name) \
    if (!*reason) { \
        table.name = (__typeof__(table.name))dlsym(lib, #name); \
        if (!table.name) \
            snprintf(reason, sizeof(reason), "libfabric.so.1 has no " #name); \
    }
    SHUNT__OFI_FUNCTIONS(LOAD)
#undef LOAD
}

static struct shunt__ofi_rail *ofi_of(struct shunt__rail *rail)
{
    return (struct shunt__ofi_rail *)(void *)rail;
}

static shunt_status_t fail(const struct shunt__ofi_rail *r, shunt_status_t status, const char *what, int err)
{
    return shunt__fail(status, "rail %s: %s: %s", r->base.name, what, r->ofi->fi_strerror(err < 0 ? -err : err));
}

/* ---- operations ---- */

static shunt_status_t ofi_connect(struct shunt__rail *rail, struct shunt__link *link, const void *address, size_t len)
{
    struct shunt__ofi_rail *r = ofi_of(rail);
    const struct shunt__rail_params *p = &rail->params;
    struct sockaddr_storage to;
    size_t hello = SHUNT__HELLO_MAX;
    struct shunt__ofi_conn *c;
    struct fi_info *info;
    int err;

    if (shunt__inet_unpack(address, len, rail->params.device, &to))
        return shunt__fail(SHUNT_ERR_INVALID, "rail %s: not an address of an ofi rail", rail->name);
    info = r->ofi->fi_dupinfo(r->info);
    c = info ? shunt__ofi_conn_make(r, SHUNT__OFI_GREETING) : NULL;
    if (!c || !(c->hello = shunt__ofi_op_take(r, SHUNT__HELLO_MAX)) ||
        !(info->dest_addr = malloc(shunt__inet_size(&to)))) {
        if (c)
            shunt__ofi_conn_free(c);
        if (info)
            r->ofi->fi_freeinfo(info);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "rail %s: no memory for a connection", rail->name);
    }
    info->dest_addrlen = shunt__inet_size(&to);
    memcpy(info->dest_addr, &to, info->dest_addrlen);
    if (info->src_addr) /* from this address, but any port */
        shunt__inet_set_port(info->src_addr, 0);
    shunt__inet_name(&to, c->name);
    c->link = link;
    link->conn = c;
    p->events->hello(p->engine, link, c->hello->message.payload, &hello);
    c->hello->length = (uint32_t)hello;
    err = shunt__ofi_endpoint(c, info);
    if (!err)
        err = fi_connect(c->ep, info->dest_addr, NULL, 0);
    r->ofi->fi_freeinfo(info);
    if (err)
        shunt__ofi_fail_later(c, SHUNT_ERR_RAIL, "libfabric can't connect: %s", r->ofi->fi_strerror(-err));
    return SHUNT_OK;
}

static void ofi_disconnect(struct shunt__link *link)
{
    if (link->conn)
        shunt__ofi_leave(link->conn, 1);
}

static shunt_status_t ofi_send(struct shunt__link *link, const struct shunt__frame *frame, const void *payload,
                               uint64_t ref)
{
    struct shunt__ofi_conn *c = link->conn;
    struct shunt__ofi_op *op;
    shunt_status_t status;

    if (!c || c->state != SHUNT__OFI_UP)
        return shunt__fail(SHUNT_ERR_RAIL, "%s: not connected", link->rail->name);
    if (c->failed)
        return SHUNT_OK; /* lost with the link, which progress() will report */
    if (c->frames >= IN_FLIGHT_FRAMES || (c->frames && c->bytes + frame->length > IN_FLIGHT_BYTES)) {
        c->refused = 1;
        return SHUNT_ERR_AGAIN;
    }
    op = shunt__ofi_op_take(c->rail, frame->length);
    if (!op)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "%s: no memory for a frame", link->rail->name);
    op->message.kind = SHUNT__OFI_FRAME;
    op->message.frame = *frame;
    shunt__frame_seal(link->rail, link, &op->message.frame, payload);
    if (frame->length)
        memcpy(op->message.payload, payload, frame->length);
    status = shunt__ofi_post(c, op);
    if (status != SHUNT_ERR_AGAIN)
        return SHUNT_OK;
    shunt__ofi_op_give(c->rail, op);
    c->refused = 1;
    if (c->frames == 0)
        c->rail->attention = 1;
    return SHUNT_ERR_AGAIN;
}

static void ofi_detach(struct shunt__link *link, uint64_t ref)
{
}

static void ofi_redirect(struct shunt__link *link)
{
}

/* Failures, endings, writable. */
static void attend(struct shunt__ofi_rail *r)
{
    const struct shunt__rail_params *p = &r->base.params;
    uint64_t now = shunt__now();
    int again = 0;

    r->attention = 0;
    for (struct shunt__ofi_conn *c = r->conns; c; c = c->next) {
        if (c->state >= SHUNT__OFI_LEAVING) {
            if (shunt__ofi_step_out(c, now)) {
                r->attention = 1;
                return; /* the list has changed; the next turn goes on */
            }
            again = 1;
        } else if (c->failed) {
            shunt__ofi_down(c, c->status, c->why);
            r->attention = 1;
            return;
        } else if (c->refused && c->bytes <= IN_FLIGHT_BYTES / 2 && c->frames <= IN_FLIGHT_FRAMES / 2) {
            c->refused = 0;
            p->events->writable(p->engine, c->link);
            r->attention = 1;
            return;
        }
    }
    r->attention |= again;
}

static int ofi_progress(struct shunt__rail *rail)
{
    struct shunt__ofi_rail *r = ofi_of(rail);

    r->moved = 0;
    shunt__ofi_completions(r);
    shunt__ofi_events(r);
    if (r->attention)
        attend(r);
    return r->moved;
}

static int ofi_arm(struct shunt__rail *rail)
{
    struct shunt__ofi_rail *r = ofi_of(rail);
    struct fid *fids[2] = {&r->cq->fid, &r->eq->fid};

    for (struct shunt__ofi_conn *c = r->attention ? r->conns : NULL; c; c = c->next)
        if (c->failed || (c->state == SHUNT__OFI_LEAVING && c->quiet))
            return 1;
    return fi_trywait(r->fabric, fids, 2) != FI_SUCCESS;
}

static void ofi_tick(struct shunt__rail *rail, uint64_t now)
{
    struct shunt__ofi_rail *r = ofi_of(rail);

    if (r->prefix < 0 && now - r->looked_at > LOOK_EVERY) { /* the address may have arrived */
        r->looked_at = now;
        r->prefix = shunt__inet_prefix(&r->local);
    }
    for (struct shunt__ofi_conn *c = r->conns; c; c = c->next) {
        if (c->state <= SHUNT__OFI_GREETING && now > c->since && now - c->since > SHUNT__HELLO_TIME)
            shunt__ofi_fail_later(c, SHUNT_ERR_RAIL, "%s", "no answer");
        r->attention |= c->state >= SHUNT__OFI_LEAVING;
    }
}

static shunt_status_t ofi_address(struct shunt__rail *rail, void *buf, size_t *len)
{
    if (*len < SHUNT__INET_WIRE)
        return shunt__fail(SHUNT_ERR_INVALID, "an address of an ofi rail takes %u bytes", SHUNT__INET_WIRE);
    shunt__inet_pack(&ofi_of(rail)->local, buf);
    *len = SHUNT__INET_WIRE;
    return SHUNT_OK;
}

static int ofi_reach(struct shunt__rail *rail, const void *address, size_t len)
{
    struct sockaddr_storage to;

    if (shunt__inet_unpack(address, len, rail->params.device, &to))
        return 0;
    return shunt__inet_reach(&ofi_of(rail)->local, ofi_of(rail)->prefix, &to);
}

static void ofi_stats(struct shunt__link *link, struct shunt__link_stats *stats)
{
    struct shunt__ofi_conn *c = link->conn;

    *stats = (struct shunt__link_stats){.queued = c ? c->bytes : 0};
}

static const char *ofi_describe(struct shunt__link *link)
{
    struct shunt__ofi_conn *c = link->conn;

    return c ? c->name : "not connected";
}

/* ---- opening and closing ---- */

static void queue_ready(struct shunt__pollable *self, uint32_t events)
{
    /* The engine calls progress() after every round of the poller. */
}

static void close_fid(struct fid *fid)
{
    if (fid)
        fi_close(fid);
}

static void ofi_close(struct shunt__rail *rail)
{
    struct shunt__ofi_rail *r = ofi_of(rail);
    uint64_t end = shunt__now() + 100 * SHUNT__MS;

    for (struct shunt__ofi_conn *c = r->conns; c; c = c->next)
        shunt__ofi_leave(c, 1);
    /* What has been said goes out first. The clock may be a test's, hence also a number of turns. */
    for (int turns = 0, waiting = 1; waiting && turns < 10000 && shunt__now() < end; turns++) {
        waiting = 0;
        shunt__ofi_completions(r);
        for (struct shunt__ofi_conn *c = r->conns; c; c = c->next)
            waiting |= c->frames && !c->failed;
    }
    while (r->conns)
        shunt__ofi_conn_free(r->conns);
    if (r->eq_fd.fd >= 0)
        shunt__poller_remove(r->base.params.poller, &r->eq_fd);
    if (r->cq_fd.fd >= 0)
        shunt__poller_remove(r->base.params.poller, &r->cq_fd);
    shunt__ofi_op_free_all(r);
    close_fid(r->pep ? &r->pep->fid : NULL);
    close_fid(r->cq ? &r->cq->fid : NULL);
    close_fid(r->domain ? &r->domain->fid : NULL);
    close_fid(r->eq ? &r->eq->fid : NULL);
    close_fid(r->fabric ? &r->fabric->fid : NULL);
    if (r->info)
        r->ofi->fi_freeinfo(r->info);
    free(r);
}

static shunt_status_t find_provider(struct shunt__ofi_rail *r)
{
    struct fi_info *hints = r->ofi->fi_dupinfo(NULL);
    const char *provider = shunt__inet_is_rdma(r->base.params.device) ? "verbs" : "tcp";
    struct signals signals;
    int err;

    if (!hints)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for an ofi rail");
    hints->ep_attr->type = FI_EP_MSG;
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->addr_format = r->local.ss_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_SAFE; /* one thread at a time, but not always the same */
    hints->fabric_attr->prov_name = strdup(provider);
    hints->src_addrlen = shunt__inet_size(&r->local);
    hints->src_addr = malloc(hints->src_addrlen);
    if (hints->src_addr)
        memcpy(hints->src_addr, &r->local, hints->src_addrlen);
    keep_signals(&signals);
    err = r->ofi->fi_getinfo(API, NULL, NULL, 0, hints, &r->info);
    restore_signals(&signals);
    r->ofi->fi_freeinfo(hints);
    if (err) {
        r->info = NULL;
        return shunt__fail(SHUNT_ERR_UNSUPPORTED, "rail %s: libfabric's provider \"%s\" can't use it: %s", r->base.name,
                           provider, r->ofi->fi_strerror(-err));
    }
    return SHUNT_OK;
}

static int watch(struct shunt__ofi_rail *r, struct shunt__pollable *x, struct fid *queue)
{
    int err = fi_control(queue, FI_GETWAIT, &x->fd);

    if (err) {
        x->fd = -1;
        return err;
    }
    x->events = EPOLLIN;
    x->ready = queue_ready;
    err = shunt__poller_add(r->base.params.poller, x);
    if (err)
        x->fd = -1;
    return -err;
}

static shunt_status_t open_queues(struct shunt__ofi_rail *r)
{
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
    struct fi_cq_attr cq = {.wait_obj = FI_WAIT_FD, .format = FI_CQ_FORMAT_MSG, .size = 4096};
    int err = r->ofi->fi_fabric(r->info->fabric_attr, &r->fabric, NULL);

    if (!err)
        err = fi_eq_open(r->fabric, &eq, &r->eq, NULL);
    if (!err)
        err = fi_domain(r->fabric, r->info, &r->domain, NULL);
    if (!err)
        err = fi_cq_open(r->domain, &cq, &r->cq, NULL);
    if (!err)
        err = watch(r, &r->eq_fd, &r->eq->fid);
    if (!err)
        err = watch(r, &r->cq_fd, &r->cq->fid);
    return err ? fail(r, SHUNT_ERR_SYSTEM, "libfabric can't open its queues", err) : SHUNT_OK;
}

static int try_listen(struct shunt__ofi_rail *r, uint16_t port)
{
    size_t len = sizeof(r->local);
    int err;

    shunt__inet_set_port(&r->local, port);
    if (r->info->src_addr && r->info->src_addrlen >= shunt__inet_size(&r->local))
        memcpy(r->info->src_addr, &r->local, shunt__inet_size(&r->local));
    err = fi_passive_ep(r->fabric, r->info, &r->pep, NULL);
    if (err) {
        r->pep = NULL;
        return err;
    }
    err = fi_pep_bind(r->pep, &r->eq->fid, 0);
    if (!err)
        err = fi_listen(r->pep);
    if (!err)
        err = fi_getname(&r->pep->fid, &r->local, &len);
    if (err) {
        fi_close(&r->pep->fid);
        r->pep = NULL;
    }
    return err;
}

static shunt_status_t open_listener(struct shunt__ofi_rail *r)
{
    uint16_t first, last;
    shunt_status_t status = shunt__port_range(r->base.params.config, &first, &last);
    int err = -FI_EADDRINUSE;

    if (status != SHUNT_OK)
        return status;
    for (unsigned port = first; port <= last && err; port++)
        err = try_listen(r, (uint16_t)port);
    return err ? fail(r, SHUNT_ERR_SYSTEM, first ? "can't listen within SHUNT_PORT_RANGE" : "can't listen", err)
               : SHUNT_OK;
}

static shunt_status_t ofi_open(const struct shunt__rail_params *params, struct shunt__rail **rail)
{
    struct shunt__ofi_rail *r;
    shunt_status_t status;

    pthread_once(&once, load);
    if (*reason)
        return shunt__fail(SHUNT_ERR_UNSUPPORTED, "libfabric can't be used: %s (install libfabric1)", reason);
    r = calloc(1, sizeof(*r));
    if (!r)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for an ofi rail");
    r->ofi = &table;
    r->eq_fd.fd = r->cq_fd.fd = -1;
    shunt__rail_init(&r->base, &shunt__ofi_ops, params, SHUNT__RAIL_ORDERED, CHUNK);
    status = *params->ip       ? shunt__inet_parse(params->ip, params->device, &r->local)
             : *params->device ? shunt__inet_of_device(params->device, &r->local)
                               : shunt__fail(SHUNT_ERR_INVALID, "an ofi rail needs a device or an IP address");
    if (status == SHUNT_OK)
        status = find_provider(r);
    if (status == SHUNT_OK)
        status = open_queues(r);
    if (status == SHUNT_OK)
        status = open_listener(r);
    if (status != SHUNT_OK) {
        ofi_close(&r->base);
        return status;
    }
    r->prefix = shunt__inet_prefix(&r->local);
    *rail = &r->base;
    return SHUNT_OK;
}

const struct shunt__rail_ops shunt__ofi_ops = {
    .name = "ofi",
    .open = ofi_open,
    .close = ofi_close,
    .address = ofi_address,
    .reach = ofi_reach,
    .connect = ofi_connect,
    .disconnect = ofi_disconnect,
    .send = ofi_send,
    .detach = ofi_detach,
    .redirect = ofi_redirect,
    .progress = ofi_progress,
    .arm = ofi_arm,
    .tick = ofi_tick,
    .stats = ofi_stats,
    .describe = ofi_describe,
};
