/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Network interfaces by netlink and ethtool: both answer for this process's network namespace, which
 * /sys need not (it may be another namespace's, empty, or not mounted).
 */
#include "topo/interfaces.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "comm/base/log.h"

#ifndef IFLA_PARENT_DEV_NAME /* kernel headers before 5.14 */
#define IFLA_PARENT_DEV_NAME 56
#define IFLA_PARENT_DEV_BUS_NAME 57
#endif

#define MAX_INTERFACES 16384

typedef int handler_t(const struct nlmsghdr *msg, struct shunt__interfaces *out);

static void copy_text(char *to, size_t size, const void *from, size_t len)
{
    size_t n = strnlen(from, len < size ? len : size - 1);

    memcpy(to, from, n);
    to[n] = 0;
}

static void read_linkinfo(const struct rtattr *info, struct shunt__interface *i)
{
    int len = (int)RTA_PAYLOAD(info);

    for (const struct rtattr *a = RTA_DATA(info); RTA_OK(a, len); a = RTA_NEXT(a, len))
        if ((a->rta_type & NLA_TYPE_MASK) == IFLA_INFO_KIND)
            copy_text(i->kind, sizeof(i->kind), RTA_DATA(a), RTA_PAYLOAD(a));
}

static uint32_t u32(const struct rtattr *a)
{
    uint32_t v = 0;

    if (RTA_PAYLOAD(a) >= sizeof(v))
        memcpy(&v, RTA_DATA(a), sizeof(v));
    return v;
}

static int on_link(const struct nlmsghdr *msg, struct shunt__interfaces *out)
{
    const struct ifinfomsg *info = NLMSG_DATA(msg);
    int len = (int)msg->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*info));
    struct shunt__interface *i;

    if (msg->nlmsg_type != RTM_NEWLINK || len < 0)
        return 0;
    if (out->n >= MAX_INTERFACES)
        return 0;
    if ((out->n & (out->n - 1)) == 0) { /* a power of two: full */
        void *bigger = realloc(out->interface, (out->n ? out->n * 2 : 1) * sizeof(*i));
        if (!bigger)
            return -1;
        out->interface = bigger;
    }
    i = &out->interface[out->n++];
    *i = (struct shunt__interface){.ifindex = (unsigned)info->ifi_index, .flags = info->ifi_flags,
                                   .arp_type = info->ifi_type, .carrier = -1, .speed = -1, .numa = -1};
    for (const struct rtattr *a = IFLA_RTA(info); RTA_OK(a, len); a = RTA_NEXT(a, len)) {
        switch (a->rta_type & NLA_TYPE_MASK) {
        case IFLA_IFNAME: copy_text(i->name, sizeof(i->name), RTA_DATA(a), RTA_PAYLOAD(a)); break;
        case IFLA_MTU: i->mtu = u32(a); break;
        case IFLA_MASTER: i->master = u32(a); break;
        case IFLA_LINK: i->lower = u32(a); break;
        case IFLA_LINK_NETNSID: i->lower_elsewhere = 1; break;
        case IFLA_CARRIER: i->carrier = RTA_PAYLOAD(a) ? *(const uint8_t *)RTA_DATA(a) : -1; break;
        case IFLA_LINKINFO: read_linkinfo(a, i); break;
        case IFLA_PARENT_DEV_NAME:
            copy_text(i->device, sizeof(i->device), RTA_DATA(a), RTA_PAYLOAD(a));
            break;
        case IFLA_PARENT_DEV_BUS_NAME: copy_text(i->bus, sizeof(i->bus), RTA_DATA(a), RTA_PAYLOAD(a)); break;
        default: break;
        }
    }
    return 0;
}

static int on_address(const struct nlmsghdr *msg, struct shunt__interfaces *out)
{
    const struct ifaddrmsg *info = NLMSG_DATA(msg);
    int len = (int)msg->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*info));
    const struct rtattr *own = NULL, *any = NULL;
    shunt_topo_address_t address = {0};
    size_t size = info->ifa_family == AF_INET ? 4 : 16;
    struct shunt__interface *i = out->interface, *end = i + out->n;

    if (msg->nlmsg_type != RTM_NEWADDR || len < 0 ||
        (info->ifa_family != AF_INET && info->ifa_family != AF_INET6))
        return 0;
    while (i < end && i->ifindex != info->ifa_index)
        i++;
    if (i == end || i->n_addresses >= 64)
        return 0;
    for (const struct rtattr *a = IFA_RTA(info); RTA_OK(a, len); a = RTA_NEXT(a, len)) {
        if ((a->rta_type & NLA_TYPE_MASK) == IFA_LOCAL) /* the own end of a point-to-point link */
            own = a;
        else if ((a->rta_type & NLA_TYPE_MASK) == IFA_ADDRESS)
            any = a;
    }
    if (own)
        any = own;
    if (!any || RTA_PAYLOAD(any) < size)
        return 0;
    address.family = info->ifa_family;
    address.prefix = info->ifa_prefixlen;
    memcpy(address.bytes, RTA_DATA(any), size);
    address.link_local = size == 4 ? address.bytes[0] == 169 && address.bytes[1] == 254
                                   : address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
    shunt_topo_address_t *bigger = realloc(i->addresses, (i->n_addresses + 1) * sizeof(address));
    if (!bigger)
        return -1;
    i->addresses = bigger;
    i->addresses[i->n_addresses++] = address;
    return 0;
}

/* A token bucket at the root of an interface bounds what it sends, whatever its driver says. */
static int on_qdisc(const struct nlmsghdr *msg, struct shunt__interfaces *out)
{
    const struct tcmsg *info = NLMSG_DATA(msg);
    int len = (int)msg->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*info));
    const struct rtattr *options = NULL;
    struct tc_tbf_qopt tbf;
    uint64_t rate = 0;
    int is_tbf = 0;

    if (msg->nlmsg_type != RTM_NEWQDISC || len < 0 || info->tcm_parent != TC_H_ROOT)
        return 0;
    for (const struct rtattr *a = TCA_RTA(info); RTA_OK(a, len); a = RTA_NEXT(a, len)) {
        if ((a->rta_type & NLA_TYPE_MASK) == TCA_KIND)
            is_tbf = RTA_PAYLOAD(a) >= 4 && memcmp(RTA_DATA(a), "tbf", 4) == 0;
        else if ((a->rta_type & NLA_TYPE_MASK) == TCA_OPTIONS)
            options = a;
    }
    if (!is_tbf || !options)
        return 0;
    len = (int)RTA_PAYLOAD(options);
    for (const struct rtattr *a = RTA_DATA(options); RTA_OK(a, len); a = RTA_NEXT(a, len)) {
        if ((a->rta_type & NLA_TYPE_MASK) == TCA_TBF_RATE64 && RTA_PAYLOAD(a) >= sizeof(rate))
            memcpy(&rate, RTA_DATA(a), sizeof(rate));
        else if ((a->rta_type & NLA_TYPE_MASK) == TCA_TBF_PARMS && RTA_PAYLOAD(a) >= sizeof(tbf) && !rate) {
            memcpy(&tbf, RTA_DATA(a), sizeof(tbf));
            rate = tbf.rate.rate;
        }
    }
    for (unsigned i = 0; i < out->n; i++)
        if (out->interface[i].ifindex == (unsigned)info->tcm_ifindex && rate < UINT64_MAX / 8)
            out->interface[i].shaped = rate * 8;
    return 0;
}

/* One dump. A dump that the kernel had to interrupt is taken as it came: the list changed under it. */
static int dump(int fd, uint16_t type, handler_t *handle, struct shunt__interfaces *out)
{
    struct {
        struct nlmsghdr head;
        struct tcmsg body; /* the longest; all begin with the family */
    } ask = {{.nlmsg_len = sizeof(ask),
              .nlmsg_type = type,
              .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
              .nlmsg_seq = type},
             {.tcm_family = AF_UNSPEC}};
    static const size_t room = 65536;
    char *buf;
    int rc = -1;

    if (send(fd, &ask, sizeof(ask), 0) < 0 || !(buf = malloc(room)))
        return -1;
    for (;;) {
        ssize_t got = recv(fd, buf, room, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        size_t left = (size_t)got;
        for (struct nlmsghdr *m = (struct nlmsghdr *)buf; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
            if (m->nlmsg_seq != type)
                continue;
            if (m->nlmsg_type == NLMSG_DONE) {
                rc = 0;
                goto out;
            }
            if (m->nlmsg_type == NLMSG_ERROR) {
                const struct nlmsgerr *e = NLMSG_DATA(m);
                errno = e->error ? -e->error : EPROTO;
                goto out;
            }
            if (handle(m, out)) {
                errno = ENOMEM;
                goto out;
            }
        }
    }
out:
    free(buf);
    return rc;
}

/* Speed and driver; an interface that has neither leaves what is there. */
static void ask_ethtool(int fd, struct shunt__interface *i)
{
    /* The settings end in three masks; the kernel says how many words each has, 127 is its bound. */
    uint32_t room[sizeof(struct ethtool_link_settings) / 4 + 3 * 127] = {0};
    struct ethtool_link_settings *link = (struct ethtool_link_settings *)(void *)room;
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq req = {0};

    snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", i->name);
    req.ifr_data = (char *)&driver;
    if (ioctl(fd, SIOCETHTOOL, &req) == 0) {
        copy_text(i->driver, sizeof(i->driver), driver.driver, sizeof(driver.driver));
        if (!*i->device && strchr(driver.bus_info, ':'))
            copy_text(i->device, sizeof(i->device), driver.bus_info, sizeof(driver.bus_info));
    }
    link->cmd = ETHTOOL_GLINKSETTINGS;
    req.ifr_data = (char *)room;
    if (ioctl(fd, SIOCETHTOOL, &req) == 0 && link->link_mode_masks_nwords < 0) {
        link->cmd = ETHTOOL_GLINKSETTINGS;
        link->link_mode_masks_nwords = (int8_t)-link->link_mode_masks_nwords;
        if (ioctl(fd, SIOCETHTOOL, &req) == 0 && link->speed != (uint32_t)SPEED_UNKNOWN)
            i->speed = link->speed;
    }
}

static int64_t read_number(const char *sysfs, const char *fmt_path, const char *name, int64_t missing)
{
    char path[512], text[64];
    int fd;
    ssize_t n;

    snprintf(path, sizeof(path), fmt_path, sysfs, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return missing;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return missing;
    text[n] = 0;
    return strtoll(text, NULL, 0);
}

static int better_address(const void *a, const void *b)
{
    const shunt_topo_address_t *x = a, *y = b;

    if (x->link_local != y->link_local)
        return x->link_local - y->link_local;
    if (x->family != y->family)
        return x->family == AF_INET ? -1 : 1;
    return memcmp(x->bytes, y->bytes, sizeof(x->bytes));
}

shunt_status_t shunt__interfaces_read(const char *sysfs, struct shunt__interfaces *out)
{
    struct shunt__interfaces in = {0};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0)
        return shunt__fail_errno(SHUNT_ERR_SYSTEM, errno,
                                 "can't open a netlink socket to list network interfaces");
    if (dump(fd, RTM_GETLINK, on_link, &in) || dump(fd, RTM_GETADDR, on_address, &in)) {
        int err = errno;
        close(fd);
        shunt__interfaces_free(&in);
        return shunt__fail_errno(SHUNT_ERR_SYSTEM, err, "the kernel did not list its network interfaces");
    }
    if (dump(fd, RTM_GETQDISC, on_qdisc, &in))
        shunt__log(SHUNT__LOG_TRACE,
                   "the kernel did not list its queueing disciplines"); /* rates are then the drivers' */
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (unsigned k = 0; k < in.n; k++) {
        struct shunt__interface *i = &in.interface[k];
        if (fd >= 0 && !(i->flags & IFF_LOOPBACK))
            ask_ethtool(fd, i);
        if (i->n_addresses)
            qsort(i->addresses, i->n_addresses, sizeof(*i->addresses), better_address);
        if (strcmp(i->bus, "pci") == 0 || (!*i->bus && strchr(i->device, ':')))
            i->numa = (int)read_number(sysfs, "%s/bus/pci/devices/%s/numa_node", i->device, -1);
        i->dev_port = (unsigned)read_number(sysfs, "%s/class/net/%s/dev_port", i->name, 0);
    }
    if (fd >= 0)
        close(fd);
    if (shunt__rdma_read(sysfs, &in) != SHUNT_OK) {
        shunt__interfaces_free(&in);
        return SHUNT_ERR_NO_MEMORY;
    }
    *out = in;
    return SHUNT_OK;
}

void shunt__interfaces_free(struct shunt__interfaces *in)
{
    for (unsigned i = 0; i < in->n; i++)
        free(in->interface[i].addresses);
    free(in->interface);
    free(in->port);
    memset(in, 0, sizeof(*in));
}
