/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tools/perf/perf.h"

/* Messages of `bandwidth` that are under way at once. */
#define IN_FLIGHT 8

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Buffers of one size: send and recv as the operation takes them, and the expected contents of recv. */
struct buffers {
    char *send, *recv, *memory[2], *want;
    size_t in, out; /* elements */
};

static int is_root(const struct job *j)
{
    return j->rank == j->o.root;
}

/* Elements of recv that this rank is given. */
static size_t out_elements(const struct job *j, const struct kind *k, size_t count)
{
    size_t n = k->recv_all ? count * (size_t)j->size : count;

    if ((k->coll == SHUNT_COLL_REDUCE || k->coll == SHUNT_COLL_GATHER) && !is_root(j))
        return 0;
    if (k->coll == SHUNT_COLL_BARRIER)
        return 0;
    return n;
}

static void expect(const struct job *j, const struct kind *k, size_t count, struct buffers *b)
{
    const struct options *o = &j->o;
    size_t w = shunt_type_size(o->type), mine = (size_t)j->rank * count;

    switch (k->coll) {
    case SHUNT_COLL_ALLREDUCE:
    case SHUNT_COLL_REDUCE:
        values_reduced(b->want, o, j->size, 0, b->out);
        break;
    case SHUNT_COLL_REDUCE_SCATTER:
        values_reduced(b->want, o, j->size, mine, b->out);
        break;
    case SHUNT_COLL_BROADCAST:
        values_fill(b->want, o, o->root, j->size, 0, b->out);
        break;
    case SHUNT_COLL_SCATTER:
        values_fill(b->want, o, o->root, j->size, mine, b->out);
        break;
    case SHUNT_COLL_ALLGATHER:
    case SHUNT_COLL_GATHER:
        for (int r = 0; r < j->size && b->out; r++)
            values_fill(b->want + (size_t)r * count * w, o, r, j->size, 0, count);
        break;
    case SHUNT_COLL_ALLTOALL:
        for (int r = 0; r < j->size; r++)
            values_fill(b->want + (size_t)r * count * w, o, r, j->size, mine, count);
        break;
    default:
        values_fill(b->want, o, (j->rank + j->size - 1) % j->size, j->size, 0, b->out);
        break;
    }
}

static int prepare(const struct job *j, const struct kind *k, size_t count, int in_place, struct buffers *b)
{
    size_t w = shunt_type_size(j->o.type), all = count * (size_t)j->size, most;

    b->in = k->send_all ? all : count;
    b->out = out_elements(j, k, count);
    most = (k->send_all || k->recv_all ? all : count) * w + 64;
    for (int i = 0; i < 2; i++)
        if (posix_memalign((void **)&b->memory[i], 4096, most))
            return 0;
    b->want = j->o.check ? malloc(b->out * w + 1) : NULL;
    if (j->o.check && !b->want)
        return 0;
    memset(b->memory[0], 0, most);
    memset(b->memory[1], 0, most);
    b->send = b->memory[0];
    b->recv = b->memory[1];
    if (in_place) {
        b->recv = b->send;
        if (k->recv_all && !k->send_all)
            b->send += (size_t)j->rank * count * w;
        else if (k->send_all && !k->recv_all)
            b->recv += (size_t)j->rank * count * w;
    }
    if (j->o.check)
        expect(j, k, count, b);
    return 1;
}

static shunt_status_t ping_pong(const struct job *j, char *buf, size_t bytes, int iters)
{
    shunt_status_t st = SHUNT_OK;

    for (int i = 0; i < iters && j->rank < 2 && st == SHUNT_OK; i++) {
        st = j->rank ? shunt_recv(j->comm, buf, bytes, 0, 0, NULL) : shunt_send(j->comm, buf, bytes, 1, 0);
        if (st == SHUNT_OK)
            st = j->rank ? shunt_send(j->comm, buf, bytes, 0, 0) : shunt_recv(j->comm, buf, bytes, 1, 0, NULL);
    }
    return st;
}

/* Rank 0 to rank 1; ends when rank 1 has said that it has everything. */
static shunt_status_t stream(const struct job *j, const char *send, char *recv, size_t bytes, int iters)
{
    shunt_request_t *reqs[IN_FLIGHT] = {NULL};
    shunt_status_t st = SHUNT_OK, last;

    if (j->rank > 1)
        return SHUNT_OK;
    for (int i = 0; i < iters && st == SHUNT_OK; i++) {
        shunt_request_t **req = &reqs[i % IN_FLIGHT];

        st = shunt_wait(req, NULL);
        if (st == SHUNT_OK)
            st = j->rank ? shunt_irecv(j->comm, recv, bytes, 0, 0, req) : shunt_isend(j->comm, send, bytes, 1, 0, req);
    }
    last = shunt_wait_all(reqs, IN_FLIGHT, NULL);
    if (st == SHUNT_OK)
        st = last;
    if (st == SHUNT_OK)
        st = j->rank ? shunt_send(j->comm, NULL, 0, 0, 1) : shunt_recv(j->comm, NULL, 0, 1, 1, NULL);
    return st;
}

/* Time per operation on this rank; the fastest single one where they are told apart. */
static shunt_status_t repeat(const struct job *j, const struct kind *k, struct buffers *b, size_t count, int iters,
                             double *time_us, double *fastest_us)
{
    size_t bytes = count * shunt_type_size(j->o.type);
    double start = now_us(), last = start, t;
    shunt_status_t st = SHUNT_OK;

    *fastest_us = 1e300;
    if (strcmp(k->name, "latency") == 0) {
        st = ping_pong(j, b->send, bytes, iters);
        *time_us = *fastest_us = (now_us() - start) / iters / 2;
        return st;
    }
    if (strcmp(k->name, "bandwidth") == 0) {
        st = stream(j, b->send, b->recv, bytes, iters);
        *time_us = *fastest_us = (now_us() - start) / iters;
        return st;
    }
    for (int i = 0; i < iters && st == SHUNT_OK; i++) {
        st = k->run(j, b->send, b->recv, count);
        t = now_us();
        *fastest_us = t - last < *fastest_us ? t - last : *fastest_us;
        last = t;
    }
    *time_us = (last - start) / iters;
    return st;
}

static shunt_status_t check(const struct job *j, const struct kind *k, struct buffers *b, size_t count,
                            struct reading *r)
{
    size_t w = shunt_type_size(j->o.type);
    uint64_t wrong = 0;
    shunt_status_t st;

    values_fill(b->send, &j->o, j->rank, j->size, 0, b->in);
    if (b->recv != b->send && b->out && !(b->recv > b->send && b->recv < b->send + b->in * w) &&
        !(b->send > b->recv && b->send < b->recv + b->out * w))
        memset(b->recv, 0, b->out * w);
    if (k->run) {
        st = k->run(j, b->send, b->recv, count);
    } else {
        st = stream(j, b->send, b->recv, count * w, 1);
        if (j->rank != 1) {
            memcpy(b->recv, b->want, b->out * w);
        }
    }
    if (st != SHUNT_OK)
        return st;
    wrong = values_differ(b->recv, b->want, &j->o, j->size, k->reduces, b->out);
    return shunt_allreduce(j->comm, &wrong, &r->wrong, 1, SHUNT_UINT64, SHUNT_SUM);
}

shunt_status_t measure(const struct job *j, const struct kind *k, size_t count, int in_place, struct reading *r)
{
    size_t w = shunt_type_size(j->o.type);
    double times[2], all[2];
    struct buffers b = {0};
    shunt_status_t st = SHUNT_ERR_NO_MEMORY;

    *r = (struct reading){.count = count, .iters = j->o.iters};
    r->size = (k->send_all || k->recv_all ? count * (size_t)j->size : count) * w;
    if (!prepare(j, k, count, in_place, &b)) {
        fprintf(stderr, "shunt-perf: rank %d: no memory for buffers of %zu bytes\n", j->rank, r->size);
        exit(1);
    }
    st = repeat(j, k, &b, count, j->o.warmup, &times[0], &times[1]);
    if (st == SHUNT_OK)
        st = shunt_barrier(j->comm);
    if (st == SHUNT_OK)
        st = repeat(j, k, &b, count, j->o.iters, &times[0], &times[1]);
    if (st == SHUNT_OK && !k->run && j->rank != 0)
        times[0] = times[1] = 0; /* rank 0's clock counts */
    if (st == SHUNT_OK)
        st = shunt_allreduce(j->comm, times, all, 2, SHUNT_FLOAT64, k->run ? SHUNT_AVG : SHUNT_SUM);
    r->time_us = all[0];
    r->fastest_us = all[1];
    if (st == SHUNT_OK && j->o.check)
        st = check(j, k, &b, count, r);
    if (st == SHUNT_OK && r->time_us > 0) {
        r->algbw = (double)r->size / r->time_us / 1e3;
        r->busbw = r->algbw * k->bus(j->size);
    }
    free(b.memory[0]);
    free(b.memory[1]);
    free(b.want);
    return st;
}
