/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chaos: ranks in one process run collectives and messages with checked contents, while seeded fault scripts break
 * the rails under them. Whatever happens, every operation must end well and with the right bytes.
 *
 *     chaos [-v] [-s SCRIPT] loop|sock|ucx|ofi [FIRST-SEED [SCHEDULES]]
 *
 * A schedule: 4 to 6 ranks on 2 hosts, 2 or 3 rails, 4 to 10 faults within a second and a half, 200 operations or more.
 * A failure prints the seed and the scripts; the same seed draws the same again. With -s all ranks play SCRIPT
 * instead. Over all but loop the rails are veth interfaces in a network namespace of this process's own.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include "comm/rail/rail.h"
#include "tests/core/ranks.h"

#define RANKS_MAX 6
#define OPERATIONS 200
#define COUNT_MAX 60000
#define STUCK_S 60 /* no operation of any rank ends for so long: give up, with everything that is known */
#define END_MS 1800

struct schedule {
    uint64_t seed;
    int ranks, rails, keeps_order;
    char script[RANKS_MAX][8192];
    char settings[RANKS_MAX][4][9000];
    const char *list[RANKS_MAX][8];
};

static struct schedule now;
static atomic_int step[RANKS_MAX];
static const char *volatile doing[RANKS_MAX];
static atomic_int finished;
static int verbose;
static const char *given_script;

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static int below(uint64_t *state, int n)
{
    return (int)(draw(state) % (uint64_t)n);
}

/* ---- faults ---- */

static void add(int rank, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(int rank, const char *fmt, ...)
{
    char *s = now.script[rank];
    size_t n = strlen(s);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(s + n, sizeof(now.script[0]) - n, fmt, ap);
    va_end(ap);
}

/* One fault, from its beginning to its end, in the script of one rank. */
static void write_fault(uint64_t *r, int rank, int kind, const char *target, int from, int to)
{
    /* What a rail that keeps order has lost shows when something later arrives; no rail both loses and reorders. */
    static const char *const ordered[] = {"loss", "drop", "drop", "loss", "corrupt", "header"};
    static const char *const unordered[] = {"loss", "duplicate", "duplicate", "reorder", "corrupt", "header"};
    const char *const *chances = now.seed % 2 && now.keeps_order ? ordered : unordered;

    switch (kind) {
    case 0:
        add(rank, "%dms rail %s down; %dms rail %s up; ", from, target, to, target);
        break;
    case 1:
        add(rank, "%dms rail %s cut; %dms rail %s up; ", from, target, to, target);
        break;
    case 2:
        add(rank, "%dms rail %s blackhole; %dms rail %s up; ", from, target, to, target);
        break;
    case 3:
        add(rank, "%dms rail %s flap %d %dms %dms; ", from, target, 1 + below(r, 6), 20 + below(r, 100), 20 + below(r, 200));
        break;
    case 4:
        add(rank, "%dms rail %s rate %dmbit; %dms rail %s rate 0; ", from, target, 20 + below(r, 400), to, target);
        break;
    case 5:
        add(rank, "%dms rail %s delay %dms; %dms rail %s delay 0; ", from, target, 1 + below(r, 30), to, target);
        break;
    case 6:
        add(rank, "%dms rail %s jitter %dms; %dms rail %s jitter 0; ", from, target, 1 + below(r, 20), to, target);
        break;
    default: {
        const char *word = chances[(kind - 7) % 6];
        double p = strcmp(word, "header") == 0 ? 0.2 : strcmp(word, "loss") == 0 ? 2 : 10;
        add(rank, "%dms rail %s %s %.2f%%; %dms rail %s %s 0; ", from, target, word, p * (1 + below(r, 100)) / 100, to,
            target, word);
    }
    }
}

static void draw_schedule(uint64_t seed, const char *backend)
{
    uint64_t r = seed * 0x2545f4914f6cdd1dull + 99;
    int faults;

    memset(&now, 0, sizeof(now));
    now.seed = seed;
    now.keeps_order = strcmp(backend, "loop") == 0 || strcmp(backend, "sock") == 0;
    now.ranks = 4 + below(&r, RANKS_MAX - 3);
    now.rails = strcmp(backend, "loop") != 0 ? 2 : 2 + below(&r, 2);
    for (int i = 0; i < now.ranks; i++)
        add(i, "seed %llu; ", (unsigned long long)(draw(&r) >> 1));
    faults = 4 + below(&r, 7);
    for (int f = 0; f < faults; f++) {
        int kind = below(&r, 13), from = below(&r, 700), to = from + 200 + below(&r, 800);
        int whose = below(&r, 3), rank = below(&r, now.ranks), host = below(&r, 2);
        char target[64];

        snprintf(target, sizeof(target), "%d", below(&r, now.rails));
        if (below(&r, 4) == 0) /* towards one peer only */
            snprintf(target + strlen(target), 16, "@%d", below(&r, now.ranks));
        for (int i = 0; i < now.ranks; i++)
            if (whose == 0 || (whose == 1 && i == rank) || (whose == 2 && i % 2 == host))
                write_fault(&r, i, kind, target, from, to);
    }
    for (int i = 0; i < now.ranks; i++) {
        add(i, "%dms heal", END_MS);
        if (given_script)
            snprintf(now.script[i], sizeof(now.script[i]), "%s", given_script);
        snprintf(now.settings[i][0], sizeof(now.settings[0][0]), "SHUNT_FAULTS=%s", now.script[i]);
        snprintf(now.settings[i][1], sizeof(now.settings[0][0]), "SHUNT_BACKEND=%s", backend);
        snprintf(now.settings[i][2], sizeof(now.settings[0][0]), "SHUNT_RAILS=%s",
                 strcmp(backend, "loop") != 0 ? "chaos0,chaos1" : now.rails == 2 ? "a,b" : "a,b,c");
        snprintf(now.settings[i][3], sizeof(now.settings[0][0]), "SHUNT_HOSTID=host%d", i % 2);
        for (int k = 0; k < 4; k++)
            now.list[i][k] = now.settings[i][k];
        now.list[i][4] = "SHUNT_SHM=0";
    }
}

/* ---- operations ---- */

/* What rank `rank` contributes at `i` in step `s`; small whole numbers, so that sums are exact in any order. */
static int32_t value(int rank, int s, size_t i)
{
    return (int32_t)((i * 31 + (size_t)s * 17 + (size_t)rank * 7919) % 1009);
}

static void fill_values(int32_t *p, size_t n, int rank, int s, size_t from)
{
    for (size_t i = 0; i < n; i++)
        p[i] = value(rank, s, from + i);
}

/* Compares `got` with the values of `rank` (or the sum over all ranks when -1), from index `from` on. */
static size_t differs(const int32_t *got, size_t n, int rank, int ranks, int s, size_t from)
{
    for (size_t i = 0; i < n; i++) {
        int32_t want = 0;
        if (rank >= 0)
            want = value(rank, s, from + i);
        else
            for (int k = 0; k < ranks; k++)
                want += value(k, s, from + i);
        if (got[i] != want)
            return i + 1;
    }
    return 0;
}

static void collective(struct rank *r, int s, uint64_t *draws, int32_t *in, int32_t *out)
{
    static const char *const names[] = {"allreduce", "reduce_scatter", "allgather", "broadcast", "reduce",
                                        "gather", "scatter", "alltoall", "barrier"};
    int kind = below(draws, 9), n = r->size, root = below(draws, n), me = r->rank;
    size_t count = (size_t)(below(draws, 3) ? below(draws, 300) : below(draws, COUNT_MAX)), bad = 0;
    shunt_status_t st = SHUNT_OK;

    doing[me] = names[kind];
    memset(out, 0x7e, (count * (size_t)n + 1) * sizeof(*out));
    fill_values(in, count * (size_t)n, me, s, 0);
    switch (kind) {
    case 0:
        st = shunt_allreduce(r->comm, in, out, count, SHUNT_INT32, SHUNT_SUM);
        bad = differs(out, count, -1, n, s, 0);
        break;
    case 1:
        st = shunt_reduce_scatter(r->comm, in, out, count, SHUNT_INT32, SHUNT_SUM);
        bad = differs(out, count, -1, n, s, (size_t)me * count);
        break;
    case 2:
        st = shunt_allgather(r->comm, in, out, count, SHUNT_INT32);
        for (int k = 0; k < n && !bad; k++)
            bad = differs(out + (size_t)k * count, count, k, n, s, 0);
        break;
    case 3:
        st = shunt_broadcast(r->comm, in, out, count, SHUNT_INT32, root);
        bad = differs(out, count, root, n, s, 0);
        break;
    case 4:
        st = shunt_reduce(r->comm, in, out, count, SHUNT_INT32, SHUNT_SUM, root);
        bad = me == root ? differs(out, count, -1, n, s, 0) : 0;
        break;
    case 5:
        st = shunt_gather(r->comm, in, out, count, SHUNT_INT32, root);
        for (int k = 0; k < n && !bad && me == root; k++)
            bad = differs(out + (size_t)k * count, count, k, n, s, 0);
        break;
    case 6:
        st = shunt_scatter(r->comm, in, out, count, SHUNT_INT32, root);
        bad = differs(out, count, root, n, s, (size_t)me * count);
        break;
    case 7:
        st = shunt_alltoall(r->comm, in, out, count, SHUNT_INT32);
        for (int k = 0; k < n && !bad; k++)
            bad = differs(out + (size_t)k * count, count, k, n, s, (size_t)me * count);
        break;
    default:
        st = shunt_barrier(r->comm);
    }
    check(r, st == SHUNT_OK, "step %d, %s of %zu: %s: %s", s, names[kind], count, shunt_status_name(st), shunt_error_text());
    check(r, st != SHUNT_OK || !bad, "step %d, %s of %zu (root %d): element %zu is wrong", s, names[kind], count, root,
          bad - 1);
}

/* Everybody sends a few messages to everybody; receives are posted in another order, some late. */
static void messages(struct rank *r, int s, uint64_t *draws, int32_t *in, int32_t *out)
{
    enum { EACH = 3 };
    shunt_request_t *req[2 * EACH * RANKS_MAX];
    size_t at = 0, count[RANKS_MAX][RANKS_MAX][EACH], to_at[RANKS_MAX][EACH];
    int n = r->size, me = r->rank, m = 0, reverse = below(draws, 2), late = below(draws, n);
    shunt_result_t res[2 * EACH * RANKS_MAX];

    doing[me] = "messages";
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            for (int k = 0; k < EACH; k++)
                count[a][b][k] = (size_t)(below(draws, 4) ? below(draws, 500) : below(draws, COUNT_MAX / EACH));
    if (late == me)
        sched_yield();
    for (int b = 0; b < n; b++)
        for (int k = 0; k < EACH; k++) {
            fill_values(in + at, count[me][b][k], me, s, (size_t)(b * 10 + k));
            check_ok(r, shunt_isend(r->comm, in + at, count[me][b][k] * 4, b, k, &req[m]), "isend");
            m++;
            at += count[me][b][k];
        }
    at = 0;
    for (int a = 0; a < n; a++)
        for (int j = 0; j < EACH; j++) {
            int k = reverse ? EACH - 1 - j : j;
            to_at[a][k] = at;
            memset(out + at, 0x7e, count[a][me][k] * 4);
            check_ok(r, shunt_irecv(r->comm, out + at, count[a][me][k] * 4, a, k, &req[m]), "irecv");
            m++;
            at += count[a][me][k];
        }
    check_ok(r, shunt_wait_all(req, m, res), "messages");
    for (int a = 0; a < n; a++)
        for (int k = 0; k < EACH; k++) {
            size_t bad = differs(out + to_at[a][k], count[a][me][k], a, n, s, (size_t)(me * 10 + k));
            check(r, !bad, "step %d, message %d from %d: element %zu of %zu is wrong", s, k, a, bad - 1, count[a][me][k]);
        }
}

static void body(struct rank *r)
{
    size_t words = (size_t)COUNT_MAX * RANKS_MAX + 1;
    int32_t *in = malloc(words * 4), *out = malloc(words * 4);
    uint64_t draws = now.seed ^ 0xabcdefull;
    struct timespec begin, t;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    /* At least 200 operations, and for as long as faults begin: how long never decides whether a schedule passes. */
    for (int s = 0, more = 1; more && !r->failed; s++) {
        if (below(&draws, 5) == 0)
            messages(r, s, &draws, in, out);
        else
            collective(r, s, &draws, in, out);
        atomic_store(&step[r->rank], s + 1);
        if (s >= OPERATIONS && s % 20 == 0) {
            int32_t mine[1], all[1];
            clock_gettime(CLOCK_MONOTONIC, &t);
            mine[0] = (t.tv_sec - begin.tv_sec) * 1000 + (t.tv_nsec - begin.tv_nsec) / 1000000 < END_MS;
            doing[r->rank] = "agreement on going on";
            check_ok(r, shunt_allreduce(r->comm, mine, all, 1, SHUNT_INT32, SHUNT_MAX), "allreduce");
            more = all[0];
        }
    }
    doing[r->rank] = "the end";
    free(in);
    free(out);
}

/* ---- running ---- */

static void tell(void)
{
    printf("# seed %llu: %d ranks, %d rails\n", (unsigned long long)now.seed, now.ranks, now.rails);
    for (int i = 0; i < now.ranks; i++)
        printf("# rank %d after %d operations, in %s; its script: %s\n", i, atomic_load(&step[i]),
               doing[i] ? doing[i] : "start-up", now.script[i]);
}

/* Ends the process, with a failure that says everything, when nothing moves any more. */
static void *watch(void *arg)
{
    int last = -1, still = 0;

    while (!atomic_load(&finished)) {
        int sum = 0;
        usleep(100000);
        for (int i = 0; i < RANKS_MAX; i++)
            sum += atomic_load(&step[i]);
        still = sum == last ? still + 1 : 0;
        last = sum;
        if (still > STUCK_S * 10) {
            ok(0, "seed %llu: stuck for %d s", (unsigned long long)now.seed, STUCK_S);
            tell();
            fflush(stdout);
            _exit(1);
        }
    }
    return NULL;
}

static int run_ranks(void)
{
    struct rank r[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    pthread_barrier_t gate;
    shunt_id_t id;
    int failed = 0;

    memset(r, 0, sizeof(r));
    pthread_barrier_init(&gate, NULL, (unsigned)now.ranks);
    for (int i = 0; i < now.ranks; i++) {
        char name[32];
        shunt_context_params_t p = {sizeof(p), now.list[i], name};
        snprintf(name, sizeof(name), "rank %d", i);
        r[i] = (struct rank){.rank = i, .size = now.ranks, .id = &id, .body = body, .gate = &gate};
        if (shunt_context_create(&p, &r[i].ctx) != SHUNT_OK) {
            ok(0, "context %d: %s", i, shunt_error_text());
            exit(1);
        }
    }
    if (shunt_id_create(r[0].ctx, &id) != SHUNT_OK) {
        ok(0, "id: %s", shunt_error_text());
        exit(1);
    }
    for (int i = 0; i < now.ranks; i++)
        pthread_create(&threads[i], NULL, ranks_thread, &r[i]);
    for (int i = 0; i < now.ranks; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < now.ranks; i++) {
        if (r[i].failed)
            printf("# rank %d: %d checks failed, the first: %s\n", i, r[i].failed, r[i].first);
        failed += r[i].failed;
        shunt_context_destroy(r[i].ctx);
    }
    pthread_barrier_destroy(&gate);
    return failed;
}

static void one(uint64_t seed, const char *backend)
{
    pthread_t watcher;
    int failed, most = 0;

    draw_schedule(seed, backend);
    for (int i = 0; i < RANKS_MAX; i++) {
        atomic_store(&step[i], 0);
        doing[i] = NULL;
    }
    if (verbose)
        tell();
    atomic_store(&finished, 0);
    pthread_create(&watcher, NULL, watch, NULL);
    failed = run_ranks();
    atomic_store(&finished, 1);
    pthread_join(watcher, NULL);
    for (int i = 0; i < now.ranks; i++)
        most = step[i] > most ? step[i] : most;
    if (!ok(failed == 0 && most > OPERATIONS, "seed %llu over %s: %d ranks, %d rails, %d operations",
            (unsigned long long)seed, backend, now.ranks, now.rails, most))
        tell();
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, text, strlen(text)) < 0)
            printf("# can't write %s\n", path);
        close(fd);
    }
}

/* Two veth pairs, in a network namespace that goes away with the process. */
static int make_rails(void)
{
    char map[64];
    unsigned uid = getuid();

    if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0)
            return 0;
        snprintf(map, sizeof(map), "0 %u 1", uid);
        write_file("/proc/self/setgroups", "deny");
        write_file("/proc/self/uid_map", map);
    }
    /* UCX believes /sys, which shows the namespace it was mounted in. */
    return system("mount --make-rprivate / && mount -t sysfs none /sys && ip link set lo up && "
                  "for i in 0 1; do ip link add chaos$i type veth peer name far$i && ip link set chaos$i up && "
                  "ip link set far$i up && ip addr add 10.200.$i.1/24 dev chaos$i || exit 1; done") == 0;
}

int main(int argc, char **argv)
{
    const char *backend;
    uint64_t first;
    int n;

    for (int option; (option = getopt(argc, argv, "vs:")) != -1;) {
        if (option == 'v')
            verbose = 1;
        else if (option == 's')
            given_script = optarg;
        else {
            fprintf(stderr, "usage: chaos [-v] [-s SCRIPT] loop|sock|ucx|ofi [FIRST-SEED [SCHEDULES]]\n");
            return 2;
        }
    }
    argv += optind - 1;
    argc -= optind - 1;
    backend = argc > 1 ? argv[1] : "loop";
    first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    n = argc > 3 ? atoi(argv[3]) : 6;
    if (!shunt__rail_backend(backend)) {
        skip("no %s in this build", backend);
        return done();
    }
    if (strcmp(backend, "loop") != 0 && !make_rails()) {
        skip("no network namespaces here: chaos over %s", backend);
        return done();
    }
    for (int i = 0; i < n; i++)
        one(first + (uint64_t)i, backend);
    return done();
}
