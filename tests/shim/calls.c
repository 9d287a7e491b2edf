/* SPDX-License-Identifier: BSD-3-Clause */
/* Every operation of NCCL's interface on ranks that are threads: results, in-place rules, operators, counts, groups. */
#include <math.h>
#include "tests/shim/ranks.h"

#define N 1000

static void all_operations(struct rank *r)
{
    int n = r->size, me = r->rank;
    float *send = calloc(N * 4, sizeof(float)), *recv = calloc(N * 4, sizeof(float));
    int value;

    check_ok(r, ncclCommCount(r->comm, &value));
    check(r, value == n, "count %d", value);
    check_ok(r, ncclCommUserRank(r->comm, &value));
    check(r, value == me, "rank %d", value);
    check_ok(r, ncclCommCuDevice(r->comm, &value));
    for (int i = 0; i < N * n; i++)
        send[i] = (float)(me * 10000 + i);
    check_ok(r, ncclAllReduce(send, recv, N, ncclFloat32, ncclSum, r->comm, NULL));
    for (int i = 0; i < N; i++)
        check(r, recv[i] == (float)(n * i + 10000 * n * (n - 1) / 2), "allreduce[%d] %g", i, recv[i]);
    check_ok(r, ncclReduceScatter(send, recv, N, ncclFloat32, ncclMax, r->comm, NULL));
    for (int i = 0; i < N; i++)
        check(r, recv[i] == (float)((n - 1) * 10000 + me * N + i), "reducescatter[%d] %g", i, recv[i]);
    check_ok(r, ncclAllGather(send, recv, N, ncclFloat32, r->comm, NULL));
    for (int i = 0; i < N * n; i++)
        check(r, recv[i] == (float)(i / N * 10000 + i % N), "allgather[%d] %g", i, recv[i]);
    check_ok(r, ncclAlltoAll(send, recv, N, ncclFloat32, r->comm, NULL));
    for (int i = 0; i < N * n; i++)
        check(r, recv[i] == (float)(i / N * 10000 + me * N + i % N), "alltoall[%d] %g", i, recv[i]);
    check_ok(r, ncclBroadcast(me == 1 ? send : NULL, recv, N, ncclFloat32, 1, r->comm, NULL));
    check(r, recv[7] == 10007, "broadcast %g", recv[7]);
    recv[3] = (float)me;
    check_ok(r, ncclBcast(recv, N, ncclFloat32, 2, r->comm, NULL));
    check(r, recv[3] == 2, "bcast %g", recv[3]);
    check_ok(r, ncclReduce(send, me == 0 ? recv : NULL, N, ncclFloat32, ncclMin, 0, r->comm, NULL));
    check(r, me != 0 || recv[5] == 5, "reduce %g", recv[5]);
    check_ok(r, ncclGather(send, me == 1 ? recv : NULL, N, ncclFloat32, 1, r->comm, NULL));
    check(r, me != 1 || recv[2 * N + 4] == 20004, "gather %g", recv[2 * N + 4]);
    check_ok(r, ncclScatter(me == 1 ? send : NULL, recv, N, ncclFloat32, 1, r->comm, NULL));
    check(r, recv[4] == (float)(10000 + me * N + 4), "scatter %g", recv[4]);
    /* in place */
    for (int i = 0; i < N * n; i++)
        recv[i] = (float)(me + i);
    check_ok(r, ncclAllReduce(recv, recv, N, ncclFloat32, ncclSum, r->comm, NULL));
    check(r, recv[9] == (float)(n * 9 + n * (n - 1) / 2), "allreduce in place %g", recv[9]);
    for (int i = 0; i < N * n; i++)
        recv[i] = (float)(me + i);
    check_ok(r, ncclReduceScatter(recv, recv + me * N, N, ncclFloat32, ncclSum, r->comm, NULL));
    check(r, recv[me * N + 1] == (float)(n * (me * N + 1) + n * (n - 1) / 2), "in place %g", recv[me * N + 1]);
    recv[me * N] = (float)me;
    check_ok(r, ncclAllGather(recv + me * N, recv, N, ncclFloat32, r->comm, NULL));
    for (int i = 0; i < n; i++)
        check(r, recv[i * N] == (float)i, "allgather in place %g", recv[i * N]);
    free(send);
    free(recv);
}

static void operators(struct rank *r)
{
    float x[4] = {(float)(r->rank + 1), 2, 3, 4}, y[4], half = 0.5f;
    int k[2] = {7 + r->rank, -7 - r->rank}, out[2];
    ncclRedOp_t op, other;

    check_ok(r, ncclAllReduce(x, y, 4, ncclFloat32, ncclAvg, r->comm, NULL));
    check(r, y[0] == 2.5f && y[3] == 4, "avg %g", y[0]);
    check_ok(r, ncclAllReduce(k, out, 2, ncclInt32, ncclAvg, r->comm, NULL)); /* 7 + 8 + 9 + 10 = 34; / 4 */
    check(r, out[0] == 8 && out[1] == -8, "avg of integers %d %d", out[0], out[1]);
    check_ok(r, ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, r->comm));
    check(r, op >= ncclNumOps, "operator %d", (int)op);
    half = 100; /* the scalar was copied */
    check_ok(r, ncclAllReduce(x, y, 4, ncclFloat32, op, r->comm, NULL));
    check(r, y[0] == 5 && y[1] == 4, "pre-multiplied %g %g", y[0], y[1]);
    check_result(r, ncclAllReduce(k, out, 2, ncclInt32, op, r->comm, NULL), ncclInvalidArgument);
    /* in a group, destroyed before it runs; a scalar in memory is read when it runs */
    check_ok(r, ncclRedOpCreatePreMulSum(&other, &half, ncclFloat32, ncclScalarDevice, r->comm));
    check_ok(r, ncclGroupStart());
    check_ok(r, ncclAllReduce(x, y, 4, ncclFloat32, other, r->comm, NULL));
    check_ok(r, ncclRedOpDestroy(other, r->comm));
    half = 2;
    check_ok(r, ncclGroupEnd());
    check(r, y[0] == 20 && y[1] == 16, "scalar in memory %g %g", y[0], y[1]);
    check_ok(r, ncclRedOpDestroy(op, r->comm));
    check_result(r, ncclRedOpDestroy(op, r->comm), ncclInvalidArgument);
    check_result(r, ncclRedOpDestroy(ncclSum, r->comm), ncclInvalidArgument);
    check_result(r, ncclAllReduce(x, y, 4, ncclFloat32, op, r->comm, NULL), ncclInvalidArgument);
}

static void bits(struct rank *r)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    unsigned char send[512], recv[4 * 512];

    for (int type = 0; type < ncclNumTypes; type++) {
        size_t count = 512 / sizes[type];
        for (int i = 0; i < 512; i++) /* every byte, NaNs of every kind among them */
            send[i] = (unsigned char)(i * 7 + r->rank + type);
        memset(recv, 0, sizeof(recv));
        check_ok(r, ncclAllGather(send, recv, count, (ncclDataType_t)type, r->comm, NULL));
        for (int q = 0; q < r->size; q++)
            for (int i = 0; i < 512; i++)
                check(r, recv[q * 512 + i] == (unsigned char)(i * 7 + q + type), "type %d byte %d", type, i);
    }
}

static void point_to_point(struct rank *r)
{
    int n = r->size, me = r->rank, right = (me + 1) % n, left = (me + n - 1) % n, x = me, y = -1;
    size_t big = (size_t)4 << 20;
    char *s = malloc(big), *t = malloc(big);

    /* everybody sends first: at most 4 MiB return without the receive, in order, and the buffer is free again */
    memset(s, me, big);
    check_ok(r, ncclSend(&x, 1, ncclInt32, right, r->comm, NULL));
    check_ok(r, ncclSend(s, big, ncclInt8, right, r->comm, NULL));
    x = 99;
    memset(s, 99, big);
    check_ok(r, ncclRecv(&y, 1, ncclInt32, left, r->comm, NULL));
    check_ok(r, ncclRecv(t, big, ncclInt8, left, r->comm, NULL));
    check(r, y == left && t[0] == left && t[big - 1] == left, "got %d, %d .. %d", y, t[0], t[big - 1]);
    /* to all and from all, oneself too, in one group */
    int out[8], in[8];
    check_ok(r, ncclGroupStart());
    for (int q = 0; q < n; q++) {
        out[q] = me * 100 + q;
        in[q] = -1;
        check_ok(r, ncclSend(&out[q], 1, ncclInt32, q, r->comm, NULL));
        check_ok(r, ncclRecv(&in[q], 1, ncclInt32, q, r->comm, NULL));
    }
    check(r, in[me] == -1, "an operation ran before its group ended");
    check_ok(r, ncclGroupEnd());
    for (int q = 0; q < n; q++)
        check(r, in[q] == q * 100 + me, "from %d: %d", q, in[q]);
    /* nothing at all is a message too */
    check_ok(r, ncclGroupStart());
    check_ok(r, ncclSend(NULL, 0, ncclInt32, right, r->comm, NULL));
    check_ok(r, ncclRecv(NULL, 0, ncclInt32, left, r->comm, NULL));
    check_ok(r, ncclGroupEnd());
    /* a send to oneself without its receive */
    check_result(r, ncclSend(&x, 1, ncclInt32, me, r->comm, NULL), ncclInvalidUsage);
    check_ok(r, ncclGroupStart());
    check_ok(r, ncclRecv(&x, 1, ncclInt32, me, r->comm, NULL));
    check_result(r, ncclGroupEnd(), ncclInvalidUsage);
    check_result(r, ncclSend(&x, 1, ncclInt32, n, r->comm, NULL), ncclInvalidArgument);
    free(s);
    free(t);
}

static void groups(struct rank *r)
{
    float x[3][10], y[3][10];

    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 10; i++)
            x[k][i] = (float)(k + r->rank);
    check_ok(r, ncclGroupStart());
    check_ok(r, ncclGroupStart());
    for (int k = 0; k < 3; k++) {
        y[k][0] = -1;
        check_ok(r, ncclAllReduce(x[k], y[k], 10, ncclFloat32, ncclSum, r->comm, NULL));
    }
    check_ok(r, ncclGroupEnd());
    check(r, y[0][0] == -1, "the inner GroupEnd ran the operations");
    check_ok(r, ncclGroupEnd());
    for (int k = 0; k < 3; k++)
        check(r, y[k][9] == (float)(r->size * k + r->size * (r->size - 1) / 2), "%d: %g", k, y[k][9]);
    /* an error in a group: the last one wins, nothing runs, the state is clean */
    y[0][0] = -1;
    check_ok(r, ncclGroupStart());
    check_ok(r, ncclAllReduce(x[0], y[0], 10, ncclFloat32, ncclSum, r->comm, NULL));
    check_result(r, ncclAllReduce(x[0], y[0], 10, ncclFloat32, ncclSum, NULL, NULL), ncclInvalidArgument);
    check_result(r, ncclBroadcast(x[0], y[0], 10, ncclFloat32, 77, r->comm, NULL), ncclInvalidArgument);
    check_result(r, ncclGroupEnd(), ncclInvalidArgument);
    check(r, y[0][0] == -1, "a failed group ran");
    check_result(r, ncclGroupEnd(), ncclInvalidUsage);
    check_ok(r, ncclGroupStart());
    check_ok(r, ncclGroupEnd());
    /* simulated: nothing runs */
    ncclSimInfo_t info = {sizeof(info), SHIM_SIM_MAGIC, SHIM_VERSION, 0};
    check_ok(r, ncclGroupStart());
    check_ok(r, ncclAllReduce(x[0], y[0], 10, ncclFloat32, ncclSum, r->comm, NULL));
    check_ok(r, ncclGroupSimulateEnd(&info));
    check(r, y[0][0] == -1 && info.estimatedTime == -1, "a simulated group ran");
}

static void nothing(struct rank *r)
{
    check_ok(r, ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, r->comm, NULL));
    check_ok(r, ncclReduceScatter(NULL, NULL, 0, ncclFloat32, ncclSum, r->comm, NULL));
    check_ok(r, ncclAllGather(NULL, NULL, 0, ncclFloat32, r->comm, NULL));
    check_ok(r, ncclBroadcast(NULL, NULL, 0, ncclFloat32, 0, r->comm, NULL));
    check_ok(r, ncclAlltoAll(NULL, NULL, 0, ncclFloat32, r->comm, NULL));
    /* on one rank alone, it does not even meet the others */
    if (r->rank == 0)
        check_ok(r, ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, r->comm, NULL));
    check_result(r, ncclAllReduce(NULL, NULL, 0, (ncclDataType_t)12, ncclSum, r->comm, NULL), ncclInvalidArgument);
    check_result(r, ncclAllReduce(NULL, NULL, 0, ncclFloat32, (ncclRedOp_t)9, r->comm, NULL), ncclInvalidArgument);
    check_result(r, ncclBroadcast(NULL, NULL, 0, ncclFloat32, -1, r->comm, NULL), ncclInvalidArgument);
}

static void memory(struct rank *r)
{
    void *p = NULL, *handle = NULL;
    ncclWindow_t window = NULL;

    check_ok(r, ncclMemAlloc(&p, 100000));
    check(r, p && (uintptr_t)p % 4096 == 0, "MemAlloc gave %p", p);
    memset(p, 1, 100000);
    check_ok(r, ncclCommRegister(r->comm, p, 100000, &handle));
    check_ok(r, ncclCommWindowRegister(r->comm, p, 100000, &window, 0));
    check_ok(r, ncclAllReduce(p, p, 1000, ncclInt32, ncclMax, r->comm, NULL));
    check_ok(r, ncclCommDeregister(r->comm, handle));
    check_result(r, ncclCommDeregister(r->comm, handle), ncclInvalidArgument);
    check_ok(r, ncclCommWindowDeregister(r->comm, window));
    check_ok(r, ncclMemFree(p));
}

/* Several ranks in one thread. */
static int one_thread(void)
{
    enum { RANKS = 3 };
    ncclComm_t comms[RANKS] = {NULL}, again[RANKS];
    float x[RANKS][100], y[RANKS][100];
    ncclUniqueId id;
    int bad = 0;

    bad += ncclGetUniqueId(&id) != ncclSuccess || ncclGroupStart() != ncclSuccess;
    for (int i = 0; i < RANKS; i++)
        bad += ncclCommInitRank(&comms[i], RANKS, id, i) != ncclSuccess;
    bad += ncclGroupEnd() != ncclSuccess;
    bad += ncclCommInitAll(again, RANKS, NULL) != ncclSuccess;
    for (int round = 0; round < 2 && !bad; round++) {
        ncclComm_t *set = round ? again : comms;
        for (int i = 0; i < RANKS; i++)
            for (int k = 0; k < 100; k++)
                x[i][k] = (float)(i + k);
        ncclGroupStart();
        for (int i = 0; i < RANKS; i++)
            bad += ncclAllReduce(x[i], y[i], 100, ncclFloat32, ncclSum, set[i], NULL) != ncclSuccess;
        bad += ncclGroupEnd() != ncclSuccess;
        for (int i = 0; i < RANKS; i++)
            bad += y[i][10] != 33;
        ncclGroupStart();
        for (int i = 0; i < RANKS; i++) {
            bad += ncclSend(x[i], 100, ncclFloat32, (i + 1) % RANKS, set[i], NULL) != ncclSuccess;
            bad += ncclRecv(y[i], 100, ncclFloat32, (i + RANKS - 1) % RANKS, set[i], NULL) != ncclSuccess;
        }
        bad += ncclGroupEnd() != ncclSuccess;
        for (int i = 0; i < RANKS; i++)
            bad += y[i][0] != (float)((i + RANKS - 1) % RANKS);
    }
    for (int i = 0; i < RANKS; i++)
        bad += ncclCommDestroy(comms[i]) != ncclSuccess || ncclCommDestroy(again[i]) != ncclSuccess;
    if (bad)
        printf("# %s\n", ncclGetLastError(NULL));
    return bad;
}

static void one_rank(struct rank *r)
{
    float x = 3, y = 0, scalar = 4;
    ncclRedOp_t op;

    check_ok(r, ncclAllReduce(&x, &y, 1, ncclFloat32, ncclAvg, r->comm, NULL));
    check(r, y == 3, "avg of one %g", y);
    check_ok(r, ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, r->comm));
    check_ok(r, ncclAllReduce(&x, &y, 1, ncclFloat32, op, r->comm, NULL));
    check(r, y == 12, "one rank still scales: %g", y);
    check_ok(r, ncclAllReduce(&x, &x, 1, ncclFloat32, op, r->comm, NULL));
    check(r, x == 12, "in place too: %g", x);
}

int main(void)
{
    int version = 0;

    is_int(ncclGetVersion(&version), ncclSuccess, "GetVersion");
    is_int(version, 22809, "the version is 2.28.9");
    ok(ncclGetLastError(NULL) != NULL && ncclGetErrorString(ncclSuccess) != NULL, "texts are never NULL");
    is_int(ncclGetVersion(NULL), ncclInvalidArgument, "GetVersion(NULL) is 4");
    is_int(ncclCommDestroy(NULL), 0, "CommDestroy(NULL) is 0");
    is_int(ncclCommAbort(NULL), 0, "CommAbort(NULL) is 0");
    is_int(ncclCommFinalize(NULL), 0, "CommFinalize(NULL) is 0");
    is_int(ncclCommRevoke(NULL, 0), 0, "CommRevoke(NULL) is 0");
    is_int(ncclRedOpDestroy((ncclRedOp_t)7, NULL), 4, "RedOpDestroy(7, NULL) is 4");
    is_int(ncclCommDeregister(NULL, NULL), 4, "CommDeregister(NULL) is 4");
    is_int(ncclGroupEnd(), 5, "GroupEnd alone is 5");
    ncclGroupStart();
    is_int(ncclAllReduce(&version, &version, 1, ncclInt32, ncclSum, NULL, NULL), 4, "a NULL comm in a group is 4");
    is_int(ncclGroupEnd(), 4, "and its GroupEnd is 4");
    is_int(ranks_run(4, all_operations), 0, "all collectives, also in place");
    is_int(ranks_run(4, operators), 0, "averages and pre-multiplied sums");
    is_int(ranks_run(3, bits), 0, "all types are moved bit for bit");
    is_int(ranks_run(3, point_to_point), 0, "send and receive");
    is_int(ranks_run(2, groups), 0, "groups");
    is_int(ranks_run(2, nothing), 0, "counts of zero");
    is_int(ranks_run(2, memory), 0, "memory and registration");
    is_int(one_thread(), 0, "three ranks in one thread");
    is_int(ranks_run(1, one_rank), 0, "a communicator of one rank scales");
    return done();
}
