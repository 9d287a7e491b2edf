/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The packed form: a header (magic, version, length, CRC-32C of the rest), then every field in tree order,
 * parents before children, little-endian. The checksum guards against accidents; what is inside is checked as
 * if it didn't.
 */
#include "topo/pack.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/crc32c.h"
#include "comm/base/log.h"
#include "topo/model.h"
#include "topo/text.h"

#define VERSION 1
#define HEADER 20
#define NO_TEXT 0xffffu

static const char magic[8] = {'S', 'H', 'N', 'T', 'T', 'O', 'P', 'O'};

int shunt__is_packed(const void *data, size_t size)
{
    return size >= sizeof(magic) && memcmp(data, magic, sizeof(magic)) == 0;
}

/* ---- writing ---- */

static void put(struct shunt__text *t, uint64_t v, int bytes)
{
    unsigned char b[8];

    for (int i = 0; i < bytes; i++)
        b[i] = (unsigned char)(v >> 8 * i);
    shunt__text_bytes(t, b, (size_t)bytes);
}

static void put_double(struct shunt__text *t, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    put(t, bits, 8);
}

static void put_text(struct shunt__text *t, const char *s)
{
    size_t n = s ? strlen(s) : NO_TEXT;

    if (s && n >= NO_TEXT)
        n = NO_TEXT - 1;
    put(t, n, 2);
    if (s)
        shunt__text_bytes(t, s, n);
}

static void put_nic(struct shunt__text *t, const struct shunt__object *o)
{
    const shunt_topo_nic_t *n = o->u.nic;

    put_text(t, n->name);
    put_text(t, n->rdma);
    put_text(t, n->driver);
    put_text(t, n->kind);
    put_text(t, n->reason);
    put(t, n->rdma_port, 1);
    put(t, n->ifindex, 4);
    put(t, n->mtu, 4);
    put(t, n->rate, 8);
    put(t, (uint64_t)n->rate_known, 1);
    put_double(t, n->latency);
    put(t, n->guid, 8);
    put(t, n->layer, 1);
    put(t, n->state, 1);
    put(t, n->is_virtual != 0, 1);
    put(t, n->tier, 1);
    put(t, (uint32_t)o->net.dev, 4);
    put(t, (uint32_t)o->net.gdr, 4);
    put(t, (uint32_t)o->net.coll, 4);
    put(t, o->net.maxconn, 4);
    put(t, n->n_addresses, 2);
    for (unsigned i = 0; i < n->n_addresses; i++) {
        put(t, n->addresses[i].family == AF_INET6 ? 6 : 4, 1);
        put(t, n->addresses[i].prefix, 1);
        put(t, n->addresses[i].link_local, 1);
        shunt__text_bytes(t, n->addresses[i].bytes, 16);
    }
}

static void put_gpu(struct shunt__text *t, const shunt_topo_gpu_t *g)
{
    put(t, (uint32_t)g->dev, 4);
    put(t, (uint32_t)g->rank, 4);
    put(t, (uint32_t)g->sm, 4);
    put_text(t, g->gcn);
    put(t, (uint32_t)g->arch, 4);
    put(t, (uint32_t)g->gdr, 4);
    put_text(t, g->model);
    put(t, g->is_display != 0, 1);
}

static void put_object(struct shunt__text *t, const struct shunt__object *o)
{
    put(t, o->pub.type, 1);
    put(t, o->parent ? o->parent->order : 0, 4);
    put_text(t, o->pub.name);
    put(t, (uint32_t)o->pub.numa, 4);
    put_text(t, o->pub.note);
    put(t, (o->pub.pci ? 1 : 0) | (o->is_host_bridge ? 2 : 0) | (o->link_guessed ? 4 : 0), 1);
    if (o->pub.pci) {
        put(t, o->pci.domain, 4);
        put(t, o->pci.bus, 1);
        put(t, o->pci.device, 1);
        put(t, o->pci.function, 1);
        put(t, o->pci.class_id, 4);
        put(t, o->pci.vendor, 2);
        put(t, o->pci.product, 2);
        put(t, o->pci.sub_vendor, 2);
        put(t, o->pci.sub_product, 2);
        put(t, o->pci.speed, 4);
        put(t, o->pci.width, 1);
    }
    if (o->pub.type == SHUNT_TOPO_PACKAGE || o->pub.type == SHUNT_TOPO_NUMA) {
        put(t, o->os_index, 4);
        put(t, o->memory, 8);
        put(t, o->cpus.n_words, 2);
        for (unsigned i = 0; i < o->cpus.n_words; i++)
            put(t, o->cpus.words[i], 8);
    }
    if (o->pub.type == SHUNT_TOPO_NIC)
        put_nic(t, o);
    if (o->pub.type == SHUNT_TOPO_GPU)
        put_gpu(t, o->u.gpu);
}

shunt_status_t shunt_topo_pack(const shunt_topo_t *topo, void **data, size_t *size)
{
    struct shunt__text body = {0}, all = {0};
    char *text;
    shunt_status_t st;

    if (!topo || !data || !size)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_pack: an argument is NULL");
    shunt__text_bytes(&body, topo->host_id.bytes, 16);
    put_text(&body, topo->host_id.text);
    put_text(&body, topo->source);
    put_text(&body, topo->host_name);
    put_text(&body, topo->cpu_arch);
    put_text(&body, topo->cpu_vendor);
    put_text(&body, topo->cpu_model);
    put(&body, (uint32_t)topo->cpu_family, 4);
    put(&body, (uint32_t)topo->cpu_model_number, 4);
    put(&body, (uint32_t)topo->nccl_version, 4);
    put_text(&body, topo->notes);
    put(&body, topo->n_all, 4);
    for (unsigned i = 0; i < topo->n_all; i++)
        put_object(&body, topo->all[i]);
    put(&body, topo->n_wires, 4);
    for (unsigned i = 0; i < topo->n_wires; i++) {
        const struct shunt__wires *w = &topo->wires[i];
        put(&body, w->from->order, 4);
        put(&body, w->to->order, 4);
        put(&body, w->wire, 1);
        put(&body, w->count, 4);
        put_double(&body, w->bandwidth);
        put(&body, w->class_id, 4);
    }
    put(&body, topo->n_cores, 4);
    put(&body, topo->n_cpus, 4);
    for (unsigned i = 0; i < topo->n_cpus; i++) {
        put(&body, topo->cpus[i].os_index, 2);
        put(&body, topo->cpus[i].core, 2);
        put(&body, topo->cpus[i].online != 0, 1);
    }
    shunt__text_bytes(&all, magic, sizeof(magic));
    put(&all, VERSION, 4);
    put(&all, body.n, 4);
    put(&all, body.failed ? 0 : shunt__crc32c(0, body.p, body.n), 4);
    if (!body.failed)
        shunt__text_bytes(&all, body.p, body.n);
    all.failed |= body.failed;
    free(body.p);
    st = shunt__text_done(&all, &text, size);
    if (st == SHUNT_OK)
        *data = text;
    return st;
}

/* ---- reading ---- */

struct cursor {
    const unsigned char *p, *end;
    struct shunt__arena *arena;
    const char *wrong; /* the first thing that is wrong; all later reads give 0 */
};

static void wrong(struct cursor *c, const char *what)
{
    if (!c->wrong)
        c->wrong = what;
    c->p = c->end;
}

static uint64_t get(struct cursor *c, int bytes)
{
    uint64_t v = 0;

    if (c->wrong || c->end - c->p < bytes) {
        wrong(c, "it ends too early");
        return 0;
    }
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)c->p[i] << 8 * i;
    c->p += bytes;
    return v;
}

/* A value below `limit`. */
static unsigned get_below(struct cursor *c, int bytes, uint64_t limit, const char *what)
{
    uint64_t v = get(c, bytes);

    if (v >= limit) {
        wrong(c, what);
        return 0;
    }
    return (unsigned)v;
}

static int get_int(struct cursor *c)
{
    return (int)(uint32_t)get(c, 4);
}

static double get_double(struct cursor *c)
{
    uint64_t bits = get(c, 8);
    double v;

    memcpy(&v, &bits, sizeof(v));
    if (!isfinite(v) || v < 0) {
        wrong(c, "a number is no number");
        return 0;
    }
    return v;
}

static const char *get_text(struct cursor *c, int may_be_null)
{
    size_t n = get(c, 2);
    const char *text;

    if (n == NO_TEXT) {
        if (!may_be_null)
            wrong(c, "a text is missing");
        return may_be_null ? NULL : "";
    }
    if ((size_t)(c->end - c->p) < n || c->wrong) {
        wrong(c, "it ends too early");
        return "";
    }
    if (memchr(c->p, 0, n)) {
        wrong(c, "a text has a 0 in it");
        return "";
    }
    /* Lines of notes keep their ends; everything else must be what shunt__arena_text() would make of it. */
    char *copy = shunt__arena_get(c->arena, n + 1);
    if (!copy || c->arena->failed)
        return "";
    memcpy(copy, c->p, n);
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)copy[i] < 32 && copy[i] != '\n') || copy[i] == 127)
            copy[i] = '?';
    text = copy;
    c->p += n;
    return text;
}

static void get_nic(struct cursor *c, struct shunt__object *o)
{
    shunt_topo_nic_t *n = o->u.nic;

    n->name = get_text(c, 0);
    n->rdma = get_text(c, 1);
    n->driver = get_text(c, 0);
    n->kind = get_text(c, 0);
    n->reason = get_text(c, 0);
    n->rdma_port = (unsigned)get(c, 1);
    n->ifindex = (unsigned)get(c, 4);
    n->mtu = (unsigned)get(c, 4);
    n->rate = get(c, 8);
    n->rate_known = (int)get_below(c, 1, 2, "a flag is neither 0 nor 1");
    n->latency = get_double(c);
    n->guid = get(c, 8);
    n->layer = (shunt_topo_link_layer_t)get_below(c, 1, SHUNT_TOPO_LINK_TUNNEL + 1,
                                                  "a link layer is unknown");
    n->state = (shunt_topo_nic_state_t)get_below(c, 1, SHUNT_TOPO_NIC_DOWN + 1, "a NIC's state is unknown");
    n->is_virtual = (int)get_below(c, 1, 2, "a flag is neither 0 nor 1");
    n->tier = (shunt_topo_nic_tier_t)get_below(c, 1, SHUNT_TOPO_TIER_UNUSABLE + 1, "a NIC's tier is unknown");
    o->net.dev = get_int(c);
    o->net.gdr = get_int(c);
    o->net.coll = get_int(c);
    o->net.maxconn = (uint32_t)get(c, 4);
    if (!c->wrong && (n->rate == 0 || n->rate > 3200000000000ull))
        wrong(c, "a NIC's rate is not believed");
    unsigned count = get_below(c, 2, 65, "a NIC has more than 64 addresses");
    if (c->wrong || !count)
        return;
    shunt_topo_address_t *a = shunt__arena_get(c->arena, count * sizeof(*a));
    if (c->arena->failed)
        return;
    for (unsigned i = 0; i < count && !c->wrong; i++) {
        unsigned family = (unsigned)get(c, 1);
        a[i].family = family == 6 ? AF_INET6 : AF_INET;
        a[i].prefix = (uint8_t)get_below(c, 1, family == 6 ? 129 : 33, "an address has too long a prefix");
        a[i].link_local = (uint8_t)get_below(c, 1, 2, "a flag is neither 0 nor 1");
        if (family != 4 && family != 6)
            wrong(c, "an address is neither IPv4 nor IPv6");
        for (int k = 0; k < 16; k++)
            a[i].bytes[k] = (uint8_t)get(c, 1);
    }
    n->addresses = a;
    n->n_addresses = count;
}

static void get_gpu(struct cursor *c, shunt_topo_gpu_t *g)
{
    g->dev = get_int(c);
    g->rank = get_int(c);
    g->sm = get_int(c);
    g->gcn = get_text(c, 1);
    g->arch = get_int(c);
    g->gdr = get_int(c);
    g->model = get_text(c, 1);
    g->is_display = (int)get_below(c, 1, 2, "a flag is neither 0 nor 1");
}

static void get_pci(struct cursor *c, struct shunt__object *o)
{
    shunt_topo_pci_t p = {0};

    p.domain = (uint32_t)get(c, 4);
    p.bus = (uint8_t)get(c, 1);
    p.device = (uint8_t)get_below(c, 1, 32, "a PCI device number is above 31");
    p.function = (uint8_t)get_below(c, 1, 8, "a PCI function is above 7");
    p.class_id = get_below(c, 4, 1 << 24, "a PCI class has more than 24 bits");
    p.vendor = (uint16_t)get(c, 2);
    p.product = (uint16_t)get(c, 2);
    p.sub_vendor = (uint16_t)get(c, 2);
    p.sub_product = (uint16_t)get(c, 2);
    p.speed = get_below(c, 4, 1000001, "a PCI link's speed is not believed");
    p.width = get_below(c, 1, 33, "a PCI link has more than 32 lanes");
    shunt__object_set_pci(o, &p);
}

static void get_cpus(struct cursor *c, struct shunt__cpus *set)
{
    unsigned n = get_below(c, 2, SHUNT__MAX_CPUS / 64 + 1, "a set of CPUs is too large");

    if (c->wrong || !n)
        return;
    set->words = shunt__arena_get(c->arena, n * sizeof(*set->words));
    if (c->arena->failed)
        return;
    set->n_words = n;
    for (unsigned i = 0; i < n; i++)
        set->words[i] = get(c, 8);
}

static void get_object(struct cursor *c, shunt_topo_t *t, unsigned i)
{
    shunt_topo_type_t type = (shunt_topo_type_t)get_below(c, 1, SHUNT_TOPO_N_TYPES,
                                                          "an object's type is unknown");
    unsigned parent = get_below(c, 4, i ? i : 1, "an object comes before its parent");
    const char *name = get_text(c, 0);
    struct shunt__object *o;

    if (c->wrong)
        return;
    if (!*name || strlen(name) > SHUNT__MAX_NAME || strchr(name, '\n') ||
        (i == 0) != (type == SHUNT_TOPO_HOST)) {
        wrong(c, i && type == SHUNT_TOPO_HOST ? "there are two hosts"
                 : i                          ? "an object's name is no name"
                                              : "the first object is no host");
        return;
    }
    if (i && t->all[parent]->depth + 1 >= SHUNT__MAX_DEPTH) {
        wrong(c, "the tree is too deep");
        return;
    }
    o = i ? shunt__topo_add(t, t->all[parent], type, name) : t->host;
    if (!o)
        return;
    o->pub.name = name;
    o->pub.numa = get_int(c);
    if (o->pub.numa < -1)
        wrong(c, "a NUMA node's number is negative");
    o->pub.note = get_text(c, 1);
    unsigned flags = get_below(c, 1, 8, "a flag is unknown");
    if (flags & 1)
        get_pci(c, o);
    o->is_host_bridge = flags & 2 ? 1 : 0;
    o->link_guessed = flags & 4 ? 1 : 0;
    if (type == SHUNT_TOPO_PACKAGE || type == SHUNT_TOPO_NUMA) {
        o->os_index = get_below(c, 4, 0x80000000u, "a number of the operating system is negative");
        o->memory = get(c, 8);
        get_cpus(c, &o->cpus);
    }
    if (type == SHUNT_TOPO_NIC)
        get_nic(c, o);
    if (type == SHUNT_TOPO_GPU)
        get_gpu(c, o->u.gpu);
}

static void get_wires(struct cursor *c, shunt_topo_t *t)
{
    unsigned n = get_below(c, 4, SHUNT__MAX_OBJECTS, "there are too many NVLinks");

    for (unsigned i = 0; i < n && !c->wrong && !t->arena.failed; i++) {
        unsigned from = get_below(c, 4, t->n_all, "an NVLink leads nowhere"),
                 to = get_below(c, 4, t->n_all, "an NVLink leads nowhere");
        unsigned wire = get_below(c, 1, SHUNT__WIRE_C2C + 1, "an NVLink's kind is unknown");
        unsigned count = get_below(c, 4, 1 << 20, "an NVLink has too many lanes");
        double bandwidth = get_double(c);
        unsigned class_id = get_below(c, 4, 1 << 24, "a PCI class has more than 24 bits");
        if (c->wrong)
            return;
        if (t->all[from]->pub.type != SHUNT_TOPO_GPU || from == to || !count) {
            wrong(c, "an NVLink starts at no GPU");
            return;
        }
        struct shunt__wires *w = shunt__topo_add_wires(t, t->all[from], t->all[to], (shunt__wire_t)wire,
                                                       count);
        if (!w)
            return;
        w->bandwidth = bandwidth;
        w->class_id = class_id;
    }
}

static void get_cpu_list(struct cursor *c, shunt_topo_t *t)
{
    unsigned n;

    t->n_cores = get_below(c, 4, SHUNT__MAX_CPUS + 1, "there are too many cores");
    n = get_below(c, 4, SHUNT__MAX_CPUS + 1, "there are too many CPUs");
    if (c->wrong || !n)
        return;
    t->cpus = calloc(n, sizeof(*t->cpus));
    if (!t->cpus) {
        t->arena.failed = 1;
        return;
    }
    t->n_cpus = t->room_cpus = n;
    for (unsigned i = 0; i < n; i++) {
        t->cpus[i].os_index = get_below(c, 2, SHUNT__MAX_CPUS, "a CPU's number is too large");
        t->cpus[i].core = get_below(c, 2, SHUNT__MAX_CPUS, "a core's number is too large");
        t->cpus[i].online = (int)get_below(c, 1, 2, "a flag is neither 0 nor 1");
    }
}

static const char *known_source(const char *text)
{
    static const char *const known[] = {"live", "hwloc", "NCCL", "synthetic"};

    for (unsigned i = 0; i < 4; i++)
        if (strcmp(text, known[i]) == 0)
            return known[i];
    return NULL;
}

static void get_body(struct cursor *c, shunt_topo_t *t)
{
    for (int i = 0; i < 16; i++)
        t->host_id.bytes[i] = (uint8_t)get(c, 1);
    const char *id = get_text(c, 0);
    if (strlen(id) >= sizeof(t->host_id.text))
        wrong(c, "the host's identity is too long");
    else
        strcpy(t->host_id.text, id);
    t->source = known_source(get_text(c, 0));
    if (!t->source) {
        wrong(c, "its source is unknown");
        t->source = "live";
    }
    t->host_name = get_text(c, 0);
    t->cpu_arch = get_text(c, 0);
    t->cpu_vendor = get_text(c, 0);
    t->cpu_model = get_text(c, 0);
    t->cpu_family = get_int(c);
    t->cpu_model_number = get_int(c);
    t->nccl_version = get_int(c);
    t->notes = get_text(c, 0);
    unsigned n = get_below(c, 4, SHUNT__MAX_OBJECTS, "there are too many objects");
    if (!c->wrong && !n)
        wrong(c, "there is no object");
    for (unsigned i = 0; i < n && !c->wrong && !t->arena.failed; i++)
        get_object(c, t, i);
    if (!c->wrong)
        get_wires(c, t);
    if (!c->wrong)
        get_cpu_list(c, t);
    if (!c->wrong && c->p != c->end)
        wrong(c, "there is more behind its end");
}

shunt_status_t shunt_topo_unpack(const void *data, size_t size, shunt_topo_t **topo)
{
    struct cursor c = {.p = data, .end = (const unsigned char *)data + size};
    shunt_topo_t *t;
    shunt_status_t st;

    if (!data || !topo)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_unpack: an argument is NULL");
    if (!shunt__is_packed(data, size))
        return shunt__fail(SHUNT_ERR_FORMAT, "not a packed topology");
    c.p += sizeof(magic);
    uint64_t version = get(&c, 4), length = get(&c, 4), crc = get(&c, 4);
    if (c.wrong || length != (size_t)(c.end - c.p))
        return shunt__fail(SHUNT_ERR_FORMAT, "a packed topology of the wrong length");
    if (version != VERSION)
        return shunt__fail(SHUNT_ERR_VERSION, "a packed topology of version %u: this Shunt reads %d",
                           (unsigned)version, VERSION);
    if (crc != shunt__crc32c(0, c.p, length))
        return shunt__fail(SHUNT_ERR_FORMAT, "a packed topology is damaged: its checksum is wrong");
    st = shunt__topo_new("live", &t);
    if (st != SHUNT_OK)
        return st;
    c.arena = &t->arena;
    get_body(&c, t);
    if (c.wrong) {
        shunt_topo_destroy(t);
        return shunt__fail(SHUNT_ERR_FORMAT, "a packed topology is wrong: %s", c.wrong);
    }
    st = shunt__topo_finish(&t);
    if (st == SHUNT_OK)
        *topo = t;
    return st;
}
