/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream of checked messages from each even rank to the next, for experiments and tests with faults:
 *
 *     stream [-s SECONDS] [-b BYTES] [-f IN_FLIGHT] [-2 both directions] [-v a line every 100 ms]
 *
 * Every receiver prints one line of JSON at the end: MB/s, the longest gap between two messages, damaged and missing
 * messages (always 0, or the exit status is 1), and the events that were reported, with their times.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <shunt/coll.h>
#include <shunt/health.h>
#include <shunt/p2p.h>

static double began;
static char events[16384];
static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_event(const shunt_event_t *e, void *arg)
{
    size_t n;

    pthread_mutex_lock(&events_lock);
    n = strlen(events);
    if (n < sizeof(events) - 600)
        snprintf(events + n, sizeof(events) - n, "%s{\"t\":%.3f,\"kind\":%d,\"rail\":\"%s\",\"text\":\"%s\"}", n ? "," : "",
                 now() - began, (int)e->kind, e->rail, e->text);
    pthread_mutex_unlock(&events_lock);
}

static void fill(uint32_t *p, size_t words, uint32_t seed)
{
    for (size_t i = 0; i < words; i++)
        p[i] = (uint32_t)i * 2654435761u + seed;
}

static int damaged(const uint32_t *p, size_t words, uint32_t seed)
{
    for (size_t i = 0; i < words; i++)
        if (p[i] != (uint32_t)i * 2654435761u + seed)
            return 1;
    return 0;
}

#define MAX_FLIGHT 256

struct side {
    uint32_t *buf[MAX_FLIGHT];
    shunt_request_t *req[MAX_FLIGHT];
    uint32_t next, done, bad;
    double last, gap, gap_at, first, bytes, slice_bytes, slice_start;
    int over;
};

int main(int argc, char **argv)
{
    double duration = 5;
    size_t bytes = 256 << 10;
    int flight = 16, both = 0, verbose = 0, opt, rc = 0;
    shunt_context_t *ctx;
    shunt_comm_t *comm;

    while ((opt = getopt(argc, argv, "s:b:f:2v")) != -1)
        switch (opt) {
        case 's': duration = atof(optarg); break;
        case 'b': bytes = strtoul(optarg, NULL, 0); break;
        case 'f': flight = atoi(optarg); break;
        case '2': both = 1; break;
        case 'v': verbose = 1; break;
        default: return 2;
        }
    if (flight > MAX_FLIGHT || flight < 1 || bytes < 8)
        return 2;
    if (shunt_context_create(NULL, &ctx) != SHUNT_OK || shunt_comm_create_from_env(ctx, &comm) != SHUNT_OK) {
        fprintf(stderr, "stream: %s\n", shunt_error_text());
        return 1;
    }
    shunt_context_on_event(ctx, on_event, NULL);
    int rank = shunt_comm_rank(comm), size = shunt_comm_size(comm), other;
    /* partners sit on different hosts: the first half with the second half */
    other = rank < size / 2 ? rank + size / 2 : rank - size / 2;
    int sends = rank < size / 2 || both, receives = rank >= size / 2 || both;
    struct side out = {0}, in = {0};
    for (int i = 0; i < flight; i++) {
        out.buf[i] = malloc(bytes);
        in.buf[i] = malloc(bytes);
    }
    if (shunt_barrier(comm) != SHUNT_OK)
        fprintf(stderr, "stream: barrier: %s\n", shunt_error_text());
    began = now();
    in.last = in.first = in.slice_start = began;
    for (int i = 0; receives && i < flight; i++, in.next++)
        if (shunt_irecv(comm, in.buf[i], bytes, other, 0, &in.req[i]) != SHUNT_OK)
            in.over = 1;
    while ((sends && (!out.over || out.done < out.next)) || (receives && !in.over)) {
        /* send while there is time; the last message says so in its first word */
        while (sends && !out.over && out.next - out.done < (uint32_t)flight) {
            int i = (int)(out.next % (uint32_t)flight);
            int last = now() - began > duration;
            fill(out.buf[i], bytes / 4, out.next);
            if (last)
                out.buf[i][0] = 0xffffffffu;
            if (shunt_isend(comm, out.buf[i], bytes, other, 0, &out.req[i]) != SHUNT_OK) {
                fprintf(stderr, "stream: %s\n", shunt_error_text());
                return 1;
            }
            out.next++;
            out.over = last;
        }
        shunt_request_t *wait[2] = {NULL, NULL};
        int idx, io = (int)(out.done % (uint32_t)flight), ii = (int)(in.done % (uint32_t)flight);
        wait[0] = sends && out.done < out.next ? out.req[io] : NULL;
        wait[1] = receives && !in.over ? in.req[ii] : NULL;
        shunt_result_t res;
        shunt_status_t st = shunt_wait_any(wait, 2, &idx, &res);
        if (st != SHUNT_OK) {
            fprintf(stderr, "stream: rank %d: %s: %s\n", rank, shunt_status_name(st), res.text);
            rc = 1;
            break;
        }
        if (idx == 0) {
            out.req[io] = NULL;
            out.done++;
        } else if (idx == 1) {
            double t = now();
            in.req[ii] = NULL;
            if (t - in.last > in.gap) {
                in.gap = t - in.last;
                in.gap_at = t - began;
            }
            in.last = t;
            in.bytes += (double)bytes;
            in.slice_bytes += (double)bytes;
            if (in.buf[ii][0] == 0xffffffffu) {
                in.over = 1;
                in.buf[ii][0] = in.done;
            }
            in.bad += (uint32_t)damaged(in.buf[ii], bytes / 4, in.done);
            in.done++;
            if (verbose && t - in.slice_start >= 0.1) {
                printf("%.2f s: %.1f MB/s\n", t - began, in.slice_bytes / (t - in.slice_start) / 1e6);
                in.slice_bytes = 0;
                in.slice_start = t;
            }
            if (!in.over) {
                if (shunt_irecv(comm, in.buf[ii], bytes, other, 0, &in.req[ii]) == SHUNT_OK)
                    in.next++;
            }
        }
    }
    double end = in.last;
    for (int i = 0; receives && i < flight; i++) /* those beyond the last message */
        if (in.req[i] && shunt_cancel(in.req[i]) == SHUNT_OK)
            shunt_wait(&in.req[i], NULL);
    if (rc == 0 && receives)
        printf("{\"rank\":%d,\"mbps\":%.2f,\"messages\":%u,\"gap_ms\":%.1f,\"gap_at\":%.3f,\"damaged\":%u,\"events\":[%s]}\n",
               rank, in.bytes / (end - began) / 1e6, in.done, in.gap * 1e3, in.gap_at, in.bad, events);
    shunt_rail_info_t info[64];
    int n = 64;
    for (int i = 0; i < n; i++)
        info[i].size = sizeof(info[i]);
    if (verbose && shunt_comm_rails(comm, info, &n) == SHUNT_OK)
        for (int i = 0; i < n && i < 64; i++)
            if (info[i].bytes_sent)
                printf("  rank %d %s to %d: %s (%s) rate %.1f MB/s latency %.2f ms sent %.1f MB resent %.1f MB dup %llu dam %llu\n",
                       rank, info[i].rail, info[i].rank, shunt_rail_state_name(info[i].state), info[i].why,
                       info[i].rate / 1e6, info[i].latency * 1e3, (double)info[i].bytes_sent / 1e6,
                       (double)info[i].bytes_resent / 1e6, (unsigned long long)info[i].duplicates,
                       (unsigned long long)info[i].damaged);
    rc |= in.bad > 0;
    if (rc == 0)
        shunt_barrier(comm);
    shunt_comm_free(comm);
    shunt_context_destroy(ctx);
    return rc;
}
