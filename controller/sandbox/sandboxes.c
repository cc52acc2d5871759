#include "controller/sandbox/sandboxes.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "controller/sandbox/context.h"

static const enum watched core_kinds[] = {WATCH_SANDBOX,  WATCH_POD,      WATCH_SERVICE,
                                          WATCH_PVC,      WATCH_FREE_POD, WATCH_FREE_SERVICE,
                                          WATCH_FREE_PVC, WATCH_NODE,     WATCH_RUNTIME_CLASS};
static const enum watched extension_kinds[] = {WATCH_CLAIM, WATCH_TEMPLATE, WATCH_POOL, WATCH_POLICY};
static const enum watched front_kinds[] = {WATCH_FRONT_SANDBOX, WATCH_FRONT_TEMPLATE, WATCH_FRONT_CLAIM,
                                           WATCH_FRONT_POOL};

static void add_kinds(struct sandboxes *x, const enum watched *kinds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x->store[kinds[i]] = engine_add_kind(x->engine, &watched_kinds[kinds[i]]);
}

static struct controller *add(struct sandboxes *x, const char *name, reconcile_fn fn)
{
    return engine_add_controller(x->engine, &(struct controller_spec){.name = name,
                                                                      .reconcile = fn,
                                                                      .data = x,
                                                                      .passes_max = (size_t)x->opt.passes_max,
                                                                      .parallel_max = 16});
}

int sandboxes_new(struct engine *engine, const struct sandboxes_options *o, struct metrics *m,
                  struct sandboxes **ret, struct err *e)
{
    struct sandboxes *x = xcalloc(1, sizeof *x);

    (void)e;
    x->engine = engine;
    x->opt = *o;
    x->reserved = map_new();
    x->waiters = map_new();
    x->deferred = map_new();
    x->missing = map_new();
    x->hashes = map_new();
    add_kinds(x, core_kinds, ARRAY_LEN(core_kinds));
    x->sandbox = add(x, "sandbox", reconcile_sandbox);
    if (o->extensions) {
        add_kinds(x, extension_kinds, ARRAY_LEN(extension_kinds));
        x->claim = add(x, "sandboxclaim", reconcile_claim);
        x->template = add(x, "sandboxtemplate", reconcile_template);
        x->pool = add(x, "sandboxwarmpool", reconcile_pool);
    }
    if (o->front) {
        add_kinds(x, front_kinds, o->extensions ? ARRAY_LEN(front_kinds) : 1);
        x->front[FRONT_SANDBOX] = add(x, "front-sandbox", reconcile_front_sandbox);
    }
    if (o->front && o->extensions) {
        x->front[FRONT_TEMPLATE] = add(x, "front-template", reconcile_front_template);
        x->front[FRONT_CLAIM] = add(x, "front-claim", reconcile_front_claim);
        x->front[FRONT_POOL] = add(x, "front-pool", reconcile_front_pool);
    }
    wire_watches(x);
    if (m) {
        x->meters = meters_new(m);
        engine_on_change(engine, x->store[WATCH_SANDBOX], meters_sandbox_changed, x->meters);
        if (x->claim)
            engine_on_change(engine, x->store[WATCH_CLAIM], meters_claim_changed, x->meters);
    }
    *ret = x;
    return 0;
}

static void values_free(struct map *m)
{
    size_t cursor = 0;
    const char *key;
    void *value;

    while (m && map_next(m, &cursor, &key, &value))
        free(value);
    map_free(m);
}

void sandboxes_free(struct sandboxes *x)
{
    if (!x)
        return;
    values_free(x->reserved);
    waiters_free(x->waiters);
    values_free(x->deferred);
    values_free(x->missing);
    values_free(x->hashes);
    meters_free(x->meters);
    free(x);
}
