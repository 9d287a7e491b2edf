/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How two processes come to share a ring, and how that ends.
 *
 *     connecting side                     listening side (abstract UNIX socket, random name)
 *     HELLO              ───────────►
 *                                         events->incoming: authenticated, or closed without a word
 *                        ◄───────────     WELCOME + descriptors: rings, bell page, bell
 *     events->welcome: authenticated
 *     SETUP + descriptors: bell page, bell ───►
 *     established                         established
 *
 * No descriptor travels, and no memory is shared, before its receiver has proven that it knows the job's key.
 * The socket stays: its end is the end of the peer. Abstract names belong to a network namespace; reach() says no to
 * an address from another one.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/rail/shm.h"

#define ADDRESS_MAGIC 0x6d687353u /* "Sshm" */
#define SETUP_MAGIC 0x75746553u   /* "Setu" */

struct address {
    uint32_t magic;
    uint32_t name[4];  /* random: the socket's name */
    uint32_t netns[2]; /* inode of the network namespace, 0: unknown */
};

/* Follows WELCOME's payload in the same packet, and is all of a SETUP packet. */
struct setup {
    uint32_t magic;
    uint32_t version;
    uint32_t slot; /* of this link in the sender's bell page */
    uint32_t reserved;
    uint64_t probe_at, probe; /* a word of the sender's memory and its value */
};

struct packet {
    unsigned char bytes[sizeof(struct shunt__frame) + SHUNT__HELLO_MAX + sizeof(struct setup)];
    size_t length;
    int fds[4]; /* as many as fit in the space that is aligned for three */
    int n_fds;
};

#define conn_of(pollable, member) \
    ((struct shunt__shm_conn *)(void *)((char *)(pollable)-offsetof(struct shunt__shm_conn, member)))

/* ---- descriptors and memory ---- */

static void close_fds(struct packet *packet)
{
    while (packet->n_fds)
        close(packet->fds[--packet->n_fds]);
}

/* A sealed, nameless file of `size` bytes; -1 and errno. Its pages come with their first use. */
static int make_memory(size_t size)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
#ifdef MFD_NOEXEC_SEAL
    int fd = memfd_create("shunt", flags | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("shunt", flags);
#else
    int fd = memfd_create("shunt", flags);
#endif
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)size) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

/* Maps what another process sent, whatever it is: only if it can't shrink under us; NULL and errno. */
static void *map_memory(int fd, size_t *size)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;
    void *map;

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st)) {
        errno = EPROTO;
        return NULL;
    }
    if (*size && (uint64_t)st.st_size != *size) {
        errno = EPROTO;
        return NULL;
    }
    *size = (size_t)st.st_size;
    map = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* The rings behind `fd`, seen from end `me`. */
static int map_rings(struct shunt__shm_conn *c, int fd, int me)
{
    struct shunt__ring_end *ends;
    size_t size = 0;
    uint64_t ring;
    uint8_t *data;

    c->map = map_memory(fd, &size);
    if (!c->map)
        return -1;
    c->map_size = size;
    ring = size > SHUNT__RING_HEADER ? (size - SHUNT__RING_HEADER) / 2 : 0;
    if (ring < SHUNT__RING_MIN || ring > SHUNT__RING_MAX || (ring & (ring - 1)) ||
        size != SHUNT__RING_HEADER + 2 * ring) {
        errno = EPROTO;
        return -1;
    }
    ends = c->map;
    data = (uint8_t *)c->map + SHUNT__RING_HEADER;
    c->own = &ends[me];
    c->other = &ends[!me];
    c->out = (struct shunt__ring_producer){.data = data + (uint64_t)me * ring, .size = ring, .cleared = ring - SHUNT__RING_LINE, .other = c->other};
    c->in = (struct shunt__ring_consumer){.data = data + (uint64_t)!me * ring, .size = ring, .own = c->own};
    return 0;
}

/* Takes the other side's bell; the descriptors become the conn's. */
static int take_bell(struct shunt__shm_conn *c, int page, int bell, uint32_t slot)
{
    size_t size = SHUNT__SHM_PAGE;

    c->bell = map_memory(page, &size);
    close(page);
    c->bell_fd = bell;
    c->bell_slot = slot;
    if (c->bell && slot >= SHUNT__SHM_WORDS * 64)
        errno = EPROTO;
    return c->bell && slot < SHUNT__SHM_WORDS * 64 ? 0 : -1;
}

/* ---- packets ---- */

static int send_packet(int fd, const void *bytes, size_t length, const int *fds, int n_fds)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t sent;

    if (n_fds) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, (size_t)n_fds * sizeof(int));
    }
    do
        sent = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)length ? 0 : -1;
}

/* 1: a packet, 0: none yet, -1: the end, or something that no rail sends. */
static int receive_packet(int fd, struct packet *packet)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = packet->bytes, .iov_len = sizeof(packet->bytes)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t got;

    packet->n_fds = 0;
    do
        got = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got <= 0)
        return -1;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
            packet->n_fds = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(packet->fds, CMSG_DATA(h), (size_t)packet->n_fds * sizeof(int));
        }
    packet->length = (size_t)got;
    if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        close_fds(packet);
        return -1;
    }
    return 1;
}

/* What a setup says of this side of the conn. */
static void introduce(struct shunt__shm_conn *c, struct setup *setup)
{
    randombytes_buf(&c->probe, sizeof(c->probe));
    setup->slot = c->slot;
    setup->probe_at = (uint64_t)(uintptr_t)&c->probe;
    setup->probe = c->probe;
}

static int take_setup(const void *bytes, size_t length, struct setup *setup)
{
    if (length != sizeof(*setup))
        return -1;
    memcpy(setup, bytes, sizeof(*setup));
    return setup->magic == SETUP_MAGIC && setup->version == SHUNT__WIRE_VERSION ? 0 : -1;
}

/* ---- life of a conn ---- */

static void socket_ready(struct shunt__pollable *self, uint32_t events);
static void process_ready(struct shunt__pollable *self, uint32_t events);

static struct shunt__shm_conn *make_conn(struct shunt__shm_rail *r)
{
    struct shunt__shm_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->rail = r;
    c->hot = -1;
    c->bell_fd = c->socket.fd = c->process.fd = -1;
    c->socket.ready = socket_ready;
    c->process.ready = process_ready;
    c->slot = UINT32_MAX;
    c->since = shunt__now();
    c->next = r->conns;
    if (c->next)
        c->next->prev = c;
    r->conns = c;
    return c;
}

static int watch_fd(struct shunt__shm_rail *r, struct shunt__pollable *x, int fd)
{
    int err;

    x->fd = fd;
    x->events = EPOLLIN;
    err = shunt__poller_add(r->base.params.poller, x);
    if (err) {
        close(fd);
        x->fd = -1;
        errno = err;
        return -1;
    }
    return 0;
}

static void drop_fd(struct shunt__shm_rail *r, struct shunt__pollable *x)
{
    if (x->fd < 0)
        return;
    shunt__poller_remove(r->base.params.poller, x);
    close(x->fd);
    x->fd = -1;
}

static int take_slot(struct shunt__shm_conn *c)
{
    struct shunt__shm_rail *r = c->rail;
    uint32_t slot = 0, n;
    void *slots, *hot;

    while (slot < r->n_slots && r->slots[slot])
        slot++;
    if (slot == r->n_slots) {
        n = r->n_slots + 64;
        if (n > SHUNT__SHM_WORDS * 64) {
            errno = EMLINK;
            return -1;
        }
        slots = realloc(r->slots, n * sizeof(r->slots[0]));
        if (!slots)
            return -1;
        r->slots = slots;
        hot = realloc(r->hot, n * sizeof(r->hot[0]));
        if (!hot)
            return -1;
        r->hot = hot;
        memset(r->slots + r->n_slots, 0, 64 * sizeof(r->slots[0]));
        r->n_slots = n;
        r->words = n / 64;
    }
    r->slots[slot] = c;
    c->slot = slot;
    return 0;
}

/* Who is there, and a descriptor that becomes readable when that process ends. Both only where the kernel has them. */
static void know_process(struct shunt__shm_conn *c)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    int fd;

    if (getsockopt(c->socket.fd, SOL_SOCKET, SO_PEERCRED, &who, &len) || who.pid <= 0)
        return;
    c->pid = who.pid;
    snprintf(c->text, sizeof(c->text), "process %d", (int)who.pid);
#ifdef SYS_pidfd_open
    if (who.pid == getpid())
        return;
    fd = (int)syscall(SYS_pidfd_open, who.pid, 0);
    if (fd >= 0)
        watch_fd(c->rail, &c->process, fd);
#else
    (void)fd;
#endif
}

void shunt__shm_teardown(struct shunt__shm_conn *c)
{
    struct shunt__shm_rail *r = c->rail;

    if (c->state == SHUNT__SHM_GONE)
        return;
    r->n_strangers -= c->state == SHUNT__SHM_STRANGER;
    r->n_failed -= c->state == SHUNT__SHM_FAILED;
    shunt__shm_cool(c);
    if (c->state == SHUNT__SHM_UP)
        shunt__ring_tell(&c->in);
    if (c->own) {
        shunt__ring_refresh(&c->out);
        shunt__shm_direct_withdraw(c);
    }
    if (c->own)
        __atomic_store_n(&c->own->closed, 1, __ATOMIC_SEQ_CST);
    drop_fd(r, &c->process);
    if (c->socket.fd >= 0)
        shutdown(c->socket.fd, SHUT_RDWR); /* a forked child may hold it open */
    drop_fd(r, &c->socket);
    if (c->bell_fd >= 0)
        close(c->bell_fd);
    if (c->slot != UINT32_MAX)
        r->slots[c->slot] = NULL;
    if (c->link)
        c->link->conn = NULL;
    c->link = NULL;
    c->state = SHUNT__SHM_GONE;
    if (c->prev)
        c->prev->next = c->next;
    else
        r->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    /* The caller may be inside a callback that reads the ring. */
    c->next = r->grave;
    r->grave = c;
}

void shunt__shm_bury(struct shunt__shm_rail *r)
{
    while (r->grave) {
        struct shunt__shm_conn *c = r->grave;

        r->grave = c->next;
        if (c->map)
            munmap(c->map, c->map_size);
        if (c->bell)
            munmap(c->bell, SHUNT__SHM_PAGE);
        free(c->pending.copy);
        free(c->arriving.copy);
        free(c);
    }
}

void shunt__shm_fail(struct shunt__shm_conn *c, shunt_status_t status, const char *why)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    struct shunt__link *link = c->link;

    shunt__shm_teardown(c);
    if (link)
        p->events->down(p->engine, link, status, why);
}

static void fail_errno(struct shunt__shm_conn *c, const char *what)
{
    char why[160];
    int err = errno;

    snprintf(why, sizeof(why), "%s: %s%s", what, strerror(err),
             err == EMFILE   ? "; raise RLIMIT_NOFILE (ulimit -n)"
             : err == ENOMEM ? "; memory or vm.max_map_count is exhausted"
                             : "");
    shunt__shm_fail(c, SHUNT_ERR_RAIL, why);
}

static void establish(struct shunt__shm_conn *c)
{
    const struct shunt__rail_params *p = &c->rail->base.params;

    c->state = SHUNT__SHM_UP;
    shunt__shm_heat(c);
    p->events->established(p->engine, c->link);
}

/* ---- the connecting side ---- */

/* Sends HELLO; -1 with errno. */
static int say_hello(struct shunt__shm_conn *c)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    unsigned char bytes[sizeof(struct shunt__frame) + SHUNT__HELLO_MAX];
    struct shunt__frame frame = {.type = SHUNT__FRAME_HELLO};
    size_t len = SHUNT__HELLO_MAX;

    p->events->hello(p->engine, c->link, bytes + sizeof(frame), &len);
    frame.length = (uint32_t)len;
    shunt__frame_seal(&c->rail->base, c->link, &frame, bytes + sizeof(frame));
    memcpy(bytes, &frame, sizeof(frame));
    return send_packet(c->socket.fd, bytes, sizeof(frame) + len, NULL, 0);
}

static void socket_name(const struct address *a, struct sockaddr_un *sun, socklen_t *len)
{
    memset(sun, 0, sizeof(*sun));
    sun->sun_family = AF_UNIX;
    snprintf(sun->sun_path + 1, sizeof(sun->sun_path) - 1, "shunt-%08x%08x%08x%08x", a->name[0], a->name[1],
             a->name[2], a->name[3]);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(sun->sun_path + 1));
}

/* Connects and says HELLO as far as that goes at once. */
static void try_connect(struct shunt__shm_conn *c)
{
    struct address a;
    struct sockaddr_un sun;
    socklen_t len;

    memcpy(&a, c->address, sizeof(a));
    socket_name(&a, &sun, &len);
    if (connect(c->socket.fd, (struct sockaddr *)&sun, len) == 0) {
        c->state = SHUNT__SHM_HELLO;
        know_process(c);
        if (watch_fd(c->rail, &c->socket, c->socket.fd) == 0 && say_hello(c) == 0)
            return;
    } else if (errno == EAGAIN || errno == EINTR) {
        c->state = SHUNT__SHM_CONNECTING; /* its queue is full; the next tick tries again */
        return;
    }
    /* In our own network namespace a name that nobody listens on is the name of a process that is gone. */
    c->failed = errno == ECONNREFUSED && (a.netns[0] || a.netns[1]) ? SHUNT_ERR_PEER : SHUNT_ERR_RAIL;
    snprintf(c->text, sizeof(c->text), "connect over shared memory: %s", strerror(errno));
    c->state = SHUNT__SHM_FAILED;
    c->rail->n_failed++;
}

shunt_status_t shunt__shm_connect(struct shunt__rail *rail, struct shunt__link *link, const void *address, size_t len)
{
    struct shunt__shm_rail *r = (struct shunt__shm_rail *)(void *)rail;
    struct shunt__shm_conn *c;
    int fd;

    if (!shunt__shm_reach(rail, address, len))
        return shunt__fail(SHUNT_ERR_INVALID, "%s: not an address that this rail reaches", rail->name);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return shunt__fail_errno(errno == EMFILE || errno == ENFILE ? SHUNT_ERR_LIMIT : SHUNT_ERR_SYSTEM, errno,
                                 "%s: no socket (see ulimit -n)", rail->name);
    c = make_conn(r);
    if (!c) {
        close(fd);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "%s: no memory for a connection", rail->name);
    }
    c->socket.fd = fd;
    c->link = link;
    link->conn = c;
    memcpy(c->address, address, len);
    c->address_len = len;
    try_connect(c);
    return SHUNT_OK;
}

static void on_welcome(struct shunt__shm_conn *c, struct packet *packet)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    struct shunt__frame frame;
    struct setup theirs, ours = {.magic = SETUP_MAGIC, .version = SHUNT__WIRE_VERSION};
    const unsigned char *payload = packet->bytes + sizeof(frame);
    int fds[2], failed;

    memcpy(&frame, packet->bytes, sizeof(frame));
    if (packet->length < sizeof(frame) || !shunt__frame_valid(&c->rail->base, &frame) ||
        frame.type != SHUNT__FRAME_WELCOME || packet->n_fds != 3 ||
        packet->length != sizeof(frame) + frame.length + sizeof(theirs) ||
        take_setup(payload + frame.length, sizeof(theirs), &theirs)) {
        close_fds(packet);
        shunt__shm_fail(c, SHUNT_ERR_RAIL, "the answer is not a WELCOME of this version");
        return;
    }
    if (p->events->welcome(p->engine, c->link, payload, frame.length)) {
        close_fds(packet);
        if (c->state != SHUNT__SHM_GONE)
            shunt__shm_fail(c, SHUNT_ERR_AUTH, "the other side does not know this job's key");
        return;
    }
    if (c->state == SHUNT__SHM_GONE) {
        close_fds(packet);
        return;
    }
    packet->n_fds = 0;
    failed = map_rings(c, packet->fds[0], 1) || take_slot(c);
    close(packet->fds[0]);
    if (take_bell(c, packet->fds[1], packet->fds[2], theirs.slot) || failed) {
        fail_errno(c, "sharing memory");
        return;
    }
    shunt__shm_direct_try(c, theirs.probe_at, theirs.probe);
    introduce(c, &ours);
    fds[0] = c->rail->bell_page_fd;
    fds[1] = c->rail->bell_fd.fd;
    if (send_packet(c->socket.fd, &ours, sizeof(ours), fds, 2))
        fail_errno(c, "sharing memory");
    else
        establish(c);
}

/* ---- the listening side ---- */

static void on_hello(struct shunt__shm_conn *c, struct packet *packet)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    struct shunt__shm_rail *r = c->rail;
    struct packet answer = {.length = 0};
    struct shunt__frame frame;
    struct setup ours = {.magic = SETUP_MAGIC, .version = SHUNT__WIRE_VERSION};
    struct shunt__link *link;
    size_t len = SHUNT__HELLO_MAX;
    int fds[3];

    memcpy(&frame, packet->bytes, sizeof(frame));
    close_fds(packet);
    if (packet->length < sizeof(frame) || !shunt__frame_valid(&r->base, &frame) || frame.type != SHUNT__FRAME_HELLO ||
        packet->length != sizeof(frame) + frame.length) {
        shunt__shm_teardown(c);
        return;
    }
    link = p->events->incoming(p->engine, &r->base, packet->bytes + sizeof(frame), frame.length,
                               answer.bytes + sizeof(frame), &len);
    if (!link) {
        shunt__shm_teardown(c);
        return;
    }
    r->n_strangers--;
    c->state = SHUNT__SHM_SETUP;
    c->link = link;
    link->conn = c;
    fds[0] = make_memory(SHUNT__RING_HEADER + 2 * r->ring);
    if (fds[0] < 0 || map_rings(c, fds[0], 0) || take_slot(c)) {
        if (fds[0] >= 0)
            close(fds[0]);
        fail_errno(c, "sharing memory");
        return;
    }
    frame = (struct shunt__frame){.type = SHUNT__FRAME_WELCOME, .length = (uint32_t)len};
    shunt__frame_seal(&r->base, link, &frame, answer.bytes + sizeof(frame));
    memcpy(answer.bytes, &frame, sizeof(frame));
    introduce(c, &ours);
    memcpy(answer.bytes + sizeof(frame) + len, &ours, sizeof(ours));
    fds[1] = r->bell_page_fd;
    fds[2] = r->bell_fd.fd;
    if (send_packet(c->socket.fd, answer.bytes, sizeof(frame) + len + sizeof(ours), fds, 3))
        fail_errno(c, "sharing memory");
    close(fds[0]);
}

static void on_setup(struct shunt__shm_conn *c, struct packet *packet)
{
    struct setup theirs;

    if (packet->n_fds != 2 || take_setup(packet->bytes, packet->length, &theirs)) {
        close_fds(packet);
        shunt__shm_fail(c, SHUNT_ERR_RAIL, "the other side's SETUP is damaged");
        return;
    }
    packet->n_fds = 0;
    if (take_bell(c, packet->fds[0], packet->fds[1], theirs.slot)) {
        fail_errno(c, "sharing memory");
        return;
    }
    shunt__shm_direct_try(c, theirs.probe_at, theirs.probe);
    establish(c);
}

/* ---- what the poller says ---- */

/* The other side is gone; what it had written before counts. `dead`: its kernel says that the process has ended. */
static void ended(struct shunt__shm_conn *c, int dead)
{
    if (c->state != SHUNT__SHM_UP) {
        shunt__shm_fail(c, SHUNT_ERR_RAIL, "closed by the other side during the handshake");
        return;
    }
    shunt__shm_drain(c);
    if (c->state == SHUNT__SHM_GONE)
        return;
    if (!dead && __atomic_load_n(&c->other->closed, __ATOMIC_SEQ_CST))
        shunt__shm_fail(c, SHUNT_ERR_RAIL, "closed by the other side");
    else
        shunt__shm_fail(c, SHUNT_ERR_PEER, "its process ended");
}

static void process_ready(struct shunt__pollable *self, uint32_t events)
{
    (void)events;
    ended(conn_of(self, process), 1);
}

static void socket_ready(struct shunt__pollable *self, uint32_t events)
{
    struct shunt__shm_conn *c = conn_of(self, socket);
    struct packet packet;
    int got;

    (void)events;
    if (c->state == SHUNT__SHM_FAILED)
        return; /* progress() will say so */
    got = receive_packet(self->fd, &packet);
    if (got == 0)
        return;
    if (got < 0) {
        ended(c, 0);
        return;
    }
    switch (c->state) {
    case SHUNT__SHM_STRANGER:
        on_hello(c, &packet);
        break;
    case SHUNT__SHM_HELLO:
        on_welcome(c, &packet);
        break;
    case SHUNT__SHM_SETUP:
        on_setup(c, &packet);
        break;
    default: /* nothing is said on the socket of a link that is up */
        close_fds(&packet);
        shunt__shm_fail(c, SHUNT_ERR_RAIL, "unexpected packet on its socket");
    }
}

/* Most recent strangers first in the list: the last one found is the oldest. */
static void drop_oldest_stranger(struct shunt__shm_rail *r)
{
    struct shunt__shm_conn *oldest = NULL;

    for (struct shunt__shm_conn *c = r->conns; c; c = c->next)
        if (c->state == SHUNT__SHM_STRANGER)
            oldest = c;
    if (oldest)
        shunt__shm_teardown(oldest);
}

static void listener_ready(struct shunt__pollable *self, uint32_t events)
{
    struct shunt__shm_rail *r =
        (struct shunt__shm_rail *)(void *)((char *)self - offsetof(struct shunt__shm_rail, listener));
    struct shunt__shm_conn *c;
    int fd;

    (void)events;
    for (int i = 0; i < SHUNT__STRANGERS; i++) {
        fd = accept4(self->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                shunt__log_once(SHUNT__LOG_WARN, "%s: can't accept a connection: %s; raise RLIMIT_NOFILE (ulimit -n)",
                                r->base.name, strerror(errno));
                r->deaf = 1; /* the queue stays readable: look again at the next tick */
                shunt__poller_change(r->base.params.poller, self, 0);
            }
            return;
        }
        c = make_conn(r);
        if (!c) {
            close(fd);
            return;
        }
        c->state = SHUNT__SHM_STRANGER;
        r->n_strangers++;
        if (watch_fd(r, &c->socket, fd)) {
            shunt__shm_teardown(c);
            continue;
        }
        know_process(c);
        socket_ready(&c->socket, EPOLLIN); /* usually its HELLO is there already */
        if (r->n_strangers > SHUNT__STRANGERS)
            drop_oldest_stranger(r);
    }
}

void shunt__shm_tick(struct shunt__rail *rail, uint64_t now)
{
    struct shunt__shm_rail *r = (struct shunt__shm_rail *)(void *)rail;
    struct shunt__shm_conn *next;

    if (r->deaf) {
        r->deaf = 0;
        shunt__poller_change(r->base.params.poller, &r->listener, EPOLLIN);
    }
    for (struct shunt__shm_conn *c = r->conns; c; c = next) {
        next = c->next;
        if (c->state == SHUNT__SHM_UP || c->state == SHUNT__SHM_FAILED)
            continue;
        if (now - c->since > SHUNT__HELLO_TIME && now > c->since) {
            shunt__shm_fail(c, SHUNT_ERR_RAIL, "no answer over shared memory");
            return; /* the callback may have changed the list; the others have their turn at the next tick */
        }
        if (c->state == SHUNT__SHM_CONNECTING) {
            shunt__poller_change(r->base.params.poller, &c->socket, EPOLLIN);
            try_connect(c);
        }
    }
}

/* ---- opening ---- */

int shunt__shm_reach(struct shunt__rail *rail, const void *address, size_t len)
{
    struct address theirs, ours;

    if (len != sizeof(theirs))
        return 0;
    memcpy(&theirs, address, sizeof(theirs));
    memcpy(&ours, ((struct shunt__shm_rail *)(void *)rail)->address, sizeof(ours));
    if (theirs.magic != ADDRESS_MAGIC || theirs.netns[0] != ours.netns[0] || theirs.netns[1] != ours.netns[1])
        return 0;
    return 3;
}

shunt_status_t shunt__shm_listen(struct shunt__shm_rail *r)
{
    struct address a = {.magic = ADDRESS_MAGIC};
    struct sockaddr_un sun;
    struct stat st;
    socklen_t len;
    size_t size = SHUNT__SHM_PAGE;
    int fd;

    if (sodium_init() < 0)
        return shunt__fail(SHUNT_ERR_SYSTEM, "no source of random numbers");
    randombytes_buf(a.name, sizeof(a.name));
    if (stat("/proc/self/ns/net", &st) == 0) {
        a.netns[0] = (uint32_t)st.st_ino;
        a.netns[1] = (uint32_t)((uint64_t)st.st_ino >> 32);
    }
    memcpy(r->address, &a, sizeof(a));
    r->address_len = sizeof(a);

    r->bell_page_fd = make_memory(size);
    if (r->bell_page_fd < 0)
        return shunt__fail_errno(SHUNT_ERR_LIMIT, errno, "%s: no anonymous memory file", r->base.name);
    r->bell = map_memory(r->bell_page_fd, &size);
    if (!r->bell)
        return shunt__fail_errno(SHUNT_ERR_LIMIT, errno, "%s: can't map shared memory", r->base.name);
    fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0 || watch_fd(r, &r->bell_fd, fd))
        return shunt__fail_errno(SHUNT_ERR_LIMIT, errno, "%s: no event descriptor (see ulimit -n)", r->base.name);

    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return shunt__fail_errno(SHUNT_ERR_LIMIT, errno, "%s: no socket (see ulimit -n)", r->base.name);
    socket_name(&a, &sun, &len);
    if (bind(fd, (struct sockaddr *)&sun, len) || listen(fd, SOMAXCONN)) {
        int err = errno;
        close(fd);
        return shunt__fail_errno(SHUNT_ERR_SYSTEM, err, "%s: can't listen", r->base.name);
    }
    r->listener.ready = listener_ready;
    if (watch_fd(r, &r->listener, fd))
        return shunt__fail_errno(SHUNT_ERR_LIMIT, errno, "%s: epoll", r->base.name);
    return SHUNT_OK;
}
