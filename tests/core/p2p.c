/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Point to point over one kind of rail, named by the argument (default loop): sizes, order, tags, flow control, many
 * requests, cancel, errors, split.
 */
#include "tests/core/ranks.h"

static const size_t sizes[] = {0, 1, 7, 64, 4096, 65535, 65536, 65537, 262144, 262145, 1000000, 5000000};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void ring(struct rank *r)
{
    int to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;

    for (size_t i = 0; i < N_SIZES; i++) {
        unsigned char *out = malloc(sizes[i] + 1), *in = calloc(1, sizes[i] + 1);
        shunt_result_t res;
        fill(out, sizes[i], (unsigned)(r->rank + 100 * (int)i));
        in[sizes[i]] = 0x5a;
        check_ok(r, shunt_sendrecv(r->comm, out, sizes[i], to, 3, in, sizes[i], from, 3, &res), "sendrecv");
        check(r, res.bytes == sizes[i] && res.peer == from && res.tag == 3, "result: %zu bytes from %d", res.bytes, res.peer);
        check(r, same(in, sizes[i], (unsigned)(from + 100 * (int)i)), "%zu bytes arrived damaged", sizes[i]);
        check(r, in[sizes[i]] == 0x5a, "%zu bytes: written beyond the end", sizes[i]);
        free(out);
        free(in);
    }
}

/* Many messages under way, unexpected ones included: order per tag, whatever the order of the receives. */
static void order(struct rank *r)
{
    enum { N = 200 };
    shunt_request_t *req[2 * N];
    unsigned *in = calloc(2 * N, sizeof(*in)), *out = calloc(2 * N, sizeof(*out));
    int other = r->rank ^ 1, n = 0;

    if (other >= r->size)
        goto out;
    for (int i = 0; i < 2 * N; i++) {
        out[i] = (unsigned)i;
        check_ok(r, shunt_isend(r->comm, &out[i], sizeof(out[i]), other, i % 2, &req[i]), "isend");
    }
    shunt_request_t *rr[2 * N];
    for (int tag = 1; tag >= 0; tag--)
        for (int i = 0; i < N; i++, n++)
            check_ok(r, shunt_irecv(r->comm, &in[n], sizeof(in[n]), other, tag, &rr[n]), "irecv");
    check_ok(r, shunt_wait_all(rr, 2 * N, NULL), "wait_all");
    check_ok(r, shunt_wait_all(req, 2 * N, NULL), "wait_all");
    for (int i = 0; i < N; i++) {
        check(r, in[i] == (unsigned)(2 * i + 1), "tag 1, message %d: got %u", i, in[i]);
        check(r, in[N + i] == (unsigned)(2 * i), "tag 0, message %d: got %u", i, in[N + i]);
    }
out:
    free(in);
    free(out);
}

/* Large messages whose receives come late and in reverse: the receiver's memory stays bounded, nothing blocks. */
static void reverse(struct rank *r)
{
    enum { N = 40 };
    size_t bytes = 3 << 20;
    unsigned char *buf;
    shunt_request_t *req[N];

    if (r->rank > 1)
        return;
    buf = malloc(bytes);
    fill(buf, bytes, 7);
    if (r->rank == 0) {
        for (int i = 0; i < N; i++)
            check_ok(r, shunt_isend(r->comm, buf, bytes, 1, i, &req[i]), "isend");
        check_ok(r, shunt_wait_all(req, N, NULL), "sends");
    } else
        for (int i = N - 1; i >= 0; i--) {
            memset(buf, 0, bytes);
            check_ok(r, shunt_recv(r->comm, buf, bytes, 0, i, NULL), "recv");
            check(r, same(buf, bytes, 7), "message %d damaged", i);
        }
    free(buf);
}

static void requests(struct rank *r)
{
    shunt_request_t *req[3] = {NULL, NULL, NULL};
    shunt_result_t res;
    int x = 0, y = 0, index, done_n, indices[3];
    char big[100];

    if (r->rank > 1)
        return;
    check_ok(r, shunt_wait(&req[0], &res), "waiting for nothing");
    check_ok(r, shunt_wait_any(req, 3, &index, NULL), "wait_any of nothing");
    check(r, index == -1, "index of nothing is %d", index);
    if (r->rank == 0) {
        check_ok(r, shunt_irecv(r->comm, &x, sizeof(x), 1, 77, &req[0]), "irecv");
        check(r, shunt_test(&req[0], NULL) == SHUNT_IN_PROGRESS, "nothing was sent yet");
        check_ok(r, shunt_cancel(req[0]), "cancel");
        check(r, shunt_wait(&req[0], &res) == SHUNT_ERR_CANCELED, "cancelled: %s", shunt_status_name(res.status));
        check_ok(r, shunt_irecv(r->comm, &x, sizeof(x), 1, 1, &req[0]), "irecv");
        check_ok(r, shunt_irecv(r->comm, &y, sizeof(y), 1, 2, &req[2]), "irecv");
        check_ok(r, shunt_send(r->comm, &x, 0, 1, 9), "go");
        check_ok(r, shunt_wait_any(req, 3, &index, &res), "wait_any");
        check(r, index == 2 && y == 22 && res.tag == 2, "the second receive is done first");
        check_ok(r, shunt_send(r->comm, &x, 0, 1, 9), "go on");
        check_ok(r, shunt_wait_some(req, 3, indices, &done_n, NULL), "wait_some");
        check(r, done_n == 1 && indices[0] == 0 && x == 11, "then the first");
        check(r, shunt_recv(r->comm, big, 10, 1, 3, &res) == SHUNT_ERR_TRUNCATED, "100 bytes into 10");
        check(r, res.bytes == 100 && big[9] == 'x', "its length is told, its beginning kept");
        check_ok(r, shunt_recv(r->comm, big, sizeof(big), 1, SHUNT_TAG_ANY, &res), "any tag");
        check(r, res.tag == 4 && res.bytes == 5, "tag %d, %zu bytes", res.tag, res.bytes);
    } else {
        x = 11;
        y = 22;
        memset(big, 'x', sizeof(big));
        check_ok(r, shunt_recv(r->comm, NULL, 0, 0, 9, NULL), "go");
        check_ok(r, shunt_send(r->comm, &y, sizeof(y), 0, 2), "send");
        check_ok(r, shunt_recv(r->comm, NULL, 0, 0, 9, NULL), "go on");
        check_ok(r, shunt_send(r->comm, &x, sizeof(x), 0, 1), "send");
        check_ok(r, shunt_send(r->comm, big, sizeof(big), 0, 3), "send");
        check_ok(r, shunt_send(r->comm, big, 5, 0, 4), "send");
    }
}

static void bad(struct rank *r)
{
    shunt_request_t *req = NULL;
    char b[4] = "";

    check(r, shunt_isend(NULL, b, 1, 0, 0, &req) == SHUNT_ERR_INVALID, "NULL communicator");
    check(r, shunt_isend(r->comm, b, 1, r->size, 0, &req) == SHUNT_ERR_INVALID, "rank too high");
    check(r, strstr(shunt_error_text(), "is not in 0.."), "text: %s", shunt_error_text());
    check(r, shunt_isend(r->comm, b, 1, -1, 0, &req) == SHUNT_ERR_INVALID, "rank below 0");
    check(r, shunt_isend(r->comm, NULL, 1, 0, 0, &req) == SHUNT_ERR_INVALID, "NULL buffer");
    check(r, shunt_isend(r->comm, b, 1, 0, -1, &req) == SHUNT_ERR_INVALID, "bad tag");
    check(r, shunt_irecv(r->comm, b, 1, 0, 0, NULL) == SHUNT_ERR_INVALID, "NULL request");
    check(r, shunt_comm_create(r->ctx, NULL, 0, 1, &r->comm) == SHUNT_ERR_INVALID, "NULL id");
    check(r, req == NULL, "an output was set in spite of an error");
}

static void self(struct rank *r)
{
    int a = 5, b = 0;
    shunt_request_t *req;

    check_ok(r, shunt_isend(r->comm, &a, sizeof(a), r->rank, 1, &req), "isend to myself");
    check(r, shunt_test(&req, NULL) == SHUNT_IN_PROGRESS, "not received yet");
    check_ok(r, shunt_recv(r->comm, &b, sizeof(b), r->rank, 1, NULL), "recv from myself");
    check_ok(r, shunt_wait(&req, NULL), "wait");
    check(r, b == 5, "got %d", b);
}

static void split(struct rank *r)
{
    shunt_comm_t *half = NULL, *rev = NULL, *none = NULL;
    int me = r->rank, got = -1;

    check_ok(r, shunt_comm_split(r->comm, r->rank % 2, 0, &half), "split by parity");
    check(r, shunt_comm_rank(half) == r->rank / 2, "rank in the half is %d", shunt_comm_rank(half));
    if (shunt_comm_size(half) > 1) {
        int n = shunt_comm_size(half), hr = shunt_comm_rank(half);
        check_ok(r, shunt_sendrecv(half, &me, sizeof(me), (hr + 1) % n, 0, &got, sizeof(got), (hr + n - 1) % n, 0, NULL),
                 "sendrecv in the half");
        check(r, got == (hr + n - 1) % n * 2 + r->rank % 2, "got %d", got);
    }
    check_ok(r, shunt_comm_split(r->comm, 0, -r->rank, &rev), "split by falling key");
    check(r, shunt_comm_rank(rev) == r->size - 1 - r->rank, "rank is %d", shunt_comm_rank(rev));
    check_ok(r, shunt_comm_split(r->comm, r->rank ? SHUNT_NO_COLOR : 0, 0, &none), "split with no color");
    check(r, (none == NULL) == (r->rank != 0), "no color gives NULL");
    shunt_comm_free(half);
    shunt_comm_free(rev);
    shunt_comm_free(none);
}

/* What is sent and never received ends when the receiver frees the communicator. */
static void unreceived(struct rank *r)
{
    shunt_comm_t *half = NULL;
    char *buf = calloc(1, 1 << 20);
    shunt_request_t *req = NULL;

    check_ok(r, shunt_comm_split(r->comm, 0, 0, &half), "split");
    if (r->rank == 0) {
        check_ok(r, shunt_isend(half, buf, 1 << 20, 1, 0, &req), "isend");
        check_ok(r, shunt_send(r->comm, buf, 1, 1, 1), "word");
        shunt_status_t st = shunt_wait(&req, NULL);
        check(r, st == SHUNT_ERR_PEER && strstr(shunt_error_text(), "freed"), "%s: %s", shunt_status_name(st), shunt_error_text());
    } else if (r->rank == 1)
        check_ok(r, shunt_recv(r->comm, buf, 1, 0, 1, NULL), "word");
    shunt_comm_free(half);
    free(buf);
}

struct thread_arg {
    struct rank *r;
    int tag;
};

static void *talker(void *p)
{
    struct thread_arg *a = p;
    struct rank *r = a->r;
    int other = r->rank ^ 1, x, y;

    for (int i = 0; i < 300; i++) {
        x = i * 10 + a->tag;
        check_ok(r, shunt_sendrecv(r->comm, &x, sizeof(x), other, a->tag, &y, sizeof(y), other, a->tag, NULL), "thread");
        check(r, y == x, "thread %d: got %d, not %d", a->tag, y, x);
    }
    return NULL;
}

static void threads(struct rank *r)
{
    pthread_t t[4];
    struct thread_arg a[4];

    if ((r->rank ^ 1) >= r->size)
        return;
    for (int i = 0; i < 4; i++) {
        a[i] = (struct thread_arg){r, i};
        pthread_create(&t[i], NULL, talker, &a[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
}

int main(int argc, char **argv)
{
    const char *rail = argc > 1 ? argv[1] : getenv("SHUNT_TEST_RAIL") ? getenv("SHUNT_TEST_RAIL") : "loop";
    const char *const *set = ranks_settings(rail);

    is_int(ranks_run(2, set, ring, NULL), 0, "%s: sizes from 0 to 5 MB, 2 ranks", rail);
    is_int(ranks_run(5, set, ring, NULL), 0, "%s: sizes from 0 to 5 MB, 5 ranks", rail);
    is_int(ranks_run(2, set, order, NULL), 0, "%s: order per tag", rail);
    is_int(ranks_run(2, set, reverse, NULL), 0, "%s: large messages received in reverse order", rail);
    is_int(ranks_run(2, set, requests, NULL), 0, "%s: test, wait, any, some, cancel, truncation", rail);
    is_int(ranks_run(2, set, bad, NULL), 0, "%s: bad arguments are refused", rail);
    is_int(ranks_run(3, set, self, NULL), 0, "%s: messages to the own rank", rail);
    is_int(ranks_run(5, set, split, NULL), 0, "%s: split", rail);
    is_int(ranks_run(2, set, unreceived, NULL), 0, "%s: a message whose receiver frees the communicator", rail);
    is_int(ranks_run(2, set, threads, NULL), 0, "%s: four threads of each rank at once", rail);
    is_int(ranks_run(1, set, self, NULL), 0, "%s: a communicator of one rank", rail);
    return done();
}
