/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What host mode makes of CUDA. A process that has not loaded the driver has no device memory and no streams; the
 * stream argument is ignored then. In one that has, operations on host memory wait for the earlier work of their
 * stream, and as they are complete when the call returns, later work comes after them. Device memory is refused.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include "shim/shim.h"

/* Of the driver's interface, as far as it is asked. */
enum { CUDA_OK = 0, NOT_INITIALIZED = 3, NO_CONTEXT = 201, ATTRIBUTE_MEMORY_TYPE = 2, ATTRIBUTE_IS_MANAGED = 8,
       MEMORY_TYPE_DEVICE = 2 };

typedef int pointer_attribute_fn(void *value, int attribute, uint64_t pointer);
typedef int stream_synchronize_fn(cudaStream_t stream);

static pointer_attribute_fn *pointer_attribute;
static stream_synchronize_fn *stream_synchronize;

static int count_loaded(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(unsigned long long *)arg = info->dlpi_adds;
    return 1;
}

/* The driver may be loaded at any time, so that its absence is remembered until another library has been loaded: asking
 * the dynamic linker for one that isn't there takes it 20 us. */
static int find_driver(void)
{
    static unsigned long long absent_at;
    unsigned long long loaded = 0;
    void *driver;

    if (__atomic_load_n(&stream_synchronize, __ATOMIC_ACQUIRE))
        return 1;
    dl_iterate_phdr(count_loaded, &loaded);
    if (loaded && loaded == __atomic_load_n(&absent_at, __ATOMIC_RELAXED))
        return 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) {
        __atomic_store_n(&absent_at, loaded, __ATOMIC_RELAXED);
        return 0;
    }
    pointer_attribute = (pointer_attribute_fn *)dlsym(driver, "cuPointerGetAttribute");
    __atomic_store_n(&stream_synchronize, (stream_synchronize_fn *)dlsym(driver, "cuStreamSynchronize"),
                     __ATOMIC_RELEASE);
    dlclose(driver);
    return pointer_attribute && stream_synchronize;
}

static int on_device(const void *pointer)
{
    unsigned type = 0, managed = 0;

    return pointer &&
           pointer_attribute(&type, ATTRIBUTE_MEMORY_TYPE, (uint64_t)(uintptr_t)pointer) == CUDA_OK &&
           type == MEMORY_TYPE_DEVICE &&
           !(pointer_attribute(&managed, ATTRIBUTE_IS_MANAGED, (uint64_t)(uintptr_t)pointer) == CUDA_OK && managed);
}

ncclResult_t shim__cuda_check(const void *const *pointers, int n, cudaStream_t stream)
{
    int error;

    if (!find_driver())
        return ncclSuccess;
    for (int i = 0; i < n; i++)
        if (on_device(pointers[i]))
            return shim__fail(ncclInvalidUsage, "%p is device memory, which this build of Shunt's libnccl.so.2 can't "
                              "send: it serves host memory alone. SHUNT_NCCL=off hands all calls to NVIDIA's NCCL",
                              pointers[i]);
    error = stream_synchronize(stream);
    if (error != CUDA_OK && error != NOT_INITIALIZED && error != NO_CONTEXT)
        return shim__fail(ncclUnhandledCudaError, "the stream %p can't be waited for (CUDA error %d); operations can't "
                          "be captured into a graph", (void *)stream, error);
    return ncclSuccess;
}
