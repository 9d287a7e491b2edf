/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel says about network interfaces and RDMA ports, as plain facts. Reading them and
 * judging them are apart, so that tests can judge machines that they don't have.
 */
#ifndef SHUNT_TOPO_INTERFACES_H
#define SHUNT_TOPO_INTERFACES_H

#include <net/if.h>
#include "topo/model.h"

struct shunt__interface {
    char name[IF_NAMESIZE];
    unsigned ifindex;
    unsigned flags;         /* IFF_... */
    unsigned mtu;
    unsigned short arp_type; /* ARPHRD_... */
    int carrier;            /* 1, 0, or -1 if the kernel doesn't say */
    unsigned master;        /* ifindex of the bond or bridge it is a member of, 0 if none */
    unsigned lower;         /* ifindex of the interface it sits upon (VLAN, macvlan), 0 if none */
    int lower_elsewhere;    /* `lower` counts in another network namespace */
    char kind[20];          /* "veth", "bridge", "vlan", ...; "" for hardware */
    char bus[16];           /* "pci", "virtio", ...; "" if unknown */
    char device[48];        /* PCI address or the like; "" if unknown */
    char driver[32];
    int64_t speed;          /* Mbit/s as the driver tells it; -1 or 0 if it doesn't */
    uint64_t shaped;        /* bits per second that a token bucket (tc tbf) lets out; 0 if there is none */
    int numa;               /* -1 if unknown */
    unsigned dev_port;      /* port of a device with several, from 0 */
    unsigned n_addresses;
    shunt_topo_address_t *addresses;
};

struct shunt__rdma_port {
    char device[64];         /* "mlx5_0" */
    unsigned port;           /* from 1 */
    char interface[IF_NAMESIZE]; /* its network interface, "" if none */
    char pci[48];            /* PCI address, "" if unknown */
    int active;
    int infiniband;          /* link layer: 1 InfiniBand, 0 Ethernet */
    int64_t speed;           /* Mbit/s, 0 if unknown */
    uint64_t guid;
    int numa;
};

struct shunt__interfaces {
    struct shunt__interface *interface;
    unsigned n;
    struct shunt__rdma_port *port;
    unsigned n_ports;
};

/* Asks the kernel of this network namespace (netlink, ethtool), and `sysfs` ("/sys") for RDMA ports. */
shunt_status_t shunt__interfaces_read(const char *sysfs, struct shunt__interfaces *out);
/* RDMA ports alone; none is no error. */
shunt_status_t shunt__rdma_read(const char *sysfs, struct shunt__interfaces *out);
void shunt__interfaces_free(struct shunt__interfaces *in);

/*
 * Puts these facts into the NICs that an unfinished topology has already (by interface, RDMA device or PCI
 * address), and adds those that it hasn't. NICs of the topology that the facts don't know get the reason
 * `absent`.
 */
void shunt__nics_add(shunt_topo_t *topo, const struct shunt__interfaces *in, const char *absent);

/*
 * Judges a NIC that is known by name, state, kind and addresses: sets layer (if unknown), is_virtual, tier
 * and reason. For NICs from files, whose kind is guessed from the name. `over_physical`: a bond, VLAN or
 * bridge that has hardware below it. `member_of`: name of the bond or bridge it is a member of, or NULL.
 */
void shunt__nic_judge(shunt_topo_t *topo, shunt_topo_nic_t *nic, int over_physical, const char *member_of);

/* Sets rate, rate_known and part of the reason from a speed in Mbit/s that may be absurd. */
void shunt__nic_set_speed(shunt_topo_t *topo, shunt_topo_nic_t *nic, int64_t mbits);

#endif
