/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails over plain non-blocking TCP: private to sock*.c and their tests.
 *
 *     sock.c       the rail: listener, strangers, time-outs
 *     sock_conn.c  a connection's life
 *     sock_send.c  its queue of frames to go
 *     sock_recv.c  its stream of frames coming
 */
#ifndef SHUNT_RAIL_SOCK_H
#define SHUNT_RAIL_SOCK_H

#include "comm/rail/inet.h"
#include "comm/rail/rail.h"

#define SOCK_SCRATCH (256u * 1024) /* bytes of one read */
#define SOCK_BLOCK SHUNT__SEND_COPIED
#define SOCK_INLINE 160 /* payloads up to here are kept in the queue entry itself */

/* One frame waiting to go. */
struct sock_out {
    struct sock_out *next;
    struct shunt__frame frame;
    const char *payload; /* the caller's, inline_payload, or `copy`'s */
    void *copy;          /* to be given back: a block of the rail, or malloc's when `detached` */
    uint64_t ref;
    uint32_t done;  /* bytes of header and payload that the kernel has taken */
    uint8_t notify; /* events->sent is owed */
    uint8_t detached;
    char inline_payload[SOCK_INLINE];
};

/* Memory for payloads that arrive in pieces and have no landing memory. */
struct sock_buffer {
    struct sock_buffer *next;
    uint32_t size;
    char data[] __attribute__((aligned(64)));
};

enum sock_state {
    SOCK_CLOSED,     /* being freed */
    SOCK_STRANGER,   /* accepted; HELLO awaited */
    SOCK_CONNECTING, /* TCP handshake */
    SOCK_GREETING,   /* HELLO sent; WELCOME awaited */
    SOCK_UP
};

struct sock_conn {
    struct shunt__pollable pollable; /* first: the poller hands it back */
    struct sock_rail *rail;
    struct shunt__link *link;
    struct sock_conn *prev, *next;             /* of the rail's conns or strangers */
    struct sock_conn *dirty_prev, *dirty_next; /* of the rail's dirty list */
    enum sock_state state;
    uint8_t is_dirty;
    uint8_t starved;  /* events->writable is owed */
    uint8_t blocked;  /* the kernel's buffer is full: wait for EPOLLOUT */
    uint8_t failed;   /* tear down and report `why` */
    shunt_status_t status;
    uint64_t deadline; /* of HELLO, the handshake or WELCOME; 0: none */
    /* going */
    struct sock_out *head, *tail; /* waiting for the kernel */
    struct sock_out *done;        /* taken by the kernel, events->sent owed, oldest first */
    struct sock_out **done_end;
    uint64_t queued; /* bytes that the kernel has not taken */
    /* coming */
    struct shunt__frame header;
    uint32_t header_have;
    char *payload; /* where it goes; NULL while the header is incomplete */
    uint32_t payload_have;
    uint32_t crc;
    struct sock_buffer *own; /* `payload` lies there and not in landing memory */
    /* has the other side's kernel acknowledged anything lately? */
    uint8_t watched;
    uint64_t acked, stalled_since, watch_at;
    char why[160];
    char name[2 * SHUNT__INET_NAME + 4];
    uint8_t hello[SHUNT__HELLO_MAX]; /* a stranger's payload */
};

struct sock_rail {
    struct shunt__rail rail; /* first */
    struct shunt__pollable listener;
    struct sockaddr_storage local; /* with the listener's port */
    int prefix;                    /* of the subnet; -1 while the address is absent */
    uint64_t look_at;              /* when to look for the address again */
    uint64_t accept_at;            /* accepting pauses until then (no descriptors); 0: it does not */
    uint64_t timeout;              /* SHUNT_RAIL_TIMEOUT */
    struct sock_conn *conns, *strangers, *dirty, *graves;
    int n_strangers;
    int depth; /* of handlers running: graves are emptied when none is */
    uint8_t warned_stranger, warned_limit;
    struct sock_out *free_outs;
    void *free_blocks;
    struct sock_buffer *free_buffers;
    int n_free_buffers;
    char *scratch;
};

/* sock.c */
extern const struct shunt__rail_ops shunt__sock_ops;
/* Takes a connected socket as if it had been accepted. */
void shunt__sock_adopt(struct sock_rail *rail, int fd);
void shunt__sock_enter(struct sock_rail *rail);
void shunt__sock_leave(struct sock_rail *rail);
/* The soft limit on descriptors as text, for messages. */
const char *shunt__sock_limit_text(char *text, size_t size);

/* sock_conn.c */
struct sock_conn *shunt__sock_conn_new(struct sock_rail *rail, int fd, enum sock_state state);
shunt_status_t shunt__sock_connect(struct shunt__rail *rail, struct shunt__link *link, const void *address, size_t len);
void shunt__sock_disconnect(struct shunt__link *link);
/* Makes the conn a grave: off every list, descriptor closed, its link told nothing. */
void shunt__sock_bury(struct sock_conn *c);
/* Remembers a failure; it is reported from progress() or at the end of the handler. The first one wins. */
void shunt__sock_fail(struct sock_conn *c, shunt_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void shunt__sock_mark(struct sock_conn *c);
/* Reports and buries if the conn has failed; nonzero when it is gone. */
int shunt__sock_settle(struct sock_conn *c);
const char *shunt__sock_describe(struct shunt__link *link);
/* The whole HELLO of a stranger is in c->header and c->hello. */
void shunt__sock_greet(struct sock_conn *c);
void shunt__sock_ready(struct shunt__pollable *p, uint32_t events);

/* sock_send.c */
shunt_status_t shunt__sock_send(struct shunt__link *link, const struct shunt__frame *frame, const void *payload,
                                uint64_t ref);
/* Queues a HELLO or WELCOME; nonzero without memory. */
int shunt__sock_control(struct sock_conn *c, enum shunt__frame_type type, const void *payload, size_t len);
void shunt__sock_detach(struct shunt__link *link, uint64_t ref);
int shunt__sock_flush(struct sock_conn *c);  /* writes what the kernel takes; frames finished */
void shunt__sock_report(struct sock_conn *c); /* events->sent and writable that are owed */
void shunt__sock_drop_queue(struct sock_conn *c);
void shunt__sock_pool_free(struct sock_rail *rail);

/* sock_recv.c */
void shunt__sock_read(struct sock_conn *c);          /* an established or greeting conn */
void shunt__sock_read_stranger(struct sock_conn *c); /* at most one HELLO */
void shunt__sock_redirect(struct shunt__link *link);
void shunt__sock_drop_payload(struct sock_conn *c);

#endif
