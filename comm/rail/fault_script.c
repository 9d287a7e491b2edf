/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/rail/fault_script.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/config.h"
#include "comm/base/log.h"

#define WORDS 8
#define SCRIPT_MAX (1u << 20)

enum argument { NONE, TIME, RATE, CHANCE };

static const struct {
    const char *name;
    enum argument argument;
} actions[SHUNT__FAULT_ACTIONS] = {
    [SHUNT__FAULT_DOWN] = {"down", NONE},         [SHUNT__FAULT_CUT] = {"cut", NONE},
    [SHUNT__FAULT_BLACKHOLE] = {"blackhole", NONE}, [SHUNT__FAULT_UP] = {"up", NONE},
    [SHUNT__FAULT_CLEAR] = {"clear", NONE},       [SHUNT__FAULT_DELAY] = {"delay", TIME},
    [SHUNT__FAULT_JITTER] = {"jitter", TIME},     [SHUNT__FAULT_RATE] = {"rate", RATE},
    [SHUNT__FAULT_LOSS] = {"loss", CHANCE},       [SHUNT__FAULT_DROP] = {"drop", CHANCE},
    [SHUNT__FAULT_DUPLICATE] = {"duplicate", CHANCE}, [SHUNT__FAULT_REORDER] = {"reorder", CHANCE},
    [SHUNT__FAULT_CORRUPT] = {"corrupt", CHANCE}, [SHUNT__FAULT_HEADER] = {"header", CHANCE},
};

static const char *const wanted[] = {[NONE] = "nothing", [TIME] = "a time like 20ms", [RATE] = "a rate like 100mbit",
                                     [CHANCE] = "a probability like 5% or 0.05"};

struct parser {
    struct shunt__fault_script *script;
    int line, cap;
    char *word[WORDS];
    int n_words;
};

static shunt_status_t wrong(const struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static shunt_status_t wrong(const struct parser *p, const char *fmt, ...)
{
    char text[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return shunt__fail(SHUNT_ERR_FORMAT, "fault script, line %d: %s", p->line, text);
}

static int parse_time(const char *text, uint64_t *ns)
{
    int64_t v;

    if (shunt__config_parse(SHUNT__TIME, text, &v) || v > (int64_t)1000000 * 1000000000)
        return -1;
    *ns = (uint64_t)v;
    return 0;
}

static int parse_value(enum argument kind, const char *text, double *value)
{
    static const struct {
        const char *name;
        double factor;
    } rates[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"", 1}};
    char *end;
    uint64_t ns;
    double x;

    if (kind == TIME) {
        if (parse_time(text, &ns))
            return -1;
        *value = (double)ns;
        return 0;
    }
    x = strtod(text, &end);
    if (end == text || !isfinite(x) || x < 0)
        return -1;
    if (kind == CHANCE) {
        if (*end == '%') {
            x /= 100;
            end++;
        }
        if (*end || x > 1)
            return -1;
        *value = x;
        return 0;
    }
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        if (strcmp(end, rates[i].name) == 0) {
            *value = x * rates[i].factor;
            return *value > 1e15 ? -1 : 0;
        }
    return -1;
}

/* [HOST:]RAIL[@PEER] */
static int parse_target(char *text, struct shunt__fault_event *e)
{
    char *at = strchr(text, '@'), *colon, *host = (char *)"*", *peer = (char *)"*";

    if (at) {
        *at = 0;
        peer = at + 1;
    }
    colon = strchr(text, ':'); /* "mlx5_0:1" is a device: what is behind the last colon may be its port */
    if (colon && strchr(colon + 1, ':')) {
        *colon = 0;
        host = text;
        text = colon + 1;
    } else if (colon && !(colon[1] >= '0' && colon[1] <= '9' && strncmp(text, "mlx", 3) == 0)) {
        *colon = 0;
        host = text;
        text = colon + 1;
    }
    if (!*text || !*host || !*peer || strlen(text) >= SHUNT__FAULT_NAME || strlen(host) >= SHUNT__FAULT_NAME ||
        strlen(peer) >= SHUNT__FAULT_NAME)
        return -1;
    strcpy(e->host, host);
    strcpy(e->rail, text);
    strcpy(e->peer, peer);
    return 0;
}

static shunt_status_t add(struct parser *p, const struct shunt__fault_event *e)
{
    struct shunt__fault_script *s = p->script;
    struct shunt__fault_event *more;
    int i;

    if (s->n >= SHUNT__FAULT_EVENTS)
        return wrong(p, "more than %d events", SHUNT__FAULT_EVENTS);
    if (s->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 16;
        more = realloc(s->events, (size_t)p->cap * sizeof(*more));
        if (!more)
            return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a fault script");
        s->events = more;
    }
    for (i = s->n; i > 0 && s->events[i - 1].at > e->at; i--)
        s->events[i] = s->events[i - 1];
    s->events[i] = *e;
    s->n++;
    s->used |= 1u << e->action;
    return SHUNT_OK;
}

static shunt_status_t add_flaps(struct parser *p, struct shunt__fault_event *e)
{
    uint64_t down, up;
    char *end;
    unsigned long n = p->n_words == 7 ? strtoul(p->word[4], &end, 10) : 0;
    shunt_status_t st = SHUNT_OK;

    if (n < 1 || n > SHUNT__FAULT_EVENTS / 2 || *end || parse_time(p->word[5], &down) || parse_time(p->word[6], &up))
        return wrong(p, "flap takes how often, how long down, how long up: \"flap 20 300ms 1s\"");
    if (e->count)
        return wrong(p, "flap needs a time to begin at, not a number of frames");
    for (; n && st == SHUNT_OK; n--) {
        e->action = SHUNT__FAULT_DOWN;
        st = add(p, e);
        e->at += down;
        e->action = SHUNT__FAULT_UP;
        if (st == SHUNT_OK)
            st = add(p, e);
        e->at += up;
    }
    return st;
}

static shunt_status_t parse_rail(struct parser *p, struct shunt__fault_event *e)
{
    if (p->n_words < 4)
        return wrong(p, "expected: AT rail RAIL ACTION");
    if (parse_target(p->word[2], e))
        return wrong(p, "expected [HOST:]RAIL[@PEER], each shorter than %d characters", SHUNT__FAULT_NAME);
    if (strcmp(p->word[3], "flap") == 0)
        return add_flaps(p, e);
    for (int i = 0; i < SHUNT__FAULT_ACTIONS; i++) {
        if (strcmp(p->word[3], actions[i].name) != 0)
            continue;
        e->action = (enum shunt__fault_action)i;
        if (p->n_words != (actions[i].argument == NONE ? 4 : 5) ||
            (actions[i].argument != NONE && parse_value(actions[i].argument, p->word[4], &e->value)))
            return wrong(p, "%s takes %s", actions[i].name, wanted[actions[i].argument]);
        return add(p, e);
    }
    return wrong(p, "no action \"%.40s\"; there are down, cut, blackhole, up, clear, delay, jitter, rate, loss, drop, "
                    "duplicate, reorder, corrupt, header and flap", p->word[3]);
}

static shunt_status_t parse_partition(struct parser *p, struct shunt__fault_event *e)
{
    char *rest, *peer;
    shunt_status_t st = SHUNT_OK;

    if (p->n_words != 3)
        return wrong(p, "expected: AT partition PEER,PEER,...");
    for (peer = strtok_r(p->word[2], ",", &rest); peer && st == SHUNT_OK; peer = strtok_r(NULL, ",", &rest)) {
        if (strlen(peer) >= SHUNT__FAULT_NAME)
            return wrong(p, "a peer's name is shorter than %d characters", SHUNT__FAULT_NAME);
        strcpy(e->peer, peer);
        e->action = SHUNT__FAULT_BLACKHOLE;
        st = add(p, e);
    }
    return st;
}

static shunt_status_t parse_line(struct parser *p)
{
    struct shunt__fault_event e = {.host = "*", .rail = "*", .peer = "*"};
    const char *what = p->n_words > 1 ? p->word[1] : "";
    char *end;

    if (strcmp(p->word[0], "seed") == 0) {
        errno = 0;
        p->script->seed = p->n_words == 2 ? strtoull(p->word[1], &end, 0) : 0;
        if (p->n_words != 2 || *end || end == p->word[1] || errno || *p->word[1] == '-')
            return wrong(p, "seed takes a number");
        return SHUNT_OK;
    }
    if (p->word[0][0] == '#') {
        errno = 0;
        e.count = strtoull(p->word[0] + 1, &end, 10);
        if (*end || errno || e.count == 0 || p->word[0][1] == '-')
            return wrong(p, "\"%.40s\" is not a number of frames", p->word[0]);
        e.at = UINT64_MAX;
    } else if (parse_time(p->word[0], &e.at))
        return wrong(p, "\"%.40s\": expected a time like 500ms, a count like #100, or seed", p->word[0]);
    if (strcmp(what, "rail") == 0)
        return parse_rail(p, &e);
    if (strcmp(what, "partition") == 0)
        return parse_partition(p, &e);
    if (strcmp(what, "heal") == 0 && p->n_words == 2) {
        e.action = SHUNT__FAULT_CLEAR;
        return add(p, &e);
    }
    return wrong(p, "\"%.40s\": expected rail, partition or heal", what);
}

/* "#100" begins a count; "#" before anything else begins a comment. */
static int is_comment(const char *text)
{
    return text[0] == '#' && !(text[1] >= '0' && text[1] <= '9');
}

shunt_status_t shunt__fault_parse(const char *text, struct shunt__fault_script *script)
{
    struct shunt__fault_script s = {.seed = 1};
    struct parser p = {.script = &s, .line = 1};
    shunt_status_t st = SHUNT_OK;
    char *copy = strdup(text), *at = copy, *rest;

    if (!copy)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a fault script");
    while (st == SHUNT_OK && *at) {
        char *begin = at + strspn(at, " \t\r"), *end = begin + strcspn(begin, is_comment(begin) ? "\n" : ";\n"), stop = *end;

        *end = 0;
        p.n_words = 0;
        if (!is_comment(begin))
            for (char *w = strtok_r(begin, " \t\r", &rest); w && st == SHUNT_OK; w = strtok_r(NULL, " \t\r", &rest)) {
                if (is_comment(w) && p.n_words) {
                    if (stop == ';') { /* the comment goes on to the end of the line */
                        end += 1 + strcspn(end + 1, "\n");
                        stop = *end;
                        *end = 0;
                    }
                    break;
                }
                if (p.n_words == WORDS)
                    st = wrong(&p, "too many words");
                else
                    p.word[p.n_words++] = w;
            }
        if (st == SHUNT_OK && p.n_words)
            st = parse_line(&p);
        p.line += stop == '\n';
        at = stop ? end + 1 : end;
    }
    free(copy);
    if (st != SHUNT_OK)
        free(s.events);
    else
        *script = s;
    return st;
}

shunt_status_t shunt__fault_load(const char *setting, struct shunt__fault_script *script)
{
    FILE *f = strpbrk(setting, " \t\n") ? NULL : fopen(setting, "re");
    shunt_status_t st;
    char *text;
    size_t n;

    if (!f)
        return shunt__fault_parse(setting, script);
    text = malloc(SCRIPT_MAX + 1);
    n = text ? fread(text, 1, SCRIPT_MAX + 1, f) : 0;
    fclose(f);
    if (!text)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a fault script");
    if (n > SCRIPT_MAX) {
        free(text);
        return shunt__fail(SHUNT_ERR_FORMAT, "fault script %s is longer than %u bytes", setting, SCRIPT_MAX);
    }
    text[n] = 0;
    st = shunt__fault_parse(text, script);
    free(text);
    return st;
}

void shunt__fault_free(struct shunt__fault_script *script)
{
    free(script->events);
    memset(script, 0, sizeof(*script));
}

char *shunt__fault_print(const struct shunt__fault_script *script)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    fprintf(f, "seed %llu\n", (unsigned long long)script->seed);
    for (int i = 0; i < script->n; i++) {
        const struct shunt__fault_event *e = &script->events[i];
        if (e->count)
            fprintf(f, "#%llu", (unsigned long long)e->count);
        else
            fprintf(f, "%lluns", (unsigned long long)e->at);
        fprintf(f, " rail %s:%s@%s %s", e->host, e->rail, e->peer, actions[e->action].name);
        if (actions[e->action].argument == TIME)
            fprintf(f, " %.0fns", e->value);
        else if (actions[e->action].argument != NONE)
            fprintf(f, " %.17g", e->value);
        fprintf(f, "\n");
    }
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}
