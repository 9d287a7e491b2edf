/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A step on the tree.
 *
 * Up: each rank passes on to its parent whatever has come from its subtree since it last did, so that rank 0 knows at any
 * time exactly who is missing. Down: when rank 0 has everything it sends it to its children, who pass each message on
 * as it comes. A link whose other side does not keep up holds back what is put into it: at most HOLD bytes wait.
 *
 * Failures spread over the same links: who finds one out tells its neighbours, who tell theirs, and then gives up. Time
 * runs out at rank 0 first; the others give it a little longer to tell them who is missing.
 */
#include "comm/boot/tree.h"
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/boot/missing.h"

#define HOLD (256 * 1024)
#define GRACE (1 * SHUNT__S)

static const char *const step_names[] = {"the meeting", "an allgather", "a barrier"};

int shunt__boot_children_of(int rank, int size)
{
    int first = shunt__boot_first_child(rank), n = size - first;

    return n < 0 ? 0 : n > SHUNT__BOOT_FANOUT ? SHUNT__BOOT_FANOUT : n;
}

/* Ranks in the subtree below and including `rank`. */
static int subtree_size(int rank, int size)
{
    int n = 0;

    for (int64_t first = rank, width = 1; first < size; first = first * SHUNT__BOOT_FANOUT + 1, width *= SHUNT__BOOT_FANOUT)
        n += (int)(first + width > size ? size - first : width);
    return n;
}

static int in_subtree(int rank, int of)
{
    while (rank > of)
        rank = shunt__boot_parent_of(rank);
    return rank == of;
}

static void tell(struct shunt__boot *boot, const struct shunt__boot_link *except)
{
    unsigned char message[SHUNT__BOOT_FAIL_TEXT + 64];
    size_t len = shunt__boot_fail_write(&boot->failure, message);

    if (boot->has_parent && &boot->parent != except)
        shunt__boot_link_send(&boot->parent, message, len);
    for (int i = 0; i < boot->n_children; i++)
        if (&boot->child[i] != except)
            shunt__boot_link_send(&boot->child[i], message, len);
}

shunt_status_t shunt__boot_tree_fail(struct shunt__boot *boot, const struct shunt__boot_link *except,
                                     shunt_status_t status, const char *fmt, ...)
{
    va_list ap;

    boot->failure.status = status;
    boot->failure.over = 0;
    va_start(ap, fmt);
    vsnprintf(boot->failure.text, sizeof(boot->failure.text), fmt, ap);
    va_end(ap);
    tell(boot, except);
    return shunt__fail(status, "%s", boot->failure.text);
}

static shunt_status_t link_lost(struct shunt__boot_running *running, const struct shunt__boot_link *link, int rank)
{
    char why[128], address[SHUNT__BOOT_ADDRESS_TEXT];
    shunt_status_t status = link->end == SHUNT__BOOT_END_RESOURCE ? SHUNT_ERR_NO_MEMORY : SHUNT_ERR_PEER;

    return shunt__boot_tree_fail(running->boot, link, status,
                                 "rank %d (%s) has gone during the start-up, in %s (step %u): %s, as rank %d of %d sees it",
                                 rank, shunt__boot_address_text(&link->peer, address), step_names[running->step],
                                 running->seq, shunt__boot_link_why(link, why, sizeof(why)), running->boot->rank,
                                 running->boot->size);
}

shunt_status_t shunt__boot_step_begin(struct shunt__boot_running *running, struct shunt__boot *boot,
                                      enum shunt__boot_step step, const void *mine, size_t len)
{
    struct shunt__boot_entry *own;

    memset(running, 0, sizeof(*running));
    if (boot->failure.status)
        return shunt__fail(boot->failure.status, "%s", boot->failure.text);
    running->boot = boot;
    running->step = step;
    running->seq = boot->seq;
    running->entry = calloc((size_t)boot->size, sizeof(*running->entry));
    if (!running->entry)
        return shunt__boot_tree_fail(boot, NULL, SHUNT_ERR_NO_MEMORY, "rank %d has no memory for the start-up", boot->rank);
    boot->seq++;
    running->want = subtree_size(boot->rank, boot->size);
    for (int i = 0; i < boot->n_children; i++)
        running->left[i] = subtree_size(shunt__boot_first_child(boot->rank) + i, boot->size);
    own = &running->entry[boot->rank];
    own->have = 1;
    own->len = len;
    running->have = 1;
    if (len > 0) {
        own->data = malloc(len);
        if (!own->data)
            return shunt__boot_tree_fail(boot, NULL, SHUNT_ERR_NO_MEMORY, "rank %d has no memory for the start-up",
                                         boot->rank);
        memcpy(own->data, mine, len);
    }
    return SHUNT_OK;
}

void shunt__boot_step_end(struct shunt__boot_running *running)
{
    if (running->entry)
        for (int i = 0; i < running->boot->size; i++)
            free(running->entry[i].data);
    free(running->entry);
    running->entry = NULL;
}

static int children_keep_up(const struct shunt__boot *boot)
{
    for (int i = 0; i < boot->n_children; i++)
        if (shunt__boot_link_unsent(&boot->child[i]) > HOLD)
            return 0;
    return 1;
}

static int all_sent(const struct shunt__boot *boot)
{
    if (boot->has_parent && shunt__boot_link_unsent(&boot->parent))
        return 0;
    for (int i = 0; i < boot->n_children; i++)
        if (shunt__boot_link_unsent(&boot->child[i]))
            return 0;
    return 1;
}

/* Takes in the entries of a message; `from` is the rank whose subtree they must be of, or -1 (from above: any). */
static int take_entries(struct shunt__boot_running *running, const unsigned char *message, size_t len, int from)
{
    size_t at = SHUNT__BOOT_STEP_HEAD, n;
    const unsigned char *data;
    int rank, more, taken = 0;

    while ((more = shunt__boot_entry_read(message, len, &at, &rank, &data, &n)) > 0) {
        struct shunt__boot_entry *entry;

        if (rank < 0 || rank >= running->boot->size || (from >= 0 && !in_subtree(rank, from)))
            return -1;
        entry = &running->entry[rank];
        if (entry->have && from >= 0)
            return -1;
        if (entry->have)
            continue; /* from above come our own subtree's too */
        entry->have = 1;
        entry->sent = from < 0; /* what came from above need not go there */
        entry->len = n;
        if (n > 0) {
            entry->data = malloc(n);
            if (!entry->data)
                return -1;
            memcpy(entry->data, data, n);
        }
        taken++;
    }
    return more < 0 ? -1 : taken;
}

/* Hands `message` to the failing of the boot when it is a FAIL; 0 when it is none. */
static shunt_status_t heard_failure(struct shunt__boot_running *running, const struct shunt__boot_link *from,
                                    const unsigned char *message, size_t len)
{
    struct shunt__boot_fail_message failure;

    if (shunt__boot_message_type(message, len) != SHUNT__BOOT_FAIL)
        return SHUNT_OK;
    if (shunt__boot_fail_read(message, len, &failure) != 0)
        return shunt__boot_tree_fail(running->boot, from, SHUNT_ERR_INTERNAL, "a damaged message in the start-up");
    return shunt__boot_tree_fail(running->boot, from, failure.status, "%s", failure.text);
}

static shunt_status_t check_step(struct shunt__boot_running *running, int rank, enum shunt__boot_type type,
                                 const unsigned char *message, size_t len, struct shunt__boot_step_message *m)
{
    struct shunt__boot *boot = running->boot;

    if (shunt__boot_step_read(message, len, m) != 0 || m->type != type)
        return shunt__boot_tree_fail(boot, NULL, SHUNT_ERR_INTERNAL, "rank %d sent rank %d a message out of order", rank,
                                     boot->rank);
    if (m->seq != running->seq || m->step != running->step)
        return shunt__boot_tree_fail(boot, NULL, SHUNT_ERR_MISMATCH,
                                     "rank %d is in %s (step %u of the start-up), rank %d in %s (step %u)", rank,
                                     step_names[m->step], m->seq, boot->rank, step_names[running->step], running->seq);
    return SHUNT_OK;
}

/* What comes from child i, as long as this step needs something from it. */
static shunt_status_t hear_child(struct shunt__boot_running *running, int i)
{
    struct shunt__boot *boot = running->boot;
    struct shunt__boot_link *link = &boot->child[i];
    struct shunt__boot_step_message m;
    int rank = shunt__boot_first_child(boot->rank) + i, taken;
    unsigned char *message;
    size_t len;
    shunt_status_t status;

    while (running->left[i] > 0 && shunt__boot_link_next(link, &message, &len)) {
        status = heard_failure(running, link, message, len);
        if (!status)
            status = check_step(running, rank, SHUNT__BOOT_UP, message, len, &m);
        if (status)
            return status;
        taken = take_entries(running, message, len, rank);
        if (taken < 0)
            return shunt__boot_tree_fail(boot, NULL, SHUNT_ERR_INTERNAL, "rank %d sent rank %d a damaged message", rank,
                                         boot->rank);
        running->left[i] -= taken;
        running->have += taken;
    }
    /* A child that has everything may leave; before that its end is a failure. */
    if (link->state == SHUNT__BOOT_CLOSED && !running->down_done)
        return link_lost(running, link, rank);
    return SHUNT_OK;
}

static shunt_status_t hear_parent(struct shunt__boot_running *running)
{
    struct shunt__boot *boot = running->boot;
    struct shunt__boot_step_message m;
    unsigned char *message;
    size_t len;
    shunt_status_t status;

    while (!running->down_done && children_keep_up(boot) && shunt__boot_link_next(&boot->parent, &message, &len)) {
        status = heard_failure(running, &boot->parent, message, len);
        if (!status)
            status = check_step(running, shunt__boot_parent_of(boot->rank), SHUNT__BOOT_DOWN, message, len, &m);
        if (status)
            return status;
        for (int i = 0; i < boot->n_children; i++)
            shunt__boot_link_send(&boot->child[i], message, len);
        if (take_entries(running, message, len, -1) < 0)
            return shunt__boot_tree_fail(boot, NULL, SHUNT_ERR_INTERNAL, "rank %d got a damaged message", boot->rank);
        running->down_done = m.last;
    }
    if (boot->parent.state == SHUNT__BOOT_CLOSED && !running->down_done)
        return link_lost(running, &boot->parent, shunt__boot_parent_of(boot->rank));
    return SHUNT_OK;
}

/* Puts into `message` what is there and not yet sent, from rank *next on; 0 when there is nothing. */
static size_t pack(struct shunt__boot_running *running, unsigned char *message, int *next, int with_data)
{
    size_t at = SHUNT__BOOT_STEP_HEAD;

    for (; *next < running->boot->size; ++*next) {
        struct shunt__boot_entry *entry = &running->entry[*next];
        size_t n = with_data ? entry->len : 0;

        if (!entry->have || entry->sent)
            continue;
        if (at + SHUNT__BOOT_ENTRY_HEAD + n > SHUNT__BOOT_MAX_MESSAGE)
            break;
        at = shunt__boot_entry_write(message, at, *next, entry->data, n);
        entry->sent = 1;
    }
    return at > SHUNT__BOOT_STEP_HEAD ? at : 0;
}

static void send_up(struct shunt__boot_running *running, unsigned char *message)
{
    struct shunt__boot *boot = running->boot;
    struct shunt__boot_step_message head = {SHUNT__BOOT_UP, running->step, running->seq, 0};
    int next = 0;
    size_t len;

    while (shunt__boot_link_unsent(&boot->parent) < HOLD && (len = pack(running, message, &next, 1)) > 0) {
        shunt__boot_step_write(&head, message);
        shunt__boot_link_send(&boot->parent, message, len);
    }
}

static void send_down(struct shunt__boot_running *running, unsigned char *message)
{
    struct shunt__boot *boot = running->boot;
    struct shunt__boot_step_message head = {SHUNT__BOOT_DOWN, running->step, running->seq, 0};

    while (!running->down_done && children_keep_up(boot)) {
        size_t len = running->step == SHUNT__BOOT_ALLGATHER ? pack(running, message, &running->next_down, 1) : 0;

        head.last = len == 0 || running->next_down == boot->size;
        shunt__boot_step_write(&head, message);
        for (int i = 0; i < boot->n_children; i++)
            shunt__boot_link_send(&boot->child[i], message, len ? len : SHUNT__BOOT_STEP_HEAD);
        running->down_done = head.last;
    }
}

void shunt__boot_step_poll(struct shunt__boot_running *running, struct shunt__boot_polls *polls)
{
    struct shunt__boot *boot = running->boot;

    if (boot->has_parent)
        shunt__boot_link_poll(&boot->parent, polls, !running->down_done && children_keep_up(boot));
    for (int i = 0; i < boot->n_children; i++)
        shunt__boot_link_poll(&boot->child[i], polls, running->left[i] > 0);
}

shunt_status_t shunt__boot_step_progress(struct shunt__boot_running *running, const struct shunt__boot_polls *polls)
{
    struct shunt__boot *boot = running->boot;
    unsigned char message[SHUNT__BOOT_MAX_MESSAGE];
    shunt_status_t status = SHUNT_OK;

    for (int i = 0; i < boot->n_children && !status; i++) {
        shunt__boot_link_progress(&boot->child[i], polls);
        status = hear_child(running, i);
    }
    if (!status && boot->has_parent) {
        shunt__boot_link_progress(&boot->parent, polls);
        status = hear_parent(running);
    }
    if (status)
        return status;
    if (boot->has_parent)
        send_up(running, message);
    else if (running->have == running->want)
        send_down(running, message);
    return running->down_done && all_sent(boot) ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

static shunt_status_t out_of_time(struct shunt__boot_running *running, double seconds)
{
    struct shunt__boot *boot = running->boot;
    struct shunt__boot_missing missing;
    char list[400];

    shunt__boot_missing_start(&missing, list, sizeof(list));
    for (int i = 0; i < boot->size; i++)
        if (in_subtree(i, boot->rank) && !running->entry[i].have)
            shunt__boot_missing_add(&missing, i);
    shunt__boot_missing_end(&missing);
    if (boot->rank == 0 || running->have < running->want)
        return shunt__boot_tree_fail(boot, NULL, SHUNT_ERR_TIMEOUT,
                                     "%s in %s (step %u of the start-up) after %.3g s, as rank %d of %d sees it", list,
                                     step_names[running->step], running->seq, seconds, boot->rank, boot->size);
    return shunt__boot_tree_fail(boot, NULL, SHUNT_ERR_TIMEOUT,
                                 "rank 0 has not answered rank %d of %d through rank %d in %s (step %u of the start-up) after "
                                 "%.3g s", boot->rank, boot->size, shunt__boot_parent_of(boot->rank),
                                 step_names[running->step], running->seq, seconds);
}

static shunt_status_t run_step(struct shunt__boot *boot, enum shunt__boot_step step, const void *mine, size_t len,
                               const int *stop, struct shunt__boot_running *running)
{
    uint64_t started = shunt__now(), deadline = started + boot->timeout;
    shunt_status_t status = shunt__boot_step_begin(running, boot, step, mine, len);

    for (int r = boot->rank; r > 0; r = shunt__boot_parent_of(r))
        deadline += GRACE;
    if (status)
        return status;
    boot->polls.n = 0;
    for (;;) {
        uint64_t now;

        status = shunt__boot_step_progress(running, &boot->polls);
        if (status != SHUNT_IN_PROGRESS)
            return status;
        now = shunt__now();
        if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED))
            return shunt__boot_tree_fail(boot, NULL, SHUNT_ERR_ABORTED, "rank %d of %d was aborted during the start-up",
                                         boot->rank, boot->size);
        if (now >= deadline)
            return out_of_time(running, (double)(now - started) / SHUNT__S);
        boot->polls.n = 0;
        shunt__boot_step_poll(running, &boot->polls);
        shunt__boot_polls_wait(&boot->polls, deadline - now < 50 * SHUNT__MS ? (int)((deadline - now) / SHUNT__MS) + 1 : 50);
    }
}

shunt_status_t shunt__boot_allgather(struct shunt__boot *boot, const void *mine, size_t len, const int *stop,
                                     struct shunt__boot_all *all)
{
    struct shunt__boot_running running;
    struct shunt__boot_all got = {0};
    shunt_status_t status;

    if (!boot || !all || (len > 0 && !mine) || len > SHUNT__BOOT_MAX_ENTRY)
        return shunt__fail(SHUNT_ERR_INVALID, "an allgather of the start-up takes at most %d bytes", SHUNT__BOOT_MAX_ENTRY);
    status = run_step(boot, SHUNT__BOOT_ALLGATHER, mine, len, stop, &running);
    if (!status) {
        got.n = boot->size;
        got.data = calloc((size_t)boot->size, sizeof(*got.data));
        got.len = calloc((size_t)boot->size, sizeof(*got.len));
        if (!got.data || !got.len) {
            shunt__boot_all_free(&got);
            status = shunt__fail(SHUNT_ERR_NO_MEMORY, "rank %d has no memory for the start-up", boot->rank);
        }
    }
    for (int i = 0; !status && i < boot->size; i++) {
        got.data[i] = running.entry[i].data;
        got.len[i] = running.entry[i].len;
        running.entry[i].data = NULL;
    }
    shunt__boot_step_end(&running);
    if (!status)
        *all = got;
    return status;
}

void shunt__boot_all_free(struct shunt__boot_all *all)
{
    if (!all)
        return;
    for (int i = 0; all->data && i < all->n; i++)
        free(all->data[i]);
    free(all->data);
    free(all->len);
    *all = (struct shunt__boot_all){0};
}

shunt_status_t shunt__boot_barrier(struct shunt__boot *boot, const int *stop)
{
    struct shunt__boot_running running;
    shunt_status_t status;

    if (!boot)
        return shunt__fail(SHUNT_ERR_INVALID, "no boot");
    status = run_step(boot, SHUNT__BOOT_BARRIER, NULL, 0, stop, &running);
    shunt__boot_step_end(&running);
    return status;
}

void shunt__boot_close(struct shunt__boot *boot)
{
    struct shunt__boot_link *links[SHUNT__BOOT_FANOUT + 1];
    int n = 0;

    if (!boot)
        return;
    if (boot->has_parent)
        links[n++] = &boot->parent;
    for (int i = 0; i < boot->n_children; i++)
        links[n++] = &boot->child[i];
    /* A failure that was told must arrive even where something lies unread: a plain close would recall it. */
    shunt__boot_links_finish(links, n, boot->failure.status ? 300 : 0);
    shunt__boot_polls_free(&boot->polls);
    sodium_memzero(&boot->secret, sizeof(boot->secret));
    free(boot);
}
