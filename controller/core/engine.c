#include "controller/core/engine_priv.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/log.h"
#include "base/loop.h"
#include "controller/core/recorder.h"
#include "controller/kube/object.h"
#include "controller/kube/selector.h"

#define PARSED_MAX    256
#define STOP_MS       5000
#define SILENT_MAX_MS 120000

/* ---- from watches to stores ---- */

static void on_object(void *data, json_t *o)
{
    struct feed *f = data;

    if (!store_put(f->store, o))
        log_warn("the server sent something that is no object", "resource=%s",
                 store_kind(f->store)->resource->plural);
    parsed_trim(f->engine->parsed);
}

static bool on_known(void *data, const char *ns, const char *name, const char *uid, uint64_t version)
{
    return store_knows(((struct feed *)data)->store, ns, name, uid, version);
}

static void on_deleted(void *data, json_t *o)
{
    struct feed *f = data;

    store_gone(f->store, o);
    parsed_trim(f->engine->parsed);
}

static void on_list_begin(void *data)
{
    store_list_begin(((struct feed *)data)->store);
}

static void check_synced(void *data);

static void on_list_end(void *data, uint64_t version, bool rewound)
{
    struct feed *f = data;

    store_list_end(f->store, version, rewound);
    parsed_trim(f->engine->parsed);
    malloc_trim(0); /* a large list leaves large holes */
    log_debug("listed", "resource=%s objects=%zu", store_kind(f->store)->resource->plural,
              store_count(f->store));
    if (!f->engine->sync_check)
        loop_defer(f->engine->loop, check_synced, f->engine, &f->engine->sync_check);
}

/* Said at the first failure in a row, then at every power of two, so that a long outage is few lines. */
static void on_trouble(void *data, uint32_t n, const char *why)
{
    struct feed *f = data;

    if ((n & (n - 1)) == 0)
        log_warn("watch interrupted", "resource=%s failures=%u why=%s",
                 store_kind(f->store)->resource->plural, n, why);
}

/* ---- from stores to keys ---- */

static void map_one(const struct mapping *m, struct controller *c, const struct change *change)
{
    const struct object *o = change->now ? change->now : change->old;

    if (m->map)
        m->map(c, change, m->data);
    else
        controller_add(c, object_ns(o), object_name(o));
}

static void map_change(struct engine *x, const struct change *change)
{
    LIST_FOREACH(n, &x->controllers)
    {
        struct controller *c = LIST_ENTRY(n, struct controller, node);
        LIST_FOREACH(k, &c->mappings)
        {
            struct mapping *m = LIST_ENTRY(k, struct mapping, node);
            if (m->store == change->store)
                map_one(m, c, change);
        }
    }
}

static bool is_running(const struct engine *x)
{
    return x->synced && x->active && !x->stopping;
}

static void on_change(void *data, const struct change *change)
{
    struct feed *f = data;

    LIST_FOREACH(n, &f->hooks)
    {
        struct hook *h = LIST_ENTRY(n, struct hook, node);
        h->fn(h->data, change);
    }
    if (is_running(f->engine))
        map_change(f->engine, change);
}

/* Everything that is known becomes keys: at the start, and for a new leader. */
static void map_all(struct engine *x)
{
    LIST_FOREACH(n, &x->feeds)
    {
        struct feed *f = LIST_ENTRY(n, struct feed, node);
        for (const struct object *o = NULL; (o = store_next(f->store, o));) {
            struct change c = {.store = f->store, .now = o};
            map_change(x, &c);
            parsed_trim(x->parsed);
        }
    }
}

static void check_synced(void *data)
{
    struct engine *x = data;

    x->sync_check = NULL;
    if (x->synced || x->stopping)
        return;
    LIST_FOREACH(n, &x->feeds)
    if (!store_is_synced(LIST_ENTRY(n, struct feed, node)->store))
        return;
    x->synced = true;
    if (x->opt.synced)
        x->opt.synced(x->opt.data);
    if (is_running(x))
        map_all(x);
}

/* ---- from answers to stores ---- */

static bool feed_takes(const struct feed *f, const struct kube_resource *r, const json_t *o)
{
    const struct store_kind *k = store_kind(f->store);

    if (k->resource != r || (k->ns && strcmp(k->ns, obj_ns(o)) != 0))
        return false;
    int labels = selector_match_labels(k->label_selector, o),
        fields = selector_match_fields(k->field_selector, o);
    /* A selector that we cannot judge: only what the watch has already shown. */
    if (labels < 0 || fields < 0)
        return store_get_uid(f->store, obj_ns(o), obj_name(o), obj_uid(o)) != NULL;
    return labels == 1 && fields == 1;
}

/* kind Status, or an object that nothing holds any longer. */
static bool is_gone(const json_t *answer)
{
    if (!obj_name(answer) || !obj_uid(answer))
        return true;
    return json_array_size(obj_at(answer, "metadata.finalizers")) == 0 &&
           obj_int(answer, "metadata.deletionGracePeriodSeconds", 0) == 0;
}

static const char *cached_uid(const struct feed *f, const struct action *a)
{
    const struct object *o = store_get(f->store, a->ns, a->name);

    return o ? object_uid(o) : NULL;
}

static void apply_deletion(struct feed *f, const struct action *a, const struct kube_result *r)
{
    const char *uid = obj_str(r->object, "details.uid");

    if (!uid)
        uid = obj_uid(r->object);
    if (!uid)
        uid = a->uid ? a->uid : cached_uid(f, a);
    if (r->object && !is_gone(r->object))
        store_put(f->store, r->object);
    else if (uid) {
        scoped_free char *copy = xstrdup(uid); /* it may belong to the object that goes */
        store_deleted_by_us(f->store, a->ns, a->name, copy);
    }
}

void engine_apply_answer(struct engine *x, const struct action *a, const struct kube_result *r)
{
    bool whole = !a->subresource || strcmp(a->subresource, "status") == 0;

    if (!whole || (r->code != 0 && r->code != -ENOENT))
        return;
    size_t takers = 0;
    LIST_FOREACH(n, &x->feeds)
    takers += store_kind(LIST_ENTRY(n, struct feed, node)->store)->resource == a->resource;
    LIST_FOREACH(n, &x->feeds)
    {
        struct feed *f = LIST_ENTRY(n, struct feed, node);
        if (store_kind(f->store)->resource != a->resource)
            continue;
        if (a->verb == KUBE_DELETE || (a->verb == KUBE_GET && r->code == -ENOENT)) {
            apply_deletion(f, a, r);
        } else if (r->object && feed_takes(f, a->resource, r->object)) {
            /* Another cache of the same kind may keep other parts of it. */
            scoped(json_decref) json_t *copy =
                takers > 1 ? json_deep_copy(r->object) : json_incref(r->object);
            store_put(f->store, copy);
        }
    }
    parsed_trim(x->parsed);
}

/* ---- interface ---- */

int engine_new(struct loop *loop, struct kube *kube, const struct engine_options *o, struct engine **ret,
               struct err *e)
{
    struct engine *x = xcalloc(1, sizeof *x);

    x->loop = loop;
    x->kube = kube;
    x->opt = *o;
    if (!x->opt.component)
        x->opt.component = "glovebox-controller";
    x->parsed = parsed_cache_new(PARSED_MAX);
    list_init(&x->feeds);
    list_init(&x->controllers);
    int r =
        recorder_new(loop, kube, x->opt.component, x->opt.instance ? x->opt.instance : "", &x->recorder, e);
    if (r < 0) {
        engine_free(x);
        return r;
    }
    *ret = x;
    return 0;
}

static void controller_free(struct controller *c)
{
    pass_free_all(c);
    queue_free(c->queue);
    source_free(c->again);
    LIST_FOREACH(n, &c->mappings)
    free(LIST_ENTRY(n, struct mapping, node));
    free(c);
}

static void feed_free(struct feed *f)
{
    watch_free(f->watch);
    store_free(f->store);
    LIST_FOREACH(n, &f->hooks)
    free(LIST_ENTRY(n, struct hook, node));
    free(f);
}

void engine_free(struct engine *x)
{
    if (!x)
        return;
    LIST_FOREACH(n, &x->controllers)
    controller_free(LIST_ENTRY(n, struct controller, node));
    LIST_FOREACH(n, &x->feeds)
    feed_free(LIST_ENTRY(n, struct feed, node));
    recorder_free(x->recorder);
    parsed_cache_free(x->parsed);
    source_free(x->stop_timer);
    source_free(x->sync_check);
    free(x);
}

struct store *engine_add_kind(struct engine *x, const struct store_kind *kind)
{
    assert(!x->started);
    struct feed *f = xcalloc(1, sizeof *f);

    f->engine = x;
    f->spec = (struct watch_spec){
        .resource = kind->resource,
        .ns = kind->ns,
        .label_selector = kind->label_selector,
        .field_selector = kind->field_selector,
        .optional = kind->optional,
        .list_begin = on_list_begin,
        .object = on_object,
        .deleted = on_deleted,
        .known = on_known,
        .list_end = on_list_end,
        .trouble = on_trouble,
        .data = f,
    };
    f->store = store_new(kind, x->parsed, on_change, f);
    list_init(&f->hooks);
    list_append(&x->feeds, &f->node);
    return f->store;
}

static void on_ready(void *data)
{
    controller_pump(data);
}

struct controller *engine_add_controller(struct engine *x, const struct controller_spec *spec)
{
    struct controller *c = xcalloc(1, sizeof *c);
    struct queue_options o = {.ready = on_ready, .data = c};

    c->engine = x;
    c->spec = *spec;
    if (c->spec.passes_max == 0)
        c->spec.passes_max = 32;
    if (c->spec.parallel_max == 0)
        c->spec.parallel_max = 8;
    list_init(&c->mappings);
    list_init(&c->passes);
    list_append(&x->controllers, &c->node);
    if (queue_new(x->loop, &o, &c->queue, NULL) < 0)
        abort(); /* only memory can be missing */
    return c;
}

void controller_watch(struct controller *c, struct store *store, map_fn map, void *data)
{
    struct mapping *m = xcalloc(1, sizeof *m);

    *m = (struct mapping){.store = store, .map = map, .data = data};
    list_append(&c->mappings, &m->node);
}

void controller_add(struct controller *c, const char *ns, const char *name)
{
    if (name && !pass_notes_own_key(c, ns ? ns : "", name))
        queue_add(c->queue, (struct key){.ns = ns ? ns : "", .name = name});
}

void controller_add_after(struct controller *c, const char *ns, const char *name, int64_t ms)
{
    if (name)
        queue_after(c->queue, (struct key){.ns = ns ? ns : "", .name = name}, ms);
}

struct queue *controller_queue(struct controller *c)
{
    return c->queue;
}

void engine_on_change(struct engine *x, struct store *store, void (*fn)(void *data, const struct change *),
                      void *data)
{
    LIST_FOREACH(n, &x->feeds)
    {
        struct feed *f = LIST_ENTRY(n, struct feed, node);
        if (f->store != store)
            continue;
        struct hook *h = xcalloc(1, sizeof *h);
        *h = (struct hook){.fn = fn, .data = data};
        list_append(&f->hooks, &h->node);
    }
}

int engine_start(struct engine *x, struct err *e)
{
    assert(!x->started);
    x->started = true;
    LIST_FOREACH(n, &x->feeds)
    {
        struct feed *f = LIST_ENTRY(n, struct feed, node);
        int r = watch_new(x->kube, &f->spec, &f->watch, e);
        if (r < 0)
            return r;
    }
    return 0;
}

bool engine_may_write(const struct engine *x)
{
    return is_running(x);
}

void engine_set_active(struct engine *x, bool active)
{
    bool was = is_running(x);

    x->active = active;
    if (!was && is_running(x))
        map_all(x);
}

static void on_stop_timer(void *data)
{
    struct engine *x = data;
    void (*fn)(void *) = x->stopped;

    x->stopped = NULL;
    if (fn)
        fn(x->stopped_data); /* may free the engine */
}

void engine_call_ended(struct engine *x)
{
    x->n_calls--;
    if (x->stopping && x->n_calls == 0)
        source_arm(x->stop_timer, 0);
}

void engine_stop(struct engine *x, void (*done)(void *data), void *data)
{
    x->stopping = true;
    x->stopped = done;
    x->stopped_data = data;
    LIST_FOREACH(n, &x->feeds)
    {
        struct feed *f = LIST_ENTRY(n, struct feed, node);
        watch_free(f->watch);
        f->watch = NULL;
    }
    if (!x->stop_timer)
        loop_add_timer(x->loop, x->n_calls ? STOP_MS : 0, on_stop_timer, x, &x->stop_timer);
}

bool engine_is_synced(const struct engine *x)
{
    return x->synced;
}

bool engine_is_healthy(const struct engine *x)
{
    LIST_FOREACH(n, &x->feeds)
    {
        const struct feed *f = LIST_ENTRY(n, struct feed, node);
        if (!f->spec.optional && f->watch && watch_silent_ms(f->watch) > SILENT_MAX_MS)
            return false;
    }
    return x->synced && !x->stopping;
}

struct kube *engine_kube(struct engine *x)
{
    return x->kube;
}
