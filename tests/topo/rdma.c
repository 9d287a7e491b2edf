/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA ports from a made-up /sys: ordinary ones, one that is down, one that makes no sense. */
#include <net/if_arp.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/tap.h"
#include "topo/interfaces.h"

static char top[] = "/tmp/shunt-rdma-XXXXXX";

/* Writes a file below the made-up /sys, with the folders above it. */
static void put(const char *path, const char *text)
{
    char full[512];
    FILE *f;

    snprintf(full, sizeof(full), "%s/%s", top, path);
    for (char *p = full + strlen(top) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    f = fopen(full, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

static void device(const char *name, const char *pci, const char *state, const char *rate, const char *layer,
                   const char *interface)
{
    char path[256], link[300], target[256];

    snprintf(path, sizeof(path), "devices/%s/numa_node", pci);
    put(path, "1\n");
    snprintf(path, sizeof(path), "class/infiniband/%s/node_guid", name);
    put(path, "b8ce:f603:00d0:5f6e\n");
    snprintf(link, sizeof(link), "%s/class/infiniband/%s/device", top, name);
    snprintf(target, sizeof(target), "../../../devices/%s", pci);
    if (symlink(target, link))
        printf("# no link %s\n", link);
    snprintf(path, sizeof(path), "class/infiniband/%s/ports/1/state", name);
    put(path, state);
    snprintf(path, sizeof(path), "class/infiniband/%s/ports/1/rate", name);
    put(path, rate);
    snprintf(path, sizeof(path), "class/infiniband/%s/ports/1/link_layer", name);
    put(path, layer);
    if (interface) {
        snprintf(path, sizeof(path), "class/infiniband/%s/ports/1/gid_attrs/ndevs/0", name);
        put(path, interface);
    }
}

int main(void)
{
    struct shunt__interfaces in = {0};
    shunt_topo_t *topo = NULL;
    shunt_topo_rails_t *rails = NULL;
    shunt_topo_rails_options_t none = {.size = sizeof(none)};
    char command[64];

    if (!mkdtemp(top))
        return 1;
    is_int(shunt__rdma_read(top, &in), SHUNT_OK, "a /sys without RDMA is no error");
    is_int(in.n_ports, 0, "and has no port");
    device("mlx5_10", "0000:81:00.0", "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n", "InfiniBand\n", NULL);
    device("mlx5_2", "0000:3b:00.1", "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n", "Ethernet\n", "ens1f1\n");
    device("mlx5_0", "0000:3b:00.0", "1: DOWN\n", "10 Gb/sec (4X SDR)\n", "InfiniBand\n", NULL);
    device("odd", "not-pci", "\n", "fast\n", "", "a name that is much too long for an interface\n");
    put("class/infiniband/empty/node_guid", "");
    put("class/infiniband/none/ports/0/state", "4: ACTIVE\n");
    is_int(shunt__rdma_read(top, &in), SHUNT_OK, "RDMA ports are read");
    is_int(in.n_ports, 4, "four of them; port 0 is none");
    ok(strcmp(in.port[0].device, "mlx5_0") == 0 && strcmp(in.port[1].device, "mlx5_2") == 0 &&
           strcmp(in.port[2].device, "mlx5_10") == 0,
       "in order of number");
    ok(!in.port[0].active && in.port[1].active && in.port[2].active && !in.port[3].active,
       "which are active");
    is_int(in.port[1].speed, 200000, "200 Gb/sec");
    is_int(in.port[2].speed, 400000, "400 Gb/sec");
    is_int(in.port[3].speed, 0, "\"fast\" is no speed");
    ok(in.port[2].infiniband && !in.port[1].infiniband, "link layers");
    is_str(in.port[1].interface, "ens1f1", "the interface of a RoCE port");
    is_str(in.port[3].interface, "", "a name that can't be is none");
    is_str(in.port[1].pci, "0000:3b:00.1", "the PCI address");
    is_int(in.port[1].numa, 1, "the NUMA node");
    ok(in.port[1].guid == 0xb8cef60300d05f6eull, "the GUID");

    struct shunt__interface ens = {.name = "ens1f1",
                                   .ifindex = 2,
                                   .flags = IFF_UP | IFF_RUNNING,
                                   .arp_type = ARPHRD_ETHER,
                                   .carrier = 1,
                                   .speed = 200000,
                                   .numa = 1};
    shunt_topo_address_t address = {.family = AF_INET, .prefix = 24, .bytes = {10, 0, 0, 1}};
    ens.addresses = malloc(sizeof(address));
    *ens.addresses = address;
    ens.n_addresses = 1;
    in.interface = malloc(sizeof(ens));
    *in.interface = ens;
    in.n = 1;
    shunt__topo_new("live", &topo);
    shunt__nics_add(topo, &in, "absent");
    is_int(shunt__topo_finish(&topo), SHUNT_OK, "a host with them");
    is_int(shunt_topo_count(topo, SHUNT_TOPO_NIC), 4, "has four NICs: the interface and its port are one");
    is_int(shunt_topo_rails(topo, &none, &rails), SHUNT_OK, "rails");
    ok(rails && rails->n_used == 2 && strcmp(rails->rail[0].name, "ens1f1") == 0 &&
           strcmp(rails->rail[1].name, "mlx5_10") == 0,
       "the two that are active; InfiniBand needs no address");
    ok(shunt_topo_find(topo, "mlx5_2") == shunt_topo_find(topo, "ens1f1"), "either name finds it");
    ok(shunt_topo_find(topo, "3b:00.1") == shunt_topo_find(topo, "ens1f1"), "so does the PCI address");
    shunt_topo_rails_destroy(rails);
    shunt_topo_destroy(topo);
    shunt__interfaces_free(&in);
    snprintf(command, sizeof(command), "rm -rf %s", top);
    ok(system(command) == 0, "cleaned up");
    return done();
}
