#include "controller/core/store_priv.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "controller/kube/object.h"

size_t digest_room(const struct store *s)
{
    return (s->kind->digest_size + 7) & ~(size_t)7; /* no larger alignment is needed by plain structs */
}

const char *object_ns(const struct object *o)
{
    return o->data + digest_room(o->store);
}

const char *object_name(const struct object *o)
{
    return o->data + o->name_at;
}

const char *object_uid(const struct object *o)
{
    return o->data + o->uid_at;
}

uint64_t object_version(const struct object *o)
{
    return o->version;
}

const void *object_digest(const struct object *o)
{
    return o->data;
}

uint64_t object_hash(const char *ns, const char *name)
{
    return intern_hash(name, strlen(name), intern_hash(ns, strlen(ns), 0));
}

struct object *store_find(const struct store *s, const char *ns, const char *name)
{
    uint64_t hash = object_hash(ns, name);

    for (struct object *o = s->bucket[hash & (s->n_buckets - 1)]; o; o = o->next)
        if (o->hash == hash && strcmp(object_name(o), name) == 0 && strcmp(object_ns(o), ns) == 0)
            return o;
    return NULL;
}

const struct object *store_get(const struct store *s, const char *ns, const char *name)
{
    return name ? store_find(s, ns ? ns : "", name) : NULL;
}

const struct object *store_get_uid(const struct store *s, const char *ns, const char *name, const char *uid)
{
    const struct object *o = store_get(s, ns, name);

    return o && uid && strcmp(object_uid(o), uid) == 0 ? o : NULL;
}

/* A shared part as a value of its own; remembered in the atom when several objects have it. */
static json_t *shared_json(struct atom *a)
{
    if (a->json)
        return json_incref(a->json);
    json_t *v = json_loadb(a->text, a->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (a->refs > 1)
        a->json = json_incref(v);
    return v;
}

static json_t *parse(const struct object *o)
{
    const struct store_kind *k = o->store->kind;
    json_t *v = json_loadb(o->data + o->text_at, o->text_len, JSON_ALLOW_NUL, NULL);
    char version[24];

    assert(v); /* we wrote this text */
    (void)snprintf(version, sizeof version, "%llu", (unsigned long long)o->version);
    obj_set(v, "metadata.name", json_string(object_name(o)));
    if (*object_ns(o))
        obj_set(v, "metadata.namespace", json_string(object_ns(o)));
    obj_set(v, "metadata.uid", json_string(object_uid(o)));
    obj_set(v, "metadata.resourceVersion", json_string(version));
    for (size_t i = 0; i < SHARE_MAX && k->share && k->share[i]; i++)
        if (o->share[i])
            obj_set(v, k->share[i], shared_json(o->share[i]));
    return v;
}

const json_t *object_json(const struct object *o)
{
    struct object *own =
        (struct object *)(uintptr_t)o; /* the memory of parsed forms is no part of the object's value */

    if (own->parsed)
        return parsed_use(o->store->cache, own->parsed);
    own->parsed = parsed_add(o->store->cache, parse(o), &own->parsed);
    return parsed_use(o->store->cache, own->parsed);
}

const struct object *store_index_first(const struct store *s, int i, const char *value,
                                       struct index_cursor *c)
{
    const struct atom *a = value && s->index[i] ? intern_find(s->index[i], value, strlen(value)) : NULL;

    *c = (struct index_cursor){.next = a ? a->links.next : NULL, .end = a ? &a->links : NULL};
    return store_index_next(c);
}

const struct object *store_index_next(struct index_cursor *c)
{
    if (c->next == c->end)
        return NULL;
    const struct list *node = c->next;
    c->next = node->next;
    return LIST_ENTRY((uintptr_t)node, struct link, node)->object;
}

size_t store_index_count(const struct store *s, int i, const char *value)
{
    const struct atom *a = value && s->index[i] ? intern_find(s->index[i], value, strlen(value)) : NULL;

    return a ? a->refs : 0;
}

size_t store_count(const struct store *s)
{
    return s->count;
}

const struct object *store_next(const struct store *s, const struct object *after)
{
    size_t i = 0;

    if (after) {
        if (after->next)
            return after->next;
        i = (after->hash & (s->n_buckets - 1)) + 1;
    }
    for (; i < s->n_buckets; i++)
        if (s->bucket[i])
            return s->bucket[i];
    return NULL;
}

const struct store_kind *store_kind(const struct store *s)
{
    return s->kind;
}

bool store_is_synced(const struct store *s)
{
    return s->synced;
}

size_t store_bytes(const struct store *s)
{
    return s->bytes;
}

size_t store_shared(const struct store *s)
{
    return intern_count(s->shared);
}
