/* SPDX-License-Identifier: BSD-3-Clause */
/* The rank that others wait for in collectives is named as slow; one that was itself kept waiting is not. */
#include <time.h>
#include "tests/core/ranks.h"

enum { RANKS = 4, ROUNDS = 28, SLOW = 2 };

static atomic_int accused[RANKS], acquitted[RANKS];

static void on_event(const shunt_event_t *e, void *arg)
{
    struct rank *r = arg;

    if (e->kind != SHUNT_EVENT_VERDICT)
        return;
    accused[r->rank] += strncmp(e->text, "slow rank: ", 11) == 0;
    acquitted[r->rank] += strncmp(e->text, "no longer slow: rank ", 21) == 0;
}

static void compute(int ms)
{
    struct timespec t = {0, ms * 1000000L};

    nanosleep(&t, NULL);
}

static void rounds(struct rank *r, int slow, int chain)
{
    float x = 1;

    for (int i = 0; i < ROUNDS; i++) {
        if (chain && r->rank == SLOW + 1)
            check_ok(r, shunt_recv(r->comm, &x, sizeof(x), SLOW, 0, NULL), "recv");
        if (r->rank == slow)
            compute(60);
        if (chain && r->rank == SLOW)
            check_ok(r, shunt_send(r->comm, &x, sizeof(x), SLOW + 1, 0), "send");
        check_ok(r, shunt_allreduce(r->comm, &x, &x, 1, SHUNT_FLOAT32, SHUNT_MAX), "allreduce");
    }
}

static void even(struct rank *r)
{
    shunt_context_on_event(r->ctx, on_event, r);
    rounds(r, -1, 0);
    shunt_context_on_event(r->ctx, NULL, NULL);
}

static void slow(struct rank *r)
{
    int over = 0;

    shunt_context_on_event(r->ctx, on_event, r);
    rounds(r, SLOW, 0);
    /* On a busy machine it may still be late now and then: some rounds more. */
    for (int i = 0; i < 1000 && !over; i++) {
        float x = (float)(r->rank == SLOW && acquitted[SLOW]);

        check_ok(r, shunt_allreduce(r->comm, &x, &x, 1, SHUNT_FLOAT32, SHUNT_MAX), "allreduce");
        over = x > 0;
    }
    shunt_context_on_event(r->ctx, NULL, NULL);
}

static void chained(struct rank *r)
{
    shunt_context_on_event(r->ctx, on_event, r);
    rounds(r, SLOW, 1);
    shunt_context_on_event(r->ctx, NULL, NULL);
}

static void forget(void)
{
    for (int i = 0; i < RANKS; i++)
        accused[i] = acquitted[i] = 0;
}

int main(void)
{
    const char *const *set = ranks_settings("loop");

    is_int(ranks_run(RANKS, set, even, NULL), 0, "collectives of ranks that come together");
    is_int(accused[0] + accused[1] + accused[2] + accused[3], 0, "nobody is slow");
    is_int(ranks_run(RANKS, set, slow, NULL), 0, "one rank comes 60 ms late");
    is_int(accused[SLOW], 1, "it is named once");
    is_int(accused[0] + accused[1] + accused[3], 0, "the others are not");
    is_int(acquitted[SLOW], 1, "and taken back once it is in time again");
    forget();
    is_int(ranks_run(RANKS, set, chained, NULL), 0, "the next waits for a message of the late one before it comes");
    is_int(accused[SLOW], 1, "the late one is named");
    is_int(accused[SLOW + 1], 0, "the one that was kept waiting is not");
    return done();
}
