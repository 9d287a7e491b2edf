/* SPDX-License-Identifier: BSD-3-Clause */
/* Judging NICs and choosing rails, on machines made of facts: no network is touched. */
#include <arpa/inet.h>
#include <net/if_arp.h>
#include <shunt/topo.h>
#include "tests/tap.h"
#include "topo/interfaces.h"

static struct shunt__interfaces machine;
static shunt_topo_t *topo;
static shunt_topo_rails_t *rails;

static struct shunt__interface *nic(const char *name, const char *kind, int64_t mbits, const char *address)
{
    machine.interface = realloc(machine.interface, (machine.n + 1) * sizeof(*machine.interface));
    struct shunt__interface *i = &machine.interface[machine.n++];
    *i = (struct shunt__interface){.ifindex = machine.n,
                                   .flags = IFF_UP | IFF_RUNNING,
                                   .mtu = 1500,
                                   .arp_type = ARPHRD_ETHER,
                                   .carrier = 1,
                                   .speed = mbits,
                                   .numa = -1};
    snprintf(i->name, sizeof(i->name), "%s", name);
    snprintf(i->kind, sizeof(i->kind), "%s", kind);
    if (strcmp(name, "lo") == 0) {
        i->flags |= IFF_LOOPBACK;
        i->arp_type = ARPHRD_LOOPBACK;
    }
    if (address) {
        shunt_topo_address_t *a = i->addresses = calloc(1, sizeof(*a));
        i->n_addresses = 1;
        a->family = strchr(address, ':') ? AF_INET6 : AF_INET;
        a->prefix = 24;
        inet_pton(a->family, address, a->bytes);
        a->link_local = a->family == AF_INET ? a->bytes[0] == 169 : a->bytes[0] == 0xfe;
    }
    return i;
}

static void rdma(const char *device, unsigned port, const char *interface, int infiniband, int64_t mbits)
{
    machine.port = realloc(machine.port, (machine.n_ports + 1) * sizeof(*machine.port));
    struct shunt__rdma_port *p = &machine.port[machine.n_ports++];
    *p = (struct shunt__rdma_port){
        .port = port, .active = 1, .infiniband = infiniband, .speed = mbits, .numa = -1};
    snprintf(p->device, sizeof(p->device), "%s", device);
    snprintf(p->interface, sizeof(p->interface), "%s", interface);
}

static void clear(void)
{
    shunt_topo_rails_destroy(rails);
    shunt_topo_destroy(topo);
    shunt__interfaces_free(&machine);
    rails = NULL;
    topo = NULL;
}

/* Builds the machine and chooses; the used rails' names, or "status: text". */
static const char *choose(const char *own, const char *hca, const char *ifname, sa_family_t family)
{
    static char text[2000];
    shunt_topo_rails_options_t opt = {sizeof(opt), own, hca, ifname, family, 0};
    shunt_status_t st;

    shunt_topo_rails_destroy(rails);
    rails = NULL;
    if (!topo) {
        shunt__topo_new("live", &topo);
        shunt__nics_add(topo, &machine, "absent");
        shunt__topo_finish(&topo);
    }
    st = shunt_topo_rails(topo, &opt, &rails);
    if (st != SHUNT_OK) {
        snprintf(text, sizeof(text), "%s: %s", shunt_status_name(st), shunt_error_text());
        return text;
    }
    *text = 0;
    for (unsigned i = 0; i < rails->n_used; i++)
        sprintf(text + strlen(text), "%s%s", i ? " " : "", rails->rail[i].name);
    for (unsigned i = 0; i < rails->n; i++)
        if (!rails->rail[i].reason || !*rails->rail[i].reason)
            strcat(text, " (a rail without a reason)");
    return text;
}

static const char *reason_of(const char *name)
{
    for (unsigned i = 0; rails && i < rails->n; i++)
        if (strcmp(rails->rail[i].name, name) == 0)
            return rails->rail[i].reason;
    return "(not listed)";
}

static void ordinary(void)
{
    nic("lo", "", -1, "127.0.0.1");
    nic("docker0", "bridge", -1, "172.17.0.1");
    nic("virbr0", "bridge", -1, "192.168.122.1");
    nic("tailscale0", "tun", -1, "100.64.0.1");
    nic("veth1234", "veth", 10000, "169.254.3.3");
    nic("eth10", "", 25000, "10.0.1.1");
    nic("eth2", "", 25000, "10.0.2.1");
    nic("eth3", "", 1000, "10.0.3.1");
    nic("eth4", "", 25000, NULL);
    nic("eth5", "", 25000, "10.0.5.1")->flags &= ~(unsigned)IFF_UP;
    nic("eth6", "", 25000, "10.0.6.1")->carrier = 0;
    nic("eth7", "", 25000, "fe80::1");
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "eth2 eth10",
           "physical NICs that are up and have an address, in order of number");
    ok(strstr(reason_of("docker0"), "Docker's bridge"), "docker0: %s", reason_of("docker0"));
    ok(strstr(reason_of("tailscale0"), "VPN"), "tailscale0: %s", reason_of("tailscale0"));
    ok(strstr(reason_of("eth3"), "tenth"), "eth3: %s", reason_of("eth3"));
    ok(strstr(reason_of("eth4"), "no IP address"), "eth4: %s", reason_of("eth4"));
    ok(strstr(reason_of("eth5"), "down"), "eth5: %s", reason_of("eth5"));
    ok(strstr(reason_of("eth6"), "no carrier"), "eth6: %s", reason_of("eth6"));
    ok(strstr(reason_of("eth7"), "link-local"), "eth7: %s", reason_of("eth7"));
    ok(strstr(reason_of("lo"), "loopback"), "lo: %s", reason_of("lo"));
    is_str(rails->decided_by, "topology", "topology decided");
    is_str(choose("eth3,lo,docker0", NULL, NULL, AF_UNSPEC), "eth3 lo docker0",
           "SHUNT_RAILS may name anything, in its order");
    is_str(choose("eth2,eth5,eth99", NULL, NULL, AF_UNSPEC), "eth2",
           "a NIC that is down is not used though named");
    is_int(rails->n_absent, 2, "but it is listed as absent, and so is one that does not exist");
    ok(strstr(reason_of("eth5"), "may come later"), "eth5: %s", reason_of("eth5"));
    ok(strstr(reason_of("eth99"), "no such NIC"), "eth99: %s", reason_of("eth99"));
    is_str(choose("^eth2", NULL, NULL, AF_UNSPEC), "eth10", "SHUNT_RAILS=^NAME excludes");
    is_str(choose(" eth2 , eth10 ", NULL, NULL, AF_UNSPEC), "eth2 eth10", "blanks around names do no harm");
    ok(strstr(choose("eth2,eth2", NULL, NULL, AF_UNSPEC), "twice"), "a NIC named twice is refused: %s",
       shunt_error_text());
    const char *text = choose("nope", NULL, NULL, AF_UNSPEC);
    ok(strstr(text, "NOT_FOUND: SHUNT_RAILS=nope") && strstr(text, "eth10") && strstr(text, "docker0"),
       "a name that fits nothing: %s", text);
    ok(strstr(choose("eth2:x", NULL, NULL, AF_UNSPEC), "INVALID: SHUNT_RAILS"), "a bad port: %s",
       shunt_error_text());
    ok(strstr(choose(",", NULL, NULL, AF_UNSPEC), "INVALID"), "a list of nothing: %s", shunt_error_text());
    is_str(choose(NULL, NULL, "eth", AF_UNSPEC), "eth2 eth3 eth7 eth10",
           "NCCL_SOCKET_IFNAME is a list of prefixes");
    is_int(rails->n_absent, 3, "what it matches but can't be used is absent");
    is_str(choose(NULL, NULL, "=eth2", AF_UNSPEC), "eth2", "=NAME is exact");
    is_str(choose(NULL, NULL, "^eth2", AF_UNSPEC), "eth10", "^PREFIX excludes, the rest is judged as ever");
    is_str(choose(NULL, NULL, "^=eth", AF_UNSPEC), "eth2 eth10", "^=NAME excludes exactly");
    is_str(choose(NULL, NULL, "docker,lo", AF_UNSPEC), "docker0 lo", "it too may name anything");
    text = choose(NULL, NULL, "nope", AF_UNSPEC);
    ok(strstr(text, "NCCL_SOCKET_IFNAME=nope") && strstr(text, "eth10"), "an empty result: %s", text);
    is_str(choose(NULL, NULL, NULL, AF_INET6), "eth7",
           "with IPv6 asked for, the link-local one is all there is");
    clear();
}

static void namespaces(void)
{
    nic("lo", "", -1, "127.0.0.1");
    nic("rail0", "veth", 10000, "10.1.0.1")->lower_elsewhere = 1;
    nic("rail1", "veth", 10000, "10.1.1.1")->lower_elsewhere = 1;
    nic("rail10", "veth", 10000, "10.1.10.1");
    nic("rail2", "veth", 10000, "10.1.2.1");
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "rail0 rail1 rail2 rail10",
           "veth pairs are rails where there is nothing better");
    clear();
    nic("lo", "", -1, "127.0.0.1");
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "lo", "alone, loopback is used");
    clear();
    nic("lo", "", -1, "127.0.0.1");
    nic("docker0", "bridge", -1, "172.17.0.1");
    nic("wg0", "wireguard", -1, "10.9.0.1");
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "wg0", "a VPN before an isolated bridge");
    clear();
    nic("lo", "", -1, NULL)->flags &= ~(unsigned)IFF_UP;
    ok(strstr(choose(NULL, NULL, NULL, AF_UNSPEC), "NOT_FOUND"), "an empty namespace: %s",
       shunt_error_text());
    clear();
    ok(strstr(choose(NULL, NULL, NULL, AF_UNSPEC), "no NIC at all"), "no interface at all: %s",
       shunt_error_text());
    clear();
    nic("eth0", "", 1000, "fe80::1");
    nic("docker0", "bridge", -1, "172.17.0.1");
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "eth0",
           "a link-local physical NIC before a bridge to nowhere");
    clear();
    nic("rail0", "veth", 1000, "10.1.0.1");
    nic("rail1", "veth", 100, "10.1.1.1");
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "rail0 rail1", "a rail at a tenth is still used");
    clear();
    nic("eth0", "", -1, "2001:db8::1");
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "eth0", "IPv6 alone will do");
    ok(strstr(choose(NULL, NULL, NULL, AF_INET), "no IPv4 address"), "but not when IPv4 is asked for: %s",
       shunt_error_text());
    clear();
}

static void stacked(void)
{
    nic("eth0", "", 25000, NULL)->master = 3;
    nic("eth1", "", 25000, NULL)->master = 3;
    nic("bond0", "bond", -1, "10.0.0.1");
    nic("docker0", "bridge", -1, "172.17.0.1");
    nic("veth7", "veth", 10000, NULL)->master = 4;
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "bond0", "a bond stands for its members");
    is_int(topo->of_type[SHUNT_TOPO_NIC][2]->u.nic->rate, 25000000000,
           "a bond that doesn't tell its speed has a member's");
    ok(strstr(reason_of("eth0"), "member of bond0"), "eth0: %s", reason_of("eth0"));
    clear();
    nic("enp1s0", "", 1000, NULL)->master = 2;
    nic("br0", "bridge", -1, "10.0.0.1");
    nic("tap3", "tun", 10, NULL)->master = 2;
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "br0", "a bridge over a physical NIC holds its address");
    clear();
    nic("eth0", "", 25000, "10.0.0.1");
    nic("eth0.7", "vlan", 25000, "10.7.0.1")->lower = 1;
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "eth0", "a VLAN shares its NIC's wire: the NIC alone");
    clear();
    nic("bond0", "bond", -1, "10.0.0.1");
    nic("bond1", "bond", -1, "10.0.0.2");
    machine.interface[0].lower = 2;
    machine.interface[1].lower = 1;
    ok(choose(NULL, NULL, NULL, AF_UNSPEC) != NULL, "interfaces that sit on each other end somewhere");
    clear();
}

static void infiniband(void)
{
    nic("eth0", "", 10000, "10.0.0.1");
    nic("ib0", "", 200000, NULL)->arp_type = ARPHRD_INFINIBAND;
    rdma("mlx5_0", 1, "ib0", 1, 200000);
    rdma("mlx5_1", 1, "", 1, 200000);
    rdma("mlx5_10", 1, "", 1, 200000);
    rdma("mlx5_bond", 2, "", 1, 200);
    is_str(choose(NULL, NULL, NULL, AF_UNSPEC), "ib0 mlx5_1 mlx5_10 mlx5_bond",
           "RDMA NICs carry data, InfiniBand without an address");
    is_int(shunt_topo_find(topo, "mlx5_bond")->nic->rate, 200000000000,
           "an RDMA speed off by a thousand is mended");
    ok(strstr(shunt_topo_find(topo, "mlx5_bond")->nic->reason, "200 Mbit/s"), "and said: %s",
       shunt_topo_find(topo, "mlx5_bond")->nic->reason);
    is_str(choose(NULL, "mlx5_1", NULL, AF_UNSPEC), "mlx5_1 mlx5_10", "NCCL_IB_HCA is a list of prefixes");
    is_str(choose(NULL, "=mlx5_1", NULL, AF_UNSPEC), "mlx5_1", "or exact");
    is_str(choose(NULL, "^mlx5_1", NULL, AF_UNSPEC), "ib0 mlx5_bond", "or an exclusion");
    is_str(choose(NULL, "mlx5_0:1,mlx5_1:2", NULL, AF_UNSPEC), "ib0", "with ports");
    is_str(choose(NULL, NULL, "eth0", AF_UNSPEC), "ib0 mlx5_1 mlx5_10 mlx5_bond",
           "NCCL_SOCKET_IFNAME does not move data off RDMA NICs");
    is_str(choose("mlx5_1,ib0", NULL, NULL, AF_UNSPEC), "mlx5_1 ib0", "SHUNT_RAILS takes either name");
    is_int(rails->rail[0].port, 1, "and gives the port");
    ok(strstr(choose(NULL, "nope", NULL, AF_UNSPEC), "NCCL_IB_HCA=nope"), "an empty result: %s",
       shunt_error_text());
    shunt_topo_rails_options_t sockets = {.size = sizeof(sockets), .no_rdma = 1};
    shunt_topo_rails_destroy(rails);
    rails = NULL;
    is_int(shunt_topo_rails(topo, &sockets, &rails), SHUNT_OK, "sockets only");
    is_str(rails->rail[0].name, "eth0", "then the interface with an address is the rail");
    is_int(rails->n_used, 1, "and no other");
    clear();
}

static void absurd(void)
{
    char name[20];
    static const int64_t speeds[] = {-1, 0, 400000000, INT64_MAX, INT64_MIN, 1};

    for (unsigned i = 0; i < 6; i++) {
        snprintf(name, sizeof(name), "eth%u", i);
        nic(name, "", speeds[i], "10.0.0.1");
    }
    choose("eth0", NULL, NULL, AF_UNSPEC);
    is_int(shunt_topo_find(topo, "eth0")->nic->rate, 10000000000, "a speed of -1 becomes a default");
    is_int(shunt_topo_find(topo, "eth0")->nic->rate_known, 0, "that is known to be one");
    is_int(shunt_topo_find(topo, "eth1")->nic->rate, 10000000000, "so does 0");
    is_int(shunt_topo_find(topo, "eth2")->nic->rate, 400000000000, "400,000,000 Mbit/s are 400 Gbit/s");
    is_int(shunt_topo_find(topo, "eth3")->nic->rate, 10000000000, "the largest number is no speed");
    is_int(shunt_topo_find(topo, "eth4")->nic->rate, 10000000000, "nor is the smallest");
    is_int(shunt_topo_find(topo, "eth5")->nic->rate, 1000000, "1 Mbit/s is slow but possible");
    clear();
    for (unsigned i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), i % 2 ? "veth%u" : "eth%u", i);
        nic(name, i % 2 ? "veth" : "", 100000, "10.0.0.1");
    }
    choose(NULL, NULL, NULL, AF_UNSPEC);
    is_int(rails->n_used, 100, "200 NICs, half of them virtual");
    is_str(rails->rail[99].name, "eth198", "in order of number");
    clear();
    is_int(shunt_topo_rails(NULL, NULL, &rails), SHUNT_ERR_INVALID, "no topology is refused");
    is_int(shunt_topo_load_live(0, NULL), SHUNT_ERR_INVALID, "nowhere to put it is refused");
    shunt_topo_destroy(NULL);
    shunt_topo_rails_destroy(NULL);
}

int main(void)
{
    ordinary();
    namespaces();
    stacked();
    infiniband();
    absurd();
    return done();
}
