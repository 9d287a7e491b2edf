/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory. In host mode all memory is fit for every operation: MemAlloc gives pages of the host, registration has
 * nothing to do, and a window is a range that is remembered.
 */
#include <stdlib.h>
#include <string.h>
#include "shim/shim.h"

#define HANDLE_MAGIC 0x73686e7472656769ull

struct handle {
    struct handle *next;
    uint64_t magic;
    struct ncclComm *comm;
    void *buffer;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;

static struct handle *add(struct ncclComm *comm, void *buffer, size_t bytes)
{
    struct handle *h = calloc(1, sizeof(*h));

    if (!h)
        return NULL;
    *h = (struct handle){.magic = HANDLE_MAGIC, .comm = comm, .buffer = buffer, .bytes = bytes};
    pthread_mutex_lock(&lock);
    h->next = handles;
    handles = h;
    pthread_mutex_unlock(&lock);
    return h;
}

/* Takes it out of the list if it is there. Handles are looked up, never followed: they come from outside. */
static int take(const void *handle)
{
    int found = 0;

    pthread_mutex_lock(&lock);
    for (struct handle **at = &handles; *at && !found; at = found ? at : &(*at)->next)
        if ((void *)*at == handle) {
            struct handle *gone = *at;
            *at = gone->next;
            free(gone);
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static ncclResult_t enroll(struct ncclComm *comm, void *buffer, size_t bytes, void **out, const char *call)
{
    ncclResult_t result = shim__comm_enter(comm, 0);
    struct handle *h;

    if (result != ncclSuccess)
        return shim__called(result);
    h = out && buffer && bytes ? add(comm, buffer, bytes) : NULL;
    shim__comm_leave(comm);
    if (!h)
        return shim__called(shim__fail(ncclInvalidArgument, "%s: a pointer is NULL, or the size is 0", call));
    *out = h;
    return ncclSuccess;
}

ncclResult_t pncclMemAlloc(void **pointer, size_t bytes)
{
    void *made = NULL;

    SHIM_FORWARD(MemAlloc, (pointer, bytes));
    if (!pointer || !bytes)
        return shim__fail(ncclInvalidArgument, "MemAlloc: the pointer is NULL, or the size is 0");
    if (bytes > SIZE_MAX / 2 || posix_memalign(&made, 4096, (bytes + 4095) & ~(size_t)4095) != 0)
        return shim__fail(ncclSystemError, "MemAlloc: no memory for %zu bytes", bytes);
    *pointer = made;
    return ncclSuccess;
}
SHIM_EXPORT(MemAlloc);

ncclResult_t pncclMemFree(void *pointer)
{
    SHIM_FORWARD(MemFree, (pointer));
    free(pointer);
    return ncclSuccess;
}
SHIM_EXPORT(MemFree);

ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    SHIM_FORWARD(CommRegister, (comm, buffer, bytes, handle));
    return enroll(comm, buffer, bytes, handle, "CommRegister");
}
SHIM_EXPORT(CommRegister);

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    ncclResult_t result;

    SHIM_FORWARD(CommDeregister, (comm, handle));
    result = shim__comm_enter(comm, SHIM_ANY);
    if (result != ncclSuccess)
        return shim__called(result);
    if (handle && !take(handle))
        result = shim__fail(ncclInvalidArgument, "CommDeregister: %p is no handle of CommRegister", handle);
    shim__comm_leave(comm);
    return shim__called(result);
}
SHIM_EXPORT(CommDeregister);

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags)
{
    SHIM_FORWARD(CommWindowRegister, (comm, buffer, bytes, window, flags));
    return enroll(comm, buffer, bytes, (void **)window, "CommWindowRegister");
}
SHIM_EXPORT(CommWindowRegister);

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    ncclResult_t result;

    SHIM_FORWARD(CommWindowDeregister, (comm, window));
    result = shim__comm_enter(comm, SHIM_ANY);
    if (result != ncclSuccess)
        return shim__called(result);
    if (window && !take(window))
        result = shim__fail(ncclInvalidArgument, "CommWindowDeregister: %p is no window", (void *)window);
    shim__comm_leave(comm);
    return shim__called(result);
}
SHIM_EXPORT(CommWindowDeregister);

ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **pointer)
{
    ncclResult_t result;
    void *found = NULL;

    SHIM_FORWARD(WinGetUserPtr, (comm, window, pointer));
    result = shim__comm_enter(comm, SHIM_ANY);
    if (result != ncclSuccess)
        return shim__called(result);
    pthread_mutex_lock(&lock);
    for (struct handle *h = handles; h; h = h->next)
        if ((void *)h == (void *)window)
            found = h->buffer;
    pthread_mutex_unlock(&lock);
    shim__comm_leave(comm);
    if (!pointer || !found)
        return shim__called(shim__fail(ncclInvalidArgument, "WinGetUserPtr: %p is no window", (void *)window));
    *pointer = found;
    return ncclSuccess;
}
SHIM_EXPORT(WinGetUserPtr);
