/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/xml.h"
#include <libxml/parser.h>
#include <libxml/parserInternals.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"

#define MAX_ATTRIBUTES 256
#define MAX_VALUE 65536

struct reader {
    xmlParserCtxtPtr ctx;
    const char *name;
    struct shunt__arena *arena;
    struct shunt__xml *root, *at;
    unsigned n, depth;
    shunt_status_t status;
    char why[300];
    char *text;         /* of the innermost element */
    size_t n_text, room_text;
};

static pthread_once_t started = PTHREAD_ONCE_INIT;

static void start(void)
{
    xmlInitParser();
}

__attribute__((format(printf, 3, 4))) static void stop(struct reader *r, shunt_status_t status,
                                                       const char *fmt, ...)
{
    va_list ap;

    if (r->status != SHUNT_OK)
        return;
    r->status = status;
    va_start(ap, fmt);
    vsnprintf(r->why, sizeof(r->why), fmt, ap);
    va_end(ap);
    xmlStopParser(r->ctx);
}

/* libxml2 hands "&amp;" in attributes on as "&#38;" to those who resolve entities themselves. */
static const char *value(struct shunt__arena *arena, const char *text, size_t len)
{
    static const char coded[] = "&#38;";
    char *copy = (char *)(uintptr_t)shunt__arena_text(arena, text, len), *p = copy;

    while (!arena->failed && (p = strstr(p, coded))) {
        memmove(p + 1, p + strlen(coded), strlen(p + strlen(coded)) + 1);
        p++;
    }
    return copy;
}

static void on_start(void *arg, const xmlChar *local, const xmlChar *prefix, const xmlChar *uri,
                     int n_namespaces, const xmlChar **namespaces, int n_attributes, int n_defaulted,
                     const xmlChar **attributes)
{
    struct reader *r = arg;
    struct shunt__xml *x;

    if (r->status != SHUNT_OK)
        return;
    if (++r->n > SHUNT__MAX_OBJECTS) {
        stop(r, SHUNT_ERR_LIMIT, "more than %d elements", SHUNT__MAX_OBJECTS);
        return;
    }
    if (++r->depth > SHUNT__MAX_DEPTH) {
        stop(r, SHUNT_ERR_LIMIT, "elements nest deeper than %d levels", SHUNT__MAX_DEPTH);
        return;
    }
    if (n_attributes > MAX_ATTRIBUTES) {
        stop(r, SHUNT_ERR_LIMIT, "an element has more than %d attributes", MAX_ATTRIBUTES);
        return;
    }
    x = shunt__arena_get(r->arena, sizeof(*x));
    const char **list = shunt__arena_get(r->arena, ((size_t)n_attributes * 2 + 1) * sizeof(char *));
    if (r->arena->failed) {
        stop(r, SHUNT_ERR_NO_MEMORY, "no memory for it");
        return;
    }
    x->name = shunt__arena_text(r->arena, (const char *)local, SHUNT__MAX_NAME);
    x->text = "";
    x->line = (unsigned)xmlSAX2GetLineNumber(r->ctx);
    x->attribute = list;
    for (int i = 0; i < n_attributes; i++) { /* name, prefix, uri, start and end of the value */
        const char *from = (const char *)attributes[i * 5 + 3], *to = (const char *)attributes[i * 5 + 4];
        if (to - from > MAX_VALUE) {
            stop(r, SHUNT_ERR_LIMIT, "an attribute is longer than %d bytes", MAX_VALUE);
            return;
        }
        list[i * 2] = shunt__arena_text(r->arena, (const char *)attributes[i * 5], SHUNT__MAX_NAME);
        list[i * 2 + 1] = value(r->arena, from, (size_t)(to - from));
    }
    x->n_attributes = (unsigned)n_attributes;
    x->parent = r->at;
    if (!r->at)
        r->root = x;
    else if (r->at->last_child)
        r->at->last_child->next = x;
    else
        r->at->child = x;
    if (r->at)
        r->at->last_child = x;
    r->at = x;
    r->n_text = 0;
}

static void on_text(void *arg, const xmlChar *text, int len)
{
    struct reader *r = arg;

    if (r->status != SHUNT_OK || len <= 0 || !r->at || r->at->child)
        return;
    if (r->n_text + (size_t)len + 1 > r->room_text) {
        size_t room = (r->n_text + (size_t)len + 1) * 2;
        char *bigger = realloc(r->text, room);
        if (!bigger) {
            stop(r, SHUNT_ERR_NO_MEMORY, "no memory for it");
            return;
        }
        r->text = bigger;
        r->room_text = room;
    }
    memcpy(r->text + r->n_text, text, (size_t)len);
    r->n_text += (size_t)len;
}

static void on_end(void *arg, const xmlChar *local, const xmlChar *prefix, const xmlChar *uri)
{
    struct reader *r = arg;

    if (r->status != SHUNT_OK || !r->at)
        return;
    size_t from = 0;
    while (from < r->n_text && strchr(" \t\r\n", r->text[from]))
        from++;
    if (from < r->n_text && !r->at->child)
        r->at->text = shunt__arena_text(r->arena, r->text + from, r->n_text - from);
    r->n_text = 0;
    r->at = r->at->parent;
    r->depth--;
}

static void on_entity(void *arg, const xmlChar *name, int type, const xmlChar *public_id,
                      const xmlChar *system_id, xmlChar *content)
{
    stop(arg, SHUNT_ERR_FORMAT, "it declares the entity \"%.40s\", which no topology needs",
         (const char *)name);
}

static xmlEntityPtr on_get_entity(void *arg, const xmlChar *name)
{
    return xmlGetPredefinedEntity(name);
}

static void on_error(void *arg, xmlErrorPtr error)
{
    struct reader *r = arg;
    char text[200];

    if (!error || error->level < XML_ERR_ERROR || r->status != SHUNT_OK)
        return;
    snprintf(text, sizeof(text), "%.190s", error->message ? error->message : "not well-formed");
    text[strcspn(text, "\n")] = 0;
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || (unsigned char)*p > 126)
            *p = '?';
    stop(r, error->code == XML_ERR_NO_MEMORY ? SHUNT_ERR_NO_MEMORY : SHUNT_ERR_FORMAT, "line %d: %s",
         error->line, text);
}

/* An <?xml?> line must be the first thing for libxml2; files that were edited by hand have comments before
 * it. */
static const char *find_start(const char *data, const char *end)
{
    const char *p = data;

    if (end - p >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    for (;;) {
        while (p < end && strchr(" \t\r\n", *p) && *p)
            p++;
        if (end - p < 4 || memcmp(p, "<!--", 4) != 0)
            break;
        const char *close = memmem(p + 4, (size_t)(end - p - 4), "-->", 3);
        if (!close)
            break;
        p = close + 3;
    }
    return p;
}

shunt_status_t shunt__xml_parse(const char *name, const char *data, size_t size, struct shunt__arena *arena,
                                struct shunt__xml **root)
{
    static const int options = XML_PARSE_NONET | XML_PARSE_NOCDATA | XML_PARSE_NOERROR | XML_PARSE_NOWARNING;
    const char *end = data + size, *p = find_start(data, end);
    struct reader r = {.name = name, .arena = arena};
    xmlSAXHandler sax;

    if (p == end)
        return shunt__fail(SHUNT_ERR_FORMAT, "%s can't be read as a topology: there is nothing in it", name);
    pthread_once(&started, start);
    memset(&sax, 0, sizeof(sax));
    sax.initialized = XML_SAX2_MAGIC;
    sax.startElementNs = on_start;
    sax.endElementNs = on_end;
    sax.characters = on_text;
    sax.cdataBlock = on_text;
    sax.entityDecl = on_entity;
    sax.getEntity = on_get_entity;
    sax.serror = on_error;
    r.ctx = xmlCreatePushParserCtxt(&sax, &r, NULL, 0, NULL);
    if (!r.ctx)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to read %s", name);
    xmlCtxtUseOptions(r.ctx, options);
    while (p < end && r.status == SHUNT_OK) {
        int n = end - p > 65536 ? 65536 : (int)(end - p);
        if (xmlParseChunk(r.ctx, p, n, 0) && r.status == SHUNT_OK)
            stop(&r, SHUNT_ERR_FORMAT, "it is no XML");
        p += n;
    }
    if (r.status == SHUNT_OK && (xmlParseChunk(r.ctx, NULL, 0, 1) || !r.ctx->wellFormed))
        stop(&r, SHUNT_ERR_FORMAT, "it ends too early or is no XML");
    if (r.status == SHUNT_OK && !r.root)
        stop(&r, SHUNT_ERR_FORMAT, "it has no element");
    if (r.ctx->myDoc)
        xmlFreeDoc(r.ctx->myDoc);
    xmlFreeParserCtxt(r.ctx);
    free(r.text);
    if (r.status != SHUNT_OK)
        return shunt__fail(r.status, "%s can't be read as a topology: %s", name, r.why);
    *root = r.root;
    return SHUNT_OK;
}

const char *shunt__xml_get(const struct shunt__xml *x, const char *key)
{
    for (unsigned i = 0; i < x->n_attributes; i++)
        if (strcmp(x->attribute[i * 2], key) == 0)
            return x->attribute[i * 2 + 1];
    return NULL;
}
