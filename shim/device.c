/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host side of the device API. Kernels can't reach other ranks' memory through Shunt: what would prepare that is
 * refused; the questions about teams have true answers (a rank alone shares load and store with nobody but itself).
 */
#include "shim/shim.h"

#define REFUSE(call) \
    return shim__called(shim__fail(ncclInvalidUsage, call ": Shunt has no device API: kernels can't reach other ranks' " \
                                   "memory through it"))

ncclResult_t pncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t *requirements, ncclDevComm_t *device_comm)
{
    SHIM_FORWARD(DevCommCreate, (comm, requirements, device_comm));
    REFUSE("DevCommCreate");
}
SHIM_EXPORT(DevCommCreate);

ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t *device_comm)
{
    SHIM_FORWARD(DevCommDestroy, (comm, device_comm));
    REFUSE("DevCommDestroy");
}
SHIM_EXPORT(DevCommDestroy);

ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t team, int n, ncclLsaBarrierHandle_t *handle,
                                              ncclDevResourceRequirements_t *requirement)
{
    SHIM_FORWARD(LsaBarrierCreateRequirement, (team, n, handle, requirement));
    REFUSE("LsaBarrierCreateRequirement");
}
SHIM_EXPORT(LsaBarrierCreateRequirement);

ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int n, ncclGinBarrierHandle_t *handle,
                                              ncclDevResourceRequirements_t *requirement)
{
    SHIM_FORWARD(GinBarrierCreateRequirement, (comm, team, n, handle, requirement));
    REFUSE("GinBarrierCreateRequirement");
}
SHIM_EXPORT(GinBarrierCreateRequirement);

ncclResult_t pncclLLA2ACreateRequirement(int n_blocks, int n_slots, ncclLLA2AHandle_t *handle,
                                         ncclDevResourceRequirements_t *requirement)
{
    SHIM_FORWARD(LLA2ACreateRequirement, (n_blocks, n_slots, handle, requirement));
    REFUSE("LLA2ACreateRequirement");
}
SHIM_EXPORT(LLA2ACreateRequirement);

int pncclLLA2ACalcSlots(int max_elements, int max_element_size)
{
    SHIM_FORWARD(LLA2ACalcSlots, (max_elements, max_element_size));
    shim__fail(ncclInvalidUsage, "LLA2ACalcSlots: Shunt has no device API");
    return 0;
}
SHIM_EXPORT(LLA2ACalcSlots);

/* { ranks, own rank, stride } of the world, or of this rank alone. */
static ncclTeam_t team(struct ncclComm *comm, int world)
{
    ncclTeam_t made = {0, 0, 0};

    if (shim__comm_enter(comm, 0) == ncclSuccess) {
        made = world ? (ncclTeam_t){comm->size, comm->rank, 1} : (ncclTeam_t){1, 0, 1};
        shim__comm_leave(comm);
    }
    return made;
}

ncclTeam_t pncclTeamWorld(ncclComm_t comm)
{
    SHIM_FORWARD(TeamWorld, (comm));
    return team(comm, 1);
}
SHIM_EXPORT(TeamWorld);

ncclTeam_t pncclTeamLsa(ncclComm_t comm)
{
    SHIM_FORWARD(TeamLsa, (comm));
    return team(comm, 0);
}
SHIM_EXPORT(TeamLsa);

ncclTeam_t pncclTeamRail(ncclComm_t comm)
{
    SHIM_FORWARD(TeamRail, (comm));
    return team(comm, 1);
}
SHIM_EXPORT(TeamRail);

int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t of, int rank)
{
    ncclTeam_t world;

    SHIM_FORWARD(TeamRankToWorld, (comm, of, rank));
    world = team(comm, 1);
    return world.rank + (rank - of.rank) * of.stride;
}
SHIM_EXPORT(TeamRankToWorld);

/* The rank's own is the only one in reach: -1 for every other. */
int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t of, int rank)
{
    SHIM_FORWARD(TeamRankToLsa, (comm, of, rank));
    (void)comm;
    return rank == of.rank ? 0 : -1;
}
SHIM_EXPORT(TeamRankToLsa);
