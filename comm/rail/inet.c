/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/rail/inet.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/base/log.h"

static struct sockaddr_in *v4(const struct sockaddr_storage *a)
{
    return (struct sockaddr_in *)(uintptr_t)a;
}

static struct sockaddr_in6 *v6(const struct sockaddr_storage *a)
{
    return (struct sockaddr_in6 *)(uintptr_t)a;
}

/* getifaddrs() aligns addresses for their own type only. */
static sa_family_t family_of(const struct sockaddr_storage *a)
{
    return ((const struct sockaddr *)(const void *)a)->sa_family;
}

/* The address bytes themselves and how many they are. */
static const uint8_t *bytes_of(const struct sockaddr_storage *a, size_t *n)
{
    *n = family_of(a) == AF_INET ? 4 : 16;
    return family_of(a) == AF_INET ? (const uint8_t *)&v4(a)->sin_addr : (const uint8_t *)&v6(a)->sin6_addr;
}

static int is_loopback(const struct sockaddr_storage *a)
{
    return family_of(a) == AF_INET ? *(const uint8_t *)&v4(a)->sin_addr == 127 : IN6_IS_ADDR_LOOPBACK(&v6(a)->sin6_addr);
}

static int is_link_local(const struct sockaddr_storage *a)
{
    return family_of(a) == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(a)->sin6_addr);
}

static int usable(const struct sockaddr *a)
{
    return a && (a->sa_family == AF_INET || a->sa_family == AF_INET6);
}

socklen_t shunt__inet_size(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

uint16_t shunt__inet_port(const struct sockaddr_storage *address)
{
    return ntohs(address->ss_family == AF_INET ? v4(address)->sin_port : v6(address)->sin6_port);
}

void shunt__inet_set_port(struct sockaddr_storage *address, uint16_t port)
{
    if (address->ss_family == AF_INET)
        v4(address)->sin_port = htons(port);
    else
        v6(address)->sin6_port = htons(port);
}

shunt_status_t shunt__inet_parse(const char *ip, const char *device, struct sockaddr_storage *address)
{
    struct sockaddr_storage a;
    char text[INET6_ADDRSTRLEN + IFNAMSIZ + 1], *zone;

    memset(&a, 0, sizeof(a));
    if (inet_pton(AF_INET, ip, &v4(&a)->sin_addr) == 1) {
        a.ss_family = AF_INET;
        *address = a;
        return SHUNT_OK;
    }
    memset(&a, 0, sizeof(a));
    if (strlen(ip) < sizeof(text)) {
        strcpy(text, ip);
        zone = strchr(text, '%');
        if (zone)
            *zone++ = 0;
        if (inet_pton(AF_INET6, text, &v6(&a)->sin6_addr) == 1) {
            a.ss_family = AF_INET6;
            if (is_link_local(&a)) /* a zone is a name or a number */
                v6(&a)->sin6_scope_id = zone && *zone >= '0' && *zone <= '9' ? (uint32_t)strtoul(zone, NULL, 10)
                                                                             : if_nametoindex(zone ? zone : device);
            *address = a;
            return SHUNT_OK;
        }
    }
    return shunt__fail(SHUNT_ERR_INVALID, "\"%s\" is no IPv4 or IPv6 address", ip);
}

int shunt__inet_is_rdma(const char *device)
{
    char path[128];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s", (int)strcspn(device, ":"), device);
    return *device && *device != ':' && !strchr(device, '/') && *device != '.' && access(path, F_OK) == 0;
}

/* The first word of a file of port N (by default 1) of "name:N"; nonzero if there is none. */
static int read_port(const char *device, const char *file, char word[16])
{
    int port = strchr(device, ':') ? atoi(strchr(device, ':') + 1) : 1, good;
    char path[192];
    FILE *f;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s/ports/%d/%s", (int)strcspn(device, ":"), device, port,
             file);
    f = fopen(path, "re");
    good = f && fscanf(f, "%15s", word) == 1;
    if (f)
        fclose(f);
    return good ? 0 : -1;
}

int shunt__inet_interface(const char *device, char name[IF_NAMESIZE])
{
    if (shunt__inet_is_rdma(device))
        return read_port(device, "gid_attrs/ndevs/0", name);
    if (strlen(device) >= IF_NAMESIZE)
        return -1;
    strcpy(name, device);
    return 0;
}

int shunt__inet_port_active(const char *device)
{
    char state[16];

    return read_port(device, "state", state) == 0 && atoi(state) == 4;
}

shunt_status_t shunt__inet_of_device(const char *device, struct sockaddr_storage *address)
{
    struct sockaddr_storage best;
    char interface[IF_NAMESIZE];
    struct ifaddrs *list;
    int rank, best_rank = 0;

    if (shunt__inet_is_rdma(device)) {
        if (shunt__inet_interface(device, interface))
            return shunt__fail(SHUNT_ERR_NOT_FOUND, "RDMA device %s has no network interface with an address", device);
        device = interface;
    }
    if (getifaddrs(&list))
        return shunt__fail_errno(SHUNT_ERR_SYSTEM, errno, "can't list the addresses of this machine");
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (strcmp(i->ifa_name, device) != 0 || !usable(i->ifa_addr))
            continue;
        rank = i->ifa_addr->sa_family == AF_INET ? 3 : is_link_local((void *)i->ifa_addr) ? 1 : 2;
        if (rank <= best_rank)
            continue;
        best_rank = rank;
        memset(&best, 0, sizeof(best));
        memcpy(&best, i->ifa_addr, i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                                     : sizeof(struct sockaddr_in6));
    }
    freeifaddrs(list);
    if (!best_rank)
        return shunt__fail(SHUNT_ERR_NOT_FOUND, "interface %s has no IP address (or does not exist)", device);
    *address = best;
    return SHUNT_OK;
}

static int same_bits(const uint8_t *a, const uint8_t *b, int bits)
{
    int whole = bits / 8, rest = bits % 8;

    if (memcmp(a, b, (size_t)whole) != 0)
        return 0;
    return rest == 0 || ((a[whole] ^ b[whole]) & (0xff << (8 - rest)) & 0xff) == 0;
}

int shunt__inet_prefix(const struct sockaddr_storage *address)
{
    struct ifaddrs *list;
    size_t n, m;
    const uint8_t *want = bytes_of(address, &n), *have, *mask;
    int prefix = -1;

    if (getifaddrs(&list))
        return -1;
    for (struct ifaddrs *i = list; i && prefix < 0; i = i->ifa_next) {
        if (!usable(i->ifa_addr) || i->ifa_addr->sa_family != address->ss_family || !i->ifa_netmask)
            continue;
        have = bytes_of((struct sockaddr_storage *)i->ifa_addr, &m);
        if (memcmp(have, want, n) == 0) {
            mask = bytes_of((struct sockaddr_storage *)i->ifa_netmask, &m);
            prefix = 0;
            for (size_t k = 0; k < n; k++)
                prefix += __builtin_popcount(mask[k]);
        } else if (is_loopback(address) && is_loopback((struct sockaddr_storage *)i->ifa_addr))
            prefix = 8; /* all of 127/8 is this machine's */
    }
    freeifaddrs(list);
    return prefix;
}

int shunt__inet_reach(const struct sockaddr_storage *from, int prefix, const struct sockaddr_storage *to)
{
    size_t n;
    const uint8_t *a, *b;

    if (from->ss_family != to->ss_family || is_loopback(from) != is_loopback(to) ||
        is_link_local(from) != is_link_local(to))
        return 0;
    a = bytes_of(from, &n);
    b = bytes_of(to, &n);
    return prefix > 0 && same_bits(a, b, prefix) ? 2 : 1;
}

/* 'I', 4 or 6, the port (little-endian), the address, four bytes of zero. */
void shunt__inet_pack(const struct sockaddr_storage *address, uint8_t wire[SHUNT__INET_WIRE])
{
    size_t n;
    const uint8_t *bytes = bytes_of(address, &n);

    memset(wire, 0, SHUNT__INET_WIRE);
    wire[0] = 'I';
    wire[1] = address->ss_family == AF_INET ? 4 : 6;
    wire[2] = (uint8_t)shunt__inet_port(address);
    wire[3] = (uint8_t)(shunt__inet_port(address) >> 8);
    memcpy(wire + 4, bytes, n);
}

int shunt__inet_unpack(const void *wire, size_t len, const char *device, struct sockaddr_storage *address)
{
    const uint8_t *w = wire;
    struct sockaddr_storage a;

    if (len != SHUNT__INET_WIRE || w[0] != 'I' || (w[1] != 4 && w[1] != 6) || (w[2] == 0 && w[3] == 0))
        return -1;
    memset(&a, 0, sizeof(a));
    if (w[1] == 4) {
        a.ss_family = AF_INET;
        memcpy(&v4(&a)->sin_addr, w + 4, 4);
    } else {
        a.ss_family = AF_INET6;
        memcpy(&v6(&a)->sin6_addr, w + 4, 16);
        if (is_link_local(&a))
            v6(&a)->sin6_scope_id = if_nametoindex(device);
    }
    shunt__inet_set_port(&a, (uint16_t)(w[2] | w[3] << 8));
    *address = a;
    return 0;
}

const char *shunt__inet_name(const struct sockaddr_storage *address, char *text)
{
    char ip[INET6_ADDRSTRLEN] = "?";

    if (address->ss_family == AF_INET) {
        inet_ntop(AF_INET, &v4(address)->sin_addr, ip, sizeof(ip));
        snprintf(text, SHUNT__INET_NAME, "%s:%u", ip, shunt__inet_port(address));
    } else if (address->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6(address)->sin6_addr, ip, sizeof(ip));
        snprintf(text, SHUNT__INET_NAME, "[%s]:%u", ip, shunt__inet_port(address));
    } else
        snprintf(text, SHUNT__INET_NAME, "an unnamed socket");
    return text;
}
