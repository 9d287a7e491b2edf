/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA ports from /sys/class/infiniband; the folder is missing on hosts that have none. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/base/log.h"
#include "topo/interfaces.h"

#define MAX_PORTS 4096

/* The first line of a file below the device; "" if there is none. */
static void read_text(const char *base, const char *file, char *text, size_t size)
{
    char path[PATH_MAX];
    int fd;
    ssize_t n = 0;

    *text = 0;
    if (snprintf(path, sizeof(path), "%s/%s", base, file) >= (int)sizeof(path))
        return;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
}

/* "b8ce:f603:00d0:5f6e" */
static uint64_t parse_guid(const char *text)
{
    uint64_t v = 0;

    for (; *text; text++) {
        if (*text == ':')
            continue;
        char hex[2] = {*text, 0};
        v = v << 4 | (strtoul(hex, NULL, 16) & 15);
    }
    return v;
}

/* The PCI address is the last part of what the `device` link leads to. */
static void read_pci(const char *base, char *pci, size_t size)
{
    char path[PATH_MAX], target[PATH_MAX];
    ssize_t n;

    *pci = 0;
    if (snprintf(path, sizeof(path), "%s/device", base) >= (int)sizeof(path))
        return;
    n = readlink(path, target, sizeof(target) - 1);
    if (n <= 0)
        return;
    target[n] = 0;
    const char *last = strrchr(target, '/');
    last = last ? last + 1 : target;
    if (strlen(last) < size)
        memcpy(pci, last, strlen(last) + 1);
}

/* An interface of the device whose dev_port is this port's; IPoIB is found so, and RoCE on older kernels. */
static void find_interface(const char *base, unsigned port, char *interface)
{
    char path[PATH_MAX], file[300], text[64];
    struct dirent *e;
    DIR *d;

    if (snprintf(path, sizeof(path), "%s/device/net", base) >= (int)sizeof(path) || !(d = opendir(path)))
        return;
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.' || strlen(e->d_name) >= IF_NAMESIZE)
            continue;
        snprintf(file, sizeof(file), "device/net/%.15s/dev_port", e->d_name);
        read_text(base, file, text, sizeof(text));
        if (strtoul(text, NULL, 0) + 1 == port || (!*text && port == 1)) {
            snprintf(interface, IF_NAMESIZE, "%.15s", e->d_name);
            break;
        }
    }
    closedir(d);
}

static void read_port(const char *base, struct shunt__rdma_port *p)
{
    char file[128], text[128];

    snprintf(file, sizeof(file), "ports/%u/state", p->port);
    read_text(base, file, text, sizeof(text));
    p->active = strtol(text, NULL, 10) == 4; /* "4: ACTIVE" */
    snprintf(file, sizeof(file), "ports/%u/link_layer", p->port);
    read_text(base, file, text, sizeof(text));
    p->infiniband = strcmp(text, "InfiniBand") == 0;
    snprintf(file, sizeof(file), "ports/%u/rate", p->port);
    read_text(base, file, text, sizeof(text)); /* "200 Gb/sec (4X HDR)" */
    double rate = strtod(text, NULL);
    p->speed = rate > 0 && rate < 1e6 ? (int64_t)(rate * 1000) : 0;
    snprintf(file, sizeof(file), "ports/%u/gid_attrs/ndevs/0", p->port);
    read_text(base, file, text, sizeof(text));
    if (*text && strlen(text) < sizeof(p->interface))
        memcpy(p->interface, text, strlen(text) + 1);
    else
        find_interface(base, p->port, p->interface);
    read_text(base, "node_guid", text, sizeof(text));
    p->guid = parse_guid(text);
    read_text(base, "device/numa_node", text, sizeof(text));
    p->numa = *text ? (int)strtol(text, NULL, 10) : -1;
    read_pci(base, p->pci, sizeof(p->pci));
}

static int by_name(const void *a, const void *b)
{
    const struct shunt__rdma_port *x = a, *y = b;
    int d = shunt__compare_names(x->device, y->device);

    return d ? d : (int)x->port - (int)y->port;
}

shunt_status_t shunt__rdma_read(const char *sysfs, struct shunt__interfaces *out)
{
    char folder[PATH_MAX], base[PATH_MAX], ports[PATH_MAX];
    struct dirent *e, *f;
    DIR *d, *g;

    snprintf(folder, sizeof(folder), "%s/class/infiniband", sysfs);
    d = opendir(folder);
    if (!d)
        return SHUNT_OK;
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof(out->port->device) ||
            snprintf(base, sizeof(base), "%s/%s", folder, e->d_name) >= (int)sizeof(base) ||
            snprintf(ports, sizeof(ports), "%s/ports", base) >= (int)sizeof(ports) || !(g = opendir(ports)))
            continue;
        while ((f = readdir(g))) {
            unsigned long port = strtoul(f->d_name, NULL, 10);
            if (f->d_name[0] == '.' || port < 1 || port > 255 || out->n_ports >= MAX_PORTS)
                continue;
            struct shunt__rdma_port *bigger = realloc(out->port, (out->n_ports + 1) * sizeof(*bigger));
            if (!bigger) {
                closedir(g);
                closedir(d);
                return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the list of RDMA ports");
            }
            out->port = bigger;
            struct shunt__rdma_port *p = &out->port[out->n_ports++];
            memset(p, 0, sizeof(*p));
            memcpy(p->device, e->d_name, strlen(e->d_name) + 1);
            p->port = (unsigned)port;
            read_port(base, p);
        }
        closedir(g);
    }
    closedir(d);
    if (out->n_ports)
        qsort(out->port, out->n_ports, sizeof(*out->port), by_name);
    return SHUNT_OK;
}
