/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small Test Anything Protocol producer: ok() per assertion, done() at the end.
 *
 *     int main(void) { ok(1 + 1 == 2, "sums"); skip("no root"); return done(); }
 */
#ifndef SHUNT_TESTS_TAP_H
#define SHUNT_TESTS_TAP_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_count, tap_failed;

__attribute__((format(printf, 4, 5), unused)) static int tap_ok(int good, const char *file, int line,
                                                                const char *fmt, ...)
{
    va_list ap;

    printf("%sok %d - ", good ? "" : "not ", ++tap_count);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    if (!good) {
        tap_failed++;
        printf("# at %s:%d\n", file, line);
    }
    fflush(stdout);
    return good;
}

#define ok(cond, ...) tap_ok(!!(cond), __FILE__, __LINE__, __VA_ARGS__)
/* Compares integers and shows both when they differ. */
#define is_int(got, want, ...) \
    do { \
        long long got_ = (long long)(got), want_ = (long long)(want); \
        if (!ok(got_ == want_, __VA_ARGS__)) \
            printf("# got %lld, expected %lld\n", got_, want_); \
    } while (0)
#define is_str(got, want, ...) \
    do { \
        const char *got_ = (got), *want_ = (want); \
        if (!ok(got_ && want_ && strcmp(got_, want_) == 0, __VA_ARGS__)) \
            printf("# got \"%s\", expected \"%s\"\n", got_ ? got_ : "(null)", want_); \
    } while (0)

__attribute__((format(printf, 1, 2), unused)) static void skip(const char *fmt, ...)
{
    va_list ap;

    printf("ok %d # SKIP ", ++tap_count);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
}

__attribute__((unused)) static int done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}

#endif
