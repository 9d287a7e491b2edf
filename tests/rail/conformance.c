/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every rail must do, whatever carries its bytes.
 *
 *     conformance BACKEND [DEVICE[,DEVICE] [IP[,IP] [FAULTS]]]
 *
 * Two rails in one process, each on a device of its own if two are named, driven by a mock engine. No test depends on how fast anything is: each waits for what
 * must happen, and gives up after ten seconds.
 */
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "tests/rail/mock.h"
#include "tests/tap.h"

static const char *backend, *device[2], *ip[2], *faults;
static struct mock a, b;
static char *big; /* 1 MiB and some */

static int open_both(void)
{
    if (mock_open(&a, 0, backend, device[0], ip[0], faults, NULL) != SHUNT_OK ||
        mock_open(&b, 1, backend, device[1], ip[1], faults, NULL) != SHUNT_OK) {
        ok(0, "two rails open: %s", shunt_error_text());
        mock_close(&a);
        return 0;
    }
    return 1;
}

static void close_both(void)
{
    int wrong = 0;

    for (int i = 0; i < MOCK_LINKS; i++)
        wrong += a.links[i].wrong + b.links[i].wrong;
    is_int(wrong, 0, "nothing came that was not sent, out of order or out of turn");
    mock_close(&a);
    mock_close(&b);
}

static void addresses(void)
{
    uint8_t junk[SHUNT__ADDRESS_MAX];
    size_t one = 1;

    ok(a.rail->ops->reach(a.rail, b.address, b.address_len) > 0, "a rail reaches another of its kind");
    memset(junk, 0xa5, sizeof(junk));
    is_int(a.rail->ops->reach(a.rail, junk, sizeof(junk)), 0, "it does not reach junk");
    is_int(a.rail->ops->reach(a.rail, junk, 0), 0, "nor an empty address");
    is_int(a.rail->ops->reach(a.rail, b.address, b.address_len - 1), 0, "nor an address that was cut");
    ok(a.rail->ops->connect(a.rail, &a.links[0].link, junk, sizeof(junk)) < 0, "connecting to junk is refused");
    ok(a.links[0].link.conn == NULL, "and leaves no connection");
    ok(a.rail->ops->address(a.rail, junk, &one) < 0, "an address does not fit in one byte");
    ok(strstr(a.rail->name, backend), "the rail's name says what it is: %s", a.rail->name);
}

static void greetings(void)
{
    ok(mock_connect(&a, &b, 0), "a link comes up: %s", a.links[0].why);
    ok(mock_connect(&b, &a, 1), "another from the other side");
    is_int(a.links[0].n_established, 1, "established is said once");
    is_int(b.links[0].n_established, 1, "to both");
    ok(a.rail->ops->describe == NULL || strlen(a.rail->ops->describe(&a.links[0].link)) > 0, "it can be described: %s",
       a.rail->ops->describe ? a.rail->ops->describe(&a.links[0].link) : "-");
    b.refuse_hello = 1;
    a.links[2].link.generation++;
    is_int(a.rail->ops->connect(a.rail, &a.links[2].link, b.address, b.address_len), SHUNT_OK, "a third is tried");
    ok(mock_until(&a, &b, a.links[2].n_down), "and reported down when its HELLO is refused: %s", a.links[2].why);
    ok(a.links[2].link.conn == NULL && !b.links[2].up, "nothing is left of it");
    b.refuse_hello = 0;
    a.refuse_welcome = 1;
    a.links[3].link.generation++;
    is_int(a.rail->ops->connect(a.rail, &a.links[3].link, b.address, b.address_len), SHUNT_OK, "a fourth is tried");
    ok(mock_until(&a, &b, a.links[3].n_down), "and reported down when its WELCOME is refused: %s", a.links[3].why);
    is_int(a.links[3].status, SHUNT_ERR_AUTH, "with the status AUTH");
    ok(mock_until(&a, &b, !b.links[3].up), "the other side learns it");
    a.refuse_welcome = 0;
    ok(mock_connect(&a, &b, 3), "it comes up when nobody minds");
    ok(a.links[0].up && b.links[0].up && a.links[1].up && b.links[1].up, "the first two were not disturbed");
}

static void crossing(void)
{
    for (int i = 0; i < MOCK_LINKS; i++) {
        struct mock_link *x = &a.links[i], *y = &b.links[i];

        x->link.generation++;
        y->link.generation++;
        a.rail->ops->connect(a.rail, &x->link, b.address, b.address_len);
        if (i % 3 == 1)
            mock_turns(&a, NULL, i);
        b.rail->ops->connect(b.rail, &y->link, a.address, a.address_len);
        if (i % 3 == 2)
            mock_turns(&b, NULL, i);
    }
    for (int i = 0; i < MOCK_LINKS; i++) {
        struct mock_link *x = &a.links[i], *y = &b.links[i];
        char buf[100], back[100];

        if (!mock_until(&a, &b, x->up && y->up)) {
            ok(0, "link %d did not come up when both sides connected at once", i);
            continue;
        }
        mock_turns(&a, &b, 30);
        mock_fill(buf, i, x->next_message, sizeof(buf));
        mock_fill(back, i, y->next_message, sizeof(back));
        mock_send_patiently(x, 0, buf, sizeof(buf), &b);
        mock_send_patiently(y, 0, back, sizeof(back), &a);
        ok(mock_until(&a, &b, x->n_frames == 1 && y->n_frames == 1), "both connect link %d at once: one connection works",
           i);
    }
}

static const size_t sizes[] = {0, 1, 79, 80, 81, 159, 160, 161, 1000, 4095, 4096, 4097, 16384, 65535, 65536, 65537,
                               200000, 262144, 300000, 1000000, 1048576};
#define N_SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

static void all_sizes(int landing)
{
    struct mock_link *x = &a.links[0], *y = &b.links[0];
    char *buf[N_SIZES];
    int kept = 0, refused = 0;

    if (!ok(mock_connect(&a, &b, 0), "a link comes up"))
        return;
    x->landing = y->landing = landing;
    for (int i = 0; i < N_SIZES; i++) {
        buf[i] = malloc(sizes[i] + 1);
        mock_fill(buf[i], 0, (uint64_t)i, sizes[i]);
        shunt_status_t st = mock_send_patiently(x, (uint64_t)i, buf[i], sizes[i], &b);
        if (st == SHUNT_OK) /* taken: may be overwritten */
            memset(buf[i], 0x5a, sizes[i]);
        kept += st == SHUNT_IN_PROGRESS;
        refused += st < 0 || (st == SHUNT_IN_PROGRESS && sizes[i] <= SHUNT__SEND_COPIED);
    }
    is_int(refused, 0, "frames of 0 bytes to 1 MiB are taken, small ones at once");
    (void)mock_until(&a, &b, y->n_frames == N_SIZES && x->n_sent == kept);
    is_int(y->n_frames, N_SIZES, "all arrive, %s landing memory", landing ? "in" : "without");
    is_int(x->n_sent, kept, "sent comes for each that was kept");
    if (!landing)
        is_int(y->n_landed, 0, "nothing landed");
    for (int i = N_SIZES - 1; i >= 0; i--)
        free(buf[i]);
}

static void sizes_without_landing(void)
{
    all_sizes(0);
}

static void sizes_with_landing(void)
{
    all_sizes(1);
}

static void small_ones(void)
{
    struct mock_link *x = &a.links[0], *y = &b.links[0];
    char buf[64];
    int n = 5000;

    if (!ok(mock_connect(&a, &b, 0), "a link comes up"))
        return;
    for (int i = 0; i < n; i++) {
        mock_fill(buf, 0, (uint64_t)i, (size_t)i % sizeof(buf));
        mock_send_patiently(x, (uint64_t)i, buf, (size_t)i % sizeof(buf), &b);
    }
    (void)mock_until(&a, &b, y->n_frames == n);
    is_int(y->n_frames, n, "small frames arrive");
    is_int(x->n_sent, 0, "none was kept");
    if (a.rail->caps & SHUNT__RAIL_ACKS)
        ok(mock_until(&a, &b, x->consumed == (uint64_t)n), "consumed counts them");
}

/* Sends 64 KiB frames until the rail has no room, without the receiver doing anything. */
static int fill_up(struct mock_link *x, uint64_t *next, char *pieces, int max)
{
    int n = 0;

    for (; n < max; n++) {
        char *piece = pieces + (size_t)n * 65536;

        mock_fill(piece, x->index, *next, 65536);
        shunt_status_t st = mock_send(x, *next, piece, 65536);
        if (st == SHUNT_ERR_AGAIN)
            return n;
        if (st == SHUNT_OK)
            memset(piece, 0x5a, 65536);
        (*next)++;
    }
    return n;
}

static void backpressure(void)
{
    struct mock_link *x = &a.links[0], *y = &b.links[0];
    char *pieces = malloc(512 * 65536);
    uint64_t next = 0;
    int n;

    if (!ok(mock_connect(&a, &b, 0), "a link comes up"))
        return;
    n = fill_up(x, &next, pieces, 512);
    ok(n > 0 && n < 512, "a receiver that does nothing stops the sender (after %d frames)", n);
    ok(mock_until(&a, &b, x->n_writable > 0), "writable comes when there is room again");
    is_int(mock_send_patiently(x, next, pieces, 0, &b), SHUNT_OK, "and sending goes on");
    (void)mock_until(&a, &b, y->n_frames == n + 1);
    is_int(y->n_frames, n + 1, "nothing was lost");
    free(pieces);
}

static void detaching(void)
{
    struct mock_link *x = &a.links[0], *y = &b.links[0];
    char *pieces = malloc(512 * 65536);
    uint64_t next = 0;
    int n, kept = 0;

    if (!ok(mock_connect(&a, &b, 0), "a link comes up"))
        return;
    n = fill_up(x, &next, pieces, 512);
    for (int i = 0; i < n; i++) { /* whatever has become of each */
        a.rail->ops->detach(&x->link, (uint64_t)i);
        memset(pieces + (size_t)i * 65536, 0x33, 65536);
    }
    (void)mock_until(&a, &b, y->n_frames == n);
    is_int(y->n_frames, n, "frames arrive right although their memory was taken away");
    for (int i = 0; i < x->n_sent; i++)
        kept += x->sent_refs[i] < (uint64_t)n;
    is_int(kept, 0, "and sent does not come for them");
    free(pieces);
}

static void redirecting(void)
{
    struct mock_link *x = &a.links[0], *y = &b.links[0];
    shunt_status_t st;
    int touched = 0, moved = 0;

    if (!ok(mock_connect(&a, &b, 0), "a link comes up"))
        return;
    y->landing = 1;
    for (uint64_t i = 0; i < 20; i++) {
        mock_fill(big, 0, i, 1 << 20);
        st = mock_send_patiently(x, i, big, 1 << 20, NULL);
        int want = y->n_frames + 1, called = y->n_land_called, sent = x->n_sent, landed = y->n_landed;

        (void)mock_until(&a, &b, y->n_land_called > called || y->n_frames == want);
        if (y->n_frames < want) {
            b.rail->ops->redirect(&y->link);
            memset(y->land, 0x77, 1 << 20);
            moved++;
        }
        (void)mock_until(&a, &b, y->n_frames == want && (st == SHUNT_OK || x->n_sent > sent));
        if (y->n_landed == landed)
            for (int k = 0; k < 1 << 20; k++)
                touched += moved && y->land[k] != 0x77;
    }
    is_int(y->n_frames, 20, "frames whose landing memory is taken away in the middle arrive all the same (%d were)", moved);
    is_int(touched, 0, "and the memory is left alone");
}

static void breaking(void)
{
    struct mock_link *x = &a.links[0], *y = &b.links[0];
    char *pieces = malloc(512 * 65536);
    uint64_t next = 0;
    int sent;

    if (!ok(mock_connect(&a, &b, 0), "a link comes up"))
        return;
    for (int round = 0; round < 6; round++) {
        next = round > 0; /* each round but the first begins behind the frame that ended the last one */
        y->landing = round % 2;
        fill_up(x, &next, pieces, 512);
        mock_turns(&b, NULL, round * 2);
        sent = x->n_sent;
        int downs = y->n_down;
        if (round < 3) {
            a.rail->ops->disconnect(&x->link);
            x->up = 0;
            memset(pieces, 0x44, 512 * 65536);
            ok(mock_until(&a, &b, y->n_down == downs + 1), "disconnect in mid-frame ends the other side's link: %s", y->why);
            is_int(y->status, SHUNT_ERR_RAIL, "with the status RAIL");
        } else {
            downs = x->n_down;
            b.rail->ops->disconnect(&y->link);
            y->up = 0;
            ok(mock_until(&a, &b, x->n_down == downs + 1), "so does a disconnect by the receiver: %s", x->why);
            memset(pieces, 0x44, 512 * 65536);
        }
        if (round < 3)
            is_int(x->n_sent, sent, "no event comes for a link that was disconnected");
        ok(x->link.conn == NULL && y->link.conn == NULL, "both are free");
        ok(mock_connect(&a, &b, 0), "and can be connected anew");
        y->next_message = 0;
        mock_fill(big, 0, 0, 1000);
        mock_send_patiently(x, 0, big, 1000, &b);
        int want = y->n_frames + 1;
        ok(mock_until(&a, &b, y->n_frames == want), "the new connection works");
    }
    y->close_in_frame = y->n_frames + 3;
    next = 1;
    fill_up(x, &next, pieces, 5);
    ok(mock_until(&a, &b, y->link.conn == NULL), "a link may be disconnected from inside the frame callback");
    ok(mock_until(&a, &b, !x->up), "the sender learns it");
    free(pieces);
}

static void farewell(void)
{
    struct mock_link *x = &a.links[0], *y = &b.links[0];
    struct shunt__frame bye = {.type = SHUNT__FRAME_BYE};

    if (!ok(mock_connect(&a, &b, 0), "a link comes up"))
        return;
    mock_fill(big, 0, 0, 1000);
    mock_send_patiently(y, 0, big, 1000, NULL); /* unread when the other side closes */
    mock_turns(&b, NULL, 3);
    is_int(a.rail->ops->send(&x->link, &bye, NULL, 0), SHUNT_OK, "a BYE is taken");
    a.rail->ops->disconnect(&x->link);
    x->up = 0;
    ok(mock_until(&b, &a, y->n_down == 1), "the link ends: %s", y->why);
    is_int(y->n_bye, 1, "and the BYE came before that");
}

static void nobody_there(void)
{
    struct mock_link *x = &a.links[0];

    if (!ok(mock_connect(&a, &b, 0), "a link comes up"))
        return;
    mock_close(&b);
    ok(mock_until(&a, NULL, x->n_down == 1), "the link ends when the other side closes its rail: %s", x->why);
    x->link.generation++;
    if (a.rail->ops->connect(a.rail, &x->link, b.address, b.address_len) == SHUNT_OK) {
        is_int(x->n_down, 1, "connect never reports from inside");
        ok(mock_until(&a, NULL, x->n_down == 2), "connecting to nobody is reported down: %s", x->why);
    } else
        ok(x->link.conn == NULL, "connecting to nobody fails at once");
}

static void damage(void)
{
    struct mock_link *x = &a.links[0], *y = &b.links[0];
    struct shunt__frame f = {.type = SHUNT__FRAME_DATA, .comm = 77, .epoch = 3, .tag = -5, .chunk = 4711};

    if (a.rail->caps & SHUNT__RAIL_CHECKED) {
        skip("%s checks for itself", backend);
        return;
    }
    if (!ok(mock_connect(&a, &b, 0), "a link comes up"))
        return;
    for (int i = 0; i < 4; i++) { /* whole in one read and in pieces; in landing memory and not */
        f.length = i & 1 ? 1 << 20 : 1000;
        f.total = f.length;
        f.message = (uint64_t)(2 * i);
        f.payload_crc = 12345;
        f.flags = SHUNT__FRAME_CRC;
        y->landing = i >> 1;
        mock_fill(big, 0, f.message, f.length);
        while (a.rail->ops->send(&x->link, &f, big, f.message) == SHUNT_ERR_AGAIN)
            mock_turn(&a, &b);
        ok(mock_until(&a, &b, y->n_damaged == i + 1), "a damaged payload of %u bytes is noticed", f.length);
        mock_fill(big, 0, f.message + 1, 100);
        mock_send_patiently(x, f.message + 1, big, 100, &b);
        ok(mock_until(&a, &b, y->n_frames == i + 1), "and the link goes on");
    }
}

static void crowd(void)
{
    char *out = malloc(2 * MOCK_LINKS * 100000);
    int want = 0, up = 0, done_frames = 0;

    for (int i = 0; i < MOCK_LINKS; i++)
        up += i % 2 ? mock_connect(&a, &b, i) : mock_connect(&b, &a, i);
    is_int(up, MOCK_LINKS, "%d links come up", MOCK_LINKS);
    for (int i = 0; i < 2 * MOCK_LINKS; i++)
        (i % 2 ? &a : &b)->links[i / 2].landing = i % 3 == 0;
    for (uint64_t m = 0; m < 40 && up == MOCK_LINKS; m++)
        for (int i = 0; i < 2 * MOCK_LINKS; i++) {
            struct mock *from = i % 2 ? &a : &b, *to = i % 2 ? &b : &a;
            size_t len = (m * 7919 + (uint64_t)i * 104729) % 100000;
            char *buf = out + (size_t)i * 100000;
            struct mock_link *l = &from->links[i / 2];
            int sent = l->n_sent;

            mock_fill(buf, i / 2, m, len);
            if (mock_send_patiently(l, m, buf, len, to) == SHUNT_IN_PROGRESS)
                (void)mock_until(from, to, l->n_sent > sent);
            want++;
        }
    (void)mock_until(&a, &b, ({
        done_frames = 0;
        for (int i = 0; i < MOCK_LINKS; i++)
            done_frames += a.links[i].n_frames + b.links[i].n_frames;
        done_frames == want;
    }));
    is_int(done_frames, want, "frames of all sizes cross in both directions on all of them");
    if (a.rail->ops->stats) {
        struct shunt__link_stats s;
        /* that the last frame was taken may still be news to its sender */
        (void)mock_until(&a, &b, (a.rail->ops->stats(&a.links[0].link, &s), s.queued == 0));
        is_int(s.queued, 0, "nothing is left in a queue");
    }
    free(out);
}

static void run(const char *name, void (*test)(void))
{
    printf("# %s\n", name);
    if (!open_both())
        return;
    test();
    close_both();
}

/* "a,b" is a for the one side and b for the other, "a" is for both. */
static void two(char *text, const char *out[2])
{
    char *comma = strchr(text, ',');

    if (comma)
        *comma++ = 0;
    out[0] = text;
    out[1] = comma ? comma : text;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: conformance BACKEND [DEVICE[,DEVICE] [IP[,IP] [FAULTS]]]\n");
        return 2;
    }
    backend = argv[1];
    two(argc > 2 ? argv[2] : "", device);
    two(argc > 3 ? argv[3] : "", ip);
    faults = argc > 4 ? argv[4] : NULL;
    big = malloc((1 << 20) + 64);
    if (!shunt__rail_backend(backend)) {
        skip("no %s in this build", backend);
        return done();
    }
    run("addresses", addresses);
    run("greetings", greetings);
    run("crossing", crossing);
    run("sizes", sizes_without_landing);
    run("sizes, landing", sizes_with_landing);
    run("small frames", small_ones);
    run("backpressure", backpressure);
    run("detach", detaching);
    run("redirect", redirecting);
    run("breaking", breaking);
    run("farewell", farewell);
    run("nobody there", nobody_there);
    run("damage", damage);
    run("crowd", crowd);
    free(big);
    return done();
}
