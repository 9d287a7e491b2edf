/* SPDX-License-Identifier: BSD-3-Clause */
/* Fabrics: hosts, their rails, and the switches those are cabled to. */
#include "topo/fabric.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/model.h"

static shunt_status_t no_memory(void)
{
    return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a fabric");
}

static int grow(void *array, unsigned n, unsigned *room, size_t size)
{
    void *old, *bigger;

    if (n < *room)
        return 0;
    memcpy(&old, array, sizeof(old));
    bigger = realloc(old, (size_t)(*room ? *room * 2 : 16) * size);
    if (!bigger)
        return -1;
    *room = *room ? *room * 2 : 16;
    memcpy(array, &bigger, sizeof(bigger));
    return 0;
}

shunt_status_t shunt_fabric_create(shunt_fabric_t **fabric)
{
    shunt_fabric_t *f;

    if (!fabric)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_create: fabric is NULL");
    f = calloc(1, sizeof(*f));
    if (!f)
        return no_memory();
    f->assumed = 1;
    *fabric = f;
    return SHUNT_OK;
}

static void free_kind(struct shunt__kind *k)
{
    if (!k)
        return;
    shunt_topo_destroy(k->topo);
    free(k->nic);
    free(k->slot);
    free(k->chain);
    free(k);
}

static void free_switches(shunt_fabric_t *f)
{
    for (unsigned i = 0; i < f->n_net; i++)
        free(f->net[i].name);
    f->n_net = 0;
}

void shunt_fabric_destroy(shunt_fabric_t *f)
{
    if (!f)
        return;
    for (unsigned i = 0; i < f->n_hosts; i++) {
        free(f->host[i].name);
        free(f->host[i].port);
    }
    for (unsigned i = 0; i < f->n_kinds; i++)
        free_kind(f->kind[i]);
    free_switches(f);
    free(f->host);
    free(f->kind);
    free(f->net);
    free(f);
}

/* ---- kinds of hosts ---- */

static shunt_status_t find_slots(struct shunt__kind *k)
{
    unsigned gpus = shunt_topo_count(k->topo, SHUNT_TOPO_GPU), numas = shunt_topo_count(k->topo, SHUNT_TOPO_NUMA), n = 0;
    const shunt_topo_object_t *near[SHUNT__MAX_RAILS];
    unsigned found;
    shunt_topo_path_t path;

    k->slot = calloc(gpus + numas + 1, sizeof(*k->slot));
    if (!k->slot)
        return no_memory();
    for (unsigned i = 0; i < gpus; i++)
        if (!shunt_topo_get(k->topo, SHUNT_TOPO_GPU, i)->gpu->is_display)
            k->slot[n++].object = shunt_topo_get(k->topo, SHUNT_TOPO_GPU, i);
    for (unsigned i = 0; i < numas && !gpus; i++)
        if (shunt__cpus_count(&shunt__object(shunt_topo_get(k->topo, SHUNT_TOPO_NUMA, i))->cpus))
            k->slot[n++].object = shunt_topo_get(k->topo, SHUNT_TOPO_NUMA, i);
    if (!n)
        k->slot[n++].object = shunt_topo_get(k->topo, SHUNT_TOPO_HOST, 0);
    k->n_slots = n;
    for (unsigned i = 0; i < n; i++) {
        struct shunt__slot *s = &k->slot[i];
        unsigned turn = 0, ties = 0;
        s->rail = -1;
        shunt_topo_nearest_nics(k->topo, s->object, near, SHUNT__MAX_RAILS, &found);
        /* Places that are equally near to several rails take turns. */
        for (unsigned j = 0; j < i; j++)
            turn += shunt_topo_parent(k->slot[j].object) == shunt_topo_parent(s->object);
        for (unsigned a = 0; a < found && a < SHUNT__MAX_RAILS; a++)
            for (unsigned r = 0; r < k->n_rails; r++)
                ties += k->nic[r] == near[a];
        turn = ties ? turn % ties : 0;
        for (unsigned a = 0; a < found && a < SHUNT__MAX_RAILS && s->rail < 0; a++)
            for (unsigned r = 0; r < k->n_rails && s->rail < 0; r++)
                if (k->nic[r] == near[a] && turn-- == 0)
                    s->rail = (int)r;
        for (unsigned r = 0; r < k->n_rails; r++) { /* rails by a setting need not be the nearest NICs */
            shunt_topo_path(k->topo, s->object, k->nic[r], &path);
            if (s->rail == (int)r || (s->rail < 0 && path.bandwidth > s->bandwidth))
                s->bandwidth = path.bandwidth;
        }
        for (unsigned r = 0; r < k->n_rails && s->rail < 0; r++) {
            shunt_topo_path(k->topo, s->object, k->nic[r], &path);
            if (path.bandwidth >= s->bandwidth)
                s->rail = (int)r;
        }
    }
    return SHUNT_OK;
}

/* From the first slot always on to the nearest that is left; equal ones in their order. */
static shunt_status_t find_chain(struct shunt__kind *k)
{
    unsigned char *used = calloc(k->n_slots, 1);
    unsigned at = 0;

    k->chain = calloc(k->n_slots, sizeof(*k->chain));
    if (!used || !k->chain) {
        free(used);
        return no_memory();
    }
    used[0] = 1;
    for (unsigned n = 1; n < k->n_slots; n++) {
        shunt_topo_path_t p;
        shunt_topo_class_t best_class = SHUNT_TOPO_NET;
        double best = 0;
        unsigned next = 0;
        for (unsigned i = 0; i < k->n_slots; i++) {
            if (used[i])
                continue;
            shunt_topo_path(k->topo, k->slot[at].object, k->slot[i].object, &p);
            if (p.path_class < best_class || (p.path_class == best_class && p.bandwidth > best * 1.001)) {
                best_class = p.path_class;
                best = p.bandwidth;
                next = i;
            }
        }
        used[next] = 1;
        k->chain[n] = at = next;
    }
    free(used);
    return SHUNT_OK;
}

static shunt_status_t find_rails(struct shunt__kind *k, const shunt_topo_rails_options_t *options)
{
    static const shunt_topo_rails_options_t none = {.size = sizeof(none)};
    shunt_topo_rails_t *rails = NULL;
    shunt_status_t st = shunt_topo_rails(k->topo, options ? options : &none, &rails);

    if (st == SHUNT_ERR_NOT_FOUND)
        return SHUNT_OK; /* alone, a host may still compute */
    if (st != SHUNT_OK)
        return st;
    k->n_rails = rails->n_used < SHUNT__MAX_RAILS ? rails->n_used : SHUNT__MAX_RAILS;
    k->nic = calloc(k->n_rails + 1, sizeof(*k->nic));
    for (unsigned i = 0; i < k->n_rails && k->nic; i++)
        k->nic[i] = rails->rail[i].object;
    shunt_topo_rails_destroy(rails);
    return k->nic ? SHUNT_OK : no_memory();
}

/* ---- hosts ---- */

static int add_switch(shunt_fabric_t *f, const char *name, size_t len)
{
    if (grow(&f->net, f->n_net, &f->room_net, sizeof(*f->net)))
        return -1;
    f->net[f->n_net] = (struct shunt__net_switch){.name = strndup(name, len), .above = -1};
    return f->net[f->n_net].name ? (int)f->n_net++ : -1;
}

int shunt__fabric_find_switch(const shunt_fabric_t *f, const char *name, size_t len)
{
    for (unsigned i = 0; i < f->n_net; i++)
        if (strlen(f->net[i].name) == len && memcmp(f->net[i].name, name, len) == 0)
            return (int)i;
    return -1;
}

/* Without a word about cables: one switch per subnet where the NIC has an address, else one per number of the rail. */
static void assumed_name(const shunt_topo_nic_t *nic, unsigned rail, char *name, size_t size)
{
    for (unsigned i = 0; i < nic->n_addresses; i++) {
        shunt_topo_address_t a = nic->addresses[i];
        char text[INET6_ADDRSTRLEN];
        if (a.link_local)
            continue;
        for (unsigned bit = a.prefix; bit < (a.family == AF_INET ? 32u : 128u); bit++)
            a.bytes[bit / 8] &= (uint8_t)~(0x80u >> bit % 8);
        snprintf(name, size, "subnet-%s/%u", inet_ntop(a.family, a.bytes, text, sizeof(text)), a.prefix);
        return;
    }
    snprintf(name, size, "rail-%u", rail);
}

static shunt_status_t assume_cables(shunt_fabric_t *f, struct shunt__host *h)
{
    h->port = calloc(h->kind->n_rails + 1, sizeof(*h->port));
    if (!h->port)
        return no_memory();
    for (unsigned r = 0; r < h->kind->n_rails; r++) {
        char name[96];
        if (!f->assumed) {
            h->port[r] = -1;
            continue;
        }
        assumed_name(h->kind->nic[r]->nic, r, name, sizeof(name));
        h->port[r] = shunt__fabric_find_switch(f, name, strlen(name));
        if (h->port[r] < 0)
            h->port[r] = add_switch(f, name, strlen(name));
        if (h->port[r] < 0)
            return no_memory();
    }
    return SHUNT_OK;
}

static int name_taken(const shunt_fabric_t *f, const char *name)
{
    for (unsigned i = 0; i < f->n_hosts; i++)
        if (strcmp(f->host[i].name, name) == 0)
            return 1;
    return 0;
}

static shunt_status_t append_host(shunt_fabric_t *f, struct shunt__kind *kind, const char *name, int unique)
{
    struct shunt__host h = {.kind = kind};
    char text[160];
    shunt_status_t st;

    if (f->n_hosts >= SHUNT__MAX_HOSTS)
        return shunt__fail(SHUNT_ERR_LIMIT, "a fabric of more than %d hosts is not believed", SHUNT__MAX_HOSTS);
    snprintf(text, sizeof(text), "%.120s", name);
    for (char *p = text; *p; p++)
        if (isspace((unsigned char)*p) || (unsigned char)*p < 32 || *p == '#')
            *p = '_';
    for (unsigned i = 1; !unique && name_taken(f, text); i++)
        snprintf(text, sizeof(text), "%.120s-%u", name, i);
    if (grow(&f->host, f->n_hosts, &f->room_hosts, sizeof(*f->host)) || !(h.name = strdup(text)))
        return no_memory();
    st = assume_cables(f, &h);
    if (st != SHUNT_OK) {
        free(h.name);
        free(h.port);
        return st;
    }
    f->host[f->n_hosts++] = h;
    return SHUNT_OK;
}

shunt_status_t shunt_fabric_add_host(shunt_fabric_t *f, shunt_topo_t *topo, const char *name,
                                     const shunt_topo_rails_options_t *options, unsigned *host)
{
    struct shunt__kind *k;
    char text[32];
    shunt_status_t st;

    if (!f || !topo)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_add_host: fabric or topo is NULL");
    /* Only a live host has an identity; two files that are equal stand for two hosts that are. */
    for (unsigned i = 0; i < f->n_hosts && strcmp(topo->source, "live") == 0; i++)
        if (memcmp(f->host[i].kind->topo->host_id.bytes, topo->host_id.bytes, 16) == 0 && strcmp(f->host[i].kind->topo->source, "live") == 0) {
            shunt_topo_destroy(topo);
            if (host)
                *host = i;
            return SHUNT_OK;
        }
    if (grow(&f->kind, f->n_kinds, &f->room_kinds, sizeof(*f->kind)) || !(k = calloc(1, sizeof(*k))))
        return no_memory();
    k->topo = topo;
    st = find_rails(k, options);
    if (st == SHUNT_OK)
        st = find_slots(k);
    if (st == SHUNT_OK)
        st = find_chain(k);
    if (st == SHUNT_OK) {
        snprintf(text, sizeof(text), "host%u", f->n_hosts);
        st = append_host(f, k, name && *name ? name : *topo->host_name ? topo->host_name : text, 0);
    }
    if (st != SHUNT_OK) {
        k->topo = NULL; /* still the caller's */
        free_kind(k);
        return st;
    }
    f->kind[f->n_kinds++] = k;
    if (host)
        *host = f->n_hosts - 1;
    return SHUNT_OK;
}

shunt_status_t shunt_fabric_repeat_host(shunt_fabric_t *f, unsigned host, unsigned count)
{
    char name[160];
    shunt_status_t st = SHUNT_OK;

    if (!f || host >= f->n_hosts)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_repeat_host: there is no host %u", host);
    if (count > SHUNT__MAX_HOSTS - f->n_hosts)
        return shunt__fail(SHUNT_ERR_LIMIT, "a fabric of more than %d hosts is not believed", SHUNT__MAX_HOSTS);
    snprintf(name, sizeof(name), "%.120s-1", f->host[host].name);
    /* Looking each name up would make this quadratic; if the first is free, so are the others of its series. */
    int unique = !name_taken(f, name);
    for (unsigned i = 1; i <= count && st == SHUNT_OK; i++) {
        snprintf(name, sizeof(name), "%.120s-%u", f->host[host].name, i);
        st = append_host(f, f->host[host].kind, name, unique);
    }
    return st;
}

/* ---- cables ---- */

unsigned shunt__fabric_switches(const shunt_fabric_t *f, int a, int b)
{
    unsigned n = 1, depth_a = 0, depth_b = 0;

    if (a < 0 || b < 0)
        return 3; /* nobody knows: as if over a switch above both */
    for (int s = a; f->net[s].above >= 0; s = f->net[s].above)
        depth_a++;
    for (int s = b; f->net[s].above >= 0; s = f->net[s].above)
        depth_b++;
    while (a != b) {
        int up_a = depth_a >= depth_b, up_b = depth_b >= depth_a;
        if ((up_a && f->net[a].above < 0) || (up_b && f->net[b].above < 0))
            return n + 2; /* two trees, joined by something above */
        if (up_a) {
            a = f->net[a].above;
            depth_a--;
            n++;
        }
        if (up_b) {
            b = f->net[b].above;
            depth_b--;
            n++;
        }
    }
    return n;
}

struct line {
    const char *word[4];
    size_t len[4];
    unsigned n;
};

static void split(const char *p, const char *end, struct line *l)
{
    l->n = 0;
    while (p < end && l->n < 5) {
        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
            p++;
        if (p == end || *p == '#')
            return;
        const char *from = p;
        while (p < end && *p != ' ' && *p != '\t' && *p != '\r')
            p++;
        if (l->n == 4) {
            l->n = 5; /* too many */
            return;
        }
        l->word[l->n] = from;
        l->len[l->n++] = (size_t)(p - from);
    }
}

static int is_word(const struct line *l, unsigned i, const char *text)
{
    return l->len[i] == strlen(text) && memcmp(l->word[i], text, l->len[i]) == 0;
}

static double parse_rate(const char *text, size_t len)
{
    char copy[32], *end;
    double v;

    if (len >= sizeof(copy))
        return -1;
    memcpy(copy, text, len);
    copy[len] = 0;
    v = strtod(copy, &end);
    switch (tolower((unsigned char)*end)) {
    case 't': v *= 1e12; break;
    case 'g': v *= 1e9; break;
    case 'm': v *= 1e6; break;
    default: return -1;
    }
    return end[1] || !(v > 0) || v > 1e18 ? -1 : v;
}

static int is_above(const shunt_fabric_t *f, int upper, int lower)
{
    for (int s = lower; s >= 0; s = f->net[s].above)
        if (s == upper)
            return 1;
    return 0;
}

static shunt_status_t read_switch(shunt_fabric_t *f, const struct line *l, const char *name, unsigned number)
{
    int s = shunt__fabric_find_switch(f, l->word[1], l->len[1]), above;

    if (s < 0)
        s = add_switch(f, l->word[1], l->len[1]);
    if (s < 0)
        return no_memory();
    if (l->n < 3)
        return SHUNT_OK;
    above = shunt__fabric_find_switch(f, l->word[2], l->len[2]);
    if (above < 0)
        above = add_switch(f, l->word[2], l->len[2]);
    if (above < 0)
        return no_memory();
    if (is_above(f, s, above))
        return shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: switch %.*s would be above itself", name, number, (int)l->len[1], l->word[1]);
    f->net[s].above = above;
    if (l->n == 4) {
        f->net[s].rate = parse_rate(l->word[3], l->len[3]);
        if (f->net[s].rate < 0)
            return shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: \"%.*s\" is no rate like 400g or 1.6t", name, number, (int)l->len[3], l->word[3]);
    }
    return SHUNT_OK;
}

static int is_nic(const struct line *l, const shunt_topo_object_t *o)
{
    return is_word(l, 2, "*") || is_word(l, 2, o->name) || is_word(l, 2, o->nic->name) || (o->nic->rdma && is_word(l, 2, o->nic->rdma));
}

static shunt_status_t read_cable(shunt_fabric_t *f, const struct line *l, const char *name, unsigned number)
{
    int s = shunt__fabric_find_switch(f, l->word[3], l->len[3]), hosts = 0, met = 0;

    if (s < 0)
        s = add_switch(f, l->word[3], l->len[3]);
    if (s < 0)
        return no_memory();
    for (unsigned h = 0; h < f->n_hosts; h++) {
        if (!is_word(l, 1, "*") && !is_word(l, 1, f->host[h].name))
            continue;
        hosts++;
        for (unsigned r = 0; r < f->host[h].kind->n_rails; r++)
            if (is_nic(l, f->host[h].kind->nic[r])) {
                f->host[h].port[r] = s;
                met++;
            }
    }
    if (!hosts)
        return shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: the fabric has no host \"%.*s\"", name, number, (int)l->len[1], l->word[1]);
    if (!met)
        return shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: host %.*s has no rail \"%.*s\"", name, number, (int)l->len[1], l->word[1], (int)l->len[2], l->word[2]);
    return SHUNT_OK;
}

static shunt_status_t read_lines(shunt_fabric_t *f, const char *name, const char *text, size_t size)
{
    const char *p = text, *end = text + size;
    shunt_status_t st = SHUNT_OK;

    for (unsigned number = 1; p < end && st == SHUNT_OK; number++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        struct line l;
        if (!stop)
            stop = end;
        split(p, stop, &l);
        p = stop + 1;
        if (l.n == 0)
            continue;
        for (unsigned i = 0; i < l.n && i < 4; i++)
            for (size_t k = 0; k < l.len[i]; k++)
                if (l.len[i] > 100 || (unsigned char)l.word[i][k] < 32 || l.word[i][k] == 127)
                    return shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: a name is longer than 100 bytes or not printable", name, number);
        if (is_word(&l, 0, "switch") && l.n >= 2 && l.n <= 4)
            st = read_switch(f, &l, name, number);
        else if (is_word(&l, 0, "cable") && l.n == 4)
            st = read_cable(f, &l, name, number);
        else
            st = shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: expected \"switch NAME [ABOVE [RATE]]\" or \"cable HOST NIC SWITCH\"", name, number);
        if (f->n_net > 65536)
            st = shunt__fail(SHUNT_ERR_LIMIT, "%s, line %u: more than 65536 switches", name, number);
    }
    return st;
}

static void reset_ports(shunt_fabric_t *f)
{
    for (unsigned h = 0; h < f->n_hosts; h++)
        for (unsigned r = 0; r < f->host[h].kind->n_rails; r++)
            f->host[h].port[r] = -1;
}

struct numbered {
    struct shunt__net_switch s;
    int was;
};

static int by_switch_name(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    int d = shunt__compare_names(x->s.name, y->s.name);

    return d ? d : strcmp(x->s.name, y->s.name);
}

/* Switches in order of their names, so that the order of lines makes no difference. */
static shunt_status_t sort_switches(shunt_fabric_t *f)
{
    struct numbered *list = calloc(f->n_net + 1, sizeof(*list));
    int *now = calloc(f->n_net + 1, sizeof(*now));

    if (!list || !now) {
        free(list);
        free(now);
        return no_memory();
    }
    for (unsigned i = 0; i < f->n_net; i++)
        list[i] = (struct numbered){f->net[i], (int)i};
    qsort(list, f->n_net, sizeof(*list), by_switch_name);
    for (unsigned i = 0; i < f->n_net; i++)
        now[list[i].was] = (int)i;
    for (unsigned i = 0; i < f->n_net; i++) {
        f->net[i] = list[i].s;
        if (f->net[i].above >= 0)
            f->net[i].above = now[f->net[i].above];
    }
    for (unsigned h = 0; h < f->n_hosts; h++)
        for (unsigned r = 0; r < f->host[h].kind->n_rails; r++)
            if (f->host[h].port[r] >= 0)
                f->host[h].port[r] = now[f->host[h].port[r]];
    free(list);
    free(now);
    return SHUNT_OK;
}

shunt_status_t shunt_fabric_read_cables(shunt_fabric_t *f, const char *name, const char *text, size_t size)
{
    struct shunt__net_switch *net;
    unsigned n_net, room_net;
    int was, **ports;
    shunt_status_t st;

    if (!f || (!text && size))
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_read_cables: fabric or text is NULL");
    if (size > (64u << 20))
        return shunt__fail(SHUNT_ERR_LIMIT, "%s is larger than 64 MiB", name ? name : "the list of cables");
    ports = calloc(f->n_hosts + 1, sizeof(*ports));
    if (!ports)
        return no_memory();
    for (unsigned h = 0; h < f->n_hosts; h++) { /* what was known stays if the text is wrong */
        ports[h] = calloc(f->host[h].kind->n_rails + 1, sizeof(**ports));
        if (!ports[h]) {
            for (unsigned i = 0; i < h; i++)
                free(ports[i]);
            free(ports);
            return no_memory();
        }
        memcpy(ports[h], f->host[h].port, f->host[h].kind->n_rails * sizeof(**ports));
    }
    net = f->net;
    n_net = f->n_net;
    room_net = f->room_net;
    was = f->assumed;
    f->net = NULL;
    f->n_net = f->room_net = 0;
    f->assumed = 0;
    reset_ports(f);
    st = read_lines(f, name ? name : "the list of cables", text, size);
    if (st == SHUNT_OK)
        st = sort_switches(f);
    if (st != SHUNT_OK) {
        free_switches(f);
        free(f->net);
        f->net = net;
        f->n_net = n_net;
        f->room_net = room_net;
        f->assumed = was;
    } else {
        for (unsigned i = 0; i < n_net; i++)
            free(net[i].name);
        free(net);
    }
    for (unsigned h = 0; h < f->n_hosts; h++) {
        if (st != SHUNT_OK)
            memcpy(f->host[h].port, ports[h], f->host[h].kind->n_rails * sizeof(**ports));
        free(ports[h]);
    }
    free(ports);
    return st;
}

shunt_status_t shunt_fabric_write_cables(const shunt_fabric_t *f, char **text, size_t *size)
{
    struct shunt__text t = {0};

    if (!f || !text)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_write_cables: fabric or text is NULL");
    for (unsigned i = 0; i < f->n_net; i++) {
        const struct shunt__net_switch *s = &f->net[i];
        shunt__text_add(&t, "switch %s", s->name);
        if (s->above >= 0)
            shunt__text_add(&t, " %s", f->net[s->above].name);
        if (s->above >= 0 && s->rate > 0)
            shunt__text_add(&t, " %.10gg", s->rate / 1e9);
        shunt__text_add(&t, "\n");
    }
    for (unsigned h = 0; h < f->n_hosts; h++)
        for (unsigned r = 0; r < f->host[h].kind->n_rails; r++)
            if (f->host[h].port[r] >= 0)
                shunt__text_add(&t, "cable %s %s %s\n", f->host[h].name, f->host[h].kind->nic[r]->name, f->net[f->host[h].port[r]].name);
    return shunt__text_done(&t, text, size);
}

/* ---- looking ---- */

unsigned shunt_fabric_host_count(const shunt_fabric_t *f)
{
    return f ? f->n_hosts : 0;
}

const char *shunt_fabric_host_name(const shunt_fabric_t *f, unsigned host)
{
    return f && host < f->n_hosts ? f->host[host].name : NULL;
}

const shunt_topo_t *shunt_fabric_host_topo(const shunt_fabric_t *f, unsigned host)
{
    return f && host < f->n_hosts ? f->host[host].kind->topo : NULL;
}

unsigned shunt_fabric_rail_count(const shunt_fabric_t *f, unsigned host)
{
    return f && host < f->n_hosts ? f->host[host].kind->n_rails : 0;
}

const shunt_topo_object_t *shunt_fabric_rail_nic(const shunt_fabric_t *f, unsigned host, unsigned rail)
{
    return rail < shunt_fabric_rail_count(f, host) ? f->host[host].kind->nic[rail] : NULL;
}

const char *shunt_fabric_rail_switch(const shunt_fabric_t *f, unsigned host, unsigned rail)
{
    return rail < shunt_fabric_rail_count(f, host) && f->host[host].port[rail] >= 0 ? f->net[f->host[host].port[rail]].name : NULL;
}

unsigned shunt_fabric_slot_count(const shunt_fabric_t *f, unsigned host)
{
    return f && host < f->n_hosts ? f->host[host].kind->n_slots : 0;
}

const shunt_topo_object_t *shunt_fabric_slot(const shunt_fabric_t *f, shunt_place_t place)
{
    return place.slot < shunt_fabric_slot_count(f, place.host) ? f->host[place.host].kind->slot[place.slot].object : NULL;
}

int shunt__fabric_place_ok(const shunt_fabric_t *f, shunt_place_t place)
{
    return place.host < f->n_hosts && place.slot < f->host[place.host].kind->n_slots;
}
