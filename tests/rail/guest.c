/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * guest BACKEND: what a rail over someone else's library must leave alone in the process (signal handlers, environment,
 * descriptors), and that bytes of a stranger at its port do no harm.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/rail/inet.h"
#include "tests/rail/mini.h"
#include "tests/tap.h"

static struct mini a, b;

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

static void turns(int n)
{
    while (n--) {
        mini_turn(&a, 1);
        mini_turn(&b, 1);
    }
}

static int comes_up(int link)
{
    unsigned char address[SHUNT__ADDRESS_MAX];
    size_t len = sizeof(address);

    if (b.rail->ops->address(b.rail, address, &len) != SHUNT_OK ||
        a.rail->ops->connect(a.rail, &a.links[link], address, len) != SHUNT_OK)
        return 0;
    for (int i = 0; i < 2000 && !(a.up[link] && b.up[link]); i++)
        turns(1);
    return a.up[link] && b.up[link];
}

int main(int argc, char **argv)
{
    static struct sigaction before[NSIG], after;
    struct sockaddr_storage to;
    unsigned char address[SHUNT__ADDRESS_MAX], garbage[5000];
    size_t len = sizeof(address);
    int changed = 0, fds, strangers = 0;

    if (argc < 2 || !shunt__rail_backend(argv[1])) {
        skip("no %s in this build", argc > 1 ? argv[1] : "backend");
        return done();
    }
    signal(SIGPIPE, SIG_IGN);
    for (int s = 1; s < NSIG; s++)
        sigaction(s, NULL, &before[s]);
    if (!ok(mini_open(&a, argv[1], "lo", "127.0.0.1") == SHUNT_OK, "opens")) {
        printf("# %s\n", shunt_error_text());
        return done();
    }
    for (int s = 1; s < NSIG; s++)
        if (sigaction(s, NULL, &after) == 0 && after.sa_handler != before[s].sa_handler) {
            printf("# signal %d has a handler now\n", s);
            changed++;
        }
    is_int(changed, 0, "no signal has a new handler");
    ok(!getenv("UCX_HANDLE_ERRORS") && !getenv("UCX_MEM_MMAP_HOOK_MODE"), "the environment is as before");

    fds = count_fds();
    ok(mini_open(&b, argv[1], "lo", "127.0.0.1") == SHUNT_OK, "another one opens");
    ok(comes_up(0), "a link comes up");
    b.rail->ops->address(b.rail, address, &len);
    ok(shunt__inet_unpack(address, len, "", &to) == 0, "where it listens is known");
    if (strcmp(argv[1], "ucx") == 0)
        skip("UCX 1.13 ends the process when a stranger sends garbage to its tcp listener (comm/rail/ucx.c)");
    for (int i = strcmp(argv[1], "ucx") == 0 ? 24 : 0; i < 24; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        size_t n = i < 4 ? (size_t)i : (size_t)(i * 200);

        for (size_t k = 0; k < sizeof(garbage); k++)
            garbage[k] = i % 3 == 0 ? 0 : i % 3 == 1 ? 0xff : (unsigned char)(k * 131 + (size_t)i * 17 + (k >> 7));
        if (connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)) == 0 && send(fd, garbage, n, 0) == (ssize_t)n)
            strangers++;
        turns(5);
        close(fd);
        turns(2);
    }
    if (strcmp(argv[1], "ucx") != 0)
        is_int(strangers, 24, "strangers with garbage came and went");
    ok(a.up[0] && b.up[0], "the link is as before");
    ok(comes_up(1), "a new one comes up");
    mini_close(&b);
    for (int i = 0; i < 500 && (a.up[0] || a.up[1]); i++)
        mini_turn(&a, 10);
    ok(!a.up[0] && !a.up[1], "both end with the other rail");
    for (int i = 0; i < 500 && count_fds() > fds; i++)
        mini_turn(&a, 10);
    ok(count_fds() <= fds, "and leave no descriptor");
    mini_close(&a);
    return done();
}
