#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "controller/kube/object.h"
#include "controller/sandbox/apply.h"
#include "controller/sandbox/context.h"
#include "controller/sandbox/names.h"

static const struct {
    enum watched front, core;
    const struct kube_resource *resource;
} kinds[FRONT_KINDS] = {
    [FRONT_SANDBOX] = {WATCH_FRONT_SANDBOX, WATCH_SANDBOX, &kind_front_sandbox},
    [FRONT_TEMPLATE] = {WATCH_FRONT_TEMPLATE, WATCH_TEMPLATE, &kind_front_template},
    [FRONT_CLAIM] = {WATCH_FRONT_CLAIM, WATCH_CLAIM, &kind_front_claim},
    [FRONT_POOL] = {WATCH_FRONT_POOL, WATCH_POOL, &kind_front_pool},
};

struct found_pool {
    char *name; /* owned */
    struct meta template;
};

/*
 * A claim that names a template gets a pool made from it: one that has members to give, else any, else
 * the empty one of the template, which is made for this.
 */
static void find_pool(struct sandboxes *x, struct pass *p, const json_t *front, struct front_world *w,
                      struct found_pool *found)
{
    const char *template = obj_str(front, "spec.sandboxTemplateRef.name"),
               *bound = obj_str(w->core, "spec.warmPoolRef.name");
    const char *ns = obj_ns(front);
    char value[INDEX_VALUE_MAX];
    struct index_cursor cursor;
    int64_t best = -1;

    if (!template)
        return;
    if (bound) {
        found->name = xstrdup(bound);
        w->pool = found->name;
        return;
    }
    index_value(ns, template, value);
    for (const struct object *o = store_index_first(x->store[WATCH_POOL], POOL_BY_TEMPLATE, value, &cursor);
         o; o = store_index_next(&cursor)) {
        int64_t replicas = obj_int(object_json(o), "spec.replicas", 1);
        if (replicas > best) {
            best = replicas;
            free(found->name);
            found->name = xstrdup(object_name(o));
        }
    }
    const json_t *owner = find_json(x->store[WATCH_TEMPLATE], ns, template);
    if (!found->name && owner) {
        meta_read(owner, &found->template);
        found->name = xasprintf(SHADOW_POOL "%.240s", template);
        w->template = &found->template;
        w->make_pool = true;
    }
    w->template_missing = !found->name && surely_missing(x, p, WATCH_TEMPLATE, template);
    w->pool = found->name;
}

static int reconcile(enum front_kind kind, struct pass *p, struct sandboxes *x)
{
    struct key k = pass_key(p);
    const json_t *front = find_json(x->store[kinds[kind].front], k.ns, k.name);
    struct found_pool found = {.name = NULL};
    scoped_plan struct plan plan;

    plan_init(&plan);
    if (!front)
        return 0; /* the core object carries an owner reference */
    struct front_world w = {.now_ms = now_ms(),
                            .core = find_json(x->store[kinds[kind].core], k.ns, k.name),
                            .pod_resources = x->opt.pod_resources,
                            .fault = lasting_failure(p)};
    w.hold = w.fault != NULL;
    if (kind == FRONT_CLAIM)
        find_pool(x, p, front, &w, &found);
    /* Not known yet whether the template exists: the answer to the question brings us back. */
    bool unknown =
        kind == FRONT_CLAIM && !w.pool && !w.template_missing && obj_at(front, "spec.sandboxTemplateRef");
    if (!unknown)
        front_plan(kind, front, &w, &plan);
    if (w.hold)
        plan_again(&plan, FAULT_HOLD_MS);
    plan_apply(p, &plan, &(struct apply_about){kinds[kind].resource, front, k.ns, k.name});
    free(found.name);
    return 0;
}

int reconcile_front_sandbox(struct pass *p, void *data, struct err *e)
{
    (void)e;
    return reconcile(FRONT_SANDBOX, p, data);
}

int reconcile_front_template(struct pass *p, void *data, struct err *e)
{
    (void)e;
    return reconcile(FRONT_TEMPLATE, p, data);
}

int reconcile_front_claim(struct pass *p, void *data, struct err *e)
{
    (void)e;
    return reconcile(FRONT_CLAIM, p, data);
}

int reconcile_front_pool(struct pass *p, void *data, struct err *e)
{
    (void)e;
    return reconcile(FRONT_POOL, p, data);
}
