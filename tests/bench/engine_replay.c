/*
 * How many warm claims a second the controller does on one core when nothing but itself costs anything:
 * the API server and the kubelet are a table in this process, which speaks the same texts (WATCH lines
 * and answers, managedFields and all) to the engine's own parsers.  What the table costs is measured
 * and taken off; TLS and HTTP are not in the figure.
 *
 *   engine_replay [CLAIMS] [POOL]      prints claims per CPU second and what was written
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/strbuf.h"
#include "controller/core/engine.h"
#include "controller/core/metrics.h"
#include "controller/kube/json_alloc.h"
#include "controller/kube/kube.h"
#include "controller/kube/object.h"
#include "controller/kube/selector.h"
#include "controller/kube/stream.h"
#include "controller/kube/watch.h"
#include "controller/sandbox/sandboxes.h"

#define LINE_MAX_BYTES (1u << 20)

struct watch {
    struct list node;
    const struct watch_spec *spec;
    struct line_stream *lines;
};

struct kube_call {
    struct list node;
    enum kube_verb verb;
    char *answer; /* text */
    int http;
    kube_done_fn fn;
    void *data;
};

struct line { /* on its way to a watch */
    struct list node;
    struct watch *watch;
    char *text;
};

static struct {
    struct loop *loop;
    json_t *objects; /* "plural/ns/name" -> object */
    struct list watches, calls, lines, pods_to_start;
    uint64_t version, calls_made, by_verb[KUBE_VERBS], line_count;
    int64_t table_ns; /* CPU spent in here, not in the controller */
    size_t ready_claims;
} world;

struct pod_to_start {
    struct list node;
    char *key;
};

static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the table ---- */

static char *key_of(const struct kube_resource *r, const char *ns, const char *name)
{
    return xasprintf("%s/%s/%s", r->plural, ns ? ns : "", name);
}

static bool selected(const struct watch *w, const struct kube_resource *r, const json_t *o)
{
    return o && strcmp(w->spec->resource->plural, r->plural) == 0 &&
           strcmp(w->spec->resource->group, r->group) == 0 &&
           (!w->spec->ns || strcmp(w->spec->ns, obj_ns(o)) == 0) &&
           selector_match_labels(w->spec->label_selector, o) == 1 &&
           selector_match_fields(w->spec->field_selector, o) == 1;
}

/* As the server does it: an object that leaves the selection is DELETED to that watch. */
static void tell(const struct kube_resource *r, const json_t *old, const json_t *now)
{
    LIST_FOREACH(n, &world.watches)
    {
        struct watch *w = LIST_ENTRY(n, struct watch, node);
        bool was = selected(w, r, old), is = selected(w, r, now);
        if (!was && !is)
            continue;
        struct line *l = xcalloc(1, sizeof *l);
        scoped_free char *text = json_dumps(now ? now : old, JSON_COMPACT);
        l->watch = w;
        l->text = xasprintf("{\"type\":\"%s\",\"object\":%s}\n",
                            is ? (was ? "MODIFIED" : "ADDED") : "DELETED", text);
        list_append(&world.lines, &l->node);
    }
}

static void stamp(json_t *o)
{
    scoped_free char *v = xasprintf("%llu", (unsigned long long)++world.version);

    obj_set(o, "metadata.resourceVersion", json_string(v));
}

/* What the server adds to each object for every writer, in its size and shape. */
static json_t *managed_fields(void)
{
    json_t *list = json_array();

    for (int i = 0; i < 2; i++)
        json_array_append_new(
            list, json_pack("{s:s,s:s,s:s,s:s,s:{s:{s:{},s:{},s:{s:{},s:{},s:{}}},s:{s:{},s:{s:{},s:{}}}}}",
                            "manager", "glovebox-controller", "operation", "Update", "apiVersion", "v1",
                            "fieldsType", "FieldsV1", "fieldsV1", "f:metadata", "f:annotations", "f:labels",
                            "f:ownerReferences", ".", "k:{\"uid\":\"x\"}", "f:agents.x-k8s.io/claim-uid",
                            "f:spec", "f:replicas", "f:podTemplate", "f:metadata", "f:spec"));
    return list;
}

static void merge(json_t *into, const json_t *patch)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)patch, key, value)
    {
        json_t *have = json_object_get(into, key);
        if (json_is_null(value)) {
            json_object_del(into, key);
        } else if (json_is_object(value)) {
            if (!json_is_object(have)) {
                have = json_object();
                json_object_set_new(into, key, have);
            }
            merge(have, value);
        } else {
            json_object_set_new(into, key, json_deep_copy(value));
        }
    }
}

static void pod_appears(const char *key)
{
    struct pod_to_start *p = xcalloc(1, sizeof *p);

    p->key = xstrdup(key);
    list_append(&world.pods_to_start, &p->node);
}

static int create(const struct kube_resource *r, const char *ns, const json_t *body, json_t **ret)
{
    json_t *o = json_deep_copy(body);
    char now[OBJ_TIME_MAX];
    struct timespec t = clock_wall();

    if (!obj_name(o))
        obj_set(
            o, "metadata.name",
            json_sprintf("%s%05llx", obj_str(o, "metadata.generateName"), (unsigned long long)world.version));
    obj_set(o, "metadata.namespace", json_string(ns));
    scoped_free char *key = key_of(r, ns, obj_name(o));
    if (json_object_get(world.objects, key)) {
        json_decref(o);
        return 409;
    }
    obj_format_time((int64_t)t.tv_sec * 1000, now);
    obj_set(o, "metadata.uid",
            json_sprintf("00000000-0000-4000-8000-%012llu", (unsigned long long)world.version));
    obj_set(o, "metadata.creationTimestamp", json_string(now));
    obj_set(o, "metadata.generation", json_integer(1));
    obj_set(o, "metadata.managedFields", managed_fields());
    stamp(o);
    if (strcmp(r->plural, "pods") == 0) {
        obj_set(o, "status.phase", json_string("Pending"));
        pod_appears(key);
    }
    if (strcmp(r->plural, "events") != 0)
        json_object_set_new(world.objects, key, o);
    tell(r, NULL, o);
    *ret = strcmp(r->plural, "events") != 0 ? json_incref(o) : o;
    return 201;
}

static bool claim_is_ready(const char *key, const json_t *o)
{
    return strncmp(key, "sandboxclaims/", 14) == 0 && obj_condition_is_true(o, "Ready");
}

static int patch(const struct kube_resource *r, const char *key, const struct kube_request *req, json_t **ret)
{
    json_t *o = json_object_get(world.objects, key);
    const char *pre = obj_version(req->body);

    if (!o)
        return 404;
    if (pre && strcmp(pre, obj_version(o)) != 0)
        return 409;
    json_t *now = json_deep_copy(o);
    bool was_ready = claim_is_ready(key, o);
    merge(now, req->body);
    if (!req->subresource && json_object_get(req->body, "spec"))
        obj_set(now, "metadata.generation", json_integer(obj_int(o, "metadata.generation", 0) + 1));
    stamp(now);
    json_incref(o);
    json_object_set_new(world.objects, key, now);
    tell(r, o, now);
    json_decref(o);
    world.ready_claims += !was_ready && claim_is_ready(key, now);
    *ret = json_incref(now);
    return 200;
}

static int answer(const struct kube_request *req, json_t **ret)
{
    scoped_free char *key = req->name ? key_of(req->resource, req->ns, req->name) : NULL;
    json_t *o = key ? json_object_get(world.objects, key) : NULL;

    switch (req->verb) {
    case KUBE_CREATE:
        return create(req->resource, req->ns, req->body, ret);
    case KUBE_MERGE_PATCH:
        return patch(req->resource, key, req, ret);
    case KUBE_GET:
        *ret = json_incref(o);
        return o ? 200 : 404;
    case KUBE_DELETE:
        if (!o)
            return 404;
        json_incref(o);
        json_object_del(world.objects, key);
        tell(req->resource, o, NULL);
        *ret = json_pack("{s:s,s:{s:O}}", "kind", "Status", "details", "uid", obj_at(o, "metadata.uid"));
        json_decref(o);
        return 200;
    default:
        return 405;
    }
}

/* ---- in the place of the client ---- */

int __wrap_watch_new(struct kube *k, const struct watch_spec *spec, struct watch **ret, struct err *e);
void __wrap_watch_free(struct watch *w);
struct kube_call *__wrap_kube_call(struct kube *k, const struct kube_request *req, kube_done_fn fn,
                                   void *data);
void __wrap_kube_cancel(struct kube_call *c);

static void on_event(void *data, enum watch_type type, json_t *object)
{
    struct watch *w = data;

    if (type == WATCH_DELETED)
        w->spec->deleted(w->spec->data, object);
    else
        w->spec->object(w->spec->data, object);
}

static bool on_known(void *data, const struct scan *s)
{
    struct watch *w = data;
    char ns[64], name[256], uid[64];

    if (!s->name.at || !s->ns.at || !s->uid.at || s->ns.len >= sizeof ns || s->name.len >= sizeof name ||
        s->uid.len >= sizeof uid)
        return false;
    (void)snprintf(ns, sizeof ns, "%.*s", (int)s->ns.len, s->ns.at);
    (void)snprintf(name, sizeof name, "%.*s", (int)s->name.len, s->name.at);
    (void)snprintf(uid, sizeof uid, "%.*s", (int)s->uid.len, s->uid.at);
    return w->spec->known(w->spec->data, ns, name, uid, slice_number(s->version));
}

int __wrap_watch_new(struct kube *k, const struct watch_spec *spec, struct watch **ret, struct err *e)
{
    struct watch *w = xcalloc(1, sizeof *w);

    (void)k, (void)e;
    w->spec = spec;
    w->lines = line_stream_new(LINE_MAX_BYTES, on_event, w);
    line_stream_set_known(w->lines, on_known);
    list_append(&world.watches, &w->node);
    spec->list_begin(spec->data);
    spec->list_end(spec->data, 0, false);
    *ret = w;
    return 0;
}

void __wrap_watch_free(struct watch *w)
{
    if (!w)
        return;
    list_remove(&w->node);
    line_stream_free(w->lines);
    free(w);
}

struct kube_call *__wrap_kube_call(struct kube *k, const struct kube_request *req, kube_done_fn fn,
                                   void *data)
{
    (void)k;
    scoped_free char *sent =
        req->body ? json_dumps(req->body, JSON_COMPACT) : NULL; /* the real one has this cost */
    int64_t start = cpu_ns();
    struct kube_call *c = xcalloc(1, sizeof *c);
    json_t *o = NULL;

    c->verb = req->verb;
    c->fn = fn;
    c->data = data;
    c->http = answer(req, &o);
    c->answer = o ? json_dumps(o, JSON_COMPACT) : xstrdup("{\"kind\":\"Status\",\"message\":\"no\"}");
    json_decref(o);
    list_append(&world.calls, &c->node);
    world.calls_made++;
    world.by_verb[req->verb]++;
    world.table_ns += cpu_ns() - start;
    return c;
}

void __wrap_kube_cancel(struct kube_call *c)
{
    list_remove(&c->node);
    free(c->answer);
    free(c);
}

/* ---- the wire ---- */

static void deliver_answer(struct kube_call *c)
{
    size_t n = strlen(c->answer);
    struct scan scan;

    list_remove(&c->node);
    if (scan_object(c->answer, n, &scan) && scan.managed.at) { /* as api.c does */
        char *at = c->answer + (scan.managed.at - c->answer);
        memmove(at, at + scan.managed.len, (size_t)(c->answer + n - at) - scan.managed.len);
        n -= scan.managed.len;
    }
    scoped(json_decref) json_t *body = json_loadb(c->answer, n, JSON_ALLOW_NUL, NULL);
    struct kube_result r = {
        .http = c->http, .reason = "", .message = "", .code = kube_classify(c->http, NULL)};
    if (c->http == 409 && c->verb == KUBE_CREATE)
        r.code = -EEXIST;
    r.object = r.code == 0 ? body : NULL;
    c->fn(c->data, &r);
    free(c->answer);
    free(c);
}

static void deliver_all(void)
{
    while (!list_is_empty(&world.calls) || !list_is_empty(&world.lines)) {
        if (!list_is_empty(&world.calls))
            deliver_answer(LIST_ENTRY(world.calls.next, struct kube_call, node));
        if (!list_is_empty(&world.lines)) {
            struct line *l = LIST_ENTRY(world.lines.next, struct line, node);
            list_remove(&l->node);
            world.line_count++;
            line_stream_feed(l->watch->lines, l->text, strlen(l->text));
            free(l->text);
            free(l);
        }
    }
}

/* ---- kubelet and users ---- */

static const struct kube_resource pods = {"", "v1", "pods", "Pod", false};
static const struct kube_resource claims = {"extensions.agents.x-k8s.io", "v1beta1", "sandboxclaims",
                                            "SandboxClaim", false};
static const struct kube_resource pools = {"extensions.agents.x-k8s.io", "v1beta1", "sandboxwarmpools",
                                           "SandboxWarmPool", false};
static const struct kube_resource templates = {"extensions.agents.x-k8s.io", "v1beta1", "sandboxtemplates",
                                               "SandboxTemplate", false};

static void start_pods(void)
{
    int64_t start = cpu_ns();

    LIST_FOREACH(n, &world.pods_to_start)
    {
        struct pod_to_start *p = LIST_ENTRY(n, struct pod_to_start, node);
        json_t *o = json_object_get(world.objects, p->key), *ret = NULL;
        if (o) {
            json_t *body =
                json_pack("{s:{s:s,s:s,s:[{s:s}],s:[{s:s,s:s,s:s},{s:s,s:s,s:s}]}}", "status", "phase",
                          "Running", "podIP", "10.0.0.1", "podIPs", "ip", "10.0.0.1", "conditions", "type",
                          "PodScheduled", "status", "True", "lastTransitionTime", "2026-11-30T23:00:00Z",
                          "type", "Ready", "status", "True", "lastTransitionTime", "2026-11-30T23:00:00Z");
            struct kube_request req = {.resource = &pods, .body = body, .subresource = "status"};
            (void)patch(&pods, p->key, &req, &ret);
            json_decref(ret);
            json_decref(body);
        }
        list_remove(&p->node);
        free(p->key);
        free(p);
    }
    world.table_ns += cpu_ns() - start;
}

static void user_creates(const struct kube_resource *r, json_t *body)
{
    int64_t start = cpu_ns();
    json_t *ret = NULL;
    int status = create(r, "default", body, &ret);

    assert(status == 201);
    json_decref(ret);
    json_decref(body);
    world.table_ns += cpu_ns() - start;
}

static json_t *object(const struct kube_resource *r, const char *name, json_t *spec)
{
    return json_pack("{s:o,s:s,s:{s:s},s:o}", "apiVersion", json_sprintf("%s/%s", r->group, r->version),
                     "kind", r->kind, "metadata", "name", name, "spec", spec);
}

static void turn(void)
{
    bool idle =
        list_is_empty(&world.calls) && list_is_empty(&world.lines) && list_is_empty(&world.pods_to_start);
    int r = loop_step(world.loop, idle ? 1 : 0, NULL); /* what the controller delays takes its time */

    assert(r == 0);
    deliver_all();
    start_pods();
    deliver_all();
}

static int64_t ready_members(void)
{
    return obj_int(json_object_get(world.objects, "sandboxwarmpools/default/p"), "status.readyReplicas", 0);
}

static void run(size_t n, int64_t members)
{
    user_creates(&templates, object(&templates, "t",
                                    json_pack("{s:{s:{s:[{s:s,s:s}]}}}", "podTemplate", "spec", "containers",
                                              "name", "c", "image", "busybox")));
    user_creates(&pools, object(&pools, "p",
                                json_pack("{s:I,s:{s:s}}", "replicas", (json_int_t)members,
                                          "sandboxTemplateRef", "name", "t")));
    for (int64_t until = clock_mono_ms() + 30000; clock_mono_ms() < until && ready_members() < members;)
        turn();
    assert(ready_members() == members);

    int64_t start = cpu_ns(), table = world.table_ns;
    uint64_t calls = world.calls_made, lines = world.line_count;
    for (size_t made = 0; world.ready_claims < n; turn())
        for (; made < n && made < world.ready_claims + 8; made++) {
            scoped_free char *name = xasprintf("claim%zu", made);
            user_creates(&claims, object(&claims, name, json_pack("{s:{s:s}}", "warmPoolRef", "name", "p")));
        }
    double all = (double)(cpu_ns() - start) / 1e9, ours = all - (double)(world.table_ns - table) / 1e9;
    (void)printf("claims %zu, CPU of the controller %.3f s (of the table %.3f s): %.0f claims/s, %.3f ms "
                 "each; %.2f calls and "
                 "%.2f watch lines a claim\n",
                 n, ours, all - ours, (double)n / ours, ours * 1000 / (double)n,
                 (double)(world.calls_made - calls) / (double)n,
                 (double)(world.line_count - lines) / (double)n);
}

int main(int argc, char **argv)
{
    struct engine_options eo = {.component = "replay"};
    static const char *const domains[] = {"sandbox.users.io", NULL};
    struct sandboxes_options so = {.cluster_domain = "cluster.local",
                                   .router_namespace = "r",
                                   .label_domains = domains,
                                   .runtime_handler = "glovebox",
                                   .extensions = true,
                                   .front = true,
                                   .pod_resources = true,
                                   .claim_events = true,
                                   .evictable = true,
                                   .starts_max = 300,
                                   .readiness_grace_ms = 300000,
                                   .passes_max = 64};
    struct engine *x;
    struct sandboxes *s;
    struct metrics *m = metrics_new();

    log_init(2, LOG_WARN);
    json_alloc_use();
    world.objects = json_object();
    list_init(&world.watches);
    list_init(&world.calls);
    list_init(&world.lines);
    list_init(&world.pods_to_start);
    if (loop_new(&world.loop, NULL) < 0 || engine_new(world.loop, NULL, &eo, &x, NULL) < 0 ||
        sandboxes_new(x, &so, m, &s, NULL) < 0)
        return 1;
    engine_set_active(x, true);
    if (engine_start(x, NULL) < 0)
        return 1;
    run(argc > 1 ? strtoul(argv[1], NULL, 10) : 2000, argc > 2 ? strtol(argv[2], NULL, 10) : 50);
    engine_free(x);
    sandboxes_free(s);
    metrics_free(m);
    loop_free(world.loop);
    json_decref(world.objects);
    return 0;
}
