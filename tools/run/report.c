/* SPDX-License-Identifier: BSD-3-Clause */
/* What shunt-run prints: the ranks' lines with their prefix and its own sentences, or one JSON object per line. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include "tools/run/run.h"

static const struct options *opt;
static int64_t begin;
static int width;

int64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

void report_init(const struct options *options)
{
    static char out_buf[1 << 16], err_buf[1 << 16];

    opt = options;
    begin = now();
    width = snprintf(NULL, 0, "%d", options->world_size - 1);
    /* Lines of all ranks meet here: whole ones only, flushed after each batch. */
    setvbuf(stdout, out_buf, _IOFBF, sizeof(out_buf));
    setvbuf(stderr, err_buf, _IOFBF, sizeof(err_buf));
}

void report_flush(void)
{
    fflush(stdout);
    fflush(stderr);
}

static double seconds(void)
{
    return (double)(now() - begin) / 1e9;
}

/* Length of the UTF-8 sequence at s, or 0 where there is none. */
static size_t utf8_length(const unsigned char *s, size_t len)
{
    size_t need = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 :
                  s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;

    if (need == 0 || need > len)
        return 0;
    for (size_t i = 1; i < need; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return need;
}

static void json_string(const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;

    putchar('"');
    while (len > 0) {
        size_t n = utf8_length(s, len);

        if (n == 0) {
            fputs("\\ufffd", stdout);
            n = 1;
        } else if (*s == '"' || *s == '\\') {
            printf("\\%c", *s);
        } else if (*s < 0x20 || *s == 0x7f) {
            printf("\\u%04x", *s);
        } else {
            fwrite(s, 1, n, stdout);
        }
        s += n;
        len -= n;
    }
    putchar('"');
}

void report_start(const struct rank *rank)
{
    if (opt->json)
        printf("{\"event\":\"start\",\"rank\":%d,\"pid\":%d,\"time\":%.6f}\n", rank->number, (int)rank->pid,
               seconds());
}

void report_line(const struct rank *rank, bool is_stderr, const char *line, size_t len)
{
    FILE *to = is_stderr ? stderr : stdout;

    if (opt->json) {
        printf("{\"event\":\"output\",\"rank\":%d,\"stream\":\"%s\",\"line\":", rank->number,
               is_stderr ? "stderr" : "stdout");
        json_string(line, len);
        puts("}");
        return;
    }
    if (opt->prefix && opt->host)
        fprintf(to, "[%s %*d] ", opt->host, width, rank->number);
    else if (opt->prefix)
        fprintf(to, "[%*d] ", width, rank->number);
    fwrite(line, 1, len, to);
    putc('\n', to);
}

void describe_status(int wait_status, char *buf, size_t size)
{
    if (WIFSIGNALED(wait_status))
        snprintf(buf, size, "was killed by signal %d (%s)", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    else
        snprintf(buf, size, "exited with code %d", WEXITSTATUS(wait_status));
}

void report_exit(const struct rank *rank)
{
    if (!opt->json)
        return;
    printf("{\"event\":\"exit\",\"rank\":%d,\"pid\":%d,", rank->number, (int)rank->pid);
    if (WIFSIGNALED(rank->wait_status))
        printf("\"code\":null,\"signal\":%d,", WTERMSIG(rank->wait_status));
    else
        printf("\"code\":%d,\"signal\":null,", WEXITSTATUS(rank->wait_status));
    printf("\"time\":%.6f}\n", seconds());
}

void report_note(const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (opt && opt->json) {
        printf("{\"event\":\"note\",\"text\":");
        json_string(text, strlen(text));
        printf(",\"time\":%.6f}\n", seconds());
    } else if (opt && opt->host) {
        fprintf(stderr, "shunt-run: %s: %s\n", opt->host, text);
    } else {
        fprintf(stderr, "shunt-run: %s\n", text);
    }
    report_flush();
}

void report_end(int code, const char *reason)
{
    if (!opt->json)
        return;
    printf("{\"event\":\"end\",\"code\":%d,\"reason\":", code);
    json_string(reason, strlen(reason));
    printf(",\"time\":%.6f}\n", seconds());
}
