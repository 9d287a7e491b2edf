/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/core/card.h"
#include <string.h>
#include "comm/base/log.h"

struct writer {
    unsigned char *p;
};

struct reader {
    const unsigned char *p, *end;
    int bad;
};

static void put(struct writer *w, const void *data, size_t n)
{
    memcpy(w->p, data, n);
    w->p += n;
}

static void put_text(struct writer *w, const char *text)
{
    unsigned char n = (unsigned char)strlen(text);

    put(w, &n, 1);
    put(w, text, n);
}

static void get(struct reader *r, void *data, size_t n)
{
    if (r->bad || (size_t)(r->end - r->p) < n) {
        r->bad = 1;
        memset(data, 0, n);
        return;
    }
    memcpy(data, r->p, n);
    r->p += n;
}

static void get_text(struct reader *r, char *text, size_t cap)
{
    unsigned char n;

    get(r, &n, 1);
    if (n >= cap) {
        r->bad = 1;
        return;
    }
    get(r, text, n);
    text[n] = 0;
    for (size_t i = 0; i < n; i++) /* these names are printed */
        if ((unsigned char)text[i] < 32 || (unsigned char)text[i] > 126)
            r->bad = 1;
}

size_t shunt__card_pack(const struct shunt__card *card, unsigned char *buf)
{
    struct writer w = {buf};
    uint32_t version = SHUNT__CARD_VERSION;
    unsigned char n = (unsigned char)card->n_rails;

    put(&w, &version, 4);
    put(&w, card->uid, sizeof(card->uid));
    put(&w, card->secret, sizeof(card->secret));
    put(&w, card->host, sizeof(card->host));
    put(&w, &card->pid, 4);
    put_text(&w, card->hostname);
    put(&w, &n, 1);
    for (int i = 0; i < card->n_rails; i++) {
        const struct shunt__card_rail *r = &card->rails[i];
        put_text(&w, r->backend);
        put_text(&w, r->device);
        put(&w, &r->rate, 8);
        put(&w, &r->len, 4);
        put(&w, r->address, r->len);
    }
    return (size_t)(w.p - buf);
}

shunt_status_t shunt__card_unpack(const void *data, size_t len, struct shunt__card *out)
{
    struct reader r = {data, (const unsigned char *)data + len, 0};
    struct shunt__card card;
    uint32_t version;
    unsigned char n;

    memset(&card, 0, sizeof(card));
    get(&r, &version, 4);
    if (!r.bad && version != SHUNT__CARD_VERSION)
        return shunt__fail(SHUNT_ERR_VERSION, "a rank runs a Shunt that speaks version %u, this one speaks %u: install "
                           "the same version everywhere", version, SHUNT__CARD_VERSION);
    get(&r, card.uid, sizeof(card.uid));
    get(&r, card.secret, sizeof(card.secret));
    get(&r, card.host, sizeof(card.host));
    get(&r, &card.pid, 4);
    get_text(&r, card.hostname, sizeof(card.hostname));
    get(&r, &n, 1);
    if (n > SHUNT__MAX_RAILS)
        r.bad = 1;
    for (int i = 0; i < n && !r.bad; i++) {
        struct shunt__card_rail *rail = &card.rails[i];
        get_text(&r, rail->backend, sizeof(rail->backend));
        get_text(&r, rail->device, sizeof(rail->device));
        get(&r, &rail->rate, 8);
        get(&r, &rail->len, 4);
        if (rail->len > SHUNT__ADDRESS_MAX)
            r.bad = 1;
        else
            get(&r, rail->address, rail->len);
    }
    if (r.bad || r.p != r.end)
        return shunt__fail(SHUNT_ERR_FORMAT, "a rank's description of itself (%zu bytes) is damaged", len);
    card.n_rails = n;
    *out = card;
    return SHUNT_OK;
}
