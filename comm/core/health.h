/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two halves of health share: events and views (health.c), measurement and verdicts (judge.c). */
#ifndef SHUNT_CORE_HEALTH_H
#define SHUNT_CORE_HEALTH_H

#include "comm/core/engine.h"

#define SHUNT__EDGES 1024
#define SHUNT__VERDICTS 32

/* A verdict that has been given, or is about to be. */
struct shunt__finding {
    struct shunt__verdict v;
    uint64_t first, last; /* when it was found first and last */
    uint8_t told;
};

struct shunt__cable {
    char host[32], rail[24], leaf[32];
};

struct shunt__health {
    void (*callback)(const shunt_event_t *event, void *arg);
    void *arg;
    struct shunt__edge edges[SHUNT__EDGES];
    int n_edges;
    struct shunt__finding found[SHUNT__VERDICTS];
    int n_found;
    uint64_t last_told, next_judge; /* when our links were last sent to the others; when to look again */
    uint8_t tell;                   /* they are to be sent */
    struct shunt__cable *cables;
    int n_cables;
    /* how late this rank comes to collectives: of the last ones, the time that others had waited, ns */
    uint64_t late[16];
    unsigned n_late;
    uint64_t waited; /* of the context, at the last entry */
    uint8_t late_told;
};

#endif
