/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payloads that the receiver reads straight out of the sender's memory: one copy instead of two.
 *
 * The record holds the frame and a word of state, which is the payload's address until somebody changes it:
 *
 *     receiver    reads the payload, then state: address ──► DONE; if that fails, what it read is void
 *     detach()    copies the payload, then state: address ──► address of the copy
 *     teardown    state ──► GONE
 *
 * So the sender takes its memory back at any moment without waiting: a read that was going on is not used.
 * A peer that is dead has no memory to read; that is left to the socket and the pidfd, which say so at once.
 *
 * process_vm_readv() costs pinned pages, not cache misses: it wins while a message fits the caches (1.2 to 2.3 times
 * two copies at 16 KiB to 1 MiB), and loses above (0.9 at 4 MiB, 0.5 at 64 MiB), where the two copies overlap.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "comm/rail/shm.h"

#define STATE_DONE 0
#define STATE_GONE 1
#define TRIES 16 /* each means that the sender has moved the payload meanwhile */

static int read_memory(pid_t pid, uint64_t address, void *to, size_t length)
{
    size_t done = 0;

    while (done < length) {
        struct iovec local = {(char *)to + done, length - done};
        struct iovec remote = {(void *)(uintptr_t)(address + done), length - done};
        ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : EFAULT;
        done += (size_t)got;
    }
    return 0;
}

void shunt__shm_direct_try(struct shunt__shm_conn *c, uint64_t address, uint64_t value)
{
    uint64_t got = ~value;

    if (c->pid > 0 && read_memory(c->pid, address, &got, sizeof(got)) == 0 && got == value)
        __atomic_store_n(&c->own->reads, 1, __ATOMIC_RELEASE);
}

static uint64_t *state_of(uint8_t *record)
{
    return (uint64_t *)(void *)(record + SHUNT__SHM_DIRECT_STATE);
}

void shunt__shm_direct_offer(struct shunt__shm_conn *c, uint8_t *record, const void *payload, uint32_t length,
                             uint64_t ref)
{
    struct shunt__shm_direct *d = &c->direct[(c->direct_first + c->n_direct++) % SHUNT__SHM_DIRECT];

    *d = (struct shunt__shm_direct){.state = state_of(record),
                                    .payload = payload,
                                    .length = length,
                                    .ref = ref,
                                    .frame = c->out.sent};
    __atomic_store_n(d->state, (uint64_t)(uintptr_t)payload, __ATOMIC_RELAXED);
}

int shunt__shm_direct_fetch(struct shunt__shm_conn *c, uint8_t *record, void *to, uint32_t length)
{
    uint64_t *state = state_of(record);

    for (int i = 0; i < TRIES; i++) {
        uint64_t address = __atomic_load_n(state, __ATOMIC_ACQUIRE);
        int err;

        if (address == STATE_GONE)
            return ECANCELED;
        if (address == STATE_DONE)
            return EPROTO;
        err = read_memory(c->pid, address, to, length);
        if (err == ESRCH)
            return ESRCH;
        if (__atomic_compare_exchange_n(state, &address, err ? address : STATE_DONE, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return err;
    }
    return EPROTO;
}

int shunt__shm_direct_detach(struct shunt__shm_conn *c, uint64_t ref)
{
    for (uint32_t i = 0; i < c->n_direct; i++) {
        struct shunt__shm_direct *d = &c->direct[(c->direct_first + i) % SHUNT__SHM_DIRECT];
        uint64_t address = (uint64_t)(uintptr_t)d->payload;

        if (d->ref != ref || d->detached)
            continue;
        d->detached = 1;
        if (d->frame <= c->out.frames)
            return 0; /* accepted: its place in the ring may hold another record by now */
        d->copy = malloc(d->length);
        if (!d->copy) {
            __atomic_store_n(d->state, STATE_GONE, __ATOMIC_SEQ_CST);
            return -1;
        }
        memcpy(d->copy, d->payload, d->length);
        /* If it fails the receiver has it all. */
        __atomic_compare_exchange_n(d->state, &address, (uint64_t)(uintptr_t)d->copy, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
        return 0;
    }
    return 0;
}

int shunt__shm_direct_settle(struct shunt__shm_conn *c)
{
    const struct shunt__rail_params *p = &c->rail->base.params;

    while (c->n_direct && c->direct[c->direct_first].frame <= c->accepted) {
        struct shunt__shm_direct d = c->direct[c->direct_first];

        c->direct_first = (c->direct_first + 1) % SHUNT__SHM_DIRECT;
        c->n_direct--;
        free(d.copy);
        if (!d.detached)
            p->events->sent(p->engine, c->link, d.ref);
        if (c->state == SHUNT__SHM_GONE)
            return -1;
    }
    return 0;
}

void shunt__shm_direct_withdraw(struct shunt__shm_conn *c)
{
    for (; c->n_direct; c->n_direct--) {
        struct shunt__shm_direct *d = &c->direct[c->direct_first];

        /* What the receiver has accepted may be overwritten by later records: that word is no longer ours. */
        if (d->frame > c->out.frames)
            __atomic_store_n(d->state, STATE_GONE, __ATOMIC_SEQ_CST);
        free(d->copy);
        c->direct_first = (c->direct_first + 1) % SHUNT__SHM_DIRECT;
    }
}
