#pragma once
/* Intrusive doubly linked list; a head is a node that points to itself when empty. */
#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"

struct list {
    struct list *next, *prev;
};
#define LIST_INIT(name)                                                                                      \
    {                                                                                                        \
        &(name), &(name)                                                                                     \
    }

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}
static inline bool list_is_empty(const struct list *l)
{
    return l->next == l;
}
static inline void list_append(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}
/* Safe to call again: the node then points to itself. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}
#define LIST_ENTRY(node, type, member) CONTAINER_OF(node, type, member)
/* The current node may be removed in the body. */
#define LIST_FOREACH(node, head)                                                                             \
    for (struct list *node = (head)->next, *node##_next = node->next; node != (head);                        \
         node = node##_next, node##_next = node->next)
