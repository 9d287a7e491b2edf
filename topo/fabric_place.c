/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Placing pipeline stages. A stage sends activations to the next one of its pipeline and gets gradients back;
 * the replicas of a stage all-reduce their gradients round a ring (2 (d-1)/d of them over each of its d
 * edges). Orders are compared by the time that the busiest NIC, link or socket interconnect needs for its
 * bytes; of equals (within 2 %) by the bytes on the slowest class of link, then by the next class and so on.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/fabric.h"
#include "topo/model.h"

#define CLASSES 16
#define MOST_EXCHANGED 64

static const char *const class_names[CLASSES] = {"LOC",  "NVL", "PIX",  "PXB",   "PHB",
                                                 "NODE", "SYS", "leaf", "across"};

const char *shunt_placement_class_name(unsigned index)
{
    return index < 9 ? class_names[index] : "";
}

struct cost {
    double bytes[CLASSES];
    double seconds;
};

struct search {
    const shunt_fabric_t *f;
    const shunt_place_t *places;
    const shunt_stages_t *s;
    unsigned n;
    unsigned *at;      /* rank at stage * replicas + replica */
    unsigned *best;
    unsigned *sorted;  /* ranks in order of nearness: a ring through all of them */
    struct cost cost;
    double *nic_out, *nic_in; /* bytes by host's first rail + rail */
    double *between;          /* bytes between NUMA nodes, by host */
    unsigned *first_rail;
    unsigned n_nics;
};

static void add(struct search *x, unsigned a, unsigned b, double bytes, struct cost *c)
{
    shunt_fabric_link_t link;

    if (bytes <= 0 || shunt_fabric_link(x->f, x->places[a], x->places[b], &link) != SHUNT_OK)
        return;
    unsigned class = link.path_class < SHUNT_TOPO_NET ? (unsigned)link.path_class
                     : link.switches <= 1             ? 7
                                                      : 8;
    c->bytes[class] += bytes;
    if (link.path_class == SHUNT_TOPO_NET && link.rail_from >= 0) {
        x->nic_out[x->first_rail[x->places[a].host] + (unsigned)link.rail_from] += bytes;
        x->nic_in[x->first_rail[x->places[b].host] + (unsigned)link.rail_to] += bytes;
    } else if (link.path_class == SHUNT_TOPO_SYS && link.bandwidth > 0) {
        x->between[x->places[a].host] += bytes /
                                         link.bandwidth; /* all of a host's share it; both ways at once */
        if (x->between[x->places[a].host] / 2 > c->seconds)
            c->seconds = x->between[x->places[a].host] / 2;
    } else if (link.path_class != SHUNT_TOPO_LOC && link.bandwidth > 0 && bytes / link.bandwidth > c->seconds)
        c->seconds = bytes / link.bandwidth;
}

static void measure(struct search *x, const unsigned *at, struct cost *c)
{
    unsigned p = x->s->stages, d = x->s->replicas;
    double ring = d > 1 ? 2.0 * (d - 1) / d * x->s->gradient_bytes : 0;

    memset(c, 0, sizeof(*c));
    memset(x->nic_out, 0, (x->n_nics + 1) * sizeof(*x->nic_out));
    memset(x->nic_in, 0, (x->n_nics + 1) * sizeof(*x->nic_in));
    memset(x->between, 0, (x->f->n_hosts + 1) * sizeof(*x->between));
    for (unsigned s = 0; s < p; s++)
        for (unsigned r = 0; r < d; r++) {
            if (s + 1 < p) {
                add(x, at[s * d + r], at[(s + 1) * d + r], x->s->activation_bytes, c);
                add(x, at[(s + 1) * d + r], at[s * d + r], x->s->activation_bytes, c);
            }
            if (d > 1)
                add(x, at[s * d + r], at[s * d + (r + 1) % d], ring, c);
        }
    for (unsigned h = 0; h < x->f->n_hosts; h++)
        for (unsigned r = 0; r < x->f->host[h].kind->n_rails; r++) {
            double rate = (double)x->f->host[h].kind->nic[r]->nic->rate / 8;
            double out = x->nic_out[x->first_rail[h] + r], in = x->nic_in[x->first_rail[h] + r];
            double seconds = (out > in ? out : in) / rate;
            if (seconds > c->seconds)
                c->seconds = seconds;
        }
}

static int cheaper(const struct cost *a, const struct cost *b)
{
    if (a->seconds < b->seconds * 0.98 || b->seconds < a->seconds * 0.98)
        return a->seconds < b->seconds;
    for (int k = CLASSES; k-- > 1;) {
        double slack = 1e-3 * (a->bytes[k] + b->bytes[k]) + 1e-9;
        if (a->bytes[k] < b->bytes[k] - slack)
            return 1;
        if (a->bytes[k] > b->bytes[k] + slack)
            return 0;
    }
    return a->seconds < b->seconds * 0.999;
}

static void keep_if_cheaper(struct search *x, const char *reason, char *text, size_t size)
{
    struct cost c;

    measure(x, x->at, &c);
    if (!cheaper(&c, &x->cost))
        return;
    x->cost = c;
    memcpy(x->best, x->at, x->n * sizeof(*x->best));
    snprintf(text, size, "%s", reason);
}

/*
 * Ranks in order of nearness are cut into tiles of a x b (stages x replicas) that fill one after the other;
 * within a tile either pipelines or replicas lie together. a = stages, b = 1 keeps pipelines together, a = 1,
 * b = replicas keeps replicas together, what lies between suits hosts that hold several of both.
 */
static void try_tiles(struct search *x, unsigned a, unsigned b, int stages_inside, char *text, size_t size)
{
    unsigned p = x->s->stages, d = x->s->replicas, next = 0;
    char reason[160];

    for (int outer = 0; outer < 2; outer++) {
        next = 0;
        for (unsigned i = 0; i < (outer ? d / b : p / a); i++)
            for (unsigned j = 0; j < (outer ? p / a : d / b); j++)
                for (unsigned k = 0; k < a * b; k++) {
                    unsigned ts = outer ? j : i, tr = outer ? i : j;
                    unsigned s = ts * a + (stages_inside ? k % a : k / b),
                             r = tr * b + (stages_inside ? k / a : k % b);
                    x->at[s * d + r] = x->sorted[next++];
                }
        snprintf(reason, sizeof(reason), "%s: tiles of %u stage%s x %u replica%s side by side",
                 a == p && b == 1   ? "each pipeline stays together"
                 : a == 1 && b == d ? "the replicas of each stage stay together"
                                    : "mixed",
                 a, a == 1 ? "" : "s", b, b == 1 ? "" : "s");
        keep_if_cheaper(x, reason, text, size);
    }
}

static void exchange(struct search *x, char *text, size_t size)
{
    int better = 1, any = 0;

    for (int pass = 0; pass < 4 && better; pass++) {
        better = 0;
        for (unsigned i = 0; i < x->n; i++)
            for (unsigned k = i + 1; k < x->n; k++) {
                struct cost c;
                unsigned t = x->best[i];
                x->best[i] = x->best[k];
                x->best[k] = t;
                measure(x, x->best, &c);
                if (cheaper(&c, &x->cost)) {
                    x->cost = c;
                    better = any = 1;
                } else {
                    x->best[k] = x->best[i];
                    x->best[i] = t;
                }
            }
    }
    if (any && strlen(text) + 40 < size)
        strcat(text, ", improved by exchanging pairs");
}

static shunt_status_t prepare(struct search *x)
{
    shunt_status_t st;

    x->first_rail = calloc(x->f->n_hosts + 1, sizeof(*x->first_rail));
    if (!x->first_rail)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to place stages");
    for (unsigned h = 0; h < x->f->n_hosts; h++) {
        x->first_rail[h] = x->n_nics;
        x->n_nics += x->f->host[h].kind->n_rails;
    }
    x->nic_out = calloc(x->n_nics + 1, sizeof(*x->nic_out));
    x->nic_in = calloc(x->n_nics + 1, sizeof(*x->nic_in));
    x->between = calloc(x->f->n_hosts + 1, sizeof(*x->between));
    x->at = calloc(x->n, sizeof(*x->at));
    x->best = calloc(x->n, sizeof(*x->best));
    x->sorted = calloc(x->n, sizeof(*x->sorted));
    if (!x->nic_out || !x->nic_in || !x->between || !x->at || !x->best || !x->sorted)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to place stages");
    st = shunt_fabric_rings(x->f, x->places, x->n, 1, 0, x->sorted, NULL, NULL);
    for (unsigned i = 0; i < x->n; i++)
        x->best[i] = i;
    return st;
}

shunt_status_t shunt_fabric_place_stages(const shunt_fabric_t *f, const shunt_place_t *places,
                                         const shunt_stages_t *stages, unsigned *stage, unsigned *replica,
                                         shunt_placement_report_t *report)
{
    shunt_stages_t s = {0};
    struct search x = {.f = f, .places = places, .s = &s};
    shunt_placement_report_t rep = {.reason = "the usual order is as good as any"};
    shunt_status_t st;

    if (!f || !places || !stages || !stage || !replica)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_place_stages: an argument is NULL");
    if (stages->size < sizeof(size_t) || stages->size > 4096)
        return shunt__fail(SHUNT_ERR_INVALID,
                           "shunt_fabric_place_stages: stages->size is not sizeof(shunt_stages_t)");
    memcpy(&s, stages, stages->size < sizeof(s) ? stages->size : sizeof(s));
    if (!s.stages || !s.replicas || s.stages > (1u << 20) || s.replicas > (1u << 20) / s.stages)
        return shunt__fail(SHUNT_ERR_INVALID, "stages times replicas must be from 1 to %u, not %u x %u",
                           1u << 20, s.stages, s.replicas);
    if (!isfinite(s.activation_bytes) || !isfinite(s.gradient_bytes) || s.activation_bytes < 0 ||
        s.gradient_bytes < 0)
        return shunt__fail(SHUNT_ERR_INVALID, "activation_bytes and gradient_bytes must be 0 or more");
    x.n = s.stages * s.replicas;
    for (unsigned i = 0; i < x.n; i++)
        if (!shunt__fabric_place_ok(f, places[i]))
            return shunt__fail(SHUNT_ERR_INVALID, "rank %u has a place that the fabric doesn't have", i);
    st = prepare(&x);
    if (st == SHUNT_OK) {
        measure(&x, x.best, &x.cost);
        memcpy(rep.bytes_before, x.cost.bytes, sizeof(rep.bytes_before));
        rep.seconds_before = x.cost.seconds;
        for (int inside = 0; inside < 2; inside++) { /* the plain ones first: of equals the plainer stays */
            try_tiles(&x, s.stages, 1, inside, rep.reason, sizeof(rep.reason));
            try_tiles(&x, 1, s.replicas, inside, rep.reason, sizeof(rep.reason));
        }
        for (unsigned a = 1; a <= s.stages; a++)
            for (unsigned b = 1; b <= s.replicas && s.stages % a == 0; b++)
                if (s.replicas % b == 0 &&
                    (x.n <= 4096 || a == 1 || a == s.stages || b == 1 || b == s.replicas))
                    for (int inside = 0; inside < 2; inside++)
                        try_tiles(&x, a, b, inside, rep.reason, sizeof(rep.reason));
        if (x.n <= MOST_EXCHANGED)
            exchange(&x, rep.reason, sizeof(rep.reason));
        memcpy(rep.bytes_after, x.cost.bytes, sizeof(rep.bytes_after));
        rep.seconds_after = x.cost.seconds;
        for (unsigned i = 0; i < x.n; i++) {
            stage[x.best[i]] = i / s.replicas;
            replica[x.best[i]] = i % s.replicas;
        }
        if (report)
            *report = rep;
    }
    free(x.first_rail);
    free(x.nic_out);
    free(x.nic_in);
    free(x.between);
    free(x.at);
    free(x.best);
    free(x.sorted);
    return st;
}
