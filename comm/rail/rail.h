/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails: the unit that can be fast, slow or dead. One per NIC, plus shared memory.
 *
 * A rail opens links (one per peer process), carries frames over them and reports what happens through
 * struct shunt__rail_events. It knows nothing of messages, communicators or other rails; which frame goes where,
 * what is acknowledged and what is sent again is the engine's business (comm/core).
 *
 * Threads: all functions and all callbacks of a rail run under its engine's lock, one at a time. None blocks.
 *
 * Life of a link. The engine owns struct shunt__link; the rail hangs its connection on link->conn.
 *
 *     connect() ──► conn set, HELLO goes out ──► WELCOME comes ──► events->established
 *     a stranger's HELLO ──► events->incoming gives the link (or NULL: drop it) ──► WELCOME goes out ──► established
 *     failure at any time ──► conn torn down, link->conn = NULL, then events->down (once)
 *     disconnect() ──► conn torn down, link->conn = NULL, no callback for it any more
 *
 * A rail bounds what a stranger can cost: SHUNT__HELLO_MAX bytes, SHUNT__HELLO_TIME, SHUNT__STRANGERS at once.
 */
#ifndef SHUNT_RAIL_RAIL_H
#define SHUNT_RAIL_RAIL_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/status.h>
#include "comm/base/config.h"
#include "comm/rail/poller.h"
#include "comm/rail/wire.h"

#define SHUNT__ADDRESS_MAX 256
#define SHUNT__HELLO_TIME (5 * 1000000000ull) /* ns a stranger has to say a whole HELLO */
#define SHUNT__STRANGERS 64                   /* half-open incoming connections per rail */
#define SHUNT__MAX_RAILS 9                    /* 8 NICs and shared memory */
#define SHUNT__SEND_COPIED 4096               /* bytes: send() never keeps a payload up to here */

/* What a rail is like. */
#define SHUNT__RAIL_CHECKED 1u /* payload can't be damaged on the way: no CRC needed */
#define SHUNT__RAIL_ACKS 2u    /* reports acceptance itself, by events->consumed, in order of sending */
#define SHUNT__RAIL_LOCAL 4u   /* reaches only processes of the same host (or the same process) */
#define SHUNT__RAIL_ORDERED 8u /* frames of one link arrive in order */
#define SHUNT__RAIL_USERMEM 16u /* may write into landing memory by itself until disconnect() has returned */

struct shunt__rail;

struct shunt__link {
    struct shunt__rail *rail;
    void *conn;          /* the rail's; NULL while there is no connection */
    uint32_t generation; /* the engine's, set by connect, events->incoming or events->welcome; goes into every frame */
};

struct shunt__rail_events {
    /* The payload of the HELLO that opens `link`, at most *len bytes; sets *len. */
    void (*hello)(void *engine, struct shunt__link *link, void *buf, size_t *len);
    /*
     * A stranger's HELLO payload. NULL: not ours, close without a word. Otherwise the link it belongs to, which
     * has no connection any more (the engine has called disconnect() on an older one), with the WELCOME payload
     * to answer in `welcome`. The rail then sets link->conn, sends WELCOME and calls established.
     */
    struct shunt__link *(*incoming)(void *engine, struct shunt__rail *rail, const void *hello, size_t len,
                                    void *welcome, size_t *welcome_len);
    /* The WELCOME to our HELLO; nonzero: refused, tear down and report down with SHUNT_ERR_AUTH. */
    int (*welcome)(void *engine, struct shunt__link *link, const void *payload, size_t len);
    void (*established)(void *engine, struct shunt__link *link);
    /*
     * The connection is gone and link->conn is NULL. `status`: SHUNT_ERR_PEER when the other side's kernel said
     * that nobody is there (connection refused, the local socket closed), SHUNT_ERR_RAIL for everything else.
     */
    void (*down)(void *engine, struct shunt__link *link, shunt_status_t status, const char *why);
    /*
     * Where the payload of this (checked) header should be written, or NULL: into the rail's own memory. May be
     * left uncalled by rails that hand over whole frames. Writing there must stop when redirect() is called.
     */
    void *(*land)(void *engine, struct shunt__link *link, const struct shunt__frame *frame);
    /*
     * A whole frame with an intact payload; `payload` is what land gave, or the rail's memory, valid for the call
     * and not aligned in any way.
     */
    void (*frame)(void *engine, struct shunt__link *link, const struct shunt__frame *frame, const void *payload);
    /* A frame whose header was right and whose payload's CRC was not. What land gave may have been written. */
    void (*damaged)(void *engine, struct shunt__link *link, const struct shunt__frame *frame);
    /* The rail no longer reads the payload of the frame that was sent with `ref` (after IN_PROGRESS only). */
    void (*sent)(void *engine, struct shunt__link *link, uint64_t ref);
    /* RAIL_ACKS: the first `count` frames sent since the link was established have been accepted. */
    void (*consumed)(void *engine, struct shunt__link *link, uint64_t count);
    /* There is room again after send() gave AGAIN. */
    void (*writable)(void *engine, struct shunt__link *link);
    /* The device lost (0) or found (1) its carrier or address. */
    void (*carrier)(void *engine, struct shunt__rail *rail, int up, const char *why);
    /* What fault scripts call the other side of a link, e.g. its rank; valid until the next call. May be NULL. */
    const char *(*peer)(void *engine, const struct shunt__link *link);
};

struct shunt__link_stats {
    uint64_t queued;         /* bytes accepted by send() that have not left the rail's own queue */
    uint64_t unacked;        /* bytes in the transport below that the other side's kernel has not acknowledged */
    uint64_t retransmits;    /* since the link was established */
    uint64_t rtt_ns;         /* the transport's own estimate; 0: unknown */
};

struct shunt__rail_params {
    const struct shunt__config *config;
    struct shunt__poller *poller;
    const struct shunt__rail_events *events;
    void *engine;
    const char *device; /* interface or device name, e.g. "eth1", "mlx5_0:1"; "" for shm and loop */
    const char *ip;     /* address to bind for rails over IP, text without prefix length; "" otherwise */
    int index;          /* among the context's rails */
    uint64_t rate;      /* promised bits/s; 0: unknown */
};

struct shunt__rail_ops {
    const char *name; /* "sock", "ucx", "ofi", "shm", "loop" */
    shunt_status_t (*open)(const struct shunt__rail_params *params, struct shunt__rail **rail);
    /* All links have been disconnected. */
    void (*close)(struct shunt__rail *rail);
    /* Where peers find this rail; at most SHUNT__ADDRESS_MAX bytes. Validated by reach() on the other side. */
    shunt_status_t (*address)(struct shunt__rail *rail, void *buf, size_t *len);
    /* 0: can't get there or not an address of this backend; else the higher the better (same subnet 2, routed 1). */
    int (*reach)(struct shunt__rail *rail, const void *address, size_t len);
    /* Starts a connection; success or failure comes as an event, never from inside this call. */
    shunt_status_t (*connect)(struct shunt__rail *rail, struct shunt__link *link, const void *address, size_t len);
    /* Tears down at once. Afterwards the rail neither reads payloads nor writes landing memory of this link. */
    void (*disconnect)(struct shunt__link *link);
    /*
     * Takes one frame of an established link; frame->length bytes at `payload`. Sets magic, version, generation
     * and the CRCs itself (payload_crc unless SHUNT__FRAME_CRC is already set). OK: taken and payload no longer
     * read; IN_PROGRESS: taken, payload is read until events->sent(ref) or the link's end; AGAIN: no room,
     * events->writable will come. A frame taken is sent or lost with the link, in order. Never calls back.
     * Payloads of up to SHUNT__SEND_COPIED bytes are copied: OK or AGAIN. Small frames may wait for progress(),
     * so that many leave together: whoever sends calls progress() before it turns to something else.
     */
    shunt_status_t (*send)(struct shunt__link *link, const struct shunt__frame *frame, const void *payload,
                           uint64_t ref);
    /* Stops reading the payload sent with `ref` (copying what must still go out). No sent event follows. */
    void (*detach)(struct shunt__link *link, uint64_t ref);
    /* Stops writing into memory that land gave on this link; the rest of that frame goes to the rail's own. */
    void (*redirect)(struct shunt__link *link);
    /*
     * Does what can be done without waiting; the number of frames moved. Descriptors come through the poller.
     * The other side may learn what was accepted only from the next progress(), arm() or send().
     */
    int (*progress)(struct shunt__rail *rail);
    /*
     * Called before the engine blocks on the poller: nonzero when there is work to do first. NULL: nothing to arm.
     * What it arms lasts until the next progress() of this rail, by whatever thread: a thread that stops calling
     * progress() while another one sleeps on the poller arms again for it, and wakes it if there is work.
     */
    int (*arm)(struct shunt__rail *rail);
    /*
     * Whether progress() would find anything; so cheap that a spinning call may ask it a hundred times between two turns.
     * NULL: can't be told without progress().
     */
    int (*waiting)(struct shunt__rail *rail);
    /* Every 10 ms or so while anything goes on: connection time-outs and the like. */
    void (*tick)(struct shunt__rail *rail, uint64_t now);
    void (*stats)(struct shunt__link *link, struct shunt__link_stats *stats);
    /* Local end's and other end's name for messages, e.g. "10.1.0.2:4711"; static or the conn's. May be NULL. */
    const char *(*describe)(struct shunt__link *link);
};

struct shunt__rail {
    const struct shunt__rail_ops *ops;
    unsigned caps;
    uint32_t chunk; /* chunk size it likes, bytes */
    struct shunt__rail_params params; /* strings are the rail's own copies */
    char name[64];   /* for people: "sock:eth1" */
    char device_copy[64];
    char ip_copy[64];
};

/* All backends of this build, NULL-terminated. */
extern const struct shunt__rail_ops *const shunt__rail_backends[];
const struct shunt__rail_ops *shunt__rail_backend(const char *name);

/* Fills the common part of a rail that a backend has allocated. */
void shunt__rail_init(struct shunt__rail *rail, const struct shunt__rail_ops *ops, const struct shunt__rail_params *p,
                      unsigned caps, uint32_t chunk);

/* Seals a header before it is sent: magic, version, generation; header CRC unless the rail is CHECKED; payload CRC
 * unless CHECKED, switched off (SHUNT_CRC=0), already there, or there is no payload. */
void shunt__frame_seal(const struct shunt__rail *rail, const struct shunt__link *link, struct shunt__frame *frame,
                       const void *payload);
/* Nonzero when the header is one that this version could have written (magic, version, type, lengths, CRC). */
int shunt__frame_valid(const struct shunt__rail *rail, const struct shunt__frame *frame);

/* Bind range of SHUNT_PORT_RANGE; *first = *last = 0 when any port will do. */
shunt_status_t shunt__port_range(const struct shunt__config *config, uint16_t *first, uint16_t *last);

/*
 * Opens a rail of `inner` inside a wrapper on which a fault script plays: a file's name or the script itself, as
 * SHUNT_FAULTS has it (comm/rail/fault_script.h). The wrapper goes by the name of what it wraps and owns it.
 */
shunt_status_t shunt__fault_open(const struct shunt__rail_ops *inner, const struct shunt__rail_params *params,
                                 const char *script, struct shunt__rail **rail);

#endif
