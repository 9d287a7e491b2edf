/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>
#include "comm/coll/hello.h"

static uint32_t op_of(const struct shunt__call *call)
{
    if (!shunt__coll_reduces(call->kind))
        return 0;
    return call->op >= SHUNT_N_OPS ? (uint32_t)SHUNT_N_OPS : (uint32_t)call->op;
}

void shunt__coll_hello_fill(struct shunt__coll_hello *hello, const struct shunt__call *call, uint64_t number, int peer)
{
    memset(hello, 0, sizeof(*hello));
    hello->magic = SHUNT__HELLO_MAGIC;
    hello->kind = (uint8_t)call->kind;
    hello->type = (uint8_t)call->type;
    hello->op = op_of(call);
    hello->root = call->root;
    hello->number = number;
    hello->count = call->send_counts ? call->send_counts[peer] : call->count;
    hello->blame = -1;
    hello->size = call->size;
}

/* "broadcast(1000 x float32, root 3)" */
static void describe(const struct shunt__coll_hello *h, char *text, size_t len)
{
    char op[32] = "", root[24] = "";

    if (h->kind >= SHUNT_COLL_KINDS) {
        snprintf(text, len, "a collective that this version does not know");
        return;
    }
    if (h->kind == SHUNT_COLL_BARRIER) {
        snprintf(text, len, "barrier");
        return;
    }
    if (shunt__coll_reduces((shunt_coll_t)h->kind))
        snprintf(op, sizeof(op), ", %s", h->op >= SHUNT_N_OPS ? "premul_sum" : shunt_op_name((shunt_op_t)h->op));
    if (shunt__coll_rooted((shunt_coll_t)h->kind))
        snprintf(root, sizeof(root), ", root %d", (int)h->root);
    snprintf(text, len, "%s(%llu x %s%s%s)", shunt__coll_name((shunt_coll_t)h->kind), (unsigned long long)h->count,
             shunt_type_name((shunt_type_t)h->type), op, root);
}

shunt_status_t shunt__coll_hello_check(const struct shunt__coll_hello *got, const struct shunt__call *call, uint64_t number,
                                  int peer, char *text, size_t len)
{
    struct shunt__coll_hello own;
    char theirs[96], ours[96];

    shunt__coll_hello_fill(&own, call, number, peer);
    if (call->recv_counts)
        own.count = call->recv_counts[peer];
    if (got->magic != SHUNT__HELLO_MAGIC || got->size != own.size) {
        snprintf(text, len, "rank %d's message is no part of this collective; do all ranks run the same version?",
                 peer);
        return SHUNT_ERR_MISMATCH;
    }
    if (got->kind == own.kind && got->type == own.type && got->op == own.op && got->root == own.root &&
        got->number == own.number && got->count == own.count)
        return SHUNT_OK;
    describe(got, theirs, sizeof(theirs));
    describe(&own, ours, sizeof(ours));
    snprintf(text, len, "rank %d called %s as its collective #%llu where rank %d called %s%s", peer, theirs,
             (unsigned long long)number, call->rank, ours,
             call->recv_counts ? " (counts between these two)" : "");
    return SHUNT_ERR_MISMATCH;
}
