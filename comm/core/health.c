/* SPDX-License-Identifier: BSD-3-Clause */
/* Events to the user's callback and to the log, and the view of rails. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"
#include "comm/core/health.h"

static int first_rank(struct shunt_context *ctx, const struct shunt__peer *peer)
{
    for (struct shunt__list *n = ctx->all_comms.next; n != &ctx->all_comms; n = n->next) {
        int r = shunt__comm_rank_of(shunt__container(n, struct shunt_comm, all), peer);
        if (r >= 0)
            return r;
    }
    return -1;
}

void shunt__health_event(struct shunt_context *ctx, shunt_event_kind_t kind, struct shunt__peer *peer, int rail,
                         const char *fmt, ...)
{
    char text[400], name[96] = "";
    int n = 0, rank = peer ? first_rank(ctx, peer) : -1;
    va_list ap;

    if (ctx->closing) /* what happens while we leave is nobody's fault */
        return;
    if (rank >= 0)
        n = snprintf(text, sizeof(text), "rank %d: ", rank);
    va_start(ap, fmt);
    vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
    va_end(ap);
    shunt__log(SHUNT__LOG_EVENT, "%s", text);
    if (peer)
        snprintf(name, sizeof(name), "%s", shunt__peer_name(peer));
    shunt_event_t e = {kind, ctx->now, rail >= 0 ? ctx->rails[rail]->name : "", name, rank, text};
    if (ctx->health && ctx->health->callback)
        ctx->health->callback(&e, ctx->health->arg);
}

void shunt_context_on_event(shunt_context_t *ctx, void (*fn)(const shunt_event_t *event, void *arg), void *arg)
{
    if (!ctx)
        return;
    shunt__lock(ctx);
    ctx->health->callback = fn;
    ctx->health->arg = arg;
    shunt__unlock(ctx);
}

static void fill(shunt_rail_info_t *out, const struct shunt__path *p, int rank)
{
    struct shunt__link_stats st = {0};
    shunt_rail_info_t i;

    memset(&i, 0, sizeof(i));
    if (p->link.conn && p->link.rail->ops->stats)
        p->link.rail->ops->stats((struct shunt__link *)(uintptr_t)&p->link, &st);
    i.size = out->size;
    snprintf(i.rail, sizeof(i.rail), "%s", p->link.rail->name);
    snprintf(i.peer, sizeof(i.peer), "%s", shunt__peer_name(p->peer));
    i.rank = rank;
    i.state = p->state;
    snprintf(i.why, sizeof(i.why), "%s", p->why);
    i.since = (double)(p->peer->ctx->now - p->since) / 1e9;
    i.rate = p->rate * 1e9;
    i.latency = p->latency / 1e9;
    i.outstanding = p->in_flight;
    i.bytes_sent = p->bytes_sent;
    i.bytes_received = p->bytes_received;
    i.bytes_resent = p->bytes_resent;
    i.retransmits = st.retransmits;
    i.damaged = p->chunks_damaged;
    i.duplicates = p->duplicates;
    memcpy(out, &i, out->size < sizeof(i) ? out->size : sizeof(i));
}

shunt_status_t shunt_comm_rails(shunt_comm_t *comm, shunt_rail_info_t *info, int *n)
{
    int cap, k = 0;

    if (!comm || !n || (*n && !info))
        return shunt__fail(SHUNT_ERR_INVALID, "comm_rails: an argument is NULL");
    cap = *n;
    shunt__lock(comm->ctx);
    for (int r = 0; r < comm->size; r++)
        for (int i = 0; comm->peers[r] && i < SHUNT__MAX_RAILS; i++)
            if (comm->peers[r]->paths[i]) {
                if (k < cap)
                    fill(&info[k], comm->peers[r]->paths[i], r);
                k++;
            }
    shunt__unlock(comm->ctx);
    *n = k;
    return SHUNT_OK;
}
