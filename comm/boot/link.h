/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One connection of the bootstrap: a non-blocking socket, its handshake, its sealed frames.
 *
 *     connect() ──► CONNECTING ──► HELLO (said ours, await the welcome) ──► OPEN
 *     accept()  ──► GREETING (await the hello) ──────────────────────────► OPEN
 *     any of them ──► CLOSED with `end` and `why`
 *
 * Until shunt__boot_link_trust() a link takes at most SHUNT__BOOT_STRANGER_BYTES and allocates nothing.
 */
#ifndef SHUNT_BOOT_LINK_H
#define SHUNT_BOOT_LINK_H

#include "comm/boot/message.h"
#include "comm/boot/net.h"
#include "comm/boot/secure.h"

#define SHUNT__BOOT_STRANGER_BYTES 512

enum shunt__boot_link_state {
    SHUNT__BOOT_CLOSED,
    SHUNT__BOOT_CONNECTING,
    SHUNT__BOOT_HELLO,
    SHUNT__BOOT_GREETING,
    SHUNT__BOOT_OPEN
};

enum shunt__boot_link_end {
    SHUNT__BOOT_END_NONE,
    SHUNT__BOOT_END_REFUSED,  /* nobody could be reached there: `err` */
    SHUNT__BOOT_END_GONE,     /* the other side closed or was lost */
    SHUNT__BOOT_END_KEY,      /* the other side is of another meeting */
    SHUNT__BOOT_END_VERSION,
    SHUNT__BOOT_END_GARBAGE,  /* what came was not ours */
    SHUNT__BOOT_END_RESOURCE, /* no descriptor or no memory here: `err` */
    SHUNT__BOOT_END_CLOSED    /* by us */
};

struct shunt__boot_link {
    enum shunt__boot_link_state state;
    enum shunt__boot_link_end end;
    int err;
    int fd;
    int polled;  /* index in the poll set, -1: not in it */
    int trusted;
    uint64_t since; /* when it was connected or accepted */
    enum shunt__boot_purpose purpose;
    const struct shunt__boot_secret *secret;
    struct shunt__boot_session session;
    struct shunt__boot_address peer, local;
    unsigned char random[SHUNT__BOOT_RANDOM_BYTES];
    uint64_t bytes_in, bytes_out;
    /* in: `in_used` bytes of the front are done with */
    unsigned char small[SHUNT__BOOT_STRANGER_BYTES];
    unsigned char *in; /* NULL: small */
    size_t in_len, in_used, in_cap;
    unsigned char *out;
    size_t out_len, out_done, out_cap;
};

/* Both leave `link` CLOSED when they fail. `secret` must outlive the link. */
void shunt__boot_link_connect(struct shunt__boot_link *link, const struct shunt__boot_address *to,
                              const struct shunt__boot_secret *secret, enum shunt__boot_purpose purpose);
/* Takes over the accepted `fd`. */
void shunt__boot_link_accept(struct shunt__boot_link *link, int fd, const struct shunt__boot_secret *secret,
                             enum shunt__boot_purpose purpose);
/* Puts it into the set, for reading only if `read` (writing whenever something waits). */
void shunt__boot_link_poll(struct shunt__boot_link *link, struct shunt__boot_polls *polls, int read);
/* Does what the poll found possible. */
void shunt__boot_link_progress(struct shunt__boot_link *link, const struct shunt__boot_polls *polls);
/* From now on messages may be large. */
void shunt__boot_link_trust(struct shunt__boot_link *link);
/* 1 and the next message, valid until the next call with `link`; 0 when none is complete. Forged frames close. */
int shunt__boot_link_next(struct shunt__boot_link *link, unsigned char **message, size_t *len);
/* Seals and queues, sending what the socket takes at once. Does nothing when the link is not OPEN. */
void shunt__boot_link_send(struct shunt__boot_link *link, const void *message, size_t len);
static inline size_t shunt__boot_link_unsent(const struct shunt__boot_link *link)
{
    return link->state == SHUNT__BOOT_OPEN ? link->out_len - link->out_done : 0;
}
void shunt__boot_link_close(struct shunt__boot_link *link, enum shunt__boot_link_end end, int err);
/*
 * Ends several links so that what was sent arrives: sends what is left, says that no more will come, and reads until the
 * others close too, for at most `ms`.
 */
void shunt__boot_links_finish(struct shunt__boot_link *const *links, int n, int ms);
/* Why it ended, as text. Returns `text`. */
const char *shunt__boot_link_why(const struct shunt__boot_link *link, char *text, size_t size);

#endif
