/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/rail/carrier.h"
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/rail/inet.h"

#define ASK_EVERY (20 * SHUNT__MS)
#define WATCHES 32

struct watch {
    int key;
    char device[IFNAMSIZ];
    struct sockaddr_storage ip; /* family 0: none asked for */
    char ip_text[64];
    int up; /* as told */
    char port[64]; /* of an RDMA device, "" otherwise */
    int port_up;
};

struct shunt__carrier {
    struct shunt__pollable netlink; /* first */
    struct shunt__poller *poller;
    shunt__carrier_fn fn;
    void *arg;
    int ask; /* a socket for ioctl */
    struct watch watches[WATCHES];
    int n;
    uint64_t ask_at;
    int fresh; /* a watch was added: look at all of them */
};

static void tell(struct shunt__carrier *c, struct watch *w, int up, const char *fmt)
{
    char why[120];

    if (w->up == up)
        return;
    w->up = up;
    snprintf(why, sizeof(why), fmt, w->device, w->ip_text);
    c->fn(c->arg, w->key, up, why);
}

static int has_address(const struct ifaddrs *i, const struct sockaddr_storage *ip)
{
    if (!i->ifa_addr || i->ifa_addr->sa_family != ip->ss_family)
        return 0;
    if (ip->ss_family == AF_INET)
        return ((const struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)ip)->sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr,
                  &((const struct sockaddr_in6 *)ip)->sin6_addr, 16) == 0;
}

/* Compares every watched interface with what was told of it. */
static void look(struct shunt__carrier *c)
{
    struct ifaddrs *list;

    if (getifaddrs(&list))
        return;
    for (int k = 0; k < c->n; k++) {
        struct watch *w = &c->watches[k];
        unsigned flags = 0;
        int exists = 0, addressed = w->ip.ss_family == 0;

        w->port_up = !*w->port || shunt__inet_port_active(w->port);
        for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
            if (strcmp(i->ifa_name, w->device) != 0)
                continue;
            exists = 1;
            flags |= i->ifa_flags;
            addressed |= has_address(i, &w->ip);
        }
        if (!exists)
            tell(c, w, 0, "there is no interface %s");
        else if (!(flags & IFF_UP))
            tell(c, w, 0, "interface %s is down");
        else if (!(flags & IFF_RUNNING))
            tell(c, w, 0, "interface %s has lost its carrier");
        else if (!addressed)
            tell(c, w, 0, "interface %s has lost its address %s");
        else if (!w->port_up)
            tell(c, w, 0, "the RDMA port behind interface %s is not active");
        else
            tell(c, w, 1, "interface %s is up");
    }
    freeifaddrs(list);
}

static void netlink_ready(struct shunt__pollable *self, uint32_t events)
{
    char buf[16384];
    ssize_t n;
    int any = 0;

    /* What the messages say is not even read: too many of them are an ENOBUFS, and then only looking helps. */
    while ((n = recv(self->fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0 || (n < 0 && (errno == EINTR || errno == ENOBUFS)))
        any = 1;
    if (any)
        look((struct shunt__carrier *)self);
}

void shunt__carrier_tick(struct shunt__carrier *c, uint64_t now)
{
    int changed = 0;

    if (c->fresh) {
        c->fresh = 0;
        look(c);
    }
    if (now < c->ask_at)
        return;
    c->ask_at = now + ASK_EVERY;
    for (int k = 0; k < c->n; k++)
        changed |= *c->watches[k].port && shunt__inet_port_active(c->watches[k].port) != c->watches[k].port_up;
    if (changed)
        look(c);
    for (int k = 0; k < c->n; k++) {
        struct watch *w = &c->watches[k];
        struct ethtool_value link = {.cmd = ETHTOOL_GLINK};
        struct ifreq r;

        if (!w->up)
            continue;
        memset(&r, 0, sizeof(r));
        memcpy(r.ifr_name, w->device, sizeof(w->device));
        r.ifr_data = (void *)&link;
        if (ioctl(c->ask, SIOCETHTOOL, &r) == 0 && !link.data)
            tell(c, w, 0, "interface %s has lost its carrier");
    }
}

shunt_status_t shunt__carrier_watch(struct shunt__carrier *c, int key, const char *device, const char *ip)
{
    struct watch *w = &c->watches[c->n];
    shunt_status_t st = SHUNT_OK;

    if (c->n == WATCHES)
        return shunt__fail(SHUNT_ERR_LIMIT, "no more than %d interfaces can be watched", WATCHES);
    memset(w, 0, sizeof(*w));
    if (!*device || shunt__inet_interface(device, w->device))
        return shunt__fail(SHUNT_ERR_INVALID, "\"%s\" is no name of a network interface, nor has it one", device);
    if (shunt__inet_is_rdma(device))
        snprintf(w->port, sizeof(w->port), "%s", device);
    w->port_up = 1;
    if (*ip)
        st = shunt__inet_parse(ip, w->device, &w->ip);
    if (st != SHUNT_OK)
        return st;
    w->key = key;
    w->up = 1;
    snprintf(w->ip_text, sizeof(w->ip_text), "%s", ip);
    c->n++;
    c->fresh = 1;
    return SHUNT_OK;
}

shunt_status_t shunt__carrier_open(struct shunt__poller *poller, shunt__carrier_fn fn, void *arg,
                                   struct shunt__carrier **carrier)
{
    struct sockaddr_nl address = {.nl_family = AF_NETLINK,
                                  .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    struct shunt__carrier *c = calloc(1, sizeof(*c));
    int err = 0;

    if (!c)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to watch network interfaces");
    c->poller = poller;
    c->fn = fn;
    c->arg = arg;
    c->ask = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    c->netlink.fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
    c->netlink.events = EPOLLIN;
    c->netlink.ready = netlink_ready;
    if (c->ask < 0 || c->netlink.fd < 0 || bind(c->netlink.fd, (struct sockaddr *)&address, sizeof(address)))
        err = errno;
    else
        err = shunt__poller_add(poller, &c->netlink);
    if (err) {
        if (c->netlink.fd >= 0)
            close(c->netlink.fd);
        if (c->ask >= 0)
            close(c->ask);
        free(c);
        return shunt__fail_errno(SHUNT_ERR_SYSTEM, err, "can't watch network interfaces by netlink");
    }
    *carrier = c;
    return SHUNT_OK;
}

void shunt__carrier_close(struct shunt__carrier *c)
{
    if (!c)
        return;
    shunt__poller_remove(c->poller, &c->netlink);
    close(c->netlink.fd);
    close(c->ask);
    free(c);
}
