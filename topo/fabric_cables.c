/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of cables: which NIC is plugged into which network switch, and what is above that. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/fabric.h"
#include "topo/model.h"

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
        s = shunt__fabric_add_switch(f, l->word[1], l->len[1]);
    if (s < 0)
        return shunt__fabric_no_memory();
    if (l->n < 3)
        return SHUNT_OK;
    above = shunt__fabric_find_switch(f, l->word[2], l->len[2]);
    if (above < 0)
        above = shunt__fabric_add_switch(f, l->word[2], l->len[2]);
    if (above < 0)
        return shunt__fabric_no_memory();
    if (is_above(f, s, above))
        return shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: switch %.*s would be above itself", name, number,
                           (int)l->len[1], l->word[1]);
    f->net[s].above = above;
    if (l->n == 4) {
        f->net[s].rate = parse_rate(l->word[3], l->len[3]);
        if (f->net[s].rate < 0)
            return shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: \"%.*s\" is no rate like 400g or 1.6t", name,
                               number, (int)l->len[3], l->word[3]);
    }
    return SHUNT_OK;
}

static int is_nic(const struct line *l, const shunt_topo_object_t *o)
{
    return is_word(l, 2, "*") || is_word(l, 2, o->name) || is_word(l, 2, o->nic->name) ||
           (o->nic->rdma && is_word(l, 2, o->nic->rdma));
}

static shunt_status_t read_cable(shunt_fabric_t *f, const struct line *l, const char *name, unsigned number)
{
    int s = shunt__fabric_find_switch(f, l->word[3], l->len[3]), hosts = 0, met = 0;

    if (s < 0)
        s = shunt__fabric_add_switch(f, l->word[3], l->len[3]);
    if (s < 0)
        return shunt__fabric_no_memory();
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
        return shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: the fabric has no host \"%.*s\"", name, number,
                           (int)l->len[1], l->word[1]);
    if (!met)
        return shunt__fail(SHUNT_ERR_FORMAT, "%s, line %u: host %.*s has no rail \"%.*s\"", name, number,
                           (int)l->len[1], l->word[1], (int)l->len[2], l->word[2]);
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
                    return shunt__fail(SHUNT_ERR_FORMAT,
                                       "%s, line %u: a name is longer than 100 bytes or not printable", name,
                                       number);
        if (is_word(&l, 0, "switch") && l.n >= 2 && l.n <= 4)
            st = read_switch(f, &l, name, number);
        else if (is_word(&l, 0, "cable") && l.n == 4)
            st = read_cable(f, &l, name, number);
        else
            st = shunt__fail(
                SHUNT_ERR_FORMAT,
                "%s, line %u: expected \"switch NAME [ABOVE [RATE]]\" or \"cable HOST NIC SWITCH\"", name,
                number);
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
        return shunt__fabric_no_memory();
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
        return shunt__fabric_no_memory();
    for (unsigned h = 0; h < f->n_hosts; h++) { /* what was known stays if the text is wrong */
        ports[h] = calloc(f->host[h].kind->n_rails + 1, sizeof(**ports));
        if (!ports[h]) {
            for (unsigned i = 0; i < h; i++)
                free(ports[i]);
            free(ports);
            return shunt__fabric_no_memory();
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
        shunt__fabric_free_switches(f);
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
                shunt__text_add(&t, "cable %s %s %s\n", f->host[h].name, f->host[h].kind->nic[r]->name,
                                f->net[f->host[h].port[r]].name);
    return shunt__text_done(&t, text, size);
}
