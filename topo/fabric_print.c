/* SPDX-License-Identifier: BSD-3-Clause */
/* A fabric as text, JSON, picture and for Graphviz. Many hosts of one kind are told once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/fabric.h"
#include "topo/model.h"

#define MOST_DRAWN 16 /* hosts in a picture; the rest is counted */

static double rails_rate(const struct shunt__kind *k)
{
    double sum = 0;

    for (unsigned r = 0; r < k->n_rails; r++)
        sum += (double)k->nic[r]->nic->rate;
    return sum;
}

static void print_text(const shunt_fabric_t *f, struct shunt__text *t)
{
    char rate[32];
    unsigned *ports = calloc(f->n_net + 1, sizeof(*ports));

    if (!ports) {
        t->failed = 1;
        return;
    }
    shunt__text_add(t, "Fabric: %u host%s, %u network switch%s%s\n", f->n_hosts, f->n_hosts == 1 ? "" : "s",
                    f->n_net, f->n_net == 1 ? "" : "es",
                    f->assumed && f->n_net ? " (assumed: nobody has told the cables)" : "");
    for (unsigned i = 0, same; i < f->n_hosts; i += same) {
        const struct shunt__kind *k = f->host[i].kind;
        same = 1;
        while (i + same < f->n_hosts && f->host[i + same].kind == k)
            same++;
        shunt__text_add(t, "  %s", f->host[i].name);
        if (same > 1)
            shunt__text_add(t, " to %s (%u alike)", f->host[i + same - 1].name, same);
        shunt__text_add(t, ": %u GPU%s, %u place%s for ranks, %u rail%s",
                        shunt_topo_count(k->topo, SHUNT_TOPO_GPU),
                        shunt_topo_count(k->topo, SHUNT_TOPO_GPU) == 1 ? "" : "s", k->n_slots,
                        k->n_slots == 1 ? "" : "s", k->n_rails, k->n_rails == 1 ? "" : "s");
        if (k->n_rails)
            shunt__text_add(t, ", together %s", shunt__print_rate(rate, rails_rate(k)));
        else
            shunt__text_add(t, ": no usable NIC, it reaches no other host");
        shunt__text_add(t, "\n");
    }
    for (unsigned h = 0; h < f->n_hosts; h++)
        for (unsigned r = 0; r < f->host[h].kind->n_rails; r++)
            if (f->host[h].port[r] >= 0)
                ports[f->host[h].port[r]]++;
    for (unsigned i = 0; i < f->n_net; i++) {
        shunt__text_add(t, "  switch %s: %u NIC%s", f->net[i].name, ports[i], ports[i] == 1 ? "" : "s");
        if (f->net[i].above >= 0)
            shunt__text_add(t, ", below %s", f->net[f->net[i].above].name);
        if (f->net[i].rate > 0)
            shunt__text_add(t, " at %s", shunt__print_rate(rate, f->net[i].rate));
        shunt__text_add(t, "\n");
    }
    free(ports);
}

static void print_json(const shunt_fabric_t *f, struct shunt__text *t)
{
    shunt__text_add(t, "{\n  \"assumed\": %s,\n  \"hosts\": [", f->assumed ? "true" : "false");
    for (unsigned h = 0; h < f->n_hosts; h++) {
        const struct shunt__kind *k = f->host[h].kind;
        shunt__text_add(t, "%s\n    {\"name\": ", h ? "," : "");
        shunt__text_json(t, f->host[h].name);
        shunt__text_add(t, ", \"places\": [");
        for (unsigned s = 0; s < k->n_slots; s++) {
            shunt__text_add(t, "%s", s ? ", " : "");
            shunt__text_json(t, k->slot[s].object->name);
        }
        shunt__text_add(t, "], \"rails\": [");
        for (unsigned r = 0; r < k->n_rails; r++) {
            shunt__text_add(t, "%s{\"nic\": ", r ? ", " : "");
            shunt__text_json(t, k->nic[r]->name);
            shunt__text_add(t, ", \"rate\": %llu, \"switch\": ", (unsigned long long)k->nic[r]->nic->rate);
            if (f->host[h].port[r] >= 0)
                shunt__text_json(t, f->net[f->host[h].port[r]].name);
            else
                shunt__text_add(t, "null");
            shunt__text_add(t, "}");
        }
        shunt__text_add(t, "]}");
    }
    shunt__text_add(t, "\n  ],\n  \"switches\": [");
    for (unsigned i = 0; i < f->n_net; i++) {
        shunt__text_add(t, "%s\n    {\"name\": ", i ? "," : "");
        shunt__text_json(t, f->net[i].name);
        shunt__text_add(t, ", \"above\": ");
        if (f->net[i].above >= 0)
            shunt__text_json(t, f->net[f->net[i].above].name);
        else
            shunt__text_add(t, "null");
        shunt__text_add(t, ", \"uplink_rate\": %.0f}", f->net[i].rate);
    }
    shunt__text_add(t, "\n  ]\n}\n");
}

static void quoted(struct shunt__text *t, const char *s)
{
    for (; *s; s++)
        shunt__text_bytes(t, *s == '"' || *s == '\\' ? "'" : s, 1);
}

static void print_dot(const shunt_fabric_t *f, struct shunt__text *t)
{
    char rate[32];

    shunt__text_add(t, "graph fabric {\n  rankdir=BT;\n  node [fontname=\"sans-serif\"];\n  edge "
                       "[fontname=\"sans-serif\", fontsize=9];\n");
    for (unsigned i = 0; i < f->n_net; i++) {
        shunt__text_add(t, "  s%u [shape=box, style=filled, fillcolor=\"#e6d8f5\", label=\"", i);
        quoted(t, f->net[i].name);
        shunt__text_add(t, "\"];\n");
        if (f->net[i].above >= 0)
            shunt__text_add(t, "  s%u -- s%d;\n", i, f->net[i].above);
    }
    for (unsigned h = 0; h < f->n_hosts; h++) {
        shunt__text_add(t, "  h%u [shape=box3d, label=\"", h);
        quoted(t, f->host[h].name);
        shunt__text_add(t, "\\n%u places\"];\n", f->host[h].kind->n_slots);
        for (unsigned r = 0; r < f->host[h].kind->n_rails; r++)
            if (f->host[h].port[r] >= 0) {
                shunt__text_add(t, "  h%u -- s%d [label=\"", h, f->host[h].port[r]);
                quoted(t, f->host[h].kind->nic[r]->name);
                shunt__text_add(t, " %s\"];\n",
                                shunt__print_rate(rate, (double)f->host[h].kind->nic[r]->nic->rate));
            }
    }
    shunt__text_add(t, "}\n");
}

static void words(struct shunt__text *t, double x, double y, const char *class, const char *s, size_t most)
{
    size_t n = strlen(s);
    char cut[200];

    if (n > most && most > 1 && most < sizeof(cut)) {
        snprintf(cut, sizeof(cut), "%.*s", (int)most - 1, s);
        s = cut;
    }
    shunt__text_add(t, "<text x=\"%.0f\" y=\"%.0f\" class=\"%s\">", x, y, class);
    shunt__text_xml(t, s);
    shunt__text_add(t, "%s</text>\n", n > most ? "…" : "");
}

static const char svg_style[] =
    "<style>\n"
    "text{font:11px 'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;fill:#3b4351}\n"
    ".title{font-size:18px;font-weight:bold;fill:#14171c}\n"
    ".name{font-size:12.5px;font-weight:bold;fill:#14171c}\n"
    ".middle{text-anchor:middle}\n"
    ".page{fill:#fff}\n"
    ".host{fill:#e6edf7;stroke:#8fa5c6}\n"
    ".slot{fill:#cdeac4;stroke:#4d8b3d}\n"
    ".nic{fill:#fde2b3;stroke:#b97f1c}\n"
    ".switch{fill:#e6d8f5;stroke:#8a52c4}\n"
    ".line{fill:none;stroke-width:1.2;stroke-opacity:.65}\n"
    ".c0{stroke:#1f6fb2}\n"
    ".c1{stroke:#c0561f}\n"
    ".c2{stroke:#2f8f4e}\n"
    ".c3{stroke:#8a52c4}\n"
    ".c4{stroke:#b0357a}\n"
    ".c5{stroke:#7a6a12}\n"
    ".c6{stroke:#118a8a}\n"
    ".c7{stroke:#55606e}\n"
    "@media (prefers-color-scheme: dark) {\n"
    "text{fill:#b9c2cf}\n"
    ".title,.name{fill:#f2f4f7}\n"
    ".page{fill:#14171c}\n"
    ".host{fill:#202a3a;stroke:#50688f}\n"
    ".slot{fill:#24452a;stroke:#66b356}\n"
    ".nic{fill:#4b3714;stroke:#d79d3c}\n"
    ".switch{fill:#36234d;stroke:#a878e0}\n"
    ".c0{stroke:#69b1ee}\n"
    ".c1{stroke:#f0935f}\n"
    ".c2{stroke:#6fce8b}\n"
    ".c3{stroke:#b48ae8}\n"
    ".c4{stroke:#ec7fbb}\n"
    ".c5{stroke:#d1bf57}\n"
    ".c6{stroke:#5fd0d0}\n"
    ".c7{stroke:#a3adba}\n"
    "}\n"
    "</style>\n";

struct spot {
    double x, y;
};

/* Height of a switch above the hosts: 1 for those that NICs are cabled to. */
static unsigned level_of(const shunt_fabric_t *f, unsigned s, unsigned depth)
{
    unsigned level = 1;

    for (unsigned i = 0; i < f->n_net && depth < 16; i++)
        if (f->net[i].above == (int)s) {
            unsigned below = level_of(f, i, depth + 1) + 1;
            level = below > level ? below : level;
        }
    return level;
}

static void draw_host(const shunt_fabric_t *f, struct shunt__text *t, unsigned h, double x, double y,
                      double w)
{
    const struct shunt__kind *k = f->host[h].kind;
    unsigned columns = k->n_slots < 8 ? k->n_slots : 8;
    double cell = (w - 16) / columns;

    shunt__text_add(
        t, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"106\" rx=\"8\" class=\"host\"/>\n", x, y, w);
    for (unsigned r = 0; r < k->n_rails && r < 16; r++)
        shunt__text_add(t,
                        "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"14\" rx=\"2\" class=\"nic\"/>\n",
                        x + 8 + (w - 16) / (k->n_rails < 16 ? k->n_rails : 16) * r + 1, y + 8,
                        (w - 16) / (k->n_rails < 16 ? k->n_rails : 16) - 2);
    for (unsigned s = 0; s < k->n_slots && s < 16; s++)
        shunt__text_add(
            t, "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"16\" rx=\"2\" class=\"slot\"/>\n",
            x + 8 + cell * (s % columns) + 1, y + 28 + (s / columns) * 19, cell - 2);
    char line[64];
    const char *name = f->host[h].name;
    size_t len = strlen(name), most = (size_t)(w / 9);
    if (len > most && most < sizeof(line) - 4) /* names of a series differ at their end */
        snprintf(line, sizeof(line), "%.*s…%s", (int)(most / 2 - 1), name, name + len - most / 2);
    else
        snprintf(line, sizeof(line), "%s", name);
    words(t, x + 8, y + 84, "name", line, sizeof(line));
    snprintf(line, sizeof(line), "%u place%s, %u rail%s", k->n_slots, k->n_slots == 1 ? "" : "s", k->n_rails,
             k->n_rails == 1 ? "" : "s");
    words(t, x + 8, y + 98, "", line, (size_t)(w / 6.2));
}

static void print_svg(const shunt_fabric_t *f, struct shunt__text *t)
{
    unsigned hosts = f->n_hosts < MOST_DRAWN ? f->n_hosts : MOST_DRAWN, columns = hosts < 8 ? hosts : 8,
             top = 0, *level, *nth, per_level[20] = {0};
    double w = 172, gap = 16, width, y, base;
    struct spot *spot = calloc(f->n_net + 1, sizeof(*spot));
    char line[160];

    level = calloc(f->n_net + 1, sizeof(*level));
    nth = calloc(f->n_net + 1, sizeof(*nth));
    if (!spot || !level || !nth) {
        t->failed = 1;
        free(spot);
        free(level);
        free(nth);
        return;
    }
    for (unsigned i = 0; i < f->n_net; i++) {
        level[i] = f->n_net <= 256 ? level_of(f, i, 0) : 1;
        level[i] = level[i] > 18 ? 18 : level[i];
        nth[i] = per_level[level[i]]++;
        top = level[i] > top ? level[i] : top;
    }
    width = columns * (w + gap) + gap;
    for (unsigned l = 1; l <= top; l++)
        if (per_level[l] * 96.0 + 20 > width && per_level[l] <= 24)
            width = per_level[l] * 96.0 + 20;
    if (width < 520)
        width = 520;
    base = 60 + top * 90.0;
    double height = base + (hosts > 8 ? 2 : 1) * 136 + 10;
    shunt__text_add(t,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
                    "height=\"%.0f\">\n%s"
                    "<rect width=\"100%%\" height=\"100%%\" class=\"page\"/>\n",
                    width, height, width, height, svg_style);
    snprintf(line, sizeof(line), "Fabric: %u hosts, %u network switches%s%s", f->n_hosts, f->n_net,
             f->assumed && f->n_net ? " (assumed)" : "",
             hosts < f->n_hosts ? "; the first 16 hosts are drawn" : "");
    words(t, 14, 30, "title", line, 120);
    for (unsigned i = 0; i < f->n_net; i++) {
        double step = (width - 20) / per_level[level[i]];
        spot[i].x = 10 + step * (nth[i] + 0.5);
        spot[i].y = base - level[i] * 90.0 + 20;
    }
    for (unsigned i = 0; i < f->n_net; i++)
        if (f->net[i].above >= 0)
            shunt__text_add(t, "<path d=\"M%.0f %.0fL%.0f %.0f\" class=\"line c7\"/>\n", spot[i].x, spot[i].y,
                            spot[f->net[i].above].x, spot[f->net[i].above].y + 15);
    for (unsigned h = 0; h < hosts; h++) {
        const struct shunt__kind *k = f->host[h].kind;
        double x = gap + (h % columns) * (w + gap);
        y = base + 10 + (h / columns) * 136.0;
        unsigned shown = k->n_rails < 16 ? k->n_rails : 16;
        for (unsigned r = 0; r < shown; r++)
            if (f->host[h].port[r] >= 0) {
                double from = x + 8 + (w - 16) / shown * (r + 0.5);
                const struct spot *s = &spot[f->host[h].port[r]];
                shunt__text_add(t,
                                "<path d=\"M%.1f %.0fC%.1f %.0f %.0f %.0f %.0f %.0f\" class=\"line c%u\"/>\n",
                                from, y + 8, from, y - 26, s->x, s->y + 52, s->x, s->y + 26, r % 8);
            }
    }
    for (unsigned i = 0; i < f->n_net; i++) {
        double step = (width - 20) / per_level[level[i]], box = step - 8 < 150 ? step - 8 : 150;
        shunt__text_add(
            t, "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"26\" rx=\"6\" class=\"switch\"/>\n",
            spot[i].x - box / 2, spot[i].y, box);
        if (box > 30)
            words(t, spot[i].x, spot[i].y + 17, "middle", f->net[i].name, (size_t)(box / 6.6));
    }
    for (unsigned h = 0; h < hosts; h++)
        draw_host(f, t, h, gap + (h % columns) * (w + gap), base + 10 + (h / columns) * 136.0, w);
    shunt__text_add(t, "</svg>\n");
    free(spot);
    free(level);
    free(nth);
}

shunt_status_t shunt_fabric_export(const shunt_fabric_t *f, shunt_topo_format_t format, char **text,
                                   size_t *size)
{
    struct shunt__text t = {0};

    if (!f || !text)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_fabric_export: fabric or text is NULL");
    switch (format) {
    case SHUNT_TOPO_TEXT: print_text(f, &t); break;
    case SHUNT_TOPO_JSON: print_json(f, &t); break;
    case SHUNT_TOPO_SVG: print_svg(f, &t); break;
    case SHUNT_TOPO_DOT: print_dot(f, &t); break;
    default: return shunt__fail(SHUNT_ERR_INVALID, "a fabric is written as text, JSON, SVG or for Graphviz");
    }
    return shunt__text_done(&t, text, size);
}
