/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What concerns sock rails alone: strangers, damaged streams, limits, addresses that come and go, acknowledgements
 * that stay away. The part that takes interfaces down runs in a network namespace of its own.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/crc32c.h"
#include "comm/base/log.h"
#include "comm/rail/carrier.h"
#include "comm/rail/sock.h"
#include "tests/rail/mock.h"
#include "tests/tap.h"

static struct mock a, b;
static uint64_t leap; /* added to the real time */

static uint64_t leaping_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SHUNT__S + (uint64_t)t.tv_nsec + leap;
}

/* A plain connection to a side's listener. */
static int stranger(struct mock *m)
{
    struct sockaddr_storage to;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (shunt__inet_unpack(m->address, m->address_len, "lo", &to) ||
        connect(fd, (struct sockaddr *)&to, shunt__inet_size(&to)))
        ok(0, "a stranger could not connect: %s", strerror(errno));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void say(int fd, const void *data, size_t len)
{
    if (send(fd, data, len, MSG_NOSIGNAL) != (ssize_t)len)
        printf("# a stranger's write was cut short: %s\n", strerror(errno));
}

/* Has the other side closed? */
static int hung_up(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void sealed(struct mock *m, struct shunt__frame *f, const void *payload)
{
    struct shunt__link link = {.generation = 1};

    shunt__frame_seal(m->rail, &link, f, payload);
}

static int works(int link)
{
    int want = b.links[link].n_frames + 1;
    uint64_t next = b.links[link].next_message;
    char buf[5000];

    mock_fill(buf, link, next, sizeof(buf));
    mock_send_patiently(&a.links[link], next, buf, sizeof(buf), &b);
    return mock_until(&a, &b, b.links[link].n_frames == want);
}

static void strangers(void)
{
    struct shunt__frame f = {.type = SHUNT__FRAME_HELLO, .length = 6}, g;
    char junk[4096], hello[] = "mock\0\5";
    int fd;

    memset(junk, 'G', sizeof(junk));
    if (!ok(mock_connect(&a, &b, 0), "an honest link"))
        return;
    fd = stranger(&b);
    say(fd, junk, sizeof(junk));
    ok(mock_until(&a, &b, hung_up(fd)), "garbage is hung up on");
    close(fd);
    fd = stranger(&b);
    say(fd, "GE", 2);
    ok(mock_until(&a, &b, hung_up(fd)), "after two bytes of it");
    close(fd);
    fd = stranger(&b);
    close(fd);
    g = f;
    g.type = SHUNT__FRAME_DATA;
    sealed(&a, &g, hello);
    fd = stranger(&b);
    say(fd, &g, sizeof(g));
    ok(mock_until(&a, &b, hung_up(fd)), "so is a frame that is no HELLO");
    close(fd);
    g = f;
    g.length = SHUNT__HELLO_MAX + 1;
    g.flags = SHUNT__FRAME_CRC;
    sealed(&a, &g, hello);
    fd = stranger(&b);
    say(fd, &g, sizeof(g));
    ok(mock_until(&a, &b, hung_up(fd)), "a HELLO that is too long");
    close(fd);
    g = f;
    sealed(&a, &g, "mock\0\6");
    fd = stranger(&b);
    say(fd, &g, sizeof(g));
    say(fd, hello, 6);
    ok(mock_until(&a, &b, hung_up(fd)), "a HELLO whose payload is damaged");
    close(fd);
    g = f;
    sealed(&a, &g, "jock\0\5");
    fd = stranger(&b);
    say(fd, &g, sizeof(g));
    say(fd, "jock\0\5", 6);
    ok(mock_until(&a, &b, hung_up(fd)), "and a HELLO that is not this job's");
    is_int(b.n_strange, 1, "which alone the engine saw");
    close(fd);
    g = f;
    g.version = 1;
    sealed(&a, &g, hello);
    fd = stranger(&b);
    for (size_t i = 0; i < sizeof(g); i++) { /* byte by byte is odd, but honest */
        say(fd, (char *)&g + i, 1);
        mock_turns(&b, NULL, 2);
    }
    say(fd, hello, 6);
    ok(mock_until(&a, &b, b.links[5].up), "a HELLO that comes byte by byte is taken");
    close(fd);
    ok(mock_until(&a, &b, b.links[5].n_down == 1), "and its link ends with it");
    ok(works(0), "the honest link was not disturbed");
}

static void silence(void)
{
    int fds[200], gone = 0, left = 0;
    char c;

    if (!ok(mock_connect(&a, &b, 0), "an honest link"))
        return;
    for (int i = 0; i < 200; i++) {
        fds[i] = stranger(&b);
        if (i % 2)
            say(fds[i], "\x53\x68\x01", 3); /* half a HELLO */
        mock_turns(&b, NULL, 3);
    }
    (void)mock_until(&a, &b, ({
        gone = 0;
        for (int i = 0; i < 200; i++)
            gone += hung_up(fds[i]);
        gone >= 200 - SHUNT__STRANGERS;
    }));
    is_int(gone, 200 - SHUNT__STRANGERS, "of 200 silent connections %d are kept", SHUNT__STRANGERS);
    ok(mock_connect(&a, &b, 1), "another honest link gets in beside them");
    ok(works(0) && works(1), "both work");
    leap += SHUNT__HELLO_TIME + SHUNT__S;
    (void)mock_until(&a, &b, ({
        left = 0;
        for (int i = 0; i < 200; i++)
            left += recv(fds[i], &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
        left == 0;
    }));
    is_int(left, 0, "the silent ones are hung up on when their time is over");
    ok(works(0) && works(1), "the honest ones are not");
    for (int i = 0; i < 200; i++)
        close(fds[i]);
}

/* An honest HELLO on a plain connection: gives its descriptor, the link is up on side b. */
static int impostor(int link)
{
    struct shunt__frame f = {.type = SHUNT__FRAME_HELLO, .length = 6};
    char hello[7] = "mock\0\0", skip_welcome[sizeof(f) + 7];
    int fd = stranger(&b), n = 0;

    hello[5] = (char)link;
    sealed(&a, &f, hello);
    say(fd, &f, sizeof(f));
    say(fd, hello, 6);
    ok(mock_until(&a, &b, b.links[link].up && ({
            ssize_t got = recv(fd, skip_welcome + n, sizeof(skip_welcome) - (size_t)n, MSG_DONTWAIT);
            n += got > 0 ? (int)got : 0;
            n == sizeof(skip_welcome);
        })), "link %d is up", link);
    return fd;
}

static void damaged_streams(void)
{
    static const char *const kinds[] = {"a bit of the header", "the magic", "a HELLO out of turn", "a WELCOME out of turn",
                                        "a length", "an end within a header", "an end within a payload", "a reset"};
    struct shunt__frame f;
    struct linger hard = {.l_onoff = 1};
    int fd;

    if (!ok(mock_connect(&a, &b, 0), "an honest link"))
        return;
    for (int kind = 0; kind < 8; kind++) {
        int downs = b.links[1].n_down;

        fd = impostor(1);
        memset(&f, 0, sizeof(f));
        f.type = kind == 2 ? SHUNT__FRAME_HELLO : kind == 3 ? SHUNT__FRAME_WELCOME : SHUNT__FRAME_DATA;
        f.length = kind == 4 ? SHUNT__FRAME_PAYLOAD_MAX + 1 : 500;
        f.flags = SHUNT__FRAME_CRC; /* of a payload that never comes */
        sealed(&a, &f, NULL);
        if (kind == 0)
            ((char *)&f)[50] ^= 4;
        if (kind == 1)
            f.magic++;
        say(fd, &f, kind == 5 ? 30 : sizeof(f));
        if (kind == 6)
            say(fd, "0123456789", 10);
        if (kind == 7)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
        if (kind >= 5)
            close(fd);
        ok(mock_until(&a, &b, b.links[1].n_down == downs + 1), "%s ends the link: %s", kinds[kind], b.links[1].why);
        is_int(b.links[1].status, SHUNT_ERR_RAIL, "with the status RAIL");
        if (kind < 5)
            close(fd);
    }
    ok(works(0), "the honest link was not disturbed");
}

static void ports(void)
{
    const char *range[] = {"SHUNT_PORT_RANGE=47310-47311", NULL}, *bad[] = {"SHUNT_PORT_RANGE=7-5", NULL};
    struct mock c, d;
    struct sockaddr_storage at;

    is_int(mock_open(&c, 0, "sock", "lo", "127.0.0.9", NULL, range), SHUNT_OK, "a rail within SHUNT_PORT_RANGE");
    shunt__inet_unpack(c.address, c.address_len, "lo", &at);
    is_int(shunt__inet_port(&at), 47310, "has its first port");
    is_int(mock_open(&d, 1, "sock", "lo", "127.0.0.9", NULL, range), SHUNT_OK, "another");
    shunt__inet_unpack(d.address, d.address_len, "lo", &at);
    is_int(shunt__inet_port(&at), 47311, "has the second");
    is_int(mock_open(&a, 0, "sock", "lo", "127.0.0.9", NULL, range), SHUNT_ERR_LIMIT, "a third is refused");
    ok(strstr(shunt_error_text(), "SHUNT_PORT_RANGE=47310-47311"), "with the reason: %s", shunt_error_text());
    is_int(mock_open(&a, 0, "sock", "lo", "127.0.0.9", NULL, bad), SHUNT_ERR_INVALID, "a bad range is refused");
    is_int(mock_open(&a, 0, "sock", "lo", "nonsense", NULL, NULL), SHUNT_ERR_INVALID, "a bad address too: %s",
           shunt_error_text());
    is_int(mock_open(&a, 0, "sock", "", "", NULL, NULL), SHUNT_ERR_INVALID, "and none: %s", shunt_error_text());
    mock_close(&c);
    mock_close(&d);
}

static void nobody(void)
{
    struct mock_link *x = &a.links[0];

    if (!ok(mock_connect(&a, &b, 0), "an honest link"))
        return;
    mock_close(&b);
    ok(mock_until(&a, NULL, x->n_down == 1), "it ends when the other side closes");
    is_int(x->status, SHUNT_ERR_RAIL, "with the status RAIL: a connection may end for many reasons");
    a.rail->ops->connect(a.rail, &x->link, b.address, b.address_len);
    ok(mock_until(&a, NULL, x->n_down == 2), "connecting again fails: %s", x->why);
    is_int(x->status, SHUNT_ERR_PEER, "with the status PEER: the kernel there says that nobody listens");
}

static void out_of_descriptors(void)
{
    struct rlimit old, few;
    int probe = dup(0), fd, calls = 0;

    if (!ok(mock_connect(&a, &b, 0), "an honest link"))
        return;
    fd = stranger(&b); /* waits in the backlog */
    getrlimit(RLIMIT_NOFILE, &old);
    few = old;
    few.rlim_cur = (rlim_t)probe; /* nothing above what is open */
    setrlimit(RLIMIT_NOFILE, &few);
    for (int i = 0; i < 100; i++)
        calls += shunt__poller_run(&b.poller, 0);
    ok(calls <= 2, "without descriptors the listener does not spin (%d calls in 100 turns)", calls);
    b.links[3].link.generation++;
    is_int(a.rail->ops->connect(a.rail, &a.links[3].link, b.address, b.address_len), SHUNT_OK, "a connect is taken");
    ok(mock_until(&a, NULL, a.links[3].n_down == 1), "and reported: %s", a.links[3].why);
    ok(strstr(a.links[3].why, "ulimit -n"), "naming the limit");
    setrlimit(RLIMIT_NOFILE, &old);
    leap += SHUNT__S;
    ok(mock_connect(&a, &b, 1), "with descriptors again, links come up");
    ok(works(0) && works(1), "and work");
    close(fd);
    close(probe);
}

/* A receiver that does not read: its kernel says so, and that is no reason to give the rail up. */
static void zero_window(void)
{
    static char big[1 << 20];
    struct shunt__link_stats s;
    int blocked = 0;

    if (!ok(mock_connect(&a, &b, 0), "an honest link"))
        return;
    for (int i = 0; i < 40 && !blocked; i++)
        blocked = mock_send(&a.links[0], (uint64_t)i, big, sizeof(big)) == SHUNT_ERR_AGAIN;
    ok(blocked && mock_until(&a, NULL, (a.rail->ops->stats(&a.links[0].link, &s), s.unacked == 0 && s.queued > 0)),
       "the receiver's kernel is full, and all that left is acknowledged");
    for (int i = 0; i < 50; i++) {
        leap += SHUNT__S;
        a.rail->ops->tick(a.rail, shunt__now());
        mock_turns(&a, NULL, 2);
    }
    ok(a.links[0].up, "after 50 s the link is still there");
}

static void run(const char *name, void (*test)(void))
{
    printf("# %s\n", name);
    if (!ok(mock_open(&a, 0, "sock", "lo", "127.0.0.1", NULL, NULL) == SHUNT_OK &&
                mock_open(&b, 1, "sock", "lo", "127.0.0.1", NULL, NULL) == SHUNT_OK, "two rails open"))
        return;
    test();
    mock_close(&a);
    mock_close(&b);
}

/* In a namespace of its own. */

static int told, told_up;
static char told_why[120];

static void carrier_told(void *arg, int key, int up, const char *why)
{
    told++;
    told_up = up;
    snprintf(told_why, sizeof(told_why), "%s", why);
}

static void shell(const char *command)
{
    if (system(command) != 0)
        ok(0, "failed: %s", command);
}

static void interfaces(void)
{
    struct shunt__poller p;
    struct shunt__carrier *c;

    shell("ip link set lo up && ip link add v0 type veth peer name v1 && ip link set v1 up");
    shunt__poller_init(&p);
    if (!ok(shunt__carrier_open(&p, carrier_told, NULL, &c) == SHUNT_OK, "interfaces can be watched"))
        return;
    is_int(shunt__carrier_watch(c, 1, "v0", "10.9.0.1"), SHUNT_OK, "one is");
    ok(shunt__carrier_watch(c, 1, "", "") < 0 && shunt__carrier_watch(c, 1, "a-name-that-is-too-long", "") < 0,
       "names that can't be are refused");
    shunt__carrier_tick(c, shunt__now());
    ok(told == 1 && !told_up, "what is wrong from the start is told: %s", told_why);
#define expect(command, up_, text) \
    do { \
        int told_ = told; \
        shell(command); \
        uint64_t end_ = mock_deadline(); \
        while (told == told_ && mock_before(end_)) { \
            shunt__poller_run(&p, 5); \
            shunt__carrier_tick(c, shunt__now()); \
        } \
        ok(told > told_ && told_up == (up_) && strstr(told_why, text), "%s: %s", command, told_why); \
    } while (0)
    expect("ip link set v0 up; ip addr add 10.9.0.1/24 dev v0", 1, "is up");
    expect("ip addr del 10.9.0.1/24 dev v0", 0, "address 10.9.0.1");
    expect("ip addr add 10.9.0.1/24 dev v0", 1, "is up");
    expect("ip link set v1 down", 0, "lost its carrier");
    expect("ip link set v1 up", 1, "is up");
    expect("ip link set v0 down", 0, "is down");
    expect("ip link set v0 up", 1, "is up");
    expect("ip link del v0", 0, "no interface v0");
    expect("ip link add v0 type veth peer name v1 && ip link set v1 up && ip link set v0 up && "
           "ip addr add 10.9.0.1/24 dev v0", 1, "is up");
    shell("ip link del v0");
    shunt__carrier_close(c);
    shunt__poller_close(&p);
}

static void absent_address(void)
{
    const char *soon[] = {"SHUNT_RAIL_TIMEOUT=200ms", NULL};
    struct mock_link *x = &a.links[0];

    if (!ok(mock_open(&a, 0, "sock", "v0", "10.9.0.1", NULL, soon) == SHUNT_OK &&
                mock_open(&b, 1, "sock", "v0", "10.9.0.1", NULL, NULL) == SHUNT_OK,
            "rails open although their address is absent"))
        return;
    is_int(a.rail->ops->connect(a.rail, &x->link, b.address, b.address_len), SHUNT_OK, "connecting is taken");
    ok(mock_until(&a, &b, x->n_down == 1), "and fails: %s", x->why);
    is_int(x->status, SHUNT_ERR_RAIL, "with the status RAIL");
    shell("ip addr add 10.9.0.1/24 dev lo");
    ok(mock_until(&a, &b, a.n_carrier == 1 && a.carrier == 1), "when the address arrives, the rail says so");
    ok(mock_connect(&a, &b, 0), "and links come up");
    ok(works(0), "and work");
    /* lo goes down: what is sent stays unacknowledged */
    shell("ip link set lo down");
    char buf[5000];
    mock_fill(buf, 0, 1, sizeof(buf));
    mock_send(&a.links[0], 1, buf, sizeof(buf));
    ok(mock_until(&a, &b, !a.links[0].up), "bytes that stay unacknowledged end the link: %s", x->why);
    is_int(x->status, SHUNT_ERR_RAIL, "with the status RAIL");
    shell("ip link set lo up");
    mock_close(&a);
    mock_close(&b);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        printf("# can't write %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* Root makes a network namespace, anybody else a user namespace with one. */
static int own_namespace(void)
{
    char map[64];
    unsigned uid = getuid();

    if (unshare(CLONE_NEWNET) == 0)
        return 1;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return 0;
    snprintf(map, sizeof(map), "0 %u 1", uid);
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", map);
    return 1;
}

int main(void)
{
    signal(SIGPIPE, SIG_DFL); /* must never come */
    shunt__clock_replace(leaping_clock);
    run("strangers", strangers);
    run("silence", silence);
    run("damaged streams", damaged_streams);
    run("nobody", nobody);
    run("out of descriptors", out_of_descriptors);
    run("zero window", zero_window);
    ports();
    if (!own_namespace()) {
        skip("no network namespaces here: interfaces and addresses that come and go");
        return done();
    }
    interfaces();
    absent_address();
    return done();
}
