/* SPDX-License-Identifier: BSD-3-Clause */
/* XML from strangers into a small tree: elements, attributes, and the text of those that have some. */
#ifndef SHUNT_TOPO_XML_H
#define SHUNT_TOPO_XML_H

#include "topo/model.h"

struct shunt__xml {
    const char *name;
    unsigned n_attributes;
    const char **attribute; /* key, value, key, value */
    const char *text;       /* "" if none */
    unsigned line;
    struct shunt__xml *parent, *child, *last_child, *next;
};

/*
 * Nothing is fetched, no entity is declared or expanded; at most SHUNT__MAX_OBJECTS elements,
 * SHUNT__MAX_DEPTH levels, 256 attributes an element, 64 KiB an attribute. Blanks and comments before an
 * <?xml?> line are passed over. The tree lives in `arena`. `name` is for error texts.
 */
shunt_status_t shunt__xml_parse(const char *name, const char *data, size_t size, struct shunt__arena *arena,
                                struct shunt__xml **root);

/* The attribute's value or NULL. */
const char *shunt__xml_get(const struct shunt__xml *x, const char *key);

#endif
