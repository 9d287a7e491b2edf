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

shunt_status_t shunt__fabric_no_memory(void)
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
        return shunt__fabric_no_memory();
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

void shunt__fabric_free_switches(shunt_fabric_t *f)
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
    shunt__fabric_free_switches(f);
    free(f->host);
    free(f->kind);
    free(f->net);
    free(f);
}

/* ---- kinds of hosts ---- */

static shunt_status_t find_slots(struct shunt__kind *k)
{
    unsigned gpus = shunt_topo_count(k->topo, SHUNT_TOPO_GPU),
             numas = shunt_topo_count(k->topo, SHUNT_TOPO_NUMA), n = 0;
    const shunt_topo_object_t *near[SHUNT__MAX_RAILS];
    unsigned found;
    shunt_topo_path_t path;

    k->slot = calloc(gpus + numas + 1, sizeof(*k->slot));
    if (!k->slot)
        return shunt__fabric_no_memory();
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
        return shunt__fabric_no_memory();
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
    return k->nic ? SHUNT_OK : shunt__fabric_no_memory();
}

/* ---- hosts ---- */

int shunt__fabric_add_switch(shunt_fabric_t *f, const char *name, size_t len)
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

/* Without a word about cables: one switch per subnet where the NIC has an address, else one per number of the
 * rail. */
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
        return shunt__fabric_no_memory();
    for (unsigned r = 0; r < h->kind->n_rails; r++) {
        char name[96];
        if (!f->assumed) {
            h->port[r] = -1;
            continue;
        }
        assumed_name(h->kind->nic[r]->nic, r, name, sizeof(name));
        h->port[r] = shunt__fabric_find_switch(f, name, strlen(name));
        if (h->port[r] < 0)
            h->port[r] = shunt__fabric_add_switch(f, name, strlen(name));
        if (h->port[r] < 0)
            return shunt__fabric_no_memory();
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
        return shunt__fail(SHUNT_ERR_LIMIT, "a fabric of more than %d hosts is not believed",
                           SHUNT__MAX_HOSTS);
    snprintf(text, sizeof(text), "%.120s", name);
    for (char *p = text; *p; p++)
        if (isspace((unsigned char)*p) || (unsigned char)*p < 32 || *p == '#')
            *p = '_';
    for (unsigned i = 1; !unique && name_taken(f, text); i++)
        snprintf(text, sizeof(text), "%.120s-%u", name, i);
    if (grow(&f->host, f->n_hosts, &f->room_hosts, sizeof(*f->host)) || !(h.name = strdup(text)))
        return shunt__fabric_no_memory();
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
        if (memcmp(f->host[i].kind->topo->host_id.bytes, topo->host_id.bytes, 16) == 0 &&
            strcmp(f->host[i].kind->topo->source, "live") == 0) {
            shunt_topo_destroy(topo);
            if (host)
                *host = i;
            return SHUNT_OK;
        }
    if (grow(&f->kind, f->n_kinds, &f->room_kinds, sizeof(*f->kind)) || !(k = calloc(1, sizeof(*k))))
        return shunt__fabric_no_memory();
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
        return shunt__fail(SHUNT_ERR_LIMIT, "a fabric of more than %d hosts is not believed",
                           SHUNT__MAX_HOSTS);
    snprintf(name, sizeof(name), "%.120s-1", f->host[host].name);
    /* Looking each name up would make this quadratic; if the first is free, so are the others of its series.
     */
    int unique = !name_taken(f, name);
    for (unsigned i = 1; i <= count && st == SHUNT_OK; i++) {
        snprintf(name, sizeof(name), "%.120s-%u", f->host[host].name, i);
        st = append_host(f, f->host[host].kind, name, unique);
    }
    return st;
}

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
    return rail < shunt_fabric_rail_count(f, host) && f->host[host].port[rail] >= 0
               ? f->net[f->host[host].port[rail]].name
               : NULL;
}

unsigned shunt_fabric_slot_count(const shunt_fabric_t *f, unsigned host)
{
    return f && host < f->n_hosts ? f->host[host].kind->n_slots : 0;
}

const shunt_topo_object_t *shunt_fabric_slot(const shunt_fabric_t *f, shunt_place_t place)
{
    return place.slot < shunt_fabric_slot_count(f, place.host)
               ? f->host[place.host].kind->slot[place.slot].object
               : NULL;
}

int shunt__fabric_place_ok(const shunt_fabric_t *f, shunt_place_t place)
{
    return place.host < f->n_hosts && place.slot < f->host[place.host].kind->n_slots;
}
