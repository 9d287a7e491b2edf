/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank of shunt-run: its environment, its process and its output. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "tools/run/run.h"

enum { LINE_MAX_BYTES = 1 << 16 }; /* a longer line is cut into several */

static void set_number(const char *name, long value)
{
    char text[24];

    snprintf(text, sizeof(text), "%ld", value);
    setenv(name, text, 1);
}

/* The environment of torchrun, and what only Shunt reads. Runs in the child. */
static void set_environment(const struct rank *rank, const struct options *options)
{
    int local = rank->number - options->first_rank;

    set_number("RANK", rank->number);
    set_number("WORLD_SIZE", options->world_size);
    set_number("LOCAL_RANK", local);
    set_number("LOCAL_WORLD_SIZE", options->ranks);
    set_number("ROLE_RANK", rank->number);
    set_number("ROLE_WORLD_SIZE", options->world_size);
    set_number("GROUP_RANK", options->node_rank);
    set_number("GROUP_WORLD_SIZE", options->nodes);
    set_number("MASTER_PORT", options->master_port);
    setenv("MASTER_ADDR", options->master_addr, 1);
    setenv("TORCHELASTIC_RUN_ID", options->run_id, 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    setenv("TORCHELASTIC_MAX_RESTARTS", "0", 1);
    /* No agent of ours serves MASTER_PORT: rank 0 may. */
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
    setenv("SHUNT_KEY_FILE", options->key_file, 1);
    setenv("SHUNT_DEBUG", "event", 0);
    /* Ranks share the cores; a BLAS that starts one thread per core in each would make them fight. */
    if (options->ranks > 1)
        setenv("OMP_NUM_THREADS", "1", 0);
    for (char **e = options->env; *e; e++)
        putenv(*e);
}

/* The local-th of the cores that this process may use. Advice: without it the rank runs anywhere. */
static void bind_to_core(int local)
{
    cpu_set_t all, one;
    int n;

    if (sched_getaffinity(0, sizeof(all), &all) || (n = CPU_COUNT(&all)) == 0)
        return;
    local %= n;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || local-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

static void run_command(const struct rank *rank, const struct options *options, int out, int err, int failure,
                        pid_t launcher)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), code;
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher)
        _exit(1); /* the launcher died before the line above */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    dup2(null, 0);
    dup2(out, 1);
    dup2(err, 2);
    set_environment(rank, options);
    if (options->bind)
        bind_to_core(rank->number - options->first_rank);
    execvp(options->command[0], options->command);
    code = errno;
    if (write(failure, &code, sizeof(code)) < 0)
        _exit(126);
    _exit(127);
}

int rank_start(struct rank *rank, const struct options *options, int *exit_code)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, failure[2] = {-1, -1}, code = 0;
    pid_t launcher = getpid();
    ssize_t n;

    *exit_code = 1;
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) || pipe2(failure, O_CLOEXEC)) {
        report_note("no pipes for rank %d: %s (see ulimit -n)", rank->number, strerror(errno));
        goto fail;
    }
    report_flush();
    rank->pid = fork();
    if (rank->pid < 0) {
        rank->pid = 0;
        report_note("no process for rank %d: %s", rank->number, strerror(errno));
        goto fail;
    }
    if (rank->pid == 0)
        run_command(rank, options, out[1], err[1], failure[1], launcher);
    setpgid(rank->pid, rank->pid);
    close(out[1]);
    close(err[1]);
    close(failure[1]);
    do
        n = read(failure[0], &code, sizeof(code));
    while (n < 0 && errno == EINTR);
    close(failure[0]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    rank->out = (struct stream){.fd = out[0]};
    rank->err = (struct stream){.fd = err[0], .is_stderr = true};
    rank->running = true;
    rank->started = now();
    if (n == (ssize_t)sizeof(code)) {
        report_note("%s: %s", options->command[0], strerror(code));
        *exit_code = code == ENOENT ? 127 : 126;
        return -1;
    }
    return 0;
fail:
    for (int i = 0; i < 2; i++) {
        if (out[i] >= 0)
            close(out[i]);
        if (err[i] >= 0)
            close(err[i]);
        if (failure[i] >= 0)
            close(failure[i]);
    }
    return -1;
}

/* Reports the whole lines of what has been read; keeps the rest. */
static void cut_lines(struct rank *rank, struct stream *stream)
{
    size_t start = 0;

    for (;;) {
        char *end = memchr(stream->line + start, '\n', stream->len - start);

        if (!end)
            break;
        report_line(rank, stream->is_stderr, stream->line + start, (size_t)(end - stream->line) - start);
        start = (size_t)(end - stream->line) + 1;
    }
    if (start == 0 && stream->len == LINE_MAX_BYTES) {
        report_line(rank, stream->is_stderr, stream->line, stream->len);
        start = stream->len;
    }
    stream->len -= start;
    memmove(stream->line, stream->line + start, stream->len);
}

bool stream_read(struct rank *rank, struct stream *stream)
{
    if (stream->fd < 0)
        return false;
    if (!stream->line) {
        stream->line = malloc(LINE_MAX_BYTES);
        if (!stream->line)
            abort();
    }
    for (;;) {
        ssize_t n = read(stream->fd, stream->line + stream->len, LINE_MAX_BYTES - stream->len);

        if (n > 0) {
            stream->len += (size_t)n;
            cut_lines(rank, stream);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (stream->len > 0)
            report_line(rank, stream->is_stderr, stream->line, stream->len);
        close(stream->fd);
        free(stream->line);
        *stream = (struct stream){.fd = -1};
        return false;
    }
}
