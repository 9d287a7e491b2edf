/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 0 puts the id, the others ask for it until it is there. There is no fence: a rank that never comes would hold it
 * up without a name, while the meeting itself can say who is missing.
 */
#include "config.h"
#include "comm/boot/pmix.h"
#include <stdlib.h>
#include "comm/base/log.h"

int shunt__boot_pmix_present(void)
{
    const char *rank = getenv("PMIX_RANK"), *space = getenv("PMIX_NAMESPACE");

    return rank && *rank && space && *space;
}

#ifdef HAVE_PMIX
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "comm/base/clock.h"

static pmix_proc_t self;

static void key_name(char key[PMIX_MAX_KEYLEN + 1], unsigned n)
{
    snprintf(key, PMIX_MAX_KEYLEN + 1, "shunt.id.%u", n);
}

shunt_status_t shunt__boot_pmix_open(int *rank, int *size)
{
    pmix_proc_t job;
    pmix_value_t *value = NULL;
    pmix_status_t rc = PMIx_Init(&self, NULL, 0);

    if (rc != PMIX_SUCCESS)
        return shunt__fail(SHUNT_ERR_SYSTEM, "this process was started under PMIx, but PMIx_Init says: %s",
                           PMIx_Error_string(rc));
    PMIX_LOAD_PROCID(&job, self.nspace, PMIX_RANK_WILDCARD);
    rc = PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
    if (rc != PMIX_SUCCESS || !value || value->type != PMIX_UINT32) {
        PMIx_Finalize(NULL, 0);
        return shunt__fail(SHUNT_ERR_SYSTEM, "PMIx does not tell the number of ranks: %s", PMIx_Error_string(rc));
    }
    *rank = (int)self.rank;
    *size = (int)value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return SHUNT_OK;
}

shunt_status_t shunt__boot_pmix_put(unsigned n, const unsigned char id[SHUNT__BOOT_ID_BYTES])
{
    char key[PMIX_MAX_KEYLEN + 1], bytes[SHUNT__BOOT_ID_BYTES];
    pmix_value_t value;
    pmix_status_t rc;

    key_name(key, n);
    memcpy(bytes, id, sizeof(bytes));
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = bytes;
    value.data.bo.size = sizeof(bytes);
    rc = PMIx_Put(PMIX_GLOBAL, key, &value);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Commit();
    if (rc != PMIX_SUCCESS)
        return shunt__fail(SHUNT_ERR_SYSTEM, "the id can't be handed out through PMIx: %s", PMIx_Error_string(rc));
    return SHUNT_OK;
}

/* Outlives a caller that gives up: whoever comes second, caller or callback, frees it. */
struct request {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int finished, abandoned, got;
    pmix_status_t rc;
    unsigned char id[SHUNT__BOOT_ID_BYTES];
};

static void free_request(struct request *r)
{
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->done);
    free(r);
}

static void answered(pmix_status_t rc, pmix_value_t *value, void *arg)
{
    struct request *r = arg;
    int abandoned;

    pthread_mutex_lock(&r->lock);
    r->rc = rc;
    if (rc == PMIX_SUCCESS && value && value->type == PMIX_BYTE_OBJECT && value->data.bo.size == sizeof(r->id)) {
        memcpy(r->id, value->data.bo.bytes, sizeof(r->id));
        r->got = 1;
    }
    r->finished = 1;
    abandoned = r->abandoned;
    pthread_cond_signal(&r->done);
    pthread_mutex_unlock(&r->lock);
    if (abandoned)
        free_request(r);
}

static void wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, long ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(cond, lock, &until);
}

/* One question to the server. AGAIN: it does not know yet. */
static shunt_status_t ask(const char *key, unsigned char *id, uint64_t deadline, const int *stop)
{
    struct request *r = calloc(1, sizeof(*r));
    pthread_condattr_t attr;
    pmix_proc_t root;
    pmix_status_t rc;
    shunt_status_t status = SHUNT_OK;

    if (!r)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to ask PMIx for the id");
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->done, &attr);
    pthread_condattr_destroy(&attr);
    PMIX_LOAD_PROCID(&root, self.nspace, 0);
    rc = PMIx_Get_nb(&root, key, NULL, 0, answered, r);
    if (rc != PMIX_SUCCESS) {
        free_request(r);
        if (rc == PMIX_ERR_NOT_FOUND)
            return SHUNT_ERR_AGAIN;
        return shunt__fail(SHUNT_ERR_SYSTEM, "PMIx does not look for the id: %s", PMIx_Error_string(rc));
    }
    pthread_mutex_lock(&r->lock);
    while (!r->finished) {
        if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED)) {
            status = shunt__fail(SHUNT_ERR_ABORTED, "aborted while waiting for rank 0's id from PMIx");
            break;
        }
        if (shunt__now() >= deadline) {
            status = shunt__fail(SHUNT_ERR_TIMEOUT, "rank 0 is missing: it has not handed out the id through PMIx within "
                                 "SHUNT_BOOTSTRAP_TIMEOUT");
            break;
        }
        wait_ms(&r->done, &r->lock, 50);
    }
    if (r->finished) {
        if (r->got) {
            memcpy(id, r->id, sizeof(r->id));
            status = SHUNT_OK;
        } else if (r->rc == PMIX_ERR_NOT_FOUND || r->rc == PMIX_ERR_TIMEOUT)
            status = SHUNT_ERR_AGAIN;
        else
            status = shunt__fail(SHUNT_ERR_SYSTEM, "PMIx does not give the id: %s", PMIx_Error_string(r->rc));
        pthread_mutex_unlock(&r->lock);
        free_request(r);
        return status;
    }
    r->abandoned = 1;
    pthread_mutex_unlock(&r->lock);
    return status;
}

shunt_status_t shunt__boot_pmix_get(unsigned n, unsigned char id[SHUNT__BOOT_ID_BYTES], uint64_t deadline, const int *stop)
{
    char key[PMIX_MAX_KEYLEN + 1];
    shunt_status_t status;

    key_name(key, n);
    while ((status = ask(key, id, deadline, stop)) == SHUNT_ERR_AGAIN) {
        struct timespec pause = {0, 20 * 1000000};

        if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED))
            return shunt__fail(SHUNT_ERR_ABORTED, "aborted while waiting for rank 0's id from PMIx");
        if (shunt__now() >= deadline)
            return shunt__fail(SHUNT_ERR_TIMEOUT, "rank 0 is missing: it has not handed out the id through PMIx within "
                               "SHUNT_BOOTSTRAP_TIMEOUT");
        nanosleep(&pause, NULL);
    }
    return status;
}

void shunt__boot_pmix_close(void)
{
    PMIx_Finalize(NULL, 0);
}

#else

shunt_status_t shunt__boot_pmix_open(int *rank, int *size)
{
    return shunt__fail(SHUNT_ERR_UNSUPPORTED, "this process was started under PMIx, but this build of Shunt has no PMIx: "
                       "install libpmix-dev and build again, or start it with torchrun's variables or SHUNT_ID_FILE");
}

shunt_status_t shunt__boot_pmix_put(unsigned n, const unsigned char id[SHUNT__BOOT_ID_BYTES])
{
    return SHUNT_ERR_UNSUPPORTED;
}

shunt_status_t shunt__boot_pmix_get(unsigned n, unsigned char id[SHUNT__BOOT_ID_BYTES], uint64_t deadline, const int *stop)
{
    return SHUNT_ERR_UNSUPPORTED;
}

void shunt__boot_pmix_close(void)
{
}

#endif
