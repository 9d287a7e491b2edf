/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that die, stop, abort and revoke, and what the others are told; shrink and grow. */
#include "tests/core/procs.h"

static int victim;

/* Everybody waits for everybody; the victim dies: exactly the operations with it fail, and name it. */
static void death(struct proc *p)
{
    shunt_request_t *req[PROCS_MAX] = {NULL};
    int in[PROCS_MAX], x = p->rank;
    shunt_result_t res;
    char who[32];
    double start;

    snprintf(who, sizeof(who), "from rank %d (", victim);
    if (p->rank == victim) {
        wait_flag(p, 0, p->size - 1);
        raise(SIGKILL);
    }
    for (int r = 0; r < p->size; r++)
        if (r != p->rank)
            pcheck_ok(p, shunt_irecv(p->comm, &in[r], sizeof(in[r]), r, 0, &req[r]), "irecv");
    shunt_test(&req[victim], NULL);
    p->shared->flag[0]++;
    wait_flag(p, 0, p->size - 1);
    start = seconds();
    pcheck(p, shunt_wait(&req[victim], &res) == SHUNT_ERR_PEER, "receive from the dead: %s %s",
           shunt_status_name(res.status), res.text);
    pcheck(p, strstr(res.text, who) != NULL, "the text names the rank: %s", res.text);
    p->shared->rank[p->rank].value = seconds() - start;
    pcheck(p, shunt_comm_peer_state(p->comm, victim, NULL, 0) == SHUNT_ERR_PEER, "peer_state");
    for (int r = 0; r < p->size; r++) /* the living go on */
        if (r != p->rank && r != victim)
            pcheck_ok(p, shunt_send(p->comm, &x, sizeof(x), r, 0), "send among the living");
    for (int r = 0; r < p->size; r++)
        if (req[r])
            pcheck_ok(p, shunt_wait(&req[r], NULL), "receive among the living");
    pcheck(p, shunt_send(p->comm, &x, sizeof(x), victim, 0) == SHUNT_ERR_PEER, "send to the dead");
}

static void exchange(struct proc *p, shunt_comm_t *c)
{
    int n = shunt_comm_size(c), r = shunt_comm_rank(c), x = r, y = -1;

    pcheck_ok(p, shunt_sendrecv(c, &x, sizeof(x), (r + 1) % n, 0, &y, sizeof(y), (r + n - 1) % n, 0, NULL), "exchange");
    pcheck(p, y == (r + n - 1) % n, "exchange: got %d", y);
}

/* One dies, the rest shrinks; another dies inside the agreement. */
static void shrink(struct proc *p)
{
    shunt_comm_t *next = NULL, *last = NULL;
    int x;

    shunt_status_t st;

    exchange(p, p->comm);
    gate(p, 1, p->size);
    if (p->rank == victim)
        raise(SIGKILL);
    st = shunt_recv(p->comm, &x, sizeof(x), victim, 1, NULL); /* or another has noticed and revokes already */
    pcheck(p, st == SHUNT_ERR_PEER || st == SHUNT_ERR_REVOKED, "the victim is gone: %s", shunt_error_text());
    pcheck_ok(p, shunt_comm_shrink(p->comm, NULL, 0, &next), "shrink");
    if (!next)
        return;
    pcheck(p, shunt_comm_size(next) == p->size - 1, "size %d", shunt_comm_size(next));
    exchange(p, next);
    gate(p, 2, p->size - 1);
    if (shunt_comm_rank(next) == 0)
        raise(SIGKILL); /* the leader of the next agreement */
    pcheck_ok(p, shunt_comm_shrink(next, NULL, 0, &last), "second shrink");
    if (last) {
        pcheck(p, shunt_comm_size(last) == p->size - 2, "size %d", shunt_comm_size(last));
        exchange(p, last);
    }
    shunt_comm_free(last);
    shunt_comm_free(next);
}

static void exclude(struct proc *p)
{
    shunt_comm_t *next = NULL;
    int out = 1;
    shunt_status_t st;

    exchange(p, p->comm);
    gate(p, 1, p->size);
    st = shunt_comm_shrink(p->comm, &out, 1, &next);
    if (p->rank == out)
        pcheck(p, st == SHUNT_ERR_EXCLUDED, "the excluded rank gets %s: %s", shunt_status_name(st), shunt_error_text());
    else {
        pcheck_ok(p, st, "shrink");
        if (next)
            exchange(p, next);
    }
    shunt_comm_free(next);
}

static void revoke_all(struct proc *p)
{
    int x;
    shunt_status_t st;

    exchange(p, p->comm);
    gate(p, 1, p->size);
    if (p->rank == 1)
        pcheck_ok(p, shunt_comm_revoke(p->comm), "revoke");
    st = shunt_recv(p->comm, &x, sizeof(x), (p->rank + 1) % p->size, 5, NULL); /* nobody sends this */
    pcheck(p, st == SHUNT_ERR_REVOKED, "got %s: %s", shunt_status_name(st), shunt_error_text());
    pcheck(p, strstr(shunt_error_text(), "revoked by rank 1") != NULL, "text: %s", shunt_error_text());
    gate(p, 2, p->size);
}

static void abort_one(struct proc *p)
{
    shunt_comm_t *other = NULL;
    int x;
    shunt_status_t st;

    pcheck_ok(p, shunt_comm_split(p->comm, 0, 0, &other), "split");
    exchange(p, other);
    gate(p, 1, p->size);
    if (p->rank == 2)
        pcheck_ok(p, shunt_comm_abort(p->comm, "for a reason"), "abort");
    st = shunt_recv(p->comm, &x, sizeof(x), (p->rank + 1) % p->size, 5, NULL);
    pcheck(p, st == SHUNT_ERR_ABORTED, "got %s: %s", shunt_status_name(st), shunt_error_text());
    pcheck(p, strstr(shunt_error_text(), "for a reason") != NULL, "text: %s", shunt_error_text());
    for (int i = 0; other && i < 100; i++)
        exchange(p, other); /* the other communicator on the same rails is untouched */
    gate(p, 2, p->size);
    shunt_comm_free(other);
}

/* Stopped and continued: late, nothing else. */
static void stopped(struct proc *p)
{
    unsigned char *buf = malloc(8 << 20);
    int other = p->rank ^ 1;

    memset(buf, p->rank, 8 << 20);
    for (int i = 0; i < 20; i++) {
        if (p->rank == 0 && i == 5) {
            pid_t me = getpid();
            if (fork() == 0) {
                kill(me, SIGSTOP);
                nanosleep(&(struct timespec){1, 500000000}, NULL);
                kill(me, SIGCONT);
                _exit(0);
            }
        }
        pcheck_ok(p, shunt_sendrecv(p->comm, buf, 4 << 20, other, 0, buf + (4 << 20), 4 << 20, other, 0, NULL), "sendrecv");
        pcheck(p, buf[4 << 20] == other && buf[(8 << 20) - 1] == other, "damaged");
    }
    free(buf);
}

/* Another rank's process exits without a word to Shunt. */
static void leaves(struct proc *p)
{
    int x;

    exchange(p, p->comm);
    gate(p, 1, p->size);
    if (p->rank == 0)
        _exit(3);
    pcheck(p, shunt_recv(p->comm, &x, sizeof(x), 0, 0, NULL) == SHUNT_ERR_PEER, "receive: %s", shunt_error_text());
}

static void says_goodbye(struct proc *p)
{
    int x;

    exchange(p, p->comm);
    if (p->rank == 0)
        return;
    pcheck(p, shunt_recv(p->comm, &x, sizeof(x), 0, 0, NULL) == SHUNT_ERR_PEER, "receive: %s", shunt_error_text());
    pcheck(p, strstr(shunt_error_text(), "closed its context") != NULL, "text: %s", shunt_error_text());
}

static void run_all(const char *rail, const char *const *set)
{
    struct procs_shared *s;
    double worst = 0;

    for (victim = 0; victim < 4; victim += 3) {
        is_int(procs_run(4, set, death, 20, &s), 0, "%s: rank %d is killed: its peers are told", rail, victim);
        for (int r = 0; r < 4; r++)
            if (s->rank[r].value > worst)
                worst = s->rank[r].value;
    }
    printf("# %s: the last to be told was told after %.3f s\n", rail, worst);
    ok(worst < (strcmp(rail, "shm") == 0 ? 1 : 2), "%s: within 1 s on one host, 2 s across", rail);
    for (victim = 0; victim < 5; victim += 2)
        is_int(procs_run(5, set, shrink, 30, NULL), 0, "%s: shrink after the death of rank %d, and again", rail, victim);
    is_int(procs_run(4, set, exclude, 20, NULL), 0, "%s: shrink leaves out whom it is told to", rail);
    is_int(procs_run(4, set, revoke_all, 20, NULL), 0, "%s: revoke frees everybody", rail);
    is_int(procs_run(4, set, abort_one, 20, NULL), 0, "%s: abort ends one communicator, not the other", rail);
    is_int(procs_run(2, set, stopped, 30, NULL), 0, "%s: a rank is stopped for 1.5 s", rail);
    is_int(procs_run(3, set, leaves, 20, NULL), 0, "%s: a rank exits without a word", rail);
    is_int(procs_run(3, set, says_goodbye, 20, NULL), 0, "%s: a rank closes its context", rail);
}

int main(int argc, char **argv)
{
    static const char *const shm[] = {"SHUNT_BACKEND=sock", "SHUNT_RAILS=lo", NULL};
    static const char *const sock[] = {"SHUNT_BACKEND=sock", "SHUNT_SHM=0", "SHUNT_RAILS=lo", NULL};

    if (argc < 2 || strcmp(argv[1], "sock") == 0)
        run_all("sock", sock);
    if (argc < 2 || strcmp(argv[1], "shm") == 0)
        run_all("shm", shm);
    return done();
}
