/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective over real communicators: ranks as threads, over the rails that argv[1] names (loop).
 * Types x operators x in place x counts x 1 to 8 ranks, several at once, several communicators, the same bits again.
 */
#include <stdio.h>
#include "comm/reduce/reduce.h"
#include "tests/core/ranks.h"

#define MOST_SMALL 17
#define WIDTH 8

/* The small integers 0 .. 16 as elements of every type. */
static unsigned char small[SHUNT_N_TYPES][MOST_SMALL][WIDTH];

static void make_small(void)
{
    for (int t = 0; t < SHUNT_N_TYPES; t++) {
        unsigned char one[WIDTH] = {1};

        shunt__reduce_avg_scalar((shunt_type_t)t, 1, one);
        for (int i = 1; i < MOST_SMALL; i++) {
            memcpy(small[t][i], small[t][i - 1], WIDTH);
            shunt__reduce(SHUNT_SUM, (shunt_type_t)t, small[t][i], one, 1);
        }
    }
}

/* 1 or 2, so that sums over 8 ranks and products of 4 stay exact in every type. */
static int number(int rank, size_t i)
{
    return 1 + (int)((i * 7 + (size_t)rank * 3 + i / 5) % 2);
}

static void put(unsigned char *buf, shunt_type_t type, size_t i, int v)
{
    size_t w = shunt_type_size(type);

    memcpy(buf + i * w, small[type][v], w);
}

static int is(const unsigned char *buf, shunt_type_t type, size_t i, int v)
{
    size_t w = shunt_type_size(type);

    return memcmp(buf + i * w, small[type][v], w) == 0;
}

static int is_integer(shunt_type_t t)
{
    unsigned char scalar[WIDTH];

    return !shunt__reduce_avg_scalar(t, 2, scalar);
}

/* What `op` makes of the ranks' numbers at i, or -1 where the type can't hold it exactly. */
static int combined(shunt_op_t op, int size, size_t i, shunt_type_t type)
{
    int integer = is_integer(type), exact = type == SHUNT_FLOAT8E5M2 ? 8 : 16;
    int sum = 0, product = 1, most = 0, least = 9;

    for (int r = 0; r < size; r++) {
        int v = number(r, i);

        sum += v;
        product = product * v;
        most = v > most ? v : most;
        least = v < least ? v : least;
    }
    switch (op) {
    case SHUNT_SUM:
        return sum <= exact ? sum : -1;
    case SHUNT_PROD:
        return product <= exact ? product : -1;
    case SHUNT_MAX:
        return most;
    case SHUNT_MIN:
        return least;
    default:
        if (integer)
            return sum / size;
        return (size & (size - 1)) == 0 && sum % size == 0 && sum <= exact ? sum / size : -1;
    }
}

static void reductions(struct rank *r, shunt_type_t t, shunt_op_t op, size_t count, int in_place)
{
    size_t w = shunt_type_size(t), n = (size_t)r->size, me = (size_t)r->rank;
    unsigned char *a = malloc(n * count * w + 1), *b = malloc(n * count * w + 1), *out = in_place ? a : b;
    int want, root = (int)(count % n);
    char what[100];

    snprintf(what, sizeof(what), "%s %s x %zu, %d ranks, in place %d", shunt_type_name(t), shunt_op_name(op), count, r->size,
             in_place);
    for (size_t i = 0; i < count; i++)
        put(a, t, i, number(r->rank, i));
    check_ok(r, shunt_allreduce(r->comm, a, out, count, t, op), what);
    for (size_t i = 0; i < count; i++)
        if ((want = combined(op, r->size, i, t)) >= 0)
            check(r, is(out, t, i, want), "allreduce %s: element %zu", what, i);
    for (size_t i = 0; i < count; i++)
        put(a, t, i, number(r->rank, i));
    check_ok(r, shunt_reduce(r->comm, a, r->rank == root ? out : NULL, count, t, op, root), what);
    for (size_t i = 0; i < count && r->rank == root; i++)
        if ((want = combined(op, r->size, i, t)) >= 0)
            check(r, is(out, t, i, want), "reduce %s: element %zu", what, i);
    for (size_t i = 0; i < n * count; i++)
        put(a, t, i, number(r->rank, i));
    out = in_place ? a + me * count * w : b;
    check_ok(r, shunt_reduce_scatter(r->comm, a, out, count, t, op), what);
    for (size_t i = 0; i < count; i++)
        if ((want = combined(op, r->size, me * count + i, t)) >= 0)
            check(r, is(out, t, i, want), "reduce_scatter %s: element %zu", what, i);
    free(a);
    free(b);
}

static void movements(struct rank *r, size_t bytes, int in_place)
{
    size_t n = (size_t)r->size, me = (size_t)r->rank;
    unsigned char *a = malloc(n * bytes + 1), *b = malloc(n * bytes + 1), *in = a, *out = b;
    int root = r->size - 1;
    const shunt_type_t t = SHUNT_UINT8;

    if (in_place)
        out = a, in = a + me * bytes;
    fill(in, bytes, (unsigned)me);
    check_ok(r, shunt_allgather(r->comm, in, out, bytes, t), "allgather");
    for (size_t k = 0; k < n; k++)
        check(r, same(out + k * bytes, bytes, (unsigned)k), "allgather of %zu, block %zu", bytes, k);
    fill(in, bytes, (unsigned)me + 50);
    check_ok(r, shunt_gather(r->comm, in, r->rank == root ? out : NULL, bytes, t, root), "gather");
    for (size_t k = 0; k < n && r->rank == root; k++)
        check(r, same(out + k * bytes, bytes, (unsigned)k + 50), "gather of %zu, block %zu", bytes, k);
    for (size_t k = 0; k < n; k++)
        fill(a + k * bytes, bytes, (unsigned)k + 100);
    out = in_place && r->rank == root ? a + me * bytes : b;
    check_ok(r, shunt_scatter(r->comm, r->rank == root ? a : NULL, out, bytes, t, root), "scatter");
    check(r, same(out, bytes, (unsigned)me + 100), "scatter of %zu", bytes);
    out = in_place ? a : b;
    fill(a, bytes, (unsigned)me + 150);
    check_ok(r, shunt_broadcast(r->comm, a, out, bytes, t, root), "broadcast");
    check(r, same(out, bytes, (unsigned)root + 150), "broadcast of %zu", bytes);
    for (size_t k = 0; k < n; k++)
        fill(a + k * bytes, bytes, (unsigned)(me * 16 + k));
    check_ok(r, shunt_alltoall(r->comm, a, out, bytes, t), "alltoall");
    for (size_t k = 0; k < n; k++)
        check(r, same(out + k * bytes, bytes, (unsigned)(k * 16 + me)), "alltoall of %zu, block %zu", bytes, k);
    free(a);
    free(b);
}

/* From rank s to rank d go (s + 2 d) % 5 * unit bytes: some nothing. */
static void alltoallv(struct rank *r, size_t unit)
{
    size_t n = (size_t)r->size, me = (size_t)r->rank, sc[8] = {0}, sd[8] = {0}, rc[8] = {0}, rd[8] = {0}, in = 3, out = 5;
    unsigned char *a, *b;

    for (size_t k = 0; k < n; k++) {
        sc[k] = (me + 2 * k) % 5 * unit;
        rc[k] = (k + 2 * me) % 5 * unit;
        sd[k] = in;
        rd[k] = out;
        in += sc[k] + 2;
        out += rc[k] + 1;
    }
    a = calloc(1, in);
    b = calloc(1, out);
    for (size_t k = 0; k < n; k++)
        fill(a + sd[k], sc[k], (unsigned)(me * 16 + k));
    check_ok(r, shunt_alltoallv(r->comm, a, sc, sd, b, rc, rd, SHUNT_INT8), "alltoallv");
    for (size_t k = 0; k < n; k++)
        check(r, same(b + rd[k], rc[k], (unsigned)(k * 16 + me)), "alltoallv of %zu from %zu", rc[k], k);
    free(a);
    free(b);
}

static void small_body(struct rank *r)
{
    static const size_t counts[] = {0, 1, 5, 130};

    for (int t = 0; t < SHUNT_N_TYPES; t++)
        for (int op = 0; op < SHUNT_N_OPS; op++)
            for (size_t c = 0; c < 4; c++)
                reductions(r, (shunt_type_t)t, (shunt_op_t)op, counts[c], (t + op + (int)c) % 2);
    for (size_t c = 0; c < 4; c++)
        for (int in_place = 0; in_place < 2; in_place++)
            movements(r, counts[c], in_place);
    alltoallv(r, 3);
    check_ok(r, shunt_barrier(r->comm), "barrier");
}

static void large_body(struct rank *r)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        reductions(r, SHUNT_FLOAT32, SHUNT_SUM, 100003, in_place);
        reductions(r, SHUNT_BFLOAT16, SHUNT_AVG, 70001, in_place);
        reductions(r, SHUNT_INT32, SHUNT_AVG, 9001, in_place);
        movements(r, 300007, in_place);
    }
    alltoallv(r, 100001);
}

static void premul_body(struct rank *r)
{
    float scalar = (float)(r->rank + 1), a[100], b[100], sum = 0;
    shunt_op_t op, other;
    double d = 1;

    for (int i = 0; i < r->size; i++)
        sum += (float)(i + 1) * 2.0f;
    for (int i = 0; i < 100; i++)
        a[i] = 2.0f;
    if (r->rank % 2) /* operators need not have the same number on every rank */
        check_ok(r, shunt_op_create_premul_sum(r->comm, &d, SHUNT_FLOAT64, &other), "create");
    check_ok(r, shunt_op_create_premul_sum(r->comm, &scalar, SHUNT_FLOAT32, &op), "create");
    check_ok(r, shunt_allreduce(r->comm, a, b, 100, SHUNT_FLOAT32, op), "allreduce");
    check(r, b[0] == sum && b[99] == sum, "premul sum: %g, expected %g", (double)b[0], (double)sum);
    check(r, shunt_allreduce(r->comm, a, b, 100, SHUNT_FLOAT64, op) == SHUNT_ERR_INVALID, "another type is refused");
    check_ok(r, shunt_op_destroy(r->comm, op), "destroy");
    check(r, shunt_op_destroy(r->comm, op) == SHUNT_ERR_INVALID, "destroyed twice");
    check(r, shunt_allreduce(r->comm, a, b, 100, SHUNT_FLOAT32, op) == SHUNT_ERR_INVALID, "a destroyed one is refused");
}

/* Twenty at once on two communicators, waited for backwards. */
static void overlap_body(struct rank *r)
{
    enum { N = 20, COUNT = 20000 };
    shunt_request_t *req[N];
    shunt_comm_t *other = NULL;
    int32_t *buf[N];

    check_ok(r, shunt_comm_split(r->comm, 0, -r->rank, &other), "split");
    for (int k = 0; k < N; k++) {
        buf[k] = malloc(COUNT * sizeof(int32_t));
        for (int i = 0; i < COUNT; i++)
            buf[k][i] = i + k + r->rank;
        if (k % 3 == 2)
            check_ok(r, shunt_ibroadcast(k % 2 ? r->comm : other, buf[k], buf[k], COUNT, SHUNT_INT32, 0, &req[k]), "start");
        else
            check_ok(r, shunt_iallreduce(k % 2 ? r->comm : other, buf[k], buf[k], k % 5 ? COUNT : 10, SHUNT_INT32,
                                         SHUNT_SUM, &req[k]), "start");
    }
    for (int k = N - 1; k >= 0; k--) {
        int n = r->size, i = k % 5 ? COUNT - 1 : 9, want = n * (i + k) + n * (n - 1) / 2;

        if (k % 3 == 2)
            want = i + k + (k % 2 ? 0 : n - 1); /* the other one's ranks are in the opposite order */
        check_ok(r, shunt_wait(&req[k], NULL), "wait");
        check(r, buf[k][i] == want, "collective %d: %d, expected %d", k, buf[k][i], want);
        free(buf[k]);
    }
    shunt_comm_free(other);
}

static void bits_body(struct rank *r)
{
    enum { COUNT = 50001 };
    float *a = malloc(COUNT * sizeof(float)), *b = malloc(COUNT * sizeof(float));
    uint64_t *digest = r->arg, sum = 0, sums[8];

    for (size_t count = 100; count <= COUNT; count += COUNT - 100) {
        for (size_t i = 0; i < count; i++)
            a[i] = 1.0f / (float)(1 + (i * 37 + (size_t)r->rank * 101) % 1009);
        check_ok(r, shunt_allreduce(r->comm, a, b, count, SHUNT_FLOAT32, SHUNT_SUM), "allreduce");
        for (size_t i = 0; i < count; i++)
            sum = sum * 1099511628211u + ((uint32_t *)b)[i];
    }
    check_ok(r, shunt_allgather(r->comm, &sum, sums, 1, SHUNT_UINT64), "allgather");
    for (int k = 0; k < r->size; k++)
        check(r, sums[k] == sum, "rank %d has other bits than rank %d", k, r->rank);
    if (r->rank == 0) {
        check(r, *digest == 0 || *digest == sum, "another run gave other bits");
        *digest = sum;
    }
    free(a);
    free(b);
}

/* Ranks that disagree are told, and go on together afterwards; each short, long, and on a wrong argument. */
static void mismatch_body(struct rank *r)
{
    static const size_t counts[] = {10, 200000};
    float *a = calloc(200001, sizeof(float)), *b = calloc(200001, sizeof(float));
    int named;

    for (int k = 0; k < 2; k++) {
        size_t count = counts[k] + (r->rank == 1);
        shunt_status_t st = shunt_allreduce(r->comm, a, b, count, SHUNT_FLOAT32, SHUNT_SUM);

        named = strstr(shunt_error_text(), "rank 1") != NULL && strstr(shunt_error_text(), k ? "200001" : "11") != NULL;
        check(r, st == SHUNT_ERR_MISMATCH && (named || r->size > 2), "%s: %s", shunt_status_name(st), shunt_error_text());
        check_ok(r, shunt_allreduce(r->comm, a, b, counts[k], SHUNT_FLOAT32, SHUNT_SUM), "afterwards");
        st = r->rank ? shunt_allgather(r->comm, a, b, 1, SHUNT_INT8)
                     : shunt_allreduce(r->comm, a, b, 4, SHUNT_INT8, SHUNT_MAX);
        check(r, st == SHUNT_ERR_MISMATCH, "kinds: %s", shunt_status_name(st));
        check_ok(r, shunt_barrier(r->comm), "barrier");
    }
    check(r, shunt_allreduce(r->comm, a, b, 10, (shunt_type_t)99, SHUNT_SUM) == SHUNT_ERR_INVALID, "type");
    check(r, shunt_allreduce(r->comm, a, b, 10, SHUNT_INT8, (shunt_op_t)77) == SHUNT_ERR_INVALID, "operator");
    check(r, shunt_allreduce(r->comm, a, b, 10, SHUNT_INT8, (shunt_op_t)-1) == SHUNT_ERR_INVALID, "operator");
    check(r, shunt_allreduce(NULL, a, b, 10, SHUNT_INT8, SHUNT_SUM) == SHUNT_ERR_INVALID, "communicator");
    check(r, shunt_allreduce(r->comm, NULL, b, 10, SHUNT_INT8, SHUNT_SUM) == SHUNT_ERR_INVALID, "send");
    check(r, shunt_allreduce(r->comm, a, NULL, 10, SHUNT_INT8, SHUNT_SUM) == SHUNT_ERR_INVALID, "recv");
    check(r, shunt_allreduce(r->comm, a, a + 1, 10, SHUNT_INT8, SHUNT_SUM) == SHUNT_ERR_INVALID, "overlap");
    check(r, shunt_allreduce(r->comm, a, b, SIZE_MAX / 2, SHUNT_INT8, SHUNT_SUM) == SHUNT_ERR_INVALID, "count");
    check(r, shunt_broadcast(r->comm, a, b, 10, SHUNT_INT8, r->size) == SHUNT_ERR_INVALID, "root");
    check(r, shunt_broadcast(r->comm, a, b, 10, SHUNT_INT8, -1) == SHUNT_ERR_INVALID, "root");
    check(r, shunt_iallreduce(r->comm, a, b, 10, SHUNT_INT8, SHUNT_SUM, NULL) == SHUNT_ERR_INVALID, "request");
    check_ok(r, shunt_barrier(r->comm), "refused calls are no collectives");
    free(a);
    free(b);
}

static void abort_body(struct rank *r)
{
    float *a = calloc(100000, sizeof(float));
    shunt_status_t st;

    if (r->rank == 0) {
        check_ok(r, shunt_comm_abort(r->comm, "enough"), "abort");
    } else {
        st = shunt_allreduce(r->comm, a, a, 100000, SHUNT_FLOAT32, SHUNT_SUM);
        check(r, st == SHUNT_ERR_ABORTED, "%s: %s", shunt_status_name(st), shunt_error_text());
    }
    free(a);
}

int main(int argc, char **argv)
{
    const char *rail = argc > 1 ? argv[1] : "loop";
    static const char *const rails[] = {"loop", "shm", "sock"};
    uint64_t digest = 0;

    make_small();
    for (int n = 1; n <= 8; n++)
        ok(ranks_run(n, ranks_settings(rail), small_body, NULL) == 0,
           "%s, %d ranks: every collective, type and operator, short", rail, n);
    for (int n = 1; n <= 8; n += n < 3 ? 1 : 2)
        ok(ranks_run(n, ranks_settings(rail), large_body, NULL) == 0, "%s, %d ranks: long ones", rail, n);
    ok(ranks_run(3, ranks_settings(rail), premul_body, NULL) == 0, "pre-multiplied sums");
    for (int n = 2; n <= 4; n++)
        ok(ranks_run(n, ranks_settings(rail), overlap_body, NULL) == 0, "%d ranks: twenty at once", n);
    for (int n = 2; n <= 5; n++)
        ok(ranks_run(n, ranks_settings(rail), mismatch_body, NULL) == 0, "%d ranks that disagree", n);
    ok(ranks_run(4, ranks_settings(rail), abort_body, NULL) == 0, "an abort ends a collective that is under way");
    for (int i = 0; i < 3; i++)
        ok(ranks_run(4, ranks_settings(i ? rails[i] : rail), bits_body, &digest) == 0, "the same bits over %s",
           i ? rails[i] : rail);
    return done();
}
