/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64

void shunt__json_open(struct shunt__json *json, const char *text, size_t size)
{
    json->start = json->at = text;
    json->end = text + size;
    json->depth = json->bad = 0;
}

static void blanks(struct shunt__json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

char shunt__json_peek(struct shunt__json *json)
{
    blanks(json);
    if (json->bad || json->at == json->end || !*json->at || !strchr("{[\"tfn-0123456789", *json->at))
        return 0;
    return *json->at;
}

int shunt__json_enter(struct shunt__json *json, char kind)
{
    if (shunt__json_peek(json) != kind)
        return 0;
    if (json->depth == MAX_DEPTH) {
        json->bad = 1;
        return 0;
    }
    json->depth++;
    json->at++;
    return 1;
}

static int fail(struct shunt__json *json)
{
    json->bad = 1;
    return 0;
}

int shunt__json_next(struct shunt__json *json, char kind, int *first, char *key, size_t size)
{
    blanks(json);
    if (json->bad || json->at == json->end)
        return fail(json);
    if (*json->at == (kind == '{' ? '}' : ']')) {
        json->at++;
        json->depth--;
        return 0;
    }
    if (!*first) {
        if (*json->at != ',')
            return fail(json);
        json->at++;
    }
    *first = 0;
    if (kind == '{') {
        if (!shunt__json_string(json, key, size))
            return fail(json);
        blanks(json);
        if (json->at == json->end || *json->at != ':')
            return fail(json);
        json->at++;
    }
    return shunt__json_peek(json) ? 1 : fail(json);
}

int shunt__json_string(struct shunt__json *json, char *text, size_t size)
{
    size_t n = 0;

    if (shunt__json_peek(json) != '"')
        return 0;
    for (json->at++; json->at < json->end && *json->at != '"'; json->at++) {
        char c = *json->at;
        if (c == '\\') {
            if (++json->at == json->end)
                break;
            c = *json->at; /* names of ours hold no escapes: the character itself is near enough */
        }
        if (n + 1 < size)
            text[n++] = c;
    }
    if (size > 0)
        text[n] = 0;
    if (json->at == json->end)
        return fail(json);
    json->at++;
    return 1;
}

int shunt__json_number(struct shunt__json *json, double *value)
{
    char digits[48], *end, first = shunt__json_peek(json);
    size_t n = 0;

    if (first != '-' && (first < '0' || first > '9'))
        return 0;
    while (json->at < json->end && n + 1 < sizeof(digits) && strchr("+-.eE0123456789", *json->at) &&
           *json->at)
        digits[n++] = *json->at++;
    digits[n] = 0;
    *value = strtod(digits, &end);
    return *end || !isfinite(*value) ? fail(json) : 1;
}

void shunt__json_skip(struct shunt__json *json)
{
    char text[1], kind = shunt__json_peek(json);
    double number;
    int first = 1;

    if (kind == '{' || kind == '[') {
        if (!shunt__json_enter(json, kind))
            return;
        while (shunt__json_next(json, kind, &first, text, sizeof(text)))
            shunt__json_skip(json);
    } else if (kind == '"')
        shunt__json_string(json, text, sizeof(text));
    else if (kind == 't' || kind == 'f' || kind == 'n') {
        const char *word = kind == 't' ? "true" : kind == 'f' ? "false" : "null";
        if ((size_t)(json->end - json->at) < strlen(word) || memcmp(json->at, word, strlen(word)) != 0)
            json->bad = 1;
        else
            json->at += strlen(word);
    } else if (!kind || !shunt__json_number(json, &number))
        json->bad = 1;
}

int shunt__json_line(const struct shunt__json *json)
{
    int line = 1;

    for (const char *p = json->start; p < json->at; p++)
        line += *p == '\n';
    return line;
}
