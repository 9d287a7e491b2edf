/* SPDX-License-Identifier: BSD-3-Clause */
/* Which host this process is on, as far as shared memory goes. */
#include <shunt/topo.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "comm/base/log.h"
#include "topo/host.h"

#define TMPFS 0x01021994

static int read_line(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return -1;
    buf[n] = 0;
    buf[strcspn(buf, "\n")] = 0;
    return *buf ? 0 : -1;
}

/* The kernel that runs: its boot id where it has one, else weaker names that the text admits to. */
static void describe_kernel(const struct shunt__host_paths *paths, char *text, size_t size)
{
    char line[128];

    if (read_line(paths->boot_id, line, sizeof(line)) == 0)
        snprintf(text, size, "boot %s", line);
    else if (read_line(paths->machine_id, line, sizeof(line)) == 0)
        snprintf(text, size, "machine %s (no boot id)", line);
    else if (gethostname(line, sizeof(line)) == 0) {
        line[sizeof(line) - 1] = 0;
        snprintf(text, size, "hostname %.64s (no boot id, no machine id: set SHUNT_HOSTID)", line);
    } else
        snprintf(text, size, "nothing known (set SHUNT_HOSTID)");
}

/* The mounted instance: its device number is the kernel's own for each tmpfs, whatever the path. */
static void describe_memory(const struct shunt__host_paths *paths, char *text, size_t size)
{
    struct stat st;
    struct statfs fs;

    if (stat(paths->shm, &st) == 0) {
        int tmpfs = statfs(paths->shm, &fs) == 0 && (unsigned long)fs.f_type == TMPFS;
        snprintf(text, size, "/dev/shm %u:%u:%llu%s", major(st.st_dev), minor(st.st_dev),
                 (unsigned long long)st.st_ino, tmpfs ? "" : " (not a tmpfs)");
    } else if (stat("/proc/self/ns/mnt", &st) == 0)
        snprintf(text, size, "no /dev/shm, mounts %llu", (unsigned long long)st.st_ino);
    else
        snprintf(text, size, "no /dev/shm, process %d", (int)getpid());
}

shunt_status_t shunt__host_id_from(const char *given, const char *given_by,
                                   const struct shunt__host_paths *paths, shunt_host_id_t *id)
{
    char kernel[192], memory[96], key[300];
    shunt_host_id_t out = {0};

    if (sodium_init() < 0)
        return shunt__fail(SHUNT_ERR_SYSTEM, "libsodium can't start: no source of random bytes");
    if (given && *given) {
        /* Hashed in full, shown as far as it fits. */
        snprintf(out.text, sizeof(out.text), "%s=%s", given_by, given);
        crypto_generichash(out.bytes, sizeof(out.bytes), (const unsigned char *)given, strlen(given), NULL,
                           0);
    } else {
        describe_kernel(paths, kernel, sizeof(kernel));
        describe_memory(paths, memory, sizeof(memory));
        int n = snprintf(key, sizeof(key), "%s\n%s", kernel, memory);
        crypto_generichash(out.bytes, sizeof(out.bytes), (const unsigned char *)key, (size_t)n, NULL, 0);
        snprintf(out.text, sizeof(out.text), "%.90s, %.64s", kernel, memory);
    }
    *id = out;
    return SHUNT_OK;
}

shunt_status_t shunt_host_id(shunt_host_id_t *id)
{
    static const struct shunt__host_paths paths = {"/proc/sys/kernel/random/boot_id", "/etc/machine-id",
                                                   "/dev/shm"};
    const char *own = getenv("SHUNT_HOSTID"), *nccl = getenv("NCCL_HOSTID");

    if (!id)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_host_id: id is NULL");
    if (own && *own)
        return shunt__host_id_from(own, "SHUNT_HOSTID", &paths, id);
    return shunt__host_id_from(nccl, "NCCL_HOSTID", &paths, id);
}
