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
    char text[160]; /* what it was made of, for people: "NCCL_HOSTID=node7" or "boot 4f68b7ed, /dev/shm 27:1"
                     */
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
    SHUNT_TOPO_DEVICE,   /* a PCI device of a kind that the source doesn't tell */
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
    const char *kind; /* what the kernel calls a software interface: "veth", "bridge"; "" for hardware */
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

typedef struct shunt_topo_pci {
    uint32_t domain;
    uint8_t bus, device, function;
    uint32_t class_id;  /* 24 bits: class, subclass, programming interface; 0 if unknown */
    uint16_t vendor, product, sub_vendor, sub_product; /* 0 if unknown */
    uint32_t speed;     /* of the link to the parent, MT/s per lane (8000 is 8 GT/s); 0 if unknown */
    uint32_t width;     /* lanes; 0 if unknown */
} shunt_topo_pci_t;

typedef struct shunt_topo_gpu {
    int dev;            /* the driver's number; -1 if unknown */
    int rank;           /* in the job that wrote the file; -1 if none */
    int sm;             /* compute capability (80), or an AMD GPU's compute units (304); 0 if unknown */
    const char *gcn;    /* an AMD GPU's architecture ("gfx942"), or NULL */
    int arch;           /* RCCL's bit field of that name; 0 if none */
    int gdr;            /* NICs can reach its memory: 1, 0, or -1 if unknown */
    const char *model;  /* "Tesla V100-SXM3-32GB", or NULL */
    int is_display;     /* nonzero: drives a console, computes nothing (a server's management chip) */
} shunt_topo_gpu_t;

struct shunt_topo_object {
    shunt_topo_type_t type;
    unsigned index;                /* counts the objects of its type in this topology, from 0 */
    const char *name;              /* unique in this topology: "NUMA 0", "GPU 3", "mlx5_0", "0000:3b:00.0" */
    int numa;                      /* operating system's number of the nearest NUMA node; -1 if unknown */
    const char *note;              /* what is odd about it, or NULL */
    const shunt_topo_pci_t *pci;   /* NULL if it is no PCI device */
    const shunt_topo_nic_t *nic;   /* set for NICs only */
    const shunt_topo_gpu_t *gpu;   /* set for GPUs only */
};

/*
 * The live host. `nics_only` nonzero skips CPUs, PCI and GPUs (no hwloc), which takes under a millisecond
 * per ten NICs; NUMA numbers then come from the kernel alone. SHUNT_ERR_SYSTEM if the kernel's list of
 * interfaces can't be read. On success *topo is the caller's, to be given to shunt_topo_destroy().
 */
SHUNT_API shunt_status_t shunt_topo_load_live(int nics_only, shunt_topo_t **topo);

/*
 * From a file: hwloc XML (lstopo's exports, of hwloc 1 to 3), or NCCL's or RCCL's topology XML (what
 * NCCL_TOPO_FILE takes and NCCL_TOPO_DUMP_FILE gives), told apart by their root element; or a packed
 * topology. "-" is the standard input. SHUNT_ERR_NOT_FOUND, SHUNT_ERR_FORMAT (names line and what is wrong),
 * SHUNT_ERR_LIMIT (beyond 16 MiB, 65,536 elements or 64 levels). No entity is expanded and nothing else is
 * opened.
 */
SHUNT_API shunt_status_t shunt_topo_load_file(const char *path, shunt_topo_t **topo);

/* The same from memory; `name` is for error texts, may be NULL. `data` needs no final 0 and may go after the
 * call. */
SHUNT_API shunt_status_t shunt_topo_load_memory(const char *name, const void *data, size_t size,
                                                shunt_topo_t **topo);

/*
 * From a description in hwloc's synthetic notation ("pack:2 numa:2 core:12 pu:2"), optionally followed by '+'
 * and the devices of each NUMA node: "pack:2 numa:2 core:12 pu:2 + switch:1 gpu:2 nic:1@400g" is two GPUs and
 * one NIC of 400 Gbit/s under each of the four PCI switches. "nvlink:18" joins all GPUs through an NVSwitch.
 */
SHUNT_API shunt_status_t shunt_topo_load_synthetic(const char *description, shunt_topo_t **topo);

/*
 * The live host as NCCL_TOPO_FILE would have it: if that is set and readable, that file with the live host's
 * NIC states put in; else the live host. NCCL_TOPO_DUMP_FILE is written where it is set.
 */
SHUNT_API shunt_status_t shunt_topo_load(shunt_topo_t **topo);

/* Frees the topology and all its objects. NULL is allowed. */
SHUNT_API void shunt_topo_destroy(shunt_topo_t *topo);

/* How many objects of a type there are. */
SHUNT_API unsigned shunt_topo_count(const shunt_topo_t *topo, shunt_topo_type_t type);

/* The index-th object of a type, NULL beyond the last. Owned by the topology. */
SHUNT_API const shunt_topo_object_t *shunt_topo_get(const shunt_topo_t *topo, shunt_topo_type_t type,
                                                    unsigned index);

/*
 * The object of that name, or NULL. Takes names of objects ("GPU 3", "gpu3", "NUMA 0", "mlx5_0"), RDMA
 * device names with or without port ("mlx5_0:1"), interface names and PCI addresses ("0000:3b:00.0",
 * "3b:00.0").
 */
SHUNT_API const shunt_topo_object_t *shunt_topo_find(const shunt_topo_t *topo, const char *name);

/* The object above in the tree; NULL above the host. */
SHUNT_API const shunt_topo_object_t *shunt_topo_parent(const shunt_topo_object_t *object);

/* The index-th child, NULL beyond the last. Cost: O(index). */
SHUNT_API const shunt_topo_object_t *shunt_topo_child(const shunt_topo_object_t *object, unsigned index);

/* "live", "hwloc", "NCCL", "synthetic"; what the host calls itself ("" if unknown); what is odd about the
 * whole, a line each ("" if nothing). Owned by the topology. */
SHUNT_API const char *shunt_topo_source(const shunt_topo_t *topo);
SHUNT_API const char *shunt_topo_host_name(const shunt_topo_t *topo);
SHUNT_API const char *shunt_topo_notes(const shunt_topo_t *topo);

/* The identity of the topology's host: of a live one shunt_host_id()'s, of a file a hash of its content. */
SHUNT_API void shunt_topo_host_id(const shunt_topo_t *topo, shunt_host_id_t *id);

/* The NUMA node that a CPU (operating system's number) belongs to, or NULL. */
SHUNT_API const shunt_topo_object_t *shunt_topo_numa_of_cpu(const shunt_topo_t *topo, unsigned cpu);

/* ---- paths ---- */

/* In NCCL's and nvidia-smi's words, best first. */
typedef enum shunt_topo_class {
    SHUNT_TOPO_LOC,  /* the same object */
    SHUNT_TOPO_NVL,  /* NVLink, xGMI or C2C, directly or through NVSwitches */
    SHUNT_TOPO_PIX,  /* at most one PCI switch */
    SHUNT_TOPO_PXB,  /* several PCI switches, no host bridge */
    SHUNT_TOPO_PHB,  /* a PCI host bridge: through the CPU */
    SHUNT_TOPO_NODE, /* two host bridges of one NUMA node */
    SHUNT_TOPO_SYS,  /* between NUMA nodes */
    SHUNT_TOPO_NET   /* between hosts */
} shunt_topo_class_t;

/* "LOC", "NVL", ...; never NULL; static. */
SHUNT_API const char *shunt_topo_class_name(shunt_topo_class_t path_class);

typedef struct shunt_topo_path {
    shunt_topo_class_t path_class;
    double bandwidth;    /* bytes per second one way, what large transfers reach; the lowest of the hops */
    unsigned links;      /* NVL: parallel links; else 0 */
    const shunt_topo_object_t
        *narrow; /* the object whose link to its parent is the lowest hop; NULL if it is none of those */
    unsigned n_hops;     /* objects on the way, both ends included; at most 130 */
    const shunt_topo_object_t *hop[130];
} shunt_topo_path_t;

/*
 * How bytes get from `from` to `to`, objects of one topology. Through PCI: as NCCL classifies them (switch
 * chips that show as two levels count once); bandwidths are 85 % of the link's rate after encoding, between
 * NUMA nodes what NCCL assumes for the CPU. A PCI link of unknown speed counts as generation 3 x16. Ends of
 * which one is a NIC are also bounded by its rate, if known. Cost: O(depth + NVLinks). SHUNT_ERR_INVALID
 * for NULL.
 */
SHUNT_API shunt_status_t shunt_topo_path(const shunt_topo_t *topo, const shunt_topo_object_t *from,
                                         const shunt_topo_object_t *to, shunt_topo_path_t *path);

/*
 * The NICs nearest to an object (a GPU, a NUMA node, ...) among those that would carry data by default (see
 * shunt_topo_rails()): those of the best path class, of them those with the highest bandwidth, of them those
 * that the tree joins to it lowest. Writes at most `room` to `nics`, sets *n to how many there are (0 if no
 * NIC is usable). Cost: O(NICs x depth of the tree).
 */
SHUNT_API shunt_status_t shunt_topo_nearest_nics(const shunt_topo_t *topo, const shunt_topo_object_t *object,
                                                 const shunt_topo_object_t **nics, unsigned room,
                                                 unsigned *n);

/* The same for a CPU (operating system's number): the NICs nearest to its NUMA node. */
SHUNT_API shunt_status_t shunt_topo_nearest_nics_of_cpu(const shunt_topo_t *topo, unsigned cpu,
                                                        const shunt_topo_object_t **nics, unsigned room,
                                                        unsigned *n);

/* Where the helper thread that drives a NIC, and the buffers it copies through, are best put. */
typedef struct shunt_topo_binding {
    int numa;            /* NUMA node for the buffers; -1: anywhere */
    unsigned n_cpus;     /* CPUs of it that this process may use; 0: anywhere */
    unsigned cpu[1024];  /* the first 1024 of them, last cores first: interrupts and the job sit on the first
                            ones */
    char reason[160];
} shunt_topo_binding_t;

SHUNT_API shunt_status_t shunt_topo_binding(const shunt_topo_t *topo, const shunt_topo_object_t *nic,
                                            shunt_topo_binding_t *binding);

/* ---- writing ---- */

typedef enum shunt_topo_format {
    SHUNT_TOPO_TEXT,   /* a tree of what matters for communication */
    SHUNT_TOPO_MATRIX, /* GPUs x GPUs and NICs with path classes, as nvidia-smi topo -m has it */
    SHUNT_TOPO_JSON,   /* arrays gpus, nics, numa, switches, paths */
    SHUNT_TOPO_SVG,
    SHUNT_TOPO_DOT,  /* for Graphviz */
    SHUNT_TOPO_NCCL, /* within the limits of NCCL's parser, else SHUNT_ERR_LIMIT; RCCL's variant if there are
                        AMD GPUs */
    SHUNT_TOPO_HWLOC /* hwloc 2 XML */
} shunt_topo_format_t;

/* Writes a topology. *text is the caller's, freed with free(); it ends with a 0 that *size (may be NULL)
 * doesn't count. */
SHUNT_API shunt_status_t shunt_topo_export(const shunt_topo_t *topo, shunt_topo_format_t format, char **text,
                                           size_t *size);

/*
 * The compact form that ranks exchange: little-endian, versioned, checksummed. *data is the caller's, freed
 * with free(). Unpacking checks everything and takes foreign bytes: SHUNT_ERR_FORMAT says what is wrong.
 */
SHUNT_API shunt_status_t shunt_topo_pack(const shunt_topo_t *topo, void **data, size_t *size);
SHUNT_API shunt_status_t shunt_topo_unpack(const void *data, size_t size, shunt_topo_t **topo);

/*
 * What changed from `before` to `after`, a line each: a device gone or new, a link or port slower, a NIC
 * down, a NUMA node smaller. Devices are matched by PCI address, else by name. *text ("" if nothing changed)
 * is the caller's, freed with free(); *changes (may be NULL) counts its lines.
 */
SHUNT_API shunt_status_t shunt_topo_diff(const shunt_topo_t *before, const shunt_topo_t *after, char **text,
                                         unsigned *changes);

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
 * NCCL_SOCKET_IFNAME. Without a setting the NICs of the best tier that has any are taken, but no hardware
 * slower than a tenth of the fastest among them. Order: as named in SHUNT_RAILS, else by name with numbers
 * compared as numbers. SHUNT_ERR_NOT_FOUND if nothing is usable: the text names the setting and lists what
 * exists. SHUNT_ERR_INVALID if a setting can't be understood. On success *rails is the caller's, to be given
 * to shunt_topo_rails_destroy() before the topology is destroyed. Cost: O(NICs x names).
 */
SHUNT_API shunt_status_t shunt_topo_rails(const shunt_topo_t *topo, const shunt_topo_rails_options_t *options,
                                          shunt_topo_rails_t **rails);

/* NULL is allowed. */
SHUNT_API void shunt_topo_rails_destroy(shunt_topo_rails_t *rails);

#ifdef __cplusplus
}
#endif
#endif
