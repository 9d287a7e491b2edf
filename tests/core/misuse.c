/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a careless program does: NULL everywhere, arguments out of range, ids of others, settings that are none,
 * communicators freed or aborted with operations under way. Each is a status with a text; nothing crashes or hangs.
 */
#include <shunt/info.h>
#include "tests/core/ranks.h"

#define refused(call, want) \
    do { \
        shunt_status_t st_ = (call); \
        ok(st_ == (want) && (st_ == SHUNT_OK || *shunt_error_text()), "%s: %s, \"%s\"", #call, \
           shunt_status_name(st_), st_ == SHUNT_OK ? "" : shunt_error_text()); \
    } while (0)

static shunt_status_t with(const char *setting)
{
    const char *set[] = {"SHUNT_BACKEND=sock", "SHUNT_RAILS=lo", setting, NULL};
    shunt_context_params_t p = {.size = sizeof(p), .settings = set};
    shunt_context_t *ctx = NULL;
    shunt_status_t st = shunt_context_create(&p, &ctx);

    if (st != SHUNT_OK && ctx)
        ok(0, "%s: an output was set in spite of an error", setting);
    shunt_context_destroy(ctx);
    return st;
}

static void settings(void)
{
    shunt_context_params_t none = {.size = 0};
    shunt_context_t *ctx;

    refused(shunt_context_create(NULL, NULL), SHUNT_ERR_INVALID);
    refused(shunt_context_create(&none, &ctx), SHUNT_ERR_INVALID);
    refused(with("SHUNT_EAGER=lots"), SHUNT_ERR_INVALID);
    refused(with("SHUNT_PEER_TIMEOUT=-1"), SHUNT_ERR_INVALID);
    refused(with("EAGER=1m"), SHUNT_ERR_INVALID);
    refused(with("SHUNT_BACKEND=pigeon"), SHUNT_ERR_INVALID);
    refused(with("SHUNT_RAILS=no-such-nic"), SHUNT_ERR_NOT_FOUND);
    refused(with("SHUNT_QUORUM=most"), SHUNT_ERR_INVALID);
    refused(with("SHUNT_SHM_RING=1"), SHUNT_ERR_INVALID);
    refused(with("SHUNT_PORT_RANGE=20-10"), SHUNT_ERR_INVALID);
    refused(with("SHUNT_FAULTS=explode now"), SHUNT_ERR_INVALID);
    refused(with("SHUNT_CHUNK=100g"), SHUNT_OK);
    refused(with("SHUNT_EAGER=100g"), SHUNT_OK);
    refused(with("SHUNT_WINDOW=0"), SHUNT_OK);
    setenv("SHUNT_CRC", "", 1);
    refused(with("SHUNT_UNMATCHED=0"), SHUNT_OK); /* and the empty variable counts as unset */
    unsetenv("SHUNT_CRC");
    refused(shunt_setting_check(NULL, "1"), SHUNT_ERR_INVALID);
    refused(shunt_setting_check("SHUNT_EAGR", "1"), SHUNT_ERR_NOT_FOUND);
    refused(shunt_setting_check("SHUNT_EAGER", NULL), SHUNT_ERR_INVALID);
    ok(!shunt_setting_get(10000) && !shunt_feature_get(10000), "tables end");
}

static void nothing(void)
{
    shunt_comm_t *comm = NULL;
    shunt_request_t *req = NULL;
    shunt_id_t id;
    int n = 0, x = 0;

    memset(&id, 7, sizeof(id));
    refused(shunt_id_create(NULL, &id), SHUNT_ERR_INVALID);
    refused(shunt_comm_create(NULL, &id, 0, 1, &comm), SHUNT_ERR_INVALID);
    refused(shunt_comm_create_from_env(NULL, &comm), SHUNT_ERR_INVALID);
    refused(shunt_comm_split(NULL, 0, 0, &comm), SHUNT_ERR_INVALID);
    refused(shunt_comm_free(NULL), SHUNT_OK);
    refused(shunt_comm_abort(NULL, "why"), SHUNT_ERR_INVALID);
    refused(shunt_comm_revoke(NULL), SHUNT_ERR_INVALID);
    refused(shunt_comm_shrink(NULL, NULL, 0, &comm), SHUNT_ERR_INVALID);
    refused(shunt_comm_grow(NULL, NULL, &id, 0, 1, &comm), SHUNT_ERR_INVALID);
    refused(shunt_comm_error(NULL), SHUNT_ERR_INVALID);
    refused(shunt_comm_peer_state(NULL, 0, NULL, 0), SHUNT_ERR_INVALID);
    refused(shunt_comm_rails(NULL, NULL, &n), SHUNT_ERR_INVALID);
    refused(shunt_test(NULL, NULL), SHUNT_ERR_INVALID);
    refused(shunt_wait(NULL, NULL), SHUNT_ERR_INVALID);
    refused(shunt_wait_all(NULL, 1, NULL), SHUNT_ERR_INVALID);
    refused(shunt_wait_all(NULL, 0, NULL), SHUNT_OK);
    refused(shunt_wait_any(&req, -1, &n, NULL), SHUNT_ERR_INVALID);
    refused(shunt_wait_some(&req, 1, NULL, &n, NULL), SHUNT_ERR_INVALID);
    refused(shunt_cancel(NULL), SHUNT_OK);
    refused(shunt_recv(NULL, &x, 4, 0, 0, NULL), SHUNT_ERR_INVALID);
    refused(shunt_sendrecv(NULL, &x, 4, 0, 0, &x, 4, 0, 0, NULL), SHUNT_ERR_INVALID);
    refused(shunt_allreduce(NULL, &x, &x, 1, SHUNT_INT32, SHUNT_SUM), SHUNT_ERR_INVALID);
    refused(shunt_barrier(NULL), SHUNT_ERR_INVALID);
    refused(shunt_op_destroy(NULL, SHUNT_SUM), SHUNT_ERR_INVALID);
    refused(shunt_type_parse(NULL, NULL), SHUNT_ERR_INVALID);
    refused(shunt_op_parse("median", &(shunt_op_t){0}), SHUNT_ERR_NOT_FOUND);
    ok(shunt_type_size((shunt_type_t)99) == 0 && shunt_type_size((shunt_type_t)-1) == 0, "no type has no size");
    ok(*shunt_type_name((shunt_type_t)99) && *shunt_op_name((shunt_op_t)-5) &&
       *shunt_status_name((shunt_status_t)1234) && *shunt_status_text((shunt_status_t)-1234) &&
       *shunt_rail_state_name((shunt_rail_state_t)77), "names of what is none");
    ok(shunt_comm_rank(NULL) == -1 && shunt_comm_size(NULL) == 0 && !shunt_comm_context(NULL) &&
       shunt_comm_hosts(NULL) == 0 && shunt_comm_host_of(NULL, 0) == -1, "questions to no communicator");
    shunt_progress(NULL);
    shunt_context_on_event(NULL, NULL, NULL);
    shunt_context_destroy(NULL);
    ok(comm == NULL && req == NULL, "no output was set");
}

static void alone(void)
{
    const char *set[] = {"SHUNT_BACKEND=loop", "SHUNT_PEER_TIMEOUT=1s", NULL};
    shunt_context_params_t p = {.size = sizeof(p), .settings = set};
    shunt_context_t *ctx;
    shunt_comm_t *comm = NULL, *none = NULL;
    shunt_request_t *req = NULL, *other = NULL;
    shunt_result_t res;
    shunt_op_t op = SHUNT_SUM;
    shunt_id_t id;
    size_t zero = 0, one = 1, two = 2, huge = SIZE_MAX / 2;
    int x = 3, y = 0, rank = 5;
    float half = 0.5f, f = 4, g = 0;
    char text[64];

    refused(shunt_context_create(&p, &ctx), SHUNT_OK);
    memset(&id, 7, sizeof(id));
    refused(shunt_comm_create(ctx, &id, 0, 1, &comm), SHUNT_ERR_FORMAT);
    memset(&id, 0, sizeof(id));
    refused(shunt_comm_create(ctx, &id, 0, 1, &comm), SHUNT_ERR_FORMAT);
    refused(shunt_id_create(ctx, &id), SHUNT_OK);
    refused(shunt_comm_create(ctx, &id, 1, 1, &comm), SHUNT_ERR_INVALID);
    refused(shunt_comm_create(ctx, &id, -1, 1, &comm), SHUNT_ERR_INVALID);
    refused(shunt_comm_create(ctx, &id, 0, 0, &comm), SHUNT_ERR_INVALID);
    refused(shunt_comm_create(ctx, &id, 0, 1, NULL), SHUNT_ERR_INVALID);
    refused(shunt_comm_create(ctx, &id, 0, 1, &comm), SHUNT_OK);

    refused(shunt_comm_split(comm, -7, 0, &none), SHUNT_ERR_INVALID);
    refused(shunt_comm_split(comm, 0, 0, NULL), SHUNT_ERR_INVALID);
    refused(shunt_comm_shrink(comm, &rank, 1, &none), SHUNT_ERR_INVALID);
    refused(shunt_comm_shrink(comm, &rank, -1, &none), SHUNT_ERR_INVALID);
    refused(shunt_comm_shrink(comm, NULL, 1, &none), SHUNT_ERR_INVALID);
    refused(shunt_comm_grow(comm, ctx, &id, 0, 1, &none), SHUNT_ERR_INVALID);
    refused(shunt_comm_peer_state(comm, 1, text, sizeof(text)), SHUNT_ERR_INVALID);
    refused(shunt_comm_peer_state(comm, 0, text, 0), SHUNT_OK);
    refused(shunt_comm_rails(comm, NULL, NULL), SHUNT_ERR_INVALID);

    refused(shunt_allreduce(comm, &x, &y, 1, (shunt_type_t)77, SHUNT_SUM), SHUNT_ERR_INVALID);
    refused(shunt_allreduce(comm, &x, &y, 1, SHUNT_INT32, (shunt_op_t)-1), SHUNT_ERR_INVALID);
    refused(shunt_allreduce(comm, &x, &y, 1, SHUNT_INT32, (shunt_op_t)1000), SHUNT_ERR_INVALID);
    refused(shunt_allreduce(comm, NULL, &y, 1, SHUNT_INT32, SHUNT_SUM), SHUNT_ERR_INVALID);
    refused(shunt_allreduce(comm, &x, NULL, 1, SHUNT_INT32, SHUNT_SUM), SHUNT_ERR_INVALID);
    refused(shunt_allreduce(comm, &x, &y, SIZE_MAX, SHUNT_INT32, SHUNT_SUM), SHUNT_ERR_INVALID);
    refused(shunt_iallreduce(comm, &x, &y, 1, SHUNT_INT32, SHUNT_SUM, NULL), SHUNT_ERR_INVALID);
    refused(shunt_allreduce(comm, NULL, NULL, 0, SHUNT_INT32, SHUNT_SUM), SHUNT_OK);
    refused(shunt_broadcast(comm, &x, &y, 1, SHUNT_INT32, 1), SHUNT_ERR_INVALID);
    refused(shunt_reduce(comm, &x, &y, 1, SHUNT_INT32, SHUNT_SUM, -1), SHUNT_ERR_INVALID);
    refused(shunt_alltoallv(comm, &x, NULL, &zero, &y, &one, &zero, SHUNT_INT32), SHUNT_ERR_INVALID);
    refused(shunt_alltoallv(comm, &x, &one, &zero, &y, &two, &zero, SHUNT_INT32), SHUNT_ERR_MISMATCH);
    refused(shunt_alltoallv(comm, &x, &one, &huge, &y, &one, &zero, SHUNT_INT32), SHUNT_ERR_INVALID);
    refused(shunt_alltoallv(comm, NULL, &zero, &zero, NULL, &zero, &zero, SHUNT_INT32), SHUNT_OK);
    refused(shunt_alltoallv(comm, &x, &one, &zero, &y, &one, &zero, SHUNT_INT32), SHUNT_OK);
    refused(shunt_coll_explain(comm, SHUNT_COLL_KINDS, 1, SHUNT_INT32, SHUNT_SUM, text, sizeof(text)), SHUNT_ERR_INVALID);
    refused(shunt_coll_explain(comm, SHUNT_COLL_BARRIER, 1, SHUNT_INT32, SHUNT_SUM, text, 0), SHUNT_OK);
    refused(shunt_op_create_premul_sum(comm, NULL, SHUNT_FLOAT32, &op), SHUNT_ERR_INVALID);
    refused(shunt_op_create_premul_sum(comm, &half, (shunt_type_t)50, &op), SHUNT_ERR_INVALID);
    refused(shunt_op_create_premul_sum(comm, &half, SHUNT_FLOAT32, NULL), SHUNT_ERR_INVALID);
    refused(shunt_op_create_premul_sum(comm, &half, SHUNT_FLOAT32, &op), SHUNT_OK);
    refused(shunt_allreduce(comm, &f, &g, 1, SHUNT_FLOAT64, op), SHUNT_ERR_INVALID);
    refused(shunt_allreduce(comm, &f, &g, 1, SHUNT_FLOAT32, op), SHUNT_OK);
    ok(y == 3 && g == 2, "size 1: %d, %g", y, (double)g);
    refused(shunt_op_destroy(comm, op), SHUNT_OK);
    refused(shunt_op_destroy(comm, op), SHUNT_ERR_INVALID);
    refused(shunt_op_destroy(comm, SHUNT_SUM), SHUNT_ERR_INVALID);

    refused(shunt_isend(comm, &x, SIZE_MAX, 0, 0, &req), SHUNT_ERR_INVALID);
    refused(shunt_isend(comm, &x, 4, 0, SHUNT_TAG_ANY, &req), SHUNT_ERR_INVALID);
    refused(shunt_isend(comm, &x, 4, 0, 1, &req), SHUNT_OK);
    refused(shunt_cancel(req), SHUNT_ERR_UNSUPPORTED);
    refused(shunt_irecv(comm, &y, 4, 0, 2, &other), SHUNT_OK);
    refused(shunt_comm_free(comm), SHUNT_OK); /* neither has a partner */
    refused(shunt_wait(&req, &res), SHUNT_ERR_ABORTED);
    refused(shunt_wait(&other, &res), SHUNT_ERR_ABORTED);
    ok(strstr(res.text, "freed"), "its text: %s", res.text);
    shunt_context_destroy(ctx);
}

/* A receive that nobody answers, and a free that must not wait for it for ever. */
static void freed(struct rank *r)
{
    shunt_request_t *req[2] = {NULL, NULL};
    char *big = calloc(1, 4 << 20);
    shunt_status_t st;
    int x;

    check_ok(r, shunt_irecv(r->comm, &x, sizeof(x), r->rank ^ 1, 5, &req[0]), "irecv");
    check_ok(r, shunt_isend(r->comm, big, 4 << 20, r->rank ^ 1, 6, &req[1]), "isend");
    check_ok(r, shunt_comm_free(r->comm), "free");
    r->comm = NULL;
    for (int i = 0; i < 2; i++) {
        st = shunt_wait(&req[i], NULL);
        check(r, st == SHUNT_ERR_ABORTED || st == SHUNT_ERR_PEER || st == SHUNT_ERR_REVOKED, "request %d: %s", i,
              shunt_status_name(st));
    }
    free(big);
}

static void *abort_it(void *comm)
{
    shunt_comm_abort(comm, "had enough");
    return NULL;
}

/* Everybody is blocked, rank 0 in a receive; another of its threads aborts. */
static void aborted(struct rank *r)
{
    shunt_status_t st;
    pthread_t t;
    int x = 0;

    if (r->rank == 0) {
        pthread_create(&t, NULL, abort_it, r->comm);
        st = shunt_recv(r->comm, &x, sizeof(x), 1, 0, NULL);
        pthread_join(t, NULL);
    } else
        st = shunt_barrier(r->comm);
    check(r, st == SHUNT_ERR_ABORTED, "%s", shunt_status_name(st));
    check(r, strstr(shunt_error_text(), "had enough"), "text: %s", shunt_error_text());
    check(r, shunt_comm_error(r->comm) == SHUNT_ERR_ABORTED, "the communicator stays aborted");
    check(r, shunt_barrier(r->comm) == SHUNT_ERR_ABORTED, "and refuses a barrier");
}

/* One rank's mistake is told to all. */
static void colors(struct rank *r)
{
    shunt_comm_t *part = NULL;
    shunt_status_t st = shunt_comm_split(r->comm, r->rank == 1 ? -3 : 0, 0, &part);

    check(r, st == SHUNT_ERR_INVALID && strstr(shunt_error_text(), "color -3 of rank 1"), "%s: %s", shunt_status_name(st),
          shunt_error_text());
    check_ok(r, shunt_comm_split(r->comm, r->rank, 0, &part), "each on its own");
    check(r, shunt_comm_size(part) == 1, "size %d", shunt_comm_size(part));
    check_ok(r, shunt_barrier(part), "barrier of one");
    shunt_comm_free(part);
}

/* alltoallv where most pairs have nothing to say. */
static void sparse(struct rank *r)
{
    size_t n = (size_t)r->size, counts[8] = {0}, displs[8] = {0}, from[8] = {0}, zero[8] = {0};
    int x = r->rank, y = -1, to = (r->rank + 1) % r->size, source = (r->rank + r->size - 1) % r->size;

    counts[to] = 1;
    from[source] = 1;
    check(r, n <= 8, "too many ranks");
    check_ok(r, shunt_alltoallv(r->comm, &x, counts, displs, &y, from, zero, SHUNT_INT32), "alltoallv");
    check(r, y == source, "got %d", y);
    check_ok(r, shunt_alltoallv(r->comm, NULL, zero, zero, NULL, zero, zero, SHUNT_FLOAT64), "alltoallv of nothing");
    check_ok(r, shunt_allgather(r->comm, NULL, NULL, 0, SHUNT_INT8), "allgather of nothing");
}

static void *same_context(void *arg)
{
    struct rank *r = arg;
    shunt_comm_t *comm = NULL;
    shunt_status_t st = shunt_comm_create(r->ctx, r->id, r->rank, 2, &comm);

    check(r, st == SHUNT_ERR_INVALID && strstr(shunt_error_text(), "one context"), "%s: %s", shunt_status_name(st),
          shunt_error_text());
    return NULL;
}

static void twice(void)
{
    const char *set[] = {"SHUNT_BACKEND=loop", "SHUNT_BOOTSTRAP_TIMEOUT=20s", NULL};
    shunt_context_params_t p = {.size = sizeof(p), .settings = set};
    struct rank r[2] = {{.rank = 0}, {.rank = 1}};
    shunt_context_t *ctx;
    pthread_t t[2];
    shunt_id_t id;

    refused(shunt_context_create(&p, &ctx), SHUNT_OK);
    refused(shunt_id_create(ctx, &id), SHUNT_OK);
    for (int i = 0; i < 2; i++) {
        r[i].ctx = ctx;
        r[i].id = &id;
        pthread_create(&t[i], NULL, same_context, &r[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    is_int(r[0].failed + r[1].failed, 0, "one context can't be two ranks: %s%s", r[0].first, r[1].first);
    shunt_context_destroy(ctx);
}

int main(void)
{
    static const char *const loop[] = {"SHUNT_BACKEND=loop", "SHUNT_PEER_TIMEOUT=1s", NULL};
    static const char *const helper[] = {"SHUNT_BACKEND=loop", "SHUNT_THREAD=0", "SHUNT_SPIN=0", NULL};

    settings();
    nothing();
    alone();
    twice();
    is_int(ranks_run(2, loop, freed, NULL), 0, "freed with operations that nobody will match");
    is_int(ranks_run(3, loop, aborted, NULL), 0, "aborted by another thread while all are blocked");
    is_int(ranks_run(3, loop, colors, NULL), 0, "a color that is none is told to all");
    is_int(ranks_run(4, loop, sparse, NULL), 0, "empty pairs");
    is_int(ranks_run(4, helper, sparse, NULL), 0, "without a helper thread");
    return done();
}
