/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt/topo.h - what this machine is made of, and which of its NICs carry data.
 *
 * A topology is a tree of objects: the host, its packages and NUMA nodes, PCI switches, and the
 * devices that matter for communication (GPUs, NICs). It is built once and never changes after that:
 * every object and string stays valid until shunt_topo_destroy(), and any number of threads may read
 * it. Facts that are missing or absurd (a speed of -1, no NUMA, an empty /sys) become a default, and
 * the object says so in its `reason` or `note`.
 *
 * Units: rates are in bits per second, bandwidths in bytes per second.
 */
#ifndef SHUNT_TOPO_H
#define SHUNT_TOPO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shunt_topo shunt_topo_t;
typedef struct shunt_topo_object shunt_topo_object_t;

/* ---- which host is this ---- */

typedef struct shunt_host_id {
    uint8_t bytes[16]; /* equal for two processes if they can share memory through /dev/shm */
    char text[160];    /* what it was made of, for people: "NCCL_HOSTID=node7" or "boot 4f68b7ed, /dev/shm 27:1" */
} shunt_host_id_t;

/*
 * The identity of the host as far as shared memory goes: SHUNT_HOSTID, else NCCL_HOSTID, else a hash of
 * the kernel's boot id and of the tmpfs that is mounted on /dev/shm. Never the hostname: two hosts of one
 * name differ, two containers of one host with their own /dev/shm differ, two with one /dev/shm are equal.
 * Machines resumed from one snapshot share a boot id, so equality is a claim to be proven (by a token in
 * /dev/shm) before memory is shared. Without /dev/shm the mount namespace takes its place.
 * Reads the environment and /proc at each call. Any thread.
 */
SHUNT_API shunt_status_t shunt_host_id(shunt_host_id_t *id);

/* ---- objects ---- */

typedef enum shunt_topo_type {
    SHUNT_TOPO_HOST,
    SHUNT_TOPO_PACKAGE,  /* a CPU socket */
    SHUNT_TOPO_NUMA,     /* a memory node and the CPUs nearest to it */
    SHUNT_TOPO_BRIDGE,   /* a PCI host bridge or port; adds no hop to a path */
    SHUNT_TOPO_SWITCH,   /* a PCI switch */
    SHUNT_TOPO_GPU,
    SHUNT_TOPO_NIC,      /* one port of a network device */
    SHUNT_TOPO_NVSWITCH, /* joins GPUs by NVLink */
    SHUNT_TOPO_N_TYPES
} shunt_topo_type_t;

/* "GPU", "NIC", ...; never NULL; static. */
SHUNT_API const char *shunt_topo_type_name(shunt_topo_type_t type);

typedef enum shunt_topo_link_layer {
    SHUNT_TOPO_LINK_UNKNOWN,
    SHUNT_TOPO_LINK_ETHERNET,
    SHUNT_TOPO_LINK_INFINIBAND,
    SHUNT_TOPO_LINK_LOOPBACK,
    SHUNT_TOPO_LINK_TUNNEL /* carries IP only: VPNs, tunnels */
} shunt_topo_link_layer_t;

/* "Ethernet", "InfiniBand", ...; never NULL; static. */
SHUNT_API const char *shunt_topo_link_layer_name(shunt_topo_link_layer_t layer);

typedef enum shunt_topo_nic_state {
    SHUNT_TOPO_NIC_UP,
    SHUNT_TOPO_NIC_NO_CARRIER, /* enabled, but no signal: cable, switch or peer is down */
    SHUNT_TOPO_NIC_DOWN        /* disabled by the administrator */
} shunt_topo_nic_state_t;

/* "up", "no carrier", "down"; never NULL; static. */
SHUNT_API const char *shunt_topo_nic_state_name(shunt_topo_nic_state_t state);

typedef struct shunt_topo_address {
    sa_family_t family;  /* AF_INET or AF_INET6 */
    uint8_t prefix;      /* length of the network part, bits */
    uint8_t link_local;  /* 169.254.0.0/16 or fe80::/10: needs the interface index as scope */
    uint8_t bytes[16];   /* network order; 4 or 16 bytes are used */
} shunt_topo_address_t;

/* How good a NIC is for carrying data between hosts; a lower value is better. */
typedef enum shunt_topo_nic_tier {
    SHUNT_TOPO_TIER_PHYSICAL,   /* a NIC of the machine or of the virtual machine */
    SHUNT_TOPO_TIER_OVER,       /* a bond, team, VLAN or bridge over physical NICs that holds their address */
    SHUNT_TOPO_TIER_NAMESPACE,  /* veth, macvlan, ipvlan: a container's or namespace's way out */
    SHUNT_TOPO_TIER_LINK_LOCAL, /* has link-local addresses only */
    SHUNT_TOPO_TIER_TUNNEL,     /* VPN, overlay, tunnel */
    SHUNT_TOPO_TIER_ISOLATED,   /* a bridge without a physical port, a dummy: leads nowhere else */
    SHUNT_TOPO_TIER_LOOPBACK,
    SHUNT_TOPO_TIER_UNUSABLE    /* carries nothing now: down, no address, a member of a bond or bridge */
} shunt_topo_nic_tier_t;

typedef struct shunt_topo_nic {
    const char *name;        /* network interface ("ens1f0", "rail0"), else RDMA device ("mlx5_0") */
    const char *rdma;        /* RDMA device ("mlx5_0"), or NULL */
    unsigned rdma_port;      /* port of the RDMA device, from 1; 0 if none */
    const char *driver;      /* "mlx5_core", "virtio_net"; "" if unknown */
    const char *kind;        /* what the kernel calls a software interface: "veth", "bridge"; "" for hardware */
    unsigned ifindex;        /* interface index in this network namespace; 0 if read from a file */
    unsigned mtu;            /* bytes; 0 if unknown */
    uint64_t rate;           /* bits per second; a default if the source had none or an absurd one */
    int rate_known;          /* 0: `rate` is that default, `reason` says why */
    double latency;          /* seconds, as promised by the source; 0 if it says nothing */
    uint64_t guid;           /* of the RDMA device; 0 if unknown */
    shunt_topo_link_layer_t layer;
    shunt_topo_nic_state_t state;
    int is_virtual;          /* nonzero: no hardware of its own */
    shunt_topo_nic_tier_t tier;
    const char *reason;      /* why it is of this tier, and what is odd about it; never NULL */
    unsigned n_addresses;
    const shunt_topo_address_t *addresses; /* global ones first, IPv4 before IPv6 */
} shunt_topo_nic_t;

struct shunt_topo_object {
    shunt_topo_type_t type;
    unsigned index;                /* counts the objects of its type in this topology, from 0 */
    const char *name;              /* unique in this topology: "NUMA 0", "GPU 3", "mlx5_0", "0000:3b:00.0" */
    int numa;                      /* operating system's number of the nearest NUMA node; -1 if unknown */
    const shunt_topo_nic_t *nic;   /* set for NICs only */
};

/*
 * The live host. `nics_only` nonzero skips CPUs, PCI and GPUs (no hwloc), which takes under a millisecond
 * per ten NICs; NUMA numbers then come from the kernel alone. SHUNT_ERR_SYSTEM if the kernel's list of
 * interfaces can't be read. On success *topo is the caller's, to be given to shunt_topo_destroy().
 */
SHUNT_API shunt_status_t shunt_topo_load_live(int nics_only, shunt_topo_t **topo);

/* Frees the topology and all its objects. NULL is allowed. */
SHUNT_API void shunt_topo_destroy(shunt_topo_t *topo);

/* How many objects of a type there are. */
SHUNT_API unsigned shunt_topo_count(const shunt_topo_t *topo, shunt_topo_type_t type);

/* The index-th object of a type, NULL beyond the last. Owned by the topology. */
SHUNT_API const shunt_topo_object_t *shunt_topo_get(const shunt_topo_t *topo, shunt_topo_type_t type, unsigned index);

/*
 * The object of that name, or NULL. Takes names of objects ("GPU 3", "gpu3", "NUMA 0", "mlx5_0"), RDMA
 * device names with or without port ("mlx5_0:1"), interface names and PCI addresses ("0000:3b:00.0", "3b:00.0").
 */
SHUNT_API const shunt_topo_object_t *shunt_topo_find(const shunt_topo_t *topo, const char *name);

/* ---- which NICs are rails ---- */

typedef enum shunt_topo_rail_state {
    SHUNT_TOPO_RAIL_USED,
    SHUNT_TOPO_RAIL_ABSENT, /* was named by a setting, can't be used now, may come later */
    SHUNT_TOPO_RAIL_UNUSED
} shunt_topo_rail_state_t;

typedef struct shunt_topo_rail {
    const char *name;                  /* the NIC's name, or the name that was asked for */
    const shunt_topo_object_t *object; /* of the topology; NULL if ABSENT and no such NIC exists now */
    const shunt_topo_nic_t *nic;       /* object->nic, or NULL */
    unsigned port;                     /* as asked for by NAME:PORT, else the NIC's rdma_port */
    shunt_topo_rail_state_t state;
    const char *reason;                /* why it is used or not; never NULL */
} shunt_topo_rail_t;

/* Used rails come first and in order: rail i of one host is meant to meet rail i of another. */
typedef struct shunt_topo_rails {
    unsigned n;         /* entries of `rail`: every NIC of the topology, and absent names */
    unsigned n_used;    /* the first n_used are USED */
    unsigned n_absent;  /* the next n_absent are ABSENT; the rest is UNUSED */
    const char *decided_by; /* "SHUNT_RAILS", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME" or "topology" */
    const shunt_topo_rail_t *rail;
} shunt_topo_rails_t;

typedef struct shunt_topo_rails_options {
    size_t size;               /* sizeof(shunt_topo_rails_options_t) */
    const char *rails;         /* SHUNT_RAILS: NAME[:PORT],... in order, or ^NAME,... */
    const char *ib_hca;        /* NCCL_IB_HCA: [^][=]PREFIX[:PORT],... of RDMA devices */
    const char *socket_ifname; /* NCCL_SOCKET_IFNAME: [^][=]PREFIX,... of interfaces */
    sa_family_t family;        /* AF_INET or AF_INET6: only NICs with such an address; AF_UNSPEC: either */
    int no_rdma;               /* nonzero: the rails are sockets, an RDMA NIC needs an address too */
} shunt_topo_rails_options_t;

/*
 * Fills `options` from SHUNT_RAILS, NCCL_IB_HCA, NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY and NCCL_IB_DISABLE.
 * The strings belong to the environment.
 */
SHUNT_API void shunt_topo_rails_options_init(shunt_topo_rails_options_t *options);

/*
 * Chooses the rails. `options` NULL means what shunt_topo_rails_options_init() gives. SHUNT_RAILS wins over
 * everything and may name any NIC, loopback too. Otherwise RDMA NICs are taken where there are any (filtered
 * by NCCL_IB_HCA; then NCCL_SOCKET_IFNAME only says where sockets go), else interfaces, filtered by
 * NCCL_SOCKET_IFNAME. Without a setting the NICs of the best tier that has any are taken, but none slower
 * than a tenth of the fastest among them. Order: as named in SHUNT_RAILS, else by name with numbers compared
 * as numbers.
 * SHUNT_ERR_NOT_FOUND if nothing is usable: the text names the setting and lists what exists.
 * SHUNT_ERR_INVALID if a setting can't be understood. On success *rails is the caller's, to be given to
 * shunt_topo_rails_destroy() before the topology is destroyed. Cost: O(NICs x names).
 */
SHUNT_API shunt_status_t shunt_topo_rails(const shunt_topo_t *topo, const shunt_topo_rails_options_t *options,
                                          shunt_topo_rails_t **rails);

/* NULL is allowed. */
SHUNT_API void shunt_topo_rails_destroy(shunt_topo_rails_t *rails);

#ifdef __cplusplus
}
#endif
#endif
