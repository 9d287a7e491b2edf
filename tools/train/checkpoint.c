/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checkpoints of a stage, little-endian:
 *
 *     "SHNTCKPT", version (u32), tensors (u32), steps done (u64), context, width, heads, blocks (u32 each)
 *     per tensor: name (32 bytes, zero-padded), count (u64), then count float32 each of values and both moments
 *     BLAKE2b-256 of all the above
 *
 * Tensors are found by name, so that files written under one cut into stages can be read under another.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tools/train/stage.h"

#define VERSION 1
#define HASH_BYTES 32

static const char magic[8] = {'S', 'H', 'N', 'T', 'C', 'K', 'P', 'T'};

struct header {
    char magic[8];
    uint32_t version, tensors;
    uint64_t steps;
    uint32_t context, width, heads, blocks;
};

struct record {
    char name[32];
    uint64_t count;
};

_Static_assert(sizeof(struct header) == 40 && sizeof(struct record) == 40, "no padding");

/* ---- writing ---- */

static int put(FILE *f, crypto_generichash_state *hash, const void *p, size_t n)
{
    crypto_generichash_update(hash, p, n);
    return fwrite(p, 1, n, f) == n;
}

static int write_all(const struct model_stage *s, uint64_t steps, FILE *f)
{
    const struct model_config *c = &s->config;
    struct header h = {.version = VERSION,
                       .tensors = (uint32_t)s->n_tensors,
                       .steps = steps,
                       .context = (uint32_t)c->context,
                       .width = (uint32_t)c->width,
                       .heads = (uint32_t)c->heads,
                       .blocks = (uint32_t)c->blocks};
    crypto_generichash_state hash;
    unsigned char sum[HASH_BYTES];
    int good;

    memcpy(h.magic, magic, sizeof(magic));
    crypto_generichash_init(&hash, NULL, 0, HASH_BYTES);
    good = put(f, &hash, &h, sizeof(h));
    for (int t = 0; t < s->n_tensors && good; t++) {
        const struct model_tensor *tensor = &s->tensors[t];
        struct record r = {.count = tensor->count};
        size_t bytes = tensor->count * sizeof(float);

        memcpy(r.name, tensor->name, sizeof(r.name));
        good = put(f, &hash, &r, sizeof(r)) && put(f, &hash, s->parameters + tensor->offset, bytes) &&
               put(f, &hash, s->moment1 + tensor->offset, bytes) && put(f, &hash, s->moment2 + tensor->offset, bytes);
    }
    crypto_generichash_final(&hash, sum, HASH_BYTES);
    return good && fwrite(sum, 1, HASH_BYTES, f) == HASH_BYTES && fflush(f) == 0 && fsync(fileno(f)) == 0;
}

static int sync_folder(const char *path)
{
    char copy[4096];
    int fd, good;

    snprintf(copy, sizeof(copy), "%s", path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    good = fsync(fd) == 0 || errno == EINVAL; /* not every file system can */
    close(fd);
    return good;
}

int model_checkpoint_write(const model_stage_t *s, uint64_t steps_done, const char *path)
{
    char temporary[4096];
    FILE *f;
    int good, err;

    if (sodium_init() < 0)
        return model_fail("libsodium can't be initialised");
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid()) >= sizeof(temporary))
        return model_fail("the checkpoint's path is too long: %.60s...", path);
    f = fopen(temporary, "we");
    if (!f)
        return model_fail("can't write a checkpoint to %.150s: %s", temporary, strerror(errno));
    good = write_all(s, steps_done, f);
    err = errno;
    if (fclose(f) != 0 && good) {
        good = 0;
        err = errno;
    }
    if (good && rename(temporary, path) != 0) {
        good = 0;
        err = errno;
    }
    if (!good) {
        unlink(temporary);
        return model_fail("writing the checkpoint %.150s failed: %s", path, strerror(err));
    }
    return sync_folder(path) ? 0 : model_fail("the folder of %.150s could not be synced: %s", path, strerror(errno));
}

/* ---- reading ---- */

/* What has been read so far, taken over when it is complete. */
struct loading {
    float *parameters, *moment1, *moment2;
    bool *found;
    int n_found;
    uint64_t steps;
    bool any;
};

static int begin_loading(const struct model_stage *s, struct loading *l)
{
    memset(l, 0, sizeof(*l));
    l->parameters = malloc(s->count * sizeof(float));
    l->moment1 = malloc(s->count * sizeof(float));
    l->moment2 = malloc(s->count * sizeof(float));
    l->found = calloc((size_t)s->n_tensors, sizeof(bool));
    return l->parameters && l->moment1 && l->moment2 && l->found ? 0 : model_fail("out of memory");
}

static int end_loading(struct model_stage *s, struct loading *l, uint64_t *steps, int status)
{
    if (status == 0 && l->n_found < s->n_tensors) {
        int t = 0;

        while (l->found[t])
            t++;
        status = model_fail("%d of %d tensors are in no checkpoint that was given, among them %s",
                            s->n_tensors - l->n_found, s->n_tensors, s->tensors[t].name);
    }
    if (status == 0) {
        memcpy(s->parameters, l->parameters, s->count * sizeof(float));
        memcpy(s->moment1, l->moment1, s->count * sizeof(float));
        memcpy(s->moment2, l->moment2, s->count * sizeof(float));
        *steps = l->steps;
    }
    free(l->parameters);
    free(l->moment1);
    free(l->moment2);
    free(l->found);
    return status;
}

static int check_header(const struct model_stage *s, const char *name, const struct header *h)
{
    const struct model_config *c = &s->config;

    if (h->context != (uint32_t)c->context || h->width != (uint32_t)c->width || h->heads != (uint32_t)c->heads ||
        h->blocks != (uint32_t)c->blocks)
        return model_fail("%.80s is of a model with context %u, width %u, heads %u, blocks %u; this one has %d, %d, %d, %d",
                          name, h->context, h->width, h->heads, h->blocks, c->context, c->width, c->heads, c->blocks);
    return 0;
}

static int find_tensor(const struct model_stage *s, const char *name)
{
    for (int t = 0; t < s->n_tensors; t++)
        if (strncmp(s->tensors[t].name, name, sizeof(s->tensors[t].name)) == 0)
            return t;
    return -1;
}

static int parse(const struct model_stage *s, const char *name, const uint8_t *bytes, size_t n, struct loading *l)
{
    unsigned char sum[HASH_BYTES];
    struct header h;
    size_t at = sizeof(h), end = n - HASH_BYTES;

    if (n < sizeof(h) + HASH_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0)
        return model_fail("%.150s is no checkpoint of the training job", name);
    memcpy(&h, bytes, sizeof(h));
    if (h.version != VERSION)
        return model_fail("%.150s has checkpoint version %u; this program reads version %d", name, h.version, VERSION);
    crypto_generichash(sum, HASH_BYTES, bytes, end, NULL, 0);
    if (memcmp(sum, bytes + end, HASH_BYTES) != 0)
        return model_fail("%.150s is damaged: its checksum is wrong", name);
    if (check_header(s, name, &h) != 0)
        return -1;
    if (l->any && l->steps != h.steps)
        return model_fail("%.100s was written after step %llu, another one after step %llu", name,
                          (unsigned long long)h.steps, (unsigned long long)l->steps);
    for (uint32_t i = 0; i < h.tensors; i++) {
        struct record r;
        size_t size;
        int t;

        if (end - at < sizeof(r))
            return model_fail("%.150s ends before its tensor %u", name, i);
        memcpy(&r, bytes + at, sizeof(r));
        at += sizeof(r);
        if (memchr(r.name, 0, sizeof(r.name)) == NULL || r.count > (end - at) / (3 * sizeof(float)))
            return model_fail("%.150s has a tensor %u that can't be", name, i);
        size = (size_t)r.count * sizeof(float);
        t = find_tensor(s, r.name);
        if (t >= 0 && r.count != s->tensors[t].count)
            return model_fail("%.100s: tensor %s has %llu elements, not %zu", name, r.name, (unsigned long long)r.count,
                              s->tensors[t].count);
        if (t >= 0 && l->found[t])
            return model_fail("%.100s: tensor %s was there before", name, r.name);
        if (t >= 0) {
            memcpy(l->parameters + s->tensors[t].offset, bytes + at, size);
            memcpy(l->moment1 + s->tensors[t].offset, bytes + at + size, size);
            memcpy(l->moment2 + s->tensors[t].offset, bytes + at + 2 * size, size);
            l->found[t] = true;
            l->n_found++;
        }
        at += 3 * size;
    }
    if (at != end)
        return model_fail("%.150s has bytes behind its last tensor", name);
    l->steps = h.steps;
    l->any = true;
    return 0;
}

int model_checkpoint_parse(model_stage_t *s, const uint8_t *bytes, size_t n, uint64_t *steps_done)
{
    struct loading l;
    int status = begin_loading(s, &l);

    if (status == 0)
        status = sodium_init() < 0 ? model_fail("libsodium can't be initialised") : parse(s, "the data", bytes, n, &l);
    return end_loading(s, &l, steps_done, status);
}

static int parse_file(const struct model_stage *s, const char *path, struct loading *l)
{
    FILE *f = fopen(path, "re");
    uint8_t *bytes = NULL;
    struct stat st;
    int status;

    if (!f || fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode))
        status = model_fail("can't read the checkpoint %.150s: %s", path, f ? "not a file" : strerror(errno));
    else if (!(bytes = malloc((size_t)st.st_size + 1)))
        status = model_fail("out of memory for the checkpoint %.150s", path);
    else if (fread(bytes, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
        status = model_fail("the checkpoint %.150s could not be read to its end", path);
    else
        status = parse(s, path, bytes, (size_t)st.st_size, l);
    free(bytes);
    if (f)
        fclose(f);
    return status;
}

int model_checkpoint_read(model_stage_t *s, const char *const *paths, int n, uint64_t *steps_done)
{
    struct loading l;
    int status = begin_loading(s, &l);

    if (status == 0 && sodium_init() < 0)
        status = model_fail("libsodium can't be initialised");
    for (int i = 0; i < n && status == 0; i++)
        status = parse_file(s, paths[i], &l);
    return end_loading(s, &l, steps_done, status);
}
