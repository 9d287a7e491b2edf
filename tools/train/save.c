/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints of the whole job in one folder. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/train/job.h"

/* "DIR/step-S-stage-I-of-N": what stage I of N wrote after S steps. */
static void file_name(const struct job *job, uint64_t steps, int stage, int stages, char *out, size_t size)
{
    snprintf(out, size, "%s/step-%" PRIu64 "-stage-%d-of-%d", job->options.checkpoint, steps, stage, stages);
}

/* The line in DIR/latest: steps and stages of a complete set of files. */
static bool read_latest(const struct job *job, uint64_t *steps, int *stages)
{
    char path[PATH_MAX];
    FILE *f;
    int got;

    snprintf(path, sizeof(path), "%s/latest", job->options.checkpoint);
    f = fopen(path, "re");
    if (!f)
        return false;
    got = fscanf(f, "%" SCNu64 " %d", steps, stages);
    fclose(f);
    return got == 2 && *stages >= 1 && *stages <= 4096;
}

static int write_latest(const struct job *job, uint64_t steps)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    FILE *f;
    int good;

    snprintf(path, sizeof(path), "%s/latest", job->options.checkpoint);
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s/latest.tmp", job->options.checkpoint) >= sizeof(temporary))
        return -1;
    f = fopen(temporary, "we");
    if (!f)
        return -1;
    good = fprintf(f, "%" PRIu64 " %d\n", steps, job->options.stages) > 0 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    return fclose(f) == 0 && good ? rename(temporary, path) : -1;
}

/* The set is valid from the moment `latest` names it; only then the one before is removed. */
void save_checkpoint(struct job *job, uint64_t steps_done)
{
    char path[PATH_MAX];
    uint64_t old_steps = 0;
    int old_stages = 0;

    if (job->rank == 0 && mkdir(job->options.checkpoint, 0777) != 0 && errno != EEXIST)
        job_fail(job, job->options.checkpoint, strerror(errno));
    job_check(job, shunt_barrier(job->world), "starting a checkpoint");
    if (job->active && job->replica == 0) {
        file_name(job, steps_done, job->stage, job->options.stages, path, sizeof(path));
        job_check_model(job, model_checkpoint_write(job->model, steps_done, path));
    }
    job_check(job, shunt_barrier(job->world), "finishing a checkpoint");
    if (job->rank != 0)
        return;
    if (!read_latest(job, &old_steps, &old_stages))
        old_stages = 0;
    if (write_latest(job, steps_done) != 0)
        job_fail(job, "writing the checkpoint's file 'latest'", strerror(errno));
    for (int s = 0; s < old_stages && (old_steps != steps_done || old_stages != job->options.stages); s++) {
        file_name(job, old_steps, s, old_stages, path, sizeof(path));
        unlink(path);
    }
}

uint64_t load_checkpoint(struct job *job)
{
    uint64_t steps = 0, done = 0;
    int stages;
    char (*names)[PATH_MAX];
    const char **paths;

    if (!read_latest(job, &steps, &stages))
        return 0;
    names = calloc((size_t)stages, sizeof(*names));
    paths = calloc((size_t)stages, sizeof(*paths));
    if (!names || !paths)
        job_fail(job, NULL, "out of memory");
    for (int s = 0; s < stages; s++) {
        file_name(job, steps, s, stages, names[s], sizeof(names[s]));
        paths[s] = names[s];
    }
    job_check_model(job, model_checkpoint_read(job->model, paths, stages, &done));
    free(names);
    free(paths);
    return done;
}
