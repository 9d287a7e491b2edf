/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hello: what a rank thinks the collective is, sent in front of its first message to each peer. The other end
 * compares it with its own view before it takes the payload, so calls that differ end with MISMATCH and a text that
 * names both ranks and what each passed, instead of mixing their elements.
 *
 * The same structure, with a status, is the notice with which a rank that gives up sets free those who wait for its
 * messages: it takes the place of the next message they expect. They tell it by its tag and length.
 */
#ifndef SHUNT_COLL_HELLO_H
#define SHUNT_COLL_HELLO_H

#include <stddef.h>
#include <stdint.h>
#include "comm/coll/coll.h"

#define SHUNT__HELLO_MAGIC 0x31434853u /* "SHC1" */

struct shunt__coll_hello {
    uint32_t magic;
    int8_t status;  /* notices: why the sender gave up; 0 in a hello */
    uint8_t kind, type;
    uint8_t text;   /* notices: bytes of text that follow */
    uint32_t op;    /* SHUNT_N_OPS for every pre-multiplied sum: their numbers may differ between ranks */
    int32_t root;
    uint64_t number; /* of the collective */
    uint64_t count;
    int32_t blame;  /* notices: the rank that is the cause, -1 */
    int32_t size;   /* of the communicator */
};

#define SHUNT__NOTICE_TEXT 200
/* Room for a first message of `bytes` of payload, or a notice instead of it. */
#define SHUNT__SLOT_BYTES(bytes) \
    (sizeof(struct shunt__coll_hello) + ((bytes) < SHUNT__NOTICE_TEXT ? (size_t)SHUNT__NOTICE_TEXT : (size_t)(bytes)))

/* Fills the hello of `call`'s messages to `peer`. */
void shunt__coll_hello_fill(struct shunt__coll_hello *hello, const struct shunt__call *call, uint64_t number, int peer);
/* SHUNT_OK, or MISMATCH with a text on how `got`, which came from `peer`, differs from what this rank called. */
shunt_status_t shunt__coll_hello_check(const struct shunt__coll_hello *got, const struct shunt__call *call, uint64_t number,
                                  int peer, char *text, size_t len);

#endif
