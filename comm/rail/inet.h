/* SPDX-License-Identifier: BSD-3-Clause */
/* IP addresses of rails: text to socket address, a form that travels, and who shares a subnet. */
#ifndef SHUNT_RAIL_INET_H
#define SHUNT_RAIL_INET_H

#include <net/if.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <shunt/status.h>

#define SHUNT__INET_WIRE 24  /* bytes of an address on the wire */
#define SHUNT__INET_NAME 72  /* bytes for "[fe80::1%eth0]:65535" and its like */

/* Parses "10.1.0.2", "fd00::1" or "fe80::1%eth1"; a link-local address without a zone gets that of `device`. */
shunt_status_t shunt__inet_parse(const char *ip, const char *device, struct sockaddr_storage *address);
socklen_t shunt__inet_size(const struct sockaddr_storage *address);
uint16_t shunt__inet_port(const struct sockaddr_storage *address);
void shunt__inet_set_port(struct sockaddr_storage *address, uint16_t port);
/* Nonzero when `device` is an RDMA device, as "mlx5_0" or "mlx5_0:1". */
int shunt__inet_is_rdma(const char *device);
/* The network interface behind an RDMA device; any other name stands for itself. Nonzero if there is none. */
int shunt__inet_interface(const char *device, char name[IF_NAMESIZE]);
/* Whether the port of an RDMA device is in the state ACTIVE. */
int shunt__inet_port_active(const char *device);
/* The first usable address of a device, IPv4 before IPv6; an RDMA device has its network interface's. NOT_FOUND if
 * there is none. */
shunt_status_t shunt__inet_of_device(const char *device, struct sockaddr_storage *address);
/* Length of the subnet prefix under which this machine has `address`; -1: it does not have it now. */
int shunt__inet_prefix(const struct sockaddr_storage *address);
/* 2: same subnet of that many bits, 1: routable, 0: no way (families differ, or one is loopback or link-local). */
int shunt__inet_reach(const struct sockaddr_storage *from, int prefix, const struct sockaddr_storage *to);
/* To and from SHUNT__INET_WIRE bytes. Unpacking gives nonzero for what is no address; `device` gives the zone. */
void shunt__inet_pack(const struct sockaddr_storage *address, uint8_t wire[SHUNT__INET_WIRE]);
int shunt__inet_unpack(const void *wire, size_t len, const char *device, struct sockaddr_storage *address);
/* "10.1.0.2:4711" into `text` of SHUNT__INET_NAME bytes; gives `text`. */
const char *shunt__inet_name(const struct sockaddr_storage *address, char *text);

#endif
