/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A neighbour in the tree that knows the key and says anything: the first byte chooses who hears it (rank 0 from a child,
 * rank 9 from its parent), the second the step; then messages follow, each behind two bytes of length.
 */
#include <string.h>
#include "comm/boot/tree.h"
#include "tests/boot/pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A link that is past its handshake, with keys of zeros. */
static void open_link(struct shunt__boot_link *link, int fd, const struct shunt__boot_secret *secret)
{
    shunt__boot_link_accept(link, fd, secret, SHUNT__BOOT_TO_PARENT);
    link->state = SHUNT__BOOT_OPEN;
    shunt__boot_link_trust(link);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shunt__boot *boot;
    struct shunt__boot_running step;
    struct shunt__boot_link far, *near;
    int pair[2];

    if (size < 2 || shunt__boot_secure_start() != 0)
        return 0;
    boot = calloc(1, sizeof(*boot));
    boot->size = 20;
    boot->rank = data[0] & 1 ? 9 : 0;
    make_pair(pair);
    if (boot->rank) {
        near = &boot->parent;
        boot->has_parent = 1;
    } else {
        near = &boot->child[0];
        boot->n_children = 1;
    }
    open_link(near, pair[1], &boot->secret);
    open_link(&far, pair[0], &boot->secret);
    if (shunt__boot_step_begin(&step, boot, data[1] % 3, "abc", data[1] % 3 == SHUNT__BOOT_ALLGATHER ? 3 : 0) == SHUNT_OK) {
        shunt_status_t status = SHUNT_IN_PROGRESS;

        for (size_t at = 2; at + 2 <= size && status == SHUNT_IN_PROGRESS;) {
            size_t n = data[at] | (size_t)data[at + 1] << 8;
            at += 2;
            if (n > size - at)
                n = size - at;
            shunt__boot_link_send(&far, data + at, n);
            at += n;
            boot->polls.n = 0;
            shunt__boot_step_poll(&step, &boot->polls);
            shunt__boot_polls_wait(&boot->polls, 0);
            status = shunt__boot_step_progress(&step, &boot->polls);
        }
    }
    shunt__boot_step_end(&step);
    shunt__boot_link_close(&far, SHUNT__BOOT_END_CLOSED, 0);
    shunt__boot_link_close(near, SHUNT__BOOT_END_CLOSED, 0);
    shunt__boot_close(boot);
    return 0;
}
