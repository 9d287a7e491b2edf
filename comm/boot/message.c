/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/boot/message.h"
#include <stdio.h>
#include <string.h>

struct reader {
    const unsigned char *p;
    size_t left;
    int bad;
};

struct writer {
    unsigned char *out;
    size_t n;
};

static void put(struct writer *w, const void *bytes, size_t n)
{
    memcpy(w->out + w->n, bytes, n);
    w->n += n;
}

static void put_int(struct writer *w, uint64_t value, size_t bytes)
{
    put(w, &value, bytes);
}

static void put_text(struct writer *w, const char *text, size_t size)
{
    size_t n = strnlen(text, size - 1);

    put_int(w, n, 2);
    put(w, text, n);
}

static void put_addresses(struct writer *w, const struct shunt__boot_address *address, int n)
{
    put_int(w, (uint64_t)n, 1);
    for (int i = 0; i < n; i++) {
        put_int(w, address[i].family, 1);
        put(w, address[i].ip, address[i].family == 4 ? 4 : 16);
        put_int(w, address[i].port, 2);
    }
}

static void get(struct reader *r, void *to, size_t n)
{
    if (r->bad || r->left < n) {
        r->bad = 1;
        memset(to, 0, n);
        return;
    }
    memcpy(to, r->p, n);
    r->p += n;
    r->left -= n;
}

static uint64_t get_int(struct reader *r, size_t bytes)
{
    uint64_t value = 0;

    get(r, &value, bytes);
    return value;
}

/* Text becomes printable ASCII: it will stand in somebody's log. */
static void get_text(struct reader *r, char *text, size_t size)
{
    size_t n = get_int(r, 2);

    if (n > size - 1) {
        r->bad = 1;
        n = 0;
    }
    get(r, text, n);
    text[r->bad ? 0 : n] = 0;
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static int get_addresses(struct reader *r, struct shunt__boot_address *address, int max)
{
    int n = (int)get_int(r, 1);

    if (n > max)
        r->bad = 1;
    for (int i = 0; i < n && !r->bad; i++) {
        memset(&address[i], 0, sizeof(address[i]));
        address[i].family = (uint8_t)get_int(r, 1);
        if (address[i].family != 4 && address[i].family != 6)
            r->bad = 1;
        get(r, address[i].ip, address[i].family == 4 ? 4 : 16);
        address[i].port = (uint16_t)get_int(r, 2);
    }
    return r->bad ? 0 : n;
}

static int begin(struct reader *r, const unsigned char *message, size_t len, enum shunt__boot_type type)
{
    *r = (struct reader){message, len, 0};
    return get_int(r, 1) != (uint64_t)type;
}

static int end(const struct reader *r)
{
    return r->bad || r->left != 0;
}

int shunt__boot_message_type(const unsigned char *message, size_t len)
{
    return len ? message[0] : 0;
}

size_t shunt__boot_join_write(const struct shunt__boot_join_message *m, unsigned char *out)
{
    struct writer w = {out, 0};

    put_int(&w, SHUNT__BOOT_JOIN, 1);
    put_int(&w, (uint32_t)m->rank, 4);
    put_int(&w, (uint32_t)m->size, 4);
    put_int(&w, m->pid, 4);
    put(&w, m->process, 16);
    put_text(&w, m->host, sizeof(m->host));
    put_int(&w, m->port, 2);
    put_addresses(&w, m->address, m->n_addresses);
    return w.n;
}

int shunt__boot_join_read(const unsigned char *message, size_t len, struct shunt__boot_join_message *m)
{
    struct reader r;

    if (begin(&r, message, len, SHUNT__BOOT_JOIN))
        return -1;
    m->rank = (int)(int32_t)get_int(&r, 4);
    m->size = (int)(int32_t)get_int(&r, 4);
    m->pid = (uint32_t)get_int(&r, 4);
    get(&r, m->process, 16);
    get_text(&r, m->host, sizeof(m->host));
    m->port = (uint16_t)get_int(&r, 2);
    m->n_addresses = get_addresses(&r, m->address, SHUNT__BOOT_CANDIDATES);
    return end(&r);
}

size_t shunt__boot_start_write(const struct shunt__boot_start_message *m, unsigned char *out)
{
    struct writer w = {out, 0};

    put_int(&w, SHUNT__BOOT_START, 1);
    put(&w, m->epoch, 16);
    put_addresses(&w, m->address, m->n_addresses);
    return w.n;
}

int shunt__boot_start_read(const unsigned char *message, size_t len, struct shunt__boot_start_message *m)
{
    struct reader r;

    if (begin(&r, message, len, SHUNT__BOOT_START))
        return -1;
    get(&r, m->epoch, 16);
    m->n_addresses = get_addresses(&r, m->address, SHUNT__BOOT_CANDIDATES + 2);
    return end(&r);
}

size_t shunt__boot_child_write(const struct shunt__boot_child_message *m, unsigned char *out)
{
    struct writer w = {out, 0};

    put_int(&w, SHUNT__BOOT_CHILD, 1);
    put_int(&w, (uint32_t)m->rank, 4);
    put(&w, m->epoch, 16);
    return w.n;
}

int shunt__boot_child_read(const unsigned char *message, size_t len, struct shunt__boot_child_message *m)
{
    struct reader r;

    if (begin(&r, message, len, SHUNT__BOOT_CHILD))
        return -1;
    m->rank = (int)(int32_t)get_int(&r, 4);
    get(&r, m->epoch, 16);
    return end(&r);
}

size_t shunt__boot_fail_write(const struct shunt__boot_fail_message *m, unsigned char *out)
{
    struct writer w = {out, 0};

    put_int(&w, SHUNT__BOOT_FAIL, 1);
    put_int(&w, (uint32_t)m->status, 4);
    put_int(&w, (uint64_t)m->over, 1);
    put_text(&w, m->text, sizeof(m->text));
    return w.n;
}

int shunt__boot_fail_read(const unsigned char *message, size_t len, struct shunt__boot_fail_message *m)
{
    struct reader r;
    int status;

    if (begin(&r, message, len, SHUNT__BOOT_FAIL))
        return -1;
    status = (int)(int32_t)get_int(&r, 4);
    m->status = status >= -99 && status < 0 ? (shunt_status_t)status : SHUNT_ERR_INTERNAL;
    m->over = (int)get_int(&r, 1);
    get_text(&r, m->text, sizeof(m->text));
    return end(&r);
}

size_t shunt__boot_step_write(const struct shunt__boot_step_message *m, unsigned char *out)
{
    struct writer w = {out, 0};

    put_int(&w, m->type, 1);
    put_int(&w, m->step, 1);
    put_int(&w, m->seq, 4);
    put_int(&w, (uint64_t)m->last, 1);
    return w.n;
}

int shunt__boot_step_read(const unsigned char *message, size_t len, struct shunt__boot_step_message *m)
{
    struct reader r = {message, len, 0};

    m->type = (enum shunt__boot_type)get_int(&r, 1);
    m->step = (enum shunt__boot_step)get_int(&r, 1);
    m->seq = (uint32_t)get_int(&r, 4);
    m->last = (int)get_int(&r, 1);
    return r.bad || (m->type != SHUNT__BOOT_UP && m->type != SHUNT__BOOT_DOWN) || m->step > SHUNT__BOOT_BARRIER ||
           m->last > 1;
}

size_t shunt__boot_entry_write(unsigned char *out, size_t at, int rank, const void *data, size_t len)
{
    struct writer w = {out, at};

    put_int(&w, (uint32_t)rank, 4);
    put_int(&w, len, 4);
    if (len)
        put(&w, data, len);
    return w.n;
}

int shunt__boot_entry_read(const unsigned char *message, size_t len, size_t *at, int *rank, const unsigned char **data,
                           size_t *data_len)
{
    struct reader r = {message + *at, len - *at, 0};
    size_t n;

    if (r.left == 0)
        return 0;
    *rank = (int)(int32_t)get_int(&r, 4);
    n = get_int(&r, 4);
    if (r.bad || n > SHUNT__BOOT_MAX_ENTRY || n > r.left)
        return -1;
    *data = r.p;
    *data_len = n;
    *at = len - r.left + n;
    return 1;
}
