/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traffic for the tests of shunt-lab.
 *
 *   probe serve PORT             answers datagrams and takes connections on PORT until it is killed
 *   probe ping ADDRESS PORT N    sends N datagrams of 256 bytes; prints "sent received duplicates damaged min median"
 *                                (round trips in microseconds)
 *   probe flood ADDRESS PORT N   sends N bytes over a connection; prints the milliseconds until the other end has all
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { DATAGRAM = 256, MAX_PINGS = 10000 };

struct datagram {
    uint32_t number;
    int64_t sent;
    uint8_t pattern[DATAGRAM - 16];
};

static int64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static struct sockaddr_in address_of(const char *host, const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        exit(2);
    return address;
}

/* Takes bytes until eight that tell how many there will be, and then those; answers with one. */
static void take_flood(int fd)
{
    static char buffer[1 << 16];
    uint64_t expected, got = 0;
    ssize_t n;

    if (recv(fd, &expected, sizeof(expected), MSG_WAITALL) != (ssize_t)sizeof(expected))
        return;
    while (got < expected && (n = read(fd, buffer, sizeof(buffer))) > 0)
        got += (uint64_t)n;
    if (got == expected && write(fd, "", 1) != 1)
        perror("probe: answer");
}

static int serve(const char *port)
{
    struct sockaddr_in address = address_of("0.0.0.0", port), from;
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0), connections = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct pollfd fds[2] = {{.fd = datagrams, .events = POLLIN}, {.fd = connections, .events = POLLIN}};
    char buffer[2048];

    setsockopt(connections, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(datagrams, (struct sockaddr *)&address, sizeof(address)) ||
        bind(connections, (struct sockaddr *)&address, sizeof(address)) || listen(connections, 8)) {
        perror("probe: bind");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    while (poll(fds, 2, -1) >= 0) {
        if (fds[0].revents) {
            socklen_t size = sizeof(from);
            ssize_t n = recvfrom(datagrams, buffer, sizeof(buffer), 0, (struct sockaddr *)&from, &size);

            if (n > 0)
                sendto(datagrams, buffer, (size_t)n, MSG_DONTWAIT, (struct sockaddr *)&from, size);
        }
        if (fds[1].revents) {
            int fd = accept(connections, NULL, NULL);

            take_flood(fd);
            close(fd);
        }
    }
    return 1;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int ping(const char *host, const char *port, int count)
{
    static int64_t rtt[MAX_PINGS];
    static uint8_t seen[MAX_PINGS];
    struct sockaddr_in address = address_of(host, port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0), received = 0, duplicates = 0, damaged = 0;
    struct datagram d, back;
    int64_t end = 0;

    if (count > MAX_PINGS || connect(fd, (struct sockaddr *)&address, sizeof(address))) {
        puts("0 0 0 0 0 0"); /* no way there */
        return 0;
    }
    memset(&d, 0, sizeof(d));
    memset(d.pattern, 0x5a, sizeof(d.pattern));
    for (int i = 0; i < count || now() < end;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        if (i < count) {
            d.number = (uint32_t)i++;
            d.sent = now();
            if (send(fd, &d, sizeof(d), 0) < 0) {
                /* told of an earlier error, or the link is down: counts as lost */
            }
            end = now() + 500000000;
        }
        while (poll(&p, 1, 1) > 0) {
            ssize_t n = recv(fd, &back, sizeof(back), MSG_DONTWAIT);

            if (n < 0)
                break;
            if (n != (ssize_t)sizeof(back) || memcmp(back.pattern, d.pattern, sizeof(d.pattern)) ||
                back.number >= (uint32_t)count) {
                damaged++;
            } else if (seen[back.number]) {
                duplicates++;
            } else {
                seen[back.number] = 1;
                rtt[received++] = now() - back.sent;
            }
        }
        if (received == count && i == count && now() > end - 400000000)
            break; /* all are back, and a tenth of a second has shown no duplicates */
    }
    qsort(rtt, (size_t)received, sizeof(*rtt), by_value);
    printf("%d %d %d %d %lld %lld\n", count, received, duplicates, damaged,
           received ? (long long)(rtt[0] / 1000) : 0, received ? (long long)(rtt[received / 2] / 1000) : 0);
    return 0;
}

static int flood(const char *host, const char *port, uint64_t bytes)
{
    static char buffer[1 << 16];
    struct sockaddr_in address = address_of(host, port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int64_t begin = now();
    char answer;

    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) || write(fd, &bytes, sizeof(bytes)) < 0) {
        perror("probe: connect");
        return 1;
    }
    for (uint64_t sent = 0; sent < bytes;) {
        uint64_t left = bytes - sent;
        ssize_t n = write(fd, buffer, left < sizeof(buffer) ? left : sizeof(buffer));

        if (n < 0)
            return 1;
        sent += (uint64_t)n;
    }
    if (read(fd, &answer, 1) != 1)
        return 1;
    printf("%lld\n", (long long)((now() - begin) / 1000000));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2]);
    if (argc == 5 && strcmp(argv[1], "ping") == 0)
        return ping(argv[2], argv[3], atoi(argv[4]));
    if (argc == 5 && strcmp(argv[1], "flood") == 0)
        return flood(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    return 2;
}
