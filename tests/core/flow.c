/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow control and size: many unmatched sends whose receives come late and in reverse, with the receiver's memory
 * bounded; and, with SHUNT_TEST_FULL, 1,000 of 64 MiB and one message beyond 4 GiB.
 */
#include <sys/resource.h>
#include "tests/core/procs.h"

#define SENDERS 4
#define MESSAGES 250 /* of each sender */

static size_t bytes;

static long peak_kb(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static void flood(struct proc *p)
{
    unsigned char *buf = malloc(bytes);
    shunt_request_t *req[MESSAGES];
    long before;

    memset(buf, p->rank, bytes);
    before = peak_kb();
    if (p->rank > 0) {
        for (int i = 0; i < MESSAGES; i++)
            pcheck_ok(p, shunt_isend(p->comm, buf, bytes, 0, i, &req[i]), "isend");
        p->shared->flag[0]++;
        pcheck_ok(p, shunt_wait_all(req, MESSAGES, NULL), "sends");
    } else {
        for (double until = seconds() + 10; p->shared->flag[0] < SENDERS && seconds() < until;)
            shunt_progress(p->ctx); /* take in what comes unasked */
        for (int i = MESSAGES - 1; i >= 0; i--)
            for (int r = 1; r <= SENDERS; r++) {
                buf[0] = buf[bytes - 1] = 0xee;
                pcheck_ok(p, shunt_recv(p->comm, buf, bytes, r, i, NULL), "receive");
                pcheck(p, buf[0] == r && buf[bytes / 2] == r && buf[bytes - 1] == r, "message %d of %d damaged", i, r);
            }
        p->shared->rank[0].value = (double)(peak_kb() - before) / 1024;
    }
    free(buf);
}

static void huge(struct proc *p)
{
    size_t n = ((size_t)4 << 30) + 12345;
    unsigned char *buf = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    pcheck(p, buf != MAP_FAILED, "no memory for 4 GiB");
    if (buf == MAP_FAILED)
        return;
    if (p->rank == 0) {
        for (size_t i = 0; i < n; i += 4096)
            buf[i] = (unsigned char)(i >> 12);
        buf[n - 1] = 0x77;
        pcheck_ok(p, shunt_send(p->comm, buf, n, 1, 0), "send");
    } else {
        shunt_result_t res = {0};
        size_t wrong = 0;
        pcheck_ok(p, shunt_recv(p->comm, buf, n, 0, 0, &res), "receive");
        for (size_t i = 0; i < n; i += 4096)
            wrong += buf[i] != (unsigned char)(i >> 12) && i != n - 1;
        pcheck(p, res.bytes == n && wrong == 0 && buf[n - 1] == 0x77, "%zu bytes, %zu pages wrong", res.bytes, wrong);
    }
    munmap(buf, n);
}

static void run(const char *rail, const char *const *set)
{
    struct procs_shared *s;

    is_int(procs_run(SENDERS + 1, set, flood, 400, &s), 0,
           "%s: %d unmatched sends of %zu bytes from %d ranks, received in reverse", rail, SENDERS * MESSAGES, bytes, SENDERS);
    printf("# %s: the receiver's memory grew by %.1f MiB\n", rail, s->rank[0].value);
    ok(s->rank[0].value < 100, "%s: the receiver's memory stays bounded (8 MiB per sender, and what describes the messages)",
       rail);
    if (getenv("SHUNT_TEST_FULL"))
        is_int(procs_run(2, set, huge, 200, NULL), 0, "%s: a message of 4 GiB and 12,345 bytes", rail);
    else
        skip("%s: a message beyond 4 GiB needs 9 GB of memory: only with tests/run --full", rail);
}

int main(void)
{
    static const char *const shm[] = {"SHUNT_BACKEND=sock", "SHUNT_RAILS=lo", NULL};
    static const char *const sock[] = {"SHUNT_BACKEND=sock", "SHUNT_SHM=0", "SHUNT_RAILS=lo", NULL};

    bytes = getenv("SHUNT_TEST_FULL") ? (size_t)64 << 20 : (size_t)1 << 20;
    run("shm", shm);
    run("sock", sock);
    return done();
}
