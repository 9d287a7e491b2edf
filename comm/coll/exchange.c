/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-all, barrier, and the short allgather.
 *
 * All-to-all: in round i the ranks whose numbers add up to i (mod n) swap their blocks, each as one message; at most
 * SHUNT__PAIRS rounds of a rank are under way, so that a receiver is not buried. In place, what arrives waits in scratch until
 * the block that it replaces has left. alltoallv does the same with a message per pair even where it is empty, since
 * that is how differing counts are found.
 *
 * Barrier: in round k each rank tells the one 2^k ahead and waits for the one 2^k behind (dissemination; D. Hensgen, R.
 * Finkel, U. Manber, "Two algorithms for barrier synchronization", IJPP 17(1), 1988). ceil(log2 n) steps.
 *
 * Allgather (Bruck): in round k each rank sends the 2^k blocks it has to the one 2^k behind, and gets the next 2^k from
 * ahead; at the end the blocks are turned to their places. ceil(log2 n) steps, S (n-1)/n bytes, one copy more. (J. Bruck, C.-T.
 * Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for all-to-all communications in multiport
 * message-passing systems", IEEE TPDS 8(11), 1997.)
 */
#include "comm/coll/coll.h"
#include "comm/coll/schedule.h"

/* Parts in which an in-place all-to-all swaps its blocks. */
#define SWAP_PART (128 * 1024)

static int round_peer(const struct shunt__call *call, int round)
{
    return ((round - call->rank) % call->size + call->size) % call->size;
}

static void alltoall_in_place(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width, part = shunt__min(block, call->segment ? call->segment : SWAP_PART);
    shunt__place_t slots = shunt__schedule_work(s, SHUNT__PAIRS * part);
    int freed[SHUNT__PAIRS], used = 0;

    for (int i = 0; i < SHUNT__PAIRS; i++)
        freed[i] = SHUNT__NOW;
    for (int round = 0; round < call->size; round++) {
        int peer = round_peer(call, round);

        if (peer == call->rank)
            continue;
        for (size_t at = 0; at < block; at += part) {
            size_t bytes = shunt__min(part, block - at);
            shunt__place_t slot = slots + (size_t)used * part, place = SHUNT__OUT + block * (size_t)peer + at;
            int sent = shunt__step_send(s, place, bytes, peer, freed[used]);
            int got = shunt__step_recv(s, slot, bytes, peer, freed[used]);

            freed[used] = shunt__step_after(s, shunt__step_copy(s, place, slot, bytes, got), sent);
            used = (used + 1) % SHUNT__PAIRS;
        }
    }
}

void shunt__alltoall_direct(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width;
    int ended[SHUNT__PAIRS], used = 0;

    if (call->in_place) {
        alltoall_in_place(s, call);
        return;
    }
    for (int i = 0; i < SHUNT__PAIRS; i++)
        ended[i] = SHUNT__NOW;
    for (int round = 0; round < call->size; round++) {
        int peer = round_peer(call, round), both;

        if (peer == call->rank) {
            shunt__step_copy_parts(s, SHUNT__OUT + block * (size_t)peer, SHUNT__IN + block * (size_t)peer, block,
                                   SHUNT__NOW);
            continue;
        }
        both = shunt__step_join(s);
        shunt__step_after(s, both, shunt__step_recv(s, SHUNT__OUT + block * (size_t)peer, block, peer, ended[used]));
        shunt__step_after(s, both, shunt__step_send(s, SHUNT__IN + block * (size_t)peer, block, peer, ended[used]));
        ended[used] = both;
        used = (used + 1) % SHUNT__PAIRS;
    }
}

void shunt__alltoallv_direct(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t w = call->width;
    int ended[SHUNT__PAIRS], used = 0;

    for (int i = 0; i < SHUNT__PAIRS; i++)
        ended[i] = SHUNT__NOW;
    for (int round = 0; round < call->size; round++) {
        int peer = round_peer(call, round), both;
        shunt__place_t to = SHUNT__OUT + call->recv_displs[peer] * w, from = SHUNT__IN + call->send_displs[peer] * w;

        if (peer == call->rank) {
            shunt__step_copy_parts(s, to, from, call->send_counts[peer] * w, SHUNT__NOW);
            continue;
        }
        both = shunt__step_join(s);
        shunt__step_after(s, both, shunt__step_recv(s, to, call->recv_counts[peer] * w, peer, ended[used]));
        shunt__step_after(s, both, shunt__step_send(s, from, call->send_counts[peer] * w, peer, ended[used]));
        ended[used] = both;
        used = (used + 1) % SHUNT__PAIRS;
    }
}

void shunt__barrier_dissemination(struct shunt__schedule *s, const struct shunt__call *call)
{
    int n = call->size, got = SHUNT__NOW;

    for (int distance = 1; distance < n; distance *= 2) {
        shunt__step_send(s, SHUNT__IN, 0, (call->rank + distance) % n, got);
        got = shunt__step_after(s, shunt__step_recv(s, SHUNT__OUT, 0, (call->rank - distance + n) % n, SHUNT__NOW), got);
    }
}

void shunt__allgather_bruck(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width;
    int n = call->size, have = shunt__step_join(s);
    shunt__place_t work = shunt__schedule_work(s, (size_t)n * block);

    shunt__step_after(s, have, shunt__step_copy(s, work, SHUNT__IN, block, SHUNT__NOW));
    for (int distance = 1; distance < n; distance *= 2) {
        int blocks = distance < n - distance ? distance : n - distance, got;
        size_t bytes = (size_t)blocks * block;

        shunt__step_send(s, work, bytes, (call->rank - distance + n) % n, have);
        got = shunt__step_recv(s, work + (size_t)distance * block, bytes, (call->rank + distance) % n, SHUNT__NOW);
        have = shunt__step_after(s, shunt__step_after(s, shunt__step_join(s), have), got);
        for (int i = distance; i < distance + blocks; i++)
            shunt__step_copy(s, SHUNT__OUT + block * (size_t)((call->rank + i) % n), work + (size_t)i * block, block, got);
    }
    if (!call->in_place)
        shunt__step_copy_parts(s, SHUNT__OUT + block * (size_t)call->rank, SHUNT__IN, block, SHUNT__NOW);
}
