#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"
#include "controller/sandbox/apply.h"
#include "controller/sandbox/context.h"
#include "controller/sandbox/plan_pool.h"
#include "controller/sandbox/plan_template.h"

/* Since when the status of this pool waits to be written; 0: it does not. */
static int64_t deferred_since(struct sandboxes *x, const char *key)
{
    const int64_t *at = map_get(x->deferred, key);

    return at ? *at : 0;
}

static void remember_deferral(struct sandboxes *x, const char *key, bool deferred, int64_t now)
{
    int64_t *at = map_get(x->deferred, key);

    if (deferred && !at) {
        at = xcalloc(1, sizeof *at);
        *at = now;
        (void)map_put(x->deferred, key, at);
    } else if (!deferred && at) {
        free(map_remove(x->deferred, key));
    }
}

int reconcile_pool(struct pass *p, void *data, struct err *e)
{
    struct sandboxes *x = data;
    struct key k = pass_key(p);
    const json_t *json = find_json(x->store[WATCH_POOL], k.ns, k.name), *template;
    struct pool pool = {.replicas = 0};
    struct template t = {.service = 0};
    char key[INDEX_VALUE_MAX];
    scoped_plan struct plan plan;
    bool deferred;

    (void)e;
    plan_init(&plan);
    index_value(k.ns, k.name, key);
    if (!json) {
        remember_deferral(x, key, false, 0);
        return 0; /* its members carry owner references; claimed ones belong to their claims */
    }
    pool_read(json, &pool);
    struct pool_world w = {.now_ms = now_ms(),
                           .starts_max = x->opt.starts_max,
                           .grace_ms = x->opt.readiness_grace_ms,
                           .deferred_ms = deferred_since(x, key),
                           .seed = (uint64_t)random_u32() << 32 | random_u32(),
                           .fault = lasting_failure(p)};
    w.hold = w.fault != NULL;
    template = find_json(x->store[WATCH_TEMPLATE], k.ns, pool.template);
    if (template) {
        template_read(template, &t);
        w.template = &t;
        w.template_hash = template_hash_of(x, &t);
    } else {
        w.template_missing = pool.template && surely_missing(x, p, WATCH_TEMPLATE, pool.template);
    }
    scoped_free struct member *members = pool_members(x, &pool, w.template_hash, NULL, &w.n);
    w.members = members;
    for (size_t i = 0; i < w.n; i++)
        if (members[i].reserved) /* a claim that is deleted meanwhile does not say so */
            plan_again(&plan, RESERVATION_MS + 100);
    pool_plan(&pool, &w, &plan, &deferred);
    remember_deferral(x, key, deferred, w.now_ms);
    if (w.hold)
        plan_again(&plan, FAULT_HOLD_MS);
    plan_apply(p, &plan, &(struct apply_about){&kind_pool, pool.meta.json, k.ns, k.name});
    return 0;
}

int reconcile_template(struct pass *p, void *data, struct err *e)
{
    struct sandboxes *x = data;
    struct key k = pass_key(p);
    const json_t *json = find_json(x->store[WATCH_TEMPLATE], k.ns, k.name);
    scoped_free char *policy = xasprintf("%s-network-policy", k.name);
    struct template t = {.service = 0};
    scoped_plan struct plan plan;

    (void)e;
    plan_init(&plan);
    if (!json)
        return 0;
    template_read(json, &t);
    template_plan(&t,
                  &(struct template_world){.policy = find_json(x->store[WATCH_POLICY], k.ns, policy),
                                           .router_ns = x->opt.router_namespace},
                  &plan);
    plan_apply(p, &plan, &(struct apply_about){&kind_template, t.meta.json, k.ns, k.name});
    return 0;
}
