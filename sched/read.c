/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading schedules: Shunt's own form, JSON, PyTorch's CSV. All of it may come from anywhere, so sizes are
 * bounded before anything is allocated for them.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/json.h"
#include "sched/sched.h"

#define MAX_READ_OPS (64u << 20)

/* What is being put together: operations of one stage behind the other's. */
struct reading {
    int p, m, v, vee, have_ops;
    int *counts;
    shunt_sched_op_t *ops;
    size_t n, room;
    shunt_sched_kind_t kind;
};

static void drop(struct reading *r)
{
    free(r->counts);
    free(r->ops);
}

static shunt_status_t add(struct reading *r, int stage, shunt_sched_op_t op)
{
    if (r->n == r->room) {
        size_t room = r->room ? 2 * r->room : 256;
        shunt_sched_op_t *more = room > MAX_READ_OPS ? NULL : realloc(r->ops, room * sizeof(*more));
        if (!more)
            return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a schedule of more than %zu operations",
                               r->n);
        r->ops = more;
        r->room = room;
    }
    r->ops[r->n++] = op;
    r->counts[stage]++;
    return SHUNT_OK;
}

static shunt_status_t set_stages(struct reading *r, int stages)
{
    r->counts = stages >= 1 && stages <= SHUNT_SCHED_MAX_STAGES ? calloc((size_t)stages, sizeof(int)) : NULL;
    if (!r->counts)
        return shunt__fail(SHUNT_ERR_FORMAT, "%d stages: expected 1 to %d", stages, SHUNT_SCHED_MAX_STAGES);
    r->p = stages;
    return SHUNT_OK;
}

static shunt_status_t finish(struct reading *r, shunt_sched_t **schedule)
{
    shunt_sched_t *s;
    shunt_status_t st = shunt_sched_create_custom(r->p, r->v, r->m, r->vee, r->counts, r->ops, &s);

    if (st == SHUNT_ERR_INVALID)
        st = SHUNT_ERR_FORMAT; /* numbers of the file, not of the caller */
    if (st != SHUNT_OK)
        return st;
    s->kind = r->kind;
    *schedule = s;
    return SHUNT_OK;
}

/* A whole number without sign at *text, moved behind it; -1 if there is none or it is beyond any use. */
static int number(const char **text, const char *end)
{
    int value = 0;
    const char *p = *text;

    if (p == end || *p < '0' || *p > '9')
        return -1;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        value = 10 * value + (*p - '0');
        if (value > SHUNT_SCHED_MAX_MICROBATCHES)
            return -1;
    }
    *text = p;
    return value;
}

static int type_of(char letter)
{
    const char *all = "FBIW", *at = letter ? strchr(all, letter) : NULL;

    return at ? (int)(at - all) : -1;
}

/* "F3" or "F3.1". */
static int own_op(const char *text, const char *end, shunt_sched_op_t *op)
{
    int type = text < end ? type_of(*text) : -1;

    if (type < 0)
        return -1;
    text++;
    op->type = (shunt_sched_type_t)type;
    op->microbatch = number(&text, end);
    op->chunk = 0;
    if (text < end && *text == '.') {
        text++;
        op->chunk = number(&text, end);
    }
    return text == end && op->microbatch >= 0 && op->chunk >= 0 ? 0 : -1;
}

/* The next line, without its end; *at is moved behind it. */
static int next_line(const char **at, const char *end, const char **line, const char **line_end)
{
    if (*at >= end)
        return 0;
    *line = *at;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    *at = stop ? stop + 1 : end;
    *line_end = stop ? stop : end;
    if (*line_end > *line && (*line_end)[-1] == '\r')
        --*line_end;
    return 1;
}

static int word(const char **at, const char *end, const char **start)
{
    while (*at < end && (**at == ' ' || **at == '\t'))
        ++*at;
    *start = *at;
    while (*at < end && **at != ' ' && **at != '\t')
        ++*at;
    return *at > *start;
}

static int is(const char *start, const char *end, const char *text)
{
    return (size_t)(end - start) == strlen(text) && memcmp(start, text, strlen(text)) == 0;
}

static shunt_status_t own_header(struct reading *r, const char *name, const char *name_end, const char *at,
                                 const char *end, int line)
{
    const char *value, *stop;
    int n;

    if (!word(&at, end, &value))
        return shunt__fail(SHUNT_ERR_FORMAT, "line %d: a value is missing", line);
    stop = at;
    if (is(name, name_end, "kind")) {
        char kind[24];
        size_t len = (size_t)(stop - value);
        if (len < sizeof(kind)) {
            memcpy(kind, value, len);
            kind[len] = 0;
            if (shunt_sched_kind_from_name(kind, &r->kind) == SHUNT_OK)
                return SHUNT_OK;
        }
        return shunt__fail(SHUNT_ERR_FORMAT, "line %d: no kind of schedule has this name", line);
    }
    if (is(name, name_end, "placement")) {
        r->vee = is(value, stop, "vee");
        return r->vee || is(value, stop, "loop")
                   ? SHUNT_OK
                   : shunt__fail(SHUNT_ERR_FORMAT, "line %d: placement is loop or vee", line);
    }
    n = number(&value, stop);
    if (value != stop || n < 1)
        return shunt__fail(SHUNT_ERR_FORMAT, "line %d: expected a number from 1", line);
    if (is(name, name_end, "stages") && !r->counts)
        return set_stages(r, n);
    if (is(name, name_end, "microbatches"))
        r->m = n;
    else if (is(name, name_end, "chunks") && n <= SHUNT_SCHED_MAX_CHUNKS)
        r->v = n;
    else
        return shunt__fail(SHUNT_ERR_FORMAT,
                           "line %d: expected kind, stages, microbatches, chunks or placement", line);
    return SHUNT_OK;
}

static shunt_status_t read_own(struct reading *r, const char *text, size_t size)
{
    const char *at = text, *end = text + size, *line, *line_end, *start;
    int n = 0, stage = 0;

    while (next_line(&at, end, &line, &line_end)) {
        n++;
        if (!word(&line, line_end, &start) || *start == '#')
            continue;
        if (n == 1) {
            if (!is(start, line, "shunt-schedule") || !word(&line, line_end, &start) || !is(start, line, "1"))
                return shunt__fail(SHUNT_ERR_FORMAT, "line 1: expected \"shunt-schedule 1\"");
            continue;
        }
        if (*start < '0' || *start > '9') {
            shunt_status_t st = own_header(r, start, line, line, line_end, n);
            if (st != SHUNT_OK)
                return st;
            continue;
        }
        if (!r->counts || number(&start, line) != stage || start + 1 != line || *start != ':' ||
            stage >= r->p)
            return shunt__fail(SHUNT_ERR_FORMAT,
                               "line %d: expected the operations of stage %d, as \"%d: F0 B0 ...\"", n, stage,
                               stage);
        while (word(&line, line_end, &start)) {
            shunt_sched_op_t op;
            if (own_op(start, line, &op) != 0)
                return shunt__fail(SHUNT_ERR_FORMAT,
                                   "line %d: \"%.*s\" is no operation; they look like F0, B0, I0, W0, F0.1",
                                   n, line - start > 20 ? 20 : (int)(line - start), start);
            shunt_status_t st = add(r, stage, op);
            if (st != SHUNT_OK)
                return st;
        }
        stage++;
    }
    if (n == 0 || !r->counts || r->m < 1 || stage != r->p)
        return shunt__fail(SHUNT_ERR_FORMAT, "the schedule ends after %d of %d stages", stage, r->p);
    return SHUNT_OK;
}

static shunt_status_t json_operations(struct reading *r, struct shunt__json *json)
{
    int outer = 1, stage = 0;
    char text[32];

    if (r->have_ops || !r->counts || !shunt__json_enter(json, '['))
        return shunt__fail(SHUNT_ERR_FORMAT, "line %d: operations is an array behind the number of stages",
                           shunt__json_line(json));
    r->have_ops = 1;
    for (; shunt__json_next(json, '[', &outer, NULL, 0); stage++) {
        int inner = 1;
        if (stage >= r->p || !shunt__json_enter(json, '['))
            return shunt__fail(SHUNT_ERR_FORMAT, "line %d: expected %d arrays of operations",
                               shunt__json_line(json), r->p);
        while (shunt__json_next(json, '[', &inner, NULL, 0)) {
            shunt_sched_op_t op;
            if (!shunt__json_string(json, text, sizeof(text)) || own_op(text, text + strlen(text), &op) != 0)
                return shunt__fail(SHUNT_ERR_FORMAT, "line %d: expected an operation such as \"F0\"",
                                   shunt__json_line(json));
            shunt_status_t st = add(r, stage, op);
            if (st != SHUNT_OK)
                return st;
        }
    }
    return SHUNT_OK;
}

static shunt_status_t read_json(struct reading *r, const char *text, size_t size)
{
    struct shunt__json json;
    char key[32], value[32];
    int first = 1;

    shunt__json_open(&json, text, size);
    if (!shunt__json_enter(&json, '{'))
        return shunt__fail(SHUNT_ERR_FORMAT, "a schedule in JSON is one object");
    while (shunt__json_next(&json, '{', &first, key, sizeof(key))) {
        double n = 0;
        shunt_status_t st = SHUNT_OK;
        if (strcmp(key, "operations") == 0)
            st = json_operations(r, &json);
        else if (strcmp(key, "placement") == 0 && shunt__json_string(&json, value, sizeof(value)))
            r->vee = strcmp(value, "vee") == 0;
        else if (strcmp(key, "kind") == 0 && shunt__json_string(&json, value, sizeof(value))) {
            if (shunt_sched_kind_from_name(value, &r->kind) != SHUNT_OK)
                r->kind = SHUNT_SCHED_CUSTOM;
        } else if (strcmp(key, "stages") == 0 || strcmp(key, "microbatches") == 0 ||
                   strcmp(key, "chunks") == 0) {
            if (!shunt__json_number(&json, &n) || n < 1 || n > SHUNT_SCHED_MAX_MICROBATCHES || n != (int)n)
                return shunt__fail(SHUNT_ERR_FORMAT, "line %d: %s is a number from 1",
                                   shunt__json_line(&json), key);
            if (*key == 'm')
                r->m = (int)n;
            else if (*key == 'c' && n <= SHUNT_SCHED_MAX_CHUNKS)
                r->v = (int)n;
            else if (!r->counts)
                st = set_stages(r, (int)n);
        } else
            shunt__json_skip(&json);
        if (st != SHUNT_OK)
            return st;
    }
    if (json.bad || !r->have_ops || r->m < 1)
        return shunt__fail(SHUNT_ERR_FORMAT, "line %d: %s", shunt__json_line(&json),
                           json.bad ? "this is not JSON" : "stages, microbatches and operations are needed");
    return SHUNT_OK;
}

/* One cell of PyTorch's table: 1 a computation, 0 a blank or what the runtime does besides, -1 none of these.
 */
static int torch_cell(const char *at, const char *end, int *position, shunt_sched_op_t *op)
{
    int type;

    while (at < end && *at == ' ')
        at++;
    while (at < end && end[-1] == ' ')
        end--;
    if (at == end)
        return 0;
    *position = number(&at, end);
    if (*position < 0 || at == end)
        return -1;
    if (end - at > 10 && memcmp(at, "WAIT_SEND_", 10) == 0)
        at += 5;
    if (is(at, end, "UNSHARD") || is(at, end, "RESHARD") || is(at, end, "REDUCE_GRAD") ||
        is(at, end, "WAIT_REDUCE_GRAD"))
        return 0;
    if (end - at > 6 && (memcmp(at, "SEND_", 5) == 0 || memcmp(at, "RECV_", 5) == 0)) {
        at += 5;
        type = type_of(*at++);
        return (type == SHUNT_SCHED_F || type == SHUNT_SCHED_B) && number(&at, end) >= 0 && at == end ? 0
                                                                                                      : -1;
    }
    type = type_of(*at++);
    if (type < 0)
        return -1;
    op->type = (shunt_sched_type_t)type;
    op->microbatch = number(&at, end);
    return op->microbatch >= 0 && at == end ? 1 : -1;
}

static shunt_status_t read_torch(struct reading *r, const char *text, size_t size)
{
    const char *at = text, *end = text + size, *line, *line_end;
    int rows = 0, row = 0, most = 0, loop = 1, vee = 1;

    while (next_line(&at, end, &line, &line_end))
        rows += line_end > line;
    if (rows == 0)
        return shunt__fail(SHUNT_ERR_FORMAT, "the table has no rows");
    shunt_status_t st = set_stages(r, rows);
    for (at = text; st == SHUNT_OK && next_line(&at, end, &line, &line_end);) {
        if (line_end == line)
            continue;
        for (int column = 1; st == SHUNT_OK && line <= line_end; column++) {
            const char *stop = memchr(line, ',', (size_t)(line_end - line));
            int position = 0;
            shunt_sched_op_t op;
            stop = stop ? stop : line_end;
            int kind = torch_cell(line, stop, &position, &op);
            if (kind < 0)
                st = shunt__fail(SHUNT_ERR_FORMAT,
                                 "row %d, column %d: \"%.*s\" is no cell such as 0F0, 1I2, 1SEND_F2", row,
                                 column, stop - line > 20 ? 20 : (int)(stop - line), line);
            else if (kind > 0) {
                op.chunk = position / rows;
                loop &= shunt__sched_stage_of(rows, 0, position) == row;
                vee &= shunt__sched_stage_of(rows, 1, position) == row;
                if (op.chunk >= SHUNT_SCHED_MAX_CHUNKS)
                    st = shunt__fail(SHUNT_ERR_FORMAT, "row %d, column %d: stage %d of %d ranks", row, column,
                                     position, rows);
                else if (!loop && !vee)
                    st = shunt__fail(
                        SHUNT_ERR_FORMAT,
                        "row %d, column %d: stage %d is on this rank; with %d ranks that is neither "
                        "the loop placement nor the V",
                        row, column, position, rows);
                else
                    st = add(r, row, op);
                r->m = op.microbatch + 1 > r->m ? op.microbatch + 1 : r->m;
                most = op.chunk > most ? op.chunk : most;
            }
            line = stop + 1;
        }
        row++;
    }
    r->v = most + 1;
    r->vee = !loop;
    if (st == SHUNT_OK && r->m < 1)
        st = shunt__fail(SHUNT_ERR_FORMAT, "the table has no operations");
    return st;
}

shunt_status_t shunt_sched_read(const char *text, size_t size, shunt_sched_format_t format,
                                shunt_sched_t **schedule)
{
    struct reading r = {.v = 1, .kind = SHUNT_SCHED_CUSTOM};
    shunt_status_t st;

    if (!text || !schedule)
        return shunt__fail(SHUNT_ERR_INVALID, "read: text or result is NULL");
    switch (format) {
    case SHUNT_SCHED_TEXT:
        st = read_own(&r, text, size);
        break;
    case SHUNT_SCHED_JSON:
        st = read_json(&r, text, size);
        break;
    case SHUNT_SCHED_PYTORCH:
    case SHUNT_SCHED_PYTORCH_COMMS:
    case SHUNT_SCHED_PYTORCH_PLAIN:
        st = read_torch(&r, text, size);
        break;
    default:
        return shunt__fail(SHUNT_ERR_INVALID, "read: no format %d", (int)format);
    }
    if (st == SHUNT_OK)
        st = finish(&r, schedule);
    drop(&r);
    return st;
}
