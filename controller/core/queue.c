#include "controller/core/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/map.h"
#include "base/random.h"

#define BACKOFF_MIN_MS 20
#define BACKOFF_MAX_MS 60000
#define KEY_MAX        512

/*
 * One entry per key that is ready, working, delayed or has failed before; it goes when none of this is
 * true.  A key that is added while it is being worked on becomes `again` and ready after queue_done.
 */
struct entry {
    struct list node; /* on ready, when ready */
    char *text;       /* "ns/name", the key in the map */
    char *ns, *name;
    bool ready, working, again;
    uint32_t failures;
    struct failure why; /* of the last one */
    int64_t since_ms;   /* ready since */
    int64_t due_ms;
    size_t heap; /* position + 1 in the heap; 0 = not delayed */
};

struct queue {
    struct loop *loop;
    struct queue_options opt;
    struct map *entries;
    struct list ready;
    struct entry **heap; /* min-heap by due_ms */
    size_t n_heap, heap_cap, n_ready, n_working;
    struct source *timer, *deferred;
};

/* ---- heap ---- */

static void heap_set(struct queue *q, size_t i, struct entry *x)
{
    q->heap[i] = x;
    x->heap = i + 1;
}

static void heap_up(struct queue *q, size_t i)
{
    struct entry *x = q->heap[i];

    for (; i > 0 && q->heap[(i - 1) / 2]->due_ms > x->due_ms; i = (i - 1) / 2)
        heap_set(q, i, q->heap[(i - 1) / 2]);
    heap_set(q, i, x);
}

static void heap_down(struct queue *q, size_t i)
{
    struct entry *x = q->heap[i];

    for (size_t child; (child = 2 * i + 1) < q->n_heap; i = child) {
        if (child + 1 < q->n_heap && q->heap[child + 1]->due_ms < q->heap[child]->due_ms)
            child++;
        if (q->heap[child]->due_ms >= x->due_ms)
            break;
        heap_set(q, i, q->heap[child]);
    }
    heap_set(q, i, x);
}

static void heap_remove(struct queue *q, struct entry *x)
{
    if (!x->heap)
        return;
    size_t i = x->heap - 1;
    struct entry *last = q->heap[--q->n_heap];

    x->heap = 0;
    if (last == x)
        return;
    heap_set(q, i, last);
    heap_up(q, i);
    heap_down(q, last->heap - 1);
}

static void arm(struct queue *q)
{
    int64_t ms = -1;

    if (q->n_heap > 0) {
        ms = q->heap[0]->due_ms - clock_mono_ms();
        ms = MAX(ms, 0);
    }
    source_arm(q->timer, ms);
}

/* ---- entries ---- */

/*
 * False: no such object can exist.  The API server allows 63 and 253 bytes, but a user may write any
 * name into an owner reference that a map function turns into a key.
 */
static bool key_text(struct key k, char out[KEY_MAX])
{
    size_t ns = strlen(k.ns), name = strlen(k.name);

    if (ns + name + 2 > KEY_MAX || name == 0)
        return false;
    memcpy(out, k.ns, ns);
    out[ns] = '/';
    memcpy(out + ns + 1, k.name, name + 1);
    return true;
}

static struct entry *find(const struct queue *q, struct key k)
{
    char text[KEY_MAX];

    return key_text(k, text) ? map_get(q->entries, text) : NULL;
}

static struct entry *find_or_make(struct queue *q, struct key k)
{
    char text[KEY_MAX];

    if (!key_text(k, text))
        return NULL;
    struct entry *x = map_get(q->entries, text);
    if (x)
        return x;
    x = xcalloc(1, sizeof *x);
    list_init(&x->node);
    x->text = xstrdup(text);
    x->ns = xstrdup(k.ns);
    x->name = xstrdup(k.name);
    map_put(q->entries, text, x);
    return x;
}

static void entry_free(struct entry *x)
{
    list_remove(&x->node);
    free(x->why.text);
    free(x->text);
    free(x->ns);
    free(x->name);
    free(x);
}

static void drop_if_idle(struct queue *q, struct entry *x)
{
    if (x->ready || x->working || x->again || x->heap || x->failures)
        return;
    map_remove(q->entries, x->text);
    entry_free(x);
}

static void on_deferred(void *data)
{
    struct queue *q = data;

    q->deferred = NULL;
    if (q->opt.ready && q->n_ready > 0)
        q->opt.ready(q->opt.data);
}

static void make_ready(struct queue *q, struct entry *x)
{
    heap_remove(q, x);
    if (x->working) {
        x->again = true;
        return;
    }
    if (x->ready)
        return;
    x->ready = true;
    x->since_ms = clock_mono_ms();
    list_append(&q->ready, &x->node);
    q->n_ready++;
    if (!q->deferred)
        loop_defer(q->loop, on_deferred, q, &q->deferred);
}

static void delay(struct queue *q, struct entry *x, int64_t ms)
{
    int64_t due = clock_mono_ms() + ms;

    if (x->ready || x->again || (x->heap && x->due_ms <= due))
        return; /* an earlier wish is there */
    if (!x->heap) {
        q->heap = xgrow(q->heap, q->n_heap, &q->heap_cap, sizeof(struct entry *));
        x->due_ms = due;
        q->heap[q->n_heap] = x;
        heap_up(q, q->n_heap++);
    } else {
        x->due_ms = due;
        heap_up(q, x->heap - 1);
    }
    arm(q);
}

static void on_timer(void *data)
{
    struct queue *q = data;
    int64_t now = clock_mono_ms();

    while (q->n_heap > 0 && q->heap[0]->due_ms <= now)
        make_ready(q, q->heap[0]);
    arm(q);
}

/* ---- interface ---- */

int queue_new(struct loop *loop, const struct queue_options *o, struct queue **ret, struct err *e)
{
    struct queue *q = xcalloc(1, sizeof *q);

    q->loop = loop;
    q->opt = *o;
    if (q->opt.backoff_min_ms <= 0)
        q->opt.backoff_min_ms = BACKOFF_MIN_MS;
    if (q->opt.backoff_max_ms <= 0)
        q->opt.backoff_max_ms = BACKOFF_MAX_MS;
    q->entries = map_new();
    list_init(&q->ready);
    int r = loop_add_timer(loop, -1, on_timer, q, &q->timer);
    if (r < 0) {
        queue_free(q);
        return err_set(e, r, "timer of a queue");
    }
    *ret = q;
    return 0;
}

void queue_free(struct queue *q)
{
    size_t cursor = 0;
    void *x;

    if (!q)
        return;
    while (map_next(q->entries, &cursor, NULL, &x))
        entry_free(x);
    map_free(q->entries);
    free(q->heap);
    source_free(q->timer);
    source_free(q->deferred);
    free(q);
}

void queue_add(struct queue *q, struct key k)
{
    struct entry *x = find_or_make(q, k);

    if (x)
        make_ready(q, x);
}

void queue_after(struct queue *q, struct key k, int64_t ms)
{
    struct entry *x = find_or_make(q, k);

    if (x && ms <= 0)
        make_ready(q, x);
    else if (x)
        delay(q, x, ms);
}

void queue_retry(struct queue *q, struct key k, int64_t at_least_ms)
{
    struct entry *x = find_or_make(q, k);

    if (!x)
        return;
    int64_t ms = q->opt.backoff_min_ms << MIN(x->failures, 20u);

    x->failures++;
    ms = random_around(MIN(ms, q->opt.backoff_max_ms));
    delay(q, x, MAX(ms, at_least_ms));
}

void queue_set_failure(struct queue *q, struct key k, int code, const char *text)
{
    struct entry *x = find(q, k);

    if (!x)
        return;
    free(x->why.text);
    x->why = (struct failure){.code = code, .text = xstrdup(text)};
}

const struct failure *queue_failure(const struct queue *q, struct key k)
{
    const struct entry *x = find(q, k);

    return x && x->failures ? &x->why : NULL;
}

void queue_forget(struct queue *q, struct key k)
{
    struct entry *x = find(q, k);

    if (!x)
        return;
    x->failures = 0;
    free(x->why.text);
    x->why = (struct failure){0};
    drop_if_idle(q, x);
}

uint32_t queue_failures(const struct queue *q, struct key k)
{
    const struct entry *x = find(q, k);

    return x ? x->failures : 0;
}

bool queue_take(struct queue *q, struct key *ret)
{
    if (list_is_empty(&q->ready))
        return false;
    struct entry *x = LIST_ENTRY(q->ready.next, struct entry, node);
    list_remove(&x->node);
    x->ready = false;
    x->working = true;
    q->n_ready--;
    q->n_working++;
    *ret = (struct key){.ns = x->ns, .name = x->name};
    return true;
}

void queue_done(struct queue *q, struct key k)
{
    struct entry *x = find(q, k);

    assert(x && x->working);
    x->working = false;
    q->n_working--;
    if (x->again) {
        x->again = false;
        make_ready(q, x);
    }
    drop_if_idle(q, x);
}

size_t queue_length(const struct queue *q)
{
    return q->n_ready;
}

size_t queue_working(const struct queue *q)
{
    return q->n_working;
}

size_t queue_waiting(const struct queue *q)
{
    return q->n_heap;
}

int64_t queue_oldest_ms(const struct queue *q)
{
    if (list_is_empty(&q->ready))
        return 0;
    return clock_mono_ms() - LIST_ENTRY(q->ready.next, struct entry, node)->since_ms;
}
