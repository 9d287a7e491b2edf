/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mock engine for the tests of rails: two sides in one process, each with a poller, a rail and some links, that
 * write down what the rail tells them and check every payload against what must have been sent.
 */
#ifndef SHUNT_TESTS_RAIL_MOCK_H
#define SHUNT_TESTS_RAIL_MOCK_H

#include <stdint.h>
#include "comm/base/config.h"
#include "comm/rail/rail.h"

#define MOCK_LINKS 10
#define MOCK_LAND (4u << 20)

struct mock;

struct mock_link {
    struct shunt__link link; /* first */
    struct mock *side;
    int index;
    int up;                /* established and not down */
    int n_established, n_down, n_sent, n_writable, n_frames, n_damaged, n_refused, n_bye;
    shunt_status_t status; /* of the last down */
    char why[200];
    uint64_t consumed;
    int wrong;             /* payloads or headers that were not what was sent, frames out of order, events out of turn */
    uint64_t next_message; /* the number the next frame must carry on a rail that keeps order */
    uint64_t bytes;        /* payload received */
    uint64_t pattern;      /* bit n: message n has come, for the first 64 */
    int landing;           /* give landing memory to DATA frames */
    int n_landed, n_land_called;
    char *land;            /* MOCK_LAND bytes */
    uint64_t sent_refs[4096]; /* the first ones */
    int close_in_frame;    /* disconnect from inside the frame callback when this many have come */
};

struct mock {
    int id;
    struct shunt__config config;
    struct shunt__poller poller;
    struct shunt__rail *rail;
    struct mock_link links[MOCK_LINKS];
    int refuse_hello;   /* incoming answers NULL */
    int refuse_welcome;
    int n_incoming, n_strange, n_carrier, carrier;
    uint8_t address[SHUNT__ADDRESS_MAX];
    size_t address_len;
};

extern const struct shunt__rail_events mock_events;

/* Opens side `id` of backend `name`; `faults` NULL: not wrapped. Settings are NAME=VALUE, NULL-terminated, or NULL. */
shunt_status_t mock_open(struct mock *m, int id, const char *backend, const char *device, const char *ip,
                         const char *faults, const char *const *settings);
void mock_close(struct mock *m);
/* One round of both sides (b may be NULL); waits up to a millisecond when nothing happened. Events and frames. */
int mock_turn(struct mock *a, struct mock *b);
/* Turns until `cond` or for ten seconds; the truth of `cond`. */
#define mock_until(a, b, cond) \
    ({ \
        uint64_t mock_end_ = mock_deadline(); \
        int mock_true_; \
        while (!(mock_true_ = !!(cond)) && mock_before(mock_end_)) \
            mock_turn(a, b); \
        mock_true_; \
    })
uint64_t mock_deadline(void);
int mock_before(uint64_t deadline);
/* So many rounds without waiting for anything in particular. */
void mock_turns(struct mock *a, struct mock *b, int n);

/* Connects link `index` from `from` to `to` and turns until both are up; nonzero on success. */
int mock_connect(struct mock *from, struct mock *to, int index);
/* The byte at `i` of the payload of message `message` on link `index`. */
uint8_t mock_byte(int index, uint64_t message, uint64_t i);
void mock_fill(void *buf, int index, uint64_t message, size_t len);
/* Sends message number `message` of `len` bytes that lie in `buf` (filled by the caller). */
shunt_status_t mock_send(struct mock_link *l, uint64_t message, const void *buf, size_t len);
/* The same, again and again until the rail takes it; `other` turns too. */
shunt_status_t mock_send_patiently(struct mock_link *l, uint64_t message, const void *buf, size_t len,
                                   struct mock *other);

#endif
