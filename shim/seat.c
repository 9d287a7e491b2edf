/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context of the engine stands for one rank. A process may hold several ranks of one communicator, and any number of
 * communicators: a rank takes the first context that no rank of the same communicator sits on. Contexts stay open
 * until the process ends; a job that makes and destroys communicators in turn uses the same one again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "shim/shim.h"

struct claim {
    struct claim *next;
    ncclUniqueId id;
};

struct shim__seat {
    struct shim__seat *next;
    shunt_context_t *ctx;
    int users;
    struct claim *claims;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shim__seat *seats;

_Static_assert(sizeof(ncclUniqueId) == sizeof(shunt_id_t), "an id of Shunt travels as an ncclUniqueId");

/* What NCCL's settings mean to the engine, unless Shunt's own are there. The others it reads by itself. */
static int translate(char text[][512], const char **list)
{
    const char *debug = shim__setting("NCCL_DEBUG"), *shm = shim__setting("NCCL_SHM_DISABLE");
    const char *file = shim__setting("NCCL_DEBUG_FILE"), *net = shim__setting("NCCL_NET");
    int n = 0;

    if (debug && !getenv("SHUNT_DEBUG")) {
        const char *level = !strcasecmp(debug, "WARN") ? "warn" : !strcasecmp(debug, "INFO") ? "info"
                            : !strcasecmp(debug, "TRACE") ? "trace" : "";
        snprintf(text[n++], 512, "SHUNT_DEBUG=%s", level);
    }
    if (file && !getenv("SHUNT_DEBUG_FILE"))
        snprintf(text[n++], 512, "SHUNT_DEBUG_FILE=%s", file);
    if (shm && atoi(shm) != 0 && !getenv("SHUNT_SHM"))
        snprintf(text[n++], 512, "SHUNT_SHM=0");
    if (net && !getenv("SHUNT_BACKEND") && (!strcasecmp(net, "Socket") || !strcasecmp(net, "IB")))
        snprintf(text[n++], 512, "SHUNT_BACKEND=%s", !strcasecmp(net, "IB") ? "ucx" : "sock");
    /* NCCL's ranks wait for each other without end: a rank may still be compiling its model. */
    if (!getenv("SHUNT_BOOTSTRAP_TIMEOUT"))
        snprintf(text[n++], 512, "SHUNT_BOOTSTRAP_TIMEOUT=300s");
    for (int i = 0; i < n; i++)
        list[i] = text[i];
    list[n] = NULL;
    return n;
}

/* Under the lock. */
static struct shim__seat *open_seat(void)
{
    const struct shim__engine *engine = shim__engine();
    struct shim__seat *seat, **end = &seats;
    shunt_context_params_t params = {.size = sizeof(params)};
    char text[8][512];
    const char *list[9];

    if (!engine)
        return NULL;
    seat = calloc(1, sizeof(*seat));
    if (!seat) {
        shim__fail(ncclSystemError, "no memory for a context");
        return NULL;
    }
    translate(text, list);
    params.settings = list;
    if (engine->context_create(&params, &seat->ctx) != SHUNT_OK) {
        shim__fail(ncclSystemError, "opening the rails: %s", engine->error_text());
        free(seat);
        return NULL;
    }
    while (*end)
        end = &(*end)->next;
    *end = seat;
    return seat;
}

static int claimed(const struct shim__seat *seat, const ncclUniqueId *id)
{
    for (const struct claim *c = seat->claims; c; c = c->next)
        if (memcmp(&c->id, id, sizeof(*id)) == 0)
            return 1;
    return 0;
}

static ncclResult_t claim(struct shim__seat *seat, const ncclUniqueId *id)
{
    struct claim *c = malloc(sizeof(*c));

    if (!c)
        return shim__fail(ncclSystemError, "no memory for a context");
    c->id = *id;
    c->next = seat->claims;
    seat->claims = c;
    seat->users++;
    return ncclSuccess;
}

ncclResult_t shim__seat_take(const ncclUniqueId *id, struct shim__seat **out)
{
    struct shim__seat *seat;
    ncclResult_t result = ncclSystemError;

    pthread_mutex_lock(&lock);
    for (seat = seats; seat && claimed(seat, id); seat = seat->next)
        ;
    if (!seat)
        seat = open_seat();
    if (seat)
        result = claim(seat, id);
    pthread_mutex_unlock(&lock);
    if (result == ncclSuccess)
        *out = seat;
    return result;
}

ncclResult_t shim__seat_claim(struct shim__seat *seat, const ncclUniqueId *id)
{
    ncclResult_t result;

    pthread_mutex_lock(&lock);
    if (claimed(seat, id))
        result = shim__fail(ncclInvalidUsage, "a rank of this communicator was called twice with one id");
    else
        result = claim(seat, id);
    pthread_mutex_unlock(&lock);
    return result;
}

void shim__seat_hold(struct shim__seat *seat)
{
    pthread_mutex_lock(&lock);
    seat->users++;
    pthread_mutex_unlock(&lock);
}

void shim__seat_release(struct shim__seat *seat, const ncclUniqueId *id)
{
    pthread_mutex_lock(&lock);
    for (struct claim **at = &seat->claims; *at; at = &(*at)->next)
        if (memcmp(&(*at)->id, id, sizeof(*id)) == 0) {
            struct claim *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    seat->users--;
    pthread_mutex_unlock(&lock);
}

shunt_context_t *shim__seat_context(struct shim__seat *seat)
{
    return seat->ctx;
}

ncclResult_t shim__unique_id(ncclUniqueId *id)
{
    struct shim__seat *seat;
    shunt_id_t made;
    shunt_status_t status;

    pthread_mutex_lock(&lock);
    seat = seats ? seats : open_seat();
    pthread_mutex_unlock(&lock);
    if (!seat)
        return ncclSystemError;
    status = shim__engine()->id_create(seat->ctx, &made);
    if (status != SHUNT_OK)
        return shim__fail_engine(status, "GetUniqueId");
    memcpy(id, &made, sizeof(*id));
    return ncclSuccess;
}

ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
    SHIM_FORWARD(GetUniqueId, (id));
    if (!id)
        return shim__fail(ncclInvalidArgument, "GetUniqueId: the pointer is NULL");
    return shim__unique_id(id);
}
SHIM_EXPORT(GetUniqueId);
