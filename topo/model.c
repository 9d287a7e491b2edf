/* SPDX-License-Identifier: BSD-3-Clause */
/* The topology's tree: adding objects, numbering, look-up. */
#include "topo/model.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "comm/base/log.h"

static const char *const type_names[] = {"host", "Package", "NUMA",     "bridge", "switch",
                                         "GPU",  "NIC",     "NVSwitch", "device"};

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

struct shunt__object *shunt__topo_add(shunt_topo_t *topo, struct shunt__object *parent,
                                      shunt_topo_type_t type, const char *name)
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
    o->depth = parent ? parent->depth + 1 : 0;
    if (type == SHUNT_TOPO_GPU) {
        o->u.gpu = shunt__arena_get(&topo->arena, sizeof(*o->u.gpu));
        if (!topo->arena.failed)
            o->u.gpu->dev = o->u.gpu->rank = o->u.gpu->gdr = -1;
        o->pub.gpu = o->u.gpu;
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

struct shunt__wires *shunt__topo_add_wires(shunt_topo_t *topo, struct shunt__object *from,
                                           struct shunt__object *to, shunt__wire_t wire, unsigned count)
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

static unsigned hash_pci(const shunt_topo_pci_t *p)
{
    uint64_t key = (uint64_t)p->domain << 16 | (uint64_t)p->bus << 8 | (unsigned)p->device << 3 | p->function;

    return (unsigned)(key * 0x9e3779b97f4a7c15ull >> 32);
}

static int same_address(const shunt_topo_pci_t *a, const shunt_topo_pci_t *b)
{
    return a->domain == b->domain && a->bus == b->bus && a->device == b->device && a->function == b->function;
}

struct shunt__object *shunt__pci_index_find(const struct shunt__pci_index *index, const shunt_topo_pci_t *pci)
{
    unsigned at = hash_pci(pci) & index->mask;

    while (index->slot && index->slot[at]) {
        if (same_address(&index->slot[at]->pci, pci))
            return index->slot[at];
        at = (at + 1) & index->mask;
    }
    return NULL;
}

static void put(struct shunt__pci_index *index, struct shunt__object *o)
{
    unsigned at = hash_pci(&o->pci) & index->mask;

    while (index->slot[at])
        at = (at + 1) & index->mask;
    index->slot[at] = o;
}

int shunt__pci_index_add(struct shunt__pci_index *index, struct shunt__object *o)
{
    if (!o->pub.pci || shunt__pci_index_find(index, &o->pci))
        return 0;
    if (!index->slot || index->n * 2 > index->mask) {
        struct shunt__pci_index bigger = {.mask = index->slot ? index->mask * 2 + 1 : 255, .n = index->n};
        bigger.slot = calloc(bigger.mask + 1, sizeof(*bigger.slot));
        if (!bigger.slot)
            return -1;
        for (unsigned i = 0; index->slot && i <= index->mask; i++)
            if (index->slot[i])
                put(&bigger, index->slot[i]);
        free(index->slot);
        *index = bigger;
    }
    put(index, o);
    index->n++;
    return 0;
}

void shunt__pci_index_free(struct shunt__pci_index *index)
{
    free(index->slot);
    memset(index, 0, sizeof(*index));
}

void shunt__object_move(struct shunt__object *o, struct shunt__object *parent)
{
    struct shunt__object **link = &o->parent->child, *last = NULL;

    while (*link && *link != o) {
        last = *link;
        link = &(*link)->next;
    }
    if (*link) {
        *link = o->next;
        if (o->parent->last_child == o)
            o->parent->last_child = last;
    }
    o->next = NULL;
    o->parent = parent;
    if (parent->last_child)
        parent->last_child->next = o;
    else
        parent->child = o;
    parent->last_child = o;
}

double shunt__pci_rate(uint32_t speed, uint32_t width)
{
    /* 8b/10b, 128b/130b, and from generation 6 on flits of 242 useful bytes in 256 */
    double useful = speed <= 5000 ? 0.8 : speed <= 32000 ? 128.0 / 130 : 242.0 / 256;

    return (double)speed * 1e6 * useful * width / 8;
}

/* NUMA numbers flow down the tree to what has none of its own; iterative, as files may be deep. */
static void number(shunt_topo_t *t)
{
    struct shunt__object *o = t->host;
    unsigned n = 0;

    while (o) {
        o->order = n;
        o->depth = o->parent ? o->parent->depth + 1 : 0;
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

const char *shunt__pci_print(struct shunt__arena *arena, const shunt_topo_pci_t *pci)
{
    return shunt__arena_print(arena, "%04x:%02x:%02x.%x", pci->domain, pci->bus, pci->device, pci->function);
}

int shunt__pci_parse(const char *text, shunt_topo_pci_t *pci)
{
    unsigned long part[4] = {0};
    const char *p = text, *dot = strchr(text, '.');
    int colons = 0, k;
    char *end;

    for (const char *c = text; dot && c < dot; c++)
        colons += *c == ':';
    if (!dot || colons < 1 || colons > 2)
        return -1;
    for (k = colons == 2 ? 0 : 1; k < 4; k++) {
        if (!isxdigit((unsigned char)*p))
            return -1;
        errno = 0;
        part[k] = strtoul(p, &end, 16);
        if (errno || (k < 3 && *end != (k == 2 ? '.' : ':')) || (k == 3 && *end))
            return -1;
        p = end + 1;
    }
    if (part[0] > 0xffffffff || part[1] > 0xff || part[2] > 0x1f || part[3] > 7)
        return -1;
    pci->domain = (uint32_t)part[0];
    pci->bus = (uint8_t)part[1];
    pci->device = (uint8_t)part[2];
    pci->function = (uint8_t)part[3];
    return 0;
}

void shunt__object_set_pci(struct shunt__object *o, const shunt_topo_pci_t *pci)
{
    o->pci = *pci;
    o->pub.pci = &o->pci;
}

static void name(shunt_topo_t *t, struct shunt__object *o, int by_dev)
{
    if (o->pub.name)
        return;
    if (o->pub.type == SHUNT_TOPO_GPU)
        o->pub.name = shunt__arena_print(&t->arena, "GPU %d", by_dev ? o->u.gpu->dev : (int)o->pub.index);
    else if (o->pub.pci)
        o->pub.name = shunt__pci_print(&t->arena, o->pub.pci);
    else if (o->pub.type == SHUNT_TOPO_NUMA || o->pub.type == SHUNT_TOPO_PACKAGE)
        o->pub.name = shunt__arena_print(&t->arena, "%s %u", type_names[o->pub.type], o->os_index);
    else
        o->pub.name = shunt__arena_print(&t->arena, "%s %u", type_names[o->pub.type], o->pub.index);
    if (o->pub.type == SHUNT_TOPO_NIC)
        o->u.nic->name = o->pub.name;
}

static int by_name_then_order(const void *a, const void *b)
{
    const struct shunt__object *x = *(struct shunt__object *const *)a, *y = *(struct shunt__object *const *)b;
    int d = strcmp(x->pub.name, y->pub.name);

    return d ? d : x->order < y->order ? -1 : 1;
}

/* The second of two objects of one name gets "#2" behind it. A host bridge shares nobody's name. */
static void make_unique(shunt_topo_t *t)
{
    struct shunt__object **sorted = malloc((t->n_all + 1) * sizeof(*sorted));
    unsigned nth = 1;

    if (!sorted) {
        t->arena.failed = 1;
        return;
    }
    memcpy(sorted, t->all, t->n_all * sizeof(*sorted));
    qsort(sorted, t->n_all, sizeof(*sorted), by_name_then_order);
    for (unsigned i = 1; i < t->n_all; i++) {
        const char *first = sorted[i - nth]->pub.name;
        if (strcmp(sorted[i]->pub.name, first) == 0) {
            nth++;
            /* written over at once, but the comparison goes on with the first of the run */
            sorted[i]->pub.name = shunt__arena_print(&t->arena, "%.*s#%u", SHUNT__MAX_NAME - 8, first, nth);
        } else
            nth = 1;
    }
    free(sorted);
}

static int by_dev(const void *a, const void *b)
{
    const struct shunt__object *x = *(struct shunt__object *const *)a, *y = *(struct shunt__object *const *)b;

    return x->u.gpu->dev < y->u.gpu->dev ? -1 : x->u.gpu->dev > y->u.gpu->dev;
}

/* GPUs are numbered as their driver does, where the source tells that of each; 1 if so. */
static int order_gpus(shunt_topo_t *t)
{
    struct shunt__object **g = t->of_type[SHUNT_TOPO_GPU];
    unsigned n = t->n_of_type[SHUNT_TOPO_GPU];

    for (unsigned i = 0; i < n; i++)
        if (g[i]->u.gpu->dev < 0 || g[i]->u.gpu->is_display)
            return 0;
    struct shunt__object **sorted = malloc((n + 1) * sizeof(*sorted));
    if (!sorted) {
        t->arena.failed = 1;
        return 0;
    }
    memcpy(sorted, g, n * sizeof(*g));
    qsort(sorted, n, sizeof(*sorted), by_dev);
    for (unsigned i = 1; i < n; i++)
        if (sorted[i]->u.gpu->dev == sorted[i - 1]->u.gpu->dev) {
            free(sorted);
            return 0;
        }
    memcpy(g, sorted, n * sizeof(*g));
    free(sorted);
    for (unsigned i = 0; i < n; i++)
        g[i]->pub.index = i;
    return n > 0;
}

/*
 * Broadcom's large switches show as two levels of bridges and sustain full rate across all ports; AMD's GPUs
 * have a bridge of their own on the package. Neither is a hop.
 */
static void find_chips(struct shunt__object *o)
{
    const shunt_topo_pci_t *p = o->pub.pci, *q = o->parent ? o->parent->pub.pci : NULL;

    if (o->pub.type != SHUNT_TOPO_SWITCH || !p)
        return;
    if (o->parent->pub.type == SHUNT_TOPO_SWITCH && q && p->vendor == 0x1000 && q->vendor == 0x1000 &&
        p->product == q->product && p->sub_vendor == 0x1000 && q->sub_vendor == 0x1000) {
        if (p->product == 0xc010 && p->sub_product >> 12 == 0xa && q->sub_product >> 12 == 0xa)
            o->same_chip = 1;
        if (p->product == 0xc030 && p->sub_product >> 12 == 1 && q->sub_product >> 12 == 0)
            o->same_chip = 1;
    }
    if (p->vendor == 0x1022 && o->child && o->child == o->last_child && o->child->pub.type == SHUNT_TOPO_GPU)
        o->same_chip = 1;
}

static int by_ends(const void *a, const void *b)
{
    const struct shunt__wires *x = a, *y = b;

    if (x->from != y->from)
        return x->from->order < y->from->order ? -1 : 1;
    if (x->to != y->to)
        return x->to->order < y->to->order ? -1 : 1;
    return (int)x->wire - (int)y->wire;
}

/* Links that a file lists one by one become one bundle. */
static void bundle_wires(shunt_topo_t *t)
{
    unsigned n = 0;

    if (!t->n_wires)
        return;
    qsort(t->wires, t->n_wires, sizeof(*t->wires), by_ends);
    for (unsigned i = 0; i < t->n_wires; i++) {
        struct shunt__wires *w = &t->wires[i];
        if (n && by_ends(&t->wires[n - 1], w) == 0) {
            t->wires[n - 1].count += w->count;
            t->wires[n - 1].bandwidth += w->bandwidth;
            continue;
        }
        if (!w->from->n_wires++)
            w->from->first_wires = n;
        t->wires[n++] = *w;
    }
    t->n_wires = n;
}

static shunt_status_t give_up(shunt_topo_t **topo)
{
    int many = (*topo)->n_all >= SHUNT__MAX_OBJECTS || (*topo)->n_wires >= SHUNT__MAX_OBJECTS;

    shunt_topo_destroy(*topo);
    *topo = NULL;
    return many ? shunt__fail(SHUNT_ERR_LIMIT, "a topology of more than %d objects is not believed",
                              SHUNT__MAX_OBJECTS)
                : shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a topology");
}

shunt_status_t shunt__topo_finish(shunt_topo_t **topo)
{
    shunt_topo_t *t = *topo;
    unsigned fill[SHUNT_TOPO_N_TYPES] = {0};

    if (t->arena.failed)
        return give_up(topo);
    number(t);
    for (int k = 0; k < SHUNT_TOPO_N_TYPES; k++)
        t->of_type[k] = shunt__arena_get(&t->arena, (t->n_of_type[k] + 1) * sizeof(*t->of_type[k]));
    if (t->arena.failed)
        return give_up(topo);
    for (unsigned i = 0; i < t->n_all; i++)
        t->of_type[t->all[i]->pub.type][fill[t->all[i]->pub.type]++] = t->all[i];
    int devs = order_gpus(t);
    for (unsigned i = 0; i < t->n_all; i++) {
        name(t, t->all[i], devs);
        find_chips(t->all[i]);
    }
    make_unique(t);
    bundle_wires(t);
    return t->arena.failed ? give_up(topo) : SHUNT_OK;
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

const shunt_topo_object_t *shunt_topo_find(const shunt_topo_t *topo, const char *wanted)
{
    char with_port[SHUNT__MAX_NAME + 16];
    shunt_topo_pci_t pci = {0};

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
        if (strcmp(o->u.nic->rdma, wanted) == 0 || strcmp(with_port, wanted) == 0 ||
            strcmp(o->u.nic->name, wanted) == 0)
            return &o->pub;
    }
    for (unsigned i = 0; i < topo->n_all; i++)
        if (same_name(topo->all[i]->pub.name, wanted))
            return &topo->all[i]->pub;
    if (shunt__pci_parse(wanted, &pci))
        return NULL;
    for (unsigned i = 0; i < topo->n_all; i++) {
        if (topo->all[i]->pub.pci && same_address(topo->all[i]->pub.pci, &pci))
            return &topo->all[i]->pub;
    }
    return NULL;
}

const shunt_topo_object_t *shunt_topo_parent(const shunt_topo_object_t *object)
{
    return object && shunt__object(object)->parent ? &shunt__object(object)->parent->pub : NULL;
}

const shunt_topo_object_t *shunt_topo_child(const shunt_topo_object_t *object, unsigned index)
{
    const struct shunt__object *o = object ? shunt__object(object)->child : NULL;

    while (o && index--)
        o = o->next;
    return o ? &o->pub : NULL;
}

const char *shunt_topo_source(const shunt_topo_t *topo)
{
    return topo ? topo->source : "";
}

const char *shunt_topo_host_name(const shunt_topo_t *topo)
{
    return topo ? topo->host_name : "";
}

const char *shunt_topo_notes(const shunt_topo_t *topo)
{
    return topo ? topo->notes : "";
}

const shunt_topo_object_t *shunt_topo_numa_of_cpu(const shunt_topo_t *topo, unsigned cpu)
{
    for (unsigned i = 0; i < shunt_topo_count(topo, SHUNT_TOPO_NUMA); i++)
        if (shunt__cpus_has(&topo->of_type[SHUNT_TOPO_NUMA][i]->cpus, cpu))
            return &topo->of_type[SHUNT_TOPO_NUMA][i]->pub;
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
