/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank of the smallest job there is: start, one allreduce, end. For start.t. */
#include <stdio.h>
#include <shunt/coll.h>
#include <shunt/comm.h>

int main(void)
{
    shunt_context_t *ctx;
    shunt_comm_t *comm;
    int32_t mine, sum = 0;

    if (shunt_context_create(NULL, &ctx) != SHUNT_OK || shunt_comm_create_from_env(ctx, &comm) != SHUNT_OK) {
        printf("%s\n", shunt_error_text());
        return 1;
    }
    mine = shunt_comm_rank(comm);
    if (shunt_allreduce(comm, &mine, &sum, 1, SHUNT_INT32, SHUNT_SUM) != SHUNT_OK) {
        printf("%s\n", shunt_error_text());
        return 1;
    }
    printf("%d ranks, sum %d\n", shunt_comm_size(comm), sum);
    shunt_comm_free(comm);
    shunt_context_destroy(ctx);
    return 0;
}
