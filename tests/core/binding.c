/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the helper thread goes on machines that are made up. */
#include "comm/core/binding.h"
#include "tests/tap.h"

static struct shunt__binding choose(const char *machine, const char *names, const cpu_set_t *allowed)
{
    shunt_topo_rails_options_t o = {.size = sizeof(o), .rails = names};
    shunt_topo_rails_t *rails = NULL;
    shunt_topo_t *topo = NULL;
    struct shunt__binding b = {.bound = -1};

    if (shunt_topo_load_synthetic(machine, &topo) == SHUNT_OK && shunt_topo_rails(topo, &o, &rails) == SHUNT_OK)
        shunt__binding_choose(topo, rails, allowed, &b);
    else
        printf("# %s\n", shunt_error_text());
    shunt_topo_rails_destroy(rails);
    shunt_topo_destroy(topo);
    return b;
}

int main(void)
{
    static const char two[] = "pack:2 numa:1 core:4 pu:1 + switch:1 nic:1@100g";
    cpu_set_t first, all;
    struct shunt__binding b = choose(two, "nic0", NULL);

    CPU_ZERO(&first);
    CPU_ZERO(&all);
    for (int i = 0; i < 8; i++) {
        CPU_SET(i, &all);
        if (i < 4)
            CPU_SET(i, &first);
    }
    ok(b.bound == 1 && CPU_COUNT(&b.cpus) == 4 && CPU_ISSET(0, &b.cpus), "a NIC of node 0: its four CPUs (%s)", b.reason);
    b = choose(two, "nic1", NULL);
    ok(b.bound == 1 && CPU_COUNT(&b.cpus) == 4 && CPU_ISSET(4, &b.cpus), "a NIC of node 1: its four CPUs (%s)", b.reason);
    b = choose(two, "nic0,nic1", &all);
    ok(b.bound == 0, "NICs of both: anywhere (%s)", b.reason);
    b = choose(two, "nic1", &first);
    ok(b.bound == 0, "a process that may not run near to its NIC: anywhere (%s)", b.reason);
    return done();
}
