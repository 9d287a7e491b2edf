/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rail_perf BACKEND [DEVICE IP] [--yield|--block] [--pin] [--window N]
 *
 * Latency and bandwidth of one bare rail between two processes of this host, without the engine above it. The
 * receiver copies each frame out of the rail's memory into a buffer of the message's size, as the engine does.
 * One way latency: half a round trip of an 8 byte frame. Bandwidth: messages cut into the rail's own chunks, one
 * (or N) of them answered by an empty frame.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/rail/mini.h"

enum { SPIN, YIELD, BLOCK };
static int waiting = SPIN, pin, window = 1;
static uint64_t got_bytes, got_frames;
static char *sink;
static size_t sink_size = 64u << 20;

static void take(struct mini *m, int link, const struct shunt__frame *frame, const void *payload)
{
    if (frame->type == SHUNT__FRAME_DATA && frame->length && payload != sink + frame->offset)
        memcpy(sink + frame->offset, payload, frame->length);
    got_bytes += frame->length;
    got_frames++;
}

static void *landing(struct mini *m, int link, const struct shunt__frame *frame)
{
    return frame->offset + frame->length <= sink_size ? sink + frame->offset : NULL;
}

static void turn(struct mini *m)
{
    static unsigned spins;

    if (waiting == BLOCK) {
        mini_turn(m, 1000);
    } else if (m->rail->ops->progress(m->rail) == 0) {
        if (waiting == YIELD)
            sched_yield();
        if (!(m->rail->caps & SHUNT__RAIL_LOCAL) || ++spins % 64 == 0)
            mini_turn(m, 0);
    }
    if (m->downs[0]) {
        fprintf(stderr, "link down: %s\n", m->down_why[0]);
        exit(1);
    }
}

static void put(struct mini *m, uint64_t offset, uint32_t length, uint64_t total, const char *buf)
{
    struct shunt__frame frame = {
        .type = SHUNT__FRAME_DATA, .length = length, .offset = offset, .total = total, .chunk = m->rail->chunk};
    shunt_status_t status;
    uint64_t sent = m->sent;

    while ((status = m->rail->ops->send(&m->links[0], &frame, buf + offset, 1)) == SHUNT_ERR_AGAIN)
        turn(m);
    if (status < 0) {
        fprintf(stderr, "send: %s\n", shunt_error_text());
        exit(1);
    }
    while (status == SHUNT_IN_PROGRESS && m->sent == sent)
        turn(m);
}

static void put_message(struct mini *m, uint64_t size, const char *buf)
{
    uint64_t done = 0;

    do {
        uint32_t n = size - done < m->rail->chunk ? (uint32_t)(size - done) : m->rail->chunk;
        put(m, done, n, size, buf);
        done += n;
    } while (done < size);
}

static uint64_t frames_of(struct mini *m, uint64_t size)
{
    return size ? (size + m->rail->chunk - 1) / m->rail->chunk : 1;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Round trips of `count` times `size` bytes there and `back` bytes back: p10 and median of the time of one, seconds. */
static void round_trips(struct mini *m, int active, int count, uint64_t size, uint64_t back, const char *buf,
                        int batch, int samples, double *p10, double *median)
{
    double *t = calloc((size_t)samples, sizeof(double));
    uint64_t want = got_frames;

    for (int s = 0; s < samples; s++) {
        uint64_t start = shunt__now();
        for (int i = 0; i < batch; i++) {
            if (active) {
                for (int w = 0; w < count; w++)
                    put_message(m, size, buf);
                want += frames_of(m, back);
                while (got_frames < want)
                    turn(m);
            } else {
                want += frames_of(m, size) * (uint64_t)count;
                while (got_frames < want)
                    turn(m);
                put_message(m, back, buf);
            }
        }
        t[s] = (double)(shunt__now() - start) / 1e9 / batch;
    }
    qsort(t, (size_t)samples, sizeof(double), compare);
    *p10 = t[samples / 10];
    *median = t[samples / 2];
    free(t);
}

static void run(struct mini *m, int active)
{
    char *buf = mmap(NULL, sink_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double p10, median;

    memset(buf, 1, sink_size);
    memset(sink, 2, sink_size);
    round_trips(m, active, 1, 8, 8, buf, 100, 20, &p10, &median);
    round_trips(m, active, 1, 8, 8, buf, 200, 300, &p10, &median);
    if (active)
        printf("%-6s 8 B one way  p10 %.3f us  median %.3f us\n", m->rail->ops->name, p10 * 5e5, median * 5e5);
    for (uint64_t size = 4096; size <= sink_size; size *= 4) {
        int batch = size < 1u << 20 ? (int)((1u << 20) / size + (uint64_t)window - 1) / window : 1;
        int samples = size <= 1u << 20 ? 200 : size <= 16u << 20 ? 40 : 10;

        round_trips(m, active, window, size, 0, buf, batch, samples / 10 + 1, &p10, &median);
        round_trips(m, active, window, size, 0, buf, batch, samples, &p10, &median);
        if (active)
            printf("%-6s %9llu B  p10 %6.2f GB/s  median %6.2f GB/s\n", m->rail->ops->name, (unsigned long long)size,
                   (double)size * window / p10 / 1e9, (double)size * window / median / 1e9);
    }
    munmap(buf, sink_size);
}

static void pin_to(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
    const char *words[3] = {"shm", "", ""};
    int n_words = 0, to_child[2], to_parent[2], active;
    static struct mini m;
    unsigned char address[SHUNT__ADDRESS_MAX];
    size_t len = sizeof(address);
    pid_t child;
    char byte = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--yield") == 0)
            waiting = YIELD;
        else if (strcmp(argv[i], "--block") == 0)
            waiting = BLOCK;
        else if (strcmp(argv[i], "--pin") == 0)
            pin = 1;
        else if (strcmp(argv[i], "--window") == 0 && i + 1 < argc)
            window = atoi(argv[++i]) > 0 ? atoi(argv[i]) : 1;
        else if (n_words < 3)
            words[n_words++] = argv[i];
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    sink = mmap(NULL, sink_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pipe(to_child) || pipe(to_parent))
        return 1;
    child = fork();
    active = child != 0;
    if (pin)
        pin_to(active ? 0 : 1);
    if (mini_open(&m, words[0], words[1], words[2]) != SHUNT_OK) {
        fprintf(stderr, "%s: %s\n", words[0], shunt_error_text());
        return 1;
    }
    m.frame = take;
    m.land = landing;
    m.links[0].generation = 1;
    m.rail->ops->address(m.rail, address, &len);
    if (active) {
        if (read(to_parent[0], &len, sizeof(len)) != sizeof(len) || read(to_parent[0], address, len) != (ssize_t)len ||
            m.rail->ops->connect(&m.rail[0], &m.links[0], address, len) != SHUNT_OK) {
            fprintf(stderr, "connect: %s\n", shunt_error_text());
            return 1;
        }
    } else if (write(to_parent[1], &len, sizeof(len)) < 0 || write(to_parent[1], address, len) < 0) {
        return 1;
    }
    while (!m.up[0]) {
        mini_turn(&m, 100);
        if (m.downs[0]) {
            fprintf(stderr, "link down: %s\n", m.down_why[0]);
            return 1;
        }
    }
    run(&m, active);
    /* Both stay until both are done. */
    if (active) {
        if (write(to_child[1], &byte, 1) < 0)
            return 1;
        waitpid(child, NULL, 0);
    } else if (read(to_child[0], &byte, 1) < 0) {
        return 1;
    }
    mini_close(&m);
    return 0;
}
