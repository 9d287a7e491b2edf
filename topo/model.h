/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The topology's insides. Everything hangs in one arena: objects and strings live as long as the
 * topology and are freed with it, so readers of foreign files need no clean-up of their own.
 */
#ifndef SHUNT_TOPO_MODEL_H
#define SHUNT_TOPO_MODEL_H

#include <shunt/topo.h>

/* What no machine and no honest file goes beyond; more is refused with SHUNT_ERR_LIMIT. */
#define SHUNT__MAX_OBJECTS 65536
#define SHUNT__MAX_CPUS 8192
#define SHUNT__MAX_DEPTH 64
#define SHUNT__MAX_NAME 128

struct shunt__arena {
    struct shunt__block *block;
    int failed; /* an allocation failed: checked once, when the topology is finished */
};

/* Zeroed memory, aligned for anything; a static zero page stands in when there is none and `failed` is set.
 */
void *shunt__arena_get(struct shunt__arena *arena, size_t size);
/* A copy of at most `len` bytes; control characters become '?', so that no file can write to a terminal. */
const char *shunt__arena_text(struct shunt__arena *arena, const char *text, size_t len);
const char *shunt__arena_print(struct shunt__arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void shunt__arena_free(struct shunt__arena *arena);

/* A set of CPU numbers below SHUNT__MAX_CPUS. */
struct shunt__cpus {
    unsigned n_words;
    uint64_t *words;
};

int shunt__cpus_has(const struct shunt__cpus *set, unsigned cpu);
void shunt__cpus_add(struct shunt__arena *arena, struct shunt__cpus *set, unsigned cpu);
unsigned shunt__cpus_count(const struct shunt__cpus *set);
int shunt__cpus_equal(const struct shunt__cpus *a, const struct shunt__cpus *b);

struct shunt__net {
    int dev;         /* number among the network plugin's devices, -1 if unknown */
    int gdr, coll;   /* 1, 0, or -1 if unknown */
    uint32_t maxconn;
};

struct shunt__object {
    shunt_topo_object_t pub; /* first, so that the public pointer is also this one */
    struct shunt__object *parent, *child, *last_child, *next;
    unsigned order;          /* in the topology's list of all objects */
    unsigned depth;
    int is_host_bridge;      /* BRIDGE: the root of a PCI tree */
    int link_guessed;        /* generation and lanes are one way to get the rate that the source told */
    int same_chip; /* SWITCH: a level of a chip that its parent or its GPU already is; adds no hop */
    shunt_topo_pci_t pci;    /* valid if pub.pci is set */
    unsigned os_index;       /* PACKAGE, NUMA: the operating system's number */
    struct shunt__cpus cpus; /* PACKAGE, NUMA */
    uint64_t memory;         /* NUMA: bytes, 0 if unknown */
    union {
        shunt_topo_nic_t *nic;
        shunt_topo_gpu_t *gpu;
    } u;
    struct shunt__net net;
    int is_live;             /* NIC: the kernel's facts are filled in */
    unsigned first_wires, n_wires; /* GPU: its part of the topology's wires, in order of the other end */
};

typedef enum shunt__wire { SHUNT__WIRE_NVLINK, SHUNT__WIRE_XGMI, SHUNT__WIRE_C2C } shunt__wire_t;

/* A bundle of links outside the PCI tree. The one end is a GPU. */
struct shunt__wires {
    struct shunt__object *from, *to;
    shunt__wire_t wire;
    unsigned count;
    double bandwidth;   /* of all of them, one direction, bytes per second; 0: to be guessed from the GPU */
    uint32_t class_id;  /* of the other end, as the source had it */
};

struct shunt__cpu {
    unsigned os_index;
    unsigned core; /* counts cores over the host */
    int online;    /* 0: offline, or this process may not run there */
};

struct shunt_topo {
    struct shunt__arena arena;
    struct shunt__object *host;
    struct shunt__object **all; /* in tree order once finished */
    unsigned n_all, room_all;
    struct shunt__object **of_type[SHUNT_TOPO_N_TYPES];
    unsigned n_of_type[SHUNT_TOPO_N_TYPES];
    struct shunt__wires *wires; /* once finished: in order of both ends, one entry a pair and kind */
    unsigned n_wires, room_wires;
    struct shunt__cpu *cpus;
    unsigned n_cpus, room_cpus, n_cores;
    const char *source;    /* "live", "hwloc", "NCCL", "synthetic", "packed" */
    const char *host_name; /* "" if unknown */
    const char *cpu_arch, *cpu_vendor, *cpu_model; /* "x86_64", "GenuineIntel", ...; "" if unknown */
    int cpu_family, cpu_model_number;              /* 0 if unknown */
    const char *notes;     /* lines about what is odd about the whole, each ended by a newline; never NULL */
    shunt_host_id_t host_id; /* text "" if unknown */
    int nccl_version;      /* of the file that was read; 0 if none */
};

/* A topology with a host object and nothing else. */
shunt_status_t shunt__topo_new(const char *source, shunt_topo_t **topo);
/* A new last child of `parent`. NULL beyond SHUNT__MAX_OBJECTS or without memory; shunt__topo_finish() says
 * which. */
struct shunt__object *shunt__topo_add(shunt_topo_t *topo, struct shunt__object *parent,
                                      shunt_topo_type_t type, const char *name);
struct shunt__wires *shunt__topo_add_wires(shunt_topo_t *topo, struct shunt__object *from,
                                           struct shunt__object *to, shunt__wire_t wire, unsigned count);
void shunt__topo_note(shunt_topo_t *topo, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Numbers and names the objects, fills the lists; frees the topology if something failed on the way. */
shunt_status_t shunt__topo_finish(shunt_topo_t **topo);

/* Parses "0000:3b:00.0" or "3b:00.0", domains of up to 32 bits; nonzero if it is none. */
int shunt__pci_parse(const char *text, shunt_topo_pci_t *pci);
const char *shunt__pci_print(struct shunt__arena *arena, const shunt_topo_pci_t *pci);
void shunt__object_set_pci(struct shunt__object *o, const shunt_topo_pci_t *pci);

/* Objects by PCI address. The first one added with an address stays. */
struct shunt__pci_index {
    struct shunt__object **slot;
    unsigned mask, n;
};

int shunt__pci_index_add(struct shunt__pci_index *index,
                         struct shunt__object *o); /* nonzero without memory */
struct shunt__object *shunt__pci_index_find(const struct shunt__pci_index *index,
                                            const shunt_topo_pci_t *pci);
void shunt__pci_index_free(struct shunt__pci_index *index);

/* Takes `o` out of its parent's children and makes it `parent`'s last child. */
void shunt__object_move(struct shunt__object *o, struct shunt__object *parent);
/* What a PCI link carries after encoding, bytes per second: MT/s per lane, lanes. */
double shunt__pci_rate(uint32_t speed, uint32_t width);

static inline struct shunt__object *shunt__object(const shunt_topo_object_t *object)
{
    return (struct shunt__object *)(uintptr_t)object;
}

/* Compares names with their numbers as numbers: rail2 before rail10. */
int shunt__compare_names(const char *a, const char *b);

#endif
