/* SPDX-License-Identifier: BSD-3-Clause */
/* Distances between ranks, who is near to whom, and rings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/fabric.h"
#include "topo/model.h"

shunt_status_t shunt_fabric_places(const shunt_fabric_t *f, unsigned n, shunt_place_t *places)
{
    uint64_t slots = 0;

    if (!f || (!places && n))
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_places: fabric or places is NULL");
    if (!f->n_hosts)
        return shunt__fail(SHUNT_ERR_INVALID, "a fabric without hosts has no place for a rank");
    for (unsigned h = 0; h < f->n_hosts; h++)
        slots += f->host[h].kind->n_slots;
    unsigned rank = 0;
    if (n <= slots) {
        for (unsigned h = 0; h < f->n_hosts && rank < n; h++)
            for (unsigned s = 0; s < f->host[h].kind->n_slots && rank < n; s++)
                places[rank++] = (shunt_place_t){h, s};
        return SHUNT_OK;
    }
    /* More ranks than slots: each host takes its share, neighbours in number share a slot. */
    uint64_t before = 0;
    for (unsigned h = 0; h < f->n_hosts; h++) {
        unsigned here = f->host[h].kind->n_slots, until = (unsigned)((before + here) * n / slots),
                 share = until - rank, first = rank;
        for (; rank < until; rank++)
            places[rank] = (shunt_place_t){h, (unsigned)((uint64_t)(rank - first) * here / share)};
        before += here;
    }
    return SHUNT_OK;
}

/* Bandwidth of a slot over a rail of its host. */
static double over_rail(const struct shunt__kind *k, unsigned slot, int rail)
{
    shunt_topo_path_t p;

    if (k->slot[slot].rail == rail)
        return k->slot[slot].bandwidth;
    return shunt_topo_path(k->topo, k->slot[slot].object, k->nic[rail], &p) == SHUNT_OK ? p.bandwidth : 0;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Between hosts: the nearest rail of the one end, and of the other the rail with the fewest switches between.
 */
static void between(const shunt_fabric_t *f, shunt_place_t a, shunt_place_t b, shunt_fabric_link_t *link)
{
    const struct shunt__host *x = &f->host[a.host], *y = &f->host[b.host];
    int from = x->kind->slot[a.slot].rail, own = y->kind->slot[b.slot].rail, best = -1;
    unsigned fewest = ~0u;

    link->path_class = SHUNT_TOPO_NET;
    link->rail_from = link->rail_to = -1;
    link->bandwidth = 0;
    link->switches = 0;
    if (from < 0 || own < 0) {
        link->distance = 7 + 1000;
        return;
    }
    unsigned direct = shunt__fabric_switches(f, x->port[from], y->port[own]);
    for (unsigned r = 0; r < y->kind->n_rails && direct > 1; r++) {
        unsigned n = shunt__fabric_switches(f, x->port[from], y->port[r]);
        if (n < fewest) {
            fewest = n;
            best = (int)r;
        }
    }
    if (best < 0 || direct <= fewest) {
        best = own;
        fewest = direct;
    }
    link->rail_from = from;
    link->rail_to = best;
    link->switches = fewest;
    link->bandwidth = smaller(over_rail(x->kind, a.slot, from), over_rail(y->kind, b.slot, best));
    link->distance = 7 + fewest;
}

shunt_status_t shunt_fabric_link(const shunt_fabric_t *f, shunt_place_t a, shunt_place_t b,
                                 shunt_fabric_link_t *link)
{
    shunt_topo_path_t p;

    if (!f || !link || !shunt__fabric_place_ok(f, a) || !shunt__fabric_place_ok(f, b))
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_link: the fabric has no such place");
    if (a.host != b.host) {
        between(f, a, b, link);
        return SHUNT_OK;
    }
    const struct shunt__kind *k = f->host[a.host].kind;
    shunt_status_t st = shunt_topo_path(k->topo, k->slot[a.slot].object, k->slot[b.slot].object, &p);
    if (st != SHUNT_OK)
        return st;
    *link = (shunt_fabric_link_t){p.path_class, 0, -1, -1, p.bandwidth, (unsigned)p.path_class};
    return SHUNT_OK;
}

struct near {
    unsigned distance, rank;
    double bandwidth;
};

static int by_nearness(const void *a, const void *b)
{
    const struct near *x = a, *y = b;

    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    if (x->bandwidth < y->bandwidth * 0.999 || y->bandwidth < x->bandwidth * 0.999)
        return x->bandwidth > y->bandwidth ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

shunt_status_t shunt_fabric_neighbours(const shunt_fabric_t *f, const shunt_place_t *places, unsigned n,
                                       unsigned rank, unsigned *others, unsigned room)
{
    struct near *list;
    unsigned m = 0;

    if (!f || !places || (!others && room) || rank >= n)
        return shunt__fail(SHUNT_ERR_INVALID,
                           "shunt_fabric_neighbours: an argument is NULL or the rank is not below %u", n);
    list = malloc(n * sizeof(*list));
    if (!list)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a list of neighbours");
    for (unsigned i = 0; i < n; i++) {
        shunt_fabric_link_t link;
        shunt_status_t st;
        if (i == rank)
            continue;
        st = shunt_fabric_link(f, places[rank], places[i], &link);
        if (st != SHUNT_OK) {
            free(list);
            return st;
        }
        list[m++] = (struct near){link.distance, i, link.bandwidth};
    }
    qsort(list, m, sizeof(*list), by_nearness);
    for (unsigned i = 0; i < m && i < room; i++)
        others[i] = list[i].rank;
    free(list);
    return SHUNT_OK;
}

/* ---- rings ---- */

struct seat {
    const shunt_fabric_t *f;
    unsigned host;
    int path[16]; /* from the top switch down to the first rail's, -1 beyond */
};

static int by_switch(const void *a, const void *b)
{
    const struct seat *x = a, *y = b;

    for (int i = 0; i < 16; i++)
        if (x->path[i] != y->path[i])
            return x->path[i] < y->path[i] ? -1 : 1;
    return x->host < y->host ? -1 : x->host > y->host;
}

shunt_status_t shunt__fabric_host_order(const shunt_fabric_t *f, unsigned *order)
{
    struct seat *seat = calloc(f->n_hosts + 1, sizeof(*seat));

    if (!seat)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the order of hosts");
    for (unsigned h = 0; h < f->n_hosts; h++) {
        int up[16], n = 0;
        seat[h].host = h;
        for (int i = 0; i < 16; i++)
            seat[h].path[i] = -1;
        for (int s = f->host[h].kind->n_rails ? f->host[h].port[0] : -1; s >= 0 && n < 16;
             s = f->net[s].above)
            up[n++] = s;
        for (int i = 0; i < n; i++)
            seat[h].path[i] = up[n - 1 - i];
    }
    qsort(seat, f->n_hosts, sizeof(*seat), by_switch);
    for (unsigned i = 0; i < f->n_hosts; i++)
        order[i] = seat[i].host;
    free(seat);
    return SHUNT_OK;
}

unsigned shunt_fabric_ring_count(const shunt_fabric_t *f, const shunt_place_t *places, unsigned n)
{
    unsigned char seen[SHUNT__MAX_RAILS] = {0};
    unsigned count = 0;

    for (unsigned i = 0; f && places && i < n; i++) {
        if (!shunt__fabric_place_ok(f, places[i]))
            continue;
        int r = f->host[places[i].host].kind->slot[places[i].slot].rail;
        if (r >= 0 && !seen[r])
            count++;
        if (r >= 0)
            seen[r] = 1;
    }
    return count ? count : 1;
}

struct member {
    unsigned host_rank, chain_rank,
        rank; /* positions in the order of hosts and in the host's chain of slots */
};

static int by_position(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->host_rank != y->host_rank)
        return x->host_rank < y->host_rank ? -1 : 1;
    if (x->chain_rank != y->chain_rank)
        return x->chain_rank < y->chain_rank ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Of the ranks of one host, the first that is nearest to the rail; the ring's number spreads them if there is
 * none. */
static unsigned entry(const shunt_fabric_t *f, const shunt_place_t *places, const struct member *m,
                      unsigned n, unsigned ring)
{
    for (unsigned i = 0; i < n; i++)
        if (f->host[places[m[i].rank].host].kind->slot[places[m[i].rank].slot].rail == (int)ring)
            return i;
    return ring % n;
}

static void ring_edges(const shunt_fabric_t *f, const shunt_place_t *places, unsigned n, int cross_nic,
                       const unsigned *order, int *enter, int *leave)
{
    int came_in = -1;

    for (unsigned i = 0; i < n; i++) {
        shunt_place_t here = places[order[i]], before = places[order[(i + n - 1) % n]],
                      after = places[order[(i + 1) % n]];
        const struct shunt__kind *k = f->host[here.host].kind;
        int nearest = k->slot[here.slot].rail;
        int in = n > 1 && before.host != here.host ? nearest : -1;
        if (in >= 0)
            came_in = in;
        if (enter)
            enter[i] = in;
        if (leave)
            leave[i] = n > 1 && after.host != here.host ? !cross_nic && came_in >= 0 ? came_in : nearest : -1;
    }
}

shunt_status_t shunt_fabric_rings(const shunt_fabric_t *f, const shunt_place_t *places, unsigned n,
                                  unsigned rings, int cross_nic, unsigned *order, int *enter, int *leave)
{
    unsigned *hosts, *host_rank;
    struct member *m;
    shunt_status_t st;

    if (!f || !places || !order || !n || !rings)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_rings: an argument is NULL or 0");
    for (unsigned i = 0; i < n; i++)
        if (!shunt__fabric_place_ok(f, places[i]))
            return shunt__fail(SHUNT_ERR_INVALID, "rank %u has a place that the fabric doesn't have", i);
    hosts = malloc((f->n_hosts + 1) * sizeof(*hosts));
    host_rank = malloc((f->n_hosts + 1) * sizeof(*host_rank));
    m = malloc(n * sizeof(*m));
    st = hosts && host_rank && m ? shunt__fabric_host_order(f, hosts)
                                 : shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for rings");
    if (st == SHUNT_OK) {
        for (unsigned i = 0; i < f->n_hosts; i++)
            host_rank[hosts[i]] = i;
        for (unsigned i = 0; i < n; i++) {
            const struct shunt__kind *k = f->host[places[i].host].kind;
            unsigned c = 0;
            while (k->chain[c] != places[i].slot)
                c++;
            m[i] = (struct member){host_rank[places[i].host], c, i};
        }
        qsort(m, n, sizeof(*m), by_position);
        for (unsigned r = 0; r < rings; r++) {
            unsigned *out = order + (size_t)r * n;
            for (unsigned i = 0, len; i < n; i += len) {
                len = 1;
                while (i + len < n && m[i + len].host_rank == m[i].host_rank)
                    len++;
                unsigned first = entry(f, places, m + i, len, r);
                for (unsigned k = 0; k < len; k++)
                    out[i + k] = m[i + (first + k) % len].rank;
            }
            ring_edges(f, places, n, cross_nic, out, enter ? enter + (size_t)r * n : NULL,
                       leave ? leave + (size_t)r * n : NULL);
        }
    }
    free(hosts);
    free(host_rank);
    free(m);
    return st;
}
