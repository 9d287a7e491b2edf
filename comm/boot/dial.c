/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/boot/dial.h"
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include "comm/base/clock.h"

#define STAGGER (40 * SHUNT__MS)
#define PAUSE_MIN (10 * SHUNT__MS)
#define PAUSE_MAX (400 * SHUNT__MS)
#define TRY_TIME (5 * SHUNT__S) /* for one connection with its handshake */
#define SURE_AFTER 4            /* refusals in a row that are believed */

void shunt__boot_dial_start(struct shunt__boot_dial *dial, const struct shunt__boot_secret *secret,
                            enum shunt__boot_purpose purpose, const struct shunt__boot_address *addresses, int n)
{
    memset(dial, 0, sizeof(*dial));
    dial->n = n < SHUNT__BOOT_DIAL_MAX ? n : SHUNT__BOOT_DIAL_MAX;
    dial->secret = secret;
    dial->purpose = purpose;
    dial->started = shunt__now();
    for (int i = 0; i < dial->n; i++) {
        dial->slot[i].address = addresses[i];
        dial->slot[i].next = dial->started + (uint64_t)i * STAGGER;
    }
}

static void pause_slot(struct shunt__boot_dial *dial, int i, uint64_t now)
{
    struct shunt__boot_dial_slot *slot = &dial->slot[i];
    uint64_t pause = PAUSE_MIN << (slot->tries < 6 ? slot->tries : 6);

    if (pause > PAUSE_MAX)
        pause = PAUSE_MAX;
    slot->next = now + pause / 2 + randombytes_uniform((uint32_t)(pause / 2)); /* so that many do not come as one */
    if (slot->tries++ == 0 && i + 1 < dial->n && dial->slot[i + 1].tries == 0 && dial->slot[i + 1].next > now)
        dial->slot[i + 1].next = now; /* no need to give this one its head start any longer */
    if (slot->link.end == SHUNT__BOOT_END_KEY || slot->link.end == SHUNT__BOOT_END_VERSION)
        slot->turned_down++;
    else
        slot->turned_down = 0;
}

int shunt__boot_dial_poll(struct shunt__boot_dial *dial, struct shunt__boot_polls *polls)
{
    uint64_t now = shunt__now(), next = now + SHUNT__S;

    for (int i = 0; i < dial->n; i++) {
        struct shunt__boot_dial_slot *slot = &dial->slot[i];

        if (slot->link.state == SHUNT__BOOT_CLOSED && slot->next <= now) {
            shunt__boot_link_connect(&slot->link, &slot->address, dial->secret, dial->purpose);
            if (slot->link.state == SHUNT__BOOT_CLOSED)
                pause_slot(dial, i, now);
        }
        if (slot->link.state == SHUNT__BOOT_CLOSED && slot->next < next)
            next = slot->next;
        shunt__boot_link_poll(&slot->link, polls, 1);
    }
    return next > now ? (int)((next - now) / SHUNT__MS) + 1 : 0;
}

int shunt__boot_dial_progress(struct shunt__boot_dial *dial, const struct shunt__boot_polls *polls,
                              struct shunt__boot_link *to)
{
    uint64_t now = shunt__now();

    for (int i = 0; i < dial->n; i++) {
        struct shunt__boot_dial_slot *slot = &dial->slot[i];

        if (slot->link.state == SHUNT__BOOT_CLOSED)
            continue;
        shunt__boot_link_progress(&slot->link, polls);
        if (slot->link.state == SHUNT__BOOT_OPEN) {
            *to = slot->link;
            memset(&slot->link, 0, sizeof(slot->link));
            shunt__boot_link_trust(to);
            shunt__boot_dial_stop(dial);
            return 1;
        }
        if (slot->link.state != SHUNT__BOOT_CLOSED && now - slot->link.since > TRY_TIME)
            shunt__boot_link_close(&slot->link, SHUNT__BOOT_END_REFUSED, ETIMEDOUT);
        if (slot->link.state == SHUNT__BOOT_CLOSED)
            pause_slot(dial, i, now);
    }
    return 0;
}

const struct shunt__boot_link *shunt__boot_dial_lack(const struct shunt__boot_dial *dial)
{
    for (int i = 0; i < dial->n; i++)
        if (dial->slot[i].link.state == SHUNT__BOOT_CLOSED && dial->slot[i].link.end == SHUNT__BOOT_END_RESOURCE)
            return &dial->slot[i].link;
    return NULL;
}

enum shunt__boot_link_end shunt__boot_dial_verdict(const struct shunt__boot_dial *dial)
{
    enum shunt__boot_link_end verdict = SHUNT__BOOT_END_NONE;

    for (int i = 0; i < dial->n; i++) {
        const struct shunt__boot_dial_slot *slot = &dial->slot[i];

        if (slot->turned_down >= SURE_AFTER && (slot->link.end == SHUNT__BOOT_END_KEY || slot->link.end == SHUNT__BOOT_END_VERSION))
            verdict = slot->link.end;
        else if (slot->link.end != SHUNT__BOOT_END_REFUSED || slot->tries < SURE_AFTER)
            return SHUNT__BOOT_END_NONE; /* this one may still turn out right */
    }
    return verdict;
}

void shunt__boot_dial_stop(struct shunt__boot_dial *dial)
{
    for (int i = 0; i < dial->n; i++)
        shunt__boot_link_close(&dial->slot[i].link, SHUNT__BOOT_END_CLOSED, 0);
    dial->n = 0;
}

const char *shunt__boot_dial_why(const struct shunt__boot_dial *dial, char *text, size_t size)
{
    size_t at = 0;

    *text = 0;
    for (int i = 0; i < dial->n && at < size; i++) {
        char address[SHUNT__BOOT_ADDRESS_TEXT], why[128];
        int n;

        if (i == 6) {
            snprintf(text + at, size - at, ", and %d more", dial->n - i);
            break;
        }
        n = snprintf(text + at, size - at, "%s%s: %s", i ? ", " : "",
                     shunt__boot_address_text(&dial->slot[i].address, address),
                     shunt__boot_link_why(&dial->slot[i].link, why, sizeof(why)));
        at += n > 0 ? (size_t)n : 0;
    }
    return text;
}
