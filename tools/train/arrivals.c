/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages from the neighbouring stages. A thread waits for them, so that the time of an arrival is known even while the
 * stage computes: it is what the delay of a link is measured by.
 *
 * A message starts with the sender's clock; a gradient also carries the smallest apparent delay (receiver's clock minus
 * sender's) that its sender saw in activations over the same link. The two directions' smallest together are the
 * there-and-back delay, in which the difference of the clocks cancels.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "tools/train/job.h"

struct message_head {
    uint64_t sent;
    int64_t smallest; /* INT64_MAX: none seen */
};

struct arrivals {
    struct job *job;
    int n;              /* micro-batches */
    size_t stride;      /* bytes from one buffer to the next */
    int peer[2];        /* by direction: where it comes from, or -1 */
    char *buffers[2];
    char *sending[2];   /* by direction: what goes out */
    shunt_request_t **sends;
    int n_sends;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, news;
    bool started, quit, running;
    shunt_request_t **requests; /* 2 n: direction * n + micro-batch */
    int *queue, n_queue, n_taken; /* arrived, in their order */
    shunt_status_t failed;
    char why[512];
    int64_t smallest[2], echoed;
};

/* Messages of one step differ in their tag; those of neighbouring steps are told apart by their order. */
static int tag(int micro_batch, enum direction direction)
{
    return 2 * micro_batch + (int)direction;
}

static void note(struct arrivals *a, int index)
{
    enum direction d = index < a->n ? ACTIVATION : GRADIENT;
    struct message_head head;
    int64_t apparent;

    memcpy(&head, a->buffers[d] + (size_t)(index % a->n) * a->stride, sizeof(head));
    apparent = (int64_t)(now_ns() - head.sent);
    if (apparent < a->smallest[d])
        a->smallest[d] = apparent;
    if (d == GRADIENT)
        a->echoed = head.smallest;
    a->queue[a->n_queue++] = index;
}

static void *receive(void *arg)
{
    struct arrivals *a = arg;

    pthread_mutex_lock(&a->lock);
    for (;;) {
        int index = -1;
        shunt_status_t status;

        while (!a->running && !a->quit)
            pthread_cond_wait(&a->work, &a->lock);
        if (a->quit)
            break;
        pthread_mutex_unlock(&a->lock);
        status = shunt_wait_any(a->requests, 2 * a->n, &index, NULL);
        pthread_mutex_lock(&a->lock);
        if (status != SHUNT_OK) {
            a->failed = status;
            snprintf(a->why, sizeof(a->why), "%s", shunt_error_text());
        }
        if (status != SHUNT_OK || index < 0)
            a->running = false;
        else
            note(a, index);
        pthread_cond_signal(&a->news);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void *need(struct job *job, size_t n, size_t size)
{
    void *memory = calloc(n, size);

    if (!memory)
        job_fail(job, NULL, "out of memory for messages");
    return memory;
}

struct arrivals *arrivals_create(struct job *job)
{
    const struct options *o = &job->options;
    struct arrivals *a = need(job, 1, sizeof(*a));

    a->job = job;
    a->n = job->count;
    a->stride = sizeof(struct message_head) + model_activations(&o->model) * sizeof(float);
    a->peer[ACTIVATION] = job->before;
    a->peer[GRADIENT] = job->after;
    for (int d = 0; d < 2; d++) {
        a->buffers[d] = need(job, (size_t)a->n, a->stride);
        a->sending[d] = need(job, (size_t)a->n, a->stride);
    }
    a->sends = need(job, 2 * (size_t)a->n, sizeof(shunt_request_t *));
    a->requests = need(job, 2 * (size_t)a->n, sizeof(shunt_request_t *));
    a->queue = need(job, 2 * (size_t)a->n, sizeof(int));
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->work, NULL);
    pthread_cond_init(&a->news, NULL);
    if (o->stages > 1) {
        if (pthread_create(&a->thread, NULL, receive, a) != 0)
            job_fail(job, NULL, "no thread can be started to receive messages");
        a->started = true;
    }
    return a;
}

void arrivals_destroy(struct arrivals *a)
{
    if (!a)
        return;
    if (a->started) {
        pthread_mutex_lock(&a->lock);
        a->quit = true;
        pthread_cond_signal(&a->work);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    /* After a failure some are left; the communicator was revoked, so that they end. */
    shunt_wait_all(a->requests, 2 * a->n, NULL);
    shunt_wait_all(a->sends, a->n_sends, NULL);
    for (int d = 0; d < 2; d++) {
        free(a->buffers[d]);
        free(a->sending[d]);
    }
    free(a->sends);
    free(a->requests);
    free(a->queue);
    free(a);
}

void arrivals_begin(struct arrivals *a)
{
    if (!a->started)
        return;
    a->n_queue = a->n_taken = a->n_sends = 0;
    a->smallest[ACTIVATION] = a->smallest[GRADIENT] = a->echoed = INT64_MAX;
    for (int i = 0; i < a->n; i++)
        for (int d = 0; d < 2; d++)
            if (a->peer[d] >= 0)
                job_check(a->job,
                          shunt_irecv(a->job->world, a->buffers[d] + (size_t)i * a->stride, a->stride, a->peer[d],
                                      tag(i, (enum direction)d), &a->requests[d * a->n + i]),
                          "receiving from a neighbouring stage");
    pthread_mutex_lock(&a->lock);
    a->running = true;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->lock);
}

bool arrivals_take(struct arrivals *a, bool block, enum direction *direction, int *micro_batch)
{
    uint64_t start = 0;
    bool got;

    if (!a->started)
        return false;
    pthread_mutex_lock(&a->lock);
    while (block && a->n_taken == a->n_queue && a->running) {
        start = start ? start : now_ns();
        pthread_cond_wait(&a->news, &a->lock);
    }
    if (start)
        a->job->times.wait += (double)(now_ns() - start);
    got = a->n_taken < a->n_queue;
    if (got) {
        *direction = a->queue[a->n_taken] < a->n ? ACTIVATION : GRADIENT;
        *micro_batch = a->queue[a->n_taken++] % a->n;
    }
    pthread_mutex_unlock(&a->lock);
    if (a->failed != SHUNT_OK)
        job_lost(a->job, a->failed, "receiving from a neighbouring stage", a->why);
    return got;
}

const float *arrivals_data(const struct arrivals *a, enum direction direction, int micro_batch)
{
    return (const float *)(a->buffers[direction] + (size_t)micro_batch * a->stride + sizeof(struct message_head));
}

float *arrivals_room(struct arrivals *a, enum direction direction, int micro_batch)
{
    return (float *)(a->sending[direction] + (size_t)micro_batch * a->stride + sizeof(struct message_head));
}

void arrivals_send(struct arrivals *a, enum direction direction, int micro_batch)
{
    char *message = a->sending[direction] + (size_t)micro_batch * a->stride;
    int to = a->peer[direction == ACTIVATION ? GRADIENT : ACTIVATION];
    struct message_head head = {.smallest = INT64_MAX};

    if (to < 0)
        return;
    pthread_mutex_lock(&a->lock);
    head.smallest = a->smallest[ACTIVATION];
    pthread_mutex_unlock(&a->lock);
    head.sent = now_ns();
    memcpy(message, &head, sizeof(head));
    job_check(a->job,
              shunt_isend(a->job->world, message, a->stride, to, tag(micro_batch, direction), &a->sends[a->n_sends++]),
              "sending to a neighbouring stage");
}

void arrivals_finish(struct arrivals *a)
{
    if (a->started)
        job_check(a->job, shunt_wait_all(a->sends, a->n_sends, NULL), "sending to a neighbouring stage");
}

double arrivals_delay(struct arrivals *a)
{
    double delay;

    if (a->peer[GRADIENT] < 0 || a->smallest[GRADIENT] == INT64_MAX || a->echoed == INT64_MAX)
        return 0;
    delay = ((double)a->smallest[GRADIENT] + (double)a->echoed) / 2e9;
    return delay > 0 ? delay : 0;
}
