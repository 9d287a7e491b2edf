/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of cables by strangers: what reads is written, and reads again to the same. */
#include <shunt/fabric.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char
    machine[] = "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" "
                "class=\"0x020700\"><nic><net name=\"a\" dev=\"0\" speed=\"100000\" port=\"1\"/>"
                "<net name=\"b\" dev=\"1\" speed=\"100000\" port=\"2\"/></nic></pci></cpu></system>";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    shunt_fabric_t *f;
    shunt_topo_t *topo;
    char *text, *again;
    unsigned order[3];
    shunt_place_t p[3];

    if (shunt_fabric_create(&f) != SHUNT_OK)
        return 0;
    if (shunt_topo_load_memory("machine", machine, sizeof(machine) - 1, &topo) != SHUNT_OK ||
        shunt_fabric_add_host(f, topo, "h", NULL, NULL) != SHUNT_OK ||
        shunt_fabric_repeat_host(f, 0, 2) != SHUNT_OK)
        abort();
    if (shunt_fabric_read_cables(f, "input", (const char *)data, size) == SHUNT_OK) {
        if (shunt_fabric_write_cables(f, &text, NULL) != SHUNT_OK ||
            shunt_fabric_read_cables(f, "own", text, strlen(text)) != SHUNT_OK ||
            shunt_fabric_write_cables(f, &again, NULL) != SHUNT_OK || strcmp(text, again) != 0)
            abort();
        free(text);
        free(again);
        if (shunt_fabric_export(f, SHUNT_TOPO_SVG, &text, NULL) == SHUNT_OK)
            free(text);
    }
    if (shunt_fabric_places(f, 3, p) != SHUNT_OK ||
        shunt_fabric_rings(f, p, 3, 1, 0, order, NULL, NULL) != SHUNT_OK)
        abort();
    shunt_fabric_destroy(f);
    return 0;
}
