/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stream of frames that comes in on one connection.
 *
 * One readv fills what is missing of the payload in hand, in landing memory, and goes on into the rail's scratch
 * memory, from where whole frames are handed over in place. After a large payload the part that goes to scratch is
 * kept short, so that most of the next one needs no second copy.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "comm/base/crc32c.h"
#include "comm/rail/sock.h"

#define READS 8              /* of one conn before others have their turn */
#define LARGE (32u << 10)    /* payloads from here on should land directly */
#define AHEAD (4u << 10)     /* bytes read behind a large payload */
#define SPARE_BUFFERS 16

static struct sock_buffer *take_buffer(struct sock_rail *rail, uint32_t size)
{
    struct sock_buffer **at, *b;

    for (at = &rail->free_buffers; (b = *at) != NULL; at = &b->next)
        if (b->size >= size) {
            *at = b->next;
            rail->n_free_buffers--;
            return b;
        }
    size = (size + 4095) & ~4095u;
    b = aligned_alloc(64, sizeof(*b) + size);
    if (b)
        b->size = size;
    return b;
}

void shunt__sock_drop_payload(struct sock_conn *c)
{
    struct sock_rail *rail = c->rail;

    if (c->own && rail->n_free_buffers < SPARE_BUFFERS) {
        c->own->next = rail->free_buffers;
        rail->free_buffers = c->own;
        rail->n_free_buffers++;
    } else
        free(c->own);
    c->own = NULL;
    c->payload = NULL;
}

void shunt__sock_redirect(struct shunt__link *link)
{
    struct sock_conn *c = link->conn;
    struct sock_buffer *b;

    if (!c || !c->payload || c->own)
        return;
    b = take_buffer(c->rail, c->header.length);
    if (!b) {
        c->payload = NULL;
        shunt__sock_fail(c, SHUNT_ERR_NO_MEMORY, "no memory for a payload of %u bytes", c->header.length);
        return;
    }
    memcpy(b->data, c->payload, c->payload_have);
    c->payload = b->data;
    c->own = b;
}

/* Only what this version writes, and in its place, may pass: a damaged stream has no next frame to look for. */
static int header_fits(struct sock_conn *c)
{
    const struct shunt__frame *f = &c->header;

    if (!shunt__frame_valid(&c->rail->rail, f))
        shunt__sock_fail(c, SHUNT_ERR_RAIL, "a frame header is damaged");
    else if ((f->type == SHUNT__FRAME_WELCOME) != (c->state == SOCK_GREETING) || f->type == SHUNT__FRAME_HELLO)
        shunt__sock_fail(c, SHUNT_ERR_RAIL, "a frame of type %d came out of turn", f->type);
    return !c->failed;
}

/* Finds a place for a payload that has not arrived as a whole. */
static int place_payload(struct sock_conn *c)
{
    const struct shunt__rail_params *p = &c->rail->rail.params;

    c->payload = NULL;
    c->payload_have = 0;
    c->crc = 0;
    if (c->state == SOCK_UP && c->header.type == SHUNT__FRAME_DATA)
        c->payload = p->events->land(p->engine, c->link, &c->header);
    if (c->state == SOCK_CLOSED)
        return -1;
    if (c->payload)
        return 0;
    c->own = take_buffer(c->rail, c->header.length);
    if (!c->own) {
        shunt__sock_fail(c, SHUNT_ERR_NO_MEMORY, "no memory for a payload of %u bytes", c->header.length);
        return -1;
    }
    c->payload = c->own->data;
    return 0;
}

/* A whole frame is there. Afterwards the conn may be closed. */
static void deliver(struct sock_conn *c, const char *payload, uint32_t crc)
{
    const struct shunt__rail_params *p = &c->rail->rail.params;
    struct shunt__frame frame = c->header; /* callbacks may close the conn and read on */
    struct sock_buffer *own = c->own;
    int damaged = (frame.flags & SHUNT__FRAME_CRC) && crc != frame.payload_crc;

    c->header_have = 0;
    c->payload = NULL;
    c->own = NULL;
    if (c->state == SOCK_GREETING) {
        if (damaged)
            shunt__sock_fail(c, SHUNT_ERR_RAIL, "the WELCOME is damaged");
        else if (p->events->welcome(p->engine, c->link, payload, frame.length))
            shunt__sock_fail(c, SHUNT_ERR_AUTH, "the WELCOME was not accepted");
        else if (c->state != SOCK_CLOSED) {
            c->state = SOCK_UP;
            c->deadline = 0;
            p->events->established(p->engine, c->link);
        }
    } else if (damaged)
        p->events->damaged(p->engine, c->link, &frame);
    else
        p->events->frame(p->engine, c->link, &frame, payload);
    if (own) {
        c->own = own;
        shunt__sock_drop_payload(c);
    }
}

/* Goes through `n` bytes of the stream at `data`. */
static void parse(struct sock_conn *c, const char *data, size_t n)
{
    while (n && !c->failed && c->state != SOCK_CLOSED) {
        size_t take;

        if (!c->payload) {
            take = sizeof(c->header) - c->header_have;
            take = take < n ? take : n;
            memcpy((char *)&c->header + c->header_have, data, take);
            c->header_have += (uint32_t)take;
            data += take;
            n -= take;
            if (c->header_have < sizeof(c->header) || !header_fits(c))
                return;
            if (n >= c->header.length) {
                take = c->header.length;
                deliver(c, data, c->header.flags & SHUNT__FRAME_CRC ? shunt__crc32c(0, data, take) : 0);
                data += take;
                n -= take;
                continue;
            }
            if (place_payload(c))
                return;
        }
        take = c->header.length - c->payload_have;
        take = take < n ? take : n;
        memcpy(c->payload + c->payload_have, data, take);
        if (c->header.flags & SHUNT__FRAME_CRC)
            c->crc = shunt__crc32c(c->crc, data, take);
        c->payload_have += (uint32_t)take;
        data += take;
        n -= take;
        if (c->payload_have == c->header.length)
            deliver(c, c->payload, c->crc);
    }
}

/* `n` bytes have been read into the payload in hand and, behind it, into scratch memory. */
static void took(struct sock_conn *c, size_t n)
{
    size_t into = c->payload ? c->header.length - c->payload_have : 0;

    into = into < n ? into : n;
    if (into) {
        if (c->header.flags & SHUNT__FRAME_CRC)
            c->crc = shunt__crc32c(c->crc, c->payload + c->payload_have, into);
        c->payload_have += (uint32_t)into;
        if (c->payload_have == c->header.length)
            deliver(c, c->payload, c->crc);
    }
    parse(c, c->rail->scratch, n - into);
}

void shunt__sock_read(struct sock_conn *c)
{
    char reason[100];

    for (int i = 0; i < READS && !c->failed && c->state != SOCK_CLOSED; i++) {
        struct iovec iov[2];
        int parts = 0;
        size_t want = 0;
        ssize_t n;

        if (c->payload) {
            iov[parts].iov_base = c->payload + c->payload_have;
            want = iov[parts++].iov_len = c->header.length - c->payload_have;
        }
        iov[parts].iov_base = c->rail->scratch;
        iov[parts].iov_len = c->header.length >= LARGE && c->header.type == SHUNT__FRAME_DATA ? AHEAD : SOCK_SCRATCH;
        want += iov[parts++].iov_len;
        n = readv(c->pollable.fd, iov, parts);
        if (n > 0) {
            took(c, (size_t)n);
            if ((size_t)n < want)
                return;
        } else if (n == 0) {
            shunt__sock_fail(c, SHUNT_ERR_RAIL, "closed by the other side");
        } else if (errno == EAGAIN) {
            return;
        } else if (errno == ECONNRESET || errno == EPIPE) {
            shunt__sock_fail(c, SHUNT_ERR_RAIL, "closed by the other side (reset)");
        } else if (errno != EINTR) {
            shunt__sock_fail(c, SHUNT_ERR_RAIL, "can't read: %s", strerror_r(errno, reason, sizeof(reason)));
        }
    }
}

void shunt__sock_read_stranger(struct sock_conn *c)
{
    const struct shunt__frame *f = &c->header;

    for (;;) {
        uint32_t header = sizeof(c->header), have = c->header_have;
        char *to = have < header ? (char *)&c->header + have : (char *)c->hello + (have - header);
        size_t want = have < header ? header - have : header + f->length - have;
        ssize_t n = recv(c->pollable.fd, to, want, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            shunt__sock_fail(c, SHUNT_ERR_AUTH, "it ended before its HELLO");
            break;
        }
        c->header_have += (uint32_t)n;
        if ((c->header_have >= 2 && f->magic != SHUNT__FRAME_MAGIC) ||
            (have < header && c->header_have >= header &&
             (!shunt__frame_valid(&c->rail->rail, f) || f->type != SHUNT__FRAME_HELLO || f->length == 0))) {
            shunt__sock_fail(c, SHUNT_ERR_AUTH, "it does not begin with a HELLO");
            break;
        }
        if (c->header_have >= header && c->header_have == header + f->length) {
            if ((f->flags & SHUNT__FRAME_CRC) && shunt__crc32c(0, c->hello, f->length) != f->payload_crc)
                shunt__sock_fail(c, SHUNT_ERR_AUTH, "its HELLO is damaged");
            else
                shunt__sock_greet(c);
            break;
        }
    }
    shunt__sock_settle(c);
}
