/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "event", "info", "trace"};

static __thread char error_text[1024];
static pthread_once_t started = PTHREAD_ONCE_INIT;
static int threshold = -1; /* highest level that is printed; -1: none */
static int out_fd = STDERR_FILENO;
static char who[32];
static int several; /* names were given: then none is right for all lines */
static pthread_mutex_t who_lock = PTHREAD_MUTEX_INITIALIZER;

static int level_of(const char *name)
{
    if (!name || !*name)
        return -1;
    for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++)
        if (strcmp(name, level_names[i]) == 0)
            return (int)i;
    if (strcmp(name, "1") == 0)
        return SHUNT__LOG_INFO;
    return strcmp(name, "0") == 0 || strcmp(name, "off") == 0 ? -1 : SHUNT__LOG_INFO;
}

/* Opens SHUNT_DEBUG_FILE; a file that can't be opened leaves stderr. */
static void open_file(const char *pattern)
{
    char path[512];
    size_t n = 0;

    for (const char *p = pattern; *p && n < sizeof(path) - 65; p++) {
        if (p[0] == '%' && (p[1] == 'p' || p[1] == 'h')) {
            char host[64] = "host";
            if (p[1] == 'h')
                gethostname(host, sizeof(host) - 1);
            else
                snprintf(host, sizeof(host), "%d", (int)getpid());
            n += (size_t)snprintf(path + n, sizeof(path) - n, "%s", host);
            p++;
        } else
            path[n++] = *p;
    }
    path[n] = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0)
        __atomic_store_n(&out_fd, fd, __ATOMIC_RELAXED);
}

static void start(void)
{
    const char *file = getenv("SHUNT_DEBUG_FILE");

    if (threshold < 0)
        threshold = level_of(getenv("SHUNT_DEBUG"));
    if (file && *file)
        open_file(file);
}

int shunt__log_on(shunt__log_level_t level)
{
    pthread_once(&started, start);
    return (int)level <= __atomic_load_n(&threshold, __ATOMIC_RELAXED);
}

void shunt__log_set(const char *level)
{
    pthread_once(&started, start);
    __atomic_store_n(&threshold, level_of(level), __ATOMIC_RELAXED);
}

void shunt__log_file(const char *pattern)
{
    pthread_once(&started, start);
    if (*pattern)
        open_file(pattern);
}

void shunt__log_name(const char *name)
{
    char cut[sizeof(who)];

    snprintf(cut, sizeof(cut), "%s", name);
    pthread_mutex_lock(&who_lock);
    several |= *who && strcmp(who, cut) != 0;
    snprintf(who, sizeof(who), "%s", several ? "" : cut);
    pthread_mutex_unlock(&who_lock);
}

void shunt__log(shunt__log_level_t level, const char *fmt, ...)
{
    char line[1400];
    struct timespec now;
    va_list ap;
    int n, m;

    if (!shunt__log_on(level))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&who_lock);
    n = snprintf(line, sizeof(line), "shunt %02d:%02d:%02d.%03d %s%s%s: ", (int)(now.tv_sec / 3600 % 24),
                 (int)(now.tv_sec / 60 % 60), (int)(now.tv_sec % 60), (int)(now.tv_nsec / 1000000),
                 level_names[level], *who ? " " : "", who);
    pthread_mutex_unlock(&who_lock);
    va_start(ap, fmt);
    m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
    va_end(ap);
    n = m < 0 ? n : n + m;
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n++] = '\n';
    if (write(__atomic_load_n(&out_fd, __ATOMIC_RELAXED), line, (size_t)n) < 0)
        return; /* nowhere left to say it */
}

shunt_status_t shunt__vfail(shunt_status_t status, const char *fmt, va_list ap)
{
    char text[sizeof(error_text)]; /* the arguments may have the last error's text in them */

    vsnprintf(text, sizeof(text), fmt, ap);
    memcpy(error_text, text, sizeof(text));
    shunt__log(SHUNT__LOG_INFO, "%s: %s", shunt_status_name(status), error_text);
    return status;
}

shunt_status_t shunt__fail(shunt_status_t status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    status = shunt__vfail(status, fmt, ap);
    va_end(ap);
    return status;
}

shunt_status_t shunt__fail_errno(shunt_status_t status, int err, const char *fmt, ...)
{
    char text[900], reason[100];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return shunt__fail(status, "%s: %s", text, strerror_r(err, reason, sizeof(reason)));
}

const char *shunt_error_text(void)
{
    return error_text;
}
