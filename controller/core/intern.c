#include "controller/core/intern.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"

struct intern {
    struct atom **bucket;
    size_t n_buckets, count;
};

static uint64_t seed(void)
{
    static uint64_t value;

    if (!value)
        value = ((uint64_t)random_u32() << 32 | random_u32()) | 1;
    return value;
}

/* FNV-1a over the bytes, folded at the end (FNV's low bits alone are weak). */
uint64_t intern_hash(const void *data, size_t n, uint64_t more)
{
    const unsigned char *p = data;
    uint64_t h = seed() ^ more;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211ull;
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

struct intern *intern_new(void)
{
    struct intern *t = xcalloc(1, sizeof *t);

    t->n_buckets = 64;
    t->bucket = xcalloc(t->n_buckets, sizeof(struct atom *));
    return t;
}

static void atom_free(struct atom *a)
{
    json_decref(a->json);
    free(a);
}

void intern_free(struct intern *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_buckets; i++)
        for (struct atom *a = t->bucket[i], *next; a; a = next) {
            next = a->next;
            atom_free(a);
        }
    free(t->bucket);
    free(t);
}

static void grow(struct intern *t)
{
    size_t n = t->n_buckets * 2;
    struct atom **bucket = xcalloc(n, sizeof(struct atom *));

    for (size_t i = 0; i < t->n_buckets; i++)
        for (struct atom *a = t->bucket[i], *next; a; a = next) {
            next = a->next;
            a->next = bucket[a->hash & (n - 1)];
            bucket[a->hash & (n - 1)] = a;
        }
    free(t->bucket);
    t->bucket = bucket;
    t->n_buckets = n;
}

static struct atom *find(const struct intern *t, const char *text, size_t len, uint64_t hash)
{
    for (struct atom *a = t->bucket[hash & (t->n_buckets - 1)]; a; a = a->next)
        if (a->hash == hash && a->len == len && memcmp(a->text, text, len) == 0)
            return a;
    return NULL;
}

struct atom *intern_find(const struct intern *t, const char *text, size_t len)
{
    return find(t, text, len, intern_hash(text, len, 0));
}

struct atom *intern_hold(struct intern *t, const char *text, size_t len)
{
    uint64_t hash = intern_hash(text, len, 0);
    struct atom *a = find(t, text, len, hash);

    if (a) {
        a->refs++;
        return a;
    }
    if (t->count >= t->n_buckets)
        grow(t);
    a = xcalloc(1, sizeof *a + len + 1);
    memcpy(a->text, text, len);
    a->len = (uint32_t)len;
    a->hash = hash;
    a->refs = 1;
    list_init(&a->links);
    a->next = t->bucket[hash & (t->n_buckets - 1)];
    t->bucket[hash & (t->n_buckets - 1)] = a;
    t->count++;
    return a;
}

void intern_drop(struct intern *t, struct atom *a)
{
    if (--a->refs > 0)
        return;
    struct atom **at = &t->bucket[a->hash & (t->n_buckets - 1)];
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    t->count--;
    atom_free(a);
}

size_t intern_count(const struct intern *t)
{
    return t->count;
}
