/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: contexts, peers, paths, streams, messages in flight.
 *
 *     context ─── rails (one per NIC, shared memory)
 *        ├── peer (another process) ─── path (one per pair of rails that reach each other; a link and its window)
 *        └── comm ─── stream (per peer and channel) ─── tx, rx: messages that are being sent and received
 *
 * The data path: post.c makes a tx, schedule.c hands its chunks to the paths that will deliver them first, arrive.c
 * puts them where they belong and matches messages with receives, ack.c tells the sender what has arrived, path.c
 * takes care of connections, and of what was in flight when one dies.
 */
#ifndef SHUNT_CORE_ENGINE_H
#define SHUNT_CORE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <shunt/coll.h>
#include <shunt/health.h>
#include <shunt/p2p.h>
#include "comm/base/clock.h"
#include "comm/base/config.h"
#include "comm/base/log.h"
#include "comm/core/binding.h"
#include "comm/core/card.h"
#include "comm/core/list.h"
#include "comm/core/op.h"
#include "comm/core/verdict.h"
#include "comm/rail/rail.h"

#define SHUNT__NO_CHUNK UINT32_MAX /* stands for an ANNOUNCE in a path's records */
#define SHUNT__RX_DONE ((struct shunt__rx *)1) /* a message that has been received, matched and handed over */
#define SHUNT__MAX_RANKS 65536

struct shunt__peer;
struct shunt__stream;

/* A message being sent. */
struct shunt__tx {
    struct shunt__stream *stream;
    struct shunt__op *op; /* NULL once it has been completed towards the user */
    const char *buf;
    uint64_t message, total;
    uint32_t chunk, n_chunks;
    uint32_t next;        /* first chunk that was never given to a path */
    uint32_t limit;       /* chunks that may travel now: the eager ones, or all once the receiver has granted */
    uint32_t n_acked;
    uint64_t *acked;      /* bitmap; &inline_acked for up to 64 chunks */
    uint64_t inline_acked;
    uint32_t *lost;       /* chunks to be sent again, a stack */
    uint32_t n_lost, cap_lost;
    uint32_t records;     /* entries in paths' record rings that point here */
    uint32_t reading;     /* of these, how many a rail still reads from */
    uint8_t announce;     /* 0 not needed, 1 to be sent, 2 under way, 3 the receiver knows of the message */
    uint8_t granted;      /* the receiver has matched it */
    uint8_t queued;       /* in the peer's send queue */
    int tag;
    struct shunt__list node; /* peer's send queue */
};

/* A message being received. */
struct shunt__rx {
    struct shunt__stream *stream;
    struct shunt__op *op;  /* the receive it was matched with; NULL before */
    uint64_t message, total;
    uint32_t chunk, n_chunks, n_got;
    uint64_t *got;         /* bitmap */
    uint64_t inline_got;
    char *early;           /* what came before the match, at most `early_cap` bytes of the beginning */
    uint64_t early_cap;
    char *buf;             /* where it goes: the receive's buffer */
    uint64_t cap;
    int tag;
    uint8_t matched, complete, dirty;
    uint64_t time;         /* when its first frame came */
    uint32_t source_eager; /* bytes that came before the match: the sender's credit */
};

/* What is in flight on a path: one entry per DATA or ANNOUNCE frame, in order of sending. */
struct shunt__record {
    struct shunt__tx *tx; /* NULL: acknowledged or given up */
    uint32_t chunk, bytes;
    uint64_t time;        /* when it was handed to the rail */
    uint64_t frame;       /* number of this frame on the link, counting from 1 */
    uint64_t delivered;   /* path's delivered counter at that moment, for the rate */
    uint64_t delivered_time;
    uint8_t reading, hedged;
};

/* Everything that is known about one pair of rails between this process and a peer. */
struct shunt__path {
    struct shunt__link link; /* first: the rail's view */
    struct shunt__peer *peer;
    int rail, remote;        /* indices into the context's and the peer's rails */
    shunt_rail_state_t state;
    char why[120];           /* reason for the last transition */
    uint64_t since;          /* time of it */
    uint64_t connect_at;     /* next attempt, 0: none planned */
    uint64_t connect_start;  /* of the attempt under way */
    uint32_t attempts;
    uint8_t refused, was_up;
    uint8_t bye;             /* the peer has said goodbye on it: nothing more comes */
    /* window */
    uint64_t in_flight;      /* bytes in records that are not acknowledged */
    uint64_t window;
    struct shunt__record *records; /* ring */
    uint32_t cap_records;
    uint64_t head, tail;     /* records head .. tail-1 are in use; index & (cap - 1) */
    uint64_t frames;         /* sent since established */
    uint8_t blocked;         /* the rail said AGAIN */
    /* what arrives */
    struct shunt__rx *landing; /* message whose buffer the rail is writing into, and which chunk of it */
    uint32_t landing_chunk;
    uint64_t silent_since; /* while SUSPECT */
    uint64_t patience;     /* it has been this slow to answer lately */
    uint64_t last_rx, last_ack, last_ping, ping_open; /* ping_open: when the oldest unanswered ping went out, 0: none */
    unsigned char nonces[8][16]; /* of the last HELLOs: a replayed one is refused */
    unsigned n_nonces;
    /* measured */
    double rate;             /* bytes/ns, smoothed maximum; 0: not known */
    double rate_recent;      /* the same over the last second or so */
    double latency;          /* ns, acknowledgement of an otherwise idle path, smoothed minimum */
    uint64_t delivered, delivered_time;
    uint64_t busy_bytes, busy_ns, sampled; /* traffic since the last sample; when that was */
    struct shunt__series series;
    uint64_t bytes_sent, bytes_resent, bytes_received, chunks_damaged, duplicates, generations;
};

struct shunt__peer {
    struct shunt_context *ctx;
    struct shunt__card card;
    struct shunt__peer *next; /* in the context's hash chain */
    int local;                /* same host, shared memory proven by its rail */
    int refs;                 /* communicators */
    struct shunt__path *paths[SHUNT__MAX_RAILS]; /* NULL where our rail i reaches none of theirs */
    int n_paths;
    shunt_status_t state;     /* OK, PEER (dead or gone) or TIMEOUT (unreachable for too long) */
    int left;                 /* it said goodbye: what it owed to others was delivered before */
    uint64_t left_at;         /* when operations that still concern it fail */
    char why[160];
    uint64_t unreachable_since; /* 0: some path is up, or nothing is wanted of it */
    uint64_t unmatched;       /* bytes under way that its receives have not matched */
    int wanted;               /* operations in flight that concern it */
    struct shunt__list sendq; /* tx with chunks to send */
    struct shunt__list acks;  /* streams with something to acknowledge */
    uint64_t ack_bytes;       /* received since the last acknowledgement */
    uint64_t ack_time;        /* when the first of these came */
    struct shunt__list notices; /* control frames to be sent on whichever path is up */
    struct shunt__list pump;  /* context's list of peers with something to do */
    struct shunt__list all;   /* context's list of peers */
};

/* Messages between this rank and another in one channel of one communicator. */
struct shunt__stream {
    struct shunt_comm *comm;
    struct shunt__peer *peer;
    int rank; /* the other's */
    enum shunt__channel channel;
    uint64_t id; /* in frames: the communicator's id plus the channel */
    /* sending */
    uint64_t tx_next, tx_base;
    uint64_t tx_done; /* messages below have ended, one way or the other */
    struct shunt__tx_slot {
        struct shunt__tx *tx;
        uint32_t credit; /* bytes of it that the receiver has not matched yet */
        uint8_t done, matched;
    } *tx_ring;
    uint32_t tx_cap;
    /* receiving */
    uint64_t rx_base;    /* messages below were handed over */
    uint64_t rx_acked;   /* messages below were received whole */
    uint64_t rx_matched; /* messages below were matched */
    uint64_t rx_seen;    /* messages below have been heard of */
    struct shunt__rx **rx_ring;
    uint32_t rx_cap;
    struct shunt__list posted; /* receives not matched yet */
    uint64_t match_unreported; /* bytes of credit that the sender has not been given back */
    uint64_t *dirty;     /* messages to acknowledge */
    uint32_t n_dirty, cap_dirty;
    uint8_t report;      /* acknowledge rx_acked and rx_matched even without dirty messages */
    struct shunt__list ack; /* in the peer's acks */
};

struct shunt_comm {
    struct shunt_context *ctx;
    uint64_t id; /* low two bits zero: the channel goes there */
    uint32_t epoch;
    unsigned char seed[16]; /* from which the ids of its descendants come */
    uint32_t children;
    int rank, size;
    struct shunt__peer **peers; /* peers[rank] is NULL for this rank itself */
    struct shunt__stream **streams[SHUNT__CHANNELS];
    int *host_of;
    unsigned char *parted;      /* the rank has freed it: the end of its process is no death */
    int hosts;
    shunt_status_t state;       /* OK, REVOKED, ABORTED, EXCLUDED */
    shunt_status_t coll_state;  /* OK, or why collectives can't run any more */
    int coll_rank;              /* the rank to blame, -1 */
    char why[200], coll_why[200]; /* ops that failed point to them until their done() */
    uint64_t coll_count;
    void *coll;                 /* collectives' own state */
    int pending;                /* ops posted and not done */
    struct shunt__list self_sends; /* sends to the own rank that wait for their receive */
    struct shunt__list self_recvs;
    struct shunt__list all;     /* context's list */
    struct shunt_comm *next;    /* hash chain */
    uint8_t freeing;
};

/* A frame for a communicator that this rank has not created yet: kept and played again. */
struct shunt__orphan {
    struct shunt__list node;
    struct shunt__path *path;
    uint64_t time;
    struct shunt__frame frame;
    char payload[];
};

#define SHUNT__HASH 256
#define SHUNT__POOL_CLASSES 8

/*
 * A communicator that was freed lately. Its late frames are no orphans, and what it had received whole is acknowledged
 * again when it comes again: the first acknowledgement may have been lost, and the sender waits for it.
 */
struct shunt__freed {
    uint64_t id;
    unsigned n;
    struct shunt__freed_stream {
        uint64_t id, acked;
        uint32_t rank;
    } *streams;
};
#define SHUNT__FREED 64

struct shunt_context {
    struct shunt__config config;
    char name[32];
    pthread_mutex_t lock;
    atomic_int contenders; /* threads that want the lock: whoever spins inside lets go */
    struct shunt__poller poller;
    struct shunt__rail *rails[SHUNT__MAX_RAILS];
    int rail_up[SHUNT__MAX_RAILS]; /* carrier */
    int n_rails;
    struct shunt__rail *memory; /* the one whose waiting() can be asked; NULL: none */
    struct shunt__carrier *carrier; /* watches the rails' interfaces; NULL: can't */
    struct shunt__card card; /* this process's own */
    struct shunt__peer *peers[SHUNT__HASH];
    struct shunt__list all_peers;
    struct shunt_comm *comms[SHUNT__HASH];
    struct shunt__list all_comms;
    struct shunt__list pump;
    struct shunt__list completed; /* ops whose done() is to be called */
    struct shunt__list orphans;
    struct shunt__list agreements; /* agree.c */
    void *pool[SHUNT__POOL_CLASSES]; /* arrive.c: early buffers for the next messages */
    size_t pool_bytes;
    size_t orphan_bytes;
    struct shunt__freed freed[SHUNT__FREED];
    unsigned n_freed;
    uint64_t now, next_tick;
    uint64_t ticks; /* shunt__ticks() when `now` was read */
    int fresh;      /* read since the last turn */
    unsigned turns;
    unsigned poll_every; /* turns between two looks at the descriptors while a call spins */
    int crowded; /* more ranks than cores on this host: yield at every turn */
    /* progress.c */
    pthread_t helper;
    struct shunt__binding binding; /* of the helper */
    int helper_running, stop;
    int callers;    /* threads inside a waiting call */
    uint64_t waited; /* ns that calls have spent waiting */
    unsigned calls; /* counts them, so that the helper sees whether any came */
    int polling;        /* a thread is blocked in or driving the poller */
    pthread_cond_t cond;
    int cond_waiters;
    int bell[2], asleep[2]; /* of the helper and of a call: an eventfd, and whether it is blocked */
    int draining;
    int closing; /* the context is being destroyed */
    /* limits, parsed once */
    uint64_t eager, unmatched_max, window_max, spin, peer_timeout;
    uint32_t chunk;
    struct shunt__rail_events events;
    /* health.c */
    struct shunt__health *health;
    struct shunt__report *report; /* report.c; may be NULL */
    struct shunt__boot_root **roots; /* behind the ids made here */
    int n_roots;
};

/* ---- context.c ---- */
uint64_t shunt__hash64(const void *data, size_t n);
/* The addresses at which other hosts find this one, for an id: how many; the array and each of them to be freed. */
int shunt__context_ips(struct shunt_context *ctx, char ***ips);

/* ---- progress.c ---- */
/* Everything that can be done without waiting; nonzero when something was. */
int shunt__progress(struct shunt_context *ctx);
/* Runs the engine until *flag is nonzero or `deadline` (0: none) has passed. Lock held; let go while it blocks. */
void shunt__progress_until(struct shunt_context *ctx, const int *flag, uint64_t deadline);
shunt_status_t shunt__progress_start(struct shunt_context *ctx);
void shunt__progress_stop(struct shunt_context *ctx);
/* Something was posted: whoever is blocked without a time limit needs the tick from now on. */
void shunt__progress_kick(struct shunt_context *ctx);
/* Puts an op that has ended with `status` onto the completed list. */
void shunt__op_complete(struct shunt__op *op, shunt_status_t status, const char *why);
void shunt__pump_later(struct shunt__peer *peer);
/* A path has room again: so for whoever waits for it. */
void shunt__pump_room(struct shunt__peer *peer);

/* ---- peer.c ---- */
struct shunt__peer *shunt__peer_get(struct shunt_context *ctx, const struct shunt__card *card);
void shunt__peer_put(struct shunt__peer *peer);
/* The peer is dead (PEER) or unreachable for too long (TIMEOUT): all operations with it end, members are told. */
void shunt__peer_fail(struct shunt__peer *peer, shunt_status_t status, const char *why, int tell);
/* Something is wanted of this peer: have at least one path up or coming up. */
void shunt__peer_want(struct shunt__peer *peer);
/* It has said goodbye on some path: once that is so on all, or after a while, operations with it end. */
void shunt__peer_leaving(struct shunt__peer *peer);
int shunt__peer_parted(const struct shunt__peer *peer); /* it has freed whatever it had in common with this rank */
/* Does so when it is due. */
void shunt__peer_leave(struct shunt__peer *peer);
void shunt__peer_tick(struct shunt__peer *peer, uint64_t now);
struct shunt__peer *shunt__peer_find(struct shunt_context *ctx, const unsigned char uid[16]);
/* "host/pid" for messages; static per thread. */
const char *shunt__peer_name(const struct shunt__peer *peer);
void shunt__peer_destroy(struct shunt__peer *peer);

/* ---- path.c ---- */
void shunt__path_events(struct shunt__rail_events *events);
void shunt__path_move(struct shunt__path *path, shunt_rail_state_t state, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline int shunt__path_usable(const struct shunt__path *p)
{
    return p && (p->state == SHUNT_RAIL_UP || p->state == SHUNT_RAIL_SLOW);
}
int shunt__path_connect(struct shunt__path *path);
/* Takes everything back that was in flight; its tx are queued again. */
void shunt__path_recall(struct shunt__path *path);
void shunt__path_drop(struct shunt__path *path, shunt_rail_state_t state, const char *why);
void shunt__path_tick(struct shunt__path *path, uint64_t now);
/* Pairs our rails with the peer's: makes peer->paths. */
void shunt__path_pair(struct shunt__peer *peer);
void shunt__path_free(struct shunt__path *path);
/* Our device lost or found its carrier. */
void shunt__path_carrier(struct shunt_context *ctx, int rail, int up, const char *why);
struct shunt__path *shunt__path_of(struct shunt__link *link);

/* ---- schedule.c ---- */
/* Gives chunks, announcements, acknowledgements and notices to the peer's paths while there is room. */
void shunt__schedule(struct shunt__peer *peer);
void shunt__schedule_hedge(struct shunt__peer *peer, uint64_t now);
/* A frame that belongs to no message, with its payload copied; goes out on a path that is up, as soon as one is. */
void shunt__notice(struct shunt__peer *peer, const struct shunt__frame *frame, const void *payload);
int shunt__path_send(struct shunt__path *path, struct shunt__frame *frame, const void *payload, uint64_t ref);

/* ---- post.c ---- */
struct shunt__stream *shunt__stream_get(struct shunt_comm *comm, enum shunt__channel channel, int rank);
void shunt__stream_free(struct shunt__stream *s);
/* Ends every operation of the stream. */
void shunt__stream_fail(struct shunt__stream *s, shunt_status_t status, const char *why);
void shunt__tx_finish(struct shunt__tx *tx, shunt_status_t status, const char *why);
void shunt__tx_acked(struct shunt__tx *tx, uint32_t chunk);
void shunt__tx_resend(struct shunt__tx *tx, uint32_t chunk);
void shunt__tx_release(struct shunt__tx *tx); /* frees it when nothing refers to it any more */
void shunt__tx_queue(struct shunt__tx *tx);

/* ---- arrive.c ---- */
void *shunt__arrive_land(struct shunt__path *path, const struct shunt__frame *frame);
void shunt__arrive_data(struct shunt__path *path, const struct shunt__frame *frame, const void *payload);
void shunt__arrive_damaged(struct shunt__path *path, const struct shunt__frame *frame);
void shunt__arrive_match(struct shunt__stream *s);
void shunt__rx_abandon(struct shunt__rx *rx);
void shunt__early_free(struct shunt_context *ctx, void *early, uint64_t bytes);
/* Plays orphans of a communicator that has just been created. */
void shunt__arrive_orphans(struct shunt_context *ctx, struct shunt_comm *comm);

/* ---- ack.c ---- */
void shunt__ack_note(struct shunt__stream *s, uint64_t message); /* this message is to be acknowledged */
int shunt__ack_flush(struct shunt__peer *peer);                   /* nonzero: a frame went out */
void shunt__ack_arrived(struct shunt__path *path, const void *payload, size_t len);
void shunt__ack_low(struct shunt__stream *s, uint64_t acked);     /* piggybacked low-water mark */
void shunt__ack_damaged(struct shunt__stream *s, uint64_t message, uint32_t chunk);
/* A message of a freed communicator has come again: it was received. */
void shunt__ack_freed(struct shunt__peer *peer, const struct shunt__frame *frame);
void shunt__ack_report(struct shunt__stream *s);                 /* the low-water marks are to be said */
/* Says everything again that this peer has been told: what told it may have been lost with a path. */
void shunt__ack_everything(struct shunt__peer *peer);
void shunt__ack_piggyback(struct shunt__stream *s, uint64_t acked);
/* The rail says that the first `count` frames on this link have been accepted. */
void shunt__path_consumed(struct shunt__path *path, uint64_t count);
/*
 * What was sent up to this frame and before `time` must have arrived by now: what of it is not acknowledged was lost, or the
 * word that it was damaged was. Send it again.
 */
void shunt__path_missed(struct shunt__path *path, uint64_t frame, uint64_t time);

/* ---- comm.c ---- */
struct shunt_comm *shunt__comm_find(struct shunt_context *ctx, uint64_t id);
struct shunt_comm *shunt__comm_new(struct shunt_context *ctx, const unsigned char seed[16], uint32_t epoch, int rank,
                                   int size, struct shunt__peer *const *peers);
void shunt__comm_destroy(struct shunt_comm *comm);
/* Ends all operations of the communicator with `status`. */
void shunt__comm_end(struct shunt_comm *comm, shunt_status_t status, const char *why);
/* Collectives can't go on: a member is lost. */
void shunt__comm_break(struct shunt_comm *comm, int rank, shunt_status_t status, const char *why);
int shunt__comm_rank_of(const struct shunt_comm *comm, const struct shunt__peer *peer);

/* ---- notice.c ---- */
#define SHUNT__NOTICE_LINKS 8 /* kind of a notice that belongs to health.c; from 16 on they are agree.c's */
void shunt__notice_arrived(struct shunt__path *path, const struct shunt__frame *frame, const void *payload);
/* Tells `to` (NULL: all members) that the communicator was revoked or aborted. */
void shunt__notice_end(struct shunt_comm *comm, struct shunt__peer *to, shunt_status_t status, const char *why);
void shunt__notice_freed(struct shunt_comm *comm);
void shunt__notice_lost(struct shunt_comm *comm, int rank, shunt_status_t status, const char *why);

/* ---- health.c ---- */
struct shunt__health *shunt__health_open(struct shunt_context *ctx);
void shunt__health_close(struct shunt__health *h);
void shunt__health_tick(struct shunt_context *ctx, uint64_t now);
#define SHUNT__SAMPLE_BYTES (512u << 10)
#define SHUNT__SAMPLE_NS (30 * SHUNT__MS) /* acknowledgements come in batches: over less time a rate means nothing */
/* So many bytes have gone over the path without a pause: one sample of its rate. */
void shunt__health_sample(struct shunt__path *path, uint64_t now);
/* Another rank's links, as it has measured them. */
void shunt__health_heard(struct shunt_context *ctx, struct shunt__peer *from, const void *payload, size_t len);
void shunt__health_event(struct shunt_context *ctx, shunt_event_kind_t kind, struct shunt__peer *peer, int rail,
                         const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
