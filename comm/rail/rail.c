/* SPDX-License-Identifier: BSD-3-Clause */
/* What all rails share: the list of backends, sealing and checking of headers, the port range. */
#include "comm/rail/rail.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/crc32c.h"
#include "comm/base/log.h"
#include "comm/rail/loop.h"
#include "comm/rail/shm.h"
#include "comm/rail/sock.h"
#include "config.h"
#ifdef HAVE_OFI
#include "comm/rail/ofi.h"
#endif
#ifdef HAVE_UCX
#include "comm/rail/ucx.h"
#endif

void shunt__rail_init(struct shunt__rail *rail, const struct shunt__rail_ops *ops, const struct shunt__rail_params *p,
                      unsigned caps, uint32_t chunk)
{
    rail->ops = ops;
    rail->caps = caps;
    rail->chunk = chunk;
    rail->params = *p;
    snprintf(rail->device_copy, sizeof(rail->device_copy), "%s", p->device ? p->device : "");
    snprintf(rail->ip_copy, sizeof(rail->ip_copy), "%s", p->ip ? p->ip : "");
    rail->params.device = rail->device_copy;
    rail->params.ip = rail->ip_copy;
    snprintf(rail->name, sizeof(rail->name), "%s%s%.50s", ops->name, *rail->device_copy ? ":" : "", rail->device_copy);
}

void shunt__frame_seal(const struct shunt__rail *rail, const struct shunt__link *link, struct shunt__frame *frame,
                       const void *payload)
{
    frame->magic = SHUNT__FRAME_MAGIC;
    frame->version = SHUNT__WIRE_VERSION;
    frame->generation = link ? link->generation : 0;
    frame->header_crc = 0;
    if (rail->caps & SHUNT__RAIL_CHECKED)
        return;
    if (!(frame->flags & SHUNT__FRAME_CRC) && frame->length && shunt__config_int(rail->params.config, SHUNT__CRC)) {
        frame->payload_crc = shunt__crc32c(0, payload, frame->length);
        frame->flags |= SHUNT__FRAME_CRC;
    }
    frame->header_crc = shunt__crc32c(0, frame, sizeof(*frame));
}

int shunt__frame_valid(const struct shunt__rail *rail, const struct shunt__frame *frame)
{
    struct shunt__frame copy;

    if (frame->magic != SHUNT__FRAME_MAGIC || frame->version != SHUNT__WIRE_VERSION || frame->type == 0 ||
        frame->type >= SHUNT__FRAME_TYPES || frame->length > SHUNT__FRAME_PAYLOAD_MAX)
        return 0;
    if ((frame->type == SHUNT__FRAME_HELLO || frame->type == SHUNT__FRAME_WELCOME) &&
        frame->length > SHUNT__HELLO_MAX)
        return 0;
    if (rail->caps & SHUNT__RAIL_CHECKED)
        return 1;
    copy = *frame;
    copy.header_crc = 0;
    return shunt__crc32c(0, &copy, sizeof(copy)) == frame->header_crc;
}

shunt_status_t shunt__port_range(const struct shunt__config *config, uint16_t *first, uint16_t *last)
{
    const char *text = shunt__config_str(config, SHUNT__PORT_RANGE);
    unsigned a, b;
    char rest;

    if (!*text) {
        *first = *last = 0;
        return SHUNT_OK;
    }
    if (sscanf(text, "%u-%u%c", &a, &b, &rest) != 2 || a < 1 || b > 65535 || a > b)
        return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_PORT_RANGE=%s: expected FIRST-LAST with 1 <= FIRST <= LAST <= 65535",
                           text);
    *first = (uint16_t)a;
    *last = (uint16_t)b;
    return SHUNT_OK;
}

const struct shunt__rail_ops *shunt__rail_backend(const char *name)
{
    for (int i = 0; shunt__rail_backends[i]; i++)
        if (strcmp(shunt__rail_backends[i]->name, name) == 0)
            return shunt__rail_backends[i];
    return NULL;
}

const struct shunt__rail_ops *const shunt__rail_backends[] = {
    &shunt__sock_ops,
    &shunt__shm_ops,
    &shunt__loop_ops,
#ifdef HAVE_UCX
    &shunt__ucx_ops,
#endif
#ifdef HAVE_OFI
    &shunt__ofi_ops,
#endif
    NULL,
};
