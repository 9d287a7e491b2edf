/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared memory rail: its ring by itself, then two processes, one of which dies, lies or is a stranger. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/rail/shm.h"
#include "tests/rail/mini.h"
#include "tests/tap.h"

static uint32_t seed = 1;

static uint32_t dice(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)seed * n) >> 32);
}

/* ---- the ring alone ---- */

#define RING 32768u

static void ring_alone(void)
{
    static _Alignas(64) uint8_t data[RING];
    struct shunt__ring_end end = {0};
    struct shunt__ring_producer out = {.data = data, .size = RING, .cleared = RING - 64, .other = &end};
    struct shunt__ring_consumer in = {.data = data, .size = RING, .own = &end}, back = in;
    struct shunt__ring_record record;
    uint32_t lengths[1024], written = 0, read = 0, refused = 0;
    int good = 1;

    is_int(shunt__ring_next(&in, &record), SHUNT__RING_EMPTY, "a new ring is empty");
    for (int i = 0; i < 200000; i++) {
        if (dice(2)) {
            uint32_t n = 8 + dice(dice(4) ? 256 : shunt__ring_record_max(RING) - 8);
            uint8_t *at = written - read < 1024 ? shunt__ring_reserve(&out, n) : NULL;
            if (!at) {
                refused++;
                continue;
            }
            memset(at + 8, (int)(written & 0xff), n - 8);
            out.sent++;
            shunt__ring_publish(&out, n, SHUNT__RING_ONLY, &back);
            lengths[written++ % 1024] = n;
        } else {
            enum shunt__ring_state state = shunt__ring_next(&in, &record);
            if (state == SHUNT__RING_EMPTY) {
                good &= written == read;
                continue;
            }
            uint32_t n = lengths[read % 1024];
            good &= state == SHUNT__RING_RECORD && record.length == shunt__ring_round(n);
            for (uint32_t k = 8; good && k < n; k++)
                good &= record.start[k] == (read & 0xff);
            shunt__ring_consume(&in, &record);
            read++;
            if (dice(3) == 0) {
                shunt__ring_tell(&in);
            } else if (dice(3) == 0) { /* as a record of the other direction would */
                uint64_t marker = (in.frames & SHUNT__RING_FIELD) << 24 | (in.head / 64 & SHUNT__RING_FIELD) << 44;
                good &= shunt__ring_reported(&out, marker) == 0 && out.frames == in.frames && out.head == in.head;
            }
        }
    }
    shunt__ring_tell(&in);
    ok(good, "%u records came out as they went in, %u found no room", read, refused);
    while (shunt__ring_next(&in, &record) == SHUNT__RING_RECORD) {
        shunt__ring_consume(&in, &record);
        shunt__ring_tell(&in);
    }
    shunt__ring_refresh(&out);
    ok(shunt__ring_reserve(&out, shunt__ring_record_max(RING)), "an empty ring has room for the longest record");
    is_int(in.frames, written, "each last record counts as a frame");
    ok(out.tail - in.head < RING, "positions agree");
}

static void ring_broken(void)
{
    static _Alignas(64) uint8_t data[RING];
    static const struct {
        uint64_t at, marker;
        const char *what;
    } bad[] = {
        {0, SHUNT__RING_ONLY, "a length of zero"},
        {0, SHUNT__RING_ONLY | (RING / 64 + 1) << 4, "a record longer than the ring"},
        {RING - 64, SHUNT__RING_ONLY | 2 << 4, "a record across the ring's end"},
        {0, SHUNT__RING_SKIP | RING / 64 << 4, "a skip of the whole ring"},
        {64, SHUNT__RING_SKIP | 1 << 4, "a skip that ends before the ring does"},
        {0, 2 << 4, "a record of no kind"},
        {0, 9 | 1 << 4, "a record of an unknown kind"},
        {0, ~0ull, "all ones"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct shunt__ring_end end = {0};
        struct shunt__ring_consumer in = {.data = data, .size = RING, .own = &end, .head = bad[i].at};
        struct shunt__ring_record record;

        memset(data, 0, sizeof(data));
        memcpy(data + bad[i].at, &bad[i].marker, 8);
        is_int(shunt__ring_next(&in, &record), SHUNT__RING_BROKEN, "damage is noticed: %s", bad[i].what);
    }
    struct shunt__ring_end end = {.head = 640};
    struct shunt__ring_producer out = {.data = data, .size = RING, .tail = 512, .other = &end};
    is_int(shunt__ring_refresh(&out), -1, "a consumer ahead of the producer is noticed");
    is_int(shunt__ring_reported(&out, 9ull << 44), -1, "in a report too");
    is_int(shunt__ring_reported(&out, 1ull << 24), -1, "and one that accepted what was not sent");
    out.sent = 2;
    is_int(shunt__ring_reported(&out, 8ull << 44 | 2 << 24), 0, "a possible report is used");
    is_int(out.head + out.frames, 514, "fully");
    is_int(shunt__ring_reported(&out, 7ull << 44 | 1 << 24), 0, "an older one does no harm");
    is_int(out.head + out.frames, 514, "and changes nothing");
}

/* ---- two processes ---- */

static struct mini m;
static unsigned char address[SHUNT__ADDRESS_MAX];
static size_t address_len = sizeof(address);
static uint64_t wrong;

/* What the frame with this message number carries. */
static void fill(uint8_t *buf, uint32_t n, uint64_t message)
{
    for (uint32_t i = 0; i < n; i++)
        buf[i] = (uint8_t)(message * 31 + i * 7 + (i >> 8));
}

static void check_payload(struct mini *self, int link, const struct shunt__frame *frame, const void *payload)
{
    const uint8_t *p = payload;

    wrong += frame->message != self->frames - 1;
    for (uint32_t i = 0; i < frame->length; i++)
        wrong += p[i] != (uint8_t)(frame->message * 31 + i * 7 + (i >> 8));
}

/* Starts a process that runs `body` with the number of a pipe on which it can say one byte. */
static pid_t start(void (*body)(int say), int *hear)
{
    int fds[2];
    pid_t pid;

    fflush(stdout);
    if (pipe(fds))
        return -1;
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        body(fds[1]);
        _exit(0);
    }
    close(fds[1]);
    *hear = fds[0];
    return pid;
}

static int turns_until(int *what, int limit_ms)
{
    uint64_t end = shunt__now() + (uint64_t)limit_ms * SHUNT__MS;

    while (!*what && shunt__now() < end)
        mini_turn(&m, 20);
    return *what;
}

static int put(int link, uint32_t length, uint64_t message, const void *payload)
{
    struct shunt__frame frame = {.type = SHUNT__FRAME_DATA, .length = length, .message = message};
    shunt_status_t status;
    uint64_t sent = m.sent;

    while ((status = m.rail->ops->send(&m.links[link], &frame, payload, message)) == SHUNT_ERR_AGAIN &&
           m.links[link].conn)
        mini_turn(&m, 20);
    while (status == SHUNT_IN_PROGRESS && m.sent == sent && m.links[link].conn)
        mini_turn(&m, 20);
    return status >= 0 ? 0 : -1;
}

static int put_and_take_back(int link, uint32_t length, uint64_t message, const void *payload)
{
    struct shunt__frame frame = {.type = SHUNT__FRAME_DATA, .length = length, .message = message};
    shunt_status_t status;

    while ((status = m.rail->ops->send(&m.links[link], &frame, payload, message)) == SHUNT_ERR_AGAIN &&
           m.links[link].conn)
        mini_turn(&m, 20);
    for (uint32_t i = dice(200); i; i--)
        m.rail->ops->stats(&m.links[link], &(struct shunt__link_stats){0}); /* some time, without progress */
    m.rail->ops->detach(&m.links[link], message);
    return status >= 0 ? 0 : -1;
}

#define FRAMES 3400
#define TAKEN_BACK 3000 /* from here on the sender takes its memory back at any moment */

static uint32_t length_of(uint64_t message)
{
    static const uint32_t lengths[] = {0, 1, 40, 41, 256, 257, 4096, 65536, 70000, 262144, SHUNT__FRAME_PAYLOAD_MAX};

    if (message >= TAKEN_BACK)
        return 20000 + (uint32_t)(message * 7919 % 150000);
    return message % 100 == 0 ? lengths[message / 100 % 11] : (uint32_t)(message % 3000);
}

static void send_all(int say)
{
    static uint8_t buf[SHUNT__FRAME_PAYLOAD_MAX];
    int bad = 0;

    bad |= mini_open(&m, "shm", "", "") != SHUNT_OK;
    m.links[3].generation = 9;
    bad |= m.rail->ops->connect(m.rail, &m.links[3], address, address_len) != SHUNT_OK;
    bad |= !turns_until(&m.up[3], 5000);
    for (uint64_t i = 0; i < FRAMES && !bad; i++) {
        fill(buf, length_of(i), i);
        bad |= i < TAKEN_BACK ? put(3, length_of(i), i, buf) : put_and_take_back(3, length_of(i), i, buf);
        memset(buf, 0xee, length_of(i)); /* must have been read by now */
    }
    while (!bad && m.consumed < FRAMES && m.up[3])
        mini_turn(&m, 20);
    bad |= m.consumed != FRAMES;
    bad = write(say, bad ? "n" : "y", 1) != 1;
    mini_close(&m);
}

static void frames_between_processes(void)
{
    int hear;
    char said = 0;
    pid_t pid = start(send_all, &hear);

    m.frame = check_payload;
    ok(turns_until(&m.up[3], 5000), "the other process's link is up");
    is_int(m.links[3].generation, 9, "generation came with HELLO");
    while (m.frames < FRAMES && m.up[3])
        mini_turn(&m, 20);
    is_int(m.frames, FRAMES, "all frames came");
    is_int(wrong, 0, "in order, every byte right");
    ok(turns_until(&m.downs[3], 5000), "the other side's disconnect is noticed");
    is_int(m.down_status[3], SHUNT_ERR_RAIL, "and is no death: %s", m.down_why[3]);
    ok(read(hear, &said, 1) == 1 && said == 'y', "the sender saw all of them accepted");
    waitpid(pid, NULL, 0);
    close(hear);
}

static void connect_and_hang(int say)
{
    uint8_t byte = 7;

    if (mini_open(&m, "shm", "", "") == SHUNT_OK &&
        m.rail->ops->connect(m.rail, &m.links[4], address, address_len) == SHUNT_OK && turns_until(&m.up[4], 5000)) {
        struct shunt__frame frame = {.type = SHUNT__FRAME_DATA, .length = 1, .message = m.frames};
        m.rail->ops->send(&m.links[4], &frame, &byte, 1);
        /* A child that holds all descriptors open must not hide the parent's end. */
        if (fork() == 0) {
            for (int i = 0; i < 300; i++)
                poll(NULL, 0, 10);
            _exit(0);
        }
        if (write(say, "y", 1) == 1)
            for (;;)
                mini_turn(&m, 1000);
    }
}

static void killed(void)
{
    int hear;
    char said = 0;
    pid_t pid = start(connect_and_hang, &hear);
    uint64_t before = m.frames;

    m.frame = NULL;
    ok(turns_until(&m.up[4], 5000), "up");
    ok(read(hear, &said, 1) == 1, "the other process is there");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    uint64_t start_ns = shunt__now();
    ok(turns_until(&m.downs[4], 10000), "its death is seen (%.1f ms)", (double)(shunt__now() - start_ns) / 1e6);
    is_int(m.down_status[4], SHUNT_ERR_PEER, "as a death: %s", m.down_why[4]);
    is_int(m.frames - before, 1, "what it had sent before came");
    close(hear);
}

static void write_over_the_ring(int say)
{
    if (mini_open(&m, "shm", "", "") == SHUNT_OK &&
        m.rail->ops->connect(m.rail, &m.links[5], address, address_len) == SHUNT_OK && turns_until(&m.up[5], 5000)) {
        struct shunt__shm_conn *c = m.links[5].conn;
        struct shunt__frame frame = {.type = SHUNT__FRAME_DATA};

        memset(c->out.data, 0xff, c->out.size);
        c->out.tail = 4096; /* a good frame where nobody looks, for the sake of its bell */
        m.rail->ops->send(&m.links[5], &frame, NULL, 1);
        turns_until(&m.downs[5], 5000);
    }
    if (write(say, m.downs[5] ? "y" : "n", 1) != 1)
        _exit(1);
}

static void damaged_ring(void)
{
    int hear;
    char said = 0;
    pid_t pid = start(write_over_the_ring, &hear);

    ok(turns_until(&m.downs[5], 5000), "a ring full of garbage takes the link down");
    is_int(m.down_status[5], SHUNT_ERR_RAIL, "and only the link: %s", m.down_why[5]);
    ok(read(hear, &said, 1) == 1 && said == 'y', "the other side is told");
    waitpid(pid, NULL, 0);
    close(hear);
}

/* ---- one process, both ends ---- */

static void same_process(void)
{
    static struct mini other;
    static uint8_t big[SHUNT__FRAME_PAYLOAD_MAX];
    struct shunt__frame frame = {.type = SHUNT__FRAME_DATA, .length = sizeof(big), .message = 0};
    shunt_status_t status;

    setenv("SHUNT_SHM_DIRECT", "0", 1);
    ok(mini_open(&other, "shm", "", "") == SHUNT_OK, "a second rail");
    unsetenv("SHUNT_SHM_DIRECT");
    other.links[1].generation = 2;
    m.frames = 0;
    m.frame = check_payload;
    wrong = 0;
    ok(other.rail->ops->connect(other.rail, &other.links[1], address, address_len) == SHUNT_OK, "connect");
    for (int i = 0; i < 100 && !(other.up[1] && m.up[1]); i++) {
        mini_turn(&other, 0);
        mini_turn(&m, 0);
    }
    ok(other.up[1] && m.up[1], "both ends up");
    ok(!other.rail->ops->arm(other.rail), "nothing to do: may sleep");
    ok(!m.rail->ops->arm(m.rail), "the other one too");
    fill(big, sizeof(big), 0);
    status = other.rail->ops->send(&other.links[1], &frame, big, 77);
    is_int(status, SHUNT_IN_PROGRESS, "a frame longer than the ring is taken in part");
    ok(shunt__poller_run(&m.poller, 0) > 0, "the bell rings for the one that sleeps");
    frame.length = 1;
    is_int(other.rail->ops->send(&other.links[1], &frame, big, 78), SHUNT_ERR_AGAIN, "no second one before its end");
    other.rail->ops->detach(&other.links[1], 77);
    memset(big, 0, sizeof(big));
    for (int i = 0; i < 1000 && m.frames == 0; i++) {
        mini_turn(&m, 0);
        mini_turn(&other, 0);
    }
    is_int(m.frames, 1, "a detached frame arrives");
    is_int(wrong, 0, "as it was when it was sent");
    is_int(other.sent, 0, "without a sent event");
    mini_turn(&other, 0);
    ok(other.writable > 0, "and then there is room");
    mini_turn(&m, 0);
    mini_turn(&other, 0);
    is_int(other.consumed, 1, "one frame accepted");

    /* Both sides asleep, a frame each way. */
    while (other.rail->ops->arm(other.rail))
        mini_turn(&other, 0);
    while (m.rail->ops->arm(m.rail))
        mini_turn(&m, 0);
    m.frame = NULL;
    is_int(m.rail->ops->send(&m.links[1], &frame, big, 1), SHUNT_OK, "send while armed");
    is_int(shunt__poller_run(&other.poller, 0), 1, "wakes the other");
    mini_turn(&other, 0);
    is_int(other.frames, 1, "and comes");
    mini_turn(&other, 0);
    is_int(shunt__poller_run(&m.poller, 0), 1, "its acceptance wakes the sender, which is still armed");
    other.rail->ops->disconnect(&other.links[1]);
    ok(!other.links[1].conn && !other.downs[1], "disconnect is silent on its own side");
    mini_close(&other);
    ok(turns_until(&m.downs[1], 1000), "and heard on the other");
}

/* Payloads that are read where they lie. */
static void direct(void)
{
    static struct mini other;
    static uint8_t big[100000];
    struct shunt__frame frame = {.type = SHUNT__FRAME_DATA, .length = sizeof(big), .total = sizeof(big)};
    int offered = 0;

    mini_open(&other, "shm", "", "");
    other.links[8].generation = 2;
    other.rail->ops->connect(other.rail, &other.links[8], address, address_len);
    for (int i = 0; i < 100 && !(other.up[8] && m.up[8]); i++) {
        mini_turn(&other, 0);
        mini_turn(&m, 0);
    }
    if (!((struct shunt__shm_conn *)other.links[8].conn)->other->reads) {
        skip("this system does not let processes read each other's memory");
        mini_close(&other);
        turns_until(&m.downs[8], 1000);
        return;
    }
    m.frames = 0;
    m.frame = check_payload;
    wrong = 0;
    fill(big, sizeof(big), 0);
    is_int(other.rail->ops->send(&other.links[8], &frame, big, 5), SHUNT_IN_PROGRESS, "a payload is offered");
    for (int i = 0; i < 10; i++) {
        mini_turn(&m, 0);
        mini_turn(&other, 0);
    }
    is_int(m.frames, 1, "and read");
    is_int(other.sent, 1, "which its sender learns");
    frame.message = 1;
    fill(big, sizeof(big), 1);
    other.rail->ops->send(&other.links[8], &frame, big, 6);
    other.rail->ops->detach(&other.links[8], 6);
    memset(big, 0, sizeof(big));
    for (int i = 0; i < 10; i++) {
        mini_turn(&m, 0);
        mini_turn(&other, 0);
    }
    is_int(m.frames, 2, "one that was detached");
    is_int(wrong, 0, "is read from the copy");
    is_int(other.sent, 1, "without a sent event");
    is_int(other.consumed, 2, "both accepted");
    frame.message = 2;
    fill(big, sizeof(big), 2);
    while (other.rail->ops->send(&other.links[8], &frame, big, 7) == SHUNT_IN_PROGRESS) {
        frame.message++;
        offered++;
    }
    is_int(offered, SHUNT__SHM_DIRECT, "so many are offered at once");
    other.rail->ops->disconnect(&other.links[8]);
    memset(big, 0x55, sizeof(big));
    ok(turns_until(&m.downs[8], 1000), "those of a link that has ended");
    is_int(m.frames, 2, "are not taken");
    is_int(m.down_status[8], SHUNT_ERR_RAIL, "%s", m.down_why[8]);
    mini_close(&other);
    m.frame = NULL;
}

static void refusals(void)
{
    static struct mini other;
    unsigned char gone[SHUNT__ADDRESS_MAX];
    size_t gone_len = sizeof(gone);

    mini_open(&other, "shm", "", "");
    ok(!other.rail->ops->reach(other.rail, "garbage", 7), "garbage is no address");
    memcpy(gone, address, address_len);
    gone[address_len - 3] ^= 1;
    ok(!other.rail->ops->reach(other.rail, gone, address_len), "another network namespace can't be reached");
    ok(other.rail->ops->reach(other.rail, address, address_len) > 0, "a real one can");
    m.refuse_hello = 1;
    other.rail->ops->connect(other.rail, &other.links[2], address, address_len);
    for (int i = 0; i < 100 && !other.downs[2]; i++) {
        mini_turn(&m, 0);
        mini_turn(&other, 0);
    }
    is_int(other.down_status[2], SHUNT_ERR_RAIL, "an unwelcome HELLO: %s", other.down_why[2]);
    m.refuse_hello = 0;
    other.refuse_welcome = 1;
    other.rail->ops->connect(other.rail, &other.links[2], address, address_len);
    for (int i = 0; i < 100 && other.downs[2] < 2; i++) {
        mini_turn(&m, 0);
        mini_turn(&other, 0);
    }
    is_int(other.down_status[2], SHUNT_ERR_AUTH, "an impostor's WELCOME: %s", other.down_why[2]);
    for (int i = 0; i < 10; i++)
        mini_turn(&m, 0);
    ok(!m.links[2].conn && m.downs[2] == 1, "the listening side is told");
    mini_close(&other);

    mini_open(&other, "shm", "", "");
    other.rail->ops->address(other.rail, gone, &gone_len);
    mini_close(&other);
    is_int(m.rail->ops->connect(m.rail, &m.links[6], gone, gone_len), SHUNT_OK, "connecting to nobody starts");
    ok(m.rail->ops->arm(m.rail), "there is something to say before sleeping");
    m.rail->ops->progress(m.rail);
    is_int(m.down_status[6], SHUNT_ERR_PEER, "nobody listens: its process is gone: %s", m.down_why[6]);
}

static int stranger(void)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    uint32_t name[4];
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

    memcpy(name, address + 4, sizeof(name));
    snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1, "shunt-%08x%08x%08x%08x", name[0], name[1], name[2], name[3]);
    if (connect(fd, (struct sockaddr *)&sun,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(sun.sun_path + 1)))) {
        close(fd);
        return -1;
    }
    return fd;
}

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static void strangers(void)
{
    int before, fds[SHUNT__STRANGERS + 10], closed = 0;
    static char garbage[5000];
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(8 * sizeof(int))];
    } control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(8 * sizeof(int))}};
    struct iovec iov = {.iov_base = garbage, .iov_len = 100};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};

    for (int i = 0; i < 20; i++)
        mini_turn(&m, 0);
    before = count_fds();
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        fds[i] = stranger();
        mini_turn(&m, 0);
    }
    for (int i = 0; i < 20; i++)
        mini_turn(&m, 0);
    is_int(count_fds() - before, 2 * SHUNT__STRANGERS + 10, "silent strangers are bounded: the oldest are dropped");
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close(fds[i]);
    for (int i = 0; i < 20; i++)
        mini_turn(&m, 0);
    is_int(count_fds(), before, "and leave nothing");

    fds[0] = stranger();
    closed = send(fds[0], garbage, sizeof(garbage), 0) == sizeof(garbage);
    for (int i = 0; i < 8; i++)
        ((int *)(void *)CMSG_DATA(&control.header))[i] = 0;
    fds[1] = stranger();
    closed &= sendmsg(fds[1], &msg, 0) == 100;
    fds[2] = stranger();
    msg.msg_controllen = CMSG_SPACE(3 * sizeof(int));
    control.header.cmsg_len = CMSG_LEN(3 * sizeof(int));
    closed &= sendmsg(fds[2], &msg, 0) == 100;
    ok(closed, "garbage sent, some with descriptors");
    for (int i = 0; i < 20; i++)
        mini_turn(&m, 0);
    for (int i = 0; i < 3; i++) {
        ok(recv(fds[i], garbage, 1, 0) == 0, "its sender is turned away");
        close(fds[i]);
    }
    is_int(count_fds(), before, "no descriptor of a stranger is kept");
}

static int shm_files(void)
{
    DIR *d = opendir("/dev/shm");
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += strstr(e->d_name, "shunt") != NULL;
    if (d)
        closedir(d);
    return n;
}

static void many_links(void)
{
    static struct mini others[4];
    int up = 0;

    /* 4 processes' worth of rails, 60 links. */
    for (int i = 0; i < 4; i++) {
        mini_open(&others[i], "shm", "", "");
        for (int k = i * 15; k < i * 15 + 15; k++)
            others[i].rail->ops->connect(others[i].rail, &others[i].links[k], address, address_len);
    }
    for (int t = 0; t < 50; t++) {
        mini_turn(&m, 0);
        for (int i = 0; i < 4; i++)
            mini_turn(&others[i], 0);
    }
    for (int k = 0; k < 60; k++)
        up += m.up[k] && others[k / 15].up[k];
    is_int(up, 60, "60 links up");
    for (int t = 0; t < 1000; t++)
        m.rail->ops->progress(m.rail);
    ok(((struct shunt__shm_rail *)(void *)m.rail)->n_hot <= 8, "idle links are no longer looked at");
    m.frames = 0;
    for (int k = 0; k < 60; k++) {
        struct shunt__frame frame = {.type = SHUNT__FRAME_PING};
        others[k / 15].rail->ops->send(&others[k / 15].links[k], &frame, NULL, 0);
    }
    m.rail->ops->progress(m.rail);
    is_int(m.frames, 60, "but their frames come with the next progress");
    for (int i = 0; i < 4; i++)
        mini_close(&others[i]);
    for (int t = 0; t < 20; t++)
        mini_turn(&m, 0);
    up = 0;
    for (int k = 0; k < 60; k++)
        up += m.up[k];
    is_int(up, 0, "all down again");
}

static void out_of_descriptors(void)
{
    static struct mini other;
    struct rlimit old, low;
    int before = m.downs[7], next;

    mini_open(&other, "shm", "", "");
    next = dup(0);
    close(next);

    getrlimit(RLIMIT_NOFILE, &old);
    low = old;
    low.rlim_cur = (rlim_t)next + 1;
    setrlimit(RLIMIT_NOFILE, &low);
    is_int(other.rail->ops->connect(other.rail, &other.links[7], address, address_len), SHUNT_OK, "one descriptor left");
    for (int i = 0; i < 20; i++) {
        mini_turn(&m, 0);
        mini_turn(&other, 0);
    }
    ok(!m.up[7] && !other.up[7] && m.downs[7] == before, "no link without descriptors, and no harm");
    setrlimit(RLIMIT_NOFILE, &old);
    for (int i = 0; i < 200 && !(m.up[7] && other.up[7]); i++)
        mini_turn(i % 2 ? &other : &m, 1);
    ok(m.up[7] && other.up[7], "up as soon as there are some");
    mini_close(&other);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    ring_alone();
    ring_broken();
    if (!ok(mini_open(&m, "shm", "", "") == SHUNT_OK, "opens")) {
        printf("# %s\n", shunt_error_text());
        return done();
    }
    m.rail->ops->address(m.rail, address, &address_len);
    frames_between_processes();
    killed();
    damaged_ring();
    same_process();
    direct();
    refusals();
    strangers();
    many_links();
    out_of_descriptors();
    is_int(shm_files(), 0, "nothing in /dev/shm");
    mini_close(&m);
    return done();
}
