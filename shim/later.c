/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What came after 2.28.9. Programs built against a later version load, and get an error where Shunt has nothing to
 * offer; hints about how a collective should be run are left aside.
 */
#include "shim/shim.h"

#define REFUSE(call, why) return shim__called(shim__fail(ncclInvalidUsage, call ": " why))

ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id)
{
    SHIM_FORWARD(CommGetUniqueId, (comm, id));
    REFUSE("CommGetUniqueId", "not in version 2.28.9, which is what this library announces");
}
SHIM_EXPORT(CommGetUniqueId);

ncclResult_t pncclCommGrow(ncclComm_t comm, int size, const ncclUniqueId *id, int rank, ncclComm_t *out,
                           ncclConfig_t *config)
{
    SHIM_FORWARD(CommGrow, (comm, size, id, rank, out, config));
    REFUSE("CommGrow", "not in version 2.28.9, which is what this library announces");
}
SHIM_EXPORT(CommGrow);

ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags)
{
    SHIM_FORWARD(CommSuspend, (comm, flags));
    REFUSE("CommSuspend", "not in version 2.28.9, which is what this library announces");
}
SHIM_EXPORT(CommSuspend);

ncclResult_t pncclCommResume(ncclComm_t comm)
{
    SHIM_FORWARD(CommResume, (comm));
    REFUSE("CommResume", "not in version 2.28.9, which is what this library announces");
}
SHIM_EXPORT(CommResume);

ncclResult_t pncclCommMemStats(ncclComm_t comm, int what, uint64_t *value)
{
    SHIM_FORWARD(CommMemStats, (comm, what, value));
    REFUSE("CommMemStats", "not in version 2.28.9, which is what this library announces");
}
SHIM_EXPORT(CommMemStats);

ncclResult_t pncclCommQueryProperties(ncclComm_t comm, void *properties)
{
    SHIM_FORWARD(CommQueryProperties, (comm, properties));
    REFUSE("CommQueryProperties", "not in version 2.28.9, which is what this library announces");
}
SHIM_EXPORT(CommQueryProperties);

ncclResult_t pncclPutSignal(const void *send, size_t count, ncclDataType_t type, int peer,
                            ncclWindow_t window, size_t offset, int signal, int context, unsigned int flags,
                            ncclComm_t comm, cudaStream_t stream)
{
    SHIM_FORWARD(PutSignal, (send, count, type, peer, window, offset, signal, context, flags, comm, stream));
    REFUSE("PutSignal", "one-sided operations are not in version 2.28.9, which is what this library announces");
}
SHIM_EXPORT(PutSignal);

ncclResult_t pncclSignal(int peer, int signal, int context, unsigned int flags, ncclComm_t comm,
                         cudaStream_t stream)
{
    SHIM_FORWARD(Signal, (peer, signal, context, flags, comm, stream));
    REFUSE("Signal", "one-sided operations are not in version 2.28.9, which is what this library announces");
}
SHIM_EXPORT(Signal);

ncclResult_t pncclWaitSignal(int n, void *descriptions, ncclComm_t comm, cudaStream_t stream)
{
    SHIM_FORWARD(WaitSignal, (n, descriptions, comm, stream));
    REFUSE("WaitSignal", "one-sided operations are not in version 2.28.9, which is what this library announces");
}
SHIM_EXPORT(WaitSignal);

ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **pointer)
{
    SHIM_FORWARD(GetLsaMultimemDevicePointer, (window, offset, pointer));
    REFUSE("GetLsaMultimemDevicePointer", "Shunt has no device API: kernels can't reach other ranks' memory through it");
}
SHIM_EXPORT(GetLsaMultimemDevicePointer);

ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t handle,
                                           void **pointer)
{
    SHIM_FORWARD(GetMultimemDevicePointer, (window, offset, handle, pointer));
    REFUSE("GetMultimemDevicePointer", "Shunt has no device API: kernels can't reach other ranks' memory through it");
}
SHIM_EXPORT(GetMultimemDevicePointer);

ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int rank, void **pointer)
{
    SHIM_FORWARD(GetLsaDevicePointer, (window, offset, rank, pointer));
    REFUSE("GetLsaDevicePointer", "Shunt has no device API: kernels can't reach other ranks' memory through it");
}
SHIM_EXPORT(GetLsaDevicePointer);

ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **pointer)
{
    SHIM_FORWARD(GetPeerDevicePointer, (window, offset, peer, pointer));
    REFUSE("GetPeerDevicePointer", "Shunt has no device API: kernels can't reach other ranks' memory through it");
}
SHIM_EXPORT(GetPeerDevicePointer);

ncclResult_t pncclGinOutboxCreateRequirement(int n_blocks, int size_log2, void *handle, void *requirement)
{
    SHIM_FORWARD(GinOutboxCreateRequirement, (n_blocks, size_log2, handle, requirement));
    REFUSE("GinOutboxCreateRequirement", "Shunt has no device API: kernels can't reach other ranks' memory through it");
}
SHIM_EXPORT(GinOutboxCreateRequirement);

ncclResult_t pncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int n_blocks, int size_log2, void *handle,
                                               void *requirement)
{
    SHIM_FORWARD(GinInboxA2ACreateRequirement, (peers, n_blocks, size_log2, handle, requirement));
    REFUSE("GinInboxA2ACreateRequirement", "Shunt has no device API: kernels can't reach other ranks' memory through it");
}
SHIM_EXPORT(GinInboxA2ACreateRequirement);

ncclResult_t pncclParamBind(void **handle, const char *key)
{
    SHIM_FORWARD(ParamBind, (handle, key));
    REFUSE("ParamBind", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamBind);

ncclResult_t pncclParamGetI8(void *handle, int8_t *value)
{
    SHIM_FORWARD(ParamGetI8, (handle, value));
    REFUSE("ParamGetI8", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetI8);

ncclResult_t pncclParamGetI16(void *handle, int16_t *value)
{
    SHIM_FORWARD(ParamGetI16, (handle, value));
    REFUSE("ParamGetI16", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetI16);

ncclResult_t pncclParamGetI32(void *handle, int32_t *value)
{
    SHIM_FORWARD(ParamGetI32, (handle, value));
    REFUSE("ParamGetI32", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetI32);

ncclResult_t pncclParamGetI64(void *handle, int64_t *value)
{
    SHIM_FORWARD(ParamGetI64, (handle, value));
    REFUSE("ParamGetI64", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetI64);

ncclResult_t pncclParamGetU8(void *handle, uint8_t *value)
{
    SHIM_FORWARD(ParamGetU8, (handle, value));
    REFUSE("ParamGetU8", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetU8);

ncclResult_t pncclParamGetU16(void *handle, uint16_t *value)
{
    SHIM_FORWARD(ParamGetU16, (handle, value));
    REFUSE("ParamGetU16", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetU16);

ncclResult_t pncclParamGetU32(void *handle, uint32_t *value)
{
    SHIM_FORWARD(ParamGetU32, (handle, value));
    REFUSE("ParamGetU32", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetU32);

ncclResult_t pncclParamGetU64(void *handle, uint64_t *value)
{
    SHIM_FORWARD(ParamGetU64, (handle, value));
    REFUSE("ParamGetU64", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetU64);

ncclResult_t pncclParamGetStr(void *handle, const char **value)
{
    SHIM_FORWARD(ParamGetStr, (handle, value));
    REFUSE("ParamGetStr", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetStr);

ncclResult_t pncclParamGet(void *handle, void *value, int max, int *len)
{
    SHIM_FORWARD(ParamGet, (handle, value, max, len));
    REFUSE("ParamGet", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGet);

ncclResult_t pncclParamGetParameter(const char *key, const char **value, int *len)
{
    SHIM_FORWARD(ParamGetParameter, (key, value, len));
    REFUSE("ParamGetParameter", "NCCL's parameters mean nothing here; shunt-info -e prints the settings of Shunt");
}
SHIM_EXPORT(ParamGetParameter);

ncclResult_t pncclParamGetAllParameterKeys(const char ***keys, int *n)
{
    SHIM_FORWARD(ParamGetAllParameterKeys, (keys, n));
    if (!keys || !n)
        return shim__called(shim__fail(ncclInvalidArgument, "ParamGetAllParameterKeys: a pointer is NULL"));
    *keys = NULL;
    *n = 0;
    return ncclSuccess;
}
SHIM_EXPORT(ParamGetAllParameterKeys);

void pncclParamDumpAll(void)
{
    SHIM_FORWARD(ParamDumpAll, ());
}
SHIM_EXPORT(ParamDumpAll);

ncclResult_t pncclAllReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *hints)
{
    SHIM_FORWARD(AllReduceConfig, (send, recv, count, type, op, comm, stream, hints));
    return pncclAllReduce(send, recv, count, type, op, comm, stream);
}
SHIM_EXPORT(AllReduceConfig);

ncclResult_t pncclBroadcastConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream, const void *hints)
{
    SHIM_FORWARD(BroadcastConfig, (send, recv, count, type, root, comm, stream, hints));
    return pncclBroadcast(send, recv, count, type, root, comm, stream);
}
SHIM_EXPORT(BroadcastConfig);

ncclResult_t pncclReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                               const void *hints)
{
    SHIM_FORWARD(ReduceConfig, (send, recv, count, type, op, root, comm, stream, hints));
    return pncclReduce(send, recv, count, type, op, root, comm, stream);
}
SHIM_EXPORT(ReduceConfig);

ncclResult_t pncclAllGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream, const void *hints)
{
    SHIM_FORWARD(AllGatherConfig, (send, recv, count, type, comm, stream, hints));
    return pncclAllGather(send, recv, count, type, comm, stream);
}
SHIM_EXPORT(AllGatherConfig);

ncclResult_t pncclReduceScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *hints)
{
    SHIM_FORWARD(ReduceScatterConfig, (send, recv, count, type, op, comm, stream, hints));
    return pncclReduceScatter(send, recv, count, type, op, comm, stream);
}
SHIM_EXPORT(ReduceScatterConfig);

ncclResult_t pncclAlltoAllConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                 ncclComm_t comm, cudaStream_t stream, const void *hints)
{
    SHIM_FORWARD(AlltoAllConfig, (send, recv, count, type, comm, stream, hints));
    return pncclAlltoAll(send, recv, count, type, comm, stream);
}
SHIM_EXPORT(AlltoAllConfig);

ncclResult_t pncclGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                               ncclComm_t comm, cudaStream_t stream, const void *hints)
{
    SHIM_FORWARD(GatherConfig, (send, recv, count, type, root, comm, stream, hints));
    return pncclGather(send, recv, count, type, root, comm, stream);
}
SHIM_EXPORT(GatherConfig);

ncclResult_t pncclScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                ncclComm_t comm, cudaStream_t stream, const void *hints)
{
    SHIM_FORWARD(ScatterConfig, (send, recv, count, type, root, comm, stream, hints));
    return pncclScatter(send, recv, count, type, root, comm, stream);
}
SHIM_EXPORT(ScatterConfig);
