/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Machines that others posted: what their owner would see in each. The files are not ours and lie beside the
 * project
 * (../shared/topologies, or SHUNT_TOPOLOGIES); without them the test is skipped.
 */
#include <shunt/topo.h>
#include <unistd.h>
#include "tests/tap.h"
#include "tests/topo/forms.h"

/* Per GPU its nearest NICs, "-" for none; pairs as "A|B=CLASS". */
static const struct {
    const char *file;
    unsigned gpus, nics, numa;
    const char *nearest;
    const char *pairs[3];
} machines[] = {
    {"nccl/aws-g5-8gpu-bus-ids-only.xml",
     0,
     0,
     2,
     "",
     {"0000:00:16.0|0000:00:17.0=PHB", "0000:00:16.0|0000:00:15.0=SYS"}},
    {"nccl/aws-p4d-8gpu-4nic-interleaved-cpumask.xml",
     8,
     4,
     2,
     "0000:10:1b.0 0000:10:1b.0 0000:20:1b.0 0000:20:1b.0 0000:90:1b.0 0000:90:1b.0 0000:a0:1b.0 "
     "0000:a0:1b.0",
     {"GPU 0|GPU 1=PIX", "GPU 0|GPU 2=PHB", "GPU 0|GPU 4=SYS"}},
    {"nccl/azure-ncv4-4gpu-no-link-speed.xml",
     4,
     1,
     4,
     "eth0 eth0 eth0 eth0",
     {"GPU 0|eth0=PHB", "GPU 1|eth0=SYS"}},
    {"nccl/azure-ndv4-8gpu-8nic-4numa-virtual-switches.xml",
     8,
     8,
     4,
     "0103:00:00.0,0104:00:00.0 0103:00:00.0,0104:00:00.0 0101:00:00.0,0102:00:00.0 "
     "0101:00:00.0,0102:00:00.0 "
     "0107:00:00.0,0108:00:00.0 0107:00:00.0,0108:00:00.0 0105:00:00.0,0106:00:00.0 "
     "0105:00:00.0,0106:00:00.0",
     {"GPU 0|0103:00:00.0=PIX", "GPU 0|GPU 1=PIX", "GPU 0|GPU 2=SYS"}},
    {"nccl/azure-ndv5-8gpu-8nic.xml",
     8,
     8,
     2,
     "0101:00:00.0 0102:00:00.0 0103:00:00.0 0104:00:00.0 0105:00:00.0 0106:00:00.0 0107:00:00.0 "
     "0108:00:00.0",
     {"GPU 0|0101:00:00.0=PIX", "GPU 0|GPU 1=PHB", "GPU 0|GPU 4=SYS"}},
    {"nccl/flagcx-gpus-directly-under-system.xml",
     8,
     2,
     0,
     "mlx5_0 mlx5_1 mlx5_0 mlx5_1 mlx5_0 mlx5_1 mlx5_0 mlx5_1",
     {"GPU 0|mlx5_0=PHB", "GPU 0|mlx5_1=NODE"}},
    {"nccl/oci-h100-8gpu-16port-leading-blank-line.xml",
     8,
     16,
     2,
     "mlx5_0,mlx5_1 mlx5_3,mlx5_4 mlx5_5,mlx5_6 mlx5_7,mlx5_8 mlx5_9,mlx5_10 mlx5_12,mlx5_13 mlx5_14,mlx5_15 "
     "mlx5_16,mlx5_17",
     {"GPU 0|GPU 7=NVL", "GPU 0|mlx5_0=PIX", "GPU 0|mlx5_17=SYS"}},
    {"nccl/rccl-16gpu-145-elements.xml",
     16,
     8,
     4,
     "mlx5_0 mlx5_0 mlx5_1 mlx5_1 mlx5_2 mlx5_2 mlx5_3 mlx5_3 mlx5_4 mlx5_4 mlx5_5 mlx5_5 mlx5_7 mlx5_7 "
     "mlx5_8 mlx5_8",
     {"GPU 0|GPU 1=NVL", "GPU 0|GPU 3=PIX", "GPU 0|GPU 15=SYS"}},
    {"nccl/rccl-4gpu-veth-nic.xml",
     4,
     2,
     1,
     "enp96s0f0 enp96s0f0 enp96s0f0 enp96s0f0",
     {"GPU 0|GPU 3=NVL", "GPU 0|enp96s0f0=PHB"}},
    {"nccl/rccl-8gpu-1g-beside-200g-same-dev.xml",
     8,
     2,
     4,
     "mlx5_0 mlx5_0 mlx5_0 mlx5_0 mlx5_0 mlx5_0 mlx5_0 mlx5_0",
     {"GPU 0|GPU 2=NVL", "GPU 4|mlx5_0=PHB", "GPU 0|enp98s0f0=PHB"}},
    {"nccl/rccl-8gpu-mi300.xml",
     8,
     8,
     2,
     "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7",
     {"GPU 0|GPU 7=NVL", "GPU 0|mlx5_0=PXB", "GPU 0|mlx5_1=PHB"}},
    {"nccl/rccl-8gpu-mi350-nic-before-gpu-host-hash.xml",
     8,
     8,
     2,
     "bnxt_re0 bnxt_re1 bnxt_re2 bnxt_re3 bnxt_re4 bnxt_re5 bnxt_re6 bnxt_re7",
     {"GPU 0|bnxt_re0=PIX", "GPU 0|bnxt_re4=SYS", "GPU 3|GPU 4=NVL"}},
    {"nccl/rccl-8gpu-rome-numa-1-3-5-7.xml",
     8,
     4,
     4,
     "mlx5_1 mlx5_1 mlx5_3 mlx5_3 mlx5_5 mlx5_5 mlx5_7 mlx5_7",
     {"GPU 0|GPU 3=NVL", "GPU 0|mlx5_1=PXB", "GPU 0|GPU 4=SYS"}},
    {"hwloc/2numa-ib0-mlx4.xml",
     4,
     4,
     2,
     "eth2,ib0 eth2,ib0 eth2,ib0 eth2,ib0",
     {"GPU 0|ib0=PHB", "GPU 2|ib0=SYS", "eth0|eth1=PIX"}},
    {"hwloc/4numa-pci.xml", 1, 8, 4, "eth0,eth1", {"GPU 0|eth0=PHB", "eth0|eth2=SYS"}},
    {"hwloc/dgx2-16gpu-12nvswitch.xml",
     16,
     0,
     2,
     "- - - - - - - - - - - - - - - -",
     {"GPU 0|GPU 15=NVL", "GPU 0|NUMA 0=PHB", "GPU 0|NUMA 1=SYS"}},
    {"hwloc/heterogeneous-memory.xml", 0, 0, 8, "", {"NUMA 0|NUMA 7=SYS", "NUMA 0|NUMA 1=SYS"}},
    {"hwloc/irregular-groups-disallowed-cpus.xml",
     3,
     2,
     8,
     "eth0,eth1 eth0,eth1 eth0,eth1",
     {"GPU 1|eth0=SYS", "eth0|eth1=PIX"}},
    {"hwloc/many-virtual-functions.xml", 0, 18, 2, "", {"eth4|eth5=PIX", "eth4|eth6=SYS", "eth4|eth0=PHB"}},
    {"hwloc/power8-gpu-nvlink-distances.xml",
     4,
     0,
     2,
     "- - - -",
     {"GPU 0|GPU 1=NVL", "GPU 0|GPU 2=SYS", "GPU 0|NUMA 0=NVL"}},
};

static void check_nearest(const shunt_topo_t *topo, const char *file, const char *wanted)
{
    char got[2000] = "";

    for (unsigned i = 0; i < shunt_topo_count(topo, SHUNT_TOPO_GPU); i++) {
        const shunt_topo_object_t *nic[16];
        unsigned n = 0;
        shunt_topo_nearest_nics(topo, shunt_topo_get(topo, SHUNT_TOPO_GPU, i), nic, 16, &n);
        sprintf(got + strlen(got), "%s%s", i ? " " : "", n ? "" : "-");
        for (unsigned k = 0; k < n && k < 16; k++)
            sprintf(got + strlen(got), "%s%s", k ? "," : "", nic[k]->name);
    }
    is_str(got, wanted, "%s: the nearest NICs of each GPU", file);
}

static void check_pair(const shunt_topo_t *topo, const char *file, const char *pair)
{
    char a[40], b[40], class[8];
    shunt_topo_path_t path;

    if (!pair || sscanf(pair, "%39[^|]|%39[^=]=%7s", a, b, class) != 3)
        return;
    const shunt_topo_object_t *from = shunt_topo_find(topo, a), *to = shunt_topo_find(topo, b);
    if (!ok(from && to, "%s has %s and %s", file, a, b))
        return;
    shunt_topo_path(topo, from, to, &path);
    is_str(shunt_topo_class_name(path.path_class), class, "%s: %s to %s, %.1f GB/s", file, a, b,
           path.bandwidth / 1e9);
    ok(path.bandwidth > 0 && path.n_hops >= 2 && path.hop[0] == from && path.hop[path.n_hops - 1] == to,
       "%s: with a bandwidth and hops", file);
}

int main(void)
{
    const char *folder = getenv("SHUNT_TOPOLOGIES"), *top = getenv("abs_top_srcdir");
    char beside[4000], path[4096];

    snprintf(beside, sizeof(beside), "%s/../shared/topologies", top ? top : ".");
    if (!folder)
        folder = beside;
    if (access(folder, R_OK) != 0) {
        skip("the collection of real machines is not here (%s)", folder);
        return done();
    }
    for (unsigned i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        shunt_topo_t *topo;
        snprintf(path, sizeof(path), "%s/%s", folder, machines[i].file);
        if (access(path, R_OK) != 0) {
            skip("%s is not in the collection", machines[i].file);
            continue;
        }
        if (!ok(shunt_topo_load_file(path, &topo) == SHUNT_OK, "%s reads", machines[i].file)) {
            printf("# %s\n", shunt_error_text());
            continue;
        }
        is_int(shunt_topo_count(topo, SHUNT_TOPO_GPU), machines[i].gpus, "%s: GPUs", machines[i].file);
        is_int(shunt_topo_count(topo, SHUNT_TOPO_NIC), machines[i].nics, "%s: NICs", machines[i].file);
        is_int(shunt_topo_count(topo, SHUNT_TOPO_NUMA), machines[i].numa, "%s: NUMA nodes", machines[i].file);
        check_nearest(topo, machines[i].file, machines[i].nearest);
        for (int k = 0; k < 3; k++)
            check_pair(topo, machines[i].file, machines[i].pairs[k]);
        check_forms(topo, machines[i].file);
        shunt_topo_destroy(topo);
    }
    return done();
}
