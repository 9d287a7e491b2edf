/* SPDX-License-Identifier: BSD-3-Clause */
/* A fabric's insides. Hosts that are alike share one `kind`: its topology, rails, and who is near to which
 * rail. */
#ifndef SHUNT_TOPO_FABRIC_H
#define SHUNT_TOPO_FABRIC_H

#include <shunt/fabric.h>
#include "topo/text.h"

#define SHUNT__MAX_HOSTS 65536
#define SHUNT__MAX_RAILS 256

struct shunt__slot {
    const shunt_topo_object_t *object;
    int rail;         /* the nearest, -1 if there is none */
    double bandwidth; /* to it */
};

struct shunt__kind {
    shunt_topo_t *topo;
    unsigned n_rails, n_slots;
    const shunt_topo_object_t **nic; /* by rail */
    struct shunt__slot *slot;
    unsigned *chain; /* slots in the order in which a ring goes from one to the next nearest */
};

struct shunt__host {
    char *name;
    struct shunt__kind *kind;
    int *port; /* by rail: the switch it is cabled to, -1 if unknown */
};

struct shunt__net_switch {
    char *name;
    int above;   /* -1: top */
    double rate; /* of its uplinks, bits per second; 0 if unknown */
};

struct shunt_fabric {
    struct shunt__host *host;
    unsigned n_hosts, room_hosts;
    struct shunt__kind **kind;
    unsigned n_kinds, room_kinds;
    struct shunt__net_switch *net;
    unsigned n_net, room_net;
    int assumed; /* nobody has told the cables: they follow rails or subnets, made at each host's adding */
};

/* Network switches between two of them, both included: 1 if they are one. */
unsigned shunt__fabric_switches(const shunt_fabric_t *f, int a, int b);
/* The number of the switch of that name, -1 if there is none. */
int shunt__fabric_find_switch(const shunt_fabric_t *f, const char *name, size_t len);
/* A new switch without one above; -1 without memory. */
int shunt__fabric_add_switch(shunt_fabric_t *f, const char *name, size_t len);
void shunt__fabric_free_switches(shunt_fabric_t *f);
shunt_status_t shunt__fabric_no_memory(void);
/* The position of a host in an order in which hosts of one switch stand together; fills order[] with host
 * numbers. */
shunt_status_t shunt__fabric_host_order(const shunt_fabric_t *f, unsigned *order);
int shunt__fabric_place_ok(const shunt_fabric_t *f, shunt_place_t place);

#endif
