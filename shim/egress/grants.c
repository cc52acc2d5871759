#include "shim/egress/grants.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"

struct grant {
    struct grant *next; /* in its bucket */
    struct ip ip;
    int64_t until_ms;
    char *name;
};
struct grants {
    struct grant **buckets;
    size_t n_buckets, n, max, sweep; /* sweep: the bucket where the search for room goes on */
    uint64_t seed;
};

struct grants *grants_new(size_t max)
{
    struct grants *g = xcalloc(1, sizeof *g);

    g->max = max;
    g->n_buckets = 256;
    g->buckets = xcalloc(g->n_buckets, sizeof *g->buckets);
    /* The addresses come from outside: a known hash would let a resolver fill one bucket. */
    if (getrandom(&g->seed, sizeof g->seed, 0) != sizeof g->seed)
        g->seed = (uint64_t)(uintptr_t)g;
    return g;
}

void grants_free(struct grants *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_buckets; i++)
        while (g->buckets[i]) {
            struct grant *next = g->buckets[i]->next;
            free(g->buckets[i]->name);
            free(g->buckets[i]);
            g->buckets[i] = next;
        }
    free(g->buckets);
    free(g);
}

static size_t bucket_of(const struct grants *g, const struct ip *ip)
{
    uint64_t h = g->seed ^ ip->family, word;

    for (int i = 0; i < 2; i++) { /* the finalizer of MurmurHash3: every bit of the input reaches every bit */
        memcpy(&word, ip->bytes + i * 8, 8);
        h ^= word;
        h = (h ^ h >> 33) * 0xff51afd7ed558ccdULL;
        h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ULL;
        h ^= h >> 33;
    }
    return h & (g->n_buckets - 1);
}

static bool same_ip(const struct ip *a, const struct ip *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static void unlink_at(struct grants *g, struct grant **at)
{
    struct grant *gone = *at;

    *at = gone->next;
    free(gone->name);
    free(gone);
    g->n--;
}

#define ROOM_CANDIDATES 32

/* Looks at a few grants from where it stopped last: the one that ends first goes. */
static void make_room(struct grants *g)
{
    struct grant **first = NULL;
    size_t seen = 0;

    for (size_t looked = 0; looked < g->n_buckets && seen < ROOM_CANDIDATES; looked++) {
        g->sweep = (g->sweep + 1) & (g->n_buckets - 1);
        for (struct grant **at = &g->buckets[g->sweep]; *at; at = &(*at)->next, seen++)
            if (!first || (*at)->until_ms < (*first)->until_ms)
                first = at;
    }
    if (first)
        unlink_at(g, first);
}

static void grow(struct grants *g)
{
    struct grant **old = g->buckets;
    size_t n_old = g->n_buckets;

    g->n_buckets *= 2;
    g->buckets = xcalloc(g->n_buckets, sizeof *g->buckets);
    for (size_t i = 0; i < n_old; i++)
        for (struct grant *p = old[i], *next; p; p = next) {
            size_t b = bucket_of(g, &p->ip);
            next = p->next;
            p->next = g->buckets[b];
            g->buckets[b] = p;
        }
    free(old);
}

void grants_add(struct grants *g, const struct ip *ip, const char *name, int64_t until_ms)
{
    for (struct grant *p = g->buckets[bucket_of(g, ip)]; p; p = p->next)
        if (same_ip(&p->ip, ip) && strcmp(p->name, name) == 0) {
            if (until_ms > p->until_ms)
                p->until_ms = until_ms;
            return;
        }
    if (g->n >= g->max)
        make_room(g);
    if (g->n >= g->n_buckets)
        grow(g);
    struct grant *p = xcalloc(1, sizeof *p);
    struct grant **bucket = &g->buckets[bucket_of(g, ip)];
    *p = (struct grant){.next = *bucket, .ip = *ip, .until_ms = until_ms, .name = xstrdup(name)};
    *bucket = p;
    g->n++;
}

bool grants_each(const struct grants *g, const struct ip *ip, int64_t now_ms, grants_fn fn, void *data)
{
    for (const struct grant *p = g->buckets[bucket_of(g, ip)]; p; p = p->next)
        if (p->until_ms > now_ms && same_ip(&p->ip, ip) && fn(data, p->name))
            return true;
    return false;
}

size_t grants_count(const struct grants *g)
{
    return g->n;
}
