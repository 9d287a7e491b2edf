/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measuring rails from the traffic they carry, and agreeing on what is to blame.
 *
 * Each path gives a sample of its rate per SHUNT__SAMPLE_BYTES of uninterrupted traffic. A path that becomes slow beyond
 * what the process's other paths suffer at the same time (a busy machine slows them all) is reported to all peers, which
 * answer with what they have measured; from the same table of links every rank finds the same verdict: the link, the NIC
 * whose links are all slow, or the path between two switches. Nothing is read from sysfs or settings but which NIC hangs on
 * which switch. A verdict is given when it has stood for HOLD, and taken back when its links have been well for RELEASE.
 *
 * A rank is slow when others wait for it: when it enters a collective whose messages from others have been here for long,
 * most of the last sixteen times. It tells so itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/core/health.h"

#define FRESH (5 * SHUNT__S)      /* what was measured longer ago says nothing */
#define HOLD (300 * SHUNT__MS)
#define RELEASE (1 * SHUNT__S)
#define JUDGE_EVERY (100 * SHUNT__MS)
#define TELL_EVERY (500 * SHUNT__MS)
#define LATE (20 * SHUNT__MS)
#define NOTICE_EDGES 64

struct notice {
    uint32_t kind, n;
    struct shunt__edge edges[];
};

static void read_cables(struct shunt__health *h, const char *path)
{
    char line[256];
    FILE *f = fopen(path, "r");

    if (!f) {
        shunt__log(SHUNT__LOG_WARN, "SHUNT_FABRIC_FILE=%s can't be read: no verdict will name switches", path);
        return;
    }
    while (fgets(line, sizeof(line), f)) {
        struct shunt__cable c, *more;
        if (sscanf(line, "cable %31s %23s %31s", c.host, c.rail, c.leaf) != 3)
            continue;
        more = realloc(h->cables, ((size_t)h->n_cables + 1) * sizeof(*more));
        if (!more)
            break;
        h->cables = more;
        h->cables[h->n_cables++] = c;
    }
    fclose(f);
}

struct shunt__health *shunt__health_open(struct shunt_context *ctx)
{
    struct shunt__health *h = calloc(1, sizeof(*h));

    if (h && *shunt__config_str(&ctx->config, SHUNT__FABRIC_FILE))
        read_cables(h, shunt__config_str(&ctx->config, SHUNT__FABRIC_FILE));
    return h;
}

void shunt__health_close(struct shunt__health *h)
{
    if (h)
        free(h->cables);
    free(h);
}

static const char *switch_of(void *arg, const char *host, const char *rail)
{
    const struct shunt__health *h = arg;

    for (int i = 0; i < h->n_cables; i++)
        if (strcmp(h->cables[i].host, host) == 0 && strcmp(h->cables[i].rail, rail) == 0)
            return h->cables[i].leaf;
    return NULL;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median factor of the other paths that have had traffic lately; 2 when there is none to compare with. */
static double others(struct shunt__path *path, uint64_t now)
{
    struct shunt_context *ctx = path->peer->ctx;
    double f[64];
    size_t n = 0;

    for (struct shunt__list *l = ctx->all_peers.next; l != &ctx->all_peers; l = l->next) {
        struct shunt__peer *peer = shunt__container(l, struct shunt__peer, all);
        for (int i = 0; i < SHUNT__MAX_RAILS && n < 64; i++) {
            struct shunt__path *p = peer->paths[i];
            if (p && p != path && p->sampled && now - p->sampled < SHUNT__S && p->series.n >= 3 && !p->series.slow)
                f[n++] = shunt__series_factor(&p->series);
        }
    }
    if (n == 0)
        return 2;
    qsort(f, n, sizeof(*f), order);
    return f[n / 2];
}

void shunt__health_sample(struct shunt__path *path, uint64_t now)
{
    struct shunt_context *ctx = path->peer->ctx;
    uint64_t ns = path->busy_ns ? path->busy_ns : 1;
    double sample = (double)path->busy_bytes / (double)ns;

    path->busy_bytes = path->busy_ns = 0;
    if (path->link.rail->caps & SHUNT__RAIL_LOCAL)
        return;
    shunt__series_add(&path->series, sample);
    path->sampled = now;
    if (!shunt__series_judge(&path->series, others(path, now)))
        return;
    ctx->health->tell = 1;
    if (path->series.slow && path->state == SHUNT_RAIL_UP)
        shunt__path_move(path, SHUNT_RAIL_SLOW, "%.1f MB/s, it has had %.1f", shunt__series_now(&path->series) * 1e3,
                         path->series.base * 1e3);
    else if (!path->series.slow && path->state == SHUNT_RAIL_SLOW)
        shunt__path_move(path, SHUNT_RAIL_UP, "as fast as before: %.1f MB/s", shunt__series_now(&path->series) * 1e3);
}

static uint64_t host_number(const unsigned char host[16])
{
    uint64_t x;

    memcpy(&x, host, sizeof(x));
    return x;
}

/* A link into the table, in the place of what its sender said before. */
static void put(struct shunt__health *h, const struct shunt__edge *e)
{
    int oldest = 0;

    for (int i = 0; i < h->n_edges; i++) {
        struct shunt__edge *o = &h->edges[i];
        if (o->from == e->from && o->to == e->to && strcmp(o->from_rail, e->from_rail) == 0) {
            /* Ranks of one host measure the same link: slow counts while any of them says so freshly. */
            if (o->slow && !e->slow && e->time - o->time < TELL_EVERY)
                return;
            *o = *e;
            return;
        }
        if (o->time < h->edges[oldest].time)
            oldest = i;
    }
    h->edges[h->n_edges < SHUNT__EDGES ? h->n_edges++ : oldest] = *e;
}

static int own_edge(struct shunt_context *ctx, const struct shunt__path *p, struct shunt__edge *e, uint64_t now)
{
    if (!p || p->series.n < 3 || now - p->sampled > FRESH || (p->link.rail->caps & SHUNT__RAIL_LOCAL))
        return 0;
    memset(e, 0, sizeof(*e));
    e->from = host_number(ctx->card.host);
    e->to = host_number(p->peer->card.host);
    snprintf(e->from_rail, sizeof(e->from_rail), "%.23s", p->link.rail->params.device);
    snprintf(e->to_rail, sizeof(e->to_rail), "%.23s", p->peer->card.rails[p->remote].device);
    snprintf(e->from_name, sizeof(e->from_name), "%.31s", ctx->card.hostname);
    snprintf(e->to_name, sizeof(e->to_name), "%.31s", p->peer->card.hostname);
    e->factor = (float)shunt__series_factor(&p->series);
    e->slow = p->series.slow;
    e->time = now;
    return 1;
}

/* Sends what this process has measured to everybody, and puts it into the own table. */
static void tell(struct shunt_context *ctx, uint64_t now)
{
    struct shunt__health *h = ctx->health;
    struct notice *n = calloc(1, sizeof(*n) + NOTICE_EDGES * sizeof(struct shunt__edge));
    struct shunt__frame f;

    if (!n)
        return;
    n->kind = SHUNT__NOTICE_LINKS;
    for (struct shunt__list *l = ctx->all_peers.next; l != &ctx->all_peers; l = l->next) {
        struct shunt__peer *peer = shunt__container(l, struct shunt__peer, all);
        for (int i = 0; i < SHUNT__MAX_RAILS && n->n < NOTICE_EDGES; i++)
            if (own_edge(ctx, peer->paths[i], &n->edges[n->n], now))
                put(h, &n->edges[n->n++]);
    }
    memset(&f, 0, sizeof(f));
    f.type = SHUNT__FRAME_NOTICE;
    f.length = (uint32_t)(sizeof(*n) + n->n * sizeof(struct shunt__edge));
    for (struct shunt__list *l = ctx->all_peers.next; n->n && l != &ctx->all_peers; l = l->next) {
        struct shunt__peer *peer = shunt__container(l, struct shunt__peer, all);
        if (peer->state == SHUNT_OK && !peer->left)
            shunt__notice(peer, &f, n);
    }
    free(n);
    h->last_told = now;
    h->tell = 0;
}

void shunt__health_heard(struct shunt_context *ctx, struct shunt__peer *from, const void *payload, size_t len)
{
    struct shunt__health *h = ctx->health;
    const struct notice *n = payload;
    int slow = 0;

    if (len < sizeof(*n) || (len - sizeof(*n)) % sizeof(struct shunt__edge) != 0)
        return;
    for (size_t i = 0; i < (len - sizeof(*n)) / sizeof(struct shunt__edge); i++) {
        struct shunt__edge e;
        memcpy(&e, (const char *)payload + sizeof(*n) + i * sizeof(e), sizeof(e));
        e.from_rail[sizeof(e.from_rail) - 1] = e.to_rail[sizeof(e.to_rail) - 1] = 0;
        e.from_name[sizeof(e.from_name) - 1] = e.to_name[sizeof(e.to_name) - 1] = 0;
        e.slow = e.slow != 0;
        e.time = ctx->now;
        slow |= e.slow;
        put(h, &e);
    }
    if (slow && ctx->now - h->last_told > TELL_EVERY)
        h->tell = 1; /* ours may be what tells a NIC from a link */
}

static const char *const blames[] = {"", "link", "NIC", "path"};

static void keep(struct shunt__health *h, const struct shunt__verdict *v, uint64_t now)
{
    for (int i = 0; i < h->n_found; i++)
        if (h->found[i].v.blame == v->blame && strcmp(h->found[i].v.what, v->what) == 0) {
            h->found[i].v = *v;
            h->found[i].last = now;
            return;
        }
    if (h->n_found < SHUNT__VERDICTS)
        h->found[h->n_found++] = (struct shunt__finding){*v, now, now, 0};
}

static void judge(struct shunt_context *ctx, uint64_t now)
{
    struct shunt__health *h = ctx->health;
    struct shunt__verdict v[SHUNT__VERDICTS];
    int n = 0;

    for (int i = 0; i < h->n_edges; i++) /* forget what is old */
        if (now - h->edges[i].time <= FRESH)
            h->edges[n++] = h->edges[i];
    h->n_edges = n;
    n = shunt__verdict_find(h->edges, h->n_edges, h->n_cables ? switch_of : NULL, h, v, SHUNT__VERDICTS);
    for (int i = 0; i < n; i++)
        keep(h, &v[i], now);
    n = 0;
    for (int i = 0; i < h->n_found; i++) {
        struct shunt__finding *f = &h->found[i];
        if (!f->told && f->last == now && now - f->first >= HOLD) {
            f->told = 1;
            shunt__health_event(ctx, SHUNT_EVENT_VERDICT, NULL, -1, "slow %s: %s (%.1f times slower than before, %d link%s)",
                                blames[f->v.blame], f->v.what, (double)f->v.factor, f->v.links, f->v.links == 1 ? "" : "s");
        }
        if (now - f->last > RELEASE) {
            if (f->told)
                shunt__health_event(ctx, SHUNT_EVENT_VERDICT, NULL, -1, "no longer slow: %s %s", blames[f->v.blame], f->v.what);
            continue;
        }
        if (f->last != now && !f->told)
            continue; /* did not stand */
        h->found[n++] = *f;
    }
    h->n_found = n;
}

void shunt__health_tick(struct shunt_context *ctx, uint64_t now)
{
    struct shunt__health *h = ctx->health;
    int slow = 0;

    if (now < h->next_judge)
        return;
    h->next_judge = now + JUDGE_EVERY;
    if (h->n_edges == 0 && !h->tell)
        return;
    for (int i = 0; i < h->n_edges; i++)
        slow |= h->edges[i].slow;
    if (h->tell || (slow && now - h->last_told > TELL_EVERY))
        tell(ctx, now);
    judge(ctx, now);
}

/* When the first of the messages came that wait here for a collective to start; 0: none does. */
static uint64_t first_waiting(const struct shunt_comm *comm)
{
    uint64_t first = 0;

    for (int r = 0; r < comm->size; r++) {
        const struct shunt__stream *s = comm->streams[SHUNT__CHANNEL_COLL][r];
        for (uint64_t m = s ? s->rx_matched : 0; s && m < s->rx_seen; m++) {
            const struct shunt__rx *rx = s->rx_ring[m & (s->rx_cap - 1)];
            if (!rx || rx == SHUNT__RX_DONE || rx->matched)
                continue;
            if (!first || rx->time < first)
                first = rx->time;
            break; /* those after it came later, but for what other rails overtook */
        }
    }
    return first;
}

/*
 * A rank that is last again and again, and was not itself kept waiting (by a slow link, by a rank before it), is slow. While
 * operations are under way what has waited for long may belong to them: nothing is concluded then.
 */
void shunt__health_entered(struct shunt_comm *comm)
{
    struct shunt_context *ctx = comm->ctx;
    struct shunt__health *h = ctx->health;
    uint64_t waiting, kept = ctx->waited - h->waited, alone = 0, sum = 0;
    unsigned late = 0;

    waiting = first_waiting(comm);
    if (comm->pending && waiting && ctx->now - waiting > LATE)
        return;
    h->waited = ctx->waited;
    if (waiting && ctx->now - waiting > kept)
        alone = ctx->now - waiting - kept;
    h->late[h->n_late++ % 16] = alone;
    if (h->n_late < 16)
        return;
    for (int i = 0; i < 16; i++) {
        late += h->late[i] > LATE;
        sum += h->late[i];
    }
    if (!h->late_told && late >= 12) {
        h->late_told = 1;
        shunt__health_event(comm->ctx, SHUNT_EVENT_VERDICT, NULL, -1,
                            "slow rank: %d (others waited for it in %u of the last 16 collectives, %.0f ms on average)",
                            comm->rank, late, (double)sum / 16e6);
    } else if (h->late_told && late <= 4) {
        h->late_told = 0;
        shunt__health_event(comm->ctx, SHUNT_EVENT_VERDICT, NULL, -1, "no longer slow: rank %d", comm->rank);
    }
}
