/* SPDX-License-Identifier: BSD-3-Clause */
/* The modes beside host mode, asked in the order of the table. */
#include "shim/shim.h"

static const struct shim__mode *const modes[] = {NULL};

/* Of several results the last error wins; ncclInProgress only if there is none. */
static void add(ncclResult_t *last, ncclResult_t result)
{
    if (result != ncclSuccess && (result != ncclInProgress || *last == ncclSuccess))
        *last = result;
}

ncclResult_t shim__modes_made(struct ncclComm *comm, struct ncclComm *parent)
{
    ncclResult_t result = ncclSuccess;

    for (int i = 0; modes[i] && result == ncclSuccess; i++)
        if (modes[i]->made)
            result = modes[i]->made(comm, parent);
    return result;
}

ncclResult_t shim__modes_start(struct shim__task *tasks)
{
    ncclResult_t last = ncclSuccess;

    for (int i = 0; modes[i]; i++)
        if (modes[i]->start)
            add(&last, modes[i]->start(tasks));
    return last;
}

ncclResult_t shim__modes_poll(struct ncclComm *comm)
{
    ncclResult_t last = ncclSuccess;

    for (int i = 0; modes[i]; i++)
        if (modes[i]->poll)
            add(&last, modes[i]->poll(comm));
    return last;
}

ncclResult_t shim__modes_drain(struct ncclComm *comm)
{
    ncclResult_t last = ncclSuccess;

    for (int i = 0; modes[i]; i++)
        if (modes[i]->drain)
            add(&last, modes[i]->drain(comm));
    return last;
}

void shim__modes_stop(struct ncclComm *comm)
{
    for (int i = 0; modes[i]; i++)
        if (modes[i]->stop)
            modes[i]->stop(comm);
}

void shim__modes_gone(struct ncclComm *comm)
{
    for (int i = 0; modes[i]; i++)
        if (modes[i]->gone)
            modes[i]->gone(comm);
}
