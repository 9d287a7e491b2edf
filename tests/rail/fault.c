/* SPDX-License-Identifier: BSD-3-Clause */
/* The fault wrapper: its scripts, and that each of its faults is what it says. Time is the test's. */
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/rail/fault_script.h"
#include "tests/rail/mock.h"
#include "tests/tap.h"

static uint64_t now = 1000 * SHUNT__S;
static struct mock a, b;
static const char *backend = "loop";

static uint64_t test_clock(void)
{
    return now;
}

static void forward(uint64_t ns)
{
    now += ns;
    mock_turns(&a, &b, 50);
}

static void bad(const char *script, const char *said)
{
    struct shunt__fault_script s;

    is_int(shunt__fault_parse(script, &s), SHUNT_ERR_FORMAT, "refused with a reason: %s", said);
    ok(strstr(shunt_error_text(), said), "which is said: %s", shunt_error_text());
}

static void grammar(void)
{
    struct shunt__fault_script s, t;
    char *text;

    is_int(shunt__fault_parse("# nothing\n\n  ;; \n", &s), SHUNT_OK, "an empty script is one");
    is_int(s.n, 0, "without events");
    shunt__fault_free(&s);
    is_int(shunt__fault_parse("seed 7; 2s rail 1 rate 100mbit # slow; not a part\n1s rail node1:eth1@3 loss 5%\n"
                              "#100 rail * cut\n500ms rail mlx5_0:1 flap 2 300ms 1s; 3s partition 1,2\n4s heal", &s),
           SHUNT_OK, "a script with everything is read: %s", shunt_error_text());
    is_int(s.seed, 7, "its seed");
    is_int(s.n, 10, "its events: a flap is four, a partition of two is two");
    is_str(s.events[0].rail, "mlx5_0:1", "a device with a port is a rail and no host");
    is_int(s.events[0].at, 500 * SHUNT__MS, "events are sorted by time");
    is_str(s.events[2].host, "node1", "a host");
    is_str(s.events[2].peer, "3", "a peer");
    ok(s.events[2].value > 0.0499 && s.events[2].value < 0.0501, "5%% is 0.05");
    is_int(s.events[9].count, 100, "counted events come last");
    text = shunt__fault_print(&s);
    is_int(shunt__fault_parse(text, &t), SHUNT_OK, "what is printed can be read");
    char *again = shunt__fault_print(&t);
    is_str(again, text, "and is the same script");
    free(text);
    free(again);
    shunt__fault_free(&s);
    shunt__fault_free(&t);
    bad("1s rail 0 explode", "line 1: no action \"explode\"");
    bad("1s rail 0 down\n1s rail 0 delay", "line 2: delay takes a time");
    bad("1s rail 0 loss 120%", "loss takes a probability");
    bad("1s rail 0 rate fast", "rate takes a rate");
    bad("soon rail 0 down", "expected a time like");
    bad("#0 rail 0 down", "not a number of frames");
    bad("1s rail 0 flap 3 1s", "flap takes");
    bad("1s rail @3 down", "expected [HOST:]RAIL[@PEER]");
    bad("1s network down", "expected rail, partition or heal");
    bad("seed x", "seed takes a number");
    bad("1s rail 0 delay 1ms 2ms 3ms 4ms 5ms", "too many words");
}

static int open_with(const char *script_a, const char *script_b)
{
    shunt_status_t st = mock_open(&a, 0, backend, "lo", "127.0.0.1", script_a, NULL);

    if (st == SHUNT_OK)
        st = mock_open(&b, 1, backend, "lo", "127.0.0.1", script_b, NULL);
    return ok(st == SHUNT_OK, "rails with the script \"%s\": %s", script_a, st == SHUNT_OK ? "open" : shunt_error_text());
}

static void close_both(int ordered)
{
    int wrong = 0;

    for (int i = 0; i < MOCK_LINKS; i++)
        wrong += a.links[i].wrong + b.links[i].wrong;
    if (ordered)
        is_int(wrong, 0, "nothing else came");
    mock_close(&a);
    mock_close(&b);
}

static void send_to_b(int link, uint64_t message, size_t len)
{
    static char buf[1 << 20];
    shunt_status_t st;

    mock_fill(buf, link, message, len);
    st = mock_send(&a.links[link], message, buf, len);
    memset(buf, 0, len); /* the wrapper has its copy */
    if (st != SHUNT_OK && st != SHUNT_ERR_AGAIN)
        ok(0, "a wrapped send gave %d", st);
}

static void late_frames(void)
{
    if (!open_with("0 rail 0 delay 20ms", "seed 1") || !ok(mock_connect(&a, &b, 0), "delay: a link comes up"))
        return;
    for (uint64_t i = 0; i < 10; i++)
        send_to_b(0, i, 100000);
    forward(19 * SHUNT__MS);
    is_int(b.links[0].n_frames, 0, "nothing arrives before its time");
    forward(1 * SHUNT__MS);
    ok(mock_until(&a, &b, b.links[0].n_frames == 10), "and all of it then");
    close_both(1);

    if (!open_with("0 rail lo rate 8mbit", "seed 1") || !ok(mock_connect(&a, &b, 0), "rate: a link comes up"))
        return;
    int sent = 0, waits = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        char buf[10000 - 80];
        while (a.links[0].n_writable == waits) {
            mock_fill(buf, 0, (uint64_t)sent, sizeof(buf));
            if (mock_send(&a.links[0], (uint64_t)sent, buf, sizeof(buf)) == SHUNT_ERR_AGAIN)
                waits++;
            else
                sent++;
        }
        forward(1 * SHUNT__MS);
    }
    ok(b.links[0].n_frames >= 99 && b.links[0].n_frames <= 101, "8 mbit carry 100 frames of 10000 bytes in a second: %d",
       b.links[0].n_frames);
    ok(sent <= 107, "no more than 50 ms of them wait: %d were taken", sent);
    ok(a.links[0].n_writable > 20, "writable comes when there is room (%d times)", a.links[0].n_writable);
    close_both(1);
}

static void broken(const char *word, int carrier)
{
    char script[100];

    snprintf(script, sizeof(script), "1s rail 0 %s; 2s rail 0 up", word);
    if (!open_with(script, "seed 1") || !ok(mock_connect(&a, &b, 0), "%s: a link comes up", word))
        return;
    forward(SHUNT__S);
    ok(mock_until(&a, &b, a.links[0].n_down == 1 && b.links[0].n_down == 1), "it ends on both sides: %s",
       a.links[0].why);
    is_int(a.links[0].status, SHUNT_ERR_RAIL, "with the status RAIL");
    is_int(a.n_carrier, carrier, "the carrier's loss is told or not");
    a.rail->ops->connect(a.rail, &a.links[0].link, b.address, b.address_len);
    is_int(a.links[0].n_down, 1, "connecting fails, but not from inside the call");
    ok(mock_until(&a, &b, a.links[0].n_down == 2), "it is reported: %s", a.links[0].why);
    b.rail->ops->connect(b.rail, &b.links[0].link, a.address, a.address_len);
    ok(mock_until(&a, &b, b.links[0].n_down == 2), "so does connecting from the other side: %s", b.links[0].why);
    forward(SHUNT__S);
    is_int(a.n_carrier, 2 * carrier, "its return, too");
    ok(mock_connect(&a, &b, 0), "a link comes up again");
    send_to_b(0, 0, 1000);
    ok(mock_until(&a, &b, b.links[0].n_frames == 1), "and works");
    close_both(1);
}

static void black_hole(void)
{
    static char buf[1000];

    if (!open_with("1s rail 0@link0 blackhole; 20s heal", "seed 1") || !ok(mock_connect(&a, &b, 0), "black hole: a link") ||
        !ok(mock_connect(&a, &b, 1), "and another") || !ok(mock_connect(&a, &b, 2), "and a third"))
        return;
    forward(SHUNT__S);
    send_to_b(0, 0, 100000);
    send_to_b(1, 0, 100000);
    mock_fill(buf, 0, 0, sizeof(buf));
    mock_send(&b.links[0], 0, buf, sizeof(buf));
    ok(mock_until(&a, &b, b.links[1].n_frames == 1), "the other link is not disturbed");
    forward(SHUNT__S);
    is_int(b.links[0].n_frames, 0, "nothing gets out");
    is_int(a.links[0].n_frames, 0, "nor in");
    ok(a.links[0].up && b.links[0].up, "and nobody is told");
    if (a.rail->ops->stats) {
        struct shunt__link_stats s;
        a.rail->ops->stats(&a.links[0].link, &s);
        ok(s.unacked > 0, "statistics show what is unacknowledged (%d)", (int)s.unacked);
    }
    forward(17 * SHUNT__S);
    is_int(b.links[0].n_frames + a.links[0].n_frames, 0, "still nothing");
    forward(SHUNT__S);
    ok(mock_until(&a, &b, b.links[0].n_frames == 1), "what was stuck gets out when it heals");
    ok(mock_until(&a, &b, a.links[0].n_frames == 1), "and in");
    close_both(1);

    if (!open_with("0 rail 0 blackhole", "seed 1"))
        return;
    mock_turns(&a, &b, 5);
    a.rail->ops->connect(a.rail, &a.links[0].link, b.address, b.address_len);
    forward(SHUNT__S);
    is_int(a.links[0].n_down, 0, "connecting into a black hole hangs");
    forward(5 * SHUNT__S);
    ok(mock_until(&a, &b, a.links[0].n_down == 1), "until it is given up: %s", a.links[0].why);
    a.rail->ops->connect(a.rail, &a.links[0].link, b.address, b.address_len);
    a.rail->ops->disconnect(&a.links[0].link);
    forward(10 * SHUNT__S);
    is_int(a.links[0].n_down, 1, "or disconnected");
    close_both(1);
}

/* How many of 400 frames arrive, in `pattern` which ones (for the first 64). */
static int arrivals(const char *script, uint64_t *pattern, int *damaged)
{
    int n;

    *pattern = 0;
    if (!open_with(script, "seed 1") || !mock_connect(&a, &b, 0))
        return -1;
    b.links[0].pattern = 0;
    for (uint64_t i = 0; i < 400; i++) {
        send_to_b(0, i, i % 7 ? 100 : 50000);
        if (i % 20 == 0)
            forward(SHUNT__MS);
    }
    for (int i = 0; i < 100; i++)
        forward(SHUNT__MS);
    *pattern = b.links[0].pattern;
    *damaged = b.links[0].n_damaged;
    n = b.links[0].n_frames;
    close_both(0);
    return n;
}

static void chances(void)
{
    uint64_t p1, p2, p3;
    int damaged, n;

    n = arrivals("seed 1; 0 rail 0 drop 30%", &p1, &damaged);
    ok(n > 400 * 0.55 && n < 400 * 0.85, "drop 30%%: %d of 400 arrive", n);
    is_int(arrivals("seed 1; 0 rail 0 drop 30%", &p2, &damaged), n, "the same seed drops as many");
    ok(p1 == p2, "and the same ones");
    arrivals("seed 2; 0 rail 0 drop 30%", &p3, &damaged);
    ok(p1 != p3, "another seed drops others");
    is_int(arrivals("0 rail 0 drop 100%", &p1, &damaged), 0, "drop 100%%: none arrives");
    is_int(arrivals("0 rail 0 duplicate 100%", &p1, &damaged), 800, "duplicate 100%%: all arrive twice");
    is_int(arrivals("0 rail 0 reorder 50%", &p1, &damaged), 400, "reorder: all arrive");
    is_int(arrivals("0 rail 0 corrupt 100%", &p1, &damaged), 0, "corrupt 100%%: none arrives whole");
    is_int(damaged, 400, "all are noticed");
    n = arrivals("0 rail 0 loss 10%; 0 rail 0 jitter 1ms", &p1, &damaged);
    ok(n > 0 && n < 400, "loss delays (%d of 400 after 100 ms)", n);
}

static void other_ends(void)
{
    if (!open_with("0 rail 0 header 100%", "seed 1") || !ok(mock_connect(&a, &b, 0), "header: a link comes up"))
        return;
    mock_turns(&a, &b, 5);
    send_to_b(0, 0, 100);
    ok(mock_until(&a, &b, a.links[0].n_down == 1 && b.links[0].n_down == 1), "a damaged header ends it: %s",
       a.links[0].why);
    is_int(b.links[0].n_frames, 0, "and the frame does not arrive");
    close_both(1);
    if (!open_with("#5 rail 0 cut; 1s rail 1 cut; 1s rail elsewhere:0 cut", "seed 1") ||
        !ok(mock_connect(&a, &b, 0), "count: a link comes up"))
        return;
    forward(2 * SHUNT__S);
    for (uint64_t i = 0; i < 4; i++)
        send_to_b(0, i, 100);
    forward(SHUNT__MS);
    ok(a.links[0].up, "it lives after four frames; other rails and hosts do not concern it");
    send_to_b(0, 4, 100);
    ok(mock_until(&a, &b, a.links[0].n_down == 1), "and is cut with the fifth: %s", a.links[0].why);
    close_both(1);
}

int main(void)
{
    static const char *const backends[] = {"loop", "sock"};

    grammar();
    is_int(mock_open(&a, 0, "loop", "", "", "1s rail 0 explode", NULL), SHUNT_ERR_FORMAT, "a bad script opens no rail");
    shunt__clock_replace(test_clock);
    for (int i = 0; i < 2; i++) {
        backend = backends[i];
        printf("# over %s\n", backend);
        late_frames();
        broken("cut", 0);
        broken("down", 1);
        black_hole();
        chances();
        other_ends();
    }
    return done();
}
