/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/boot/link.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/base/clock.h"

#define LENGTH_BYTES 4

void shunt__boot_link_close(struct shunt__boot_link *link, enum shunt__boot_link_end end, int err)
{
    if (link->state == SHUNT__BOOT_CLOSED)
        return;
    close(link->fd);
    free(link->in);
    free(link->out);
    sodium_memzero(&link->session, sizeof(link->session));
    link->fd = link->polled = -1;
    link->in = link->out = NULL;
    link->in_len = link->in_used = link->in_cap = link->out_len = link->out_done = link->out_cap = 0;
    link->state = SHUNT__BOOT_CLOSED;
    link->end = end;
    link->err = err;
}

static void begin(struct shunt__boot_link *link, const struct shunt__boot_secret *secret,
                  enum shunt__boot_purpose purpose)
{
    memset(link, 0, sizeof(*link));
    link->fd = link->polled = -1;
    link->secret = secret;
    link->purpose = purpose;
    link->since = shunt__now();
    randombytes_buf(link->random, sizeof(link->random));
}

static void note_local(struct shunt__boot_link *link)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    int yes = 1;

    setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if (getsockname(link->fd, (struct sockaddr *)&sa, &len) == 0)
        shunt__boot_address_from(&sa, &link->local);
}

/* Handshake bytes go out in one piece: a fresh socket has room for them. */
static int send_now(struct shunt__boot_link *link, const void *bytes, size_t n)
{
    ssize_t sent;

    do
        sent = send(link->fd, bytes, n, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent != (ssize_t)n) {
        shunt__boot_link_close(link, SHUNT__BOOT_END_GONE, sent < 0 ? errno : 0);
        return -1;
    }
    link->bytes_out += n;
    return 0;
}

static void connected(struct shunt__boot_link *link)
{
    unsigned char hello[SHUNT__BOOT_HELLO_BYTES];

    note_local(link);
    /* A port of the ephemeral range where nobody listens can be connected to itself. */
    if (shunt__boot_address_same_ip(&link->local, &link->peer) && link->local.port == link->peer.port) {
        shunt__boot_link_close(link, SHUNT__BOOT_END_REFUSED, ECONNREFUSED);
        return;
    }
    link->state = SHUNT__BOOT_HELLO;
    shunt__boot_hello_make(link->secret, link->purpose, link->random, hello);
    send_now(link, hello, sizeof(hello));
}

void shunt__boot_link_connect(struct shunt__boot_link *link, const struct shunt__boot_address *to,
                              const struct shunt__boot_secret *secret, enum shunt__boot_purpose purpose)
{
    struct sockaddr_storage sa;
    socklen_t len = shunt__boot_address_to(to, &sa);

    begin(link, secret, purpose);
    link->peer = *to;
    link->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0) {
        link->err = errno;
        link->end = link->err == EAFNOSUPPORT ? SHUNT__BOOT_END_REFUSED : SHUNT__BOOT_END_RESOURCE;
        return;
    }
    link->state = SHUNT__BOOT_CONNECTING;
    if (connect(link->fd, (struct sockaddr *)&sa, len) == 0)
        connected(link);
    else if (errno != EINPROGRESS && errno != EINTR)
        shunt__boot_link_close(link, SHUNT__BOOT_END_REFUSED, errno);
}

void shunt__boot_link_accept(struct shunt__boot_link *link, int fd, const struct shunt__boot_secret *secret,
                             enum shunt__boot_purpose purpose)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);

    begin(link, secret, purpose);
    link->fd = fd;
    link->state = SHUNT__BOOT_GREETING;
    if (getpeername(fd, (struct sockaddr *)&sa, &len) != 0 || shunt__boot_address_from(&sa, &link->peer) != 0) {
        shunt__boot_link_close(link, SHUNT__BOOT_END_GONE, errno);
        return;
    }
    note_local(link);
}

void shunt__boot_link_poll(struct shunt__boot_link *link, struct shunt__boot_polls *polls, int read)
{
    short events = 0;

    link->polled = -1;
    if (link->state == SHUNT__BOOT_CLOSED)
        return;
    if (link->state == SHUNT__BOOT_CONNECTING)
        events = POLLOUT;
    else
        events = (short)((read ? POLLIN : 0) | (shunt__boot_link_unsent(link) ? POLLOUT : 0));
    if (events)
        link->polled = shunt__boot_polls_add(polls, link->fd, events);
}

static void flush(struct shunt__boot_link *link)
{
    while (link->state == SHUNT__BOOT_OPEN && link->out_done < link->out_len) {
        ssize_t n = send(link->fd, link->out + link->out_done, link->out_len - link->out_done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM))
            return;
        if (n < 0) {
            /* What the other side said before it went may still lie here unread; reading finds the end. */
            link->out_len = link->out_done = 0;
            return;
        }
        link->out_done += (size_t)n;
        link->bytes_out += (uint64_t)n;
    }
    link->out_len = link->out_done = 0;
}

/* Server: the hello is whole. */
static void greet(struct shunt__boot_link *link, const unsigned char *hello)
{
    enum shunt__boot_verdict verdict = shunt__boot_hello_check(link->secret, link->purpose, hello);
    unsigned char welcome[SHUNT__BOOT_WELCOME_BYTES];

    if (verdict == SHUNT__BOOT_FINE) {
        shunt__boot_welcome_make(link->secret, hello, link->random, welcome, &link->session);
        link->state = SHUNT__BOOT_OPEN;
        send_now(link, welcome, sizeof(welcome));
        return;
    }
    if (verdict != SHUNT__BOOT_GARBAGE) {
        shunt__boot_welcome_refuse(verdict, welcome);
        if (send_now(link, welcome, sizeof(welcome)) != 0)
            return;
    }
    shunt__boot_link_close(link, verdict == SHUNT__BOOT_BAD_KEY       ? SHUNT__BOOT_END_KEY
                                 : verdict == SHUNT__BOOT_BAD_VERSION ? SHUNT__BOOT_END_VERSION
                                                                      : SHUNT__BOOT_END_GARBAGE, 0);
}

/* Client: the answer is whole. */
static void welcomed(struct shunt__boot_link *link, const unsigned char *welcome)
{
    switch (shunt__boot_welcome_check(link->secret, link->purpose, link->random, welcome, &link->session)) {
    case SHUNT__BOOT_FINE:
        link->state = SHUNT__BOOT_OPEN;
        break;
    case SHUNT__BOOT_BAD_KEY:
        shunt__boot_link_close(link, SHUNT__BOOT_END_KEY, 0);
        break;
    case SHUNT__BOOT_BAD_VERSION:
        shunt__boot_link_close(link, SHUNT__BOOT_END_VERSION, 0);
        break;
    case SHUNT__BOOT_GARBAGE:
        shunt__boot_link_close(link, SHUNT__BOOT_END_GARBAGE, 0);
        break;
    }
}

static unsigned char *in_bytes(struct shunt__boot_link *link)
{
    return link->in ? link->in : link->small;
}

/* Handles handshake bytes that have come in. */
static void handshake(struct shunt__boot_link *link)
{
    unsigned char *in = in_bytes(link);
    size_t want = link->state == SHUNT__BOOT_GREETING ? SHUNT__BOOT_HELLO_BYTES : SHUNT__BOOT_WELCOME_BYTES;

    if (link->state == SHUNT__BOOT_GREETING && !shunt__boot_hello_possible(in, link->in_len)) {
        shunt__boot_link_close(link, SHUNT__BOOT_END_GARBAGE, 0);
        return;
    }
    if (link->in_len < want)
        return;
    link->in_used = want;
    if (link->state == SHUNT__BOOT_GREETING)
        greet(link, in);
    else
        welcomed(link, in);
}

/* Room for what comes next: the frame whose length is known, or a little. Nonzero: the link was closed. */
static int make_room(struct shunt__boot_link *link)
{
    unsigned char *in = in_bytes(link);
    size_t cap = link->in ? link->in_cap : sizeof(link->small), want = LENGTH_BYTES;
    uint32_t n;

    if (link->in_used > 0) {
        memmove(in, in + link->in_used, link->in_len - link->in_used);
        link->in_len -= link->in_used;
        link->in_used = 0;
    }
    if (link->state == SHUNT__BOOT_OPEN && link->in_len >= LENGTH_BYTES) {
        memcpy(&n, in, LENGTH_BYTES);
        want = LENGTH_BYTES + (size_t)n;
    }
    if (want <= cap)
        return 0;
    link->in = realloc(link->in, want); /* only trusted links get here, with a length that next() has checked */
    if (!link->in) {
        shunt__boot_link_close(link, SHUNT__BOOT_END_RESOURCE, ENOMEM);
        return -1;
    }
    if (in == link->small)
        memcpy(link->in, link->small, link->in_len);
    link->in_cap = want;
    return 0;
}

/* Whether the length in front of the bytes that are there is one that may be. */
static int length_allowed(const struct shunt__boot_link *link, uint32_t n)
{
    size_t most = link->trusted ? SHUNT__BOOT_MAX_MESSAGE : SHUNT__BOOT_MAX_FIRST;

    return n > SHUNT__BOOT_SEAL_BYTES && n <= most + SHUNT__BOOT_SEAL_BYTES;
}

static int check_length(struct shunt__boot_link *link)
{
    uint32_t n;

    if (link->state != SHUNT__BOOT_OPEN || link->in_len - link->in_used < LENGTH_BYTES)
        return 0;
    memcpy(&n, in_bytes(link) + link->in_used, LENGTH_BYTES);
    if (length_allowed(link, n))
        return 0;
    shunt__boot_link_close(link, SHUNT__BOOT_END_GARBAGE, 0);
    return -1;
}

/* A whole message lies in the buffer. It is taken out before more is read: an end that follows must not hide it. */
static int whole(const struct shunt__boot_link *link)
{
    uint32_t n;
    const unsigned char *in = link->in ? link->in : link->small;

    if (link->state != SHUNT__BOOT_OPEN || link->in_len - link->in_used < LENGTH_BYTES)
        return 0;
    memcpy(&n, in + link->in_used, LENGTH_BYTES);
    return link->in_len - link->in_used - LENGTH_BYTES >= n;
}

static void fill(struct shunt__boot_link *link)
{
    for (;;) {
        size_t cap;
        ssize_t n;

        if (check_length(link) != 0 || make_room(link) != 0)
            return;
        cap = link->in ? link->in_cap : sizeof(link->small);
        if (link->in_len == cap)
            return;
        n = recv(link->fd, in_bytes(link) + link->in_len, cap - link->in_len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            shunt__boot_link_close(link, SHUNT__BOOT_END_GONE, n < 0 ? errno : 0);
            return;
        }
        link->in_len += (size_t)n;
        link->bytes_in += (uint64_t)n;
        if (link->state == SHUNT__BOOT_GREETING || link->state == SHUNT__BOOT_HELLO)
            handshake(link);
        if (link->state == SHUNT__BOOT_CLOSED || whole(link))
            return;
    }
}

void shunt__boot_link_progress(struct shunt__boot_link *link, const struct shunt__boot_polls *polls)
{
    short ready = link->polled >= 0 && link->polled < polls->n ? polls->fd[link->polled].revents : 0;
    int err = 0;
    socklen_t len = sizeof(err);

    if (link->state == SHUNT__BOOT_CLOSED || !ready)
        return;
    if (link->state == SHUNT__BOOT_CONNECTING) {
        if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
            err = errno;
        if (err)
            shunt__boot_link_close(link, SHUNT__BOOT_END_REFUSED, err);
        else
            connected(link);
        return;
    }
    if (ready & (POLLOUT | POLLERR | POLLHUP))
        flush(link);
    if ((ready & (POLLIN | POLLERR | POLLHUP)) && !whole(link))
        fill(link);
}

void shunt__boot_link_trust(struct shunt__boot_link *link)
{
    link->trusted = 1;
}

int shunt__boot_link_next(struct shunt__boot_link *link, unsigned char **message, size_t *len)
{
    unsigned char *box;
    uint32_t n;

    if (check_length(link) != 0 || !whole(link))
        return 0;
    box = in_bytes(link) + link->in_used;
    memcpy(&n, box, LENGTH_BYTES);
    box += LENGTH_BYTES;
    link->in_used += LENGTH_BYTES + (size_t)n;
    if (shunt__boot_unseal(&link->session, box, n) != 0) {
        shunt__boot_link_close(link, SHUNT__BOOT_END_GARBAGE, 0);
        return 0;
    }
    *message = box;
    *len = n - SHUNT__BOOT_SEAL_BYTES;
    return 1;
}

void shunt__boot_link_send(struct shunt__boot_link *link, const void *message, size_t len)
{
    uint32_t n = (uint32_t)len + SHUNT__BOOT_SEAL_BYTES;
    size_t need = link->out_len + LENGTH_BYTES + n;

    if (link->state != SHUNT__BOOT_OPEN)
        return;
    if (need > link->out_cap) {
        unsigned char *more = realloc(link->out, 2 * need);
        if (!more) {
            shunt__boot_link_close(link, SHUNT__BOOT_END_RESOURCE, ENOMEM);
            return;
        }
        link->out = more;
        link->out_cap = 2 * need;
    }
    memcpy(link->out + link->out_len, &n, LENGTH_BYTES);
    shunt__boot_seal(&link->session, message, len, link->out + link->out_len + LENGTH_BYTES);
    link->out_len = need;
    flush(link);
}

void shunt__boot_links_finish(struct shunt__boot_link *const *links, int n, int ms)
{
    uint64_t until = shunt__now() + (uint64_t)ms * SHUNT__MS;
    struct shunt__boot_polls polls = {0};

    for (;;) {
        uint64_t now = shunt__now();

        polls.n = 0;
        for (int i = 0; i < n; i++) {
            if (links[i]->state != SHUNT__BOOT_OPEN)
                shunt__boot_link_close(links[i], SHUNT__BOOT_END_CLOSED, 0);
            else if (shunt__boot_link_unsent(links[i]) == 0)
                shutdown(links[i]->fd, SHUT_WR);
            shunt__boot_link_poll(links[i], &polls, 1);
        }
        if (polls.n == 0 || now >= until)
            break;
        shunt__boot_polls_wait(&polls, (int)((until - now) / SHUNT__MS) + 1);
        for (int i = 0; i < n; i++) {
            unsigned char *message;
            size_t len;

            shunt__boot_link_progress(links[i], &polls);
            while (shunt__boot_link_next(links[i], &message, &len)) {
            }
        }
    }
    for (int i = 0; i < n; i++)
        shunt__boot_link_close(links[i], SHUNT__BOOT_END_CLOSED, 0);
    shunt__boot_polls_free(&polls);
}

const char *shunt__boot_link_why(const struct shunt__boot_link *link, char *text, size_t size)
{
    char reason[100] = "";

    if (link->err)
        snprintf(text, size, "%s", strerror_r(link->err, reason, sizeof(reason)));
    else
        switch (link->end) {
        case SHUNT__BOOT_END_NONE: snprintf(text, size, "no answer yet"); break;
        case SHUNT__BOOT_END_REFUSED: snprintf(text, size, "connection refused"); break;
        case SHUNT__BOOT_END_GONE: snprintf(text, size, "the other side closed the connection"); break;
        case SHUNT__BOOT_END_KEY: snprintf(text, size, "another job answers there"); break;
        case SHUNT__BOOT_END_VERSION: snprintf(text, size, "another version of Shunt answers there"); break;
        case SHUNT__BOOT_END_GARBAGE: snprintf(text, size, "something else than Shunt answers there"); break;
        case SHUNT__BOOT_END_RESOURCE: snprintf(text, size, "out of memory"); break;
        case SHUNT__BOOT_END_CLOSED: snprintf(text, size, "closed"); break;
        }
    return text;
}
