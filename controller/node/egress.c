#include "controller/node/egress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/scoped.h"
#include "controller/core/engine.h"
#include "controller/kube/object.h"
#include "controller/node/pause.h"
#include "controller/node/shims.h"
#include "controller/sandbox/names.h"

#define CALL_TIMEOUT_MS 10000
#define LOOK_MS         50 /* for the shim of a pod that just starts; then less and less often */
#define LOOK_MAX_MS     30000
#define RETRY_MS        1000
#define GROUP           "glovebox.dev"

static const struct kube_resource policies = {GROUP, "v1alpha1", "egresspolicies", "EgressPolicy", false};
static const struct kube_resource floors = {GROUP, "v1alpha1", "clusteregresspolicies", "ClusterEgressPolicy",
                                            true};
static const char *const keep[] = {"metadata", "spec", NULL};

/* What a pod's shim has; by the pod's uid. */
struct sent {
    struct egress_sender *sender;
    char *ns, *name; /* of the pod */
    char *text;      /* confirmed by the shim; NULL = nothing yet */
    char *asking;    /* on its way; NULL while a confirmation is */
    bool busy;
    unsigned looks; /* for its shim, in vain */
    int64_t confirmed_ms;
};
struct egress_sender {
    struct engine *engine;
    struct controller *controller;
    struct store *pods, *policies, *floors;
    struct store_kind policies_kind, floors_kind;
    struct shims *shims;
    struct map *by_uid;
};

/* "open" and "none" need no policy object, and inline policies come with the pod. */
static const char *wanted_policy(const json_t *pod)
{
    const char *want = obj_annotation(pod, ANN_POD_EGRESS);

    return want && *want && *want != '{' && strcmp(want, "open") != 0 && strcmp(want, "none") != 0 ? want
                                                                                                   : NULL;
}

static void sent_free(struct sent *s)
{
    free(s->ns);
    free(s->name);
    free(s->text);
    free(s->asking);
    free(s);
}

static struct sent *sent_of(struct egress_sender *x, const struct object *pod)
{
    struct sent *s = map_get(x->by_uid, object_uid(pod));

    if (!s) {
        s = xcalloc(1, sizeof *s);
        *s = (struct sent){.sender = x, .ns = xstrdup(object_ns(pod)), .name = xstrdup(object_name(pod))};
        map_put(x->by_uid, object_uid(pod), s);
    }
    return s;
}

static void on_sent(void *data, const struct shim_result *r)
{
    struct sent *s = data;

    s->busy = false;
    if (!s->ns) { /* the pod has gone meanwhile */
        sent_free(s);
        return;
    }
    if (r->code < 0) {
        log_warn("egress policy not taken", "namespace=%s pod=%s why=%s", s->ns, s->name, r->text);
        free(take(s->asking));
        free(take(s->text)); /* whatever it has now: send all of it again */
        controller_add_after(s->sender->controller, s->ns, s->name, RETRY_MS);
        return;
    }
    s->confirmed_ms = clock_mono_ms();
    if (s->asking) {
        log_info("egress policy sent", "namespace=%s pod=%s ms=%lld", s->ns, s->name, (long long)r->took_ms);
        free(s->text);
        s->text = take(s->asking);
    }
    controller_add(s->sender->controller, s->ns, s->name);
}

static json_t *all_floors(const struct egress_sender *x)
{
    json_t *list = json_array();

    for (const struct object *o = NULL; (o = store_next(x->floors, o));)
        json_array_append(list, (json_t *)(uintptr_t)object_json(o));
    return list;
}

static char *compile(const struct egress_sender *x, const char *ns, const char *name)
{
    const struct object *o = store_get(x->policies, ns, name);
    json_t *list = all_floors(x);
    char *text = egress_compile(name, o ? object_json(o) : NULL, list);

    json_decref(list);
    return text;
}

static void send_text(struct pass *p, struct sent *s, struct shim *shim,
                      char *text /* taken; NULL = confirm */)
{
    int r = shim_egress(shim, text, CALL_TIMEOUT_MS, on_sent, s);

    if (r < 0) {
        free(text);
        pass_after(p, r == -EBUSY ? LOOK_MS : RETRY_MS);
        return;
    }
    s->busy = true;
    s->asking = text;
}

static int64_t lease_ms(const struct egress_sender *x, const char *ns, const char *name)
{
    const struct object *o = store_get(x->policies, ns, name);

    return o ? obj_int(object_json(o), "spec.leaseSeconds", 300) * 1000 : 0;
}

static int reconcile(struct pass *p, void *data, struct err *e)
{
    struct egress_sender *x = data;
    struct key k = pass_key(p);
    const struct object *pod = store_get(x->pods, k.ns, k.name);
    const char *want = pod ? wanted_policy(object_json(pod)) : NULL;
    struct pod_facts facts;

    (void)e;
    if (!want)
        return 0;
    pod_facts_read(object_json(pod), &facts);
    struct shim *shim = shims_find(x->shims, facts.ids, facts.n_ids);
    struct sent *s = sent_of(x, pod);
    if (!shim) { /* a shim tells of new containers only when it is asked */
        if (facts.deleting || facts.n_ids == 0)
            return 0;
        (void)shims_scan(x->shims);
        pass_after(p, MIN((int64_t)LOOK_MS << MIN(s->looks, 10u), (int64_t)LOOK_MAX_MS));
        s->looks++;
        return 0;
    }
    s->looks = 0;
    if (s->busy)
        return 0; /* its end brings us back */
    scoped_free char *text = compile(x, k.ns, want);
    int64_t lease = lease_ms(x, k.ns, want), age = clock_mono_ms() - s->confirmed_ms;
    if (!s->text || strcmp(s->text, text) != 0)
        send_text(p, s, shim, take(text));
    else if (lease > 0 && age >= lease / 3)
        send_text(p, s, shim, NULL);
    else if (lease > 0)
        pass_after(p, lease / 3 - age);
    return 0;
}

/* A policy changed: the pods that name it. A floor changed: all that name any. */
static void on_policy(struct controller *c, const struct change *change, void *data)
{
    struct egress_sender *x = data;
    const struct object *o = change->now ? change->now : change->old;
    bool one = change->store == x->policies;

    for (const struct object *pod = NULL; (pod = store_next(x->pods, pod));) {
        const char *want = wanted_policy(object_json(pod));
        if (want &&
            (!one || (strcmp(object_ns(pod), object_ns(o)) == 0 && strcmp(want, object_name(o)) == 0)))
            controller_add(c, object_ns(pod), object_name(pod));
    }
}

static void on_pod_change(void *data, const struct change *c)
{
    struct egress_sender *x = data;

    if (c->now)
        return;
    struct sent *s = map_remove(x->by_uid, object_uid(c->old));
    if (s && s->busy)
        free(take(s->ns)); /* the call's end frees it */
    else if (s)
        sent_free(s);
}

struct egress_sender *egress_sender_new(struct engine *engine, struct store *pods, struct shims *shims)
{
    struct egress_sender *x = xcalloc(1, sizeof *x);

    x->engine = engine;
    x->pods = pods;
    x->shims = shims;
    x->by_uid = map_new();
    x->policies_kind = (struct store_kind){.resource = &policies, .keep = keep, .optional = true};
    x->floors_kind = (struct store_kind){.resource = &floors, .keep = keep, .optional = true};
    x->policies = engine_add_kind(engine, &x->policies_kind);
    x->floors = engine_add_kind(engine, &x->floors_kind);
    engine_on_change(engine, pods, on_pod_change, x);
    x->controller = engine_add_controller(
        engine, &(struct controller_spec){.name = "egress", .reconcile = reconcile, .data = x});
    controller_watch(x->controller, pods, NULL, NULL);
    controller_watch(x->controller, x->policies, on_policy, x);
    controller_watch(x->controller, x->floors, on_policy, x);
    return x;
}

void egress_sender_free(struct egress_sender *x)
{
    size_t at = 0;
    void *s;

    if (!x)
        return;
    while (map_next(x->by_uid, &at, NULL, &s))
        sent_free(s);
    map_free(x->by_uid);
    free(x);
}

void egress_sender_wake(struct egress_sender *x, const char *ns, const char *name)
{
    controller_add(x->controller, ns, name);
}
