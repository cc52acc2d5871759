#include "controller/core/parsed.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"
#include "controller/core/store_feed.h"

struct parsed {
    struct list node;
    json_t *value;
    struct parsed **owner;
};

struct parsed_cache {
    struct list oldest_first;
    size_t n, max;
};

struct parsed_cache *parsed_cache_new(size_t max)
{
    struct parsed_cache *c = xcalloc(1, sizeof *c);

    list_init(&c->oldest_first);
    c->max = max;
    return c;
}

void parsed_cache_free(struct parsed_cache *c)
{
    if (!c)
        return;
    parsed_cache_empty(c);
    free(c);
}

void parsed_cache_empty(struct parsed_cache *c)
{
    while (c->n > 0)
        parsed_drop(c, LIST_ENTRY(c->oldest_first.next, struct parsed, node));
}

void parsed_trim(struct parsed_cache *c)
{
    while (c->n > c->max)
        parsed_drop(c, LIST_ENTRY(c->oldest_first.next, struct parsed, node));
}

struct parsed *parsed_add(struct parsed_cache *c, json_t *value, struct parsed **owner)
{
    struct parsed *p = xcalloc(1, sizeof *p);

    p->value = value;
    p->owner = owner;
    list_append(&c->oldest_first, &p->node);
    c->n++;
    return p;
}

const json_t *parsed_use(struct parsed_cache *c, struct parsed *p)
{
    list_remove(&p->node);
    list_append(&c->oldest_first, &p->node);
    return p->value;
}

void parsed_drop(struct parsed_cache *c, struct parsed *p)
{
    if (!p)
        return;
    list_remove(&p->node);
    c->n--;
    *p->owner = NULL;
    json_decref(p->value);
    free(p);
}
