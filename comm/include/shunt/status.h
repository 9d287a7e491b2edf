/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt/status.h - what every function of Shunt returns.
 *
 * Codes are grouped by the largest thing that was damaged: after a request error only that request
 * is lost, after a peer error the operations with that peer, after a communicator error the
 * communicator must be shrunk or freed, after a process error the context.
 */
#ifndef SHUNT_STATUS_H
#define SHUNT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SHUNT_API __attribute__((visibility("default")))
#else
#define SHUNT_API
#endif

typedef enum shunt_status {
    SHUNT_OK = 0,
    SHUNT_IN_PROGRESS = 1, /* not done yet; ask again */

    /* one request: nothing else is harmed */
    SHUNT_ERR_INVALID = -1,   /* an argument is wrong; the text says which */
    SHUNT_ERR_TRUNCATED = -2, /* the message was longer than the receive buffer */
    SHUNT_ERR_CANCELED = -3,  /* the request was cancelled */
    SHUNT_ERR_MISMATCH = -4,  /* ranks disagree about a collective: kind, count, type, operator or root */
    SHUNT_ERR_UNSUPPORTED = -5, /* valid, but this build or machine can't; the text says what it needs */
    SHUNT_ERR_NOT_FOUND = -6, /* a file, device or object that was named does not exist */
    SHUNT_ERR_FORMAT = -7,    /* a file or message that is not what it should be */
    SHUNT_ERR_AGAIN = -8,     /* no room just now */

    /* one peer or one rail */
    SHUNT_ERR_PEER = -20,     /* a peer's process died */
    SHUNT_ERR_TIMEOUT = -21,  /* a peer can't be reached, or something did not happen in its time */
    SHUNT_ERR_RAIL = -22,     /* a rail failed */

    /* the communicator */
    SHUNT_ERR_REVOKED = -40,  /* revoked by this rank or another */
    SHUNT_ERR_ABORTED = -41,  /* aborted by this rank or another */
    SHUNT_ERR_EXCLUDED = -42, /* the others agreed to go on without this rank */

    /* the process */
    SHUNT_ERR_NO_MEMORY = -60,
    SHUNT_ERR_LIMIT = -61,    /* descriptors, memlock, /dev/shm: the text names the limit */
    SHUNT_ERR_PERMISSION = -62,
    SHUNT_ERR_SYSTEM = -63,   /* a system call failed; the text has its error */
    SHUNT_ERR_AUTH = -64,     /* the other side does not know this job's key */
    SHUNT_ERR_VERSION = -65,  /* the other side runs another version of Shunt */
    SHUNT_ERR_INTERNAL = -66  /* a bug in Shunt */
} shunt_status_t;

/* The code's name without its prefix, e.g. "PEER". Never NULL; static; any thread. */
SHUNT_API const char *shunt_status_name(shunt_status_t status);

/* One sentence that says what the code means. Never NULL; static; any thread. */
SHUNT_API const char *shunt_status_text(shunt_status_t status);

/*
 * The text of the last error that a function of Shunt returned on this thread: what failed, for
 * whom, and what to do. Owned by the library, valid until the thread's next call into it. Never
 * NULL; "" before the first error.
 */
SHUNT_API const char *shunt_error_text(void);

#ifdef __cplusplus
}
#endif
#endif
