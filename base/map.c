#include "base/map.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Open addressing with linear probing; a removed slot keeps GONE until the next growth. */
struct slot {
    char *key;
    void *value;
    uint32_t hash;
};
struct map {
    struct slot *slots;
    size_t cap, used, filled; /* used = live keys, filled = live + gone */
};
static char gone_key;
#define GONE (&gone_key)

static uint32_t hash_text(const char *s)
{
    uint32_t h = 2166136261u; /* FNV-1a */

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

struct map *map_new(void)
{
    struct map *m = xcalloc(1, sizeof *m);

    m->cap = 16;
    m->slots = xcalloc(m->cap, sizeof *m->slots);
    return m;
}

void map_free(struct map *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key != GONE)
            free(m->slots[i].key);
    free(m->slots);
    free(m);
}

static struct slot *find(const struct map *m, const char *key, uint32_t hash)
{
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct slot *s = &m->slots[i];
        if (!s->key)
            return NULL;
        if (s->key != GONE && s->hash == hash && strcmp(s->key, key) == 0)
            return s;
    }
}

static void insert_raw(struct map *m, struct slot entry)
{
    size_t i = entry.hash & (m->cap - 1);

    while (m->slots[i].key)
        i = (i + 1) & (m->cap - 1);
    m->slots[i] = entry;
    m->used++;
    m->filled++;
}

static void grow(struct map *m)
{
    struct slot *old = m->slots;
    size_t old_cap = m->cap;

    m->cap = m->used * 4 < old_cap ? old_cap : old_cap * 2;
    m->slots = xcalloc(m->cap, sizeof *m->slots);
    m->used = m->filled = 0;
    for (size_t i = 0; i < old_cap; i++)
        if (old[i].key && old[i].key != GONE)
            insert_raw(m, old[i]);
    free(old);
}

void *map_get(const struct map *m, const char *key)
{
    struct slot *s = find(m, key, hash_text(key));

    return s ? s->value : NULL;
}

void *map_put(struct map *m, const char *key, void *value)
{
    assert(value);
    uint32_t hash = hash_text(key);
    struct slot *s = find(m, key, hash);

    if (s) {
        void *old = s->value;
        s->value = value;
        return old;
    }
    if ((m->filled + 1) * 4 > m->cap * 3)
        grow(m);
    insert_raw(m, (struct slot){.key = xstrdup(key), .value = value, .hash = hash});
    return NULL;
}

void *map_remove(struct map *m, const char *key)
{
    struct slot *s = find(m, key, hash_text(key));

    if (!s)
        return NULL;
    void *old = s->value;
    free(s->key);
    s->key = GONE;
    s->value = NULL;
    m->used--;
    return old;
}

size_t map_count(const struct map *m)
{
    return m->used;
}

int map_next(const struct map *m, size_t *cursor, const char **ret_key, void **ret_value)
{
    while (*cursor < m->cap) {
        struct slot *s = &m->slots[(*cursor)++];
        if (s->key && s->key != GONE) {
            if (ret_key)
                *ret_key = s->key;
            if (ret_value)
                *ret_value = s->value;
            return 1;
        }
    }
    return 0;
}
