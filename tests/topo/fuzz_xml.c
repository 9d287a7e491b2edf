/* SPDX-License-Identifier: BSD-3-Clause */
/* Topology files of strangers: whatever reads must also be written, packed, compared and asked. */
#include <shunt/fabric.h>
#include <shunt/topo.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(const shunt_topo_t *topo)
{
    static const shunt_topo_rails_options_t none = {.size = sizeof(none)};
    const shunt_topo_object_t *near[4];
    shunt_topo_rails_t *rails;
    shunt_topo_binding_t binding;
    shunt_topo_path_t path;
    unsigned n;

    for (int a = 0; a < SHUNT_TOPO_N_TYPES; a++)
        for (int b = 0; b < SHUNT_TOPO_N_TYPES; b++) {
            const shunt_topo_object_t *x = shunt_topo_get(topo, (shunt_topo_type_t)a, 0),
                                      *y = shunt_topo_get(topo, (shunt_topo_type_t)b, 1);
            if (x && y &&
                (shunt_topo_path(topo, x, y, &path) != SHUNT_OK || path.n_hops < 2 || !(path.bandwidth > 0)))
                abort();
        }
    for (unsigned i = 0; i < 4 && i < shunt_topo_count(topo, SHUNT_TOPO_GPU); i++)
        shunt_topo_nearest_nics(topo, shunt_topo_get(topo, SHUNT_TOPO_GPU, i), near, 4, &n);
    if (shunt_topo_count(topo, SHUNT_TOPO_NIC))
        shunt_topo_binding(topo, shunt_topo_get(topo, SHUNT_TOPO_NIC, 0), &binding);
    shunt_topo_nearest_nics_of_cpu(topo, 3, near, 4, &n);
    if (shunt_topo_rails(topo, &none, &rails) == SHUNT_OK)
        shunt_topo_rails_destroy(rails);
    shunt_topo_find(topo, "GPU 0");
}

static void use(const shunt_topo_t *topo)
{
    shunt_topo_t *copy = NULL;
    void *packed;
    size_t size;
    char *text;
    unsigned changes;

    for (int format = SHUNT_TOPO_TEXT; format <= SHUNT_TOPO_HWLOC; format++)
        if (shunt_topo_export(topo, (shunt_topo_format_t)format, &text, &size) == SHUNT_OK) {
            if (format >= SHUNT_TOPO_NCCL) {
                if (shunt_topo_load_memory("own", text, size, &copy) != SHUNT_OK)
                    abort(); /* what we write we read */
                shunt_topo_destroy(copy);
            }
            free(text);
        }
    if (shunt_topo_pack(topo, &packed, &size) != SHUNT_OK ||
        shunt_topo_unpack(packed, size, &copy) != SHUNT_OK)
        abort();
    if (shunt_topo_diff(topo, copy, &text, &changes) != SHUNT_OK || changes)
        abort();
    free(text);
    free(packed);
    shunt_topo_destroy(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    shunt_topo_t *topo;
    shunt_fabric_t *fabric;

    if (shunt_topo_load_memory("input", data, size, &topo) != SHUNT_OK)
        return 0;
    ask(topo);
    use(topo);
    if (shunt_fabric_create(&fabric) != SHUNT_OK)
        return 0;
    if (shunt_fabric_add_host(fabric, topo, NULL, NULL, NULL) != SHUNT_OK)
        shunt_topo_destroy(topo);
    shunt_fabric_destroy(fabric);
    return 0;
}
