/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context listens on a socket of the abstract namespace, "shunt-status-UID-PID-NUMBER", where only its own user and root
 * are answered: with one JSON object in one line and the same for people in the lines after it; then it closes. Nothing is left behind by a process that dies. The answer is
 * made by whoever drives the engine, so a rank that hangs inside a call can be asked as well.
 */
#include "comm/core/report.h"
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "comm/core/engine.h"
#include "comm/core/health.h"

#define METRICS_EVERY (1 * SHUNT__S)
#define WAITS_MAX 64

struct shunt__report {
    struct shunt__pollable listener; /* first */
    struct shunt_context *ctx;
    char metrics[512];
    uint64_t next;
};

struct text {
    char *p;
    size_t len, cap;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    for (;;) {
        va_start(ap, fmt);
        n = t->cap > t->len ? vsnprintf(t->p + t->len, t->cap - t->len, fmt, ap) : 0;
        va_end(ap);
        if (n >= 0 && t->cap > t->len && (size_t)n < t->cap - t->len)
            break;
        char *more = realloc(t->p, t->cap ? 2 * t->cap : 16384);
        if (!more)
            return;
        t->p = more;
        t->cap = t->cap ? 2 * t->cap : 16384;
    }
    t->len += (size_t)n;
}

static void quoted(struct text *t, const char *s)
{
    say(t, "\"");
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            say(t, "\\%c", *s);
        else if ((unsigned char)*s >= 32)
            say(t, "%c", *s);
    say(t, "\"");
}

static void rails(struct text *t, struct shunt_context *ctx, struct shunt_comm *comm)
{
    const char *sep = "";

    say(t, "\"rails\":[");
    for (int r = 0; r < comm->size; r++)
        for (int i = 0; comm->peers[r] && i < SHUNT__MAX_RAILS; i++) {
            const struct shunt__path *p = comm->peers[r]->paths[i];
            if (!p || p->state == SHUNT_RAIL_IDLE)
                continue;
            say(t, "%s{\"rail\":\"%s\",\"rank\":%d,\"state\":\"%s\",\"since\":%.3f,\"rate\":%.0f,\"latency\":%.9f,"
                "\"outstanding\":%llu,\"sent\":%llu,\"received\":%llu,\"resent\":%llu,\"damaged\":%llu,\"why\":",
                sep, p->link.rail->name, r, shunt_rail_state_name(p->state), (double)(ctx->now - p->since) / 1e9,
                p->rate * 1e9, p->latency / 1e9, (unsigned long long)p->in_flight, (unsigned long long)p->bytes_sent,
                (unsigned long long)p->bytes_received, (unsigned long long)p->bytes_resent,
                (unsigned long long)p->chunks_damaged);
            quoted(t, p->why);
            say(t, "}");
            sep = ",";
        }
    say(t, "]");
}

static void wait_on(struct text *t, struct shunt_context *ctx, const char *what, const struct shunt__op *op, int *n)
{
    if (*n >= WAITS_MAX)
        return;
    say(t, "%s{\"what\":\"%s\",\"channel\":\"%s\",\"rank\":%d,\"tag\":%d,\"bytes\":%zu,\"for\":%.3f}", *n ? "," : "", what,
        op->channel == SHUNT__CHANNEL_COLL ? "collective" : op->channel == SHUNT__CHANNEL_USER ? "message" : "control",
        op->peer, op->tag, op->bytes, (double)(ctx->now - op->start) / 1e9);
    ++*n;
}

/* Whom this rank waits for: receives that nothing has come for or is still coming, and sends that are not acknowledged. */
static void waits(struct text *t, struct shunt_context *ctx, struct shunt_comm *comm)
{
    int n = 0;

    say(t, "\"waits\":[");
    for (int c = 0; c < SHUNT__CHANNELS; c++)
        for (int r = 0; r < comm->size; r++) {
            struct shunt__stream *s = comm->streams[c][r];
            if (!s)
                continue;
            for (struct shunt__list *l = s->posted.next; l != &s->posted; l = l->next)
                wait_on(t, ctx, "receive", shunt__container(l, struct shunt__op, node), &n);
            for (uint64_t m = s->rx_base; m < s->rx_seen; m++) {
                struct shunt__rx *rx = s->rx_ring[m & (s->rx_cap - 1)];
                if (rx && rx != SHUNT__RX_DONE && rx->op)
                    wait_on(t, ctx, "receive", rx->op, &n);
            }
            for (uint64_t m = s->tx_base; m < s->tx_next; m++) {
                struct shunt__tx *tx = s->tx_ring[m & (s->tx_cap - 1)].tx;
                if (tx && tx->op)
                    wait_on(t, ctx, "send", tx->op, &n);
            }
        }
    say(t, "]");
}

static void everything(struct text *t, struct shunt_context *ctx)
{
    static const char *const blames[] = {"", "link", "NIC", "path"};
    const char *sep = "";

    say(t, "{\"host\":\"%s\",\"pid\":%u,\"name\":", ctx->card.hostname, ctx->card.pid);
    quoted(t, ctx->name);
    say(t, ",\"communicators\":[");
    for (struct shunt__list *l = ctx->all_comms.next; l != &ctx->all_comms; l = l->next) {
        struct shunt_comm *comm = shunt__container(l, struct shunt_comm, all);
        shunt_status_t st = comm->state != SHUNT_OK ? comm->state : comm->coll_state;
        say(t, "%s{\"id\":\"%016llx\",\"epoch\":%u,\"rank\":%d,\"size\":%d,\"state\":\"%s\",\"collectives\":%llu,\"why\":", sep,
            (unsigned long long)comm->id, comm->epoch, comm->rank, comm->size, shunt_status_name(st),
            (unsigned long long)comm->coll_count);
        quoted(t, st == SHUNT_OK ? "" : comm->why);
        say(t, ",\"lost\":[");
        const char *s2 = "";
        for (int r = 0; r < comm->size; r++)
            if (comm->peers[r] && comm->peers[r]->state != SHUNT_OK && !comm->peers[r]->left) {
                say(t, "%s{\"rank\":%d,\"why\":", s2, r);
                quoted(t, comm->peers[r]->why);
                say(t, "}");
                s2 = ",";
            }
        say(t, "],");
        waits(t, ctx, comm);
        say(t, ",");
        rails(t, ctx, comm);
        say(t, "}");
        sep = ",";
    }
    say(t, "],\"verdicts\":[");
    sep = "";
    for (int i = 0; ctx->health && i < ctx->health->n_found; i++) {
        const struct shunt__finding *f = &ctx->health->found[i];
        if (!f->told)
            continue;
        say(t, "%s{\"slow\":\"%s\",\"what\":", sep, blames[f->v.blame]);
        quoted(t, f->v.what);
        say(t, ",\"factor\":%.1f,\"for\":%.3f}", (double)f->v.factor, (double)(ctx->now - f->first) / 1e9);
        sep = ",";
    }
    if (ctx->health && ctx->health->late_told)
        say(t, "%s{\"slow\":\"rank\",\"what\":\"this rank\",\"factor\":0,\"for\":0}", sep);
    say(t, "]}\n");
}

/* The longest wait on each rank, in words. */
static void waits_in_words(struct text *t, struct shunt_context *ctx, struct shunt_comm *comm)
{
    for (int r = 0; r < comm->size; r++) {
        const struct shunt__op *oldest = NULL;
        int n = 0;
        for (int c = 0; c < SHUNT__CHANNELS; c++) {
            struct shunt__stream *s = comm->streams[c][r];
            for (struct shunt__list *l = s ? s->posted.next : NULL; l && l != &s->posted; l = l->next, n++) {
                const struct shunt__op *op = shunt__container(l, struct shunt__op, node);
                if (!oldest || op->start < oldest->start)
                    oldest = op;
            }
            for (uint64_t m = s ? s->tx_base : 0; s && m < s->tx_next; m++) {
                struct shunt__tx *tx = s->tx_ring[m & (s->tx_cap - 1)].tx;
                n += tx && tx->op;
                if (tx && tx->op && (!oldest || tx->op->start < oldest->start))
                    oldest = tx->op;
            }
        }
        if (oldest)
            say(t, "    waits %.1f s for rank %d: %s %s%s of %zu bytes%s\n", (double)(ctx->now - oldest->start) / 1e9, r,
                oldest->kind == SHUNT__OP_SEND ? "to take a" : "to send a",
                oldest->channel == SHUNT__CHANNEL_COLL ? "collective's " : "", "message", oldest->bytes,
                n > 1 ? ", and more" : "");
    }
}

static void in_words(struct text *t, struct shunt_context *ctx)
{
    static const char *const blames[] = {"", "link", "NIC", "path"};

    for (struct shunt__list *l = ctx->all_comms.next; l != &ctx->all_comms; l = l->next) {
        struct shunt_comm *comm = shunt__container(l, struct shunt_comm, all);
        shunt_status_t st = comm->state != SHUNT_OK ? comm->state : comm->coll_state;
        int up = 0, other = 0;
        for (int r = 0; r < comm->size; r++)
            for (int i = 0; comm->peers[r] && i < SHUNT__MAX_RAILS; i++) {
                const struct shunt__path *p = comm->peers[r]->paths[i];
                up += p && p->state == SHUNT_RAIL_UP;
                other += p && p->state != SHUNT_RAIL_UP && p->state != SHUNT_RAIL_IDLE;
            }
        say(t, "rank %d of %d  %s/%u  communicator %04x  %s%s%s  %llu collectives  %d rails up%s\n", comm->rank, comm->size,
            ctx->card.hostname, ctx->card.pid, (unsigned)(comm->id >> 48), st == SHUNT_OK ? "well" : shunt_status_name(st),
            st == SHUNT_OK ? "" : ": ", st == SHUNT_OK ? "" : comm->why, (unsigned long long)comm->coll_count, up,
            other ? ", others:" : "");
        for (int r = 0; r < comm->size && other; r++)
            for (int i = 0; comm->peers[r] && i < SHUNT__MAX_RAILS; i++) {
                const struct shunt__path *p = comm->peers[r]->paths[i];
                if (p && p->state != SHUNT_RAIL_UP && p->state != SHUNT_RAIL_IDLE && !comm->peers[r]->left)
                    say(t, "    rail %s to rank %d %s for %.1f s: %s\n", p->link.rail->name, r,
                        shunt_rail_state_name(p->state), (double)(ctx->now - p->since) / 1e9, p->why);
            }
        waits_in_words(t, ctx, comm);
    }
    for (int i = 0; ctx->health && i < ctx->health->n_found; i++)
        if (ctx->health->found[i].told)
            say(t, "    verdict: slow %s %s, %.1f times slower than before, for %.1f s\n",
                blames[ctx->health->found[i].v.blame], ctx->health->found[i].v.what, (double)ctx->health->found[i].v.factor,
                (double)(ctx->now - ctx->health->found[i].first) / 1e9);
    if (ctx->health && ctx->health->late_told)
        say(t, "    verdict: slow rank: the others wait for this one\n");
}

static void on_ask(struct shunt__pollable *self, uint32_t events)
{
    struct shunt__report *r = (struct shunt__report *)self;
    int fd = accept4(self->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), room = 4 << 20;
    struct ucred who;
    socklen_t len = sizeof(who);
    struct text t = {0};

    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && (who.uid == geteuid() || who.uid == 0)) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        everything(&t, r->ctx);
        in_words(&t, r->ctx);
        if (t.p && send(fd, t.p, t.len, MSG_NOSIGNAL) < 0)
            shunt__log(SHUNT__LOG_INFO, "an answer to shunt-status was lost: %s", strerror(errno));
        free(t.p);
    }
    close(fd);
}

static void listen_on(struct shunt__report *r)
{
    static int count;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "shunt-status-%u-%d-%d", (unsigned)geteuid(), (int)getpid(),
                     __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    r->listener.fd = -1;
    if (fd < 0)
        return;
    r->listener = (struct shunt__pollable){.fd = fd, .events = EPOLLIN, .ready = on_ask};
    if (bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) || listen(fd, 8) ||
        shunt__poller_add(&r->ctx->poller, &r->listener)) {
        close(fd);
        r->listener.fd = -1;
    }
}

struct shunt__report *shunt__report_open(struct shunt_context *ctx)
{
    struct shunt__report *r = calloc(1, sizeof(*r));
    const char *file = shunt__config_str(&ctx->config, SHUNT__METRICS_FILE);
    size_t n = 0;

    if (!r)
        return NULL;
    r->ctx = ctx;
    r->listener.fd = -1;
    for (; *file && n < sizeof(r->metrics) - 80; file++)
        if (file[0] == '%' && file[1] == 'p')
            n += (size_t)snprintf(r->metrics + n, sizeof(r->metrics) - n, "%u", ctx->card.pid), file++;
        else if (file[0] == '%' && file[1] == 'h')
            n += (size_t)snprintf(r->metrics + n, sizeof(r->metrics) - n, "%s", ctx->card.hostname), file++;
        else
            r->metrics[n++] = *file;
    if (shunt__config_int(&ctx->config, SHUNT__STATUS))
        listen_on(r);
    return r;
}

/* OpenMetrics text: counters and gauges per rail and peer, written beside and renamed, so that a reader sees all or nothing. */
static void metrics(struct shunt_context *ctx, const char *path)
{
    static const struct {
        const char *name, *type, *help;
    } m[] = {{"shunt_rail_up", "gauge", "1 while the rail to this peer is in use"},
             {"shunt_rail_rate_bytes_per_second", "gauge", "measured rate"},
             {"shunt_rail_outstanding_bytes", "gauge", "sent and not acknowledged"},
             {"shunt_rail_sent_bytes", "counter", "bytes sent"},
             {"shunt_rail_received_bytes", "counter", "payload bytes received"},
             {"shunt_rail_resent_bytes", "counter", "bytes sent again"},
             {"shunt_rail_damaged_chunks", "counter", "chunks that arrived damaged"}};
    char tmp[560];
    FILE *f;

    snprintf(tmp, sizeof(tmp), "%s.new", path);
    f = fopen(tmp, "we");
    if (!f) {
        shunt__log_once(SHUNT__LOG_WARN, "SHUNT_METRICS_FILE=%s can't be written: %s", path, strerror(errno));
        return;
    }
    for (size_t k = 0; k < sizeof(m) / sizeof(m[0]); k++) {
        fprintf(f, "# TYPE %s %s\n# HELP %s %s\n", m[k].name, m[k].type, m[k].name, m[k].help);
        for (struct shunt__list *l = ctx->all_peers.next; l != &ctx->all_peers; l = l->next) {
            const struct shunt__peer *peer = shunt__container(l, struct shunt__peer, all);
            for (int i = 0; i < SHUNT__MAX_RAILS; i++) {
                const struct shunt__path *p = peer->paths[i];
                if (!p || p->state == SHUNT_RAIL_IDLE)
                    continue;
                double v[] = {shunt__path_usable(p), p->rate * 1e9, (double)p->in_flight, (double)p->bytes_sent,
                              (double)p->bytes_received, (double)p->bytes_resent, (double)p->chunks_damaged};
                fprintf(f, "%s%s{rail=\"%s\",peer=\"%s\"} %.17g\n", m[k].name, m[k].type[0] == 'c' ? "_total" : "",
                        p->link.rail->name, shunt__peer_name(peer), v[k]);
            }
        }
    }
    fprintf(f, "# EOF\n");
    if (fclose(f) || rename(tmp, path))
        shunt__log_once(SHUNT__LOG_WARN, "SHUNT_METRICS_FILE=%s can't be written: %s", path, strerror(errno));
}

void shunt__report_tick(struct shunt_context *ctx, struct shunt__report *r, uint64_t now)
{
    if (!r || !*r->metrics || now < r->next)
        return;
    r->next = now + METRICS_EVERY;
    metrics(ctx, r->metrics);
}

void shunt__report_close(struct shunt_context *ctx, struct shunt__report *r)
{
    if (!r)
        return;
    if (*r->metrics)
        metrics(ctx, r->metrics);
    if (r->listener.fd >= 0) {
        shunt__poller_remove(&ctx->poller, &r->listener);
        close(r->listener.fd);
    }
    free(r);
}
