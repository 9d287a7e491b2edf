/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages that travel inside sealed frames, and their bytes. Little-endian; the first byte is the type.
 *
 *     JOIN    rank → root      who I am and where my children reach me
 *     START   root → rank      all are here: your parent's addresses
 *     ASK     rank → root      my time is up: who is missing? (answered by FAIL to all)
 *     DONE    rank → root      I need you no longer
 *     CHILD   rank ↔ parent    opens a connection of the tree; the parent answers with its own
 *     UP      child → parent   what ranks of my subtree contribute to step `seq`
 *     DOWN    parent → child   everybody's contributions; `last` ends the step
 *     FAIL    anyone           the start-up has failed, and why; passed on to everyone
 *
 * Parsers take foreign bytes: they check every length and are fuzzed.
 */
#ifndef SHUNT_BOOT_MESSAGE_H
#define SHUNT_BOOT_MESSAGE_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/status.h>
#include "comm/boot/net.h"

#define SHUNT__BOOT_MAX_SIZE 65536          /* ranks */
#define SHUNT__BOOT_MAX_ENTRY 65536         /* bytes of one rank in an allgather */
#define SHUNT__BOOT_ENTRY_HEAD 8            /* rank 4, length 4 */
#define SHUNT__BOOT_MAX_MESSAGE (SHUNT__BOOT_MAX_ENTRY + 4096)
#define SHUNT__BOOT_MAX_FIRST 400           /* JOIN and CHILD, the messages of a connection not yet trusted */
#define SHUNT__BOOT_CANDIDATES 6            /* addresses a rank names for itself */
#define SHUNT__BOOT_HOST_TEXT 49
#define SHUNT__BOOT_FAIL_TEXT 800
#define SHUNT__BOOT_FANOUT 8

enum shunt__boot_type {
    SHUNT__BOOT_JOIN = 1,
    SHUNT__BOOT_START,
    SHUNT__BOOT_ASK,
    SHUNT__BOOT_DONE,
    SHUNT__BOOT_CHILD,
    SHUNT__BOOT_UP,
    SHUNT__BOOT_DOWN,
    SHUNT__BOOT_FAIL
};

enum shunt__boot_step { SHUNT__BOOT_READY, SHUNT__BOOT_ALLGATHER, SHUNT__BOOT_BARRIER };

struct shunt__boot_join_message {
    int rank, size;
    uint32_t pid;
    unsigned char process[16]; /* random, so that a rank that comes back is told from a second one */
    char host[SHUNT__BOOT_HOST_TEXT];
    uint16_t port;   /* where its children reach it; 0 when it will have none */
    int n_addresses; /* as it names itself; their ports mean nothing */
    struct shunt__boot_address address[SHUNT__BOOT_CANDIDATES];
};

struct shunt__boot_start_message {
    unsigned char epoch[16];
    int n_addresses; /* of the parent, most likely first; 0 for rank 0 */
    struct shunt__boot_address address[SHUNT__BOOT_CANDIDATES + 2];
};

struct shunt__boot_child_message {
    int rank;
    unsigned char epoch[16];
};

struct shunt__boot_fail_message {
    shunt_status_t status;
    int over; /* this meeting had ended before the receiver came: another may be open elsewhere */
    char text[SHUNT__BOOT_FAIL_TEXT];
};

/* The head of UP and DOWN; entries follow. */
struct shunt__boot_step_message {
    enum shunt__boot_type type;
    enum shunt__boot_step step;
    uint32_t seq;
    int last;
};

/* Type of a message, 0 for an empty one. */
int shunt__boot_message_type(const unsigned char *message, size_t len);

/* Each writes at most SHUNT__BOOT_MAX_MESSAGE bytes (JOIN, CHILD: MAX_FIRST) and returns the length. */
size_t shunt__boot_join_write(const struct shunt__boot_join_message *m, unsigned char *out);
size_t shunt__boot_start_write(const struct shunt__boot_start_message *m, unsigned char *out);
size_t shunt__boot_child_write(const struct shunt__boot_child_message *m, unsigned char *out);
size_t shunt__boot_fail_write(const struct shunt__boot_fail_message *m, unsigned char *out);
#define SHUNT__BOOT_STEP_HEAD 7
size_t shunt__boot_step_write(const struct shunt__boot_step_message *m, unsigned char *out);
/* Appends one entry at out + at; returns the new length. */
size_t shunt__boot_entry_write(unsigned char *out, size_t at, int rank, const void *data, size_t len);

/* Each returns nonzero when the bytes are no such message; `m` is then unspecified. */
int shunt__boot_join_read(const unsigned char *message, size_t len, struct shunt__boot_join_message *m);
int shunt__boot_start_read(const unsigned char *message, size_t len, struct shunt__boot_start_message *m);
int shunt__boot_child_read(const unsigned char *message, size_t len, struct shunt__boot_child_message *m);
int shunt__boot_fail_read(const unsigned char *message, size_t len, struct shunt__boot_fail_message *m);
int shunt__boot_step_read(const unsigned char *message, size_t len, struct shunt__boot_step_message *m);
/* The entry at *at, which is moved behind it: 1, 0 at the end, -1 when damaged. Start with *at = STEP_HEAD. */
int shunt__boot_entry_read(const unsigned char *message, size_t len, size_t *at, int *rank, const unsigned char **data,
                           size_t *data_len);

#endif
