/* SPDX-License-Identifier: BSD-3-Clause */
/* Files: told apart by what they begin with. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "comm/base/log.h"
#include "topo/pack.h"
#include "topo/read.h"

#define MAX_FILE (16u << 20)

shunt_status_t shunt__load_memory(const char *name, const void *data, size_t size, int unfinished,
                                  shunt_topo_t **topo)
{
    struct shunt__arena arena = {0};
    struct shunt__xml *root;
    shunt_status_t st;

    if (size > MAX_FILE)
        return shunt__fail(SHUNT_ERR_LIMIT, "%s is larger than %u MiB: no topology is", name, MAX_FILE >> 20);
    if (shunt__is_packed(data, size) && !unfinished)
        return shunt_topo_unpack(data, size, topo);
    st = shunt__xml_parse(name, data, size, &arena, &root);
    if (st == SHUNT_OK) {
        if (strcmp(root->name, "system") == 0)
            st = shunt__read_nccl(root, unfinished, topo);
        else if (strcmp(root->name, "topology") == 0)
            st = shunt__read_hwloc(root, "hwloc", unfinished, topo);
        else
            st = shunt__fail(SHUNT_ERR_FORMAT,
                             "%s is no topology: <%.40s> is neither hwloc's <topology> nor NCCL's <system>",
                             name, root->name);
    }
    shunt__arena_free(&arena);
    if (st == SHUNT_OK) { /* a file's host is known by its content */
        crypto_generichash((*topo)->host_id.bytes, sizeof((*topo)->host_id.bytes), data, size, NULL, 0);
        snprintf((*topo)->host_id.text, sizeof((*topo)->host_id.text), "file %.140s", name);
    }
    return st;
}

static shunt_status_t read_all(int fd, const char *path, char **data, size_t *size)
{
    size_t room = 65536, n = 0;
    char *buf = malloc(room);

    while (buf) {
        ssize_t got = read(fd, buf + n, room - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(buf);
            return shunt__fail_errno(SHUNT_ERR_SYSTEM, errno, "can't read %s", path);
        }
        if (got == 0) {
            *data = buf;
            *size = n;
            return SHUNT_OK;
        }
        n += (size_t)got;
        if (n > MAX_FILE) {
            free(buf);
            return shunt__fail(SHUNT_ERR_LIMIT, "%s is larger than %u MiB: no topology is", path,
                               MAX_FILE >> 20);
        }
        if (n == room) {
            char *bigger = realloc(buf, room *= 2);
            if (!bigger)
                free(buf);
            buf = bigger;
        }
    }
    return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to read %s", path);
}

shunt_status_t shunt__load_file(const char *path, int unfinished, shunt_topo_t **topo)
{
    int own = strcmp(path, "-") != 0;
    int fd = own ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY) : STDIN_FILENO;
    char *data = NULL;
    size_t size = 0;
    shunt_status_t st;

    if (fd < 0)
        return shunt__fail_errno(errno == ENOENT   ? SHUNT_ERR_NOT_FOUND
                                 : errno == EACCES ? SHUNT_ERR_PERMISSION
                                                   : SHUNT_ERR_SYSTEM,
                                 errno, "can't open %s", path);
    st = read_all(fd, path, &data, &size);
    if (own)
        close(fd);
    if (st == SHUNT_OK)
        st = shunt__load_memory(own ? path : "the standard input", data, size, unfinished, topo);
    free(data);
    return st;
}

shunt_status_t shunt_topo_load_file(const char *path, shunt_topo_t **topo)
{
    if (!path || !topo)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_load_file: path or topo is NULL");
    return shunt__load_file(path, 0, topo);
}

shunt_status_t shunt_topo_load_memory(const char *name, const void *data, size_t size, shunt_topo_t **topo)
{
    if ((!data && size) || !topo)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_load_memory: data or topo is NULL");
    return shunt__load_memory(name ? name : "the text", data ? data : "", size, 0, topo);
}

void shunt_topo_host_id(const shunt_topo_t *topo, shunt_host_id_t *id)
{
    if (topo && id)
        *id = topo->host_id;
}
