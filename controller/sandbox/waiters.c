#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "controller/sandbox/context.h"

/* ---- reservations ---------------------------------------------------------------------------------------
 */

struct reservation {
    int64_t until_ms; /* monotonic */
    char claim_uid[40];
};

void reserve(struct sandboxes *x, const char *member_uid, const char *claim_uid)
{
    struct reservation *r = xcalloc(1, sizeof *r);

    r->until_ms = clock_mono_ms() + RESERVATION_MS;
    (void)snprintf(r->claim_uid, sizeof r->claim_uid, "%s", claim_uid);
    free(map_put(x->reserved, member_uid, r));
}

bool is_reserved(const struct sandboxes *x, const char *member_uid, const char *but_for_claim_uid)
{
    const struct reservation *r = map_get(x->reserved, member_uid);

    return r && clock_mono_ms() < r->until_ms &&
           !(but_for_claim_uid && strcmp(r->claim_uid, but_for_claim_uid) == 0);
}

void unreserve(struct sandboxes *x, const char *member_uid)
{
    free(map_remove(x->reserved, member_uid));
}

bool unreserve_all_of(struct sandboxes *x, const char *claim_uid, const char *but_member_uid)
{
    size_t cursor = 0;
    const char *key;
    void *value;
    bool any = false;

    /* Only members that are being taken right now are in the map: a handful. */
    while (map_next(x->reserved, &cursor, &key, &value)) {
        const struct reservation *r = value;
        if (strcmp(r->claim_uid, claim_uid) != 0 || (but_member_uid && strcmp(key, but_member_uid) == 0))
            continue;
        unreserve(x, key);
        any = true;
    }
    return any;
}

/* ---- waiting claims ---- */

struct waiter {
    struct list node;
    int64_t created_ms;
    char *ns, *name;
};

struct waiters {
    struct list list; /* oldest first */
};

static bool is_before(const struct waiter *w, int64_t created_ms, const char *name)
{
    return w->created_ms < created_ms || (w->created_ms == created_ms && strcmp(w->name, name) < 0);
}

static struct waiters *waiters_of(const struct sandboxes *x, const char *ns, const char *pool)
{
    char key[INDEX_VALUE_MAX];

    index_value(ns, pool, key);
    return map_get(x->waiters, key);
}

static void waiter_free(struct waiter *w)
{
    list_remove(&w->node);
    free(w->ns);
    free(w->name);
    free(w);
}

void waiter_add(struct sandboxes *x, const char *ns, const char *pool, const char *claim, int64_t created_ms)
{
    struct waiters *all = waiters_of(x, ns, pool);
    struct waiter *w = xcalloc(1, sizeof *w);
    char key[INDEX_VALUE_MAX];

    waiter_remove(x, ns, pool, claim);
    all = waiters_of(x, ns, pool);
    if (!all) {
        all = xcalloc(1, sizeof *all);
        list_init(&all->list);
        index_value(ns, pool, key);
        (void)map_put(x->waiters, key, all);
    }
    *w = (struct waiter){.created_ms = created_ms, .ns = xstrdup(ns), .name = xstrdup(claim)};
    /* New ones are nearly always the youngest. */
    struct list *after = all->list.prev;
    while (after != &all->list && !is_before(LIST_ENTRY(after, struct waiter, node), created_ms, claim))
        after = after->prev;
    list_append(after->next, &w->node);
}

void waiter_remove(struct sandboxes *x, const char *ns, const char *pool, const char *claim)
{
    struct waiters *all = waiters_of(x, ns, pool);
    char key[INDEX_VALUE_MAX];

    if (!all)
        return;
    LIST_FOREACH(n, &all->list)
    {
        struct waiter *w = LIST_ENTRY(n, struct waiter, node);
        if (strcmp(w->name, claim) == 0)
            waiter_free(w);
    }
    if (list_is_empty(&all->list)) {
        index_value(ns, pool, key);
        free(map_remove(x->waiters, key));
    }
}

size_t waiters_before(const struct sandboxes *x, const char *ns, const char *pool, const char *claim,
                      int64_t created_ms)
{
    struct waiters *all = waiters_of(x, ns, pool);
    size_t before = 0;

    if (!all)
        return 0;
    LIST_FOREACH(n, &all->list)
    {
        before += is_before(LIST_ENTRY(n, struct waiter, node), created_ms, claim);
    }
    return before;
}

void waiter_wake(struct sandboxes *x, const char *ns, const char *pool)
{
    struct waiters *all = waiters_of(x, ns, pool);
    char key[INDEX_VALUE_MAX];

    if (!all)
        return;
    struct waiter *first = LIST_ENTRY(all->list.next, struct waiter, node);
    controller_add(x->claim, first->ns, first->name);
    /* Woken once: if it finds nothing it comes back by itself, and the next event is for the next one. */
    waiter_free(first);
    if (list_is_empty(&all->list)) {
        index_value(ns, pool, key);
        free(map_remove(x->waiters, key));
    }
}

void waiters_free(struct map *m)
{
    size_t cursor = 0;
    const char *key;
    void *value;

    while (m && map_next(m, &cursor, &key, &value)) {
        struct waiters *all = value;
        LIST_FOREACH(n, &all->list)
        {
            waiter_free(LIST_ENTRY(n, struct waiter, node));
        }
        free(all);
    }
    map_free(m);
}
