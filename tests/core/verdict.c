/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is to blame: the pure part, on links and rates that are made up. */
#include "comm/core/verdict.h"
#include "tests/tap.h"

#define HOSTS 4
#define RAILS 2

static struct shunt__edge edges[HOSTS * HOSTS * RAILS];

/* All links of 4 hosts over 2 rails, all well. */
static int fabric(void)
{
    int n = 0;

    memset(edges, 0, sizeof(edges));
    for (int a = 0; a < HOSTS; a++)
        for (int b = 0; b < HOSTS; b++)
            for (int r = 0; r < RAILS && a != b; r++, n++) {
                edges[n].from = 100 + (unsigned)a;
                edges[n].to = 100 + (unsigned)b;
                snprintf(edges[n].from_name, sizeof(edges[n].from_name), "h%d", a + 1);
                snprintf(edges[n].to_name, sizeof(edges[n].to_name), "h%d", b + 1);
                snprintf(edges[n].from_rail, sizeof(edges[n].from_rail), "rail%d", r);
                snprintf(edges[n].to_rail, sizeof(edges[n].to_rail), "rail%d", r);
                edges[n].factor = 1;
            }
    return n;
}

static void slow(int n, const char *from, const char *to, const char *rail)
{
    for (int i = 0; i < n; i++)
        if ((!from || strcmp(edges[i].from_name, from) == 0) && (!to || strcmp(edges[i].to_name, to) == 0) &&
            strcmp(edges[i].from_rail, rail) == 0) {
            edges[i].slow = 1;
            edges[i].factor = 10;
        }
}

/* h1 and h2 hang on leaf1, h3 and h4 on leaf2, on each rail its own. */
static const char *leaf(void *arg, const char *host, const char *rail)
{
    return host[1] <= '2' ? "leaf1" : "leaf2";
}

static void blame(void)
{
    struct shunt__verdict v[8];
    int n = fabric();

    is_int(shunt__verdict_find(edges, n, leaf, NULL, v, 8), 0, "nothing is slow: no verdict");
    slow(n, "h2", "h3", "rail1");
    is_int(shunt__verdict_find(edges, n, leaf, NULL, v, 8), 1, "one link is slow");
    ok(v[0].blame == SHUNT__BLAME_LINK && strcmp(v[0].what, "h2:rail1 <-> h3:rail1") == 0, "the link is named: %s", v[0].what);
    slow(n, "h3", "h2", "rail1");
    is_int(shunt__verdict_find(edges, n, leaf, NULL, v, 8), 1, "slow both ways: still one link");

    n = fabric();
    slow(n, "h3", NULL, "rail0");
    is_int(shunt__verdict_find(edges, n, leaf, NULL, v, 8), 1, "all that a NIC sends is slow");
    ok(v[0].blame == SHUNT__BLAME_NIC && strcmp(v[0].what, "h3:rail0") == 0, "the NIC is named: %s", v[0].what);
    is_int(v[0].links, 3, "with its links");
    n = fabric();
    slow(n, NULL, "h1", "rail0");
    is_int(shunt__verdict_find(edges, n, NULL, NULL, v, 8), 1, "all that a NIC receives is slow");
    ok(v[0].blame == SHUNT__BLAME_NIC && strcmp(v[0].what, "h1:rail0") == 0, "the NIC is named: %s", v[0].what);

    n = fabric();
    slow(n, "h1", "h3", "rail0");
    slow(n, "h1", "h4", "rail0");
    slow(n, "h2", "h3", "rail0");
    slow(n, "h4", "h2", "rail0");
    is_int(shunt__verdict_find(edges, n, leaf, NULL, v, 8), 1, "everything between two switches is slow");
    ok(v[0].blame == SHUNT__BLAME_PATH && strcmp(v[0].what, "leaf1 <-> leaf2 on rail0") == 0, "the path is named: %s",
       v[0].what);
    n = fabric();
    slow(n, "h3", NULL, "rail0");
    shunt__verdict_find(edges, n, leaf, NULL, v, 8);
    ok(v[0].blame == SHUNT__BLAME_NIC, "one host's NIC is no path");

    n = fabric();
    slow(n, "h4", NULL, "rail1");
    slow(n, "h1", "h2", "rail0");
    is_int(shunt__verdict_find(edges, n, leaf, NULL, v, 8), 2, "a NIC and a link at once");
}

/* Feeds n samples; nonzero when the link has been called slow. */
static int feed(struct shunt__series *s, double rate, double others, int n)
{
    for (int i = 0; i < n; i++) {
        shunt__series_add(s, rate * (i % 2 ? 0.9 : 1.1));
        shunt__series_judge(s, others);
    }
    return s->slow;
}

static void series(void)
{
    struct shunt__series s = {.n = 0};

    ok(!feed(&s, 100, 1, 50), "a steady rate is well");
    ok(!feed(&s, 60, 1, 50), "so is one that is a little lower");
    s = (struct shunt__series){.n = 0};
    feed(&s, 100, 1, 50);
    ok(!feed(&s, 10, 1, 3), "three bad windows prove nothing");
    ok(feed(&s, 10, 1, 6), "nine do");
    ok(feed(&s, 10, 1, 2000), "it stays slow however long that lasts");
    ok(feed(&s, 50, 1, 20), "half way back is not well");
    ok(!feed(&s, 95, 1, 10), "well again");
    ok(!feed(&s, 20, 5, 50), "what slows everything else as much is no link");
}

int main(void)
{
    blame();
    series();
    return done();
}
