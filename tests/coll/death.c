/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Four processes repeat a collective; one kills itself in the middle of it. The others' calls end with PEER and name the
 * dead rank, further collectives are refused with the same reason, and after a shrink the next one is right.
 * Each process is one rank; they meet through a file.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shunt/coll.h>
#include <shunt/p2p.h>
#include "tests/tap.h"

#define RANKS 4
#define VICTIM 2
#define COUNT 300000

static float a[COUNT], b[COUNT];

static int complain(int rank, const char *what, shunt_status_t st)
{
    printf("# rank %d: %s: %s: %s\n", rank, what, shunt_status_name(st), shunt_error_text());
    fflush(stdout);
    return 1;
}

static shunt_status_t start(shunt_comm_t *comm, int kind, shunt_request_t **req)
{
    switch (kind) {
    case 0:
        return shunt_iallreduce(comm, a, b, COUNT, SHUNT_FLOAT32, SHUNT_SUM, req);
    case 1:
        return shunt_ibroadcast(comm, a, b, COUNT, SHUNT_FLOAT32, VICTIM, req);
    case 2:
        return shunt_ialltoall(comm, a, b, COUNT / RANKS, SHUNT_FLOAT32, req);
    default:
        return shunt_ibarrier(comm, req);
    }
}

static int rank_main(int rank, int kind, const char *file)
{
    char settings[3][160];
    const char *set[4] = {settings[0], settings[1], settings[2], NULL};
    shunt_context_params_t params = {.size = sizeof(params), .settings = set};
    shunt_comm_t *comm, *left;
    shunt_context_t *ctx;
    shunt_status_t st;
    char text[64];

    snprintf(settings[0], sizeof(settings[0]), "SHUNT_ID_FILE=%s", file);
    snprintf(settings[1], sizeof(settings[1]), "SHUNT_PEER_TIMEOUT=20s");
    snprintf(settings[2], sizeof(settings[2]), "SHUNT_RAILS=lo");
    snprintf(text, sizeof(text), "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof(text), "%d", RANKS);
    setenv("WORLD_SIZE", text, 1);
    if ((st = shunt_context_create(&params, &ctx)) != SHUNT_OK)
        return complain(rank, "context", st);
    if ((st = shunt_comm_create_from_env(ctx, &comm)) != SHUNT_OK)
        return complain(rank, "communicator", st);
    for (int i = 0; st == SHUNT_OK; i++) {
        shunt_request_t *req = NULL;

        st = start(comm, kind, &req);
        if (rank == VICTIM && i == 20)
            kill(getpid(), SIGKILL);
        if (st == SHUNT_OK)
            st = shunt_wait(&req, NULL);
    }
    /* Whoever learned of it first may have begun to shrink, which ends the others' calls as revoked. */
    if (!(st == SHUNT_ERR_PEER && strstr(shunt_error_text(), "rank 2")) && st != SHUNT_ERR_REVOKED)
        return complain(rank, "not told of rank 2's death", st);
    st = shunt_barrier(comm);
    if (st != SHUNT_ERR_PEER && st != SHUNT_ERR_REVOKED)
        return complain(rank, "the next one", st);
    if ((st = shunt_comm_shrink(comm, NULL, 0, &left)) != SHUNT_OK)
        return complain(rank, "shrink", st);
    for (int i = 0; i < COUNT; i++)
        a[i] = (float)(i % 7 + shunt_comm_rank(left));
    if ((st = shunt_allreduce(left, a, b, COUNT, SHUNT_FLOAT32, SHUNT_SUM)) != SHUNT_OK)
        return complain(rank, "after the shrink", st);
    for (int i = 0; i < COUNT; i++)
        if (shunt_comm_size(left) != RANKS - 1 || b[i] != (float)(3 * (i % 7) + 3))
            return complain(rank, "a wrong sum after the shrink", st);
    shunt_comm_free(left);
    shunt_comm_free(comm);
    shunt_context_destroy(ctx);
    return 0;
}

int main(void)
{
    static const char *const names[] = {"allreduce", "broadcast", "alltoall", "barrier"};

    for (int kind = 0; kind < 4; kind++) {
        char file[] = "/tmp/shunt-death-XXXXXX";
        int fd = mkstemp(file), bad = 0, status;
        pid_t pids[RANKS];

        close(fd);
        unlink(file);
        for (int r = 0; r < RANKS; r++) {
            fflush(stdout);
            pids[r] = fork();
            if (pids[r] == 0)
                _exit(rank_main(r, kind, file));
        }
        for (int r = 0; r < RANKS; r++) {
            waitpid(pids[r], &status, 0);
            if (r == VICTIM)
                bad += !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
            else
                bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        }
        unlink(file);
        ok(!bad, "%s: a killed rank is named, the others shrink and go on", names[kind]);
    }
    return done();
}
