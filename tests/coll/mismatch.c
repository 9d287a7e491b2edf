/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that disagree: each pair of calls below is made by one rank and by all the others, over the simulator. No rank may
 * wait for ever, buffers stay untouched afterwards, someone gets MISMATCH, and the text names both ranks and calls.
 * Then the communicator works again. Deaths in mid-collective end it on every rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/clock.h"
#include "tests/coll/sim.h"
#include "tests/tap.h"

#define MOST 17
#define BYTES (64 * 1024 * MOST)

static struct shunt__run_pool *pools[MOST];
static char *in[MOST], *out[MOST];
static int host_of[MOST];
static uint64_t number;

struct odd {
    const char *name;
    struct shunt__call all, one;
    const char *text; /* must be part of some rank's text */
    int unnoticed;    /* may also end well everywhere: when short messages were sent and nobody waits for any */
};

#define CALL(k, ...) CALL_OF(k, .type = SHUNT_INT32, __VA_ARGS__)
#define CALL_OF(k, ...) {.kind = SHUNT_COLL_##k, .width = 4, __VA_ARGS__}
static const struct odd odds[] = {
    {"short counts", CALL(ALLREDUCE, .count = 10), CALL(ALLREDUCE, .count = 11), "allreduce(11 x int32, sum)", 0},
    {"a short and a long count", CALL(ALLREDUCE, .count = 10), CALL(ALLREDUCE, .count = 9000), "9000 x int32", 0},
    {"long counts", CALL(ALLREDUCE, .count = 9000), CALL(ALLREDUCE, .count = 9001), "9001 x int32", 0},
    {"types", CALL(ALLREDUCE, .count = 100), CALL_OF(ALLREDUCE, .count = 100, .type = SHUNT_FLOAT32), "float32", 0},
    {"operators", CALL(ALLREDUCE, .count = 100), CALL(ALLREDUCE, .count = 100, .op = SHUNT_MAX), "max", 0},
    {"kinds", CALL(ALLREDUCE, .count = 100), CALL(ALLGATHER, .count = 100), "allgather(100 x int32)", 0},
    {"a barrier among allreduces", CALL(ALLREDUCE, .count = 100), CALL(BARRIER, .count = 0), "barrier", 0},
    {"allgather counts", CALL(ALLGATHER, .count = 9), CALL(ALLGATHER, .count = 5000), "5000 x int32", 0},
    {"alltoall counts", CALL(ALLTOALL, .count = 9), CALL(ALLTOALL, .count = 8), "alltoall(8 x int32)", 0},
    {"reduce_scatter counts", CALL(REDUCE_SCATTER, .count = 9), CALL(REDUCE_SCATTER, .count = 4000), "4000 x int32", 0},
    {"broadcast counts", CALL(BROADCAST, .count = 9), CALL(BROADCAST, .count = 12), "broadcast(12 x int32, root 0)", 0},
    {"roots of a reduction", CALL(REDUCE, .count = 9), CALL(REDUCE, .count = 9, .root = 1), "root 1", 1},
    {"roots of a long broadcast", CALL(BROADCAST, .count = 9000), CALL(BROADCAST, .count = 9000, .root = 1), "root 1", 1},
    {"a scatter among gathers", CALL(GATHER, .count = 9000), CALL(SCATTER, .count = 9000), "scatter", 1},
    {"gather counts", CALL(GATHER, .count = 9), CALL(GATHER, .count = 12), "gather(12 x int32, root 0)", 0},
};

/* Until nothing moves; whoever waits begins to ask. */
static void settle(struct sim *s, int n)
{
    static uint64_t now;

    sim_run(s);
    for (int i = 0; i < 8; i++) {
        now += 5 * SHUNT__S;
        for (int r = 0; r < n; r++)
            shunt__run_pool_tick(pools[r], now);
        sim_run(s);
    }
}

static int all_finished(struct sim *s, struct sim_coll *c, int n, char *what, size_t len)
{
    if (sim_races(s)) {
        snprintf(what, len, "%d races", sim_races(s));
        return 0;
    }
    for (int r = 0; r < n; r++) {
        if (c[r].finished != 1) {
            snprintf(what, len, "rank %d waits for ever", r);
            for (int k = 0; k < n; k++)
                printf("#   rank %d: finished %d %s %s\n", k, c[k].finished, shunt_status_name(c[k].status), c[k].why);
            return 0;
        }
    }
    return 1;
}

static void start(struct sim *s, struct sim_coll *c, const struct shunt__call *call, int rank, int n)
{
    *c = (struct sim_coll){.call = *call, .in = in[rank], .out = out[rank], .number = number, .pool = pools[rank]};
    c->call.rank = rank;
    c->call.size = n;
    c->call.host_of = host_of;
    c->call.hosts = 1;
    sim_start(s, c);
}

/*
 * The odd collective, and the next one: ranks to whom nothing looked wrong go on to it while others may still wait in
 * the first; those must be told then, and after they have followed the next one must end well.
 */
static int try_odd(const struct odd *o, int n, int which, int mode, char *what, size_t len)
{
    static const struct shunt__call again = CALL(ALLREDUCE, .count = 3000);
    struct sim *s = sim_new(n, (enum sim_mode)mode, (unsigned)(n * 7 + which));
    struct sim_coll c[MOST], next[MOST];
    int good, told = 0, failed = 0, started[MOST] = {0};

    number++;
    for (int r = 0; r < n; r++)
        start(s, &c[r], r == which ? &o->one : &o->all, r, n);
    settle(s, n);
    number++;
    for (int r = 0; r < n; r++)
        if ((started[r] = c[r].finished))
            start(s, &next[r], &again, r, n);
    settle(s, n);
    good = all_finished(s, c, n, what, len);
    for (int r = 0; r < n; r++)
        failed |= c[r].status != SHUNT_OK;
    told = o->unnoticed && !failed;
    for (int r = 0; r < n; r++)
        told |= c[r].status == SHUNT_ERR_MISMATCH && strstr(c[r].why, o->text) && strstr(c[r].why, "rank");
    if (good && !told) {
        snprintf(what, len, "nobody says \"%s\"; rank %d says %s: \"%s\"", o->text, which,
                 shunt_status_name(c[which].status), c[which].why);
        good = 0;
    }
    for (int r = 0; r < n && good; r++)
        if (!started[r])
            start(s, &next[r], &again, r, n);
    settle(s, n);
    good = good && all_finished(s, next, n, what, len);
    for (int r = 0; r < n && good; r++) {
        if (next[r].status != SHUNT_OK) {
            snprintf(what, len, "the next allreduce fails on rank %d: %s", r, next[r].why);
            good = 0;
        }
    }
    for (int r = 0; r < n; r++) { /* pools hold drains of this simulator */
        shunt__run_pool_close(pools[r]);
        pools[r] = shunt__run_pool_new(&sim_carrier);
    }
    sim_run(s);
    sim_free(s);
    return good;
}

static void death(void)
{
    static const struct shunt__call call = CALL(ALLREDUCE, .count = 20000);
    int bad = 0;

    for (int n = 2; n <= 9; n++) {
        struct sim *s = sim_new(n, SIM_LATE, (unsigned)n);
        struct sim_coll c[MOST];

        number++;
        for (int r = 0; r < n; r++)
            if (r != n / 2) /* never calls */
                start(s, &c[r], &call, r, n);
        sim_run(s);
        for (int r = 0; r < n; r++)
            bad += r != n / 2 && c[r].finished;
        sim_kill(s, n / 2);
        sim_run(s);
        for (int r = 0; r < n; r++)
            if (r != n / 2 && (c[r].finished != 1 || c[r].status != SHUNT_ERR_PEER || !strstr(c[r].why, "allreduce")))
                bad++;
        bad += sim_races(s);
        sim_free(s);
    }
    ok(!bad, "a rank that dies ends the collective on those who wait for it");
}

int main(void)
{
    for (int r = 0; r < MOST; r++) {
        pools[r] = shunt__run_pool_new(&sim_carrier);
        in[r] = calloc(1, BYTES);
        out[r] = calloc(1, BYTES);
    }
    for (size_t i = 0; i < sizeof(odds) / sizeof(odds[0]); i++) {
        char what[600] = "";
        int good = 1;

        for (int n = 2; n <= MOST && good; n += n < 6 ? 1 : 5) {
            for (int which = 0; which < n && good; which += n < 6 ? 1 : 3) {
                for (int mode = SIM_EAGER; mode <= SIM_LATE && good; mode++) {
                    good = try_odd(&odds[i], n, which, mode, what, sizeof(what));
                    if (!good)
                        printf("# %d ranks, rank %d differs, mode %d: %s\n", n, which, mode, what);
                }
            }
        }
        ok(good, "%s", odds[i].name);
    }
    death();
    for (int r = 0; r < MOST; r++) {
        shunt__run_pool_close(pools[r]);
        free(in[r]);
        free(out[r]);
    }
    return done();
}
