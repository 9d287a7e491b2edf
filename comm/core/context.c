/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: opening the rails, describing this process to others, closing in order. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shunt/topo.h>
#include "comm/boot/boot.h"
#include "comm/core/agree.h"
#include "comm/core/engine.h"
#include "comm/core/report.h"
#include "comm/rail/carrier.h"
#include "config.h"

#define LINGER (300 * SHUNT__MS)
#define LINGERING_ROOTS 4 /* meetings that are over and kept for late comers; a job may make ids in a loop */

const char *shunt_version(void)
{
    return PACKAGE_VERSION;
}

uint64_t shunt__hash64(const void *data, size_t n)
{
    uint64_t h;

    crypto_generichash((unsigned char *)&h, sizeof(h), data, n, NULL, 0);
    return h;
}

/* Opens one rail, wrapped when faults are to be played; adds it to the context. */
static shunt_status_t open_rail(struct shunt_context *ctx, const struct shunt__rail_ops *ops, const char *device,
                                const char *ip, uint64_t rate)
{
    const char *faults = shunt__config_str(&ctx->config, SHUNT__FAULTS);
    struct shunt__rail_params p = {.config = &ctx->config, .poller = &ctx->poller, .events = &ctx->events,
                                   .engine = ctx, .device = device, .ip = ip, .index = ctx->n_rails, .rate = rate};
    struct shunt__card_rail *r = &ctx->card.rails[ctx->n_rails];
    struct shunt__rail *rail;
    size_t len = sizeof(r->address);
    shunt_status_t st;

    if (ctx->n_rails == SHUNT__MAX_RAILS)
        return shunt__fail(SHUNT_ERR_LIMIT, "more than %d rails", SHUNT__MAX_RAILS - 1);
    st = *faults ? shunt__fault_open(ops, &p, faults, &rail) : ops->open(&p, &rail);
    if (st != SHUNT_OK)
        return st;
    st = rail->ops->address(rail, r->address, &len);
    if (st != SHUNT_OK) {
        rail->ops->close(rail);
        return st;
    }
    snprintf(r->backend, sizeof(r->backend), "%s", rail->ops->name);
    snprintf(r->device, sizeof(r->device), "%.47s", device);
    r->rate = rate;
    r->len = (uint32_t)len;
    ctx->rails[ctx->n_rails] = rail;
    ctx->rail_up[ctx->n_rails] = 1;
    ctx->card.n_rails = ++ctx->n_rails;
    return SHUNT_OK;
}

/* One rail per NIC that topology chose. */
static shunt_status_t open_nics(struct shunt_context *ctx, const struct shunt__rail_ops *ops)
{
    shunt_topo_rails_options_t options;
    shunt_topo_rails_t *rails = NULL;
    shunt_topo_t *topo = NULL;
    shunt_status_t st, why = SHUNT_OK;
    int opened = 0, place = shunt__config_int(&ctx->config, SHUNT__THREAD) && shunt__config_int(&ctx->config, SHUNT__BIND);

    st = shunt__binding_topology(place, &topo);
    if (st != SHUNT_OK)
        return st;
    shunt_topo_rails_options_init(&options);
    if (*shunt__config_str(&ctx->config, SHUNT__RAILS))
        options.rails = shunt__config_str(&ctx->config, SHUNT__RAILS);
    options.no_rdma |= strcmp(ops->name, "ucx") != 0;
    st = shunt_topo_rails(topo, &options, &rails);
    for (unsigned i = 0; st == SHUNT_OK && i < rails->n_used && ctx->n_rails < SHUNT__MAX_RAILS; i++) {
        const shunt_topo_rail_t *r = &rails->rail[i];
        char ip[INET6_ADDRSTRLEN + 20] = "", device[64];
        if (r->nic && r->nic->n_addresses) {
            const shunt_topo_address_t *a = &r->nic->addresses[0];
            inet_ntop(a->family, a->bytes, ip, INET6_ADDRSTRLEN);
            if (a->link_local && a->family == AF_INET6)
                snprintf(ip + strlen(ip), 20, "%%%u", r->nic->ifindex);
        }
        if (r->nic && r->nic->rdma && !options.no_rdma) /* rather than its network interface, which means TCP */
            snprintf(device, sizeof(device), "%s:%u", r->nic->rdma, r->port);
        else
            snprintf(device, sizeof(device), "%s", r->name);
        why = open_rail(ctx, ops, device, ip, r->nic && r->nic->rate_known ? r->nic->rate : 0);
        if (why == SHUNT_OK)
            opened++;
        else
            shunt__log(SHUNT__LOG_WARN, "rail %s can't be used: %s", r->name, shunt_error_text());
    }
    if (st == SHUNT_OK && !opened) {
        st = why == SHUNT_ERR_INVALID || why == SHUNT_ERR_FORMAT ? SHUNT_ERR_INVALID : SHUNT_ERR_NOT_FOUND; /* a setting */
        shunt__fail(st, "no rail could be opened over %s; the last error was: %s", ops->name, shunt_error_text());
    }
    if (st == SHUNT_OK && place) {
        shunt__binding_here(topo, rails, &ctx->binding);
        shunt__log(SHUNT__LOG_INFO, "helper thread: %s", ctx->binding.reason);
    }
    shunt_topo_rails_destroy(rails);
    shunt_topo_destroy(topo);
    return st;
}

/* Within a process each name in SHUNT_RAILS is a rail of its own, so that tests have several. */
static shunt_status_t open_loops(struct shunt_context *ctx, const struct shunt__rail_ops *ops)
{
    char *names = strdup(shunt__config_str(&ctx->config, SHUNT__RAILS)), *rest;
    shunt_status_t st = names ? SHUNT_OK : shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a list of rails");

    for (char *name = names ? strtok_r(names, ",", &rest) : NULL; name && st == SHUNT_OK; name = strtok_r(NULL, ",", &rest))
        st = open_rail(ctx, ops, name, "", 0);
    free(names);
    return st;
}

static shunt_status_t open_rails(struct shunt_context *ctx)
{
    const char *backend = shunt__config_str(&ctx->config, SHUNT__BACKEND);
    const struct shunt__rail_ops *ops, *shm = shunt__rail_backend("shm");
    shunt_status_t st;

    if (strcmp(backend, "auto") == 0)
        backend = "sock";
    ops = shunt__rail_backend(backend);
    if (!ops)
        return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_BACKEND=%s: this build has no such backend (shunt-info lists them)",
                           backend);
    if (strcmp(ops->name, "loop") == 0 && *shunt__config_str(&ctx->config, SHUNT__RAILS))
        return open_loops(ctx, ops);
    if (strcmp(ops->name, "loop") == 0 || strcmp(ops->name, "shm") == 0)
        return open_rail(ctx, ops, "", "", 0);
    if (shm && shunt__config_int(&ctx->config, SHUNT__SHM)) {
        st = open_rail(ctx, shm, "", "", 0);
        if (st == SHUNT_ERR_INVALID) /* a setting */
            return st;
        if (st != SHUNT_OK)
            shunt__log(SHUNT__LOG_WARN, "no shared memory, sockets instead: %s", shunt_error_text());
    }
    return open_nics(ctx, ops);
}

static void on_interface(void *arg, int rail, int up, const char *why)
{
    shunt__path_carrier(arg, rail, up, why);
}

/* Losing the carrier of its interface ends a rail at once. Without the news, silence does, a little later. */
static void watch_interfaces(struct shunt_context *ctx)
{
    if (shunt__carrier_open(&ctx->poller, on_interface, ctx, &ctx->carrier) != SHUNT_OK) {
        shunt__log(SHUNT__LOG_WARN, "lost carriers will be noticed late: %s", shunt_error_text());
        return;
    }
    for (int i = 0; i < ctx->n_rails; i++) {
        const struct shunt__rail_params *p = &ctx->rails[i]->params;
        if (*p->ip && *p->device && shunt__carrier_watch(ctx->carrier, i, p->device, p->ip) != SHUNT_OK)
            shunt__log(SHUNT__LOG_WARN, "rail %s is not watched: %s", ctx->rails[i]->name, shunt_error_text());
    }
}

static shunt_status_t fill_card(struct shunt_context *ctx)
{
    shunt_host_id_t host;
    shunt_status_t st = shunt_host_id(&host);

    if (st != SHUNT_OK)
        return st;
    randombytes_buf(ctx->card.uid, sizeof(ctx->card.uid));
    randombytes_buf(ctx->card.secret, sizeof(ctx->card.secret));
    memcpy(ctx->card.host, host.bytes, 16);
    if (ctx->config.given[SHUNT__HOSTID] == 2) { /* by the caller: topology sees the environment only */
        const char *text = shunt__config_str(&ctx->config, SHUNT__HOSTID);
        crypto_generichash(ctx->card.host, 16, (const unsigned char *)text, strlen(text), NULL, 0);
    }
    ctx->card.pid = (uint32_t)getpid();
    gethostname(ctx->card.hostname, sizeof(ctx->card.hostname) - 1);
    for (char *c = ctx->card.hostname; *c; c++)
        if (*c < 33 || *c > 126)
            *c = '?';
    return SHUNT_OK;
}

static uint64_t up_to(int64_t value, uint64_t most)
{
    return (uint64_t)value < most ? (uint64_t)value : most;
}

/* Settings that are names. Those of rails, ports and files are found wanting when they are used. */
static shunt_status_t check_names(const struct shunt__config *config)
{
    const char *quorum = shunt__config_str(config, SHUNT__QUORUM);

    if (strcmp(quorum, "half") != 0 && strcmp(quorum, "any") != 0)
        return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_QUORUM=%s: expected half or any", quorum);
    return SHUNT_OK;
}

static void set_limits(struct shunt_context *ctx)
{
    ctx->eager = up_to(shunt__config_int(&ctx->config, SHUNT__EAGER), 1u << 30);
    ctx->unmatched_max = (uint64_t)shunt__config_int(&ctx->config, SHUNT__UNMATCHED);
    ctx->window_max = (uint64_t)shunt__config_int(&ctx->config, SHUNT__WINDOW);
    ctx->spin = (uint64_t)shunt__config_int(&ctx->config, SHUNT__SPIN);
    ctx->peer_timeout = (uint64_t)shunt__config_int(&ctx->config, SHUNT__PEER_TIMEOUT);
    ctx->chunk = (uint32_t)up_to(shunt__config_int(&ctx->config, SHUNT__CHUNK), 1u << 30);
    if (ctx->window_max < 65536)
        ctx->window_max = 65536;
    ctx->crowded = 0; /* until a communicator has more ranks here than there are cores */
}

static void free_context(struct shunt_context *ctx)
{
    shunt__report_close(ctx, ctx->report);
    shunt__agree_close(ctx);
    while (!shunt__list_empty(&ctx->all_peers))
        shunt__peer_destroy(shunt__container(ctx->all_peers.next, struct shunt__peer, all));
    while (!shunt__list_empty(&ctx->orphans)) {
        struct shunt__list *n = ctx->orphans.next;
        shunt__list_remove(n);
        free(shunt__container(n, struct shunt__orphan, node));
    }
    for (int i = 0; i < SHUNT__FREED; i++)
        free(ctx->freed[i].streams);
    for (int c = 0; c < SHUNT__POOL_CLASSES; c++)
        while (ctx->pool[c]) {
            void *p = ctx->pool[c];
            ctx->pool[c] = *(void **)p;
            free(p);
        }
    for (int i = 0; i < ctx->n_rails; i++)
        ctx->rails[i]->ops->close(ctx->rails[i]);
    shunt__carrier_close(ctx->carrier);
    shunt__poller_close(&ctx->poller);
    shunt__health_close(ctx->health);
    shunt__config_free(&ctx->config);
    pthread_mutex_destroy(&ctx->lock);
    sodium_memzero(ctx->card.secret, sizeof(ctx->card.secret));
    free(ctx);
}

shunt_status_t shunt_context_create(const shunt_context_params_t *params, shunt_context_t **out)
{
    struct shunt_context *ctx;
    shunt_status_t st;
    int err;

    if (!out)
        return shunt__fail(SHUNT_ERR_INVALID, "context_create: no place for the context (NULL)");
    if (params && params->size < sizeof(size_t))
        return shunt__fail(SHUNT_ERR_INVALID, "context_create: params->size is %zu; set it to "
                           "sizeof(shunt_context_params_t)", params->size);
    if (sodium_init() < 0)
        return shunt__fail(SHUNT_ERR_SYSTEM, "libsodium has no source of random numbers (/dev/urandom)");
    ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a context");
    shunt__list_init(&ctx->all_peers);
    shunt__list_init(&ctx->all_comms);
    shunt__list_init(&ctx->pump);
    shunt__list_init(&ctx->completed);
    shunt__list_init(&ctx->orphans);
    shunt__list_init(&ctx->agreements);
    pthread_mutex_init(&ctx->lock, NULL);
    ctx->now = shunt__now();
    ctx->poller.epfd = -1;
    ctx->bell[0] = ctx->bell[1] = -1;
    st = shunt__config_load(&ctx->config, params && params->size >= 2 * sizeof(void *) ? params->settings : NULL);
    if (st == SHUNT_OK)
        st = check_names(&ctx->config);
    if (st != SHUNT_OK) {
        free_context(ctx);
        return st;
    }
    if (params && params->size >= sizeof(*params) && params->name) {
        snprintf(ctx->name, sizeof(ctx->name), "%s", params->name);
        shunt__log_name(params->name);
    }
    if (ctx->config.given[SHUNT__DEBUG] == 2) /* by the caller: the log has read the environment itself */
        shunt__log_set(shunt__config_str(&ctx->config, SHUNT__DEBUG));
    if (ctx->config.given[SHUNT__DEBUG_FILE] == 2)
        shunt__log_file(shunt__config_str(&ctx->config, SHUNT__DEBUG_FILE));
    set_limits(ctx);
    shunt__path_events(&ctx->events);
    err = shunt__poller_init(&ctx->poller);
    if (err)
        st = shunt__fail_errno(SHUNT_ERR_LIMIT, err, "no descriptor left for epoll (ulimit -n)");
    if (st == SHUNT_OK && !(ctx->health = shunt__health_open(ctx)))
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a context");
    if (st == SHUNT_OK)
        st = fill_card(ctx);
    if (st == SHUNT_OK)
        st = open_rails(ctx);
    for (int i = 0; i < ctx->n_rails && st == SHUNT_OK; i++)
        if (ctx->rails[i]->ops->waiting)
            ctx->memory = ctx->rails[i];
    if (st == SHUNT_OK)
        watch_interfaces(ctx);
    if (st == SHUNT_OK)
        ctx->report = shunt__report_open(ctx);
    if (st == SHUNT_OK)
        st = shunt__progress_start(ctx);
    if (st != SHUNT_OK) {
        shunt__progress_stop(ctx);
        free_context(ctx);
        return st;
    }
    *out = ctx;
    return SHUNT_OK;
}

/* Says goodbye on every link, so that nobody takes the closed connection for a death, and lets it leave. */
static void say_bye(struct shunt_context *ctx)
{
    uint64_t until = shunt__now() + LINGER;
    struct shunt__frame bye = {.type = SHUNT__FRAME_BYE};
    int waiting = 1;

    for (struct shunt__list *n = ctx->all_peers.next; n != &ctx->all_peers; n = n->next) {
        struct shunt__peer *peer = shunt__container(n, struct shunt__peer, all);
        shunt__schedule(peer);
        shunt__ack_flush(peer);
        for (int i = 0; i < SHUNT__MAX_RAILS; i++)
            if (peer->paths[i] && peer->paths[i]->link.conn &&
                (shunt__path_usable(peer->paths[i]) || peer->paths[i]->state == SHUNT_RAIL_SUSPECT))
                shunt__path_send(peer->paths[i], &bye, NULL, UINT64_MAX);
    }
    while (waiting && shunt__now() < until) {
        waiting = 0;
        for (struct shunt__list *n = ctx->all_peers.next; n != &ctx->all_peers; n = n->next) {
            struct shunt__peer *peer = shunt__container(n, struct shunt__peer, all);
            for (int i = 0; i < SHUNT__MAX_RAILS; i++) {
                struct shunt__link_stats st = {0};
                if (!peer->paths[i] || !peer->paths[i]->link.conn || !shunt__path_usable(peer->paths[i]))
                    continue;
                peer->paths[i]->link.rail->ops->stats(&peer->paths[i]->link, &st);
                waiting |= st.queued > 0;
            }
        }
        if (waiting) {
            shunt__progress(ctx);
            sched_yield();
        }
    }
}

void shunt_context_destroy(shunt_context_t *ctx)
{
    if (!ctx)
        return;
    shunt__progress_stop(ctx);
    shunt__lock(ctx);
    shunt__report_close(ctx, ctx->report);
    ctx->report = NULL;
    ctx->closing = 1;
    while (!shunt__list_empty(&ctx->all_comms)) {
        struct shunt_comm *comm = shunt__container(ctx->all_comms.next, struct shunt_comm, all);
        shunt__comm_end(comm, SHUNT_ERR_ABORTED, "the context was destroyed");
        shunt__progress(ctx);
        shunt__comm_destroy(comm);
    }
    say_bye(ctx);
    shunt__unlock(ctx);
    for (int i = 0; i < ctx->n_roots; i++)
        shunt__boot_root_close(ctx->roots[i]);
    free(ctx->roots);
    free_context(ctx);
}

int shunt__context_ips(struct shunt_context *ctx, char ***out)
{
    char **ips = calloc(SHUNT__MAX_RAILS + 1, sizeof(*ips));
    int n = 0;

    for (int i = 0; ips && i < ctx->n_rails; i++)
        if (*ctx->rails[i]->params.ip && (ips[n] = strdup(ctx->rails[i]->params.ip)))
            n++;
    if (ips && n == 0 && (ips[0] = strdup("127.0.0.1")))
        n = 1;
    *out = ips;
    return n;
}

/* Takes out of the list one meeting that is over: its thread has ended, or others that are over are plenty. */
static struct shunt__boot_root *finished_root(struct shunt_context *ctx)
{
    struct shunt__boot_root *root = NULL;
    int over = 0, which = -1;

    shunt__lock(ctx);
    for (int i = ctx->n_roots - 1; i >= 0; i--) {
        int state = shunt__boot_root_over(ctx->roots[i]);
        over += state == 1;
        if (state == 2 || over > LINGERING_ROOTS)
            which = i;
    }
    if (which >= 0) {
        root = ctx->roots[which];
        memmove(&ctx->roots[which], &ctx->roots[which + 1],
                (size_t)(--ctx->n_roots - which) * sizeof(*ctx->roots));
    }
    shunt__unlock(ctx);
    return root;
}

shunt_status_t shunt_id_create(shunt_context_t *ctx, shunt_id_t *id)
{
    struct shunt__boot_root *root = NULL;
    shunt_status_t st;
    char **ips;
    int n;

    if (!ctx || !id)
        return shunt__fail(SHUNT_ERR_INVALID, "id_create: %s is NULL", ctx ? "the id" : "the context");
    while ((root = finished_root(ctx)))
        shunt__boot_root_close(root);
    n = shunt__context_ips(ctx, &ips);
    st = shunt__boot_root_open(&ctx->config, (const char *const *)ips, n, (unsigned char *)id->bytes, &root);
    for (int i = 0; ips && i < n; i++)
        free(ips[i]);
    free(ips);
    if (st != SHUNT_OK)
        return st;
    shunt__lock(ctx);
    struct shunt__boot_root **roots = realloc(ctx->roots, ((size_t)ctx->n_roots + 1) * sizeof(*roots));
    if (roots) {
        ctx->roots = roots;
        roots[ctx->n_roots++] = root;
    }
    shunt__unlock(ctx);
    if (!roots) {
        shunt__boot_root_close(root);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for an id");
    }
    return SHUNT_OK;
}
