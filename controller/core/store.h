#pragma once
/*
 * Cache of the objects of one kind, fed by a watch and by the answers to our own writes.
 *
 * Compact: an object is kept as pruned JSON text and parsed when somebody looks at it (a small
 * number of parsed objects is remembered), because parsed trees are five to ten times larger.  What
 * a reconciler wants to read from thousands of objects at once (is the member ready? on which node?)
 * belongs in the digest: a fixed-size C struct made once per change and read without parsing.
 *
 * Lifetimes: `struct object *` and everything read from it (json, digest, strings) are borrowed and
 * good until the callback (reconcile, map, done) that looked them up returns.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "controller/kube/api.h"

struct store;
struct object;

/* Names the values under which an object is found; called for every version of it. */
struct index_values;
void index_add(struct index_values *v, const char *value); /* copied; NULL and duplicates are ignored */
typedef void (*index_fn)(const json_t *object, struct index_values *v);

struct store_index {
    const char *name;
    index_fn fn;
};
#define STORE_INDEX_MAX 4

/* How one kind is watched and kept; static const. */
struct store_kind {
    const struct kube_resource *resource;
    const char *ns;             /* only this namespace; NULL = all */
    const char *label_selector; /* as in a URL query, not escaped; NULL = all */
    const char *field_selector;
    const char *const *keep;  /* paths to keep, NULL-terminated (obj_prune); NULL = all but managedFields */
    const char *const *share; /* paths whose value many objects have in common (a pod spec made from one
                                 template): kept once.  At most 4 */
    struct store_index index[STORE_INDEX_MAX]; /* name NULL ends; looked up by position */
    size_t digest_size;
    void (*digest)(const json_t *object, void *out); /* out is zeroed; plain bytes, no pointers */
    bool optional; /* the resource may be missing on this cluster: counts as an empty list */
};

const struct object *store_get(const struct store *s, const char *ns, const char *name);
/* With this uid, or NULL: the name may have been taken by another object since. */
const struct object *store_get_uid(const struct store *s, const char *ns, const char *name, const char *uid);
const json_t *object_json(const struct object *o); /* never NULL; never modify it */
const void *object_digest(const struct object *o);
const char *object_ns(const struct object *o);
const char *object_name(const struct object *o);
const char *object_uid(const struct object *o);
uint64_t object_version(const struct object *o);

/* Objects under a value of index number i, in no order.  NULL ends: for (o = first; o; o = next). */
struct index_cursor {
    const void *next, *end;
};
const struct object *store_index_first(const struct store *s, int i, const char *value,
                                       struct index_cursor *c);
const struct object *store_index_next(struct index_cursor *c);
size_t store_index_count(const struct store *s, int i, const char *value);

size_t store_count(const struct store *s);
/* Every object, in no order: after NULL comes the first.  The store must not change meanwhile. */
const struct object *store_next(const struct store *s, const struct object *after);
const struct store_kind *store_kind(const struct store *s);
/* The first list is complete. */
bool store_is_synced(const struct store *s);
