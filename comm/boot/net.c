/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/boot/net.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "comm/base/log.h"

int shunt__boot_address_parse(const char *text, struct shunt__boot_address *address)
{
    struct shunt__boot_address a = {0};
    struct in6_addr six;

    if (inet_pton(AF_INET, text, a.ip) == 1) {
        a.family = 4;
        if (memcmp(a.ip, "\0\0\0\0", 4) == 0)
            return -1;
    } else if (inet_pton(AF_INET6, text, &six) == 1) {
        if (IN6_IS_ADDR_LINKLOCAL(&six) || IN6_IS_ADDR_UNSPECIFIED(&six) || IN6_IS_ADDR_MULTICAST(&six))
            return -1;
        a.family = 6;
        memcpy(a.ip, &six, 16);
    } else
        return -1;
    *address = a;
    return 0;
}

const char *shunt__boot_address_text(const struct shunt__boot_address *address, char text[SHUNT__BOOT_ADDRESS_TEXT])
{
    char ip[INET6_ADDRSTRLEN] = "?";

    inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->ip, ip, sizeof(ip));
    snprintf(text, SHUNT__BOOT_ADDRESS_TEXT, address->family == 4 ? "%s:%d" : "[%s]:%d", ip, address->port);
    return text;
}

int shunt__boot_address_from(const struct sockaddr_storage *sa, struct shunt__boot_address *address)
{
    struct shunt__boot_address a = {0};

    if (sa->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
        a.family = 4;
        memcpy(a.ip, &in->sin_addr, 4);
        a.port = ntohs(in->sin_port);
    } else if (sa->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)sa;
        a.port = ntohs(in->sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr)) {
            a.family = 4;
            memcpy(a.ip, in->sin6_addr.s6_addr + 12, 4);
        } else {
            a.family = 6;
            memcpy(a.ip, &in->sin6_addr, 16);
        }
    } else
        return -1;
    *address = a;
    return 0;
}

socklen_t shunt__boot_address_to(const struct shunt__boot_address *address, struct sockaddr_storage *sa)
{
    memset(sa, 0, sizeof(*sa));
    if (address->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)sa;
        in->sin_family = AF_INET;
        memcpy(&in->sin_addr, address->ip, 4);
        in->sin_port = htons(address->port);
        return sizeof(*in);
    }
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)sa;
    in->sin6_family = AF_INET6;
    memcpy(&in->sin6_addr, address->ip, 16);
    in->sin6_port = htons(address->port);
    return sizeof(*in);
}

int shunt__boot_address_loopback(const struct shunt__boot_address *address)
{
    return address->family == 4 ? address->ip[0] == 127 : memcmp(address->ip, &in6addr_loopback, 16) == 0;
}

int shunt__boot_address_same_ip(const struct shunt__boot_address *a, const struct shunt__boot_address *b)
{
    return a->family == b->family && memcmp(a->ip, b->ip, a->family == 4 ? 4 : 16) == 0;
}

int shunt__boot_address_own(struct shunt__boot_address *addresses, int max)
{
    struct ifaddrs *list, *i;
    int n = 0;

    if (getifaddrs(&list) != 0)
        return -1;
    for (int loopback = 0; loopback < 2 && (n == 0 || !loopback); loopback++)
        for (i = list; i; i = i->ifa_next) {
            struct shunt__boot_address a;
            struct sockaddr_storage sa = {0};
            char ip[INET6_ADDRSTRLEN];

            if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || n == max)
                continue;
            if (i->ifa_addr->sa_family == AF_INET)
                memcpy(&sa, i->ifa_addr, sizeof(struct sockaddr_in));
            else if (i->ifa_addr->sa_family == AF_INET6)
                memcpy(&sa, i->ifa_addr, sizeof(struct sockaddr_in6));
            else
                continue;
            if (shunt__boot_address_from(&sa, &a) != 0 || shunt__boot_address_loopback(&a) != loopback)
                continue;
            inet_ntop(a.family == 4 ? AF_INET : AF_INET6, a.ip, ip, sizeof(ip));
            if (shunt__boot_address_parse(ip, &a) == 0)
                addresses[n++] = a;
        }
    freeifaddrs(list);
    return n;
}

shunt_status_t shunt__boot_port_range(const struct shunt__config *config, int *first, int *last)
{
    const char *text = shunt__config_str(config, SHUNT__PORT_RANGE);
    int a = 0, b = 0, end = 0;

    if (*text && (sscanf(text, "%d - %d %n", &a, &b, &end) != 2 || text[end] || a < 1 || b > 65535 || a > b))
        return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_PORT_RANGE=%s is no range of ports; write it as 20000-20999", text);
    *first = a;
    *last = b;
    return SHUNT_OK;
}

shunt_status_t shunt__boot_socket_error(int err, const char *what)
{
    struct rlimit limit = {0};

    if (err == EMFILE) {
        getrlimit(RLIMIT_NOFILE, &limit);
        return shunt__fail(SHUNT_ERR_LIMIT,
                           "%s: this process has all the files open that it may (RLIMIT_NOFILE is %llu); raise it "
                           "with ulimit -n", what, (unsigned long long)limit.rlim_cur);
    }
    if (err == ENFILE)
        return shunt__fail(SHUNT_ERR_LIMIT, "%s: this host has no more file descriptors; raise fs.file-max", what);
    return shunt__fail_errno(SHUNT_ERR_SYSTEM, err, "%s", what);
}

/* Takes `port` (0: any) for both families, or for IPv4 alone where there is no IPv6; 0 or errno. */
static int try_port(int port, int *fd, int *got)
{
    int yes = 1, no = 0, err, s;
    struct sockaddr_storage sa;
    socklen_t len;
    struct shunt__boot_address any = {.family = 6, .port = (uint16_t)port};

    s = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s >= 0 && setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) != 0) {
        close(s);
        s = -1;
        errno = EAFNOSUPPORT;
    }
    if (s < 0 && errno != EMFILE && errno != ENFILE) {
        any.family = 4;
        s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (s < 0)
        return errno;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    len = shunt__boot_address_to(&any, &sa);
    if (bind(s, (struct sockaddr *)&sa, len) != 0 || listen(s, SOMAXCONN) != 0) {
        err = errno;
        close(s);
        return err;
    }
    len = sizeof(sa);
    if (getsockname(s, (struct sockaddr *)&sa, &len) != 0 || shunt__boot_address_from(&sa, &any) != 0) {
        err = errno;
        close(s);
        return err ? err : EINVAL;
    }
    *fd = s;
    *got = any.port;
    return 0;
}

shunt_status_t shunt__boot_listen(int first, int last, int spread, int *fd, int *port)
{
    int n = last - first + 1, err = 0, from = spread && n > 1 ? (int)randombytes_uniform((uint32_t)n) : 0;

    for (int i = 0; i < n; i++) {
        int p = first + (from + i) % n;
        err = try_port(p, fd, port);
        if (err == 0)
            return SHUNT_OK;
        if (err != EADDRINUSE && err != EACCES)
            break;
    }
    if (err == EADDRINUSE || err == EACCES)
        return shunt__fail_errno(SHUNT_ERR_LIMIT, err, "can't listen for the other ranks on any port from %d to %d", first,
                                 last);
    return shunt__boot_socket_error(err, "can't listen for the other ranks");
}

int shunt__boot_polls_add(struct shunt__boot_polls *polls, int fd, short events)
{
    if (polls->n == polls->cap) {
        int cap = polls->cap ? 2 * polls->cap : 32;
        struct pollfd *more = realloc(polls->fd, (size_t)cap * sizeof(*more));
        if (!more)
            return -1;
        polls->fd = more;
        polls->cap = cap;
    }
    polls->fd[polls->n] = (struct pollfd){.fd = fd, .events = events};
    return polls->n++;
}

void shunt__boot_polls_wait(struct shunt__boot_polls *polls, int ms)
{
    if (poll(polls->fd, (nfds_t)polls->n, ms < 0 ? 0 : ms) < 0)
        for (int i = 0; i < polls->n; i++)
            polls->fd[i].revents = 0;
}

void shunt__boot_polls_free(struct shunt__boot_polls *polls)
{
    free(polls->fd);
    *polls = (struct shunt__boot_polls){0};
}
