/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt-run: the parts of the launcher.
 *
 *   main.c     the job from start to end
 *   options.c  the command line
 *   rank.c     one rank: its environment, its process, its output cut into lines
 *   report.c   what the launcher says, as text or as JSON
 *   sweep.c    leaving nothing behind: stray descendants, the guardian, the key file
 */
#ifndef SHUNT_TOOLS_RUN_H
#define SHUNT_TOOLS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct options {
    int ranks;              /* started here */
    int first_rank;         /* number of the first of them */
    int world_size;         /* of the job, which may have ranks elsewhere */
    int node_rank, nodes;   /* this host among those of the job */
    bool bind;              /* each rank to a core of its own */
    const char *host;       /* put into the prefix of each line; NULL: the number alone */
    const char *master_addr;
    int master_port;        /* 0: a free one */
    const char *run_id;     /* NULL: a random one */
    const char *key_file;   /* NULL: SHUNT_KEY_FILE of the environment, else one made for this job */
    char **env;             /* "NAME=VALUE", NULL-terminated */
    int64_t timeout;        /* nanoseconds; 0: none */
    int64_t grace;          /* nanoseconds between the polite signal and SIGKILL */
    bool keep_going;
    bool prefix;
    bool json;
    char **command;         /* NULL-terminated */
};

/* A pipe from a rank, cut into lines. */
struct stream {
    int fd; /* -1: closed */
    bool is_stderr;
    char *line;
    size_t len;
};

struct rank {
    int number;
    pid_t pid; /* 0: not started */
    bool running;
    int wait_status; /* of waitpid(), once it no longer runs */
    int64_t started, ended;
    struct stream out, err;
};

/* options.c: fills `options` or exits with a message. `options->env` is allocated. */
void options_parse(struct options *options, int argc, char **argv);

/* Nanoseconds of the monotonic clock. */
int64_t now(void);

/* report.c */
void report_init(const struct options *options);
void report_start(const struct rank *rank);
void report_line(const struct rank *rank, bool is_stderr, const char *line, size_t len);
void report_exit(const struct rank *rank);
/* A sentence of the launcher about the job; shown as text on stderr or as a "note" event. */
void report_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void report_end(int code, const char *reason);
/* "exited with code 7" or "was killed by signal 9 (Killed)" into buf. */
void describe_status(int wait_status, char *buf, size_t size);
void report_flush(void);

/* rank.c */
/* Starts the rank's process in a process group of its own. 0, or -1 after a message: `*exit_code` is then the
 * shell's code for a command that can't be found (127) or run (126). */
int rank_start(struct rank *rank, const struct options *options, int *exit_code);
/* Reads what is there and reports whole lines. False once the stream has ended, after its last, partial line. */
bool stream_read(struct rank *rank, struct stream *stream);

/* sweep.c */
/* Makes this process the parent of every descendant that loses its own, and starts the guardian: a process that,
 * should the launcher be killed outright, kills all ranks and removes the key file. -1 on failure. */
int sweep_init(int ranks);
void sweep_add(int index, pid_t pid);
void sweep_key_file(const char *path);
/* Signals the process groups of all ranks, and with `strays` every other descendant. Returns how many got it. */
int sweep_signal(int signal, bool strays);
/* True while a descendant other than the guardian lives. */
bool sweep_any(void);
/* The ordinary end: dismisses the guardian and removes the key file. */
void sweep_done(void);
bool sweep_is_guardian(pid_t pid);

#endif
