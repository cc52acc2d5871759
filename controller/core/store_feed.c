#include "controller/core/store_feed.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/map.h"
#include "controller/core/store_priv.h"
#include "controller/kube/object.h"

#define INDEX_VALUES_MAX 64
/* Longer than a watch can lag behind without being cut. */
#define TOMBSTONE_MS 300000

struct index_values {
    struct {
        uint8_t index;
        struct atom *atom;
    } item[INDEX_VALUES_MAX];
    size_t n;
    uint8_t index;
    struct store *store;
};

struct tombstone {
    int64_t until_ms;
};

/* ---- index ---- */

void index_add(struct index_values *v, const char *value)
{
    if (!value || v->n == INDEX_VALUES_MAX)
        return;
    struct intern *t = v->store->index[v->index];
    struct atom *a = intern_hold(t, value, strlen(value));
    for (size_t i = 0; i < v->n; i++)
        if (v->item[i].index == v->index && v->item[i].atom == a) {
            intern_drop(t, a);
            return;
        }
    v->item[v->n].index = v->index;
    v->item[v->n++].atom = a;
}

static void link_object(struct store *s, struct object *o, const json_t *json)
{
    struct index_values v = {.store = s};

    for (uint8_t i = 0; i < STORE_INDEX_MAX && s->kind->index[i].name; i++) {
        v.index = i;
        s->kind->index[i].fn(json, &v);
    }
    o->n_links = (uint16_t)v.n;
    o->links = v.n ? xcalloc(v.n, sizeof *o->links) : NULL;
    for (size_t i = 0; i < v.n; i++) {
        struct link *l = &o->links[i];
        *l = (struct link){.object = o, .value = v.item[i].atom, .index = v.item[i].index};
        list_append(&l->value->links, &l->node);
    }
}

static void unlink_object(struct store *s, struct object *o)
{
    for (size_t i = 0; i < o->n_links; i++) {
        list_remove(&o->links[i].node);
        intern_drop(s->index[o->links[i].index], o->links[i].value);
    }
    free(take(o->links));
    o->n_links = 0;
}

/* ---- table ---- */

static void grow(struct store *s)
{
    size_t n = s->n_buckets * 2;
    struct object **bucket = xcalloc(n, sizeof(struct object *));

    for (size_t i = 0; i < s->n_buckets; i++)
        for (struct object *o = s->bucket[i], *next; o; o = next) {
            next = o->next;
            o->next = bucket[o->hash & (n - 1)];
            bucket[o->hash & (n - 1)] = o;
        }
    free(s->bucket);
    s->bucket = bucket;
    s->n_buckets = n;
}

static void insert(struct store *s, struct object *o)
{
    if (s->count >= s->n_buckets)
        grow(s);
    o->next = s->bucket[o->hash & (s->n_buckets - 1)];
    s->bucket[o->hash & (s->n_buckets - 1)] = o;
    s->count++;
    s->bytes += o->text_len;
}

static void remove_from_table(struct store *s, struct object *o)
{
    struct object **at = &s->bucket[o->hash & (s->n_buckets - 1)];

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    s->count--;
    s->bytes -= o->text_len;
}

static void object_free(struct object *o)
{
    struct store *s = o->store;

    unlink_object(s, o);
    parsed_drop(s->cache, o->parsed);
    for (size_t i = 0; i < SHARE_MAX; i++)
        if (o->share[i])
            intern_drop(s->shared, o->share[i]);
    free(o);
}

static void tell(struct store *s, const struct object *old, const struct object *now)
{
    struct change c = {.store = s, .old = old, .now = now};

    s->fn(s->data, &c);
}

static void remove_object(struct store *s, struct object *o)
{
    unlink_object(s, o);
    remove_from_table(s, o);
    tell(s, o, NULL);
    object_free(o);
}

/* ---- making an object ---- */

/* Takes the value at a dotted path out of o; NULL when absent.  The caller owns it. */
static json_t *cut_out(json_t *o, const char *path)
{
    const char *dot = strrchr(path, '.');
    scoped_free char *parent = dot ? xstrndup(path, (size_t)(dot - path)) : xstrdup("");
    json_t *at = dot ? obj_at(o, parent) : o;
    json_t *value = json_incref(json_object_get(at, dot ? dot + 1 : path));

    if (value)
        json_object_del(at, dot ? dot + 1 : path);
    return value;
}

static struct atom *share_part(struct store *s, json_t *value)
{
    if (!value)
        return NULL;
    scoped_free char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    struct atom *a = intern_hold(s->shared, text, strlen(text));
    if (a->refs > 1 && !a->json)
        a->json = json_incref(value); /* a second user: parsed forms will share this one */
    return a;
}

/* What the head of the object holds is no part of its text: it is taken out, and put back. */
static const char *const head_fields[] = {"name", "namespace", "uid", "resourceVersion"};

static char *text_of(json_t *o)
{
    json_t *meta = json_object_get(o, "metadata"), *held[ARRAY_LEN(head_fields)];

    for (size_t i = 0; i < ARRAY_LEN(head_fields); i++) {
        held[i] = json_incref(json_object_get(meta, head_fields[i]));
        json_object_del(meta, head_fields[i]);
    }
    char *text = json_dumps(o, JSON_COMPACT);
    for (size_t i = 0; i < ARRAY_LEN(head_fields); i++)
        if (held[i])
            json_object_set_new(meta, head_fields[i], held[i]);
    return text;
}

/* NULL: no object that this store can hold.  o is the same afterwards, but for the order of its members. */
static struct object *make(struct store *s, json_t *o)
{
    const char *ns = obj_ns(o), *name = obj_name(o), *uid = obj_uid(o);
    size_t room = digest_room(s), ns_len = strlen(ns) + 1, name_len = strlen(name) + 1,
           uid_len = strlen(uid) + 1;
    uint64_t hash = object_hash(ns, name), version = obj_version_number(o);

    if (room + ns_len + name_len + uid_len > UINT16_MAX)
        return NULL;
    struct object head = {.store = s, .hash = hash, .version = version, .mark = s->mark};
    head.name_at = (uint16_t)(room + ns_len);
    head.uid_at = (uint16_t)(head.name_at + name_len);
    head.text_at = (uint16_t)(head.uid_at + uid_len);
    char names[1024];
    if (ns_len + name_len + uid_len > sizeof names)
        return NULL;
    memcpy(names, ns, ns_len);
    memcpy(names + ns_len, name, name_len);
    memcpy(names + ns_len + name_len, uid, uid_len);

    json_t *cut[SHARE_MAX] = {NULL};
    for (size_t i = 0; i < SHARE_MAX && s->kind->share && s->kind->share[i]; i++) {
        cut[i] = cut_out(o, s->kind->share[i]);
        head.share[i] = share_part(s, cut[i]);
    }
    scoped_free char *text = text_of(o);
    for (size_t i = 0; i < SHARE_MAX; i++)
        if (cut[i])
            obj_set(o, s->kind->share[i], cut[i]);
    head.text_len = (uint32_t)strlen(text);
    struct object *made = xcalloc(1, sizeof *made + head.text_at + head.text_len + 1);
    memcpy(made, &head, sizeof head);
    memcpy(made->data + room, names, ns_len + name_len + uid_len);
    memcpy(made->data + head.text_at, text, head.text_len);
    return made;
}

static bool is_same(const struct object *a, const struct object *b)
{
    return a->text_len == b->text_len && memcmp(a->share, b->share, sizeof a->share) == 0 &&
           memcmp(a->data + a->text_at, b->data + b->text_at, a->text_len) == 0;
}

/* ---- tombstones ---- */

static bool is_tombstoned(struct store *s, const char *uid)
{
    struct tombstone *t = map_get(s->tombstones, uid);

    if (t && t->until_ms < clock_mono_ms()) {
        free(map_remove(s->tombstones, uid));
        t = NULL;
    }
    return t != NULL;
}

static void expire_tombstones(struct store *s)
{
    size_t cursor = 0;
    const char *uid;
    void *t;

    while (map_next(s->tombstones, &cursor, &uid, &t)) {
        if (((struct tombstone *)t)->until_ms >= clock_mono_ms())
            continue;
        map_remove(s->tombstones, uid);
        free(t);
    }
}

/* ---- interface ---- */

bool store_put(struct store *s, json_t *o)
{
    const char *name = obj_name(o), *uid = obj_uid(o);
    uint64_t version = obj_version_number(o);

    if (!name || !uid)
        return false;
    struct object *old = store_find(s, obj_ns(o), name);
    if (old && version <= old->version && version != 0) {
        if (strcmp(object_uid(old), uid) == 0)
            old->mark = s->mark;
        return true;
    }
    if (is_tombstoned(s, uid))
        return true;
    if (old && strcmp(object_uid(old), uid) != 0) {
        remove_object(s, old); /* another object by the same name: the old one is gone */
        old = NULL;
    }

    obj_prune(o, s->kind->keep);
    struct object *now = make(s, o);
    if (!now)
        return false;
    if (old && is_same(old, now)) { /* only what we do not keep has changed */
        old->version = version;
        old->mark = s->mark;
        parsed_drop(s->cache, old->parsed);
        object_free(now);
        return true;
    }
    if (s->kind->digest)
        s->kind->digest(o, now->data);
    if (old) {
        unlink_object(s, old);
        remove_from_table(s, old);
    }
    insert(s, now);
    link_object(s, now, o);
    now->parsed = parsed_add(s->cache, json_incref(o), &now->parsed);
    tell(s, old, now);
    if (old)
        object_free(old);
    return true;
}

bool store_knows(const struct store *s, const char *ns, const char *name, const char *uid, uint64_t version)
{
    const struct object *o = store_find(s, ns, name);

    return o && version <= o->version && strcmp(object_uid(o), uid) == 0;
}

void store_gone(struct store *s, const json_t *o)
{
    const char *name = obj_name(o), *uid = obj_uid(o);

    if (!name || !uid)
        return;
    free(map_remove(s->tombstones, uid));
    struct object *old = store_find(s, obj_ns(o), name);
    if (old && strcmp(object_uid(old), uid) == 0)
        remove_object(s, old);
}

void store_deleted_by_us(struct store *s, const char *ns, const char *name, const char *uid)
{
    if (!uid)
        return;
    struct tombstone *t = xcalloc(1, sizeof *t);
    t->until_ms = clock_mono_ms() + TOMBSTONE_MS;
    free(map_put(s->tombstones, uid, t));
    struct object *old = store_find(s, ns ? ns : "", name);
    if (old && strcmp(object_uid(old), uid) == 0)
        remove_object(s, old);
}

void store_list_begin(struct store *s)
{
    s->mark++;
}

/*
 * What was not listed is gone, but for objects that we made while the list was on its way: they are
 * newer than the list.
 */
void store_list_end(struct store *s, uint64_t version, bool rewound)
{
    for (size_t i = 0; i < s->n_buckets; i++)
        for (struct object *o = s->bucket[i], *next; o; o = next) {
            next = o->next;
            if (o->mark != s->mark && (rewound || o->version <= version))
                remove_object(s, o);
            else if (rewound)
                o->version = 0; /* whatever comes next is newer */
        }
    expire_tombstones(s);
    s->synced = true;
}

struct store *store_new(const struct store_kind *kind, struct parsed_cache *cache, change_fn fn, void *data)
{
    struct store *s = xcalloc(1, sizeof *s);

    s->kind = kind;
    s->cache = cache;
    s->fn = fn;
    s->data = data;
    s->n_buckets = 64;
    s->bucket = xcalloc(s->n_buckets, sizeof(struct object *));
    for (size_t i = 0; i < STORE_INDEX_MAX && kind->index[i].name; i++)
        s->index[i] = intern_new();
    s->shared = intern_new();
    s->tombstones = map_new();
    return s;
}

void store_free(struct store *s)
{
    size_t cursor = 0;
    void *t;

    if (!s)
        return;
    for (size_t i = 0; i < s->n_buckets; i++)
        for (struct object *o = s->bucket[i], *next; o; o = next) {
            next = o->next;
            object_free(o);
        }
    while (map_next(s->tombstones, &cursor, NULL, &t))
        free(t);
    map_free(s->tombstones);
    for (size_t i = 0; i < STORE_INDEX_MAX; i++)
        intern_free(s->index[i]);
    intern_free(s->shared);
    free(s->bucket);
    free(s);
}
