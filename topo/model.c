/* SPDX-License-Identifier: BSD-3-Clause */
/* The topology's tree: memory, adding objects, numbering, look-up. */
#include "topo/model.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "comm/base/log.h"

#define BLOCK 16384

struct shunt__block {
    struct shunt__block *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

static _Alignas(16) unsigned char scrap[65536]; /* written to by nobody who matters once `failed` is set */

void *shunt__arena_get(struct shunt__arena *arena, size_t size)
{
    struct shunt__block *b = arena->block;

    size = (size + 15) & ~(size_t)15;
    if (!b || b->size - b->used < size) {
        size_t room = size > BLOCK ? size : BLOCK;
        b = calloc(1, sizeof(*b) + room);
        if (!b) {
            arena->failed = 1;
            return size <= sizeof(scrap) ? scrap : NULL;
        }
        b->size = room;
        b->next = arena->block;
        arena->block = b;
    }
    b->used += size;
    return b->bytes + b->used - size;
}

const char *shunt__arena_text(struct shunt__arena *arena, const char *text, size_t len)
{
    size_t n = strnlen(text, len);
    char *copy = shunt__arena_get(arena, n + 1);

    if (!copy || arena->failed)
        return "";
    for (size_t i = 0; i < n; i++)
        copy[i] = (unsigned char)text[i] < 32 || text[i] == 127 ? '?' : text[i];
    copy[n] = 0;
    return copy;
}

const char *shunt__arena_print(struct shunt__arena *arena, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return shunt__arena_text(arena, text, sizeof(text));
}

void shunt__arena_free(struct shunt__arena *arena)
{
    while (arena->block) {
        struct shunt__block *b = arena->block;
        arena->block = b->next;
        free(b);
    }
}

int shunt__cpus_has(const struct shunt__cpus *set, unsigned cpu)
{
    return cpu / 64 < set->n_words && (set->words[cpu / 64] >> cpu % 64 & 1);
}

void shunt__cpus_add(struct shunt__arena *arena, struct shunt__cpus *set, unsigned cpu)
{
    if (cpu >= SHUNT__MAX_CPUS)
        return;
    if (cpu / 64 >= set->n_words) {
        unsigned n = cpu / 64 + 1;
        uint64_t *words = shunt__arena_get(arena, n * sizeof(*words));
        if (arena->failed)
            return;
        if (set->n_words)
            memcpy(words, set->words, set->n_words * sizeof(*words));
        set->words = words;
        set->n_words = n;
    }
    set->words[cpu / 64] |= 1ull << cpu % 64;
}

unsigned shunt__cpus_count(const struct shunt__cpus *set)
{
    unsigned n = 0;

    for (unsigned i = 0; i < set->n_words; i++)
        n += (unsigned)__builtin_popcountll(set->words[i]);
    return n;
}

int shunt__cpus_equal(const struct shunt__cpus *a, const struct shunt__cpus *b)
{
    for (unsigned i = 0; i < a->n_words || i < b->n_words; i++)
        if ((i < a->n_words ? a->words[i] : 0) != (i < b->n_words ? b->words[i] : 0))
            return 0;
    return 1;
}

static const char *const type_names[] = {"host", "package", "NUMA", "bridge", "switch", "GPU", "NIC", "NVSwitch"};

const char *shunt_topo_type_name(shunt_topo_type_t type)
{
    return (unsigned)type < SHUNT_TOPO_N_TYPES ? type_names[type] : "unknown";
}

const char *shunt_topo_link_layer_name(shunt_topo_link_layer_t layer)
{
    static const char *const names[] = {"unknown", "Ethernet", "InfiniBand", "loopback", "tunnel"};
    return (unsigned)layer < 5 ? names[layer] : "unknown";
}

const char *shunt_topo_nic_state_name(shunt_topo_nic_state_t state)
{
    static const char *const names[] = {"up", "no carrier", "down"};
    return (unsigned)state < 3 ? names[state] : "unknown";
}

/* Room for one more in an array that doubles; nonzero without memory. */
static int grow(void *array, unsigned n, unsigned *room, size_t size)
{
    void *old, *bigger;

    if (n < *room)
        return 0;
    memcpy(&old, array, sizeof(old));
    bigger = realloc(old, (size_t)(*room ? *room * 2 : 64) * size);
    if (!bigger)
        return -1;
    *room = *room ? *room * 2 : 64;
    memcpy(array, &bigger, sizeof(bigger));
    return 0;
}

shunt_status_t shunt__topo_new(const char *source, shunt_topo_t **topo)
{
    shunt_topo_t *t = calloc(1, sizeof(*t));

    if (!t)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a topology");
    t->source = source;
    t->host_name = t->cpu_arch = t->cpu_vendor = t->cpu_model = t->notes = "";
    t->host = shunt__topo_add(t, NULL, SHUNT_TOPO_HOST, "host");
    if (!t->host) {
        shunt_topo_destroy(t);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a topology");
    }
    *topo = t;
    return SHUNT_OK;
}

struct shunt__object *shunt__topo_add(shunt_topo_t *topo, struct shunt__object *parent, shunt_topo_type_t type,
                                      const char *name)
{
    struct shunt__object *o;

    if (topo->n_all >= SHUNT__MAX_OBJECTS || topo->arena.failed ||
        grow(&topo->all, topo->n_all, &topo->room_all, sizeof(*topo->all))) {
        topo->arena.failed = 1;
        return NULL;
    }
    o = shunt__arena_get(&topo->arena, sizeof(*o));
    if (topo->arena.failed)
        return NULL;
    o->pub.type = type;
    o->pub.name = name ? shunt__arena_text(&topo->arena, name, SHUNT__MAX_NAME) : NULL;
    o->pub.numa = -1;
    o->net.dev = o->net.gdr = o->net.coll = -1;
    if (type == SHUNT_TOPO_GPU) {
        o->u.gpu = shunt__arena_get(&topo->arena, sizeof(*o->u.gpu));
        if (!topo->arena.failed)
            o->u.gpu->dev = o->u.gpu->rank = o->u.gpu->gdr = -1;
    } else if (type == SHUNT_TOPO_NIC) {
        o->u.nic = shunt__arena_get(&topo->arena, sizeof(*o->u.nic));
        o->pub.nic = o->u.nic;
    }
    if (topo->arena.failed)
        return NULL;
    if (parent) {
        o->parent = parent;
        if (parent->last_child)
            parent->last_child->next = o;
        else
            parent->child = o;
        parent->last_child = o;
    }
    topo->all[topo->n_all++] = o;
    return o;
}

struct shunt__wires *shunt__topo_add_wires(shunt_topo_t *topo, struct shunt__object *from, struct shunt__object *to,
                                           shunt__wire_t wire, unsigned count)
{
    struct shunt__wires *w;

    if (topo->n_wires >= SHUNT__MAX_OBJECTS ||
        grow(&topo->wires, topo->n_wires, &topo->room_wires, sizeof(*topo->wires))) {
        topo->arena.failed = 1;
        return NULL;
    }
    w = &topo->wires[topo->n_wires++];
    *w = (struct shunt__wires){.from = from, .to = to, .wire = wire, .count = count};
    return w;
}

void shunt__topo_note(shunt_topo_t *topo, const char *fmt, ...)
{
    char line[400];
    size_t old = strlen(topo->notes);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    shunt__log(SHUNT__LOG_INFO, "topology: %s", line);
    if (old > 8000) /* a file with thousands of oddities is odd enough by then */
        return;
    char *both = shunt__arena_get(&topo->arena, old + strlen(line) + 2);
    if (topo->arena.failed)
        return;
    memcpy(both, topo->notes, old);
    snprintf(both + old, strlen(line) + 2, "%s\n", line);
    for (char *p = both + old; p[1]; p++)
        if ((unsigned char)*p < 32 || *p == 127)
            *p = '?';
    topo->notes = both;
}

/* NUMA numbers flow down the tree to what has none of its own; iterative, as files may be deep. */
static void number(shunt_topo_t *t)
{
    struct shunt__object *o = t->host;
    unsigned n = 0;

    while (o) {
        o->order = n;
        t->all[n++] = o;
        o->pub.index = t->n_of_type[o->pub.type]++;
        if (o->pub.type == SHUNT_TOPO_NUMA)
            o->pub.numa = (int)o->os_index;
        else if (o->parent && o->pub.numa < 0)
            o->pub.numa = o->parent->pub.numa;
        if (o->child)
            o = o->child;
        else {
            while (o && !o->next)
                o = o->parent;
            o = o ? o->next : NULL;
        }
    }
    t->n_all = n;
}

static void name(shunt_topo_t *t, struct shunt__object *o)
{
    if (o->pub.name)
        return;
    if ((o->pub.type == SHUNT_TOPO_BRIDGE || o->pub.type == SHUNT_TOPO_SWITCH) && o->pci.present)
        o->pub.name = shunt__arena_print(&t->arena, "%04x:%02x:%02x.%x", o->pci.domain, o->pci.bus, o->pci.device,
                                         o->pci.function);
    else if (o->pub.type == SHUNT_TOPO_NUMA || o->pub.type == SHUNT_TOPO_PACKAGE)
        o->pub.name = shunt__arena_print(&t->arena, "%s %u", type_names[o->pub.type], o->os_index);
    else
        o->pub.name = shunt__arena_print(&t->arena, "%s %u", type_names[o->pub.type], o->pub.index);
}

shunt_status_t shunt__topo_finish(shunt_topo_t **topo)
{
    shunt_topo_t *t = *topo;
    unsigned fill[SHUNT_TOPO_N_TYPES] = {0};

    if (t->arena.failed) {
        int many = t->n_all >= SHUNT__MAX_OBJECTS || t->n_wires >= SHUNT__MAX_OBJECTS;
        shunt_topo_destroy(t);
        *topo = NULL;
        return many ? shunt__fail(SHUNT_ERR_LIMIT, "a topology of more than %d objects is not believed",
                                  SHUNT__MAX_OBJECTS)
                    : shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a topology");
    }
    number(t);
    for (unsigned i = 0; i < t->n_all; i++)
        name(t, t->all[i]);
    for (int k = 0; k < SHUNT_TOPO_N_TYPES; k++)
        t->of_type[k] = shunt__arena_get(&t->arena, (t->n_of_type[k] + 1) * sizeof(*t->of_type[k]));
    if (t->arena.failed) {
        shunt_topo_destroy(t);
        *topo = NULL;
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a topology");
    }
    for (unsigned i = 0; i < t->n_all; i++)
        t->of_type[t->all[i]->pub.type][fill[t->all[i]->pub.type]++] = t->all[i];
    return SHUNT_OK;
}

void shunt_topo_destroy(shunt_topo_t *topo)
{
    if (!topo)
        return;
    shunt__arena_free(&topo->arena);
    free(topo->all);
    free(topo->wires);
    free(topo->cpus);
    free(topo);
}

unsigned shunt_topo_count(const shunt_topo_t *topo, shunt_topo_type_t type)
{
    return topo && (unsigned)type < SHUNT_TOPO_N_TYPES ? topo->n_of_type[type] : 0;
}

const shunt_topo_object_t *shunt_topo_get(const shunt_topo_t *topo, shunt_topo_type_t type, unsigned index)
{
    return index < shunt_topo_count(topo, type) ? &topo->of_type[type][index]->pub : NULL;
}

/* "GPU 3" and "gpu3" are one name. */
static int same_name(const char *a, const char *b)
{
    while (*a || *b) {
        if (*a == ' ')
            a++;
        else if (*b == ' ')
            b++;
        else if (tolower((unsigned char)*a++) != tolower((unsigned char)*b++))
            return 0;
    }
    return 1;
}

static int same_pci(const struct shunt__pci *pci, const char *text)
{
    unsigned domain = 0, bus, device, function;
    int n = 0;

    if (!pci->present)
        return 0;
    if (sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &n) != 4 || text[n]) {
        domain = 0;
        if (sscanf(text, "%x:%x.%x%n", &bus, &device, &function, &n) != 3 || text[n])
            return 0;
    }
    return domain == pci->domain && bus == pci->bus && device == pci->device && function == pci->function;
}

const shunt_topo_object_t *shunt_topo_find(const shunt_topo_t *topo, const char *wanted)
{
    char with_port[SHUNT__MAX_NAME + 16];

    if (!topo || !wanted)
        return NULL;
    for (unsigned i = 0; i < topo->n_all; i++)
        if (strcmp(topo->all[i]->pub.name, wanted) == 0)
            return &topo->all[i]->pub;
    for (unsigned i = 0; i < topo->n_of_type[SHUNT_TOPO_NIC]; i++) {
        struct shunt__object *o = topo->of_type[SHUNT_TOPO_NIC][i];
        if (!o->u.nic->rdma)
            continue;
        snprintf(with_port, sizeof(with_port), "%s:%u", o->u.nic->rdma, o->u.nic->rdma_port);
        if (strcmp(o->u.nic->rdma, wanted) == 0 || strcmp(with_port, wanted) == 0 || strcmp(o->u.nic->name, wanted) == 0)
            return &o->pub;
    }
    for (unsigned i = 0; i < topo->n_all; i++)
        if (same_name(topo->all[i]->pub.name, wanted))
            return &topo->all[i]->pub;
    /* Devices before the bridges above them. */
    for (unsigned i = topo->n_all; i-- > 0;)
        if (same_pci(&topo->all[i]->pci, wanted))
            return &topo->all[i]->pub;
    return NULL;
}

int shunt__compare_names(const char *a, const char *b)
{
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            size_t za = strspn(a, "0"), zb = strspn(b, "0");
            size_t la = strspn(a + za, "0123456789"), lb = strspn(b + zb, "0123456789");
            if (la != lb)
                return la < lb ? -1 : 1;
            int d = strncmp(a + za, b + zb, la);
            if (d)
                return d;
            a += za + la;
            b += zb + lb;
        } else {
            if (*a != *b)
                return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
            a++;
            b++;
        }
    }
    return *a ? 1 : *b ? -1 : 0;
}
