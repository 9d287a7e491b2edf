/* SPDX-License-Identifier: BSD-3-Clause */
/* Handing an id from rank 0 to all through the launcher's PMIx server. One user at a time per process. */
#ifndef SHUNT_BOOT_PMIX_H
#define SHUNT_BOOT_PMIX_H

#include <stdint.h>
#include "comm/boot/boot.h"

/* Whether a launcher with PMIx started this process. Looks at the environment only. */
int shunt__boot_pmix_present(void);
/* Connects to the server. UNSUPPORTED in a build without PMIx. */
shunt_status_t shunt__boot_pmix_open(int *rank, int *size);
/* The n-th meeting of this process goes by another key than the one before it. */
shunt_status_t shunt__boot_pmix_put(unsigned n, const unsigned char id[SHUNT__BOOT_ID_BYTES]);
shunt_status_t shunt__boot_pmix_get(unsigned n, unsigned char id[SHUNT__BOOT_ID_BYTES], uint64_t deadline, const int *stop);
void shunt__boot_pmix_close(void);

#endif
