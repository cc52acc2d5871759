#pragma once
/* The writing side of a store; only the engine and tests use it. */
#include "controller/core/engine.h"
#include "controller/core/store.h"

/*
 * Parsed objects that are remembered, oldest first; shared by the stores of one engine.  Trimmed only
 * by parsed_trim(), so that what a callback borrowed stays while it runs.
 */
struct parsed_cache;
struct parsed_cache *parsed_cache_new(size_t max);
void parsed_cache_free(struct parsed_cache *c); /* after its stores */
void parsed_trim(struct parsed_cache *c);
void parsed_cache_empty(struct parsed_cache *c);

typedef void (*change_fn)(void *data, const struct change *change);

struct store *store_new(const struct store_kind *kind, struct parsed_cache *cache, change_fn fn, void *data);
void store_free(struct store *s);

/*
 * A state of an object, from the watch or as the answer to a write.  Older than what is known, or of an
 * object known to be deleted: ignored.  o is pruned in place and borrowed.  false: it was no object.
 */
bool store_put(struct store *s, json_t *o);
/* true: store_put would ignore this state of the object, but for marking it as listed. */
bool store_knows(const struct store *s, const char *ns, const char *name, const char *uid, uint64_t version);
/* The server said that this object (by name and uid) is gone. */
void store_gone(struct store *s, const json_t *o);
/* We deleted it: gone, and late events that still show it are ignored. */
void store_deleted_by_us(struct store *s, const char *ns, const char *name, const char *uid);

void store_list_begin(struct store *s);
void store_list_end(struct store *s, uint64_t version, bool rewound);

/* Bytes of object text kept, and shared parts. */
size_t store_bytes(const struct store *s);
size_t store_shared(const struct store *s);
