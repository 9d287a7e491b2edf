/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/boot/door.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"

void shunt__boot_door_open(struct shunt__boot_door *door, int fd, int port, const struct shunt__boot_secret *secret,
                           enum shunt__boot_purpose purpose, const char *name)
{
    memset(door, 0, sizeof(*door));
    door->fd = fd;
    door->port = port;
    door->polled = -1;
    door->purpose = purpose;
    door->secret = secret;
    door->name = name;
}

void shunt__boot_door_close(struct shunt__boot_door *door)
{
    if (door->fd < 0)
        return;
    while (door->n > 0)
        shunt__boot_link_close(&door->stranger[--door->n], SHUNT__BOOT_END_CLOSED, 0);
    close(door->fd);
    door->fd = -1;
    if (door->n_turned_away > 1)
        shunt__log(SHUNT__LOG_WARN, "%s: %llu connections of strangers were turned away in all", door->name,
                   (unsigned long long)door->n_turned_away);
}

void shunt__boot_door_take(struct shunt__boot_door *door, int index, struct shunt__boot_link *to)
{
    *to = door->stranger[index];
    shunt__boot_link_trust(to);
    if (index < --door->n)
        door->stranger[index] = door->stranger[door->n];
}

void shunt__boot_door_drop(struct shunt__boot_door *door, int index, const char *why)
{
    struct shunt__boot_link *link = &door->stranger[index];
    char text[SHUNT__BOOT_ADDRESS_TEXT];

    if (why && door->n_turned_away++ == 0)
        shunt__log(SHUNT__LOG_WARN, "%s (port %d): a stranger from %s was turned away: %s; more will not be mentioned",
                   door->name, door->port, shunt__boot_address_text(&link->peer, text), why);
    shunt__boot_link_close(link, SHUNT__BOOT_END_CLOSED, 0);
    if (index < --door->n)
        door->stranger[index] = door->stranger[door->n];
}

/* Who goes first when room is needed: those that said nothing, among them the oldest. */
static int least_promising(const struct shunt__boot_door *door)
{
    int worst = 0;

    for (int i = 1; i < door->n; i++) {
        const struct shunt__boot_link *a = &door->stranger[i], *b = &door->stranger[worst];
        int a_open = a->state == SHUNT__BOOT_OPEN, b_open = b->state == SHUNT__BOOT_OPEN;
        if (a_open < b_open || (a_open == b_open && a->since < b->since))
            worst = i;
    }
    return worst;
}

/* Whether another one may come in now, if need be in the place of an old one. */
static int has_room(struct shunt__boot_door *door, uint64_t now)
{
    int worst;

    if (door->n < SHUNT__BOOT_STRANGERS)
        return 1;
    worst = least_promising(door);
    if (now - door->stranger[worst].since < SHUNT__BOOT_STRANGER_PATIENCE)
        return 0;
    shunt__boot_door_drop(door, worst, "others wait, and it says nothing");
    return 1;
}

static void let_in(struct shunt__boot_door *door, uint64_t now)
{
    for (int i = 0; i < SHUNT__BOOT_STRANGERS && has_room(door, now); i++) {
        int fd = accept4(door->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            door->out_of_files = 0;
            shunt__boot_link_accept(&door->stranger[door->n], fd, door->secret, door->purpose);
            if (door->stranger[door->n].state != SHUNT__BOOT_CLOSED)
                door->n++;
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!door->out_of_files) {
                door->out_of_files = now;
                door->out_of_files_err = errno;
            }
            if (door->n > 0) /* strangers are the first to give theirs back */
                shunt__boot_door_drop(door, least_promising(door), "file descriptors are short");
            return;
        }
        if (errno == EAGAIN)
            return;
        /* EINTR, ECONNABORTED and what the network says of a connection that is gone again: the next one. */
    }
}

int shunt__boot_door_poll(struct shunt__boot_door *door, struct shunt__boot_polls *polls)
{
    uint64_t now = shunt__now();
    int full = door->n == SHUNT__BOOT_STRANGERS;

    door->polled = -1;
    if (door->fd < 0)
        return 1000;
    for (int i = 0; i < door->n; i++)
        shunt__boot_link_poll(&door->stranger[i], polls, 1);
    /* Without descriptors the listener would be ready all the time. */
    if (door->out_of_files)
        return 20;
    if (full && now - door->stranger[least_promising(door)].since < SHUNT__BOOT_STRANGER_PATIENCE)
        return 10;
    door->polled = shunt__boot_polls_add(polls, door->fd, POLLIN);
    return door->n ? 100 : 1000;
}

void shunt__boot_door_progress(struct shunt__boot_door *door, const struct shunt__boot_polls *polls)
{
    uint64_t now = shunt__now();

    if (door->fd < 0)
        return;
    for (int i = 0; i < door->n; i++)
        shunt__boot_link_progress(&door->stranger[i], polls);
    for (int i = door->n - 1; i >= 0; i--) {
        struct shunt__boot_link *link = &door->stranger[i];
        char why[128];

        if (link->state == SHUNT__BOOT_CLOSED) {
            if (link->end == SHUNT__BOOT_END_GONE && link->in_len == 0 && link->bytes_in >= SHUNT__BOOT_HELLO_BYTES)
                shunt__boot_door_drop(door, i, NULL); /* one of ours that found another way in */
            else
                shunt__boot_door_drop(door, i, link->end == SHUNT__BOOT_END_KEY ? "it does not know this job's key"
                                               : link->end == SHUNT__BOOT_END_GARBAGE
                                                   ? "what it says is not Shunt's"
                                                   : shunt__boot_link_why(link, why, sizeof(why)));
        } else if (now - link->since > SHUNT__BOOT_STRANGER_TIME)
            shunt__boot_door_drop(door, i, "it did not say who it is in time");
    }
    if (door->out_of_files || (door->polled >= 0 && polls->fd[door->polled].revents))
        let_in(door, now);
}

int shunt__boot_door_next(struct shunt__boot_door *door, int *from, unsigned char **message, size_t *len)
{
    while (*from < door->n) {
        int i = *from;

        if (shunt__boot_link_next(&door->stranger[i], message, len))
            return i;
        if (door->stranger[i].state == SHUNT__BOOT_CLOSED) /* a frame that could not be opened: a replay */
            shunt__boot_door_drop(door, i, "it repeats what another has said");
        else
            *from = i + 1;
    }
    return -1;
}
