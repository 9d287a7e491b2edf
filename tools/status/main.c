/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt-status: asks the live ranks of this host (of this network namespace). Each process of Shunt listens on a socket of the
 * abstract namespace called shunt-status-UID-PID-NUMBER and answers with a line of JSON and text for people.
 */
#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <shunt/comm.h>

#define PREFIX "shunt-status-"

static void usage(FILE *f)
{
    fputs("usage: shunt-status [--json] [--watch [SECONDS]] [--pid PID]\n"
          "Asks the processes of this host that use Shunt: their ranks, who waits for whom and since when, rails that are not\n"
          "up and why, and verdicts about what is slow. For another host of a lab: shunt-lab exec HOST shunt-status\n"
          "\n"
          "  -j, --json             one JSON array instead of text\n"
          "  -w, --watch [SECONDS]  again and again (1)\n"
          "  -p, --pid PID          this process only\n"
          "      --help, --version\n"
          "\n"
          "Exit status: 0 somebody answered and all is well, 1 a communicator is broken, a rank is lost or something is slow,\n"
          "2 bad usage, 3 nobody answered.\n", f);
}

/* Everything the process behind the name says, to be freed; NULL when it does not answer within a second. */
static char *ask(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval limit = {1, 0};
    size_t len = 0, cap = 65536, n = strlen(name);
    char *text;
    int fd;

    if (n + 1 >= sizeof(a.sun_path) || (fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0)
        return NULL;
    memcpy(a.sun_path + 1, name, n);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    text = malloc(cap);
    if (!text || connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n))) {
        free(text);
        close(fd);
        return NULL;
    }
    for (;;) {
        ssize_t k = read(fd, text + len, cap - len - 1);
        if (k <= 0)
            break;
        len += (size_t)k;
        if (len + 1 == cap) {
            char *more = cap < (64u << 20) ? realloc(text, 2 * cap) : NULL;
            if (!more)
                break;
            text = more;
            cap *= 2;
        }
    }
    close(fd);
    text[len] = 0;
    if (len)
        return text;
    free(text);
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    const char *x = strchr(*(char *const *)a, '\n'), *y = strchr(*(char *const *)b, '\n');
    int rank_x = -1, rank_y = -1;

    if (x && y && sscanf(x, "\nrank %d", &rank_x) == 1 && sscanf(y, "\nrank %d", &rank_y) == 1 && rank_x != rank_y)
        return rank_x < rank_y ? -1 : 1;
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The answers of all processes, sorted by rank; how many, and how many did not answer. */
static int collect(long pid, char ***out, int *silent)
{
    char line[512], *name;
    FILE *f = fopen("/proc/net/unix", "r");
    int n = 0;

    *out = NULL;
    *silent = 0;
    if (!f) {
        perror("shunt-status: /proc/net/unix");
        return 0;
    }
    while (fgets(line, sizeof(line), f)) {
        unsigned flags = 0;
        long uid, owner;
        line[strcspn(line, "\n")] = 0;
        name = strstr(line, "@" PREFIX);
        if (!name || sscanf(line, "%*[^:]: %*x %*x %x", &flags) != 1 || !(flags & 0x10000)) /* listening ones */
            continue;
        if (sscanf(name, "@" PREFIX "%ld-%ld-", &uid, &owner) != 2 || (pid && owner != pid))
            continue;
        char *text = ask(name + 1), **more = text ? realloc(*out, ((size_t)n + 1) * sizeof(*more)) : NULL;
        if (!text || !more) {
            printf("process %ld does not answer (stopped, or it has SHUNT_THREAD=0 and is not in a call)\n", owner);
            ++*silent;
            free(text);
            continue;
        }
        *out = more;
        more[n++] = text;
    }
    fclose(f);
    if (n)
        qsort(*out, (size_t)n, sizeof(**out), by_text);
    return n;
}

static int show(long pid, int json)
{
    char **all;
    int silent, bad = 0, n = collect(pid, &all, &silent);

    if (json)
        printf("[");
    for (int i = 0; i < n; i++) {
        char *text = strchr(all[i], '\n');
        if (text)
            *text++ = 0;
        if (json)
            printf("%s%s", i ? ",\n" : "", all[i]);
        else
            fputs(text ? text : "", stdout);
        bad |= strstr(all[i], "\"verdicts\":[]") == NULL || strstr(all[i], "\"lost\":[{") != NULL;
        for (const char *s = all[i]; (s = strstr(s, "\"size\":")) != NULL; s++) {
            const char *state = strstr(s, "\"state\":\"");
            bad |= state && strncmp(state, "\"state\":\"OK\"", 12) != 0;
        }
        free(all[i]);
    }
    free(all);
    if (json)
        printf("]\n");
    else if (n + silent == 0)
        printf("no process of this host uses Shunt%s\n", pid ? " under that number" : "");
    fflush(stdout);
    return n == 0 ? 3 : bad || silent;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"json", 0, 0, 'j'}, {"watch", 2, 0, 'w'}, {"pid", 1, 0, 'p'},
                                          {"help", 0, 0, 'h'}, {"version", 0, 0, 'V'}, {0, 0, 0, 0}};
    int c, json = 0, watch = 0, rc;
    double every = 1;
    long pid = 0;
    char *end;

    while ((c = getopt_long(argc, argv, "jw::p:", longs, NULL)) != -1)
        switch (c) {
        case 'j': json = 1; break;
        case 'w':
            watch = 1;
            if (!optarg && optind < argc && argv[optind][0] >= '0' && argv[optind][0] <= '9')
                optarg = argv[optind++];
            every = optarg ? strtod(optarg, &end) : 1;
            if (optarg && (*end || every < 0.1 || every > 3600)) {
                fprintf(stderr, "shunt-status: --watch %s: expected seconds, 0.1 to 3600\n", optarg);
                return 2;
            }
            break;
        case 'p':
            pid = strtol(optarg, &end, 10);
            if (*end || pid <= 0) {
                fprintf(stderr, "shunt-status: --pid %s: expected the number of a process\n", optarg);
                return 2;
            }
            break;
        case 'h': usage(stdout); return 0;
        case 'V': printf("shunt-status %s\n", shunt_version()); return 0;
        default: usage(stderr); return 2;
        }
    if (optind < argc) {
        fprintf(stderr, "shunt-status: what is \"%s\"? see shunt-status --help\n", argv[optind]);
        return 2;
    }
    do {
        if (watch && !json && isatty(STDOUT_FILENO))
            printf("\033[H\033[2J");
        rc = show(pid, json);
        if (watch)
            nanosleep(&(struct timespec){(time_t)every, (long)((every - (double)(time_t)every) * 1e9)}, NULL);
    } while (watch);
    return rc;
}
