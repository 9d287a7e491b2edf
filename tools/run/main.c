/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt-run: starts the ranks of a job on this host, passes on what they print, ends all when one fails.
 *
 * One thread, one epoll: the pipes of the ranks, a signalfd, and a deadline. The job goes through the states of
 * enum phase; job_end() is the only way out of RUNNING.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tools/run/run.h"

enum phase {
    RUNNING,
    ENDING, /* the polite signal was sent, SIGKILL follows at the deadline */
    KILLING /* SIGKILL was sent; repeated until nobody is left */
};

struct job {
    struct options options;
    struct rank *ranks;
    enum phase phase;
    int64_t timeout_at, kill_at;
    int signals; /* signalfd */
    int poll;
    int open_streams;
    int code;
    char reason[256];
};

static void make_random(void *buf, size_t size)
{
    if (getrandom(buf, size, 0) != (ssize_t)size)
        abort();
}

static void random_hex(char *text, size_t digits)
{
    unsigned char bytes[64];

    make_random(bytes, digits / 2);
    for (size_t i = 0; i < digits / 2; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static bool can_bind(int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0;

    if (fd >= 0)
        close(fd);
    return good;
}

/* A port that is free and has a free one behind it (rank 0 of Shunt listens on MASTER_PORT + 1), below the range
 * from which the kernel takes ports for outgoing connections. Chance keeps jobs that start at once apart. */
static int free_port(void)
{
    for (int i = 0; i < 1000; i++) {
        uint16_t draw;
        int port;

        make_random(&draw, sizeof(draw));
        port = 20000 + draw % 12000;
        if (can_bind(port) && can_bind(port + 1))
            return port;
    }
    report_note("no free port between 20000 and 32000; name one with --master-port");
    exit(1);
}

/* The job's secret: as --key-file or the environment has it, else a new one that goes when the job does. */
static const char *key_file(const char *given)
{
    static char path[4096];
    const char *set = getenv("SHUNT_KEY_FILE"), *folder = getenv("XDG_RUNTIME_DIR");
    char key[65] = "";
    int fd;

    if (given || (set && *set))
        return given ? given : set;
    if (!folder || access(folder, W_OK))
        folder = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/shunt-key-XXXXXX", folder && *folder ? folder : "/tmp");
    fd = mkostemp(path, O_CLOEXEC); /* of mode 0600 */
    if (fd < 0) {
        report_note("cannot write the job's key to %s: %s", path, strerror(errno));
        exit(1);
    }
    sweep_key_file(path);
    random_hex(key, 64);
    key[64] = '\n';
    if (write(fd, key, 65) != 65) {
        report_note("cannot write the job's key to %s: %s", path, strerror(errno));
        unlink(path);
        exit(1);
    }
    close(fd);
    return path;
}

/* Leaves RUNNING: remembers why and sends the polite signal to all. Later calls change nothing. */
__attribute__((format(printf, 4, 5))) static void job_end(struct job *job, int code, int signal, const char *fmt, ...)
{
    va_list ap;

    if (job->phase != RUNNING)
        return;
    job->phase = ENDING;
    job->code = code;
    va_start(ap, fmt);
    vsnprintf(job->reason, sizeof(job->reason), fmt, ap);
    va_end(ap);
    job->kill_at = now() + job->options.grace;
    sweep_signal(signal, false);
}

static void job_kill(struct job *job)
{
    job->phase = KILLING;
    job->kill_at = now() + 100000000;
    sweep_signal(SIGKILL, true);
}

static int running(const struct job *job)
{
    int count = 0;

    for (int i = 0; i < job->options.ranks; i++)
        count += job->ranks[i].running;
    return count;
}

/* Ranks that have not ended: those that are still to be started count. */
static int remaining(const struct job *job)
{
    int count = running(job);

    for (int i = 0; i < job->options.ranks; i++)
        count += job->ranks[i].pid == 0;
    return count;
}

/* The numbers of the running ranks, as "0-3,7". */
static void list_running(const struct job *job, char *buf, size_t size)
{
    size_t len = 0;

    buf[0] = '\0';
    for (int i = 0; i < job->options.ranks && len + 32 < size; i++) {
        int first = i;

        if (!job->ranks[i].running)
            continue;
        while (i + 1 < job->options.ranks && job->ranks[i + 1].running)
            i++;
        len += (size_t)snprintf(buf + len, size - len, "%s%d", len ? "," : "", job->ranks[first].number);
        if (i > first)
            len += (size_t)snprintf(buf + len, size - len, "-%d", job->ranks[i].number);
    }
}

/* One rank ended badly: says so, and ends the job unless it was ending anyway or is to go on. */
static void rank_failed(struct job *job, const struct rank *rank)
{
    int code = WIFSIGNALED(rank->wait_status) ? 128 + WTERMSIG(rank->wait_status) : WEXITSTATUS(rank->wait_status);
    double ran = (double)(rank->ended - rank->started) / 1e9;
    char how[96];
    int left = remaining(job);

    describe_status(rank->wait_status, how, sizeof(how));
    if (job->phase != RUNNING)
        return; /* it was told to */
    if (job->options.keep_going) {
        report_note("rank %d (process %d) %s after %.1f s; %d ranks go on", rank->number, (int)rank->pid, how, ran,
                    left);
        if (job->code == 0 && !WIFSIGNALED(rank->wait_status))
            job->code = code;
        return;
    }
    if (left > 0)
        report_note("rank %d (process %d) %s after %.1f s; ending the other %d", rank->number, (int)rank->pid, how,
                    ran, left);
    else
        report_note("rank %d (process %d) %s after %.1f s", rank->number, (int)rank->pid, how, ran);
    job_end(job, code, SIGTERM, "rank %d %s", rank->number, how);
}

/* Collects who has ended. Of ranks found at once the killed ones are reported first: the others often fail because
 * they miss them. */
static void reap(struct job *job)
{
    struct rank *failed[64];
    int status, count = 0;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < job->options.ranks; i++) {
            struct rank *rank = &job->ranks[i];

            if (rank->pid != pid || !rank->running)
                continue;
            rank->running = false;
            rank->wait_status = status;
            rank->ended = now();
            report_exit(rank);
            if (status != 0 && count < 64)
                failed[count++] = rank;
        }
    }
    for (int killed = 1; killed >= 0; killed--)
        for (int i = 0; i < count; i++)
            if (WIFSIGNALED(failed[i]->wait_status) == killed)
                rank_failed(job, failed[i]);
}

static void take_signal(struct job *job)
{
    struct signalfd_siginfo info;

    while (read(job->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int signal = (int)info.ssi_signo;

        if (signal == SIGCHLD)
            continue; /* reap() looks at all of them */
        if (signal == SIGUSR1 || signal == SIGUSR2) {
            for (int i = 0; i < job->options.ranks; i++)
                if (job->ranks[i].running)
                    kill(job->ranks[i].pid, signal);
        } else if (job->phase == RUNNING) {
            report_note("%s: ending %d ranks", strsignal(signal), running(job));
            job_end(job, 128 + signal, signal, "%s", strsignal(signal));
        } else {
            job_kill(job); /* asked twice */
        }
    }
}

static void check_deadlines(struct job *job)
{
    int64_t t = now();

    if (job->phase == RUNNING && job->timeout_at && t >= job->timeout_at) {
        char list[200];

        list_running(job, list, sizeof(list));
        report_note("still running after %.1f s: ranks %s; ending them", (double)job->options.timeout / 1e9, list);
        job_end(job, 124, SIGTERM, "still running after %.1f s: ranks %s", (double)job->options.timeout / 1e9, list);
    } else if (job->phase == ENDING && t >= job->kill_at) {
        if (running(job) > 0) {
            char list[200];

            list_running(job, list, sizeof(list));
            report_note("ranks %s did not end within %.1f s; killing them", list, (double)job->options.grace / 1e9);
        }
        job_kill(job);
    } else if (job->phase == KILLING && t >= job->kill_at) {
        job_kill(job);
    }
}

/* Milliseconds until something has to be done, rounded up. */
static int next_timeout(const struct job *job)
{
    int64_t at = job->phase == RUNNING ? job->timeout_at : job->kill_at, left = at - now();

    if (at == 0)
        return -1;
    return left <= 0 ? 0 : left > 3600000000000LL ? 3600000 : (int)((left + 999999) / 1000000);
}

static void poll_once(struct job *job, int timeout)
{
    struct epoll_event events[64];
    int n = epoll_wait(job->poll, events, 64, timeout);

    for (int i = 0; i < n; i++) {
        uint64_t tag = events[i].data.u64;
        struct rank *rank = &job->ranks[tag >> 1];

        if (tag == UINT64_MAX)
            take_signal(job);
        else if (!stream_read(rank, tag & 1 ? &rank->err : &rank->out))
            job->open_streams--;
    }
    reap(job);
    report_flush();
    if (ferror(stdout) && job->phase == RUNNING) {
        report_note("nobody reads the output any more; ending the job");
        job_end(job, 128 + SIGPIPE, SIGTERM, "the output was closed");
    }
}

static void watch(struct job *job, int fd, uint64_t tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag};

    if (epoll_ctl(job->poll, EPOLL_CTL_ADD, fd, &event))
        abort();
}

static void start_ranks(struct job *job)
{
    for (int i = 0; i < job->options.ranks && job->phase == RUNNING; i++) {
        struct rank *rank = &job->ranks[i];
        int code, started = rank_start(rank, &job->options, &code);

        if (rank->pid > 0) {
            sweep_add(i, rank->pid);
            watch(job, rank->out.fd, (uint64_t)i << 1);
            watch(job, rank->err.fd, (uint64_t)i << 1 | 1);
            job->open_streams += 2;
            report_start(rank);
        }
        if (started < 0)
            job_end(job, code, SIGTERM, "cannot start rank %d", rank->number);
        else
            poll_once(job, 0); /* with many ranks the first ones already talk, or have failed */
    }
}

/* All ranks have ended: ends what they left behind, and reads the pipes dry. */
static void finish(struct job *job)
{
    int signal = job->phase == KILLING ? SIGKILL : SIGTERM;
    int64_t kill_at = now() + job->options.grace;
    bool told = false;

    while (sweep_any()) {
        if (!told || signal == SIGKILL)
            sweep_signal(signal, true);
        told = true;
        if (now() >= kill_at)
            signal = SIGKILL;
        poll_once(job, 10);
    }
    while (job->open_streams > 0 && now() < kill_at + job->options.grace)
        poll_once(job, 10);
}

static void set_up(struct job *job, int argc, char **argv)
{
    static char run_id[33];
    struct rlimit files;
    sigset_t set;

    options_parse(&job->options, argc, argv);
    report_init(&job->options);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, 0}; *s; s++)
        sigaddset(&set, *s);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (sweep_init(job->options.ranks))
        exit(1);
    /* Two pipes a rank. Only this process needs them, but the ranks' own limits may be raised as well. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (!job->options.run_id) {
        random_hex(run_id, 32);
        job->options.run_id = run_id;
    }
    if (job->options.master_port == 0)
        job->options.master_port = free_port();
    job->options.key_file = key_file(job->options.key_file);
    job->ranks = calloc((size_t)job->options.ranks, sizeof(*job->ranks));
    job->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    job->poll = epoll_create1(EPOLL_CLOEXEC);
    if (!job->ranks || job->signals < 0 || job->poll < 0)
        abort();
    for (int i = 0; i < job->options.ranks; i++)
        job->ranks[i] = (struct rank){.number = job->options.first_rank + i, .out.fd = -1, .err.fd = -1};
    watch(job, job->signals, UINT64_MAX);
}

/* With --keep-going the job failed if a rank gave a code of its own, or if none was left to end well. */
static int keep_going_code(const struct job *job)
{
    int well = 0;

    for (int i = 0; i < job->options.ranks; i++)
        well += job->ranks[i].pid > 0 && job->ranks[i].wait_status == 0;
    return job->code ? job->code : well > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct job job;

    set_up(&job, argc, argv);
    job.timeout_at = job.options.timeout ? now() + job.options.timeout : 0;
    start_ranks(&job);
    while (running(&job) > 0) {
        poll_once(&job, next_timeout(&job));
        check_deadlines(&job);
    }
    finish(&job);
    if (job.phase == RUNNING && job.options.keep_going)
        job.code = keep_going_code(&job);
    report_end(job.code, job.reason[0] ? job.reason : job.code ? "ranks failed" : "all ranks ended well");
    report_flush();
    sweep_done();
    close(job.poll);
    close(job.signals);
    free(job.ranks);
    free(job.options.env);
    return job.code;
}
