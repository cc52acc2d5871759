#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "controller/kube/object.h"
#include "controller/sandbox/apply.h"
#include "controller/sandbox/context.h"
#include "controller/sandbox/plan_sandbox.h"

/* Everything that a plan borrows, for one pass. */
struct observed {
    struct sandbox_world world;
    struct pod *pods;
    struct pod named;
    const json_t **claims;
};

static void observed_free(struct observed *o)
{
    if (o) {
        free(o->pods);
        free(o->claims);
        free(o);
    }
}
SCOPED_DEFINE(struct observed, observed_free)

/* Watched by our label, or free for adoption. */
static const json_t *find_either(const struct sandboxes *x, enum watched kind, enum watched spare,
                                 const char *ns, const char *name)
{
    const json_t *json = find_json(x->store[kind], ns, name);

    return json ? json : find_json(x->store[spare], ns, name);
}

static void observe_pods(const struct sandboxes *x, const struct sandbox *s, struct observed *o)
{
    const struct store *pods = x->store[WATCH_POD];
    char value[INDEX_VALUE_MAX];
    struct index_cursor cursor;

    index_value(s->meta.ns, s->meta.uid, value);
    o->pods = xcalloc(store_index_count(pods, POD_BY_OWNER, value) + 1, sizeof *o->pods);
    for (const struct object *p = store_index_first(pods, POD_BY_OWNER, value, &cursor); p;
         p = store_index_next(&cursor))
        pod_read(object_json(p), &o->pods[o->world.n_owned++]);
    o->world.owned = o->pods;
    if (o->world.n_owned == 0) {
        const json_t *named = find_either(x, WATCH_POD, WATCH_FREE_POD, s->meta.ns, s->meta.name);
        if (named) {
            pod_read(named, &o->named);
            o->world.named = &o->named;
        }
    }
}

static void observe_claims(const struct sandboxes *x, const struct sandbox *s, struct observed *o)
{
    size_t n = json_array_size(s->volume_claims);

    o->claims = xcalloc(n + 1, sizeof *o->claims);
    for (size_t i = 0; i < n; i++) {
        scoped_free char *name = pvc_name(s, json_array_get(s->volume_claims, i));
        o->claims[i] = name ? find_either(x, WATCH_PVC, WATCH_FREE_PVC, s->meta.ns, name) : NULL;
    }
    o->world.claims = o->claims;
}

static bool pool_holds_paused(const struct sandboxes *x, const struct sandbox *s)
{
    const json_t *json = find_json(x->store[WATCH_POOL], s->meta.ns, obj_str(s->meta.owner, "name"));
    struct pool p = {.replicas = 0};

    if (!json)
        return false;
    pool_read(json, &p);
    return p.member_state != MEMBER_RUNNING;
}

static bool node_is_lost(const struct sandboxes *x, const struct pod *pod)
{
    const struct object *node = pod->node ? store_get(x->store[WATCH_NODE], "", pod->node) : NULL;

    return node && ((const struct node_digest *)object_digest(node))->lost;
}

static struct observed *observe(const struct sandboxes *x, struct pass *p, const struct sandbox *s,
                                uint8_t owner)
{
    struct observed *o = xcalloc(1, sizeof *o);
    const struct failure *failure = pass_failure(p);
    const char *class = obj_str(s->pod_spec, "runtimeClassName");

    o->world = (struct sandbox_world){.now_ms = now_ms(),
                                      .owner = owner,
                                      .cluster_domain = x->opt.cluster_domain,
                                      .evictable = x->opt.evictable,
                                      .taken = failure && failure->code == -EEXIST ? failure->text : NULL,
                                      .fault = lasting_failure(p)};
    o->world.hold = o->world.fault != NULL;
    observe_pods(x, s, o);
    observe_claims(x, s, o);
    o->world.service = find_either(x, WATCH_SERVICE, WATCH_FREE_SERVICE, s->meta.ns, s->meta.name);
    if (o->world.n_owned == 1) {
        class = o->pods[0].runtime_class;
        o->world.node_lost = node_is_lost(x, &o->pods[0]);
    }
    o->world.in_place = class && class_is_ours(x, class);
    o->world.hold_paused = owner == OWNER_POOL && o->world.in_place && pool_holds_paused(x, s);
    return o;
}

/* Move the world one step towards what the key asks for.  Level-triggered: which event woke us is unknown
 * and does not matter, so everything is read again and running twice is harmless. */
int reconcile_sandbox(struct pass *p, void *data, struct err *e)
{
    const struct sandboxes *x = data;
    struct key k = pass_key(p);
    const struct object *o = store_get(x->store[WATCH_SANDBOX], k.ns, k.name);
    struct sandbox s = {.service = 0};
    scoped_plan struct plan plan;

    (void)e;
    plan_init(&plan);
    if (!o)
        return 0; /* deleted: its children carry owner references, the garbage collector takes them */
    sandbox_read(object_json(o), &s);
    scoped(observed_free) struct observed *now =
        observe(x, p, &s, ((const struct sandbox_digest *)object_digest(o))->owner);
    sandbox_plan(&s, &now->world, &plan);
    if (now->world.hold)
        plan_again(&plan, FAULT_HOLD_MS);
    plan_apply(p, &plan, &(struct apply_about){&kind_sandbox, s.meta.json, k.ns, k.name});
    return 0;
}
