/* SPDX-License-Identifier: BSD-3-Clause */
/* The live host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/base/log.h"
#include "topo/interfaces.h"

shunt_status_t shunt_topo_load_live(int nics_only, shunt_topo_t **topo)
{
    struct shunt__interfaces in;
    shunt_topo_t *t;
    char host[256] = "";
    shunt_status_t st;

    if (!topo)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_load_live: topo is NULL");
    st = shunt__interfaces_read("/sys", &in);
    if (st != SHUNT_OK)
        return st;
    st = shunt__topo_new("live", &t);
    if (st == SHUNT_OK) {
        gethostname(host, sizeof(host) - 1);
        t->host_name = shunt__arena_text(&t->arena, host, sizeof(host));
        shunt_host_id(&t->host_id);
        shunt__nics_add(t, &in, NULL, NULL);
        st = shunt__topo_finish(&t);
    }
    shunt__interfaces_free(&in);
    if (st == SHUNT_OK)
        *topo = t;
    return st;
}
