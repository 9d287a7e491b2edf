/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank's way into a meeting.
 *
 *     DIALING ──► the root welcomes us: JOIN ──► WAITING ──► START ──► CLIMBING ──► the ready step is over ──► done
 *        ▲                                          │                      parent dialled, children let in
 *        └──────────── connection lost ─────────────┘
 *
 * A root that was reached and can't be reached again within ROOT_LOST has died. From START on the root may go: the tree
 * carries the news then.
 */
#include "comm/boot/join.h"
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/boot/dial.h"
#include "comm/boot/door.h"
#include "comm/boot/id.h"
#include "comm/boot/tree.h"

#define ROOT_LOST (2 * SHUNT__S)
#define ASK_TIME (1 * SHUNT__S) /* how long the root has to say who is missing */
#define WAKE_MS 50

enum phase { DIALING, WAITING, CLIMBING };

struct joiner {
    const struct shunt__boot_join *join;
    struct shunt__boot *boot;
    enum phase phase;
    uint64_t deadline, lost_since, asked, checked;
    int joined_once, refused_over;
    struct shunt__boot_join_message hello;
    struct shunt__boot_start_message start;
    struct shunt__boot_dial dial; /* of the root, then of the parent */
    struct shunt__boot_link root;
    struct shunt__boot_door *door; /* for the children; NULL when there are none */
    int n_children_here;
    int parent_asked; /* connected, and its answer awaited */
    int parent_here;
    int stepping; /* the ready step has begun */
    struct shunt__boot_running step;
    struct shunt__boot_polls polls;
};

/* Tells whoever can be told that this rank gives up. */
__attribute__((format(printf, 3, 4))) static shunt_status_t give_up(struct joiner *j, shunt_status_t status,
                                                                    const char *fmt, ...)
{
    struct shunt__boot_fail_message failure = {.status = status};
    unsigned char message[SHUNT__BOOT_FAIL_TEXT + 64];
    struct shunt__boot_link *root = &j->root;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(failure.text, sizeof(failure.text), fmt, ap);
    va_end(ap);
    if (root->state == SHUNT__BOOT_OPEN) {
        shunt__boot_link_send(root, message, shunt__boot_fail_write(&failure, message));
        shunt__boot_links_finish(&root, 1, status == SHUNT_ERR_ABORTED ? 20 : 100);
    }
    return shunt__boot_tree_fail(j->boot, NULL, status, "%s", failure.text);
}

static shunt_status_t prepare(struct joiner *j)
{
    const struct shunt__boot_join *join = j->join;
    struct shunt__boot_join_message *m = &j->hello;
    shunt_status_t status;
    int fd, port;

    m->rank = join->rank;
    m->size = join->size;
    m->pid = (uint32_t)getpid();
    randombytes_buf(m->process, sizeof(m->process));
    if (gethostname(m->host, sizeof(m->host) - 1) != 0)
        snprintf(m->host, sizeof(m->host), "?");
    if (shunt__boot_children_of(join->rank, join->size) == 0)
        return SHUNT_OK;
    j->door = malloc(sizeof(*j->door));
    if (!j->door)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "rank %d has no memory for the start-up", join->rank);
    j->door->fd = -1;
    status = shunt__boot_listen(join->first_port, join->last_port, 1, &fd, &port);
    if (status)
        return status;
    shunt__boot_door_open(j->door, fd, port, &j->boot->secret, SHUNT__BOOT_TO_PARENT, "start-up, tree");
    m->port = (uint16_t)port;
    m->n_addresses = shunt__boot_address_own(m->address, SHUNT__BOOT_CANDIDATES);
    if (m->n_addresses < 0)
        m->n_addresses = 0; /* as the root sees this rank will mostly do */
    return SHUNT_OK;
}

static void dial_root(struct joiner *j)
{
    j->phase = DIALING;
    shunt__boot_dial_start(&j->dial, &j->boot->secret, SHUNT__BOOT_TO_ROOT, j->join->address, j->join->n_addresses);
}

static void root_reached(struct joiner *j)
{
    unsigned char message[SHUNT__BOOT_MAX_FIRST];

    j->phase = WAITING;
    j->lost_since = 0;
    shunt__boot_link_send(&j->root, message, shunt__boot_join_write(&j->hello, message));
}

static void dial_parent(struct joiner *j)
{
    shunt__boot_dial_start(&j->dial, &j->boot->secret, SHUNT__BOOT_TO_PARENT, j->start.address, j->start.n_addresses);
}

/* Child and parent each say who they are. */
static void send_child(struct shunt__boot *boot, struct shunt__boot_link *link)
{
    struct shunt__boot_child_message m = {.rank = boot->rank};
    unsigned char message[SHUNT__BOOT_MAX_FIRST];

    memcpy(m.epoch, boot->epoch, sizeof(m.epoch));
    shunt__boot_link_send(link, message, shunt__boot_child_write(&m, message));
}

static shunt_status_t climb(struct joiner *j, const struct shunt__boot_start_message *start)
{
    struct shunt__boot *boot = j->boot;

    memcpy(boot->epoch, start->epoch, sizeof(boot->epoch));
    boot->n_children = shunt__boot_children_of(boot->rank, boot->size); /* as yet closed links */
    j->phase = CLIMBING;
    if (boot->rank == 0)
        j->parent_asked = j->parent_here = 1;
    else if (start->n_addresses == 0)
        return give_up(j, SHUNT_ERR_INTERNAL, "the root gave rank %d no parent", boot->rank);
    else {
        j->start = *start;
        dial_parent(j);
    }
    return SHUNT_OK;
}

static shunt_status_t hear_root(struct joiner *j)
{
    struct shunt__boot_start_message start;
    struct shunt__boot_fail_message failure;
    unsigned char *message;
    size_t len;

    while (shunt__boot_link_next(&j->root, &message, &len)) {
        j->joined_once = 1;
        if (shunt__boot_start_read(message, len, &start) == 0) {
            if (j->phase == WAITING) {
                shunt_status_t status = climb(j, &start);
                if (status)
                    return status;
            }
        } else if (shunt__boot_fail_read(message, len, &failure) == 0) {
            shunt__boot_link_close(&j->root, SHUNT__BOOT_END_CLOSED, 0);
            if (failure.over && j->join->patient) { /* not our meeting: ours is still to be opened */
                j->refused_over = 1;
                dial_root(j);
                for (int i = 0; i < j->dial.n; i++)
                    j->dial.slot[i].next += 200 * SHUNT__MS;
                return SHUNT_OK;
            }
            return shunt__boot_tree_fail(j->boot, NULL, failure.status, "%s", failure.text);
        }
    }
    if (j->root.state == SHUNT__BOOT_CLOSED && j->phase == WAITING) {
        j->lost_since = shunt__now();
        dial_root(j);
    }
    return SHUNT_OK;
}

/* Lets children in, each to its place. */
static void let_children_in(struct joiner *j)
{
    struct shunt__boot *boot = j->boot;
    unsigned char *message;
    size_t len;
    int from = 0, i;

    shunt__boot_door_progress(j->door, &j->polls);
    while ((i = shunt__boot_door_next(j->door, &from, &message, &len)) >= 0) {
        struct shunt__boot_child_message m;
        int at;

        if (shunt__boot_child_read(message, len, &m) != 0) {
            shunt__boot_door_drop(j->door, i, "it sends a message that can't be understood");
            continue;
        }
        at = m.rank - shunt__boot_first_child(boot->rank);
        if (at < 0 || at >= boot->n_children || memcmp(m.epoch, boot->epoch, sizeof(m.epoch)) != 0) {
            shunt__boot_door_drop(j->door, i, "it is no child of this rank");
            continue;
        }
        /* The ready step begins when all are here; until then a child may come again in its own place. */
        if (boot->child[at].state == SHUNT__BOOT_CLOSED)
            j->n_children_here++;
        shunt__boot_link_close(&boot->child[at], SHUNT__BOOT_END_CLOSED, 0);
        shunt__boot_door_take(j->door, i, &boot->child[at]);
        send_child(boot, &boot->child[at]);
    }
}

/* Until the parent has answered, the connection may be one that its door has dropped in a crowd: then once more. */
static shunt_status_t hear_parent(struct joiner *j)
{
    struct shunt__boot *boot = j->boot;
    struct shunt__boot_child_message m;
    struct shunt__boot_fail_message failure;
    unsigned char *message;
    size_t len;

    shunt__boot_link_progress(&boot->parent, &j->polls);
    if (shunt__boot_link_next(&boot->parent, &message, &len)) {
        if (shunt__boot_child_read(message, len, &m) == 0 && m.rank == shunt__boot_parent_of(boot->rank)) {
            j->parent_here = 1;
            return SHUNT_OK;
        }
        if (shunt__boot_fail_read(message, len, &failure) == 0)
            return give_up(j, failure.status, "%s", failure.text);
    }
    if (boot->parent.state == SHUNT__BOOT_CLOSED) {
        j->parent_asked = boot->has_parent = 0;
        dial_parent(j);
    }
    return SHUNT_OK;
}

static shunt_status_t climb_on(struct joiner *j)
{
    struct shunt__boot *boot = j->boot;
    shunt_status_t status = SHUNT_OK;

    if (!j->parent_here && j->parent_asked)
        status = hear_parent(j);
    else if (!j->parent_here && shunt__boot_dial_progress(&j->dial, &j->polls, &boot->parent)) {
        send_child(boot, &boot->parent);
        j->parent_asked = boot->has_parent = 1;
    }
    if (j->door && j->n_children_here < boot->n_children)
        let_children_in(j);
    return status;
}

/* SHUNT_OK when the whole tree stands, IN_PROGRESS while it does not. */
static shunt_status_t progress(struct joiner *j)
{
    struct shunt__boot *boot = j->boot;
    shunt_status_t status;

    if (j->root.state != SHUNT__BOOT_CLOSED) {
        shunt__boot_link_progress(&j->root, &j->polls);
        status = hear_root(j);
        if (status)
            return status;
    }
    if (j->phase == DIALING && shunt__boot_dial_progress(&j->dial, &j->polls, &j->root))
        root_reached(j);
    if (j->phase != CLIMBING)
        return SHUNT_IN_PROGRESS;
    if (!j->stepping) {
        status = climb_on(j);
        if (status)
            return status;
        if (!j->parent_here || j->n_children_here < boot->n_children)
            return SHUNT_IN_PROGRESS;
        if (j->door)
            shunt__boot_door_close(j->door);
        j->stepping = 1;
        status = shunt__boot_step_begin(&j->step, boot, SHUNT__BOOT_READY, NULL, 0);
        if (status)
            return status;
    }
    return shunt__boot_step_progress(&j->step, &j->polls);
}

static void wait_for_something(struct joiner *j)
{
    int ms = WAKE_MS, due;

    j->polls.n = 0;
    shunt__boot_link_poll(&j->root, &j->polls, 1);
    if (j->phase == CLIMBING && j->parent_asked && !j->stepping)
        shunt__boot_link_poll(&j->boot->parent, &j->polls, !j->parent_here);
    if (j->phase == DIALING || (j->phase == CLIMBING && !j->parent_asked)) {
        due = shunt__boot_dial_poll(&j->dial, &j->polls);
        ms = due < ms ? due : ms;
    }
    if (j->phase == CLIMBING && !j->stepping && j->door) {
        due = shunt__boot_door_poll(j->door, &j->polls);
        ms = due < ms ? due : ms;
    }
    if (j->stepping)
        shunt__boot_step_poll(&j->step, &j->polls);
    shunt__boot_polls_wait(&j->polls, ms);
}

/* What can't be waited for any longer. */
static shunt_status_t check(struct joiner *j)
{
    const struct shunt__boot_join *join = j->join;
    const struct shunt__boot_link *lack;
    uint64_t now = shunt__now();
    char why[500];

    if (join->stop && __atomic_load_n(join->stop, __ATOMIC_RELAXED))
        return give_up(j, SHUNT_ERR_ABORTED, "rank %d of %d was aborted while the ranks were meeting", join->rank, join->size);
    lack = j->phase == WAITING ? NULL : shunt__boot_dial_lack(&j->dial);
    if (lack) {
        snprintf(why, sizeof(why), "rank %d of %d can't connect", join->rank, join->size);
        shunt__boot_socket_error(lack->err, why);
        return give_up(j, SHUNT_ERR_LIMIT, "%s", shunt_error_text());
    }
    if (j->door && j->door->out_of_files && j->door->fd >= 0 && now - j->door->out_of_files > ROOT_LOST) {
        snprintf(why, sizeof(why), "rank %d of %d can't let its neighbours in", join->rank, join->size);
        shunt__boot_socket_error(j->door->out_of_files_err, why);
        return give_up(j, SHUNT_ERR_LIMIT, "%s", shunt_error_text());
    }
    if (j->phase == DIALING) {
        enum shunt__boot_link_end verdict = join->patient ? SHUNT__BOOT_END_NONE : shunt__boot_dial_verdict(&j->dial);

        shunt__boot_dial_why(&j->dial, why, sizeof(why));
        if (verdict == SHUNT__BOOT_END_KEY)
            return give_up(j, SHUNT_ERR_AUTH, "rank %d of %d has the id of another meeting than the one that is open there: "
                           "%s", join->rank, join->size, why);
        if (verdict == SHUNT__BOOT_END_VERSION)
            return give_up(j, SHUNT_ERR_VERSION, "rank %d of %d and the root run different versions of Shunt: %s",
                           join->rank, join->size, why);
        if (j->lost_since && now - j->lost_since > ROOT_LOST)
            return give_up(j, SHUNT_ERR_PEER, "the process that brings the ranks together has gone, says rank %d of %d: %s",
                           join->rank, join->size, why);
        if (join->changed && now - j->checked > 100 * SHUNT__MS) {
            j->checked = now;
            if (join->changed(join->arg))
                return SHUNT_ERR_AGAIN;
        }
        if (now >= j->deadline)
            return give_up(j, SHUNT_ERR_TIMEOUT, "rank %d of %d did not reach the meeting within SHUNT_BOOTSTRAP_TIMEOUT "
                           "(%.3g s); is rank 0 running?%s %s", join->rank, join->size,
                           (double)join->timeout / SHUNT__S,
                           j->refused_over ? " Only one that was over answered." : "", why);
        return SHUNT_OK;
    }
    if (now < j->deadline)
        return SHUNT_OK;
    if (!j->asked && j->root.state == SHUNT__BOOT_OPEN) {
        unsigned char ask = SHUNT__BOOT_ASK;
        shunt__boot_link_send(&j->root, &ask, 1);
        j->asked = now;
    }
    if (j->asked && now - j->asked < ASK_TIME)
        return SHUNT_OK;
    if (j->phase == CLIMBING && !j->parent_here)
        return give_up(j, SHUNT_ERR_TIMEOUT, "rank %d of %d can't reach rank %d within SHUNT_BOOTSTRAP_TIMEOUT (%.3g s): %s",
                       join->rank, join->size, shunt__boot_parent_of(join->rank), (double)join->timeout / SHUNT__S,
                       shunt__boot_dial_why(&j->dial, why, sizeof(why)));
    return give_up(j, SHUNT_ERR_TIMEOUT, "rank %d of %d waited for the others for SHUNT_BOOTSTRAP_TIMEOUT (%.3g s), and the "
                   "root of the meeting no longer says who is missing", join->rank, join->size,
                   (double)join->timeout / SHUNT__S);
}

static void say_done(struct joiner *j)
{
    unsigned char done = SHUNT__BOOT_DONE;
    struct shunt__boot_link *root = &j->root;

    shunt__boot_link_send(root, &done, 1);
    for (int tries = 0; shunt__boot_link_unsent(root) && tries < 10; tries++) {
        j->polls.n = 0;
        shunt__boot_link_poll(root, &j->polls, 0);
        shunt__boot_polls_wait(&j->polls, 10);
        shunt__boot_link_progress(root, &j->polls);
    }
}

static shunt_status_t meet(struct joiner *j)
{
    shunt_status_t status = prepare(j);

    if (status)
        return status;
    j->deadline = j->join->started + j->join->timeout;
    dial_root(j);
    for (;;) {
        wait_for_something(j);
        status = progress(j);
        if (status == SHUNT_IN_PROGRESS)
            status = check(j);
        else if (status == SHUNT_OK)
            break;
        if (status)
            return status;
    }
    say_done(j);
    return SHUNT_OK;
}

shunt_status_t shunt__boot_join_meeting(const struct shunt__boot_join *join, struct shunt__boot **out,
                                        unsigned char epoch_id[16])
{
    struct shunt__boot *boot = calloc(1, sizeof(*boot));
    struct joiner *j = calloc(1, sizeof(*j));
    shunt_status_t status;

    if (!boot || !j) {
        free(boot);
        free(j);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "rank %d has no memory for the start-up", join->rank);
    }
    boot->rank = join->rank;
    boot->size = join->size;
    boot->timeout = join->timeout;
    shunt__boot_secret_derive(&boot->secret, join->key, join->nonce);
    j->join = join;
    j->boot = boot;
    status = meet(j);
    if (j->stepping)
        shunt__boot_step_end(&j->step);
    if (j->door) {
        shunt__boot_door_close(j->door);
        free(j->door);
    }
    shunt__boot_dial_stop(&j->dial);
    shunt__boot_link_close(&j->root, SHUNT__BOOT_END_CLOSED, 0);
    shunt__boot_polls_free(&j->polls);
    free(j);
    if (status) {
        shunt__boot_close(boot);
        return status;
    }
    memcpy(epoch_id, boot->epoch, 16);
    *out = boot;
    return SHUNT_OK;
}

shunt_status_t shunt__boot_open(const struct shunt__config *config, const unsigned char id[SHUNT__BOOT_ID_BYTES],
                                int rank, int size, const int *stop, struct shunt__boot **boot,
                                unsigned char epoch_id[16])
{
    struct shunt__boot_join join = {.rank = rank, .size = size, .stop = stop};
    struct shunt__boot_id parts;
    shunt_status_t status;

    if (!config || !id || !boot || !epoch_id)
        return shunt__fail(SHUNT_ERR_INVALID, "an argument is NULL");
    if (size < 1 || size > SHUNT__BOOT_MAX_SIZE || rank < 0 || rank >= size)
        return shunt__fail(SHUNT_ERR_INVALID, "rank %d of %d ranks makes no sense; ranks go from 0 to size - 1, and there "
                           "are at most %d", rank, size, SHUNT__BOOT_MAX_SIZE);
    if (shunt__boot_id_unpack(id, &parts) != 0)
        return shunt__fail(SHUNT_ERR_FORMAT, "these bytes are not an id of this version of Shunt; was it passed on whole, "
                           "and made by shunt_id_create() rather than by another library?");
    if (shunt__boot_secure_start() != 0)
        return shunt__fail(SHUNT_ERR_SYSTEM, "libsodium finds no source of random numbers");
    status = shunt__boot_port_range(config, &join.first_port, &join.last_port);
    if (status)
        return status;
    join.key = parts.key;
    join.nonce = parts.nonce;
    join.address = parts.address;
    join.n_addresses = parts.n_addresses;
    join.started = shunt__now();
    join.timeout = (uint64_t)shunt__config_int(config, SHUNT__BOOTSTRAP_TIMEOUT);
    return shunt__boot_join_meeting(&join, boot, epoch_id);
}
