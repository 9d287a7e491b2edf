/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends of a TCP connection over loopback, for fuzz targets that feed links. */
#ifndef SHUNT_TESTS_BOOT_PAIR_H
#define SHUNT_TESTS_BOOT_PAIR_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Both non-blocking. Closing gives the port back at once, so that many rounds do not use them up. */
static void make_pair(int pair[2])
{
    static int listener = -1;
    static struct sockaddr_in in = {.sin_family = AF_INET};
    socklen_t len = sizeof(in);
    struct linger linger = {1, 0};

    if (listener < 0) {
        in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(listener, (struct sockaddr *)&in, sizeof(in)) != 0 || listen(listener, 10) != 0 ||
            getsockname(listener, (struct sockaddr *)&in, &len) != 0)
            abort();
    }
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(pair[0], (struct sockaddr *)&in, sizeof(in)) != 0)
        abort();
    pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (pair[1] < 0)
        abort();
    setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    setsockopt(pair[1], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

#endif
