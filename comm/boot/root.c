/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The root: the directory of a meeting. A thread of one process takes one small JOIN from each rank and, when all are
 * there, tells each where its parent in the tree is: a few hundred bytes per rank, whatever the ranks then exchange.
 * Until every rank has said that its tree stands, the root is also the hub through which a failure reaches all.
 *
 *     GATHERING ──► all have joined: START to each ──► BUILDING ──► all are done ──► OVER
 *         └──────────── TIMEOUT, PEER, INVALID … ─────────┴───────────────────────► OVER (failed)
 *
 * An OVER root stays LINGER longer to tell late comers so.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/boot/boot.h"
#include "comm/boot/door.h"
#include "comm/boot/id.h"
#include "comm/boot/missing.h"
#include "comm/boot/root.h"

#define LINGER (5 * SHUNT__S)
#define COME_BACK (1 * SHUNT__S)      /* a lost rank may come back within */
#define FILES_PATIENCE (2 * SHUNT__S) /* how long accept() may lack descriptors */

enum phase { GATHERING, BUILDING, OVER };
enum place { EMPTY, HERE, LOST, DONE };

struct member {
    enum place place;
    uint64_t lost_since;
    int told_loss;
    struct shunt__boot_join_message join;
    struct shunt__boot_link link;
};

struct shunt__boot_root {
    pthread_t thread;
    int wake; /* eventfd: nonzero means stop */
    int spare; /* a descriptor to give up for telling the others that descriptors are short */
    uint64_t deadline, timeout, over_since, started;
    struct shunt__boot_secret secret;
    struct shunt__boot_door door;
    struct shunt__boot_polls polls;
    enum phase phase;
    int size, n_here, n_done; /* n_here: HERE, LOST or DONE */
    struct member *member;
    unsigned char epoch[16];
    struct shunt__boot_fail_message failure; /* status is SHUNT_OK while there is none */
    int ended; /* the thread has: atomic */
    int over;  /* phase is OVER: atomic */
    struct shunt__boot_fail_message closing; /* what is said when it is closed too early; set before `wake` */
};

static void name_member(const struct member *m, char *text, size_t size)
{
    char address[SHUNT__BOOT_ADDRESS_TEXT];

    snprintf(text, size, "process %u on %s (%s)", m->join.pid, m->join.host, shunt__boot_address_text(&m->link.peer, address));
}

static void send_failure(struct shunt__boot_link *link, const struct shunt__boot_fail_message *failure)
{
    unsigned char message[SHUNT__BOOT_FAIL_TEXT + 64];

    shunt__boot_link_send(link, message, shunt__boot_fail_write(failure, message));
}

/* The first failure is what everyone hears. */
__attribute__((format(printf, 3, 4))) static void fail_all(struct shunt__boot_root *root, shunt_status_t status,
                                                           const char *fmt, ...)
{
    va_list ap;

    if (root->phase == OVER)
        return;
    root->failure.status = status;
    va_start(ap, fmt);
    vsnprintf(root->failure.text, sizeof(root->failure.text), fmt, ap);
    va_end(ap);
    shunt__log(SHUNT__LOG_INFO, "start-up failed: %s: %s", shunt_status_name(status), root->failure.text);
    for (int i = 0; i < root->size; i++)
        send_failure(&root->member[i].link, &root->failure);
    root->phase = OVER;
    root->over_since = shunt__now();
    __atomic_store_n(&root->over, 1, __ATOMIC_RELEASE);
}

static void fail_missing(struct shunt__boot_root *root)
{
    char list[400];
    double seconds = (double)root->timeout / SHUNT__S;

    if (root->phase == GATHERING) {
        struct shunt__boot_missing missing;

        shunt__boot_missing_start(&missing, list, sizeof(list));
        for (int i = 0; i < root->size; i++)
            if (root->member[i].place == EMPTY)
                shunt__boot_missing_add(&missing, i);
        shunt__boot_missing_end(&missing);
        if (root->size == 0)
            snprintf(list, sizeof(list), "no rank has come");
        fail_all(root, SHUNT_ERR_TIMEOUT,
                 "%s: of %d ranks %d have come within SHUNT_BOOTSTRAP_TIMEOUT (%.3g s)", list, root->size, root->n_here,
                 seconds);
    } else {
        struct shunt__boot_missing missing;

        shunt__boot_missing_start(&missing, list, sizeof(list));
        for (int i = 0; i < root->size; i++)
            if (root->member[i].place != DONE)
                shunt__boot_missing_add(&missing, i);
        shunt__boot_missing_end(&missing);
        fail_all(root, SHUNT_ERR_TIMEOUT,
                 "%s: all %d ranks came, but these have not reached their neighbours in the tree within "
                 "SHUNT_BOOTSTRAP_TIMEOUT (%.3g s)", list, root->size, seconds);
    }
}

/*
 * Where rank's parent is to be looked for: as the root sees it, then as it names itself. A parent on the root's own host
 * may be seen under a loopback address, which helps nobody elsewhere: there the address under which this rank
 * reached the root comes first.
 */
static int parent_addresses(struct shunt__boot_root *root, int rank, struct shunt__boot_address *to)
{
    const struct member *child = &root->member[rank], *parent = &root->member[(rank - 1) / SHUNT__BOOT_FANOUT];
    int n = 0;

    if (shunt__boot_address_loopback(&parent->link.peer) ||
        shunt__boot_address_same_ip(&parent->link.peer, &parent->link.local))
        to[n++] = child->link.local;
    else
        to[n++] = parent->link.peer;
    for (int i = 0; i < parent->join.n_addresses; i++)
        if (!shunt__boot_address_same_ip(&parent->join.address[i], &to[0]))
            to[n++] = parent->join.address[i];
    for (int i = 0; i < n; i++)
        to[i].port = parent->join.port;
    return n;
}

static void send_start(struct shunt__boot_root *root, int rank)
{
    struct shunt__boot_start_message start = {0};
    unsigned char message[SHUNT__BOOT_MAX_FIRST];

    memcpy(start.epoch, root->epoch, sizeof(start.epoch));
    if (rank > 0)
        start.n_addresses = parent_addresses(root, rank, start.address);
    shunt__boot_link_send(&root->member[rank].link, message, shunt__boot_start_write(&start, message));
}

static void refuse(struct shunt__boot_root *root, int stranger, int over, shunt_status_t status, const char *text)
{
    struct shunt__boot_fail_message failure = {.status = status, .over = over};

    snprintf(failure.text, sizeof(failure.text), "%s", text);
    send_failure(&root->door.stranger[stranger], &failure);
    shunt__boot_door_drop(&root->door, stranger, NULL);
}

/* A stranger has shown that it is one of ours and asks for a place. */
static void join(struct shunt__boot_root *root, int stranger, const struct shunt__boot_join_message *join)
{
    struct member *m, came = {.join = *join};
    char who[200], text[500];

    came.link.peer = root->door.stranger[stranger].peer;
    name_member(&came, who, sizeof(who));
    if (join->size < 1 || join->size > SHUNT__BOOT_MAX_SIZE || join->rank < 0 || join->rank >= join->size) {
        snprintf(text, sizeof(text), "rank %d of %d ranks makes no sense; it comes from %s", join->rank, join->size, who);
        refuse(root, stranger, 0, SHUNT_ERR_INVALID, text);
        return;
    }
    if (root->failure.status) {
        refuse(root, stranger, 0, root->failure.status, root->failure.text);
        return;
    }
    if (!root->member) {
        root->member = calloc((size_t)join->size, sizeof(*root->member));
        if (!root->member) {
            refuse(root, stranger, 0, SHUNT_ERR_NO_MEMORY, "the root of the meeting has no memory for its ranks");
            return;
        }
        root->size = join->size;
    }
    m = join->size == root->size ? &root->member[join->rank] : NULL;
    if (root->phase == OVER || (m && m->place == DONE)) {
        snprintf(text, sizeof(text),
                 "rank %d of %d, %s, came to a meeting that was over: its %d ranks had all come; an id serves once",
                 join->rank, join->size, who, root->size);
        refuse(root, stranger, 1, SHUNT_ERR_INVALID, text);
        return;
    }
    if (!m) {
        char other[200] = "";
        int i = 0;
        while (i < root->size - 1 && root->member[i].place == EMPTY)
            i++;
        name_member(&root->member[i], other, sizeof(other));
        snprintf(text, sizeof(text), "rank %d, %s, says there are %d ranks; rank %d, %s, says there are %d", join->rank, who,
                 join->size, i, other, root->size);
        refuse(root, stranger, 0, SHUNT_ERR_INVALID, text);
        if (root->phase == GATHERING)
            fail_all(root, SHUNT_ERR_INVALID, "%s", text);
        return;
    }
    if ((m->place == HERE || (m->place == LOST && root->phase != GATHERING)) &&
        memcmp(m->join.process, join->process, sizeof(join->process)) != 0) {
        char other[200];
        name_member(m, other, sizeof(other));
        snprintf(text, sizeof(text), "rank %d of %d came twice: %s, and %s", join->rank, root->size, other, who);
        refuse(root, stranger, 0, SHUNT_ERR_INVALID, text);
        if (root->phase == GATHERING)
            fail_all(root, SHUNT_ERR_INVALID, "%s", text);
        return;
    }
    if (m->place == EMPTY)
        root->n_here++;
    shunt__boot_link_close(&m->link, SHUNT__BOOT_END_CLOSED, 0);
    m->place = HERE;
    m->join = *join;
    shunt__boot_door_take(&root->door, stranger, &m->link);
    shunt__log(SHUNT__LOG_TRACE, "start-up: rank %d of %d is %s", join->rank, root->size, who);
    if (root->phase == BUILDING)
        send_start(root, join->rank);
}

static void start_if_complete(struct shunt__boot_root *root)
{
    if (root->phase != GATHERING || root->size == 0 || root->n_here < root->size)
        return;
    for (int i = 0; i < root->size; i++)
        if (root->member[i].place != HERE)
            return;
    randombytes_buf(root->epoch, sizeof(root->epoch));
    root->phase = BUILDING;
    for (int i = 0; i < root->size; i++)
        send_start(root, i);
}

static void hear(struct shunt__boot_root *root, int rank)
{
    struct member *m = &root->member[rank];
    struct shunt__boot_fail_message failure;
    unsigned char *message;
    size_t len;

    while (shunt__boot_link_next(&m->link, &message, &len))
        switch (shunt__boot_message_type(message, len)) {
        case SHUNT__BOOT_DONE:
            if (m->place == HERE && root->phase == BUILDING) {
                m->place = DONE;
                root->n_done++;
            }
            break;
        case SHUNT__BOOT_ASK:
            fail_missing(root);
            break;
        case SHUNT__BOOT_FAIL:
            if (shunt__boot_fail_read(message, len, &failure) == 0)
                fail_all(root, failure.status, "%s", failure.text);
            break;
        default:
            break;
        }
    if (m->link.state == SHUNT__BOOT_CLOSED && m->place == HERE && root->phase != OVER) {
        m->place = LOST;
        m->lost_since = shunt__now();
    }
}

static void count_losses(struct shunt__boot_root *root, uint64_t now)
{
    for (int i = 0; i < root->size && root->phase != OVER; i++) {
        struct member *m = &root->member[i];
        char who[200], why[128];

        if (m->place != LOST || now - m->lost_since < COME_BACK)
            continue;
        name_member(m, who, sizeof(who));
        fail_all(root, SHUNT_ERR_PEER, "rank %d, %s, has gone while the ranks were meeting: %s", i, who,
                 shunt__boot_link_why(&m->link, why, sizeof(why)));
    }
}

/* Puts everything into the poll set and waits. Nonzero: the thread is to end. */
static int wait_for_something(struct shunt__boot_root *root)
{
    uint64_t now = shunt__now(), until = root->phase == OVER ? root->over_since + LINGER : root->deadline;
    int ms, wake, lost = 0;

    root->polls.n = 0;
    wake = shunt__boot_polls_add(&root->polls, root->wake, POLLIN);
    ms = shunt__boot_door_poll(&root->door, &root->polls);
    for (int i = 0; i < root->size; i++) {
        shunt__boot_link_poll(&root->member[i].link, &root->polls, 1);
        lost |= root->member[i].place == LOST;
    }
    if (lost && ms > 50)
        ms = 50;
    if (until > now && until - now < (uint64_t)ms * SHUNT__MS)
        ms = (int)((until - now) / SHUNT__MS) + 1;
    shunt__boot_polls_wait(&root->polls, ms);
    return wake < 0 || root->polls.fd[wake].revents != 0;
}

static void progress(struct shunt__boot_root *root)
{
    uint64_t now;
    int from = 0, i;
    unsigned char *message;
    size_t len;

    for (i = 0; i < root->size; i++)
        if (root->member[i].link.polled >= 0) {
            shunt__boot_link_progress(&root->member[i].link, &root->polls);
            hear(root, i);
        }
    shunt__boot_door_progress(&root->door, &root->polls);
    while ((i = shunt__boot_door_next(&root->door, &from, &message, &len)) >= 0) {
        struct shunt__boot_join_message m;
        if (shunt__boot_join_read(message, len, &m) == 0)
            join(root, i, &m);
        else
            shunt__boot_door_drop(&root->door, i, "it sends a message that can't be understood");
    }
    start_if_complete(root);
    now = shunt__now();
    count_losses(root, now);
    if (root->door.out_of_files && now - root->door.out_of_files > FILES_PATIENCE && root->phase != OVER) {
        shunt__boot_socket_error(root->door.out_of_files_err, "the root of the meeting can't take more ranks");
        fail_all(root, SHUNT_ERR_LIMIT, "%s", shunt_error_text());
        if (root->spare >= 0)
            close(root->spare);
        root->spare = -1;
    }
    if (now >= root->deadline && root->phase != OVER)
        fail_missing(root);
    if (root->phase == BUILDING && root->n_done == root->size) {
        uint64_t in = 0, out = 0;
        for (i = 0; i < root->size; i++) {
            in += root->member[i].link.bytes_in;
            out += root->member[i].link.bytes_out;
        }
        root->phase = OVER;
        root->over_since = now;
        __atomic_store_n(&root->over, 1, __ATOMIC_RELEASE);
        shunt__log(SHUNT__LOG_INFO, "%d ranks have met after %.3f s; the root took in %llu bytes and gave out %llu",
                   root->size, (double)(now - root->started) / SHUNT__S, (unsigned long long)in, (unsigned long long)out);
    }
}

/* Those who stand before the door of a meeting that failed shall hear it, too. */
static void tell_who_waits(struct shunt__boot_root *root)
{
    /* An abort is promised to be quick. */
    uint64_t until = shunt__now() + (root->failure.status == SHUNT_ERR_ABORTED ? 20 : 200) * SHUNT__MS;

    while (shunt__now() < until) {
        root->polls.n = 0;
        for (int i = 0; i < root->size; i++)
            root->member[i].link.polled = -1;
        shunt__boot_door_poll(&root->door, &root->polls);
        shunt__boot_polls_wait(&root->polls, 10);
        progress(root);
    }
}

static void *run(void *arg)
{
    struct shunt__boot_root *root = arg;
    struct shunt__boot_link **links;
    uint64_t woken;

    while (!wait_for_something(root)) {
        progress(root);
        if (root->phase == OVER && shunt__now() - root->over_since > LINGER)
            break;
    }
    if (read(root->wake, &woken, sizeof(woken)) < 0)
        woken = 0; /* not closed by anybody: it has lingered long enough */
    /* Who is done has been told so by the tree, which then stands for all: from there on nobody needs the root. */
    root->polls.n = 0;
    for (int i = 0; i < root->size; i++)
        shunt__boot_link_poll(&root->member[i].link, &root->polls, 1);
    root->door.polled = -1;
    for (int i = 0; i < root->door.n; i++)
        root->door.stranger[i].polled = -1;
    shunt__boot_polls_wait(&root->polls, 0);
    progress(root);
    if (root->phase == GATHERING || (root->phase == BUILDING && root->n_done == 0))
        fail_all(root, root->closing.status, "%s", root->closing.text);
    if (root->failure.status)
        tell_who_waits(root);
    shunt__boot_door_close(&root->door);
    links = root->size ? calloc((size_t)root->size, sizeof(*links)) : NULL;
    for (int i = 0; links && i < root->size; i++)
        links[i] = &root->member[i].link;
    if (links)
        shunt__boot_links_finish(links, root->size, root->failure.status == SHUNT_ERR_ABORTED ? 30 : 300);
    for (int i = 0; i < root->size; i++)
        shunt__boot_link_close(&root->member[i].link, SHUNT__BOOT_END_CLOSED, 0);
    free(links);
    __atomic_store_n(&root->ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

int shunt__boot_root_over(const struct shunt__boot_root *root)
{
    return __atomic_load_n(&root->ended, __ATOMIC_ACQUIRE) ? 2 : __atomic_load_n(&root->over, __ATOMIC_ACQUIRE);
}

static void free_root(struct shunt__boot_root *root)
{
    shunt__boot_door_close(&root->door);
    shunt__boot_polls_free(&root->polls);
    if (root->wake >= 0)
        close(root->wake);
    if (root->spare >= 0)
        close(root->spare);
    free(root->member);
    sodium_memzero(&root->secret, sizeof(root->secret));
    free(root);
}

static int id_addresses(const char *const *ips, int n_ips, int port, struct shunt__boot_address *address)
{
    int n = 0;

    for (int i = 0; i < n_ips && n < SHUNT__BOOT_ID_ADDRESSES; i++)
        if (shunt__boot_address_parse(ips[i], &address[n]) == 0)
            n++;
    if (n == 0)
        n = shunt__boot_address_own(address, SHUNT__BOOT_ID_ADDRESSES);
    for (int i = 0; i < n; i++)
        address[i].port = (uint16_t)port;
    return n;
}

/* Everything that needs no thread yet. */
static shunt_status_t set_up(struct shunt__boot_root *root, const char *const *ips, int n_ips,
                             const unsigned char key[SHUNT__BOOT_KEY_BYTES], uint64_t nonce, int first, int last, int spread,
                             struct shunt__boot_id *id)
{
    shunt_status_t status;
    int fd, port;

    shunt__boot_secret_derive(&root->secret, key, nonce);
    root->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (root->wake < 0)
        return shunt__boot_socket_error(errno, "can't make an eventfd");
    root->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    status = shunt__boot_listen(first, last, spread, &fd, &port);
    if (status)
        return status;
    shunt__boot_door_open(&root->door, fd, port, &root->secret, SHUNT__BOOT_TO_ROOT, "start-up");
    id->nonce = nonce;
    memcpy(id->key, key, sizeof(id->key));
    id->n_addresses = id_addresses(ips, n_ips, port, id->address);
    if (id->n_addresses < 0)
        return shunt__boot_socket_error(errno, "can't find this host's addresses");
    if (id->n_addresses == 0)
        return shunt__fail(SHUNT_ERR_NOT_FOUND, "this host has no address under which other ranks could reach it");
    return SHUNT_OK;
}

static shunt_status_t start_thread(struct shunt__boot_root *root)
{
    sigset_t all, old;
    int err;

    sigfillset(&all); /* signals are the program's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&root->thread, NULL, run, root);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err)
        return shunt__fail_errno(SHUNT_ERR_LIMIT, err, "can't start the thread that brings the ranks together");
    return SHUNT_OK;
}

static shunt_status_t open_root(const struct shunt__config *config, const char *const *ips, int n_ips,
                                const unsigned char key[SHUNT__BOOT_KEY_BYTES], uint64_t nonce, int first, int last,
                                int spread, unsigned char id[SHUNT__BOOT_ID_BYTES], struct shunt__boot_root **out)
{
    struct shunt__boot_root *root = calloc(1, sizeof(*root));
    struct shunt__boot_id parts = {0};
    shunt_status_t status;

    if (!root)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a meeting");
    root->wake = root->spare = root->door.fd = -1;
    root->timeout = (uint64_t)shunt__config_int(config, SHUNT__BOOTSTRAP_TIMEOUT);
    root->started = shunt__now();
    root->deadline = root->started + root->timeout;
    status = set_up(root, ips, n_ips, key, nonce, first, last, spread, &parts);
    if (!status)
        status = start_thread(root);
    if (status) {
        free_root(root);
        return status;
    }
    shunt__boot_id_pack(&parts, id);
    shunt__log(SHUNT__LOG_INFO, "start-up: listening on port %d", parts.address[0].port);
    *out = root;
    return SHUNT_OK;
}

shunt_status_t shunt__boot_root_open(const struct shunt__config *config, const char *const *ips, int n_ips,
                                     unsigned char id[SHUNT__BOOT_ID_BYTES], struct shunt__boot_root **root)
{
    unsigned char key[SHUNT__BOOT_KEY_BYTES];
    uint64_t nonce;
    int first, last;
    shunt_status_t status = shunt__boot_port_range(config, &first, &last);

    if (status)
        return status;
    if (shunt__boot_secure_start() != 0)
        return shunt__fail(SHUNT_ERR_SYSTEM, "libsodium finds no source of random numbers");
    randombytes_buf(key, sizeof(key));
    randombytes_buf(&nonce, sizeof(nonce));
    status = open_root(config, ips, n_ips, key, nonce, first, last, 1, id, root);
    sodium_memzero(key, sizeof(key));
    return status;
}

shunt_status_t shunt__boot_root_open_at(const struct shunt__config *config, const char *const *ips, int n_ips,
                                        const unsigned char key[SHUNT__BOOT_KEY_BYTES], uint64_t nonce, int port,
                                        int n_ports, unsigned char id[SHUNT__BOOT_ID_BYTES],
                                        struct shunt__boot_root **root)
{
    if (port < 1 || n_ports < 1 || port + n_ports - 1 > 65535)
        return shunt__fail(SHUNT_ERR_INVALID, "there are no ports %d to %d", port, port + n_ports - 1);
    if (shunt__boot_secure_start() != 0)
        return shunt__fail(SHUNT_ERR_SYSTEM, "libsodium finds no source of random numbers");
    return open_root(config, ips, n_ips, key, nonce, port, port + n_ports - 1, 0, id, root);
}

void shunt__boot_root_fail(struct shunt__boot_root *root, shunt_status_t status, const char *why)
{
    uint64_t one = 1;

    if (!root)
        return;
    root->closing.status = status;
    snprintf(root->closing.text, sizeof(root->closing.text), "%s", why);
    while (write(root->wake, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    pthread_join(root->thread, NULL);
    free_root(root);
}

void shunt__boot_root_close(struct shunt__boot_root *root)
{
    shunt__boot_root_fail(root, SHUNT_ERR_ABORTED, "the process that made the id has closed the meeting");
}
