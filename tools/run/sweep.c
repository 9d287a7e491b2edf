/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leaving nothing behind. Three layers, each for a case that the one before can't see:
 *   - every rank is a process group, which is signalled as a whole;
 *   - the launcher is a subreaper, so what left its group (setsid, daemons) becomes its child and is found there;
 *   - a guardian process outlives a launcher that was killed outright, and ends the groups.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tools/run/run.h"

/* Shared with the guardian. */
struct board {
    char key_file[PATH_MAX];
    volatile bool done;
    int ranks;
    volatile pid_t group[];
};

static struct board *board;
static pid_t guardian;

/* Waits for the launcher's end of the pipe to close; that happens however the launcher ends. */
static void guard(int pipe_end)
{
    sigset_t all;
    char byte;

    setsid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    while (read(pipe_end, &byte, 1) < 0 && errno == EINTR)
        continue;
    if (!board->done) {
        for (int i = 0; i < board->ranks; i++)
            if (board->group[i] > 0)
                kill(-board->group[i], SIGKILL);
        if (board->key_file[0])
            unlink(board->key_file);
    }
    _exit(0);
}

int sweep_init(int ranks)
{
    size_t size = sizeof(*board) + (size_t)ranks * sizeof(pid_t);
    int ends[2];

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED || pipe2(ends, O_CLOEXEC)) {
        report_note("cannot start: %s", strerror(errno));
        return -1;
    }
    board->ranks = ranks;
    guardian = fork();
    if (guardian < 0) {
        report_note("cannot start: %s", strerror(errno));
        return -1;
    }
    if (guardian == 0) {
        close(ends[1]);
        guard(ends[0]);
    }
    close(ends[0]); /* the other end stays open for as long as this process lives */
    return 0;
}

void sweep_add(int index, pid_t pid)
{
    board->group[index] = pid;
}

void sweep_key_file(const char *path)
{
    snprintf(board->key_file, sizeof(board->key_file), "%s", path);
}

bool sweep_is_guardian(pid_t pid)
{
    return pid == guardian;
}

/* The parent of a process as /proc tells it, or 0. */
static pid_t parent_of(pid_t pid)
{
    char path[64], text[512], *end;
    int fd, parent = 0;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    end = strrchr(text, ')'); /* the name before it may hold anything */
    return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* Calls visit for each child of this process but the guardian; returns how many there were. */
static int each_child(void (*visit)(pid_t pid, int signal), int signal)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    pid_t self = getpid();
    int count = 0;

    if (!proc)
        return 0;
    while ((entry = readdir(proc))) {
        pid_t pid = (pid_t)atoi(entry->d_name);

        if (pid <= 0 || pid == guardian || parent_of(pid) != self)
            continue;
        count++;
        if (visit)
            visit(pid, signal);
    }
    closedir(proc);
    return count;
}

static void signal_child(pid_t pid, int signal)
{
    kill(pid, signal);
    kill(pid, SIGCONT); /* a stopped process would keep the signal for later */
}

int sweep_signal(int signal, bool strays)
{
    int count = 0;

    for (int i = 0; i < board->ranks; i++) {
        pid_t group = board->group[i];

        if (group <= 0)
            continue;
        if (kill(-group, signal) == 0) {
            count++;
            kill(-group, SIGCONT);
        } else if (errno == ESRCH) {
            board->group[i] = 0; /* empty: the number may come back as someone else's */
        }
    }
    if (strays)
        count += each_child(signal_child, signal);
    return count;
}

bool sweep_any(void)
{
    return each_child(NULL, 0) > 0;
}

void sweep_done(void)
{
    if (board->key_file[0])
        unlink(board->key_file);
    board->done = true;
    kill(guardian, SIGKILL);
    waitpid(guardian, NULL, 0);
}
