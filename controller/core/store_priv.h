#pragma once
/* The inside of a store: store.c reads it, store_feed.c writes it. */
#include "base/list.h"
#include "controller/core/intern.h"
#include "controller/core/parsed.h"
#include "controller/core/store_feed.h"

struct map;

#define SHARE_MAX 4

struct link {
    struct list node; /* on the atom's links */
    struct object *object;
    struct atom *value;
    uint8_t index;
};

/*
 * One allocation: this head, the digest, "ns\0name\0uid\0", and the JSON text without what the head
 * knows (names, uid, version) and without the shared parts.
 */
struct object {
    struct object *next; /* in its hash bucket */
    struct store *store;
    struct parsed *parsed;
    struct link *links;
    struct atom *share[SHARE_MAX];
    uint64_t hash, version;
    uint32_t mark; /* the list it was last seen in */
    uint32_t text_len;
    uint16_t name_at, uid_at, text_at, n_links; /* offsets into data */
    char data[] __attribute__((aligned(8)));
};

struct store {
    const struct store_kind *kind;
    struct parsed_cache *cache;
    change_fn fn;
    void *data;
    struct object **bucket;
    size_t n_buckets, count, bytes;
    struct intern *index[STORE_INDEX_MAX];
    struct intern *shared;
    struct map *tombstones; /* uid -> struct tombstone */
    uint32_t mark;
    bool synced;
};

size_t digest_room(const struct store *s);
uint64_t object_hash(const char *ns, const char *name);
struct object *store_find(const struct store *s, const char *ns, const char *name);
