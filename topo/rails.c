/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which NICs carry data. A setting decides where there is one; otherwise the best tier that has any NIC,
 * without those that are slower than a tenth of its fastest. The reason of each yes and no is kept.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/model.h"
#include "topo/text.h"

#define SLOWEST_SHARE 10 /* a NIC below a tenth of the fastest adds less than its overhead */
#define MAX_WORDS 1024

/* A list as NCCL writes them: [^][=]word,word. */
struct words {
    int exclude, exact;
    unsigned n;
    struct {
        const char *text;
        size_t len;
        unsigned port; /* 0: any */
    } word[MAX_WORDS];
};

struct choice {
    const shunt_topo_t *topo;
    shunt_topo_rails_t *out;
    struct shunt__arena *arena;
    shunt_topo_rail_t *rail;
    const shunt_topo_rails_options_t *opt;
};

struct owned_rails {
    shunt_topo_rails_t pub; /* first */
    struct shunt__arena arena;
};

void shunt_topo_rails_options_init(shunt_topo_rails_options_t *options)
{
    const char *family = getenv("NCCL_SOCKET_FAMILY"), *disable = getenv("NCCL_IB_DISABLE");

    if (!options)
        return;
    memset(options, 0, sizeof(*options));
    options->size = sizeof(*options);
    options->rails = getenv("SHUNT_RAILS");
    options->ib_hca = getenv("NCCL_IB_HCA");
    options->socket_ifname = getenv("NCCL_SOCKET_IFNAME");
    options->family = !family ? AF_UNSPEC : strcmp(family, "AF_INET6") == 0 ? AF_INET6
                    : strcmp(family, "AF_INET") == 0 ? AF_INET : AF_UNSPEC;
    options->no_rdma = disable && atoi(disable) != 0;
}

/* `ports`: a ":1" at a word's end is a port number. */
static shunt_status_t parse_words(const char *setting, const char *text, int ports, struct words *out)
{
    memset(out, 0, sizeof(*out));
    if (*text == '^') {
        out->exclude = 1;
        text++;
    }
    if (*text == '=') {
        out->exact = 1;
        text++;
    }
    while (*text) {
        size_t len = strcspn(text, ",");
        const char *next = text[len] ? text + len + 1 : text + len;
        while (len && isspace((unsigned char)*text)) {
            text++;
            len--;
        }
        while (len && isspace((unsigned char)text[len - 1]))
            len--;
        if (len) {
            const char *colon = ports ? memchr(text, ':', len) : NULL;
            char *end = NULL;
            unsigned long port = 0;
            if (out->n == MAX_WORDS)
                return shunt__fail(SHUNT_ERR_INVALID, "%s names more than %d NICs", setting, MAX_WORDS);
            if (colon) {
                port = strtoul(colon + 1, &end, 10);
                if (end == colon + 1 || end != text + len || port < 1 || port > 255)
                    return shunt__fail(
                        SHUNT_ERR_INVALID,
                        "%s: in \"%.*s\" a port number from 1 to 255 was expected after the colon", setting,
                        (int)len, text);
                len = (size_t)(colon - text);
            }
            out->word[out->n].text = text;
            out->word[out->n].len = len;
            out->word[out->n++].port = (unsigned)port;
        }
        text = next;
    }
    if (!out->n)
        return shunt__fail(SHUNT_ERR_INVALID, "%s is set, but names no NIC: unset it to let topology decide",
                           setting);
    return SHUNT_OK;
}

static int matches(const struct words *w, unsigned k, const char *name, unsigned port, int exact)
{
    size_t len = w->word[k].len;

    return name && strncmp(name, w->word[k].text, len) == 0 && (!exact || !name[len]) &&
           (!w->word[k].port || !port || w->word[k].port == port);
}

static int listed(const struct words *w, const char *name, unsigned port, int exact)
{
    for (unsigned k = 0; k < w->n; k++)
        if (matches(w, k, name, port, exact))
            return 1;
    return 0;
}

static int has_family(const shunt_topo_nic_t *nic, sa_family_t family)
{
    if (family == AF_UNSPEC || !nic->ifindex)
        return 1;
    for (unsigned i = 0; i < nic->n_addresses; i++)
        if (nic->addresses[i].family == family)
            return 1;
    return 0;
}

/* Whether bytes could flow through it right now, whatever it is; NULL, or what is missing. */
static const char *missing(const struct choice *c, const shunt_topo_nic_t *nic)
{
    int needs_address = nic->ifindex &&
                        (c->opt->no_rdma || !nic->rdma || nic->layer != SHUNT_TOPO_LINK_INFINIBAND);

    if (nic->state == SHUNT_TOPO_NIC_DOWN)
        return "it is down";
    if (nic->state == SHUNT_TOPO_NIC_NO_CARRIER)
        return "it has no carrier";
    if (needs_address && !nic->n_addresses)
        return "it has no IP address";
    if (needs_address && !has_family(nic, c->opt->family))
        return c->opt->family == AF_INET6 ? "it has no IPv6 address" : "it has no IPv4 address";
    if (c->opt->no_rdma && nic->rdma && !nic->ifindex && strcmp(c->topo->source, "live") == 0)
        return "it has no network interface for sockets";
    return NULL;
}

static void set(struct choice *c, shunt_topo_rail_t *r, shunt_topo_rail_state_t state, const char *fmt,
                const char *a, const char *b)
{
    r->state = state;
    r->reason = shunt__arena_print(c->arena, fmt, a, b);
}

static const char *describe_rate(struct choice *c, const shunt_topo_nic_t *nic)
{
    char text[32];

    return shunt__arena_print(c->arena, "%s", shunt__print_rate(text, (double)nic->rate));
}

/* What there is, for the text of an error: "eth0 (down), docker0 (Docker's bridge ...)". */
static void list_existing(const struct choice *c, char *text, size_t size)
{
    size_t n = 0;

    *text = 0;
    for (unsigned i = 0; i < c->out->n; i++) {
        const shunt_topo_nic_t *nic = c->rail[i].nic;
        int unmatched = c->rail[i].state == SHUNT_TOPO_RAIL_UNUSED &&
                        c->out->decided_by; /* that goes without saying */
        if (!nic)
            continue;
        int m = snprintf(text + n, size - n, "%s%s%s%s (%s)", n ? ", " : "", nic->name,
                         nic->rdma && strcmp(nic->rdma, nic->name) ? "/" : "",
                         nic->rdma && strcmp(nic->rdma, nic->name) ? nic->rdma : "",
                         unmatched || !c->rail[i].reason ? nic->reason : c->rail[i].reason);
        if (m < 0 || (size_t)m >= size - n) {
            snprintf(text + (n > 4 ? n : 4), size - (n > 4 ? n : 4), " ...");
            return;
        }
        n += (size_t)m;
    }
    if (!n)
        snprintf(text, size, "no NIC at all");
}

static shunt_status_t nothing(const struct choice *c, const char *setting, const char *value)
{
    char what[800];

    c->out->decided_by = setting;
    list_existing(c, what, sizeof(what));
    if (setting)
        return shunt__fail(SHUNT_ERR_NOT_FOUND, "%s=%.100s leaves no usable NIC; there is: %s", setting,
                           value, what);
    return shunt__fail(SHUNT_ERR_NOT_FOUND, "no usable NIC (SHUNT_RAILS=NAME would force one); there is: %s",
                       what);
}

/* SHUNT_RAILS=a,b: exactly these, in this order; what can't be used now may come later. */
static shunt_status_t take_named(struct choice *c, const struct words *w)
{
    shunt_topo_rail_t *r = c->rail;
    unsigned n_nics = c->topo->n_of_type[SHUNT_TOPO_NIC];

    for (unsigned k = 0; k < w->n; k++) {
        const shunt_topo_object_t *found = NULL;
        const char *wanted = shunt__arena_text(c->arena, w->word[k].text, w->word[k].len);
        for (unsigned i = 0; i < n_nics && !found; i++) {
            const shunt_topo_nic_t *nic = c->topo->of_type[SHUNT_TOPO_NIC][i]->u.nic;
            if (matches(w, k, nic->name, nic->rdma_port, 1) || matches(w, k, nic->rdma, nic->rdma_port, 1))
                found = &c->topo->of_type[SHUNT_TOPO_NIC][i]->pub;
        }
        for (shunt_topo_rail_t *o = c->rail; found && o < r; o++)
            if (o->object == found)
                return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_RAILS names %s twice", wanted);
        r->name = found ? found->nic->name : wanted;
        r->object = found;
        r->nic = found ? found->nic : NULL;
        r->port = w->word[k].port ? w->word[k].port : found ? found->nic->rdma_port : 0;
        const char *lacks = found ? missing(c, found->nic) : "there is no such NIC";
        if (lacks)
            set(c, r, SHUNT_TOPO_RAIL_ABSENT, "named by SHUNT_RAILS, but %s now; may come later%s", lacks,
                "");
        else
            set(c, r, SHUNT_TOPO_RAIL_USED, "named by SHUNT_RAILS%s%s", "", "");
        r++;
    }
    for (unsigned i = 0; i < n_nics; i++) {
        const shunt_topo_object_t *o = &c->topo->of_type[SHUNT_TOPO_NIC][i]->pub;
        shunt_topo_rail_t *q = c->rail;
        while (q < r && q->object != o)
            q++;
        if (q < r)
            continue;
        r->name = o->nic->name;
        r->object = o;
        r->nic = o->nic;
        r->port = o->nic->rdma_port;
        set(c, r, SHUNT_TOPO_RAIL_UNUSED, "not named by SHUNT_RAILS%s%s", "", "");
        r++;
    }
    c->out->n = (unsigned)(r - c->rail);
    return SHUNT_OK;
}

/* Every NIC as a rail that is still to be decided (USED, reason NULL). */
static void list_all(struct choice *c)
{
    for (unsigned i = 0; i < c->topo->n_of_type[SHUNT_TOPO_NIC]; i++) {
        const shunt_topo_object_t *o = &c->topo->of_type[SHUNT_TOPO_NIC][i]->pub;
        c->rail[i] = (shunt_topo_rail_t){
            .name = o->nic->name, .object = o, .nic = o->nic, .port = o->nic->rdma_port};
    }
    c->out->n = c->topo->n_of_type[SHUNT_TOPO_NIC];
}

static int open(const shunt_topo_rail_t *r)
{
    return r->state == SHUNT_TOPO_RAIL_USED && !r->reason;
}

/* Applies one NCCL filter to the NICs it speaks of. `name_of` 1: RDMA devices, 0: interfaces. */
static void filter(struct choice *c, const char *setting, const struct words *w, int rdma)
{
    for (unsigned i = 0; i < c->out->n; i++) {
        shunt_topo_rail_t *r = &c->rail[i];
        const char *name = rdma ? r->nic->rdma : r->nic->name;
        if (!open(r) || (rdma && !name))
            continue;
        int in = listed(w, name, r->nic->rdma_port, w->exact) ||
                 (rdma && r->nic->name != name && w->exact && listed(w, r->nic->name, r->nic->rdma_port, 1));
        if (in && w->exclude)
            set(c, r, SHUNT_TOPO_RAIL_UNUSED, "excluded by %s%s", setting, "");
        else if (!in && !w->exclude)
            set(c, r, SHUNT_TOPO_RAIL_UNUSED, "not matched by %s%s", setting, "");
        else if (in) {
            const char *lacks = missing(c, r->nic);
            if (lacks)
                set(c, r, SHUNT_TOPO_RAIL_ABSENT, "matched by %s, but %s now; may come later", setting,
                    lacks);
            else
                set(c, r, SHUNT_TOPO_RAIL_USED, "matched by %s%s", setting, "");
        }
    }
}

static unsigned count_open(const struct choice *c, int rdma_only)
{
    unsigned n = 0;

    for (unsigned i = 0; i < c->out->n; i++)
        n += open(&c->rail[i]) && !missing(c, c->rail[i].nic) &&
             c->rail[i].nic->tier < SHUNT_TOPO_TIER_UNUSABLE && (!rdma_only || c->rail[i].nic->rdma);
    return n;
}

static unsigned count_used(const struct choice *c)
{
    unsigned n = 0;

    for (unsigned i = 0; i < c->out->n; i++)
        n += c->rail[i].state == SHUNT_TOPO_RAIL_USED;
    return n;
}

/* What no setting has decided yet: the best tier, the fast ones of it. */
static void take_best(struct choice *c)
{
    shunt_topo_nic_tier_t best = SHUNT_TOPO_TIER_UNUSABLE;
    const shunt_topo_rail_t *fastest = NULL;
    int rdma = !c->opt->no_rdma && count_open(c, 1);

    for (unsigned i = 0; i < c->out->n; i++)
        if (open(&c->rail[i]) && !missing(c, c->rail[i].nic) && (!rdma || c->rail[i].nic->rdma) &&
            c->rail[i].nic->tier < best)
            best = c->rail[i].nic->tier;
    for (unsigned i = 0; i < c->out->n; i++) {
        shunt_topo_rail_t *r = &c->rail[i];
        if (!open(r))
            continue;
        const char *lacks = missing(c, r->nic);
        if (r->nic->tier == SHUNT_TOPO_TIER_UNUSABLE)
            set(c, r, SHUNT_TOPO_RAIL_UNUSED, "%s%s", r->nic->reason, "");
        else if (lacks)
            set(c, r, SHUNT_TOPO_RAIL_UNUSED, "%s; %s", r->nic->reason, lacks);
        else if (rdma && !r->nic->rdma)
            set(c, r, SHUNT_TOPO_RAIL_UNUSED, "%s; RDMA NICs carry the data%s", r->nic->reason, "");
        else if (r->nic->tier > best)
            set(c, r, SHUNT_TOPO_RAIL_UNUSED, "%s; there are better NICs%s", r->nic->reason, "");
        else if (r->nic->rate_known && (!fastest || r->nic->rate > fastest->nic->rate))
            fastest = r;
    }
    for (unsigned i = 0; i < c->out->n; i++) {
        shunt_topo_rail_t *r = &c->rail[i];
        if (!open(r))
            continue;
        /* A virtual NIC's rate is somebody's setting, which may change while the job runs. */
        if (fastest && !r->nic->is_virtual && r->nic->rate_known &&
            r->nic->rate * SLOWEST_SHARE < fastest->nic->rate)
            set(c, r, SHUNT_TOPO_RAIL_UNUSED,
                "%s: under a tenth of the fastest (name it in SHUNT_RAILS to use it)%s",
                describe_rate(c, r->nic), "");
        else
            set(c, r, SHUNT_TOPO_RAIL_USED, r->nic->rate_known ? "%s, %s" : "%s", r->nic->reason,
                describe_rate(c, r->nic));
    }
}

static int by_state_then_name(const void *a, const void *b)
{
    const shunt_topo_rail_t *x = a, *y = b;
    int d = (int)x->state - (int)y->state;

    if (!d)
        d = shunt__compare_names(x->name, y->name);
    return d ? d : (int)x->object->index - (int)y->object->index;
}

/* Named rails keep their order; only the states are gathered. */
static void gather(struct choice *c)
{
    unsigned n = 0;
    shunt_topo_rail_t *sorted = shunt__arena_get(c->arena, (c->out->n + 1) * sizeof(*sorted));

    if (c->arena->failed)
        return;
    for (int state = SHUNT_TOPO_RAIL_USED; state <= SHUNT_TOPO_RAIL_UNUSED; state++)
        for (unsigned i = 0; i < c->out->n; i++)
            if ((int)c->rail[i].state == state)
                sorted[n++] = c->rail[i];
    memcpy(c->rail, sorted, n * sizeof(*sorted));
}

static shunt_status_t choose(struct choice *c)
{
    const shunt_topo_rails_options_t *opt = c->opt;
    struct words w;
    const char *setting = NULL, *value = NULL;
    shunt_status_t st;

    if (opt->rails && *opt->rails) {
        st = parse_words("SHUNT_RAILS", opt->rails, 1, &w);
        if (st != SHUNT_OK)
            return st;
        setting = "SHUNT_RAILS";
        value = opt->rails;
        if (!w.exclude) {
            c->rail = shunt__arena_get(c->arena,
                                       (w.n + c->topo->n_of_type[SHUNT_TOPO_NIC] + 1) * sizeof(*c->rail));
            if (c->arena->failed)
                return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the list of rails");
            st = take_named(c, &w);
            if (st != SHUNT_OK)
                return st;
            gather(c);
        }
    }
    if (!c->rail) {
        c->rail = shunt__arena_get(c->arena, (c->topo->n_of_type[SHUNT_TOPO_NIC] + 1) * sizeof(*c->rail));
        if (c->arena->failed)
            return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the list of rails");
        list_all(c);
        if (setting) { /* ^a,b */
            for (unsigned i = 0; i < c->out->n; i++)
                if (listed(&w, c->rail[i].nic->name, c->rail[i].nic->rdma_port, 1) ||
                    listed(&w, c->rail[i].nic->rdma, c->rail[i].nic->rdma_port, 1))
                    set(c, &c->rail[i], SHUNT_TOPO_RAIL_UNUSED, "excluded by SHUNT_RAILS%s%s", "", "");
        } else if (!opt->no_rdma && opt->ib_hca && *opt->ib_hca && count_open(c, 1)) {
            st = parse_words("NCCL_IB_HCA", opt->ib_hca, 1, &w);
            if (st != SHUNT_OK)
                return st;
            setting = "NCCL_IB_HCA";
            value = opt->ib_hca;
            filter(c, setting, &w, 1);
        } else if (opt->socket_ifname && *opt->socket_ifname && (opt->no_rdma || !count_open(c, 1))) {
            st = parse_words("NCCL_SOCKET_IFNAME", opt->socket_ifname, 0, &w);
            if (st != SHUNT_OK)
                return st;
            setting = "NCCL_SOCKET_IFNAME";
            value = opt->socket_ifname;
            filter(c, setting, &w, 0);
        }
        if (setting && !count_used(c))
            return nothing(c, setting, value);
        /* A list of wanted ones has decided alone; after exclusions and without a setting the rest is judged.
         */
        int wanted_only = setting && strcmp(setting, "SHUNT_RAILS") && !w.exclude;
        for (unsigned i = 0; wanted_only && i < c->out->n; i++)
            if (open(&c->rail[i]))
                set(c, &c->rail[i], SHUNT_TOPO_RAIL_UNUSED, "%s; %s decides", c->rail[i].nic->reason,
                    setting);
        take_best(c);
        qsort(c->rail, c->out->n, sizeof(*c->rail), by_state_then_name);
    }
    c->out->decided_by = setting ? setting : "topology";
    for (unsigned i = 0; i < c->out->n; i++) {
        c->out->n_used += c->rail[i].state == SHUNT_TOPO_RAIL_USED;
        c->out->n_absent += c->rail[i].state == SHUNT_TOPO_RAIL_ABSENT;
    }
    c->out->rail = c->rail;
    if (c->arena->failed)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the list of rails");
    return c->out->n_used ? SHUNT_OK : nothing(c, setting, value);
}

shunt_status_t shunt_topo_rails(const shunt_topo_t *topo, const shunt_topo_rails_options_t *options,
                                shunt_topo_rails_t **rails)
{
    shunt_topo_rails_options_t opt;
    struct owned_rails *own;
    shunt_status_t st;

    if (!topo || !rails)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_rails: topo or rails is NULL");
    shunt_topo_rails_options_init(&opt);
    if (options) {
        if (options->size < sizeof(size_t) || options->size > 4096)
            return shunt__fail(SHUNT_ERR_INVALID,
                               "shunt_topo_rails: options->size is not sizeof(shunt_topo_rails_options_t)");
        memset(&opt, 0, sizeof(opt));
        memcpy(&opt, options, options->size < sizeof(opt) ? options->size : sizeof(opt));
    }
    own = calloc(1, sizeof(*own));
    if (!own)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the list of rails");
    struct choice c = {.topo = topo, .out = &own->pub, .arena = &own->arena, .opt = &opt};
    st = choose(&c);
    if (st != SHUNT_OK) {
        shunt_topo_rails_destroy(&own->pub);
        return st;
    }
    for (unsigned i = 0; i < own->pub.n; i++)
        shunt__log(SHUNT__LOG_INFO, "NIC %s %s: %s", own->pub.rail[i].name,
                   i < own->pub.n_used                       ? "is a rail"
                   : i < own->pub.n_used + own->pub.n_absent ? "is absent"
                                                             : "is not used",
                   own->pub.rail[i].reason);
    *rails = &own->pub;
    return SHUNT_OK;
}

void shunt_topo_rails_destroy(shunt_topo_rails_t *rails)
{
    struct owned_rails *own = (struct owned_rails *)rails;

    if (!own)
        return;
    shunt__arena_free(&own->arena);
    free(own);
}
