/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of frames that go out on one connection.
 *
 * Large frames are written at once if the kernel takes them, so that their payload need not be kept; small ones
 * wait for progress() and leave together, many in one sendmsg. send() never calls back: what it finds out (frames
 * finished, the connection broken) waits on the dirty list.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include "comm/rail/sock.h"

#define SLAB 32            /* queue entries made at a time */
#define GATHER 32          /* frames in one sendmsg */
#define WRITE_AT 65536     /* bytes waiting that are worth a system call at once */
#define DATA_ROOM (512u << 10)
#define CONTROL_ROOM (4u << 20) /* control frames must get through while data waits */

static struct sock_out *take_out(struct sock_rail *rail)
{
    struct sock_out *o = rail->free_outs;

    if (!o) {
        o = malloc(sizeof(*o));
        if (!o)
            return NULL;
    } else
        rail->free_outs = o->next;
    o->next = NULL;
    o->copy = NULL;
    o->payload = NULL;
    o->done = 0;
    o->notify = 0;
    o->detached = 0;
    return o;
}

static void give_out(struct sock_rail *rail, struct sock_out *o)
{
    if (o->detached)
        free(o->copy);
    else if (o->copy) {
        *(void **)o->copy = rail->free_blocks;
        rail->free_blocks = o->copy;
    }
    o->next = rail->free_outs;
    rail->free_outs = o;
}

void shunt__sock_pool_free(struct sock_rail *rail)
{
    while (rail->free_outs) {
        struct sock_out *o = rail->free_outs;
        rail->free_outs = o->next;
        free(o);
    }
    while (rail->free_blocks) {
        void *b = rail->free_blocks;
        rail->free_blocks = *(void **)b;
        free(b);
    }
    while (rail->free_buffers) {
        struct sock_buffer *b = rail->free_buffers;
        rail->free_buffers = b->next;
        free(b);
    }
}

/* Keeps a small payload with its entry. */
static int copy_payload(struct sock_rail *rail, struct sock_out *o, const void *payload, uint32_t len)
{
    char *to = o->inline_payload;

    if (len > SOCK_INLINE) {
        to = o->copy = rail->free_blocks;
        if (to)
            rail->free_blocks = *(void **)to;
        else
            to = o->copy = malloc(SOCK_BLOCK);
        if (!to)
            return -1;
    }
    if (len)
        memcpy(to, payload, len);
    o->payload = to;
    return 0;
}

static void append(struct sock_conn *c, struct sock_out *o)
{
    if (c->tail)
        c->tail->next = o;
    else
        c->head = o;
    c->tail = o;
    c->queued += sizeof(o->frame) + o->frame.length;
}

int shunt__sock_control(struct sock_conn *c, enum shunt__frame_type type, const void *payload, size_t len)
{
    struct sock_out *o = take_out(c->rail);

    if (!o)
        return -1;
    memset(&o->frame, 0, sizeof(o->frame));
    o->frame.type = (uint8_t)type;
    o->frame.length = (uint32_t)len;
    shunt__frame_seal(&c->rail->rail, c->link, &o->frame, payload);
    if (copy_payload(c->rail, o, payload, (uint32_t)len)) {
        give_out(c->rail, o);
        return -1;
    }
    append(c, o);
    shunt__sock_mark(c);
    return 0;
}

shunt_status_t shunt__sock_send(struct shunt__link *link, const struct shunt__frame *frame, const void *payload,
                                uint64_t ref)
{
    struct sock_conn *c = link->conn;
    int small = frame->length <= SHUNT__SEND_COPIED;
    struct sock_out *o;

    if (!c || c->state != SOCK_UP || c->failed)
        return SHUNT_ERR_AGAIN;
    if (c->queued >= (small ? CONTROL_ROOM : DATA_ROOM) || !(o = take_out(c->rail))) {
        c->starved = 1;
        shunt__sock_mark(c);
        return SHUNT_ERR_AGAIN;
    }
    o->frame = *frame;
    o->ref = ref;
    o->payload = payload;
    shunt__frame_seal(&c->rail->rail, link, &o->frame, payload);
    if (small && copy_payload(c->rail, o, payload, frame->length)) {
        give_out(c->rail, o);
        return SHUNT_ERR_AGAIN;
    }
    append(c, o);
    shunt__sock_mark(c);
    if (!c->blocked && c->queued >= WRITE_AT)
        shunt__sock_flush(c);
    if (small || !c->head)
        return SHUNT_OK;
    o->notify = 1; /* still in the queue: it is the last one */
    return SHUNT_IN_PROGRESS;
}

/* Takes `n` bytes that the kernel has accepted off the queue; frames finished. */
static int advance(struct sock_conn *c, size_t n)
{
    int finished = 0;

    c->queued -= n;
    while (n) {
        struct sock_out *o = c->head;
        size_t left = sizeof(o->frame) + o->frame.length - o->done;

        if (n < left) {
            o->done += (uint32_t)n;
            break;
        }
        n -= left;
        finished++;
        c->head = o->next;
        if (!c->head)
            c->tail = NULL;
        o->next = NULL;
        if (o->notify) {
            *c->done_end = o;
            c->done_end = &o->next;
        } else
            give_out(c->rail, o);
    }
    return finished;
}

static int gather(struct sock_conn *c, struct iovec *iov, size_t *bytes)
{
    int n = 0, frames = 0;

    *bytes = 0;
    for (struct sock_out *o = c->head; o && frames < GATHER; o = o->next, frames++) {
        uint32_t header = sizeof(o->frame), skip = o->done > header ? o->done - header : 0;

        if (o->done < header) {
            iov[n].iov_base = (char *)&o->frame + o->done;
            iov[n++].iov_len = header - o->done;
            *bytes += header - o->done;
        }
        if (o->frame.length > skip) {
            iov[n].iov_base = (char *)(uintptr_t)o->payload + skip;
            iov[n++].iov_len = o->frame.length - skip;
            *bytes += o->frame.length - skip;
        }
    }
    return n;
}

static void block(struct sock_conn *c)
{
    c->blocked = 1;
    shunt__poller_change(c->rail->rail.params.poller, &c->pollable, EPOLLIN | EPOLLOUT);
}

int shunt__sock_flush(struct sock_conn *c)
{
    struct iovec iov[2 * GATHER];
    struct msghdr msg = {.msg_iov = iov};
    char reason[100];
    size_t bytes;
    int finished = 0;
    ssize_t n;

    while (c->head && !c->blocked && !c->failed && c->state >= SOCK_STRANGER) {
        msg.msg_iovlen = (size_t)gather(c, iov, &bytes);
        n = sendmsg(c->pollable.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) {
            block(c);
            break;
        }
        if (n < 0) {
            shunt__sock_fail(c, SHUNT_ERR_RAIL, "can't write: %s", strerror_r(errno, reason, sizeof(reason)));
            break;
        }
        c->watched = 1;
        finished += advance(c, (size_t)n);
        if ((size_t)n < bytes)
            block(c);
    }
    return finished;
}

void shunt__sock_report(struct sock_conn *c)
{
    struct sock_rail *rail = c->rail;
    const struct shunt__rail_params *p = &rail->rail.params;

    while (c->state == SOCK_UP && !c->failed && c->done) {
        struct sock_out *o = c->done;
        uint64_t ref = o->ref;

        c->done = o->next;
        if (!c->done)
            c->done_end = &c->done;
        give_out(rail, o);
        p->events->sent(p->engine, c->link, ref);
    }
    if (c->state == SOCK_UP && !c->failed && c->starved && c->queued < DATA_ROOM / 2) {
        c->starved = 0;
        p->events->writable(p->engine, c->link);
    }
}

void shunt__sock_detach(struct shunt__link *link, uint64_t ref)
{
    struct sock_conn *c = link->conn;
    struct sock_out *o, **at;
    char *copy;

    if (!c)
        return;
    for (at = &c->done; (o = *at) != NULL; at = &o->next)
        if (o->ref == ref) {
            *at = o->next;
            if (!o->next)
                c->done_end = at;
            give_out(c->rail, o);
            return;
        }
    for (o = c->head; o && !(o->notify && o->ref == ref);)
        o = o->next;
    if (!o)
        return;
    copy = malloc(o->frame.length);
    if (!copy) {
        /* The frame can't be finished, so the stream can't go on: the caller must have its memory back. */
        shunt__sock_drop_queue(c);
        shunt__sock_fail(c, SHUNT_ERR_NO_MEMORY, "no memory to take over a payload");
        return;
    }
    memcpy(copy, o->payload, o->frame.length);
    o->payload = o->copy = copy;
    o->detached = 1;
    o->notify = 0;
}

void shunt__sock_drop_queue(struct sock_conn *c)
{
    struct sock_out *o;

    while ((o = c->head) != NULL) {
        c->head = o->next;
        give_out(c->rail, o);
    }
    c->tail = NULL;
    while ((o = c->done) != NULL) {
        c->done = o->next;
        give_out(c->rail, o);
    }
    c->done_end = &c->done;
    c->queued = 0;
}
