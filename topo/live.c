/* SPDX-License-Identifier: BSD-3-Clause */
/* The live host: hwloc for CPUs and PCI, the kernel for NICs. */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/base/log.h"
#include "topo/interfaces.h"
#include "topo/read.h"

/*
 * hwloc's view as its XML, which is read like any file's. Of its plug-ins those that start a GPU runtime stay
 * out: asking what the machine is must not create a CUDA context.
 */
static shunt_status_t hwloc_xml(const char *synthetic, char **text, size_t *size)
{
    static const char *const not[] = {"opencl", "cuda", "gl", "levelzero"};
    hwloc_topology_t h;
    char *xml;
    int len;

    if (hwloc_topology_init(&h))
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "hwloc can't start");
    /* Without this folder (a container's /sys may be empty) hwloc would complain on stderr; CPUID and sysconf
     * still tell CPUs. */
    if (!synthetic && access("/sys/devices/system/cpu/cpu0/topology", X_OK) &&
        access("/sys/bus/cpu/devices/cpu0/topology", X_OK))
        hwloc_topology_set_components(h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "linux");
    for (unsigned i = 0; i < 4; i++)
        hwloc_topology_set_components(h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, not[i]);
    hwloc_topology_set_cache_types_filter(h, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_icache_types_filter(h, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(h, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_flags(h, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (synthetic) {
        if (hwloc_topology_set_synthetic(h, synthetic)) {
            hwloc_topology_destroy(h);
            return shunt__fail(
                SHUNT_ERR_FORMAT,
                "\"%.200s\" is no synthetic description; an example: pack:2 numa:2 core:12 pu:2", synthetic);
        }
    } else
        hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(h) || hwloc_topology_export_xmlbuffer(h, &xml, &len, 0)) {
        hwloc_topology_destroy(h);
        return shunt__fail(SHUNT_ERR_SYSTEM, "hwloc could not find out what this host is made of");
    }
    *text = len > 0 ? strndup(xml, (size_t)len - 1) : NULL;
    hwloc_free_xmlbuffer(h, xml);
    hwloc_topology_destroy(h);
    if (!*text)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a topology");
    *size = strlen(*text);
    return SHUNT_OK;
}

shunt_status_t shunt__read_hwloc_live(const char *synthetic, const char *source, shunt_topo_t **topo)
{
    struct shunt__arena arena = {0};
    struct shunt__xml *root;
    char *xml = NULL;
    size_t size = 0;
    shunt_status_t st = hwloc_xml(synthetic, &xml, &size);

    if (st != SHUNT_OK)
        return st;
    st = shunt__xml_parse("hwloc's view of the host", xml, size, &arena, &root);
    if (st == SHUNT_OK)
        st = shunt__read_hwloc(root, source, 1, topo);
    shunt__arena_free(&arena);
    free(xml);
    return st;
}

/* A host without anything that hwloc could find: one NUMA node, so that everything has a place. */
static shunt_status_t bare_host(shunt_topo_t **topo)
{
    shunt_status_t st = shunt__topo_new("live", topo);

    if (st == SHUNT_OK)
        shunt__topo_note(*topo, "CPUs and PCI devices are unknown: %s", shunt_error_text());
    return st;
}

static shunt_status_t add_live_nics(shunt_topo_t *t, const struct shunt__interfaces *in, const char *absent,
                                    shunt_topo_t **topo)
{
    char host[256] = "";
    shunt_status_t st;

    gethostname(host, sizeof(host) - 1);
    t->host_name = shunt__arena_text(&t->arena, host, sizeof(host));
    t->source = "live";
    shunt_host_id(&t->host_id);
    shunt__nics_add(t, in, absent);
    st = shunt__topo_finish(&t);
    if (st == SHUNT_OK)
        *topo = t;
    return st;
}

shunt_status_t shunt_topo_load_live(int nics_only, shunt_topo_t **topo)
{
    struct shunt__interfaces in;
    shunt_topo_t *t = NULL;
    shunt_status_t st;

    if (!topo)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_load_live: topo is NULL");
    st = shunt__interfaces_read("/sys", &in);
    if (st != SHUNT_OK)
        return st;
    if (nics_only)
        st = shunt__topo_new("live", &t);
    else if (shunt__read_hwloc_live(NULL, "live", &t) != SHUNT_OK)
        st = bare_host(&t);
    if (st == SHUNT_OK)
        st = add_live_nics(t, &in, "in /sys, but not in this network namespace", topo);
    shunt__interfaces_free(&in);
    return st;
}

/* The file's machine with this host's NICs. */
static shunt_status_t load_with_file(const char *path, shunt_topo_t **topo)
{
    struct shunt__interfaces in;
    shunt_topo_t *t;
    shunt_status_t st = shunt__load_file(path, 1, &t);

    if (st != SHUNT_OK)
        return st;
    st = shunt__interfaces_read("/sys", &in);
    if (st != SHUNT_OK) {
        shunt_topo_destroy(t);
        return st;
    }
    shunt__topo_note(t, "machine read from NCCL_TOPO_FILE=%.200s", path);
    st = add_live_nics(t, &in, "in NCCL_TOPO_FILE, but not on this host", topo);
    shunt__interfaces_free(&in);
    return st;
}

/* A dump that can't be written is told and changes nothing else, as with NCCL. */
static void write_dump(const shunt_topo_t *topo, const char *path)
{
    char *text;
    size_t size;
    FILE *f;

    if (shunt_topo_export(topo, SHUNT_TOPO_NCCL, &text, &size) != SHUNT_OK) {
        shunt__log(SHUNT__LOG_WARN, "NCCL_TOPO_DUMP_FILE is not written: %s", shunt_error_text());
        return;
    }
    f = fopen(path, "we");
    if (!f || fwrite(text, 1, size, f) != size || fflush(f))
        shunt__log(SHUNT__LOG_WARN, "NCCL_TOPO_DUMP_FILE=%s can't be written", path);
    if (f)
        fclose(f);
    free(text);
}

shunt_status_t shunt_topo_load(shunt_topo_t **topo)
{
    const char *file = getenv("NCCL_TOPO_FILE"), *dump = getenv("NCCL_TOPO_DUMP_FILE");
    shunt_status_t st = SHUNT_ERR_NOT_FOUND;

    if (!topo)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_load: topo is NULL");
    if (file && *file) {
        st = load_with_file(file, topo);
        if (st != SHUNT_OK)
            shunt__log(SHUNT__LOG_WARN, "NCCL_TOPO_FILE is left aside: %s", shunt_error_text());
    }
    if (st != SHUNT_OK)
        st = shunt_topo_load_live(0, topo);
    if (st == SHUNT_OK && dump && *dump)
        write_dump(*topo, dump);
    return st;
}
