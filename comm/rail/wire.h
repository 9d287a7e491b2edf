/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frame: 80 bytes of header and a payload, the only thing that travels on a rail. Little-endian.
 */
#ifndef SHUNT_RAIL_WIRE_H
#define SHUNT_RAIL_WIRE_H

#include <stdint.h>

#define SHUNT__FRAME_MAGIC 0x6853 /* "Sh" */
#define SHUNT__WIRE_VERSION 1
/* No payload is longer; a header that says so is damaged. */
#define SHUNT__FRAME_PAYLOAD_MAX (1u << 20)
/* A HELLO's or WELCOME's payload is at most this long: all that a stranger can make a rail read. */
#define SHUNT__HELLO_MAX 512

enum shunt__frame_type {
    SHUNT__FRAME_HELLO = 1, /* first frame of whoever opened the connection */
    SHUNT__FRAME_WELCOME,   /* the answer; now the link is up */
    SHUNT__FRAME_DATA,      /* one chunk of a message */
    SHUNT__FRAME_ANNOUNCE,  /* a message exists (tag, total); none of its bytes yet */
    SHUNT__FRAME_ACK,       /* what has been accepted and what may come */
    SHUNT__FRAME_PING,      /* are you there; payload echoed */
    SHUNT__FRAME_PONG,
    SHUNT__FRAME_NOTICE,    /* aborts, revocations, deaths, agreement */
    SHUNT__FRAME_BYE,       /* this side closes on purpose */
    SHUNT__FRAME_TYPES
};

/* flags */
#define SHUNT__FRAME_CRC 1u /* payload_crc is set and must be checked */
#define SHUNT__FRAME_USER 2u /* first flag free for the engine */

struct shunt__frame {
    uint16_t magic;
    uint8_t version;
    uint8_t type;
    uint32_t header_crc; /* CRC32C of the header with this field zero; 0 on rails that check for themselves */
    uint32_t generation; /* of the link: frames of an earlier connection are dropped */
    uint32_t length;     /* of the payload, bytes */
    uint64_t comm;       /* communicator */
    uint32_t epoch;
    int32_t tag;
    uint64_t message; /* number within (communicator, sender, receiver) */
    uint64_t offset;  /* of the payload within the message, bytes; a multiple of chunk */
    uint64_t total;   /* length of the message, bytes */
    uint64_t ack;     /* the sender has accepted every message of the receiver's below this number */
    uint32_t payload_crc;
    uint32_t chunk; /* chunk size of this message, bytes */
    uint32_t source; /* sender's rank in the communicator */
    uint32_t flags;
};

_Static_assert(sizeof(struct shunt__frame) == 80, "the frame header is 80 bytes");

#endif
