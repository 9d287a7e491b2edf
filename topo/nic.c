/* SPDX-License-Identifier: BSD-3-Clause */
/* Judging NICs: what kind each is, how fast, and whether it leads anywhere. */
#include <arpa/inet.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/interfaces.h"

/* What a NIC that doesn't say its speed is taken for. */
#define DEFAULT_MBITS 10000
#define DEFAULT_RDMA_MBITS 100000

enum kind_class { HARDWARE, OVER, WAY_OUT, TUNNEL, ISOLATED, LOOPBACK };

/* What the kernel calls its software interfaces, and what that means for carrying data to other hosts. */
static const struct {
    const char *kind;
    enum kind_class class;
    const char *text;
} kinds[] = {
    {"bond", OVER, "bond"},
    {"team", OVER, "team"},
    {"vlan", OVER, "VLAN"},
    {"bridge", OVER, "bridge"},
    {"hsr", OVER, "HSR ring"},
    {"netvsc", HARDWARE, "Hyper-V NIC"},
    {"veth", WAY_OUT, "veth pair"},
    {"macvlan", WAY_OUT, "macvlan"},
    {"ipvlan", WAY_OUT, "ipvlan"},
    {"macvtap", WAY_OUT, "macvtap"},
    {"ipvtap", WAY_OUT, "ipvtap"},
    {"netkit", WAY_OUT, "netkit pair"},
    {"ipoib", HARDWARE, "IPoIB"},
    {"tun", TUNNEL, "VPN or tunnel device"},
    {"tap", TUNNEL, "VPN or tunnel device"},
    {"wireguard", TUNNEL, "WireGuard VPN"},
    {"vxlan", TUNNEL, "VXLAN overlay"},
    {"geneve", TUNNEL, "Geneve overlay"},
    {"gre", TUNNEL, "GRE tunnel"},
    {"gretap", TUNNEL, "GRE tunnel"},
    {"ip6gre", TUNNEL, "GRE tunnel"},
    {"ip6gretap", TUNNEL, "GRE tunnel"},
    {"ipip", TUNNEL, "IP-in-IP tunnel"},
    {"sit", TUNNEL, "IPv6-in-IPv4 tunnel"},
    {"ip6tnl", TUNNEL, "IPv6 tunnel"},
    {"vti", TUNNEL, "IPsec tunnel"},
    {"vti6", TUNNEL, "IPsec tunnel"},
    {"xfrm", TUNNEL, "IPsec interface"},
    {"erspan", TUNNEL, "mirror tunnel"},
    {"ip6erspan", TUNNEL, "mirror tunnel"},
    {"ppp", TUNNEL, "PPP link"},
    {"macsec", OVER, "MACsec"},
    {"openvswitch", ISOLATED, "Open vSwitch port"},
    {"dummy", ISOLATED, "dummy"},
    {"ifb", ISOLATED, "intermediate device"},
    {"vrf", ISOLATED, "VRF"},
    {"nlmon", ISOLATED, "monitor"},
    {"vcan", ISOLATED, "CAN bus"},
    {"netdevsim", ISOLATED, "simulated device"},
    {"loopback", LOOPBACK, "loopback"},
};

/* Names that tell the kind where nothing else does: NCCL's files say no more. */
static const struct {
    const char *prefix, *kind, *text;
} known_names[] = {
    {"docker", "bridge", "Docker's bridge"},
    {"br-", "bridge", "Docker's bridge"},
    {"virbr", "bridge", "libvirt's bridge"},
    {"cni", "bridge", "Kubernetes bridge"},
    {"podman", "bridge", "Podman's bridge"},
    {"lxcbr", "bridge", "LXC's bridge"},
    {"lxdbr", "bridge", "LXD's bridge"},
    {"nerdctl", "bridge", "containerd's bridge"},
    {"kube-bridge", "bridge", "Kubernetes bridge"},
    {"vmnet", "bridge", "VMware's bridge"},
    {"xenbr", "bridge", "Xen's bridge"},
    {"vboxnet", "bridge", "VirtualBox's bridge"},
    {"veth", "veth", "veth pair"},
    {"cali", "veth", "Calico's veth pair"},
    {"lxc", "veth", "Cilium's veth pair"},
    {"vnet", "tun", "a virtual machine's port"},
    {"flannel", "vxlan", "Flannel overlay"},
    {"vxlan", "vxlan", "VXLAN overlay"},
    {"cilium", "dummy", "Cilium's own"},
    {"kube-ipvs", "dummy", "kube-proxy's own"},
    {"weave", "bridge", "Weave overlay"},
    {"tailscale", "tun", "Tailscale VPN"},
    {"wg", "wireguard", "WireGuard VPN"},
    {"utun", "tun", "VPN"},
    {"zt", "tun", "ZeroTier VPN"},
    {"nebula", "tun", "Nebula VPN"},
    {"tun", "tun", "VPN or tunnel device"},
    {"tap", "tun", "VPN or tunnel device"},
    {"ppp", "ppp", "PPP link"},
    {"gre", "gre", "GRE tunnel"},
    {"sit", "sit", "IPv6-in-IPv4 tunnel"},
    {"ip6tnl", "ip6tnl", "IPv6 tunnel"},
    {"tunl", "ipip", "IP-in-IP tunnel"},
    {"dummy", "dummy", "dummy"},
    {"ifb", "ifb", "intermediate device"},
    {"ovs", "openvswitch", "Open vSwitch port"},
    {"bond", "bond", "bond"},
    {"team", "team", "team"},
};

static const char *bridge_owner(const char *name)
{
    for (size_t i = 0; i < sizeof(known_names) / sizeof(known_names[0]); i++)
        if (strncmp(name, known_names[i].prefix, strlen(known_names[i].prefix)) == 0)
            return known_names[i].text;
    return NULL;
}

static enum kind_class classify(shunt_topo_nic_t *nic, const char **text)
{
    const char *given = nic->name ? nic->name : "";

    *text = "";
    if (!*nic->kind && !nic->rdma && !nic->ifindex) { /* from a file: the name has to do */
        if (strcmp(given, "lo") == 0)
            nic->kind = "loopback";
        for (size_t i = 0; i < sizeof(known_names) / sizeof(known_names[0]) && !*nic->kind; i++) {
            size_t len = strlen(known_names[i].prefix);
            /* "taproom" is no tap: short prefixes must be followed by a number */
            if (strncmp(given, known_names[i].prefix, len) == 0 &&
                (len > 3 || given[len] == '-' || (given[len] >= '0' && given[len] <= '9')))
                nic->kind = known_names[i].kind;
        }
    }
    if (!*nic->kind)
        return HARDWARE;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(nic->kind, kinds[i].kind) == 0) {
            const char *owner = strcmp(nic->kind, "dummy") ? bridge_owner(given) : NULL;
            *text = owner && strcmp(nic->kind, "bond") && strcmp(nic->kind, "vlan") ? owner : kinds[i].text;
            return kinds[i].class;
        }
    *text = nic->kind;
    return ISOLATED; /* a software device nobody has heard of */
}

static void prefix_reason(shunt_topo_t *topo, shunt_topo_nic_t *nic, const char *text)
{
    nic->reason = nic->reason && *nic->reason ? shunt__arena_print(&topo->arena, "%s; %s", text, nic->reason)
                                              : text;
}

void shunt__nic_judge(shunt_topo_t *topo, shunt_topo_nic_t *nic, int over_physical, const char *member_of)
{
    const char *what, *text;
    enum kind_class class = classify(nic, &what);
    int global = 0, from_file = !nic->ifindex;

    for (unsigned i = 0; i < nic->n_addresses; i++)
        global |= !nic->addresses[i].link_local;
    nic->is_virtual = class != HARDWARE;
    switch (class) {
    case OVER: {
        int wired = over_physical || (from_file && strcmp(nic->kind, "bridge") != 0);
        nic->tier = wired ? SHUNT_TOPO_TIER_OVER : SHUNT_TOPO_TIER_ISOLATED;
        text = wired ? shunt__arena_print(&topo->arena, "%s over physical NICs", what)
                     : shunt__arena_print(&topo->arena, "%s without a physical port", what);
        break;
    }
    case WAY_OUT:
        nic->tier = SHUNT_TOPO_TIER_NAMESPACE;
        text = shunt__arena_print(&topo->arena, "%s of a container or namespace", what);
        break;
    case TUNNEL:
        nic->tier = SHUNT_TOPO_TIER_TUNNEL;
        text = what;
        break;
    case ISOLATED:
        nic->tier = SHUNT_TOPO_TIER_ISOLATED;
        text = what;
        break;
    case LOOPBACK:
        nic->tier = SHUNT_TOPO_TIER_LOOPBACK;
        nic->layer = SHUNT_TOPO_LINK_LOOPBACK;
        text = "loopback: reaches this host only";
        break;
    default:
        nic->tier = SHUNT_TOPO_TIER_PHYSICAL;
        text = nic->rdma ? "RDMA NIC" : "physical NIC";
        break;
    }
    if (nic->layer == SHUNT_TOPO_LINK_UNKNOWN)
        nic->layer = class == TUNNEL ? SHUNT_TOPO_LINK_TUNNEL : SHUNT_TOPO_LINK_ETHERNET;
    if (member_of) {
        nic->tier = SHUNT_TOPO_TIER_UNUSABLE;
        text = shunt__arena_print(&topo->arena, "%s; a member of %s, which has the address", text, member_of);
    } else if (nic->state != SHUNT_TOPO_NIC_UP) {
        nic->tier = SHUNT_TOPO_TIER_UNUSABLE;
        text = shunt__arena_print(&topo->arena, "%s; %s", text,
                                  nic->state == SHUNT_TOPO_NIC_DOWN
                                      ? "down (ip link set up)"
                                      : "no carrier (cable, switch or peer down)");
    } else if (!from_file && !nic->n_addresses && nic->layer != SHUNT_TOPO_LINK_INFINIBAND) {
        nic->tier = SHUNT_TOPO_TIER_UNUSABLE;
        text = shunt__arena_print(&topo->arena, "%s; has no IP address", text);
    } else if (!from_file && !global && nic->n_addresses && nic->tier < SHUNT_TOPO_TIER_LINK_LOCAL &&
               nic->layer != SHUNT_TOPO_LINK_INFINIBAND) {
        nic->tier = SHUNT_TOPO_TIER_LINK_LOCAL;
        text = shunt__arena_print(&topo->arena, "%s; link-local addresses only", text);
    }
    prefix_reason(topo, nic, text);
}

void shunt__nic_set_speed(shunt_topo_t *topo, shunt_topo_nic_t *nic, int64_t mbits)
{
    const int64_t usual = nic->rdma ? DEFAULT_RDMA_MBITS : DEFAULT_MBITS;

    nic->rate_known = 1;
    if (mbits <= 0) {
        nic->rate_known = 0;
        nic->reason = mbits ? shunt__arena_print(&topo->arena, "speed unknown (%lld), taken for %d Gbit/s",
                                                 (long long)mbits, (int)(usual / 1000))
                            : shunt__arena_print(&topo->arena, "speed unknown, taken for %d Gbit/s",
                                                 (int)(usual / 1000));
        mbits = usual;
    } else if (mbits > 3200000) {
        /* No port is that fast: the number is in kbit/s, or it is rubbish. */
        int64_t thousandth = mbits / 1000;
        nic->rate_known = thousandth <= 3200000;
        nic->reason = shunt__arena_print(&topo->arena, "speed %lld Mbit/s can't be, taken for %lld",
                                         (long long)mbits, (long long)(nic->rate_known ? thousandth : usual));
        mbits = nic->rate_known ? thousandth : usual;
    } else if (mbits < 1000 && (nic->rdma || nic->layer == SHUNT_TOPO_LINK_INFINIBAND)) {
        nic->reason = shunt__arena_print(&topo->arena,
                                         "speed %lld Mbit/s is no RDMA NIC's, taken for %lld Gbit/s",
                                         (long long)mbits, (long long)mbits);
        mbits *= 1000;
    }
    nic->rate = (uint64_t)mbits * 1000000;
}

static const struct shunt__interface *by_index(const struct shunt__interfaces *in, unsigned ifindex)
{
    for (unsigned i = 0; i < in->n; i++)
        if (in->interface[i].ifindex == ifindex)
            return &in->interface[i];
    return NULL;
}

/* Whether hardware lies below a bond, VLAN or bridge; `depth` ends rings that no kernel should allow. */
static int over_physical(const struct shunt__interfaces *in, const struct shunt__interface *i, int depth)
{
    const struct shunt__interface *lower = i->lower && !i->lower_elsewhere ? by_index(in, i->lower) : NULL;

    if (!*i->kind)
        return !(i->flags & IFF_LOOPBACK);
    if (depth > 4 || strcmp(i->kind, "veth") == 0)
        return 0;
    if (lower && lower != i)
        return over_physical(in, lower, depth + 1);
    for (unsigned k = 0; k < in->n; k++)
        if (in->interface[k].master == i->ifindex && &in->interface[k] != i &&
            over_physical(in, &in->interface[k], depth + 1))
            return 1;
    return 0;
}

/* The sum or minimum that a bond can't tell: the fastest of its members' speeds is the safe one. */
static int64_t members_speed(const struct shunt__interfaces *in, const struct shunt__interface *i)
{
    int64_t best = -1;

    for (unsigned k = 0; k < in->n; k++)
        if (in->interface[k].master == i->ifindex && in->interface[k].speed > best)
            best = in->interface[k].speed;
    if (best <= 0 && i->lower && !i->lower_elsewhere) {
        const struct shunt__interface *lower = by_index(in, i->lower);
        best = lower ? lower->speed : -1;
    }
    return best;
}

static const struct shunt__rdma_port *port_of(const struct shunt__interfaces *in, const char *name)
{
    for (unsigned p = 0; p < in->n_ports; p++)
        if (strcmp(in->port[p].interface, name) == 0)
            return &in->port[p];
    return NULL;
}

/* The NIC that a file or hwloc already has for this interface or RDMA port, not yet taken by another. */
static struct shunt__object *find_nic(shunt_topo_t *topo, const struct shunt__interface *i,
                                      const struct shunt__rdma_port *p, const shunt_topo_pci_t *pci)
{
    struct shunt__object *near = NULL;

    for (unsigned k = 0; k < topo->n_all; k++) {
        struct shunt__object *o = topo->all[k];
        if (o->pub.type != SHUNT_TOPO_NIC || o->is_live)
            continue;
        const shunt_topo_nic_t *n = o->u.nic;
        if (i && n->name && strcmp(n->name, i->name) == 0)
            return o;
        if (p && n->rdma && strcmp(n->rdma, p->device) == 0 && (!n->rdma_port || n->rdma_port == p->port))
            return o;
        if (pci && !near && o->pub.pci && o->pci.domain == pci->domain && o->pci.bus == pci->bus &&
            o->pci.device == pci->device && o->pci.function == pci->function)
            near = o;
    }
    return near;
}

static void add_one(shunt_topo_t *topo, const struct shunt__interfaces *in, const struct shunt__interface *i,
                    const struct shunt__rdma_port *p)
{
    const char *pci = i && *i->device ? i->device : p ? p->pci : "";
    struct shunt__object *o;
    const struct shunt__interface *master = i && i->master ? by_index(in, i->master) : NULL;
    static const shunt_topo_nic_t blank = {0};
    shunt_topo_pci_t address = {0};
    int on_pci = shunt__pci_parse(pci, &address) == 0;
    shunt_topo_nic_t *nic;

    o = find_nic(topo, i, p, on_pci ? &address : NULL);
    if (o)
        o->pub.name = shunt__arena_text(&topo->arena, i ? i->name : p->device, 64);
    else
        o = shunt__topo_add(topo, topo->host, SHUNT_TOPO_NIC, i ? i->name : p->device);
    if (!o)
        return;
    nic = o->u.nic;
    *nic = blank;
    o->is_live = 1;
    if (on_pci && !o->pub.pci)
        shunt__object_set_pci(o, &address);
    o->pub.numa = i && i->numa >= 0 ? i->numa : p ? p->numa : -1;
    nic->name = o->pub.name;
    nic->rdma = p ? shunt__arena_text(&topo->arena, p->device, sizeof(p->device)) : NULL;
    nic->rdma_port = p ? p->port : 0;
    nic->guid = p ? p->guid : 0;
    nic->driver = nic->kind = "";
    if (p)
        nic->layer = p->infiniband ? SHUNT_TOPO_LINK_INFINIBAND : SHUNT_TOPO_LINK_ETHERNET;
    if (!i) {
        shunt__nic_set_speed(topo, nic, p->speed);
        nic->state = p->active ? SHUNT_TOPO_NIC_UP : SHUNT_TOPO_NIC_NO_CARRIER;
        if (!p->infiniband) /* RoCE needs an address, and there is no interface to have one */
            nic->reason = "no network interface in this namespace";
        shunt__nic_judge(topo, nic, 0, NULL);
        if (!p->infiniband && nic->tier < SHUNT_TOPO_TIER_UNUSABLE)
            nic->tier = SHUNT_TOPO_TIER_UNUSABLE;
        return;
    }
    nic->driver = shunt__arena_text(&topo->arena, i->driver, sizeof(i->driver));
    nic->kind = i->flags & IFF_LOOPBACK ? "loopback"
                                        : shunt__arena_text(&topo->arena, i->kind, sizeof(i->kind));
    nic->ifindex = i->ifindex;
    nic->mtu = i->mtu;
    if (i->arp_type == ARPHRD_INFINIBAND)
        nic->layer = SHUNT_TOPO_LINK_INFINIBAND;
    nic->state = !(i->flags & IFF_UP) ? SHUNT_TOPO_NIC_DOWN
               : i->carrier == 0 || (i->carrier < 0 && !(i->flags & IFF_RUNNING)) ? SHUNT_TOPO_NIC_NO_CARRIER
                                                                                  : SHUNT_TOPO_NIC_UP;
    int64_t speed = i->speed > 0 ? i->speed : p && p->speed > 0 ? p->speed : i->speed;
    if (speed <= 0 && nic->state == SHUNT_TOPO_NIC_UP)
        speed = members_speed(in, i);
    shunt__nic_set_speed(topo, nic, speed);
    if (!nic->rate_known && (*nic->kind || nic->state != SHUNT_TOPO_NIC_UP))
        nic->reason = NULL; /* nobody expects a speed of those */
    if (i->shaped >= 1000 && (!nic->rate_known || i->shaped < nic->rate)) {
        nic->rate = i->shaped;
        nic->rate_known = 1;
        nic->reason = shunt__arena_print(&topo->arena, "shaped by tc tbf");
    }
    if (i->n_addresses) {
        shunt_topo_address_t *a = shunt__arena_get(&topo->arena, i->n_addresses * sizeof(*a));
        if (topo->arena.failed)
            return;
        memcpy(a, i->addresses, i->n_addresses * sizeof(*a));
        nic->addresses = a;
        nic->n_addresses = i->n_addresses;
    }
    shunt__nic_judge(topo, nic, over_physical(in, i, 0),
                     master && strcmp(master->kind, "vrf") ? master->name : NULL);
}

void shunt__nics_add(shunt_topo_t *topo, const struct shunt__interfaces *in, const char *absent)
{
    for (unsigned k = 0; k < in->n; k++)
        add_one(topo, in, &in->interface[k], port_of(in, in->interface[k].name));
    for (unsigned p = 0; p < in->n_ports; p++) {
        unsigned k = 0;
        while (k < in->n && strcmp(in->interface[k].name, in->port[p].interface) != 0)
            k++;
        if (k == in->n)
            add_one(topo, in, NULL, &in->port[p]);
    }
    for (unsigned k = 0; k < topo->n_all; k++) {
        struct shunt__object *o = topo->all[k];
        if (o->pub.type != SHUNT_TOPO_NIC || o->is_live)
            continue;
        if (o->u.nic->tier == SHUNT_TOPO_TIER_UNUSABLE) {
            o->u.nic->reason = "no interface in this network namespace: no driver, or another namespace or "
                               "machine has it";
            continue;
        }
        o->u.nic->tier = SHUNT_TOPO_TIER_UNUSABLE;
        o->u.nic->state = SHUNT_TOPO_NIC_DOWN;
        o->u.nic->reason = absent;
    }
}
