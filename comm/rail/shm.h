/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the two files of the shared memory rail share: shm.c moves frames, shm_setup.c makes and ends connections.
 *
 * Each process has one bell page, which all its peers map. A peer that has news for a link whose `attention` is set
 * sets the link's bit in `ready`, and if the process sleeps it rings: one write to the process's event descriptor.
 * Links with news or recent traffic are "hot": progress() looks at their rings directly and their attention is clear,
 * so that two processes which are awake exchange frames without a system call and without touching the bell page.
 */
#ifndef SHUNT_RAIL_SHM_H
#define SHUNT_RAIL_SHM_H

#include <sys/types.h>
#include "comm/rail/rail.h"
#include "comm/rail/shm_ring.h"

#define SHUNT__SHM_PAGE 4096
#define SHUNT__SHM_WORDS ((SHUNT__SHM_PAGE - 2 * SHUNT__RING_LINE) / sizeof(uint64_t))

struct shunt__shm_bell {
    _Alignas(2 * SHUNT__RING_LINE) uint64_t sleeping;
    _Alignas(2 * SHUNT__RING_LINE) uint64_t ready[SHUNT__SHM_WORDS]; /* one bit per slot */
};

enum shunt__shm_state {
    SHUNT__SHM_CONNECTING, /* the listener's queue was full */
    SHUNT__SHM_HELLO,      /* HELLO sent, WELCOME expected */
    SHUNT__SHM_STRANGER,   /* accepted, HELLO expected; no link yet */
    SHUNT__SHM_SETUP,      /* WELCOME sent, the connecting side's SETUP expected */
    SHUNT__SHM_UP,
    SHUNT__SHM_FAILED, /* refused inside connect(); progress() will say so */
    SHUNT__SHM_GONE    /* torn down; freed by the next progress() */
};

/* A frame that send() took but that did not fit in the ring at once. */
struct shunt__shm_pending {
    const uint8_t *payload; /* NULL: none pending */
    uint32_t done, length;
    uint64_t ref;
    uint8_t *copy; /* detached: payload is this, owned */
};

/* A frame of which only the first records have come. */
struct shunt__shm_arriving {
    struct shunt__frame frame;
    uint8_t *at; /* landing memory, or copy; NULL: none arriving */
    uint8_t *copy; /* the rail's own memory, kept between frames */
    uint32_t done;
};

/* A payload offered to be read where it lies (shm_direct.c). */
struct shunt__shm_direct {
    uint64_t *state; /* in the ring */
    const uint8_t *payload;
    uint8_t *copy; /* since it was detached */
    uint32_t length;
    int detached;
    uint64_t ref;
    uint64_t frame; /* which frame of the link it is, counted from 1 */
};
#define SHUNT__SHM_DIRECT 32               /* at once */
#define SHUNT__SHM_DIRECT_MIN (16u << 10)  /* bytes of a payload; smaller ones are faster through the ring */
#define SHUNT__SHM_DIRECT_STATE (sizeof(uint64_t) + sizeof(struct shunt__frame)) /* place in the record */

struct shunt__shm_conn {
    struct shunt__shm_rail *rail;
    struct shunt__link *link; /* NULL: a stranger, or gone */
    enum shunt__shm_state state;
    int hot; /* place in the rail's list, -1: cold */
    unsigned idle;    /* turns without a frame */

    struct shunt__ring_end *own, *other;
    struct shunt__ring_producer out;
    struct shunt__ring_consumer in;
    uint64_t accepted;       /* frames that the engine knows to be accepted */
    uint32_t refused;        /* record length that send() had no room for; 0: none */
    struct shunt__shm_pending pending;
    struct shunt__shm_arriving arriving;

    struct shunt__shm_direct direct[SHUNT__SHM_DIRECT];
    uint32_t direct_first, n_direct;
    uint64_t probe; /* the other side tries whether it can read this */

    struct shunt__shm_bell *bell; /* the other process's */
    int bell_fd;
    uint32_t slot, bell_slot; /* our bit in our page; our bit in theirs */

    struct shunt__pollable socket, process; /* the second is a pidfd: a forked child may keep the socket open */
    void *map;
    size_t map_size;
    pid_t pid;
    uint64_t since; /* when the handshake began */
    shunt_status_t failed;
    char text[96]; /* reason of the failure, later the other end's name */
    unsigned char address[SHUNT__ADDRESS_MAX];
    size_t address_len;
    struct shunt__shm_conn *prev, *next;
};

struct shunt__shm_rail {
    struct shunt__rail base;
    struct shunt__shm_conn **slots; /* by slot, NULL: free */
    uint32_t n_slots, words;        /* words of the bell page in use */
    struct shunt__shm_conn **hot;
    int n_hot;
    int n_failed;
    int armed; /* since the last progress() */
    struct shunt__shm_bell *bell;
    int bell_page_fd;
    struct shunt__pollable bell_fd, listener;
    struct shunt__shm_conn *conns, *grave;
    int n_strangers;
    int deaf;        /* out of descriptors: not listening until the next tick */
    uint64_t ring;   /* bytes per direction */
    uint64_t direct; /* longest message that is offered for reading */
    unsigned char address[SHUNT__ADDRESS_MAX];
    size_t address_len;
};

/* Both return what the rail's connect and open return. */
shunt_status_t shunt__shm_listen(struct shunt__shm_rail *rail);
shunt_status_t shunt__shm_connect(struct shunt__rail *rail, struct shunt__link *link, const void *address, size_t len);
int shunt__shm_reach(struct shunt__rail *rail, const void *address, size_t len);
void shunt__shm_tick(struct shunt__rail *rail, uint64_t now);

/* Tears down without a word; the memory lives until shunt__shm_bury(). */
void shunt__shm_teardown(struct shunt__shm_conn *conn);
void shunt__shm_bury(struct shunt__shm_rail *rail);
/* Tears down and tells the engine. */
void shunt__shm_fail(struct shunt__shm_conn *conn, shunt_status_t status, const char *why);

/* Hands over what a link that is up still holds, frames and acceptances. The conn may be gone afterwards. */
void shunt__shm_drain(struct shunt__shm_conn *conn);
/* shm_direct.c: can we read the other process's memory? If so it is told. */
void shunt__shm_direct_try(struct shunt__shm_conn *conn, uint64_t address, uint64_t value);
/* Fills in the state of a record that is about to be published, and remembers the payload. */
void shunt__shm_direct_offer(struct shunt__shm_conn *conn, uint8_t *record, const void *payload, uint32_t length,
                             uint64_t ref);
/* Reads the payload; 0, ESRCH: the other process is gone, ECANCELED: it has closed the link, else damage. */
int shunt__shm_direct_fetch(struct shunt__shm_conn *conn, uint8_t *record, void *to, uint32_t length);
int shunt__shm_direct_detach(struct shunt__shm_conn *conn, uint64_t ref); /* nonzero without memory */
int shunt__shm_direct_settle(struct shunt__shm_conn *conn);               /* sent events; -1: the conn is gone */
void shunt__shm_direct_withdraw(struct shunt__shm_conn *conn);

void shunt__shm_heat(struct shunt__shm_conn *conn);
void shunt__shm_cool(struct shunt__shm_conn *conn);

extern const struct shunt__rail_ops shunt__shm_ops;

#endif
