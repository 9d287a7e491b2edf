/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binary interface of NCCL 2.28.9 in declarations of our own: the numbers and sizes that programs were compiled
 * with. tests/shim/abi.t compares them with the nccl.h of a CUDA toolkit where it finds one.
 */
#ifndef SHUNT_SHIM_ABI_H
#define SHUNT_SHIM_ABI_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHIM_VERSION 22809

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct CUstream_st *cudaStream_t;

/* 128 bytes, passed by value: on the stack. */
typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress,
    ncclNumResults
} ncclResult_t;

typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps, ncclMaxRedOp = 0x7fffffff } ncclRedOp_t;

typedef enum {
    ncclInt8,
    ncclUint8,
    ncclInt32,
    ncclUint32,
    ncclInt64,
    ncclUint64,
    ncclFloat16,
    ncclFloat32,
    ncclFloat64,
    ncclBfloat16,
    ncclFloat8e4m3,
    ncclFloat8e5m2,
    ncclNumTypes
} ncclDataType_t;

typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_SHRINK_ABORT 1
#define SHIM_CONFIG_MAGIC 0xcafebeefu
#define SHIM_SIM_MAGIC 0x74685283u

/*
 * A caller's `size` says how far its version goes: 24 bytes in 2.14, 40 in 2.17, 48 in 2.18, 72 in 2.27, 80 in 2.28,
 * 88 in 2.29, 96 in 2.30. What lies beyond is unset: INT_MIN or NULL.
 */
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
} ncclConfig_t;

typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime;
} ncclSimInfo_t;

/* The device API: only what crosses the border by value has a shape here. */
typedef struct ncclTeam {
    int nRanks, rank, stride;
} ncclTeam_t;
typedef struct ncclMultimemHandle {
    void *mcBasePtr;
} ncclMultimemHandle_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;

#define NCCL(type, name, arguments) \
    __attribute__((visibility("default"))) type pnccl##name arguments; \
    __attribute__((visibility("default"))) type nccl##name arguments;
#include "shim/functions.def"
#include "shim/functions-device.def"
#include "shim/functions-later.def"
#undef NCCL

/* Behind the definition of pnccl<name>: gives it its second name, weak as in NCCL. */
#define SHIM_EXPORT(name) \
    extern __typeof__(pnccl##name) nccl##name __attribute__((weak, alias("pnccl" #name), visibility("default")))

#endif
