/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses, listening ports and poll sets of the bootstrap. */
#ifndef SHUNT_BOOT_NET_H
#define SHUNT_BOOT_NET_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <shunt/status.h>
#include "comm/base/config.h"

#define SHUNT__BOOT_ADDRESS_TEXT 64

struct shunt__boot_address {
    uint8_t family; /* 4 or 6 */
    uint8_t ip[16];
    uint16_t port;
};

/* From text without port; nonzero when it is no address, or one that means nothing elsewhere (link-local, any). */
int shunt__boot_address_parse(const char *text, struct shunt__boot_address *address);
/* "10.0.0.1:80" or "[::1]:80". Returns `text`. */
const char *shunt__boot_address_text(const struct shunt__boot_address *address, char text[SHUNT__BOOT_ADDRESS_TEXT]);
/* IPv4 in IPv6's clothes becomes IPv4; nonzero for other families. */
int shunt__boot_address_from(const struct sockaddr_storage *sa, struct shunt__boot_address *address);
socklen_t shunt__boot_address_to(const struct shunt__boot_address *address, struct sockaddr_storage *sa);
int shunt__boot_address_loopback(const struct shunt__boot_address *address);
int shunt__boot_address_same_ip(const struct shunt__boot_address *a, const struct shunt__boot_address *b);
/* This host's addresses (port 0), loopback last and only when there is nothing else; their number, or -1 and errno. */
int shunt__boot_address_own(struct shunt__boot_address *addresses, int max);

/* SHUNT_PORT_RANGE; 0 and 0 when it is unset. */
shunt_status_t shunt__boot_port_range(const struct shunt__config *config, int *first, int *last);
/*
 * Listens on every address of this host, IPv4 and IPv6. first = last = 0: any port. `spread`: starts somewhere within
 * the range, so that many processes do not all try the same ports.
 */
shunt_status_t shunt__boot_listen(int first, int last, int spread, int *fd, int *port);
/* The text that goes with a failed socket(): LIMIT names the descriptor limit. */
shunt_status_t shunt__boot_socket_error(int err, const char *what);

/* A growing set for poll(). */
struct shunt__boot_polls {
    struct pollfd *fd;
    int n, cap;
};

/* The index of the new entry, or -1 without memory. */
int shunt__boot_polls_add(struct shunt__boot_polls *polls, int fd, short events);
/* Waits at most `ms`; a signal counts as nothing ready. */
void shunt__boot_polls_wait(struct shunt__boot_polls *polls, int ms);
void shunt__boot_polls_free(struct shunt__boot_polls *polls);

#endif
