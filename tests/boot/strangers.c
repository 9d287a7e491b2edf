/* SPDX-License-Identifier: BSD-3-Clause */
/* Strangers at every port of a meeting: none of them may disturb it, cost much, or fill the log. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/base/log.h"
#include "comm/boot/door.h"
#include "comm/boot/id.h"
#include "tests/boot/ranks.h"

#define LONG "SHUNT_BOOTSTRAP_TIMEOUT=60s"
#define N_PORTS 12

static int first_port; /* all listeners are among first_port .. + N_PORTS - 1 */
static int over;
static unsigned char recorded[4096]; /* all that a rank said to the root in an earlier meeting with the same id */
static size_t n_recorded;
static unsigned long attempts;

static int call(int port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&in, sizeof(in)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Reads until the other side closes or `ms` passed; the bytes read. */
static size_t listen_to(int fd, int ms)
{
    struct timeval wait = {ms / 1000, ms % 1000 * 1000};
    char bytes[4096];
    size_t n = 0;
    ssize_t got;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    while ((got = recv(fd, bytes, sizeof(bytes), 0)) > 0)
        n += (size_t)got;
    return n;
}

static void say(int port, const void *bytes, size_t n, int wait_ms)
{
    int fd = call(port);

    if (fd < 0)
        return;
    __atomic_fetch_add(&attempts, 1, __ATOMIC_RELAXED);
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        bytes = (const char *)bytes + sent;
        n -= (size_t)sent;
    }
    if (wait_ms)
        listen_to(fd, wait_ms);
    close(fd);
}

/* One of everything, at every port, again and again. */
static void *hammer(void *arg)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: shunt\r\n\r\n";
    unsigned char *noise = malloc(1 << 20);
    struct shunt__boot_secret other;
    unsigned char hello[SHUNT__BOOT_HELLO_BYTES], key[32] = {9}, version[SHUNT__BOOT_HELLO_BYTES];

    fill_bytes(noise, 1 << 20, 3);
    shunt__boot_secret_derive(&other, key, 17);
    shunt__boot_hello_make(&other, SHUNT__BOOT_TO_ROOT, key, hello);
    memcpy(version, hello, sizeof(version));
    version[4] = 99;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        for (int port = first_port; port < first_port + N_PORTS; port++) {
            say(port, NULL, 0, 0);                      /* nc -z */
            say(port, http, sizeof(http) - 1, 20);
            say(port, noise, 1 << 20, 0);
            say(port, hello, 40, 1);                    /* half a hello */
            say(port, hello, sizeof(hello), 20);        /* another job's */
            say(port, version, sizeof(version), 20);
            say(port, recorded, SHUNT__BOOT_HELLO_BYTES, 20);
            say(port, recorded, n_recorded, 20);        /* everything a rank once said */
        }
    free(noise);
    return NULL;
}

/* Connections that are held and say nothing. */
static void *brood(void *arg)
{
    int fd[150], n = 0;

    for (int i = 0; i < 150; i++)
        fd[i] = -1;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        int *slot = &fd[n++ % 150];
        if (*slot >= 0)
            close(*slot);
        *slot = call(first_port + n % N_PORTS);
        sleep_ms(2);
    }
    for (int i = 0; i < 150; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return NULL;
}

/* Stands between a rank and the root, and writes down what the rank says. */
static void *relay(void *arg)
{
    int listener = *(int *)arg, root_port = first_port, from, to;
    char bytes[4096];
    struct pollfd p[2];

    from = accept(listener, NULL, NULL);
    to = call(root_port);
    for (;;) {
        p[0] = (struct pollfd){.fd = from, .events = POLLIN};
        p[1] = (struct pollfd){.fd = to, .events = POLLIN};
        if (poll(p, 2, 10000) <= 0)
            break;
        for (int i = 0; i < 2; i++) {
            ssize_t n;
            if (!p[i].revents)
                continue;
            n = recv(p[i].fd, bytes, sizeof(bytes), 0);
            if (n <= 0)
                goto done;
            if (i == 0 && n_recorded + (size_t)n <= sizeof(recorded)) {
                memcpy(recorded + n_recorded, bytes, (size_t)n);
                n_recorded += (size_t)n;
            }
            if (send(i == 0 ? to : from, bytes, (size_t)n, MSG_NOSIGNAL) != n)
                goto done;
        }
    }
done:
    close(from);
    close(to);
    return NULL;
}

static int listener_on(int port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, (struct sockaddr *)&in, sizeof(in)) != 0 || listen(fd, 10) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void choose_ports(void)
{
    for (first_port = 21000 + (int)(getpid() % 500) * 20;; first_port += N_PORTS + 1) {
        int good = 1;
        for (int i = 0; i <= N_PORTS && good; i++) {
            int fd = listener_on(first_port + i);
            good = fd >= 0;
            if (good)
                close(fd);
        }
        if (good)
            return;
    }
}

static struct shunt__boot_root *root_at(const unsigned char key[32], unsigned char id[SHUNT__BOOT_ID_BYTES])
{
    struct shunt__config config;
    struct shunt__boot_root *root = NULL;
    const char *settings[] = {LONG, NULL}, *ip = "127.0.0.1";

    shunt__config_load(&config, settings);
    if (shunt__boot_root_open_at(&config, &ip, 1, key, 5, first_port, 1, id, &root) != SHUNT_OK) {
        printf("Bail out! no root: %s\n", shunt_error_text());
        exit(1);
    }
    shunt__config_free(&config);
    return root;
}

/* A meeting of one rank with the key and nonce of the meetings to come, through the relay. */
static void record(const unsigned char key[32])
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = root_at(key, id);
    struct shunt__boot_id parts;
    struct rank *ranks;
    pthread_t thread;
    int fd = listener_on(first_port + N_PORTS);

    shunt__boot_id_unpack(id, &parts);
    parts.address[0].port = (uint16_t)(first_port + N_PORTS);
    shunt__boot_id_pack(&parts, id);
    pthread_create(&thread, NULL, relay, &fd);
    ranks = make_ranks(1, id, LONG);
    run_ranks(ranks, 1);
    pthread_join(thread, NULL);
    close(fd);
    shunt__boot_root_close(root);
    ok(all_fine(ranks, 1) && n_recorded > SHUNT__BOOT_HELLO_BYTES + 20, "a meeting is overheard: %zu bytes", n_recorded);
    free(ranks);
}

static void hammered(const unsigned char key[32], const char *log)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    char range[64], line[2000];
    struct rank *ranks;
    pthread_t enemy[4];
    FILE *f;
    int first = 0, all = 0, other = 0;
    struct shunt__boot_root *root;

    for (int i = 0; i < 4; i++)
        pthread_create(&enemy[i], NULL, i < 3 ? hammer : brood, NULL);
    root = root_at(key, id);
    snprintf(range, sizeof(range), "SHUNT_PORT_RANGE=%d-%d", first_port + 1, first_port + N_PORTS - 1);
    ranks = make_ranks(12, id, LONG); /* ranks 0 and 1 have children */
    for (int i = 0; i < 12; i++) {
        ranks[i].settings[1] = range;
        ranks[i].delay_ms = 150 * i;
        ranks[i].bytes = 5000;
    }
    run_ranks(ranks, 12);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++)
        pthread_join(enemy[i], NULL);
    ok(all_fine(ranks, 12), "twelve ranks meet among %lu attempts of strangers", attempts);
    ok(attempts > 100, "which were many");
    shunt__boot_root_close(root);
    free(ranks);

    f = fopen(log, "r");
    while (f && fgets(line, sizeof(line), f)) {
        if (strstr(line, "a stranger from"))
            first++;
        else if (strstr(line, "turned away in all"))
            all++;
        else {
            other++;
            printf("# logged: %s", line);
        }
    }
    if (f)
        fclose(f);
    ok(first >= 1 && first <= 3 && all <= 3 && other == 0, "each listener mentions them once, and their number at the end");
}

/* What a single stranger can cost. */
static void one(const unsigned char key[32])
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = root_at(key, id);
    int fd;
    uint64_t start = shunt__now();

    fd = call(first_port);
    ok(send(fd, "ShBh", 4, MSG_NOSIGNAL) == 4, "a stranger begins like one of ours");
    is_int(listen_to(fd, 30000), 0, "it is not answered");
    close(fd);
    ok(shunt__now() - start < 20 * SHUNT__S, "and its time is bounded (%.1f s)", (double)(shunt__now() - start) / SHUNT__S);
    fd = call(first_port);
    ok(send(fd, "SSH-2.0-", 8, MSG_NOSIGNAL) == 8, "another begins otherwise");
    is_int(listen_to(fd, 30000), 0, "it is let go at once");
    close(fd);
    fd = call(first_port);
    ok(send(fd, recorded, n_recorded, MSG_NOSIGNAL) == (ssize_t)n_recorded, "a third one repeats what a rank once said");
    is_int(listen_to(fd, 30000), SHUNT__BOOT_WELCOME_BYTES, "it gets a welcome that it can't use, and is let go");
    close(fd);
    shunt__boot_root_close(root);
}

int main(void)
{
    unsigned char key[32] = {1, 2, 3};
    char log[] = "/tmp/shunt-strangers-XXXXXX";
    int fd = mkstemp(log);

    setenv("SHUNT_DEBUG", "warn", 1);
    setenv("SHUNT_DEBUG_FILE", log, 1);
    if (fd < 0 || shunt__boot_secure_start() != 0)
        return 1;
    choose_ports();
    record(key);
    hammered(key, log);
    one(key);
    close(fd);
    unlink(log);
    return done();
}
