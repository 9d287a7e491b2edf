/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that die or stop while ranks meet: the others name them. */
#include "tests/boot/procs.h"

static int port;

static void begin(struct proc *p, int n, const char *more)
{
    char env[300];

    port += 20;
    for (int i = 0; i < n; i++) {
        snprintf(env, sizeof(env), "RANK=%d WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d %s", i, n, port, more);
        start_proc(&p[i], env);
    }
}

static void report(const struct proc *p, int n, int victim, const char *status, const char *part, const char *what)
{
    int good = 0;

    for (int i = 0; i < n; i++) {
        int fine = strcmp(p[i].status, status) == 0 && strstr(p[i].text, part);
        if (i != victim && !fine)
            printf("# rank %d says: %s\n", i, p[i].line);
        good += i != victim && fine;
    }
    is_int(good, n - 1, "%s: %s", what, p[victim == n - 1 ? 0 : n - 1].text);
}

/* Rank `victim` of n + 1, whose last never comes, is killed while they wait for that one. */
static void in_the_meeting(int victim, const char *status, const char *part, const char *what)
{
    struct proc p[5];
    char env[300];

    port += 20;
    for (int i = 0; i < 5; i++) {
        snprintf(env, sizeof(env), "RANK=%d WORLD_SIZE=6 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=60s", i, port);
        start_proc(&p[i], env);
    }
    sleep_ms(800);
    kill(p[victim].pid, SIGKILL);
    for (int i = 0; i < 5; i++)
        end_proc(&p[i]);
    report(p, 5, victim, status, part, what);
}

static void after_the_meeting(int victim, const char *part)
{
    struct proc p[12];
    char env[300];

    port += 20;
    for (int i = 0; i < 12; i++) {
        snprintf(env, sizeof(env), "RANK=%d WORLD_SIZE=12 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=60s%s", i,
                 port, i == victim ? " TEST_DIE=1" : "");
        start_proc(&p[i], env);
    }
    for (int i = 0; i < 12; i++)
        end_proc(&p[i]);
    report(p, 12, victim, "PEER", part, "a rank that dies in the first gather is named by all");
}

static void stopped(void)
{
    struct proc p[4];

    begin(p, 4, "SHUNT_BOOTSTRAP_TIMEOUT=60s TEST_TIMER=1");
    for (int i = 1; i < 4; i++)
        kill(p[i].pid, SIGSTOP);
    sleep_ms(700);
    for (int i = 1; i < 4; i++)
        kill(p[i].pid, SIGCONT);
    ok(end_job(p, 4), "ranks that were stopped for a while meet all the same");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "rank") == 0)
        return be_rank();
    port = 24000 + (int)(getpid() % 400) * 20;
    in_the_meeting(2, "PEER", "rank 2, process", "a rank that dies while the others wait is named by all");
    in_the_meeting(0, "PEER", "the process that brings the ranks together has gone", "so is the root");
    after_the_meeting(1, "rank 1 ");
    after_the_meeting(11, "rank 11 ");
    after_the_meeting(0, "rank 0 ");
    stopped();
    return done();
}
