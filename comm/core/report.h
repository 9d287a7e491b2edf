/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process says about itself to others: to shunt-status over a local socket, and in a metrics file. */
#ifndef SHUNT_CORE_REPORT_H
#define SHUNT_CORE_REPORT_H

#include <stdint.h>
#include <shunt/status.h>

struct shunt_context;
struct shunt__report;

/* NULL is fine: a process without it works, it only can't be asked. */
struct shunt__report *shunt__report_open(struct shunt_context *ctx);
void shunt__report_close(struct shunt_context *ctx, struct shunt__report *r);
/* From the tick: writes the metrics file when it is due. */
void shunt__report_tick(struct shunt_context *ctx, struct shunt__report *r, uint64_t now);

#endif
