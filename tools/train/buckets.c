/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of gradients over the replicas, started from within the backward pass. */
#include <stdlib.h>
#include "tools/train/job.h"

struct buckets {
    struct job *job;
    size_t elements; /* of a bucket; the last may be smaller */
    int n, started;
    shunt_request_t **requests;
};

/* The first n gradients of the stage are final. */
static void on_final(void *user, size_t n)
{
    struct buckets *b = user;
    struct job *job = b->job;
    size_t count = model_count(job->model);

    while (b->started < b->n) {
        size_t first = (size_t)b->started * b->elements;
        size_t last = count - first < b->elements ? count : first + b->elements;
        float *part = model_gradients(job->model) + first;

        if (n < last)
            return;
        job_check(job,
                  shunt_iallreduce(job->group, part, part, last - first, SHUNT_FLOAT32, SHUNT_SUM,
                                   &b->requests[b->started]),
                  "summing gradients");
        b->started++;
    }
}

struct buckets *buckets_create(struct job *job)
{
    struct buckets *b;

    model_on_final(job->model, NULL, NULL);
    if (job->replicas == 1)
        return NULL;
    b = calloc(1, sizeof(*b));
    if (!b)
        job_fail(job, NULL, "out of memory");
    b->job = job;
    b->elements = job->options.bucket / sizeof(float);
    b->n = (int)((model_count(job->model) + b->elements - 1) / b->elements);
    b->requests = calloc((size_t)b->n, sizeof(shunt_request_t *));
    if (!b->requests)
        job_fail(job, NULL, "out of memory");
    model_on_final(job->model, on_final, b);
    return b;
}

void buckets_destroy(struct buckets *b)
{
    if (!b)
        return;
    shunt_wait_all(b->requests, b->n, NULL); /* after a failure, of a communicator that was revoked */
    free(b->requests);
    free(b);
}

void buckets_begin(struct buckets *b)
{
    if (b)
        b->started = 0;
}

void buckets_wait(struct buckets *b)
{
    uint64_t start = now_ns();

    if (!b)
        return;
    job_check(b->job, shunt_wait_all(b->requests, b->n, NULL), "summing gradients");
    b->job->times.reduce += (double)(now_ns() - start);
}
