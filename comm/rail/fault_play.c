/* SPDX-License-Identifier: BSD-3-Clause */
/* What the fault wrapper plays: the script's events, and the fate of each frame. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/clock.h"
#include "comm/base/crc32c.h"
#include "comm/base/log.h"
#include "comm/rail/fault.h"

#define DATA_ROOM (1u << 20)
#define CONTROL_ROOM (8u << 20)
#define LINE_ROOM (50 * SHUNT__MS) /* what waits for a throttled line, at most */
#define LOSS_DELAY (200 * SHUNT__MS) /* the shortest time after which TCP sends again when nothing tells it earlier */

void shunt__fault_append(struct fault_list *list, struct fault_item *item)
{
    item->next = NULL;
    item->prev = list->last;
    if (list->last)
        list->last->next = item;
    else
        list->first = item;
    list->last = item;
}

void shunt__fault_remove(struct fault_list *list, struct fault_item *item)
{
    if (item->prev)
        item->prev->next = item->next;
    else
        list->first = item->next;
    if (item->next)
        item->next->prev = item->prev;
    else
        list->last = item->prev;
}

void shunt__fault_drop(struct fault_list *list)
{
    while (list->first) {
        struct fault_item *item = list->first;
        shunt__fault_remove(list, item);
        free(item);
    }
}

struct fault_item *shunt__fault_item(struct fault_conn *c, const struct shunt__frame *frame, const void *payload)
{
    struct fault_item *item = malloc(sizeof(*item) + frame->length);

    if (!item)
        return NULL;
    memset(item, 0, sizeof(*item));
    item->conn = c;
    item->frame = *frame;
    if (frame->length)
        memcpy(item->payload, payload, frame->length);
    return item;
}

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t draw(struct fault_rail *f)
{
    uint64_t z = f->random += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static double chance(struct fault_rail *f)
{
    return (double)(draw(f) >> 11) * 0x1p-53;
}

static int happens(struct fault_rail *f, double probability)
{
    return probability > 0 && chance(f) < probability;
}

static const char *peer_of(struct fault_rail *f, const struct shunt__link *outer)
{
    const struct shunt__rail_params *p = &f->rail.params;

    return outer && p->events->peer ? p->events->peer(p->engine, outer) : "";
}

struct fault_effects shunt__fault_effects(struct fault_rail *f, const struct shunt__link *outer)
{
    struct fault_effects sum = f->scopes[0].effects;
    const char *name = f->n_scopes > 1 ? peer_of(f, outer) : "";

    for (int i = 1; i < f->n_scopes; i++) {
        const struct fault_effects *e = &f->scopes[i].effects;
        if (fnmatch(f->scopes[i].peer, name, 0) != 0)
            continue;
        sum.down |= e->down;
        sum.cut |= e->cut;
        sum.blackhole |= e->blackhole;
        sum.delay = e->delay > sum.delay ? e->delay : sum.delay;
        sum.jitter = e->jitter > sum.jitter ? e->jitter : sum.jitter;
        sum.rate = e->rate > 0 && (sum.rate <= 0 || e->rate < sum.rate) ? e->rate : sum.rate;
        sum.loss = e->loss > sum.loss ? e->loss : sum.loss;
        sum.drop = e->drop > sum.drop ? e->drop : sum.drop;
        sum.duplicate = e->duplicate > sum.duplicate ? e->duplicate : sum.duplicate;
        sum.reorder = e->reorder > sum.reorder ? e->reorder : sum.reorder;
        sum.corrupt = e->corrupt > sum.corrupt ? e->corrupt : sum.corrupt;
        sum.header = e->header > sum.header ? e->header : sum.header;
    }
    return sum;
}

/* The script */

static struct fault_scope *scope_of(struct fault_rail *f, const char *peer)
{
    for (int i = 0; i < f->n_scopes; i++)
        if (strcmp(f->scopes[i].peer, peer) == 0)
            return &f->scopes[i];
    if (f->n_scopes == FAULT_SCOPES) {
        shunt__log_once(SHUNT__LOG_WARN, "fault script: more than %d peers named; the rest is ignored", FAULT_SCOPES);
        return NULL;
    }
    strcpy(f->scopes[f->n_scopes].peer, peer);
    return &f->scopes[f->n_scopes++];
}

static int concerns(struct fault_rail *f, const struct shunt__fault_event *e)
{
    char index[12];

    snprintf(index, sizeof(index), "%d", f->rail.params.index);
    return fnmatch(e->host, f->host, 0) == 0 &&
           (fnmatch(e->rail, index, 0) == 0 || fnmatch(e->rail, f->rail.params.device, 0) == 0);
}

static void change(struct fault_rail *f, const struct shunt__fault_event *e)
{
    struct fault_scope *scope = scope_of(f, e->peer);
    struct fault_effects *x;

    if (!scope)
        return;
    x = &scope->effects;
    switch (e->action) {
    case SHUNT__FAULT_DOWN:
        x->down = 1;
        break;
    case SHUNT__FAULT_CUT:
        x->cut = 1;
        break;
    case SHUNT__FAULT_BLACKHOLE:
        x->blackhole = 1;
        break;
    case SHUNT__FAULT_UP:
        x->down = x->cut = x->blackhole = 0;
        break;
    case SHUNT__FAULT_CLEAR:
        memset(x, 0, sizeof(*x));
        if (scope == &f->scopes[0])
            for (int i = 1; i < f->n_scopes; i++)
                memset(&f->scopes[i].effects, 0, sizeof(*x));
        break;
    case SHUNT__FAULT_DELAY:
        x->delay = (uint64_t)e->value;
        break;
    case SHUNT__FAULT_JITTER:
        x->jitter = (uint64_t)e->value;
        break;
    case SHUNT__FAULT_RATE:
        x->rate = e->value;
        break;
    case SHUNT__FAULT_LOSS:
        x->loss = e->value;
        break;
    case SHUNT__FAULT_DROP:
        x->drop = e->value;
        break;
    case SHUNT__FAULT_DUPLICATE:
        x->duplicate = e->value;
        break;
    case SHUNT__FAULT_REORDER:
        x->reorder = e->value;
        break;
    case SHUNT__FAULT_CORRUPT:
        x->corrupt = e->value;
        break;
    case SHUNT__FAULT_HEADER:
        x->header = e->value;
        break;
    case SHUNT__FAULT_ACTIONS:
        break;
    }
}

/* Ends the connections that can't live under what is wrong now, and says what became of the carrier. */
static void apply(struct fault_rail *f)
{
    int down = f->scopes[0].effects.down;

    for (struct fault_conn *c = f->conns; c; c = c->next) {
        struct fault_effects now = shunt__fault_effects(f, c->outer);
        if (now.down || now.cut)
            shunt__fault_end(c, now.down ? "its carrier was lost (fault script)" : "cut by the fault script");
    }
    if (down == f->carrier)
        shunt__fault_carrier(f, !down, down ? "fault script: down" : "fault script: up");
}

static void run_script(struct fault_rail *f, uint64_t now)
{
    struct shunt__fault_script *s = &f->script;
    int changed = 0;

    for (int i = f->next_event; i < s->n; i++) {
        struct shunt__fault_event *e = &s->events[i];
        int due = e->count ? f->n_sent >= e->count : now - f->opened >= e->at;

        if (!due && !e->count)
            continue;
        if (due && e->action != SHUNT__FAULT_ACTIONS) {
            if (concerns(f, e)) {
                change(f, e);
                changed = 1;
            }
            e->action = SHUNT__FAULT_ACTIONS; /* played */
        }
        if (i == f->next_event && e->action == SHUNT__FAULT_ACTIONS)
            f->next_event++;
    }
    if (changed)
        apply(f);
}

/* Frames */

/* Control that says something once may be late, but the wrapper does not lose, double or damage it. */
static int expendable(const struct shunt__frame *frame)
{
    return frame->type != SHUNT__FRAME_NOTICE && frame->type != SHUNT__FRAME_BYE;
}

static void corrupt(struct fault_rail *f, struct fault_item *item)
{
    uint64_t bit;

    if (!item->frame.length)
        return;
    if (!(item->frame.flags & SHUNT__FRAME_CRC)) {
        item->frame.payload_crc = shunt__crc32c(0, item->payload, item->frame.length);
        item->frame.flags |= SHUNT__FRAME_CRC;
    }
    bit = draw(f) % (8ull * item->frame.length);
    item->payload[bit / 8] ^= (char)(1 << bit % 8);
}

/* Puts an item where its due time says; equal times keep their order. */
static void wait_for_it(struct fault_conn *c, struct fault_item *item)
{
    struct fault_item *at = c->waiting.last;

    while (at && at->due > item->due)
        at = at->prev;
    item->prev = at;
    item->next = at ? at->next : c->waiting.first;
    if (item->next)
        item->next->prev = item;
    else
        c->waiting.last = item;
    if (at)
        at->next = item;
    else
        c->waiting.first = item;
    c->queued += sizeof(item->frame) + item->frame.length;
}

int shunt__fault_release(struct fault_conn *c, uint64_t now)
{
    struct fault_item *item;
    int n = 0;

    while ((item = c->waiting.first) != NULL && item->due <= now && c->inner.conn && !c->ending) {
        shunt_status_t st;

        if (item->damage_header) {
            shunt__fault_end(c, "a frame header is damaged (fault script)");
            break;
        }
        c->inner.generation = c->outer->generation; /* the engine may have learned it from the WELCOME */
        st = c->inner.rail->ops->send(&c->inner, &item->frame, item->payload, (uint64_t)(uintptr_t)item);
        if (st == SHUNT_ERR_AGAIN)
            break;
        shunt__fault_remove(&c->waiting, item);
        c->queued -= sizeof(item->frame) + item->frame.length;
        if (st == SHUNT_IN_PROGRESS)
            shunt__fault_append(&c->reading, item);
        else
            free(item);
        n++;
    }
    return n;
}

/* How long this frame takes from here to the wrapped rail. */
static uint64_t due_time(struct fault_conn *c, const struct fault_effects *e, uint32_t length, uint64_t now)
{
    struct fault_rail *f = c->rail;
    uint64_t due = now;

    if (e->rate > 0) {
        if (f->line_free < (double)now)
            f->line_free = (double)now;
        f->line_free += (double)(sizeof(struct shunt__frame) + length) * 8e9 / e->rate;
        due = (uint64_t)f->line_free;
    }
    due += e->delay + (e->jitter ? (uint64_t)(chance(f) * (double)e->jitter) : 0);
    if (happens(f, e->loss))
        due += LOSS_DELAY;
    if (due < c->last_due)
        due = c->last_due;
    c->last_due = due;
    return due;
}

shunt_status_t shunt__fault_queue(struct fault_conn *c, const struct shunt__frame *frame, const void *payload)
{
    struct fault_rail *f = c->rail;
    struct fault_effects e = shunt__fault_effects(f, c->outer);
    uint64_t now = shunt__now();
    int small = frame->length <= SHUNT__SEND_COPIED;
    struct fault_item *item, *twin;

    if (c->queued >= (small ? CONTROL_ROOM : DATA_ROOM) ||
        (!small && e.rate > 0 && f->line_free > (double)(now + LINE_ROOM)) ||
        !(item = shunt__fault_item(c, frame, payload))) {
        c->starved = 1;
        return SHUNT_ERR_AGAIN;
    }
    f->n_sent++;
    item->due = due_time(c, &e, frame->length, now);
    if (expendable(frame)) {
        if (happens(f, e.drop)) {
            free(item);
            return SHUNT_OK;
        }
        if (happens(f, e.duplicate) && (twin = shunt__fault_item(c, frame, payload)) != NULL) {
            twin->due = item->due + (uint64_t)(chance(f) * (double)SHUNT__MS);
            wait_for_it(c, twin);
        }
        if (happens(f, e.corrupt))
            corrupt(f, item);
        if (happens(f, e.reorder))
            item->due += e.delay + SHUNT__MS;
        item->damage_header = (uint8_t)happens(f, e.header);
    }
    wait_for_it(c, item);
    if (!e.blackhole)
        shunt__fault_release(c, now);
    return SHUNT_OK;
}

/* Hands over what was held while in a black hole. Callbacks may end the connection. */
static void let_in(struct fault_conn *c)
{
    const struct shunt__rail_params *p = &c->rail->rail.params;

    while (c->held.first && !c->closed && !c->ending) {
        struct fault_item *item = c->held.first;

        shunt__fault_remove(&c->held, item);
        if ((item->frame.flags & SHUNT__FRAME_CRC) &&
            shunt__crc32c(0, item->payload, item->frame.length) != item->frame.payload_crc)
            p->events->damaged(p->engine, c->outer, &item->frame);
        else
            p->events->frame(p->engine, c->outer, &item->frame, item->payload);
        free(item);
    }
}

static int has_room(struct fault_conn *c, const struct fault_effects *e, uint64_t now)
{
    return c->queued < DATA_ROOM / 2 && !(e->rate > 0 && c->rail->line_free > (double)(now + LINE_ROOM / 2));
}

/* One connection's turn; nonzero when callbacks may have changed the list. */
static int attend(struct fault_conn *c, uint64_t now, int *moved)
{
    const struct shunt__rail_params *p = &c->rail->rail.params;
    struct fault_effects e;

    if (c->ending) {
        struct shunt__link *outer = c->outer;
        const char *why = c->why;

        c->rail->ops.disconnect(outer);
        p->events->down(p->engine, outer, SHUNT_ERR_RAIL, why);
        return 1;
    }
    if (!c->up || (!c->waiting.first && !c->held.first && !c->starved))
        return 0;
    e = shunt__fault_effects(c->rail, c->outer);
    if (e.blackhole)
        return 0;
    if (c->held.first) {
        let_in(c);
        return 1;
    }
    *moved += shunt__fault_release(c, now);
    if (c->ending)
        return attend(c, now, moved);
    if (c->starved && has_room(c, &e, now)) {
        c->starved = 0;
        p->events->writable(p->engine, c->outer);
        return 1;
    }
    return 0;
}

int shunt__fault_play(struct fault_rail *f)
{
    uint64_t now = shunt__now();
    int moved = 0;

    if (f->depth)
        return 0; /* from inside a callback: the outer call goes on */
    shunt__fault_enter(f);
    run_script(f, now);
    for (struct fault_conn *c = f->conns; c;)
        c = attend(c, now, &moved) ? f->conns : c->next;
    shunt__fault_leave(f);
    return moved;
}

uint64_t shunt__fault_due(struct fault_rail *f)
{
    uint64_t due = UINT64_MAX, now = shunt__now();

    for (int i = f->next_event; i < f->script.n; i++) {
        const struct shunt__fault_event *e = &f->script.events[i];
        if (e->action == SHUNT__FAULT_ACTIONS)
            continue;
        if (!e->count) {
            due = f->opened + e->at;
            break;
        }
        if (f->n_sent >= e->count)
            return now;
    }
    for (struct fault_conn *c = f->conns; c; c = c->next) {
        struct fault_effects e;

        if (c->ending)
            return now;
        if (!c->waiting.first && !c->held.first && !c->starved)
            continue;
        e = shunt__fault_effects(f, c->outer);
        if (e.blackhole)
            continue;
        if (c->held.first)
            return now;
        if (c->waiting.first && c->waiting.first->due > now && c->waiting.first->due < due)
            due = c->waiting.first->due;
        /* What is due and still waits, waits for the wrapped rail's writable. */
        if (c->starved && e.rate > 0 && c->queued < DATA_ROOM / 2 && c->rail->line_free - LINE_ROOM / 2 < (double)due)
            due = (uint64_t)(c->rail->line_free - LINE_ROOM / 2) + 1;
    }
    return due;
}
