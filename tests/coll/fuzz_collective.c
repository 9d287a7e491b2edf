/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whatever other ranks send, a collective ends, once, and leaves nothing behind.
 *
 * Input: one byte chooses the collective (low four bits), the number of ranks (2 to 5), and whether it is long; then
 * messages, each two bytes of length and as many bytes. Receives take them in the order in which they are posted; when
 * none are left, they end with PEER.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/base/clock.h"
#include "comm/coll/run.h"

struct shunt_comm { /* a line of operations that have ended and are to be told */
    struct shunt__op *ops[4096];
    unsigned first, last;
    const uint8_t *data;
    size_t left;
};

static void end(struct shunt_comm *c, struct shunt__op *op, shunt_status_t status)
{
    op->status = status;
    c->ops[c->last++ % 4096] = op;
    if (c->last - c->first > 4096)
        abort();
}

static void prepare(struct shunt__op *op, struct shunt_comm *c, void *buf, size_t bytes, int peer, int tag,
                    void (*done)(struct shunt__op *))
{
    memset(op, 0, sizeof(*op));
    op->comm = c;
    op->buf = buf;
    op->bytes = bytes;
    op->peer = peer;
    op->tag = tag;
    op->done = done;
}

static void fuzz_send(struct shunt__op *op, struct shunt_comm *c, enum shunt__channel channel, const void *buf,
                      size_t bytes, int peer, int tag, void (*done)(struct shunt__op *))
{
    prepare(op, c, (void *)(uintptr_t)buf, bytes, peer, tag, done);
    end(c, op, SHUNT_OK);
}

static void fuzz_recv(struct shunt__op *op, struct shunt_comm *c, enum shunt__channel channel, void *buf, size_t bytes,
                      int peer, int tag, void (*done)(struct shunt__op *))
{
    size_t length, part;

    prepare(op, c, buf, bytes, peer, tag, done);
    op->kind = SHUNT__OP_RECV;
    if (c->left < 2) {
        op->bytes = 0;
        end(c, op, SHUNT_ERR_PEER);
        return;
    }
    length = c->data[0] | (size_t)c->data[1] << 8;
    c->data += 2;
    c->left -= 2;
    length = length < c->left ? length : c->left;
    part = length < bytes ? length : bytes;
    if (part)
        memcpy(buf, c->data, part);
    c->data += length;
    c->left -= length;
    op->bytes = length;
    end(c, op, length > bytes ? SHUNT_ERR_TRUNCATED : SHUNT_OK);
}

static int fuzz_cancel(struct shunt__op *op, shunt_status_t status)
{
    return 1; /* it has ended already */
}

static void fuzz_describe(const struct shunt__op *op, char *text, size_t len)
{
    text[0] = '\0';
}

static const struct shunt__carrier carrier = {fuzz_send, fuzz_recv, fuzz_cancel, fuzz_describe};

static void finish(void *arg, shunt_status_t status, const char *why)
{
    int *finished = arg;

    ++*finished;
    if (status && !*why)
        abort();
}

static void tell_all(struct shunt_comm *c)
{
    while (c->first != c->last) {
        struct shunt__op *op = c->ops[c->first++ % 4096];

        op->done(op);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int host_of[5];
    static char in[400000], out[400000];
    struct shunt__run_pool *pool = shunt__run_pool_new(&carrier);
    struct shunt__schedule *schedule;
    struct shunt_comm c = {.data = data + 1, .left = size - 1};
    struct shunt__call call = {.hosts = 1, .host_of = host_of, .width = 4, .type = SHUNT_INT32, .rank = 1};
    struct shunt__run_params p = {.pool = pool, .comm = &c, .call = &call, .number = 7, .in = in, .out = out,
                                  .finish = finish};
    int finished = 0;

    if (size < 1) {
        shunt__run_pool_close(pool);
        return 0;
    }
    call.kind = (shunt_coll_t)(data[0] % 16 % SHUNT_COLL_KINDS);
    if (call.kind == SHUNT_COLL_ALLTOALLV) /* the same as alltoall, but for its counts */
        call.kind = SHUNT_COLL_ALLTOALL;
    call.size = 2 + (data[0] >> 4 & 3);
    call.count = call.kind == SHUNT_COLL_BARRIER ? 0 : data[0] & 0x80 ? 9000 : 5;
    schedule = shunt__schedule_new(call.size);
    shunt__coll_choose(&call, NULL, 0)->pattern(schedule, &call);
    if (!shunt__schedule_seal(schedule))
        abort();
    p.schedule = schedule;
    p.arg = &finished;
    if (shunt__run_start(&p) != SHUNT_OK)
        abort();
    shunt__schedule_put(schedule);
    for (uint64_t now = SHUNT__S; now < 5 * SHUNT__S; now += 2 * SHUNT__S) { /* someone may ask about it afterwards */
        tell_all(&c);
        shunt__run_pool_tick(pool, now);
    }
    tell_all(&c);
    if (finished != 1)
        abort();
    shunt__run_pool_close(pool);
    tell_all(&c);
    return 0;
}
