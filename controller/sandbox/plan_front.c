#include "controller/sandbox/plan_front.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/macro.h"
#include "base/scoped.h"
#include "controller/kube/object.h"
#include "controller/sandbox/build.h"
#include "controller/sandbox/names.h"

/* What differs between the four kinds. */
static const struct front_type {
    const char *kind, *api;
    const char *shared; /* the field of spec that both sides may change */
    const char *absent; /* its value when it is not there, as JSON */
    enum step_kind create, patch;
} types[FRONT_KINDS] = {
    [FRONT_SANDBOX] = {"Sandbox", API_CORE, "paused", "false", STEP_SANDBOX_CREATE, STEP_SANDBOX_PATCH},
    [FRONT_TEMPLATE] = {"SandboxTemplate", API_EXT, NULL, NULL, STEP_TEMPLATE_CREATE, STEP_TEMPLATE_PATCH},
    [FRONT_CLAIM] = {"SandboxClaim", API_EXT, NULL, NULL, STEP_CLAIM_CREATE, STEP_CLAIM_PATCH},
    [FRONT_POOL] = {"SandboxWarmPool", API_EXT, "replicas", "1", STEP_POOL_CREATE, STEP_POOL_PATCH},
};

/* ---- translation ------------------------------------------------------------------------------------------
 */

/* The limits of the whole Pod, for clusters that know only those of containers: each container may use
 * all of it, which is exact for one container and an upper bound for more. */
static void spread_resources(json_t *pod_spec)
{
    json_t *resources = json_object_get(pod_spec, "resources"),
           *list = json_object_get(pod_spec, "containers");
    json_t *containers = json_deep_copy(list);

    for (size_t i = 0; i < json_array_size(containers); i++)
        if (!json_object_get(json_array_get(containers, i), "resources"))
            json_object_set(json_array_get(containers, i), "resources", resources);
    json_object_set_new(pod_spec, "containers", containers);
    json_object_del(pod_spec, "resources");
}

static json_t *pod_template(const json_t *template, bool pod_resources)
{
    json_t *copy = json_copy((json_t *)(uintptr_t) template), *spec = json_object_get(copy, "spec");

    if (spec && json_object_get(spec, "resources") && !pod_resources) {
        spec = json_copy(spec);
        spread_resources(spec);
        json_object_set_new(copy, "spec", spec);
    }
    return copy;
}

/* A Service needs a name that is a DNS label and starts with a letter. */
static bool can_name_service(const char *name)
{
    return name && strlen(name) <= 63 && isalpha((unsigned char)name[0]) && !strchr(name, '.');
}

json_t *front_spec(enum front_kind kind, const json_t *front, const struct front_world *w)
{
    const json_t *have = json_object_get(front, "spec");
    json_t *spec = have ? json_copy((json_t *)(uintptr_t)have) : json_object();
    json_t *template = json_object_get(spec, "template");

    if (template) {
        json_object_set_new(spec, "podTemplate", pod_template(template, w->pod_resources));
        json_object_del(spec, "template");
    }
    /* A stable name in DNS is part of the promise, so the Service is there unless it is refused. */
    if (kind == FRONT_SANDBOX && !json_object_get(spec, "service") && can_name_service(obj_name(front)))
        json_object_set_new(spec, "service", json_true());
    if (kind == FRONT_CLAIM && json_object_get(spec, "sandboxTemplateRef")) {
        json_object_del(spec, "sandboxTemplateRef");
        json_object_set_new(spec, "warmPoolRef", json_pack("{ss}", "name", w->pool ? w->pool : ""));
    }
    return spec;
}

/* ---- the field of two masters ---- */

static json_t *shared_value(const struct front_type *t, const json_t *object)
{
    json_t *v = t->shared ? json_object_get(json_object_get(object, "spec"), t->shared) : NULL;

    return v ? json_incref(v) : json_loads(t->absent, JSON_DECODE_ANY, NULL);
}

static json_t *remembered(const struct front_type *t, const json_t *core)
{
    const char *text = obj_annotation(core, ANN_FRONT_SHARED);
    json_t *v = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;

    return v ? v : json_loads(t->absent, JSON_DECODE_ANY, NULL);
}

static json_t *as_text(const json_t *value)
{
    scoped_free char *text = json_dumps(value, JSON_ENCODE_ANY);

    return json_string(text);
}

/* Brings both sides to the same value; adds what the core object needs to `spec` and `annotations`. */
static void plan_shared(const struct front_type *t, const json_t *front, const struct front_world *w,
                        json_t *spec, json_t *annotations, struct plan *plan)
{
    if (!t->shared)
        return;
    json_t *ours = shared_value(t, front), *theirs = shared_value(t, w->core), *last = remembered(t, w->core);
    bool equal = json_equal(ours, theirs), ours_moved = !json_equal(ours, last);

    if (!equal && ours_moved)
        json_object_set(spec, t->shared, ours);
    else if (!equal)
        plan_add(plan, STEP_FRONT_PATCH, NULL,
                 json_pack("{s{ss ss} s{sO}}", "metadata", "uid", obj_uid(front), "resourceVersion",
                           obj_version(front), "spec", t->shared, theirs));
    json_t *agreed = equal || ours_moved ? ours : theirs;
    if (!json_equal(agreed, last))
        json_object_set_new(annotations, ANN_FRONT_SHARED, as_text(agreed));
    json_decref(ours);
    json_decref(theirs);
    json_decref(last);
}

/* ---- the core object ---- */

static void plan_create(const struct front_type *t, const json_t *front, json_t *spec, struct plan *plan)
{
    struct meta m;
    json_t *meta, *labels = obj_at(front, "metadata.labels");

    meta_read(front, &m);
    meta = json_pack("{ss ss s[o]}", "name", m.name, "namespace", m.ns, "ownerReferences",
                     owner_ref(&m, API_FRONT, t->kind));
    if (labels)
        json_object_set(meta, "labels", labels);
    if (t->shared) {
        json_t *value = shared_value(t, front);
        json_object_set_new(meta, "annotations", json_pack("{so}", ANN_FRONT_SHARED, as_text(value)));
        json_decref(value);
    }
    plan_add(
        plan, t->create, m.name,
        json_pack("{ss ss so sO}", "apiVersion", t->api, "kind", t->kind, "metadata", meta, "spec", spec));
}

/* Fields that only the core object has, and that are its user's own. */
static bool is_core_only(const char *key)
{
    return strcmp(key, "operatingMode") == 0;
}

static void diff_spec(const struct front_type *t, const json_t *have, const json_t *want, json_t *changes)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)want, key,
                        value) if (!(t->shared && strcmp(key, t->shared) == 0) &&
                                   !json_equal(json_object_get(have, key), value))
    {
        /* A merge patch would blend objects; the whole field is replaced by naming what goes. */
        json_t *old = json_object_get(have, key),
               *copy = json_is_object(value) ? json_copy(value) : json_incref(value);
        const char *k;
        json_t *v;

        if (json_is_object(value))
            json_object_foreach(old, k, v) if (!json_object_get(value, k))
                json_object_set_new(copy, k, json_null());
        json_object_set_new(changes, key, copy);
    }
    json_object_foreach((json_t *)(uintptr_t)have, key,
                        value) if (!json_object_get(want, key) && !is_core_only(key) &&
                                   !(t->shared && strcmp(key, t->shared) == 0))
        json_object_set_new(changes, key, json_null());
}

static void plan_update(const struct front_type *t, const json_t *front, const struct front_world *w,
                        const json_t *spec, struct plan *plan)
{
    json_t *changes = json_object(), *annotations = json_object();

    diff_spec(t, json_object_get(w->core, "spec"), spec, changes);
    plan_shared(t, front, w, changes, annotations, plan);
    if (json_object_size(changes) > 0 || json_object_size(annotations) > 0) {
        json_t *body = json_pack("{s{ss}}", "metadata", "uid", obj_uid(w->core));
        if (json_object_size(annotations) > 0)
            json_object_set(json_object_get(body, "metadata"), "annotations", annotations);
        if (json_object_size(changes) > 0)
            json_object_set(body, "spec", changes);
        plan_add(plan, t->patch, NULL, body);
    }
    json_decref(changes);
    json_decref(annotations);
}

/* ---- status ---- */

static void plan_trouble(const json_t *front, const struct front_world *w, const char *reason,
                         const char *text, struct plan *plan)
{
    const json_t *before = json_object_get(front, "status");
    struct meta m;
    struct conds c;

    meta_read(front, &m);
    conds_init(&c, before, m.generation, w->now_ms);
    conds_set(&c, COND_READY, "False", reason, "%s", text);
    json_t *patch = status_patch(before, json_pack("{so}", "conditions", conds_take(&c)));
    if (patch)
        plan_add(plan, STEP_FRONT_STATUS, NULL, patch);
}

/* The core's status, with the front's own generation in the conditions. */
static void plan_mirror(enum front_kind kind, const json_t *front, const struct front_world *w,
                        struct plan *plan)
{
    const json_t *status = json_object_get(w->core, "status");
    int64_t generation = obj_int(front, "metadata.generation", 0);

    if (kind == FRONT_TEMPLATE || !status)
        return;
    json_t *copy = json_deep_copy(status), *list = json_object_get(copy, "conditions");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (generation > 0)
            json_object_set_new(json_array_get(list, i), "observedGeneration", json_integer(generation));
    if (json_object_get(copy, "observedGeneration"))
        json_object_set_new(copy, "observedGeneration", json_integer(generation));
    json_t *patch = status_patch(json_object_get(front, "status"), copy);
    if (patch)
        plan_add(plan, STEP_FRONT_STATUS, NULL, patch);
}

/* Have the core's conditions been computed for its present spec? */
static bool is_settled(const json_t *core)
{
    const json_t *list = obj_at(core, "status.conditions");
    int64_t generation = obj_int(core, "metadata.generation", 0);

    for (size_t i = 0; i < json_array_size(list); i++)
        if (obj_int(json_array_get(list, i), "observedGeneration", generation) < generation)
            return false;
    return true;
}

/* ---- the plan ---- */

static void plan_pool_of_claim(const struct front_world *w, struct plan *plan)
{
    if (w->make_pool && w->template)
        plan_add(plan, STEP_POOL_CREATE, w->pool,
                 json_pack("{ss ss s{ss ss s[o]} s{si s{ss}}}", "apiVersion", API_EXT, "kind",
                           "SandboxWarmPool", "metadata", "name", w->pool, "namespace", w->template->ns,
                           "ownerReferences", owner_ref(w->template, API_EXT, "SandboxTemplate"), "spec",
                           "replicas", 0, "sandboxTemplateRef", "name", w->template->name));
}

void front_plan(enum front_kind kind, const json_t *front, const struct front_world *w, struct plan *plan)
{
    const struct front_type *t = &types[kind];
    struct meta core = {.name = NULL};

    if (obj_is_deleting(front))
        return;
    if (w->template_missing && !w->core) {
        plan_trouble(front, w, R_TEMPLATE_NOT_FOUND,
                     "The SandboxTemplate that sandboxTemplateRef names does not exist", plan);
        return;
    }
    if (w->core)
        meta_read(w->core, &core);
    if (w->core && !meta_is_owned_by(&core, t->kind, obj_uid(front))) {
        scoped_free char *text =
            xasprintf("%s.%.*s \"%s\" exists and is not driven by this object; delete one of them", t->kind,
                      (int)strcspn(t->api, "/"), t->api, core.name);
        plan_trouble(front, w, R_RECONCILER_ERROR, text, plan);
        return;
    }
    json_t *spec = front_spec(kind, front, w);
    plan_pool_of_claim(w, plan);
    if (!w->core)
        plan_create(t, front, spec, plan);
    else if (!meta_is_deleting(&core))
        plan_update(t, front, w, spec, plan);
    json_decref(spec);
    if (w->hold)
        plan_drop_steps(plan);
    if (w->fault) {
        scoped_free char *text = xasprintf("Error seen: %s", w->fault);
        plan_trouble(front, w, R_RECONCILER_ERROR, text, plan);
    } else if (plan->n == 0 && w->core && is_settled(w->core)) {
        plan_mirror(kind, front, w, plan);
    }
}
