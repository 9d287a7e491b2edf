/* SPDX-License-Identifier: BSD-3-Clause */
/* Result codes, and the text of the last error. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shim/shim.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[SHIM_TEXT]; /* of any thread */

static void make_key(void)
{
    pthread_key_create(&key, free);
}

/* A key and not a thread-local variable: those need a symbol of the loader, and room in every thread. */
struct shim__thread *shim__thread(void)
{
    struct shim__thread *t;

    pthread_once(&once, make_key);
    t = pthread_getspecific(key);
    if (!t && (t = calloc(1, sizeof(*t)))) {
        t->end = &t->first;
        pthread_setspecific(key, t);
    }
    return t;
}

ncclResult_t shim__fail(ncclResult_t result, const char *fmt, ...)
{
    struct shim__thread *t = shim__thread();
    char text[SHIM_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (t)
        memcpy(t->text, text, sizeof(text));
    pthread_mutex_lock(&lock);
    memcpy(last, text, sizeof(text));
    pthread_mutex_unlock(&lock);
    return result;
}

ncclResult_t shim__result_of(shunt_status_t status)
{
    switch (status) {
    case SHUNT_OK:
        return ncclSuccess;
    case SHUNT_IN_PROGRESS:
        return ncclInProgress;
    case SHUNT_ERR_INVALID:
    case SHUNT_ERR_NOT_FOUND:
        return ncclInvalidArgument;
    case SHUNT_ERR_TRUNCATED:
    case SHUNT_ERR_MISMATCH:
    case SHUNT_ERR_UNSUPPORTED:
    case SHUNT_ERR_FORMAT:
    case SHUNT_ERR_AUTH:
    case SHUNT_ERR_VERSION:
        return ncclInvalidUsage;
    case SHUNT_ERR_PEER:
    case SHUNT_ERR_TIMEOUT:
    case SHUNT_ERR_RAIL:
    case SHUNT_ERR_REVOKED:
    case SHUNT_ERR_ABORTED:
    case SHUNT_ERR_EXCLUDED:
    case SHUNT_ERR_CANCELED:
        return ncclRemoteError;
    case SHUNT_ERR_NO_MEMORY:
    case SHUNT_ERR_LIMIT:
    case SHUNT_ERR_PERMISSION:
    case SHUNT_ERR_SYSTEM:
        return ncclSystemError;
    default:
        return ncclInternalError;
    }
}

ncclResult_t shim__fail_engine(shunt_status_t status, const char *what)
{
    return shim__fail(shim__result_of(status), "%s: %s", what, shim__engine()->error_text());
}

const char *shim__last_text(void)
{
    struct shim__thread *t = shim__thread();

    if (!t)
        return "no memory";
    if (t->text[0]) {
        memcpy(t->shown, t->text, SHIM_TEXT);
    } else {
        pthread_mutex_lock(&lock);
        memcpy(t->shown, last, SHIM_TEXT);
        pthread_mutex_unlock(&lock);
    }
    return t->shown;
}

const char *pncclGetErrorString(ncclResult_t result)
{
    SHIM_FORWARD(GetErrorString, (result));
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "a CUDA call failed";
    case ncclSystemError:
        return "a system call or a library failed";
    case ncclInternalError:
        return "internal error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "another rank died, left or can't be reached";
    case ncclInProgress:
        return "in progress";
    default:
        return "unknown result code";
    }
}
SHIM_EXPORT(GetErrorString);

const char *pncclGetLastError(ncclComm_t comm)
{
    struct shim__thread *t;
    int known = 0;

    SHIM_FORWARD(GetLastError, (comm));
    t = shim__thread();
    if (comm && t && shim__comm_enter(comm, SHIM_ANY | SHIM_QUIET) == ncclSuccess) {
        pthread_mutex_lock(&comm->lock);
        known = comm->failed != ncclSuccess && comm->why[0];
        if (known)
            memcpy(t->shown, comm->why, SHIM_TEXT);
        pthread_mutex_unlock(&comm->lock);
        shim__comm_leave(comm);
    }
    return known ? t->shown : shim__last_text();
}
SHIM_EXPORT(GetLastError);

ncclResult_t pncclGetVersion(int *version)
{
    SHIM_FORWARD(GetVersion, (version));
    if (!version)
        return shim__fail(ncclInvalidArgument, "GetVersion: the pointer is NULL");
    *version = SHIM_VERSION;
    return ncclSuccess;
}
SHIM_EXPORT(GetVersion);

void pncclResetDebugInit(void)
{
    SHIM_FORWARD(ResetDebugInit, ());
}
SHIM_EXPORT(ResetDebugInit);
