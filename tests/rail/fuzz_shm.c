/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What another process can do to the shared memory rail: its packets and its half of the shared memory.
 *
 * The first byte says which: s, the rest is a stranger's packet; t, it follows a good HELLO where SETUP belongs;
 * r, it is written over the ring that an established link reads, beginning where the next record is expected.
 */
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "comm/rail/shm.h"
#include "tests/rail/mini.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mini a, b;
static unsigned char address[SHUNT__ADDRESS_MAX];
static size_t address_len = sizeof(address);

static void turns(int n)
{
    while (n--) {
        mini_turn(&a, 0);
        mini_turn(&b, 0);
    }
}

static int stranger(void)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    uint32_t name[4];
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

    memcpy(name, address + 4, sizeof(name));
    snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1, "shunt-%08x%08x%08x%08x", name[0], name[1], name[2], name[3]);
    if (connect(fd, (struct sockaddr *)&sun,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(sun.sun_path + 1))))
        abort();
    return fd;
}

static void packets(const uint8_t *data, size_t size, int greet)
{
    struct {
        struct shunt__frame frame;
        char payload[12];
    } hello = {.frame = {.type = SHUNT__FRAME_HELLO, .length = 12}, .payload = "mini\1\0\0\0\1\0\0"};
    int fd = stranger();

    shunt__frame_seal(b.rail, NULL, &hello.frame, hello.payload);
    if (greet && send(fd, &hello, sizeof(hello.frame) + 12, MSG_NOSIGNAL) < 0)
        abort();
    turns(2);
    send(fd, data, size, MSG_NOSIGNAL);
    turns(2);
    close(fd);
    turns(2);
    if (b.links[1].conn) /* its end is known */
        abort();
}

static void ring(const uint8_t *data, size_t size)
{
    struct shunt__shm_conn *c;

    a.links[2].generation++;
    if (a.rail->ops->connect(a.rail, &a.links[2], address, address_len) != SHUNT_OK)
        abort();
    for (int i = 0; i < 100 && !(a.up[2] && b.up[2]); i++)
        turns(1);
    c = a.links[2].conn;
    if (!c || !b.links[2].conn)
        abort();
    memcpy(c->out.data, data, size < c->out.size ? size : c->out.size);
    turns(4);
    if (a.links[2].conn)
        a.rail->ops->disconnect(&a.links[2]);
    turns(3);
    if (b.links[2].conn)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || (!a.rail && (mini_open(&a, "shm", "", "") != SHUNT_OK || mini_open(&b, "shm", "", "") != SHUNT_OK ||
                                 b.rail->ops->address(b.rail, address, &address_len) != SHUNT_OK)))
        return 0;
    if (data[0] == 's' || data[0] == 't')
        packets(data + 1, size - 1, data[0] == 't');
    else if (data[0] == 'r')
        ring(data + 1, size - 1);
    return 0;
}
