/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log lines and the thread's error text.
 *
 * The first function that knows an error sets its text with shunt__fail() and returns the status
 * that gives back; callers pass the status up. Nothing is printed unless SHUNT_DEBUG asks for it.
 */
#ifndef SHUNT_BASE_LOG_H
#define SHUNT_BASE_LOG_H

#include <stdarg.h>
#include <shunt/status.h>

typedef enum shunt__log_level {
    SHUNT__LOG_ERROR,
    SHUNT__LOG_WARN,  /* something works, but worse than it could */
    SHUNT__LOG_EVENT, /* health verdicts, plan changes, membership */
    SHUNT__LOG_INFO,  /* what was chosen and why */
    SHUNT__LOG_TRACE
} shunt__log_level_t;

/* SHUNT_DEBUG's value ("", warn, event, info, trace) becomes the threshold; "" means silence. Reads the
 * environment at its first use; the setting can be replaced by shunt__log_set(). Any thread. */
int shunt__log_on(shunt__log_level_t level);
void shunt__log_set(const char *level);
/* Another file instead of SHUNT_DEBUG_FILE's; "" changes nothing. */
void shunt__log_file(const char *pattern);
/* "rank 3/8" or the like, put before each line of this process; copied, cut at 31 bytes. After two
 * different names none is put there any more: the process stands for several ranks. */
void shunt__log_name(const char *name);
/* One line to stderr, or to the file SHUNT_DEBUG_FILE names (%p the process, %h the host). */
void shunt__log(shunt__log_level_t level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, but only the first time this place in the code is reached by the process. */
#define shunt__log_once(level, ...) \
    do { \
        static int shunt__once_; \
        if (!__atomic_exchange_n(&shunt__once_, 1, __ATOMIC_RELAXED)) \
            shunt__log(level, __VA_ARGS__); \
    } while (0)

/* Sets the thread's error text and returns `status`, so that it can end a function. */
shunt_status_t shunt__fail(shunt_status_t status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
shunt_status_t shunt__vfail(shunt_status_t status, const char *fmt, va_list ap);
/* The same with ": " and strerror(err) behind it. */
shunt_status_t shunt__fail_errno(shunt_status_t status, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
