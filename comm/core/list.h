/* SPDX-License-Identifier: BSD-3-Clause */
/* Circular doubly linked list; a node that is in no list points to itself. */
#ifndef SHUNT_CORE_LIST_H
#define SHUNT_CORE_LIST_H

#include <stddef.h>

struct shunt__list {
    struct shunt__list *next, *prev;
};

#define shunt__container(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void shunt__list_init(struct shunt__list *l)
{
    l->next = l->prev = l;
}

static inline int shunt__list_empty(const struct shunt__list *l)
{
    return l->next == l;
}

static inline void shunt__list_append(struct shunt__list *head, struct shunt__list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void shunt__list_remove(struct shunt__list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node->prev = node;
}

#endif
