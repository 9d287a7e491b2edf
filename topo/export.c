/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/export.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"

void shunt__print_cpuset(struct shunt__text *t, const struct shunt__cpus *set, unsigned least_words, int nccl)
{
    unsigned n = set->n_words * 2; /* of 32 bits */

    while (n && !(set->words[(n - 1) / 2] >> ((n - 1) % 2 * 32) & 0xffffffff))
        n--;
    if (n < least_words)
        n = least_words;
    if (!n)
        n = 1;
    for (unsigned i = n; i-- > 0;) {
        uint32_t word = i / 2 < set->n_words ? (uint32_t)(set->words[i / 2] >> i % 2 * 32) : 0;
        shunt__text_add(t, "%s%s%08x", i == n - 1 ? "" : ",", nccl ? "" : "0x", word);
    }
}

void shunt__print_cpu_list(struct shunt__text *t, const struct shunt__cpus *set)
{
    const char *comma = "";

    for (unsigned i = 0; i < set->n_words * 64; i++) {
        if (!shunt__cpus_has(set, i))
            continue;
        unsigned last = i;
        while (last + 1 < set->n_words * 64 && shunt__cpus_has(set, last + 1))
            last++;
        shunt__text_add(t, last > i ? "%s%u-%u" : "%s%u", comma, i, last);
        comma = ",";
        i = last;
    }
}

unsigned shunt__count_cores(const shunt_topo_t *topo, const struct shunt__cpus *set)
{
    unsigned n = 0, last = ~0u;

    for (unsigned i = 0; i < topo->n_cpus; i++)
        if (shunt__cpus_has(set, topo->cpus[i].os_index) && topo->cpus[i].core != last) {
            last = topo->cpus[i].core;
            n++;
        }
    return n;
}

const char *shunt__print_address(char out[64], const shunt_topo_address_t *a)
{
    char text[INET6_ADDRSTRLEN] = "?";

    inet_ntop(a->family, a->bytes, text, sizeof(text));
    snprintf(out, 64, "%s/%u", text, a->prefix);
    return out;
}

const char *shunt__print_link(char out[32], const struct shunt__object *o)
{
    const shunt_topo_pci_t *pci = &o->pci;
    int gen = pci->speed >= 64000   ? 6
              : pci->speed >= 32000 ? 5
              : pci->speed >= 16000 ? 4
              : pci->speed >= 8000  ? 3
              : pci->speed >= 5000  ? 2
                                    : 1;

    if (!o->pub.pci || !pci->speed || !pci->width)
        *out = 0;
    else if (o->link_guessed)
        shunt__print_bandwidth(out, shunt__pci_rate(pci->speed, pci->width));
    else
        snprintf(out, 32, "PCIe %d x%u", gen, pci->width);
    return out;
}

shunt_status_t shunt_topo_export(const shunt_topo_t *topo, shunt_topo_format_t format, char **text,
                                 size_t *size)
{
    static shunt_status_t (*const writer[])(const shunt_topo_t *, struct shunt__text *) = {
        shunt__export_text, shunt__export_matrix, shunt__export_json, shunt__export_svg,
        shunt__export_dot, shunt__export_nccl, shunt__export_hwloc};
    struct shunt__text t = {0};
    shunt_status_t st;

    if (!topo || !text)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_export: topo or text is NULL");
    if ((unsigned)format > SHUNT_TOPO_HWLOC)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_export: no such format");
    st = writer[format](topo, &t);
    if (st == SHUNT_OK)
        return shunt__text_done(&t, text, size);
    free(t.p);
    return st;
}
