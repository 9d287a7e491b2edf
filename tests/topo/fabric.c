/* SPDX-License-Identifier: BSD-3-Clause */
/* Fabrics: merging hosts, cables, distances, rings, and placing stages. */
#include <shunt/fabric.h>
#include "tests/tap.h"
#include "topo/model.h"

static shunt_fabric_t *make(const char *description, unsigned hosts)
{
    shunt_fabric_t *f = NULL;
    shunt_topo_t *t = NULL;

    if (shunt_fabric_create(&f) != SHUNT_OK || shunt_topo_load_synthetic(description, &t) != SHUNT_OK ||
        shunt_fabric_add_host(f, t, "node", NULL, NULL) != SHUNT_OK ||
        shunt_fabric_repeat_host(f, 0, hosts - 1) != SHUNT_OK)
        printf("# %s\n", shunt_error_text());
    return f;
}

static const char big[] = "pack:2 numa:1 core:8 pu:2 + switch:4 gpu:1 nic:1@400g nvlink:18";

static void basics(void)
{
    shunt_fabric_t *f = make(big, 4);
    shunt_place_t p[32];
    shunt_fabric_link_t l;
    unsigned others[31], order[8 * 32];
    int enter[8 * 32], leave[8 * 32];

    is_int(shunt_fabric_host_count(f), 4, "four hosts");
    is_str(shunt_fabric_host_name(f, 3), "node-3", "named one after the other");
    ok(!shunt_fabric_host_name(f, 4), "and no fifth");
    is_int(shunt_fabric_rail_count(f, 0), 8, "eight rails each");
    is_str(shunt_fabric_rail_switch(f, 2, 5), "rail-5",
           "the fifth of each is joined to the fifth of the others");
    is_int(shunt_fabric_places(f, 32, p), SHUNT_OK, "32 ranks");
    ok(p[8].host == 1 && p[8].slot == 0 && p[31].host == 3 && p[31].slot == 7, "host by host");
    shunt_fabric_link(f, p[0], p[7], &l);
    ok(l.path_class == SHUNT_TOPO_NVL && l.switches == 0, "within a host over NVLink");
    shunt_fabric_link(f, p[0], p[8], &l);
    ok(l.path_class == SHUNT_TOPO_NET && l.switches == 1 && l.rail_from == 0 && l.rail_to == 0,
       "same rail: over one switch");
    ok(l.bandwidth > 49e9 && l.bandwidth <= 50e9, "at the NIC's rate");
    shunt_fabric_link(f, p[0], p[9], &l);
    ok(l.switches == 1 && l.rail_from == 0 && l.rail_to == 0,
       "another GPU of the other host: still over the own rail");
    is_int(shunt_fabric_neighbours(f, p, 32, 3, others, 31), SHUNT_OK, "neighbours of rank 3");
    int same_host = 1;
    for (int i = 0; i < 7; i++)
        same_host &= p[others[i]].host == 0;
    ok(same_host && p[others[7]].host != 0, "its own host's ranks come first");
    is_int(shunt_fabric_ring_count(f, p, 32), 8, "eight rings make sense");
    is_int(shunt_fabric_rings(f, p, 32, 8, 0, order, enter, leave), SHUNT_OK, "eight rings");
    for (unsigned r = 0; r < 8; r++) {
        unsigned seen[32] = {0}, crossings = 0, bad = 0, entered_at = 0;
        for (unsigned i = 0; i < 32; i++) {
            seen[order[r * 32 + i]]++;
            crossings += enter[r * 32 + i] >= 0;
            if (enter[r * 32 + i] >= 0)
                entered_at += enter[r * 32 + i] == (int)r && p[order[r * 32 + i]].slot == r;
            if (leave[r * 32 + i] >= 0)
                bad += leave[r * 32 + i] != (int)r;
        }
        for (unsigned i = 0; i < 32; i++)
            bad += seen[i] != 1;
        ok(!bad && crossings == 4 && entered_at == 4,
           "ring %u visits each rank once, enters each host once, at the GPU of its rail, and leaves by it",
           r);
    }
    shunt_fabric_rings(f, p, 32, 1, 1, order, enter, leave);
    ok(leave[7] != enter[0], "with NCCL_CROSS_NIC=1 it leaves by the last GPU's own rail");
    shunt_fabric_destroy(f);
}

static void many(void)
{
    shunt_fabric_t *f = make("pack:1 core:1 + nic:2@100g gpu:2", 2000);
    shunt_place_t *p = malloc(4000 * sizeof(*p));

    is_int(shunt_fabric_places(f, 4000, p), SHUNT_OK, "4,000 ranks");
    is_int(shunt_fabric_ring_count(f, p, 4000), 2, "two rails are two rings, however many ranks there are");
    free(p);
    shunt_fabric_destroy(f);
}

static void cables(void)
{
    shunt_fabric_t *f = make(big, 4);
    static const char good[] = "# two leaves\nswitch leaf0 spine 1.6t\nswitch leaf1 spine\ncable node * "
                               "leaf0\ncable node-2 * leaf0\r\n"
                               "cable node-1 * leaf1\n  cable node-3 * leaf1   # the last\n";
    static const char *const bad[] = {
        "cable nobody * x", "cable node nope x", "cable node *", "switch",
        "switch a b 3x",    "switch a b c d e",  "hello",        "switch a b\nswitch b c\nswitch c a",
        "switch a a",       "switch \001x"};
    shunt_place_t p[32];
    shunt_fabric_link_t l;
    unsigned order[32];
    char *text = NULL, *again = NULL;

    shunt_fabric_places(f, 32, p);
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ok(shunt_fabric_read_cables(f, "cables", bad[i], strlen(bad[i])) == SHUNT_ERR_FORMAT &&
               strstr(shunt_error_text(), "line"),
           "refused: %s", shunt_error_text());
    is_str(shunt_fabric_rail_switch(f, 2, 5), "rail-5", "what was known stays");
    is_int(shunt_fabric_read_cables(f, "cables", good, strlen(good)), SHUNT_OK, "cables: %s",
           shunt_error_text());
    is_str(shunt_fabric_rail_switch(f, 3, 5), "leaf1", "are known");
    shunt_fabric_link(f, p[0], p[16], &l);
    is_int(l.switches, 1, "node and node-2 are on one leaf");
    shunt_fabric_link(f, p[0], p[8], &l);
    is_int(l.switches, 3, "node and node-1 are three switches apart");
    shunt_fabric_rings(f, p, 32, 1, 0, order, NULL, NULL);
    ok(p[order[0]].host == 0 && p[order[8]].host == 2 && p[order[16]].host == 1 && p[order[24]].host == 3,
       "the ring keeps hosts of one leaf together");
    shunt_fabric_write_cables(f, &text, NULL);
    is_int(shunt_fabric_read_cables(f, "own", text, strlen(text)), SHUNT_OK, "what is written reads again");
    shunt_fabric_write_cables(f, &again, NULL);
    is_str(again, text, "and is the same");
    free(text);
    free(again);
    for (int format = SHUNT_TOPO_TEXT; format <= SHUNT_TOPO_HWLOC; format++) {
        text = NULL;
        shunt_status_t st = shunt_fabric_export(f, (shunt_topo_format_t)format, &text, NULL);
        int has = format == SHUNT_TOPO_TEXT || format == SHUNT_TOPO_JSON || format == SHUNT_TOPO_SVG ||
                  format == SHUNT_TOPO_DOT;
        ok(has ? st == SHUNT_OK && text && *text : st == SHUNT_ERR_INVALID, "format %d", format);
        free(text);
    }
    shunt_fabric_destroy(f);
}

static void merging(void)
{
    shunt_fabric_t *f = NULL;
    shunt_topo_t *a = NULL, *b = NULL, *c = NULL;
    unsigned host = 9;
    void *data;
    size_t size;

    shunt_fabric_create(&f);
    shunt_topo_load_live(1, &a);
    shunt_topo_pack(a, &data, &size);
    shunt_topo_unpack(data, size, &b);
    free(data);
    shunt_topo_load_synthetic("pack:1 core:2 + nic:1@100g", &c);
    is_int(shunt_fabric_add_host(f, a, NULL, NULL, &host), SHUNT_OK, "this host");
    is_int(shunt_fabric_add_host(f, b, "again", NULL, &host), SHUNT_OK, "its copy, as another rank sends it");
    ok(host == 0 && shunt_fabric_host_count(f) == 1, "is the same host");
    is_int(shunt_fabric_add_host(f, c, shunt_fabric_host_name(f, 0), NULL, &host), SHUNT_OK,
           "another of the same name");
    ok(host == 1 && shunt_fabric_host_count(f) == 2 &&
           strcmp(shunt_fabric_host_name(f, 1), shunt_fabric_host_name(f, 0)) != 0,
       "is another: %s", shunt_fabric_host_name(f, 1));
    shunt_place_t p[7];
    is_int(shunt_fabric_places(f, 7, p), SHUNT_OK, "more ranks than places");
    int good = 1;
    for (int i = 0; i < 7; i++)
        good &= shunt_fabric_slot(f, p[i]) != NULL;
    ok(good && p[0].host == 0 && p[6].host == 1, "are spread over the hosts");
    shunt_fabric_destroy(f);
    shunt_fabric_create(&f);
    is_int(shunt_fabric_places(f, 1, p), SHUNT_ERR_INVALID, "no host, no place: %s", shunt_error_text());
    is_int(shunt_fabric_add_host(f, NULL, NULL, NULL, NULL), SHUNT_ERR_INVALID, "NULL is refused");
    is_int(shunt_fabric_repeat_host(f, 0, 1), SHUNT_ERR_INVALID, "so is a host that isn't there");
    shunt_fabric_destroy(f);
    shunt_fabric_destroy(NULL);
}

static void same_subnet(void)
{
    shunt_fabric_t *f = NULL;

    shunt_fabric_create(&f);
    for (int h = 0; h < 2; h++) {
        shunt_topo_t *t;
        char name[8];
        shunt__topo_new("live", &t);
        for (int r = 0; r < 2; r++) { /* the second host has its rails the other way round */
            snprintf(name, sizeof(name), "r%d", r);
            struct shunt__object *o = shunt__topo_add(t, t->host, SHUNT_TOPO_NIC, name);
            shunt_topo_address_t *a = shunt__arena_get(&t->arena, sizeof(*a));
            *a = (shunt_topo_address_t){.family = AF_INET,
                                        .prefix = 24,
                                        .bytes = {10, 0, (uint8_t)(h ? 1 - r : r), (uint8_t)(h + 1)}};
            o->u.nic->name = o->pub.name;
            o->u.nic->kind = o->u.nic->driver = o->u.nic->reason = "";
            o->u.nic->ifindex = 1;
            o->u.nic->rate = 1000000000;
            o->u.nic->addresses = a;
            o->u.nic->n_addresses = 1;
        }
        t->host_id.bytes[0] = (uint8_t)h;
        shunt__topo_finish(&t);
        shunt_fabric_add_host(f, t, NULL, NULL, NULL);
    }
    is_str(shunt_fabric_rail_switch(f, 0, 0), "subnet-10.0.0.0/24", "rails in one subnet are joined");
    is_str(shunt_fabric_rail_switch(f, 1, 0), "subnet-10.0.1.0/24", "whatever their number");
    shunt_fabric_link_t l;
    shunt_fabric_link(f, (shunt_place_t){0, 0}, (shunt_place_t){1, 0}, &l);
    ok(l.switches == 1 && l.rail_from != l.rail_to,
       "so data goes from the one's first to the other's second");
    shunt_fabric_destroy(f);
}

static void place(const char *description, unsigned hosts, unsigned p, unsigned d, double activations,
                  double gradients, shunt_placement_report_t *rep)
{
    shunt_fabric_t *f = make(description, hosts);
    unsigned n = p * d, *stage = malloc(n * sizeof(*stage)), *replica = malloc(n * sizeof(*replica)), bad = 0;
    unsigned char *seen = calloc(n, 1);
    shunt_place_t *places = malloc(n * sizeof(*places));
    shunt_stages_t s = {sizeof(s), p, d, activations, gradients};

    shunt_fabric_places(f, n, places);
    is_int(shunt_fabric_place_stages(f, places, &s, stage, replica, rep), SHUNT_OK, "%u x %u on %u hosts: %s",
           p, d, hosts, rep->reason);
    for (unsigned i = 0; i < n; i++) {
        if (stage[i] >= p || replica[i] >= d || seen[stage[i] * d + replica[i]]++)
            bad++;
    }
    is_int(bad, 0, "every stage of every replica has one rank");
    ok(rep->seconds_after <= rep->seconds_before * 1.0001,
       "the busiest link has not more to do: %.3g s, was %.3g s", rep->seconds_after, rep->seconds_before);
    free(stage);
    free(replica);
    free(seen);
    free(places);
    shunt_fabric_destroy(f);
}

static void placement(void)
{
    shunt_placement_report_t r;
    static const char slow[] = "pack:1 core:8 + gpu:4 nic:1@10g";

    place(slow, 4, 4, 4, 1e6, 1e9, &r);
    ok(r.bytes_after[7] + r.bytes_after[8] < 0.03e9,
       "much gradient, little activation: replicas stay on one host, %.3g bytes between hosts",
       r.bytes_after[7] + r.bytes_after[8]);
    place(slow, 4, 4, 4, 1e9, 1e6, &r);
    ok(r.bytes_after[7] + r.bytes_after[8] < 0.1e9,
       "much activation, little gradient: pipelines stay on one host, %.3g bytes between hosts",
       r.bytes_after[7] + r.bytes_after[8]);
    ok(r.bytes_before[7] > 1e9, "where the usual order had %.3g", r.bytes_before[7]);
    place(slow, 4, 2, 8, 1e8, 1e8, &r);
    place(big, 16, 8, 16, 2e9, 4e9, &r);
    place(slow, 1, 1, 1, 1, 1, &r);
    place(slow, 3, 1, 12, 0, 1e9, &r);
    shunt_stages_t s = {sizeof(s), 0, 1, 0, 0};
    shunt_fabric_t *f = make(slow, 1);
    shunt_place_t p = {0, 0}, wrong = {5, 0};
    unsigned st, re;
    is_int(shunt_fabric_place_stages(f, &p, &s, &st, &re, NULL), SHUNT_ERR_INVALID, "no stage: %s",
           shunt_error_text());
    s.stages = 1;
    s.gradient_bytes = -1;
    is_int(shunt_fabric_place_stages(f, &p, &s, &st, &re, NULL), SHUNT_ERR_INVALID, "negative bytes: %s",
           shunt_error_text());
    s.gradient_bytes = 1;
    is_int(shunt_fabric_place_stages(f, &wrong, &s, &st, &re, NULL), SHUNT_ERR_INVALID,
           "a place that isn't there: %s", shunt_error_text());
    shunt_fabric_destroy(f);
}

int main(void)
{
    basics();
    many();
    cables();
    merging();
    same_subnet();
    placement();
    return done();
}
