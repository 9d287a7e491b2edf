/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine as a picture: boxes in boxes (package, NUMA node, PCI switch), a card for each GPU and NIC,
 * NVLink as a band where all GPUs are joined alike and as lines where they aren't, and below it which NIC is
 * how near to which GPU. Boxes flow into rows of about PAGE pixels. Light and dark by the viewer's
 * preference; no script, no font of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/export.h"
#include "topo/path.h"

#define PAGE 1520.0
#define PAD 12.0
#define GAP 10.0
#define CARD_W 148.0
#define CARD_H 58.0
#define TITLE 24.0
#define LANE 26.0 /* below GPUs that are joined by lines */
#define MOST_CARDS 2000 /* beyond, a picture shows nothing any more */

struct box {
    double x, y, w, h;
    int shown;
};

struct drawing {
    const shunt_topo_t *topo;
    struct shunt__text *t;
    struct box *box; /* by object order */
    unsigned *hidden; /* unusable NICs of a container that share one card, by the container's order */
    int band;        /* all GPUs are joined alike: no lines between them */
    int lanes;       /* there will be lines */
    int cards;       /* which pass: boxes, then (after the lines) cards */
};

static int is_card(const struct shunt__object *o)
{
    return o->pub.type == SHUNT_TOPO_GPU || o->pub.type == SHUNT_TOPO_DEVICE ||
           (o->pub.type == SHUNT_TOPO_NIC && o->u.nic->tier != SHUNT_TOPO_TIER_LOOPBACK);
}

/* A switch that holds only NVSwitches' management ports carries no data. */
static int holds_cards(const struct shunt__object *o)
{
    for (const struct shunt__object *c = o->child; c; c = c->next)
        if (is_card(c) || holds_cards(c))
            return 1;
    return 0;
}

static int is_container(const struct shunt__object *o)
{
    if (o->pub.type == SHUNT_TOPO_HOST || o->pub.type == SHUNT_TOPO_NUMA)
        return 1;
    if (o->pub.type == SHUNT_TOPO_PACKAGE)
        return o->child != NULL;
    return o->pub.type == SHUNT_TOPO_SWITCH ? !o->same_chip && holds_cards(o)
                                            : o->is_host_bridge && strncmp(o->pub.name, "beside ", 7) == 0;
}

/* Visits what shows directly in a container: bridges and inner levels of switches are transparent. */
static void each(struct drawing *d, const struct shunt__object *in,
                 void (*fn)(struct drawing *, const struct shunt__object *, void *), void *arg)
{
    for (const struct shunt__object *c = in->child; c; c = c->next) {
        if (is_container(c) || is_card(c) || c->pub.type == SHUNT_TOPO_NVSWITCH)
            fn(d, c, arg);
        else
            each(d, c, fn, arg);
    }
}

enum kind { GPUS, BOXES, NICS, NOT_DRAWN }; /* in their order from top to bottom */

struct flow {
    double x, y, width, row, right; /* next place, room, height of the row, rightmost end */
    double left;
    int kind;       /* GPUS, BOXES, NICS */
    unsigned cards, columns, dead;
    const struct shunt__object *container;
};

static int kind_of(const struct shunt__object *o)
{
    return is_container(o)                      ? BOXES
           : o->pub.type == SHUNT_TOPO_NIC      ? NICS
           : o->pub.type == SHUNT_TOPO_NVSWITCH ? NOT_DRAWN
                                                : GPUS;
}

static int dead_nic(const struct shunt__object *o)
{
    return o->pub.type == SHUNT_TOPO_NIC && o->u.nic->tier == SHUNT_TOPO_TIER_UNUSABLE;
}

static void count(struct drawing *d, const struct shunt__object *o, void *arg)
{
    struct flow *f = arg;

    f->cards += kind_of(o) == f->kind;
    f->dead += kind_of(o) == f->kind && dead_nic(o);
}

static void wrap(struct flow *f)
{
    if (f->x == f->left && f->row == 0)
        return;
    f->x = f->left;
    f->y += f->row + GAP;
    f->row = 0;
}

static void lay_out(struct drawing *d, const struct shunt__object *o, double x, double y, double width);

static void place(struct drawing *d, const struct shunt__object *o, void *arg)
{
    struct flow *f = arg;
    struct box *b = &d->box[o->order];

    if (kind_of(o) != f->kind || f->kind == NOT_DRAWN)
        return;
    if (f->kind == BOXES) {
        lay_out(d, o, 0, 0, f->width - 2 * PAD);
    } else {
        if (f->dead > 3 && dead_nic(o)) {
            d->hidden[f->container->order]++;
            if (d->hidden[f->container->order] > 1)
                return;
        }
        b->w = CARD_W;
        b->h = CARD_H;
    }
    if (f->x > f->left && (f->x + b->w > f->left + f->width ||
                           (f->kind != BOXES && f->x + b->w > f->left + f->columns * (CARD_W + GAP))))
        wrap(f);
    if (f->kind == BOXES)
        lay_out(d, o, f->x, f->y, f->width - 2 * PAD);
    b->x = f->x;
    b->y = f->y;
    b->shown = 1;
    f->x += b->w + GAP;
    f->row = b->h > f->row ? b->h : f->row;
    f->right = f->x - GAP > f->right ? f->x - GAP : f->right;
}

static double title_height(const struct shunt__object *o)
{
    return o->pub.type == SHUNT_TOPO_HOST ? 0 : o->pub.type == SHUNT_TOPO_NUMA ? TITLE + 14 : TITLE;
}

/* GPUs first, then the boxes, and NICs at the bottom in as many columns as there are GPUs. Called again once
 * the final place is known. */
static void lay_out(struct drawing *d, const struct shunt__object *o, double x, double y, double width)
{
    struct box *b = &d->box[o->order];
    unsigned columns = 1;
    double least = o->pub.type == SHUNT_TOPO_NUMA || o->pub.type == SHUNT_TOPO_PACKAGE ? CARD_W + 2 * PAD + 26
                                                                                       : CARD_W + 2 * PAD;
    struct flow f = {
        .x = x + PAD, .y = y + PAD + title_height(o), .width = width, .left = x + PAD, .container = o};

    f.right = f.left;
    for (f.kind = GPUS; f.kind <= NICS; f.kind++) {
        f.cards = f.dead = 0;
        if (f.kind == NICS)
            d->hidden[o->order] = 0;
        each(d, o, count, &f);
        unsigned cards = f.dead > 3 ? f.cards - f.dead + 1 : f.cards;
        if (f.kind == GPUS)
            columns = cards > 8 ? 8 : cards;
        else if (f.kind == NICS)
            columns = columns ? columns : cards > 4 ? 4 : cards;
        f.columns = columns ? columns : 1;
        each(d, o, place, &f);
        if (f.cards)
            wrap(&f);
        if (f.kind == GPUS && f.cards && d->lanes)
            f.y += LANE;
    }
    b->x = x;
    b->y = y;
    b->w = f.right - x + PAD;
    if (b->w < least)
        b->w = least;
    b->h = f.y - GAP - y + PAD;
    if (b->h < title_height(o) + 2 * PAD - 4)
        b->h = title_height(o) + 2 * PAD - 4;
    b->shown = 1;
}

static void text(struct drawing *d, double x, double y, const char *class, const char *s, unsigned most)
{
    size_t n = strlen(s);

    shunt__text_add(d->t, "<text x=\"%.0f\" y=\"%.0f\" class=\"%s\">", x, y, class);
    if (n > most) {
        char cut[200];
        size_t keep = most > 1 && most < sizeof(cut) ? most - 1 : sizeof(cut) - 1;
        while (keep && ((unsigned char)s[keep] & 0xc0) == 0x80)
            keep--;
        snprintf(cut, sizeof(cut), "%.*s", (int)keep, s);
        shunt__text_xml(d->t, cut);
        shunt__text_add(d->t, "…");
    } else
        shunt__text_xml(d->t, s);
    shunt__text_add(d->t, "</text>\n");
}

static void rect(struct drawing *d, const struct box *b, const char *class, double radius)
{
    shunt__text_add(d->t,
                    "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"%.0f\" class=\"%s\"/>\n",
                    b->x, b->y, b->w, b->h, radius, class);
}

static const char *pci_name(char out[32], const struct shunt__object *o)
{
    *out = 0;
    if (o->pub.pci)
        snprintf(out, 32, "%04x:%02x:%02x.%x", o->pci.domain, o->pci.bus, o->pci.device, o->pci.function);
    return out;
}

static void draw_gpu(struct drawing *d, const struct shunt__object *o, const struct box *b)
{
    char pci[32], link[32], line[64];
    unsigned links = 0;

    for (unsigned i = 0; i < o->n_wires; i++)
        links += d->topo->wires[o->first_wires + i].count;
    rect(d, b, o->pub.type == SHUNT_TOPO_DEVICE ? "dead" : o->u.gpu->is_display ? "dead" : "gpu", 6);
    if (links) {
        struct box strip = {b->x + 1, b->y + b->h - 7, b->w - 2, 6, 1};
        rect(d, &strip, "wire", 3);
    }
    text(d, b->x + 8, b->y + 18, "name", o->pub.name, 18);
    if (o->pub.type == SHUNT_TOPO_GPU) {
        snprintf(line, sizeof(line), "%s",
                 o->u.gpu->is_display ? "console"
                 : o->u.gpu->model    ? o->u.gpu->model
                 : o->u.gpu->gcn      ? o->u.gpu->gcn
                                      : pci_name(pci, o));
        text(d, b->x + 8, b->y + 33, "small", line, 20);
    }
    shunt__print_link(link, o);
    if (o->pub.type == SHUNT_TOPO_GPU && links)
        snprintf(line, sizeof(line), "%s%s%s x%u", link, *link ? ", " : "",
                 d->topo->wires[o->first_wires].wire == SHUNT__WIRE_XGMI ? "xGMI" : "NVLink", links);
    else
        snprintf(line, sizeof(line), "%s", link);
    text(d, b->x + 8, b->y + 47, "small", line, 24);
}

static void draw_nic(struct drawing *d, const struct shunt__object *o, const struct box *b, unsigned hidden)
{
    const shunt_topo_nic_t *n = o->u.nic;
    char rate[32], link[32], line[80];

    if (hidden > 1) {
        rect(d, b, "dead", 6);
        snprintf(line, sizeof(line), "%u NICs", hidden);
        text(d, b->x + 8, b->y + 18, "name", line, 18);
        text(d, b->x + 8, b->y + 33, "small", "that carry nothing now", 24);
        return;
    }
    rect(d, b, n->tier >= SHUNT_TOPO_TIER_ISOLATED ? "dead" : n->is_virtual ? "nic soft" : "nic", 6);
    text(d, b->x + 8, b->y + 18, "name", o->pub.name, 18);
    snprintf(line, sizeof(line), "%s%s%s",
             n->rate_known ? shunt__print_rate(rate, (double)n->rate) : "speed unknown",
             n->state == SHUNT_TOPO_NIC_UP ? "" : ", ",
             n->state == SHUNT_TOPO_NIC_UP ? "" : shunt_topo_nic_state_name(n->state));
    text(d, b->x + 8, b->y + 33, "small", line, 24);
    shunt__print_link(link, o);
    snprintf(line, sizeof(line), "%s%s%s",
             n->layer == SHUNT_TOPO_LINK_INFINIBAND ? "InfiniBand"
             : n->is_virtual && *n->kind            ? n->kind
                                                    : shunt_topo_link_layer_name(n->layer),
             *link ? ", " : "", link);
    text(d, b->x + 8, b->y + 47, "small", line, 24);
}

static void draw_container(struct drawing *d, const struct shunt__object *o, const struct box *b)
{
    struct shunt__text cpus = {0};
    char line[200], link[32];
    unsigned room = (unsigned)((b->w - 2 * PAD) / 6.3);

    switch (o->pub.type) {
    case SHUNT_TOPO_PACKAGE:
        rect(d, b, "package", 12);
        text(d, b->x + PAD, b->y + 19, "name", o->pub.name, room);
        break;
    case SHUNT_TOPO_NUMA: {
        unsigned cores = shunt__count_cores(d->topo, &o->cpus), threads = shunt__cpus_count(&o->cpus);
        rect(d, b, "numa", 10);
        snprintf(line, sizeof(line), "%s", o->pub.name);
        if (o->memory >= 1ull << 30)
            snprintf(line + strlen(line), sizeof(line) - strlen(line), ", %.0f GiB",
                     (double)o->memory / (1ull << 30));
        text(d, b->x + PAD, b->y + 19, "name", line, room);
        shunt__print_cpu_list(&cpus, &o->cpus);
        if (threads) {
            snprintf(line, sizeof(line), "CPUs %.150s", cpus.p ? cpus.p : "");
            if (strlen(line) > room)
                snprintf(line, sizeof(line), "%u CPUs", threads);
            if (cores && cores != threads && strlen(line) + 12 < room)
                snprintf(line + strlen(line), sizeof(line) - strlen(line), ", %u cores", cores);
            text(d, b->x + PAD, b->y + 34, "small", line, room);
        } else
            text(d, b->x + PAD, b->y + 34, "small", o->pub.note ? o->pub.note : "CPUs unknown", room);
        free(cpus.p);
        break;
    }
    case SHUNT_TOPO_HOST:
        break;
    default:
        rect(d, b, "switch", 8);
        snprintf(line, sizeof(line), "%s%s", o->pub.type == SHUNT_TOPO_SWITCH && room > 24 ? "switch " : "",
                 o->pub.name);
        shunt__print_link(link, o);
        if (*link && strlen(line) + strlen(link) + 2 <= room)
            snprintf(line + strlen(line), sizeof(line) - strlen(line), ", %s", link);
        text(d, b->x + PAD, b->y + 17, "small", line, room);
        break;
    }
}

static void draw(struct drawing *d, const struct shunt__object *o, void *arg)
{
    const struct box *b = &d->box[o->order];

    if (!b->shown)
        return;
    if (is_container(o)) {
        if (!d->cards)
            draw_container(d, o, b);
        each(d, o, draw, (void *)(uintptr_t)o);
    } else if (!d->cards)
        return;
    else if (o->pub.type == SHUNT_TOPO_NIC)
        draw_nic(d, o, b, dead_nic(o) ? d->hidden[((const struct shunt__object *)arg)->order] : 0);
    else
        draw_gpu(d, o, b);
}

/* The bandwidth that every two GPUs have over NVLink, if it is the same for all; else 0. */
static double alike(const shunt_topo_t *topo, unsigned *links)
{
    unsigned n = topo->n_of_type[SHUNT_TOPO_GPU];
    shunt_topo_path_t p;
    double all = 0;

    if (n < 2 || n > 256 || !topo->n_wires)
        return 0;
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = i + 1; k < n; k++) {
            shunt_topo_path(topo, &topo->of_type[SHUNT_TOPO_GPU][i]->pub,
                            &topo->of_type[SHUNT_TOPO_GPU][k]->pub, &p);
            if (p.path_class != SHUNT_TOPO_NVL ||
                (all > 0 && (p.bandwidth < all * 0.99 || p.bandwidth > all * 1.01)))
                return 0;
            all = p.bandwidth;
            *links = p.links;
        }
    return all;
}

static void draw_wires(struct drawing *d)
{
    const shunt_topo_t *topo = d->topo;

    for (unsigned i = 0; i < topo->n_wires && !d->band; i++) {
        const struct shunt__wires *w = &topo->wires[i];
        const struct box *a = &d->box[w->from->order], *b = &d->box[w->to->order];
        if (!a->shown || !b->shown || !is_card(w->to) || (w->to->order < w->from->order && w->to->n_wires))
            continue;
        /* In one row an arc through the lane below it; from row to row straight down. */
        const struct box *high = a->y <= b->y ? a : b, *low = high == a ? b : a;
        double x1 = high->x + high->w / 2, y1 = high->y + high->h - 3, x2 = low->x + low->w / 2,
               y2 = low->y + low->h - 3, sag = 0;
        if (low->y > high->y + high->h) {
            y2 = low->y;
        } else {
            sag = 12 + (x2 > x1 ? x2 - x1 : x1 - x2) / 16;
            sag = sag > 44 ? 44 : sag;
        }
        shunt__text_add(
            d->t,
            "<path d=\"M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f\" class=\"line\" stroke-width=\"%.1f\"/>\n",
            x1, y1, x1, y1 + sag, x2, y2 + sag, x2, y2, 1.0 + (w->count > 8 ? 4 : w->count * 0.5));
    }
}

static double draw_band(struct drawing *d, double y, double width)
{
    unsigned links = 0, n = d->topo->n_of_type[SHUNT_TOPO_GPU],
             switches = d->topo->n_of_type[SHUNT_TOPO_NVSWITCH];
    double bandwidth = alike(d->topo, &links);
    char text_line[160], b[32];
    struct box band = {PAD, y, width - 2 * PAD, 30, 1};

    if (!(bandwidth > 0))
        return y;
    d->band = 1;
    rect(d, &band, "band", 8);
    if (switches)
        snprintf(text_line, sizeof(text_line), "NVLink: %u GPUs through %u NVSwitch%s, x%u, %s each way", n,
                 switches, switches > 1 ? "es" : "", links, shunt__print_bandwidth(b, bandwidth));
    else
        snprintf(text_line, sizeof(text_line), "%s: each of %u GPUs with each other, x%u, %s each way",
                 d->topo->wires[0].wire == SHUNT__WIRE_XGMI ? "xGMI" : "NVLink", n, links,
                 shunt__print_bandwidth(b, bandwidth));
    text(d, band.x + 12, band.y + 20, "bandtext", text_line, (unsigned)(band.w / 6.5));
    return y + 30 + GAP;
}

/* How near each NIC is to each GPU, as a table of coloured cells. */
static double draw_table(struct drawing *d, double y, double width)
{
    static const char *const classes[] = {"loc", "nvl", "pix", "pxb", "phb", "node", "sys", "net"};
    static const char *const says[] = {"",
                                       "",
                                       "PIX at most one switch",
                                       "PXB several switches",
                                       "PHB through the CPU",
                                       "NODE two host bridges",
                                       "SYS between NUMA nodes",
                                       ""};
    const struct shunt__object *nic[32];
    unsigned gpus = d->topo->n_of_type[SHUNT_TOPO_GPU], nics = 0;
    const double cell_w = 46, cell_h = 21, left = 110;
    shunt_topo_path_t p;
    unsigned used = 0;

    for (unsigned i = 0; i < d->topo->n_of_type[SHUNT_TOPO_NIC] && nics < 32; i++)
        if (d->topo->of_type[SHUNT_TOPO_NIC][i]->u.nic->tier < SHUNT_TOPO_TIER_ISOLATED)
            nic[nics++] = d->topo->of_type[SHUNT_TOPO_NIC][i];
    if (!gpus || !nics || gpus > 32 || left + gpus * cell_w > width + 400)
        return y;
    y += 14;
    for (unsigned g = 0; g < gpus; g++) {
        const char *number = strrchr(d->topo->of_type[SHUNT_TOPO_GPU][g]->pub.name, ' ');
        char name[40];
        snprintf(name, sizeof(name), "GPU%.20s", number ? number + 1 : "");
        text(d, PAD + left + g * cell_w + cell_w / 2, y, "small middle", name, 8);
    }
    y += 6;
    for (unsigned i = 0; i < nics; i++, y += cell_h) {
        text(d, PAD, y + 15, "small", nic[i]->pub.name, 17);
        for (unsigned g = 0; g < gpus; g++) {
            struct box b = {PAD + left + g * cell_w, y, cell_w - 2, cell_h - 2, 1};
            char class[20];
            shunt_topo_path(d->topo, &d->topo->of_type[SHUNT_TOPO_GPU][g]->pub, &nic[i]->pub, &p);
            snprintf(class, sizeof(class), "cell %s", classes[p.path_class]);
            used |= 1u << p.path_class;
            rect(d, &b, class, 3);
            text(d, b.x + b.w / 2, b.y + 14, "celltext", shunt_topo_class_name(p.path_class), 5);
        }
    }
    y += 8;
    double x = PAD;
    for (unsigned c = 0; c < 8; c++) {
        if (!(used >> c & 1) || !*says[c])
            continue;
        struct box b = {x, y, 12, 12, 1};
        char class[20];
        snprintf(class, sizeof(class), "cell %s", classes[c]);
        rect(d, &b, class, 3);
        text(d, x + 18, y + 10, "small", says[c], 40);
        x += 34 + (double)strlen(says[c]) * 6.3;
        if (x > width - 160) {
            x = PAD;
            y += 18;
        }
    }
    return y + 22;
}

static const char style[] =
    "<style>\n"
    "text{font:11px 'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;fill:#3b4351}\n"
    ".title{font-size:18px;font-weight:bold;fill:#14171c}\n"
    ".name{font-size:12.5px;font-weight:bold;fill:#14171c}\n"
    ".middle,.celltext{text-anchor:middle}\n"
    ".celltext{font-size:10px;font-weight:bold;fill:#14171c}\n"
    ".bandtext{font-weight:bold;fill:#3d1d63}\n"
    ".page{fill:#fff}\n"
    ".package{fill:#f4f6f9;stroke:#aab4c3}\n"
    ".numa{fill:#e6edf7;stroke:#8fa5c6}\n"
    ".switch{fill:#fff;stroke:#7d8794}\n"
    ".gpu{fill:#cdeac4;stroke:#4d8b3d}\n"
    ".nic{fill:#fde2b3;stroke:#b97f1c}\n"
    ".soft{stroke-dasharray:4 3}\n"
    ".dead{fill:#eceef0;stroke:#9aa1ab;stroke-dasharray:4 3}\n"
    ".wire{fill:#8a52c4}\n"
    ".band{fill:#e6d8f5;stroke:#8a52c4}\n"
    ".line{fill:none;stroke:#8a52c4;stroke-opacity:.75}\n"
    ".pix{fill:#9bd68c}\n"
    ".pxb{fill:#cbe59a}\n"
    ".phb{fill:#f7e08f}\n"
    ".node{fill:#f7c58a}\n"
    ".sys{fill:#f2a89a}\n"
    ".nvl{fill:#cfb2ec}\n"
    "@media (prefers-color-scheme: dark) {\n"
    "text{fill:#b9c2cf}\n"
    ".title,.name{fill:#f2f4f7}\n"
    ".celltext{fill:#0d0f12}\n"
    ".bandtext{fill:#ecdcff}\n"
    ".page{fill:#14171c}\n"
    ".package{fill:#1c2027;stroke:#566174}\n"
    ".numa{fill:#202a3a;stroke:#50688f}\n"
    ".switch{fill:#14171c;stroke:#79849a}\n"
    ".gpu{fill:#24452a;stroke:#66b356}\n"
    ".nic{fill:#4b3714;stroke:#d79d3c}\n"
    ".dead{fill:#23262b;stroke:#6a717c}\n"
    ".wire{fill:#a878e0}\n"
    ".band{fill:#36234d;stroke:#a878e0}\n"
    ".line{stroke:#b48ae8}\n"
    ".pix{fill:#6cb35d}\n"
    ".pxb{fill:#9fbf62}\n"
    ".phb{fill:#d1b752}\n"
    ".node{fill:#d0965a}\n"
    ".sys{fill:#cc7565}\n"
    "}\n"
    "</style>\n";

static void title(struct drawing *d, char *out, size_t size)
{
    const shunt_topo_t *t = d->topo;
    size_t n = (size_t)snprintf(out, size, "%s", *t->host_name ? t->host_name : "Host");
    static const struct {
        shunt_topo_type_t type;
        const char *one, *many;
    } counts[] = {{SHUNT_TOPO_NUMA, "NUMA node", "NUMA nodes"},
                  {SHUNT_TOPO_GPU, "GPU", "GPUs"},
                  {SHUNT_TOPO_NIC, "NIC", "NICs"}};

    for (int i = 0; i < 3 && n < size; i++)
        if (t->n_of_type[counts[i].type])
            n += (size_t)snprintf(out + n, size - n, "%s%u %s", i ? ", " : ": ", t->n_of_type[counts[i].type],
                                  t->n_of_type[counts[i].type] == 1 ? counts[i].one : counts[i].many);
}

shunt_status_t shunt__export_svg(const shunt_topo_t *topo, struct shunt__text *t)
{
    struct shunt__text body = {0};
    struct drawing d = {.topo = topo, .t = &body};
    char head[300];
    double width, height;
    unsigned links = 0;

    if (topo->n_of_type[SHUNT_TOPO_GPU] + topo->n_of_type[SHUNT_TOPO_NIC] +
            topo->n_of_type[SHUNT_TOPO_DEVICE] >
        2 * MOST_CARDS + 1000)
        return shunt__fail(SHUNT_ERR_LIMIT, "a picture of more than %d devices shows nothing",
                           2 * MOST_CARDS + 1000);
    d.box = calloc(topo->n_all, sizeof(*d.box));
    d.hidden = calloc(topo->n_all, sizeof(*d.hidden));
    if (!d.box || !d.hidden) {
        free(d.box);
        free(d.hidden);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a picture");
    }
    d.lanes = topo->n_wires && !(alike(topo, &links) > 0);
    lay_out(&d, topo->host, 0, 44, PAGE);
    width = d.box[topo->host->order].w;
    title(&d, head, sizeof(head));
    if (width < 40 + (double)strlen(head) * 11)
        width = 40 + (double)strlen(head) * 11;
    if (width < 560)
        width = 560;
    text(&d, PAD, 30, "title", head, 160);
    height = 44 + d.box[topo->host->order].h;
    height = draw_band(&d, height, width);
    each(&d, topo->host, draw, (void *)(uintptr_t)topo->host);
    draw_wires(&d);
    d.cards = 1;
    each(&d, topo->host, draw, (void *)(uintptr_t)topo->host);
    height = draw_table(&d, height, width) + 8;
    shunt__text_add(t,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
                    "height=\"%.0f\">\n%s",
                    width, height, width, height, style);
    shunt__text_add(t, "<rect width=\"100%%\" height=\"100%%\" class=\"page\"/>\n");
    if (body.p)
        shunt__text_bytes(t, body.p, body.n);
    t->failed |= body.failed;
    shunt__text_add(t, "</svg>\n");
    free(body.p);
    free(d.box);
    free(d.hidden);
    return SHUNT_OK;
}
