/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-info: collected facts, then shown as text or JSON. */
#ifndef SHUNT_TOOLS_INFO_H
#define SHUNT_TOOLS_INFO_H

#include <shunt/comm.h>
#include <shunt/info.h>
#include <shunt/topo.h>

enum verdict {
    FINE,
    HURTS, /* works, but worse than it could */
    STOPS  /* Shunt can't run like this */
};

struct check {
    char name[40];
    enum verdict verdict;
    char value[120];
    char text[400]; /* what it means, and what to do when it is not FINE */
};

#define MAX_CHECKS 64

struct checks {
    int n;
    struct check check[MAX_CHECKS];
};

/* Adds one; beyond MAX_CHECKS nothing is added. */
void add_check(struct checks *checks, const char *name, enum verdict verdict, const char *value, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Limits of this process and host. `rdma`: there is an RDMA NIC. */
void check_limits(struct checks *checks, unsigned n_rails, int rdma);
/* The SHUNT_* variables of the environment. */
void check_environment(struct checks *checks);

/* The value that holds now; *from becomes "environment" or "default". */
const char *setting_value(const shunt_setting_t *setting, const char **from);

struct facts {
    int only_settings;
    shunt_host_id_t host;
    int host_known;
    char hostname[256];
    shunt_topo_t *topo;
    shunt_topo_rails_t *rails;
    char rails_error[1024]; /* why there are none */
    struct checks checks;
};

void show_text(const struct facts *facts);
void show_settings(void);
void show_json(const struct facts *facts);

/* Which libnccl.so.2 `command` (NULL: a program that opens it by name) would get with this environment, and why. The exit
 * code: 0 Shunt's, 1 another or none, 2 there is no such command. */
int show_nccl(char **command, int json);

#endif
