/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that stay behind: how they start and how they are known again. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/lab/lab.h"

static int ready_pipe = -1;

int lab_fail(const char *fmt, ...)
{
    va_list ap;
    int err = errno;

    va_start(ap, fmt);
    fputs("shunt-lab: ", stderr);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, ": %s\n", strerror(err));
    va_end(ap);
    return 1;
}

void lab_background(void)
{
    int ends[2];
    char byte;

    if (pipe2(ends, O_CLOEXEC))
        exit(lab_fail("no pipe"));
    switch (fork()) {
    case -1:
        exit(lab_fail("no process"));
    case 0:
        close(ends[0]);
        ready_pipe = ends[1];
        setsid();
        return;
    default:
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 1 ? 0 : 1);
    }
}

/* Field 22 of /proc/self/stat; the name before it may hold anything, so count from its closing bracket. */
static unsigned long long start_time(void)
{
    char text[1024], *field;
    unsigned long long start = 0;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    field = strrchr(text, ')');
    for (int i = 0; field && i < 20; i++)
        field = strchr(field + 1, ' ');
    if (field)
        start = strtoull(field, NULL, 10);
    return start;
}

int lab_ready(const char *path)
{
    char temporary[PATH_MAX];
    struct stat net;
    FILE *file;
    int null;

    snprintf(temporary, sizeof(temporary), "%s.new", path);
    file = fopen(temporary, "w");
    if (!file || stat("/proc/self/ns/net", &net))
        return lab_fail("%s", temporary);
    fprintf(file, "%d %llu %lu\n", (int)getpid(), start_time(), (unsigned long)net.st_ino);
    if (fclose(file) || rename(temporary, path))
        return lab_fail("%s", path);
    null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
    if (chdir("/"))
        return 1;
    if (ready_pipe >= 0 && write(ready_pipe, "", 1) == 1)
        close(ready_pipe);
    return 0;
}
