/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measuring. Each rail gets a context and a communicator of its own, which has no other rail, so that nothing can be
 * moved elsewhere. Pairs meet as in a round-robin tournament: n - 1 rounds of n / 2 pairs that share no rank. "Alone" takes
 * the pairs of a round one after the other, "together" at once.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <shunt/coll.h>
#include <shunt/p2p.h>
#include <shunt/topo.h>
#include "tools/links/links.h"

#define FLIGHT 8

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct rail {
    shunt_context_t *ctx;
    shunt_comm_t *comm; /* NULL: this rail can't be measured */
};

/* What this rank calls its rails: the NICs that Shunt would use, then shared memory. */
static int own_rails(char names[LINKS_RAILS][LINKS_NAME], double promised[LINKS_RAILS])
{
    shunt_topo_rails_options_t options;
    shunt_topo_rails_t *rails = NULL;
    shunt_topo_t *topo = NULL;
    int n = 0;

    if (shunt_topo_load_live(1, &topo) != SHUNT_OK)
        return 0;
    shunt_topo_rails_options_init(&options);
    options.no_rdma = 1;
    if (shunt_topo_rails(topo, &options, &rails) == SHUNT_OK)
        for (unsigned i = 0; i < rails->n_used && n < LINKS_RAILS - 1; i++, n++) {
            snprintf(names[n], LINKS_NAME, "%.47s", rails->rail[i].name);
            promised[n] = rails->rail[i].nic && rails->rail[i].nic->rate_known ? (double)rails->rail[i].nic->rate / 8 : 0;
        }
    shunt_topo_rails_destroy(rails);
    shunt_topo_destroy(topo);
    return n;
}

/* All ranks make a communicator over one rail alone, or all of them don't. */
static shunt_status_t open_rail(shunt_comm_t *comm, const char *name, int shared, struct rail *r)
{
    char rails[LINKS_NAME + 16];
    const char *over_nic[] = {"SHUNT_SHM=0", rails, NULL}, *over_memory[] = {"SHUNT_BACKEND=shm", NULL};
    shunt_context_params_t p = {sizeof(p), shared ? over_memory : over_nic, "links"};
    struct {
        shunt_id_t id;
        char good;
    } say;
    unsigned char good = 0, all = 0;
    shunt_status_t st;

    snprintf(rails, sizeof(rails), "SHUNT_RAILS=%s", name);
    *r = (struct rail){0};
    memset(&say, 0, sizeof(say));
    good = shunt_context_create(&p, &r->ctx) == SHUNT_OK;
    st = shunt_allreduce(comm, &good, &all, 1, SHUNT_UINT8, SHUNT_MIN);
    if (st != SHUNT_OK || !all)
        goto none;
    /* The meeting itself may take any way: only messages are measured. */
    if (shunt_comm_rank(comm) == 0)
        say.good = shunt_id_create(shunt_comm_context(comm), &say.id) == SHUNT_OK;
    st = shunt_broadcast(comm, &say, &say, sizeof(say), SHUNT_UINT8, 0);
    if (st != SHUNT_OK || !say.good)
        goto none;
    good = shunt_comm_create(r->ctx, &say.id, shunt_comm_rank(comm), shunt_comm_size(comm), &r->comm) == SHUNT_OK;
    st = shunt_allreduce(comm, &good, &all, 1, SHUNT_UINT8, SHUNT_MIN);
    if (st == SHUNT_OK && all)
        return SHUNT_OK;
none:
    shunt_comm_free(r->comm);
    shunt_context_destroy(r->ctx);
    *r = (struct rail){0};
    return st;
}

static shunt_status_t latency(shunt_comm_t *comm, int other, int first, double limit, double *out)
{
    double best = 1e9, until = now() + limit;
    shunt_status_t st = SHUNT_OK;
    char go = 1;

    for (int i = 0; st == SHUNT_OK && go; i++) {
        char x = 0;
        double start = now();
        if (first) {
            go = i < 5 || (i < 200 && start < until);
            st = shunt_send(comm, &go, 1, other, 1);
            if (st == SHUNT_OK)
                st = shunt_recv(comm, &x, 1, other, 2, NULL);
        } else {
            st = shunt_recv(comm, &go, 1, other, 1, NULL);
            if (st == SHUNT_OK)
                st = shunt_send(comm, &x, 1, other, 2);
        }
        if (i > 1 && now() - start < best)
            best = now() - start;
    }
    *out = best / 2;
    return st;
}

/* One direction: FLIGHT messages under way for `limit` seconds; both sides return, the receiver has the rate. */
static shunt_status_t bandwidth(shunt_comm_t *comm, int other, int sends, size_t bytes, char *buf, double limit, double *rate)
{
    shunt_request_t *req[FLIGHT] = {NULL};
    shunt_status_t st = SHUNT_OK;
    double first = 0, start = 0, before = 0, last = 0, got = 0, until = now() + limit;
    int over = 0, ended = 0;

    for (int i = 0; st == SHUNT_OK && ended < FLIGHT; i++) {
        int k = i % FLIGHT;
        shunt_result_t res = {0};
        if (i >= FLIGHT)
            st = shunt_wait(&req[k], &res);
        if (st != SHUNT_OK)
            break;
        if (sends) { /* the last FLIGHT messages have no bytes: they say that it is over */
            over |= i >= FLIGHT && now() > until;
            ended += over;
            st = shunt_isend(comm, buf, over ? 0 : bytes, other, 3, &req[k]);
            continue;
        }
        if (i >= FLIGHT && res.bytes > 0) {
            last = now();
            if (first == 0) /* the first message only starts the clock */
                first = last;
            else
                got += (double)bytes;
            if (start == 0 && last - first > limit / 3) { /* what buffers and shapers swallow at once says nothing */
                start = last;
                before = got;
            }
        }
        ended += i >= FLIGHT && res.bytes == 0;
        if (ended == 0)
            st = shunt_irecv(comm, buf + (size_t)k * bytes, bytes, other, 3, &req[k]);
    }
    shunt_status_t all = shunt_wait_all(req, FLIGHT, NULL);
    if (start > 0 && got > before)
        *rate = (got - before) / (last - start);
    else
        *rate = last > first ? got / (last - first) : 0;
    return st == SHUNT_OK ? all : st;
}

/* Whom `rank` meets in a round: the circle method; -1 in a bye. n is even or rounded up. */
static int partner(int rank, int round, int n)
{
    int m = n + n % 2, other;

    if (rank == m - 1)
        other = round;
    else if (rank == round)
        other = m - 1;
    else
        other = ((2 * round - rank) % (m - 1) + (m - 1)) % (m - 1);
    return other < n && other != rank ? other : -1;
}

struct job {
    const struct options *o;
    struct table *t;
    struct rail *rail;
    int me, n, done, total;
    double slice;
    char *buf;
};

static void progress(struct job *j, const char *what)
{
    if (j->me == 0 && !j->o->quiet && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%3d %%  %-40s", 100 * j->done / j->total, what);
    j->done++;
}

/* Both directions with one partner; the receiver's figures go into the receiver's column of its own copy. */
static void with(struct job *j, int r, int other, int together)
{
    struct cell *in = at(j->t, r, other, j->me), *out = at(j->t, r, j->me, other);
    double rate, *place = together ? &in->together : &in->alone;
    shunt_comm_t *c = j->rail[r].comm;
    int first = j->me < other;

    if (in->failed)
        return;
    shunt_status_t st = together ? SHUNT_OK : latency(c, other, first, j->slice / 4, &in->latency);
    if (!together)
        out->latency = in->latency;
    for (int dir = 0; st == SHUNT_OK && dir < 2; dir++) {
        int sends = first == (dir == 0);
        st = bandwidth(c, other, sends, j->o->bytes, j->buf, j->slice / 2, &rate);
        if (!sends)
            *place = rate;
    }
    if (st != SHUNT_OK)
        in->failed = out->failed = 1;
}

static shunt_status_t measure_rail(struct job *j, shunt_comm_t *comm, int r)
{
    int m = j->n + j->n % 2, shared = strcmp(j->t->rail[r], "shm") == 0;
    shunt_status_t st = SHUNT_OK;

    for (int together = 0; together <= !j->o->alone_only; together++) {
        for (int round = 0; round < m - 1; round++) {
            for (int turn = 0; turn < (together ? 1 : m / 2); turn++) {
                /* of a round's pairs the turn-th: those whose lower rank is the turn-th lowest */
                int other = partner(j->me, round, j->n), index = 0;
                int low = other < 0 ? -1 : other < j->me ? other : j->me;
                for (int q = 0; q < low; q++)
                    index += partner(q, round, j->n) > q;
                char what[80];
                snprintf(what, sizeof(what), "%s, round %d of %d%s", j->t->rail[r], round + 1, m - 1,
                         together ? ", all at once" : "");
                progress(j, what);
                st = shunt_barrier(comm);
                if (st != SHUNT_OK)
                    return st;
                if (other >= 0 && (together || index == turn) &&
                    (!shared || j->t->host_of[other] == j->t->host_of[j->me]))
                    with(j, r, other, together);
            }
        }
    }
    return st;
}

/* Every rank has measured what came to it; put the columns together. Zero means not measured, so a maximum does it. */
static shunt_status_t share(shunt_comm_t *comm, struct table *t)
{
    size_t n = (size_t)t->rails * (size_t)t->ranks * (size_t)t->ranks;
    double *flat = calloc(4 * n, sizeof(*flat));
    shunt_status_t st;

    if (!flat)
        return SHUNT_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        flat[4 * i] = t->cell[i].latency;
        flat[4 * i + 1] = t->cell[i].alone;
        flat[4 * i + 2] = t->cell[i].together;
        flat[4 * i + 3] = t->cell[i].failed;
    }
    st = shunt_allreduce(comm, flat, flat, 4 * n, SHUNT_FLOAT64, SHUNT_MAX);
    for (size_t i = 0; st == SHUNT_OK && i < n; i++)
        t->cell[i] = (struct cell){flat[4 * i], flat[4 * i + 1], flat[4 * i + 2], flat[4 * i + 3] > 0};
    free(flat);
    return st;
}

static shunt_status_t prepare(shunt_comm_t *comm, struct table *t)
{
    char names[LINKS_RAILS][LINKS_NAME] = {""}, mine[LINKS_NAME] = "?", (*all)[LINKS_NAME];
    int32_t fewest, own;
    shunt_status_t st;

    t->ranks = shunt_comm_size(comm);
    t->hosts = shunt_comm_hosts(comm);
    own = own_rails(names, t->promised);
    st = shunt_allreduce(comm, &own, &fewest, 1, SHUNT_INT32, SHUNT_MIN);
    if (st != SHUNT_OK)
        return st;
    t->rails = fewest;
    for (int i = 0; i < t->rails; i++)
        memcpy(t->rail[i], names[i], LINKS_NAME);
    snprintf(t->rail[t->rails++], LINKS_NAME, "shm");
    t->host_of = calloc((size_t)t->ranks, sizeof(*t->host_of));
    t->host = calloc((size_t)t->hosts, sizeof(*t->host));
    t->cell = calloc((size_t)t->rails * (size_t)t->ranks * (size_t)t->ranks, sizeof(*t->cell));
    all = calloc((size_t)t->ranks, sizeof(*all));
    if (!t->host_of || !t->host || !t->cell || !all) {
        free(all);
        return SHUNT_ERR_NO_MEMORY;
    }
    gethostname(mine, sizeof(mine) - 1);
    st = shunt_allgather(comm, mine, all, LINKS_NAME, SHUNT_UINT8);
    for (int r = t->ranks - 1; st == SHUNT_OK && r >= 0; r--) {
        t->host_of[r] = shunt_comm_host_of(comm, r);
        memcpy(t->host[t->host_of[r]], all[r], LINKS_NAME);
    }
    free(all);
    if (st == SHUNT_OK)
        st = shunt_allreduce(comm, t->promised, t->promised, LINKS_RAILS, SHUNT_FLOAT64, SHUNT_MIN);
    return st;
}

shunt_status_t measure(shunt_comm_t *comm, shunt_context_t *ctx, const struct options *o, struct table *t)
{
    struct rail rail[LINKS_RAILS] = {{0}};
    struct job j = {.o = o, .t = t, .rail = rail, .me = shunt_comm_rank(comm), .n = shunt_comm_size(comm)};
    shunt_status_t st = prepare(comm, t);
    int m = j.n + j.n % 2, steps = (m - 1) * (m / 2 + !o->alone_only);

    if (st != SHUNT_OK)
        return st;
    j.total = steps > 0 ? steps * t->rails : 1;
    j.slice = o->time * 0.8 / j.total; /* the rest is for start-up and what comes between */
    j.buf = calloc(FLIGHT, o->bytes);
    if (!j.buf)
        return SHUNT_ERR_NO_MEMORY;
    for (int r = 0; st == SHUNT_OK && r < t->rails; r++) {
        st = open_rail(comm, t->rail[r], strcmp(t->rail[r], "shm") == 0, &rail[r]);
        if (st == SHUNT_OK && rail[r].comm)
            st = measure_rail(&j, comm, r);
        shunt_comm_free(rail[r].comm);
        shunt_context_destroy(rail[r].ctx);
    }
    if (j.me == 0 && !o->quiet && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%60s\r", "");
    free(j.buf);
    return st == SHUNT_OK ? share(comm, t) : st;
}

void table_free(struct table *t)
{
    free(t->host_of);
    free(t->host);
    free(t->cell);
}
