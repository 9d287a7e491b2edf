/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Delay for kernels without netem: a process between a switch's port and its bridge.
 *
 *     host ══ veth ══ PORT ──packet socket── this process ──TAP── bridge
 *
 * Each frame waits in the queue of its direction until its time has come: arrival + delay + a uniform draw from
 * ±jitter, but never before the frame ahead of it (a path keeps its order). Both ends pass virtio headers, so that
 * frames which the stack left to be cut later pass as they are. The queue holds 64 MiB a direction; what comes on
 * top is dropped, as a router's buffer would. SIGHUP reads the parameters again, SIGTERM lets all out and ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "tools/lab/lab.h"

enum { FRAME_MAX = 1 << 17, QUEUE_MAX = 64 << 20, BATCH = 64 };

struct frame {
    struct frame *next;
    int64_t due;
    size_t len;
    unsigned char data[];
};

struct direction {
    int from, to;
    int64_t delay, jitter; /* nanoseconds */
    struct frame *first, **last;
    int64_t last_due;
    size_t queued; /* bytes */
};

static volatile sig_atomic_t reload = 1, stop;
static unsigned char buffer[FRAME_MAX];
static uint64_t random_state = 88172645463325252ULL;

static void on_signal(int signal)
{
    if (signal == SIGHUP)
        reload = 1;
    else
        stop = 1;
}

static int64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* xorshift64 (Marsaglia 2003). */
static uint64_t draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static int open_tap(const char *name, const char *bridge)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), control;

    if (fd < 0)
        return lab_fail("/dev/net/tun, which delays need"), -1;
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    if (ioctl(fd, TUNSETIFF, &request) || ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN))
        return lab_fail("TAP device %s", name), -1;
    control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_qlen = 10000;
    if (ioctl(control, SIOCSIFTXQLEN, &request))
        return lab_fail("queue of %s", name), -1;
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", bridge);
    request.ifr_ifindex = (int)if_nametoindex(name);
    if (ioctl(control, SIOCBRADDIF, &request))
        return lab_fail("putting %s into bridge %s", name, bridge), -1;
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    request.ifr_flags = IFF_UP | IFF_PROMISC;
    if (ioctl(control, SIOCSIFFLAGS, &request))
        return lab_fail("starting %s", name), -1;
    close(control);
    return fd;
}

static int open_port(const char *name)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    struct packet_mreq promiscuous = {.mr_type = PACKET_MR_PROMISC};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1, size = 32 << 20;

    address.sll_ifindex = promiscuous.mr_ifindex = (int)if_nametoindex(name);
    if (fd < 0 || address.sll_ifindex == 0)
        return lab_fail("port %s", name), -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof(promiscuous)) ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)))
        return lab_fail("packet socket on %s", name), -1;
    return fd;
}

/* The file holds four numbers: delay and jitter from the port to the bridge, then the other way, in nanoseconds. */
static void read_parameters(const char *path, struct direction *out, struct direction *in)
{
    long long value[4];
    FILE *file = fopen(path, "r");

    reload = 0;
    if (!file)
        return;
    if (fscanf(file, "%lld %lld %lld %lld", &value[0], &value[1], &value[2], &value[3]) == 4) {
        out->delay = value[0];
        out->jitter = value[1];
        in->delay = value[2];
        in->jitter = value[3];
    }
    fclose(file);
}

static void take_in(struct direction *d)
{
    for (int i = 0; i < BATCH; i++) {
        ssize_t n = read(d->from, buffer, sizeof(buffer));
        struct frame *frame;

        if (n <= 0)
            return; /* nothing there, or the device is down for now */
        if (d->queued + (size_t)n > QUEUE_MAX)
            continue;
        frame = malloc(sizeof(*frame) + (size_t)n);
        if (!frame)
            continue;
        frame->next = NULL;
        frame->len = (size_t)n;
        frame->due = now() + d->delay;
        if (d->jitter > 0)
            frame->due += (int64_t)(draw() % (uint64_t)(2 * d->jitter + 1)) - d->jitter;
        if (frame->due < d->last_due)
            frame->due = d->last_due;
        d->last_due = frame->due;
        memcpy(frame->data, buffer, (size_t)n);
        *d->last = frame;
        d->last = &frame->next;
        d->queued += (size_t)n;
    }
}

/* Sends what is due. A full device queue drops, as a switch would. */
static void let_out(struct direction *d, bool all)
{
    int64_t t = now();

    while (d->first && (all || d->first->due <= t)) {
        struct frame *frame = d->first;

        if (write(d->to, frame->data, frame->len) < 0 && errno == EINTR)
            continue;
        d->first = frame->next;
        if (!d->first)
            d->last = &d->first;
        d->queued -= frame->len;
        free(frame);
    }
}

static void forward(struct direction *out, struct direction *in, const char *parameters, const char *pid_file)
{
    struct pollfd fds[2] = {{.fd = out->from, .events = POLLIN}, {.fd = in->from, .events = POLLIN}};
    sigset_t blocked, open;
    int64_t looked = now();

    sigemptyset(&open);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    while (!stop) {
        int64_t t = now(), due = t + 2000000000LL;
        struct timespec wait;

        if (reload)
            read_parameters(parameters, out, in);
        if (t - looked > 2000000000LL) {
            looked = t;
            if (access(pid_file, F_OK))
                break; /* the lab is gone */
        }
        if (out->first && out->first->due < due)
            due = out->first->due;
        if (in->first && in->first->due < due)
            due = in->first->due;
        due = due > t ? due - t : 0;
        wait = (struct timespec){.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
        if (ppoll(fds, 2, &wait, &open) > 0) {
            if (fds[0].revents)
                take_in(out);
            if (fds[1].revents)
                take_in(in);
            if ((fds[0].revents | fds[1].revents) & ~POLLIN)
                poll(NULL, 0, 5); /* a device that is down reports an error until it is up again */
        }
        let_out(out, false);
        let_out(in, false);
    }
    let_out(out, true);
    let_out(in, true);
}

int lab_forward(int argc, char **argv)
{
    const char *port = argv[0], *tap = argv[1], *bridge = argv[2], *parameters = argv[3], *pid_file = argv[4];
    struct sigaction action = {.sa_handler = on_signal};
    struct direction out = {.last = &out.first}, in = {.last = &in.first};

    (void)argc;
    lab_background();
    out.to = in.from = open_tap(tap, bridge);
    out.from = in.to = open_port(port);
    if (out.from < 0 || out.to < 0)
        return 1;
    random_state ^= (uint64_t)now() * 0x9e3779b97f4a7c15ULL;
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    read_parameters(parameters, &out, &in);
    if (lab_ready(pid_file))
        return 1;
    /* Ahead of the ranks, which may keep every core busy: a delay is to be what it says. */
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    prctl(PR_SET_NAME, tap);
    forward(&out, &in, parameters, pid_file);
    return 0;
}
