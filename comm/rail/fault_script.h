/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fault scripts: what goes wrong with which rail, and when. Lines, or parts between semicolons:
 *
 *     # a comment
 *     seed 7                              every chance below is drawn from this
 *     AT rail [HOST:]RAIL[@PEER] ACTION   at a time ("250ms", "2s") since the rail was opened, or "#100": when the rail
 *                                         has been given its 100th frame to send
 *     AT partition PEER,PEER,...          short for: every rail @PEER blackhole
 *     AT heal                             short for: every rail, everyone, clear
 *
 * HOST is a host's name or "*"; without one the line is for every host that reads it. RAIL is the number of a rail,
 * its device or "*". PEER is what the engine calls the other side ("*" and "?" match): for one side only.
 *
 *     down            the carrier is lost: connections end, new ones fail
 *     cut             the same, but nobody is told about a carrier
 *     blackhole       nothing passes and nobody is told; what is under way is stuck; connecting hangs
 *     up              ends down, cut and blackhole; what is stuck and still has a connection goes on
 *     clear           ends everything
 *     delay T  jitter T  rate R ("100mbit", "1gbit"; 0: unlimited)
 *     loss P          as TCP shows lost packets: the frame and all behind it come 200 ms late
 *     drop P  duplicate P  reorder P  corrupt P      frames, with that probability ("5%" or "0.05")
 *                     (drop breaks a rail's promise that nothing is lost but with its connection; the engine finds
 *                     out where the rail keeps order, so not together with duplicate or reorder)
 *     header P        a frame's header is damaged, which ends the connection
 *     flap N DOWN UP  N times: down for the time DOWN, up for the time UP
 */
#ifndef SHUNT_RAIL_FAULT_SCRIPT_H
#define SHUNT_RAIL_FAULT_SCRIPT_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/status.h>

enum shunt__fault_action {
    SHUNT__FAULT_DOWN,
    SHUNT__FAULT_CUT,
    SHUNT__FAULT_BLACKHOLE,
    SHUNT__FAULT_UP,
    SHUNT__FAULT_CLEAR,
    SHUNT__FAULT_DELAY,
    SHUNT__FAULT_JITTER,
    SHUNT__FAULT_RATE,
    SHUNT__FAULT_LOSS,
    SHUNT__FAULT_DROP,
    SHUNT__FAULT_DUPLICATE,
    SHUNT__FAULT_REORDER,
    SHUNT__FAULT_CORRUPT,
    SHUNT__FAULT_HEADER,
    SHUNT__FAULT_ACTIONS
};

#define SHUNT__FAULT_NAME 40
#define SHUNT__FAULT_EVENTS 10000

struct shunt__fault_event {
    uint64_t at;    /* ns since the rail was opened; for counted events UINT64_MAX */
    uint64_t count; /* frames sent; 0: timed */
    enum shunt__fault_action action;
    double value; /* ns, bits/s or probability */
    char host[SHUNT__FAULT_NAME], rail[SHUNT__FAULT_NAME], peer[SHUNT__FAULT_NAME]; /* "*": any */
};

struct shunt__fault_script {
    struct shunt__fault_event *events; /* in the order of their times, counted ones last */
    int n;
    uint64_t seed;
    unsigned used; /* 1u << action for each action in it */
};

/* Parses a script; an error names the line. */
shunt_status_t shunt__fault_parse(const char *text, struct shunt__fault_script *script);
/* The same for SHUNT_FAULTS: the name of a readable file, or the script itself. */
shunt_status_t shunt__fault_load(const char *setting, struct shunt__fault_script *script);
void shunt__fault_free(struct shunt__fault_script *script);
/* The script as text that parses to the same; to be freed. NULL without memory. */
char *shunt__fault_print(const struct shunt__fault_script *script);

#endif
