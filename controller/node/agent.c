#include "controller/node/agent.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/map.h"
#include "base/random.h"
#include "controller/core/engine.h"
#include "controller/core/metrics.h"
#include "controller/kube/object.h"
#include "controller/node/egress.h"
#include "controller/node/pause.h"
#include "controller/node/shims.h"
#include "controller/sandbox/names.h"

/* Writing gigabytes out takes a while on a slow disk; the freeze itself takes milliseconds. */
#define PAUSE_TIMEOUT_MS  120000
#define RESUME_TIMEOUT_MS 30000
#define RETRY_MIN_MS      500
#define RETRY_MAX_MS      30000
#define LOOK_MS           30000
#define MESSAGE_MAX       512

static const struct kube_resource pods = {"", "v1", "pods", "Pod", false};
static const char *const keep[] = {"metadata",
                                   "status.phase",
                                   "status.conditions",
                                   "status.containerStatuses",
                                   "status.initContainerStatuses",
                                   NULL};

/* One pod that the agent has looked at; by uid, because names are used again. */
struct ward {
    struct list node;
    struct agent *agent;
    char *uid, *ns, *name;
    uint64_t scan;     /* the scan that must have ended before "no shim" is certain; 0: not asked for */
    char *scanned_ids; /* the containers that it looked for */
    bool busy, have_result;
    const char *status, *reason; /* the result, to be written */
    char message[MESSAGE_MAX];
    uint32_t failures;
    int64_t retry_at_ms;
    struct shim *calling; /* valid while busy */
};

enum meter { CALLS, LATENCY, FREED, SHIMS, PAUSED, REFUSED, METERS };

struct agent {
    struct loop *loop;
    struct engine *engine;
    struct controller *controller;
    struct store *pods;
    struct shims *shims;
    struct egress_sender *egress;
    struct source *look;
    char *selector;
    struct store_kind kind;
    struct list wards;
    struct map *by_uid;
    struct metric *meter[METERS];
};

static const double latency_ms[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 30000};
static const struct metric_def defs[METERS] = {
    [CALLS] = {.name = "glovebox_node_calls_total",
               .help = "Pauses and resumes asked of shims",
               .type = METRIC_COUNTER,
               .label = {"call", "result"}},
    [LATENCY] = {.name = "glovebox_node_call_latency_ms",
                 .help = "How long the shim took",
                 .type = METRIC_HISTOGRAM,
                 .label = {"call"},
                 .buckets = latency_ms,
                 .n_buckets = ARRAY_LEN(latency_ms)},
    [FREED] = {.name = "glovebox_node_memory_freed_bytes_total",
               .help = "Memory that pauses gave back to the node",
               .type = METRIC_COUNTER},
    [SHIMS] = {.name = "glovebox_node_pods",
               .help = "Pods of this node that run under glovebox",
               .type = METRIC_GAUGE},
    [PAUSED] = {.name = "glovebox_node_paused_pods",
                .help = "Those of them that are paused",
                .type = METRIC_GAUGE},
    [REFUSED] = {.name = "glovebox_node_refused_calls_total",
                 .help = "System calls that the barrier refused",
                 .type = METRIC_COUNTER,
                 .label = {"call"}},
};

/* ---- wards ---- */

static struct ward *ward_of(struct agent *a, const struct object *pod)
{
    struct ward *w = map_get(a->by_uid, object_uid(pod));

    if (w)
        return w;
    w = xcalloc(1, sizeof *w);
    w->agent = a;
    w->uid = xstrdup(object_uid(pod));
    w->ns = xstrdup(object_ns(pod));
    w->name = xstrdup(object_name(pod));
    list_append(&a->wards, &w->node);
    map_put(a->by_uid, w->uid, w);
    return w;
}

static void ward_free(struct ward *w)
{
    if (w->busy)
        shim_forget_call(w->calling);
    map_remove(w->agent->by_uid, w->uid);
    list_remove(&w->node);
    free(w->uid);
    free(w->ns);
    free(w->name);
    free(w->scanned_ids);
    free(w);
}

static void on_pod_change(void *data, const struct change *c)
{
    struct agent *a = data;

    if (c->now)
        return;
    struct ward *w = map_get(a->by_uid, object_uid(c->old));
    if (w)
        ward_free(w);
}

static void wake(struct ward *w)
{
    egress_sender_wake(w->agent->egress, w->ns, w->name);
    controller_add(w->agent->controller, w->ns, w->name);
}

/* ---- calls ---- */

static void set_result(struct ward *w, const char *status, const char *reason, const char *message)
{
    w->have_result = true;
    w->status = status;
    w->reason = reason;
    (void)snprintf(w->message, sizeof w->message, "%s", message);
}

static void call_failed(struct ward *w, bool resume, const struct shim_result *r)
{
    int64_t ms = MIN((int64_t)RETRY_MIN_MS << MIN(w->failures, 10u), (int64_t)RETRY_MAX_MS);

    w->failures++;
    w->retry_at_ms = clock_mono_ms() + random_around(ms);
    log_warn(resume ? "resume failed" : "pause failed", "namespace=%s pod=%s failures=%u why=%s", w->ns,
             w->name, w->failures, r->text);
    if (r->code == -ENOSYS)
        set_result(w, resume ? "True" : "False", resume ? POD_RESUME_FAILED : POD_PAUSE_REFUSED, r->text);
    else if (resume)
        set_result(w, "True", POD_RESUME_FAILED, r->text);
    else
        set_result(w, "False", POD_PAUSE_FAILED, r->text);
    w->scan = 0; /* the shim may have gone: look again */
}

static void call_ended(struct ward *w, bool resume, const struct shim_result *r)
{
    struct agent *a = w->agent;
    const char *call = resume ? "resume" : "pause";
    char message[MESSAGE_MAX];

    w->busy = false;
    metric_inc(a->meter[CALLS], 1, (const char *const[]){call, r->code == 0 ? "ok" : "failed"});
    if (r->code < 0) {
        call_failed(w, resume, r);
        wake(w);
        return;
    }
    metric_observe(a->meter[LATENCY], (double)r->took_ms, (const char *const[]){call});
    w->failures = 0;
    w->retry_at_ms = 0;
    if (resume) {
        (void)snprintf(message, sizeof message, POD_RESUMED_MESSAGE, (long long)r->took_ms);
        set_result(w, "False", POD_RUNNING, message);
    } else {
        if (r->memory_before > r->memory_after)
            metric_inc(a->meter[FREED], (double)(r->memory_before - r->memory_after), NULL);
        (void)snprintf(message, sizeof message, POD_PAUSED_MESSAGE, (unsigned long long)r->memory_before,
                       (unsigned long long)r->memory_after, (long long)r->took_ms);
        set_result(w, "True", POD_PAUSED, message);
    }
    log_info(resume ? "resumed" : "paused", "namespace=%s pod=%s ms=%lld before=%llu after=%llu", w->ns,
             w->name, (long long)r->took_ms, (unsigned long long)r->memory_before,
             (unsigned long long)r->memory_after);
    wake(w);
}

static void on_paused(void *data, const struct shim_result *r)
{
    call_ended(data, false, r);
}

static void on_resumed(void *data, const struct shim_result *r)
{
    call_ended(data, true, r);
}

static void start_call(struct ward *w, struct shim *s, bool resume)
{
    int r = resume ? shim_resume(s, RESUME_TIMEOUT_MS, on_resumed, w)
                   : shim_pause(s, PAUSE_TIMEOUT_MS, on_paused, w);

    if (r == 0) {
        w->busy = true;
        w->calling = s;
        return;
    }
    struct shim_result failed = {.code = r, .text = "the pod's shim does not answer at its socket"};
    if (r == -EBUSY) /* the call of a pod by the same name that is gone; its end wakes us */
        controller_add_after(w->agent->controller, w->ns, w->name, 100);
    else
        call_failed(w, resume, &failed);
}

/* ---- the condition ---- */

static json_t *condition_patch(const struct ward *w, const struct pod_facts *pod)
{
    char now[OBJ_TIME_MAX];
    struct timespec t = clock_wall();
    json_t *c = json_pack("{s:s,s:s,s:s,s:s}", "type", COND_POD_PAUSED, "status", w->status, "reason",
                          w->reason, "message", w->message);

    obj_format_time((int64_t)t.tv_sec * 1000, now);
    if (strcmp(pod->status, w->status) != 0)
        json_object_set_new(c, "lastTransitionTime", json_string(now));
    return json_pack("{s:{s:s},s:{s:[o]}}", "metadata", "uid", w->uid, "status", "conditions", c);
}

static void report(struct pass *p, struct ward *w, const struct pod_facts *pod)
{
    w->have_result = false;
    if (strcmp(pod->status, w->status) == 0 && strcmp(pod->reason, w->reason) == 0 &&
        strcmp(pod->message, w->message) == 0)
        return;
    pass_add(p, (struct action){.verb = KUBE_STRATEGIC_PATCH,
                                .resource = &pods,
                                .ns = w->ns,
                                .name = w->name,
                                .subresource = "status",
                                .body = condition_patch(w, pod),
                                .absent_ok = true});
}

/* ---- reconcile ---- */

static char *ids_text(const struct pod_facts *pod)
{
    char *text = xstrdup("");

    for (size_t i = 0; i < pod->n_ids; i++) {
        char *more = xasprintf("%s%s ", text, pod->ids[i]);
        free(text);
        text = more;
    }
    return text;
}

static struct shim *find_shim(struct ward *w, const struct pod_facts *pod, struct shim_facts *ret)
{
    struct shim *s = shims_find(w->agent->shims, pod->ids, pod->n_ids);
    scoped_free char *ids = ids_text(pod);

    if (w->scanned_ids && strcmp(w->scanned_ids, ids) != 0)
        w->scan = 0; /* other containers now */
    *ret = (struct shim_facts){
        .found = s != NULL,
        .paused = s && shim_is_paused(s),
        .searched = w->scan != 0 && shims_scanned(w->agent->shims) >= w->scan,
        .busy = w->busy,
        .have_result = w->have_result,
    };
    free(w->scanned_ids);
    w->scanned_ids = take(ids);
    return s;
}

/* Nothing was found although the scan is over: what the API should say. */
static void conclude_absent(struct ward *w, const struct pod_facts *pod)
{
    if (pod->wanted)
        set_result(w, "False", POD_PAUSE_REFUSED, "the pod does not run under glovebox on this node");
    else
        set_result(w, "False", POD_RUNNING, "nothing of this pod is paused on this node any more");
}

static void obey(struct pass *p, struct ward *w, const struct pod_facts *pod)
{
    struct shim_facts facts;
    struct shim *s = find_shim(w, pod, &facts);
    int64_t now = clock_mono_ms();
    enum pause_step step = pause_decide(pod, &facts);

    if ((step == PAUSE_DO || step == PAUSE_UNDO) && now < w->retry_at_ms) {
        pass_after(p, w->retry_at_ms - now);
        return;
    }
    switch (step) {
    case PAUSE_NOTHING:
        break;
    case PAUSE_SCAN:
        if (w->scan == 0)
            w->scan = shims_scan(w->agent->shims); /* its end wakes us */
        break;
    case PAUSE_DO:
    case PAUSE_UNDO:
        start_call(w, s, step == PAUSE_UNDO);
        if (w->have_result)
            report(p, w, pod);
        if (!w->busy && w->retry_at_ms > now)
            pass_after(p, w->retry_at_ms - now);
        break;
    case PAUSE_REPORT:
        if (!w->have_result)
            conclude_absent(w, pod);
        report(p, w, pod);
        if (w->retry_at_ms > now)
            pass_after(p, w->retry_at_ms - now);
        break;
    }
}

static int reconcile(struct pass *p, void *data, struct err *e)
{
    struct agent *a = data;
    struct key k = pass_key(p);
    const struct object *o = store_get(a->pods, k.ns, k.name);
    struct pod_facts facts;

    (void)e;
    if (!o)
        return 0;
    pod_facts_read(object_json(o), &facts);
    obey(p, ward_of(a, o), &facts);
    return 0;
}

/* A shim has told something, or a scan has ended: whoever waits for that looks again. */
static void on_shims(void *data, struct shim *s)
{
    struct agent *a = data;

    LIST_FOREACH(n, &a->wards)
    {
        struct ward *w = LIST_ENTRY(n, struct ward, node);
        bool waits = w->scan != 0 && shims_scanned(a->shims) >= w->scan;
        if (s ? w->scanned_ids && shim_has_one_of(s, w->scanned_ids) : waits)
            wake(w);
    }
}

/* ---- numbers ---- */

static void collect(void *data)
{
    struct agent *a = data;
    size_t cursor = 0, paused = 0;
    const char *name;
    uint64_t n;

    for (const struct object *o = NULL; (o = store_next(a->pods, o));)
        paused += obj_condition_is_true(object_json(o), COND_POD_PAUSED);
    metric_set(a->meter[SHIMS], (double)shims_count(a->shims), NULL);
    metric_set(a->meter[PAUSED], (double)paused, NULL);
    while (shims_next_refused(a->shims, &cursor, &name, &n))
        metric_set(a->meter[REFUSED], (double)n, (const char *const[]){name});
}

static void on_look(void *data)
{
    struct agent *a = data;

    shims_scan(a->shims);
    source_arm(a->look, LOOK_MS);
}

/* ---- life ---- */

int agent_new(struct loop *loop, struct engine *x, const char *node, const char *folder, struct metrics *m,
              struct agent **ret, struct err *e)
{
    scoped(agent_free) struct agent *a = xcalloc(1, sizeof *a);

    a->loop = loop;
    a->engine = x;
    a->by_uid = map_new();
    list_init(&a->wards);
    for (int i = 0; i < METERS; i++)
        a->meter[i] = metrics_add(m, &defs[i]);
    metrics_collect(m, collect, a);
    int r = shims_new(loop, folder, on_shims, a, &a->shims, e);
    if (r < 0)
        return r;
    r = loop_add_timer(loop, LOOK_MS, on_look, a, &a->look);
    if (r < 0)
        return err_set(e, r, "timer of the node agent");
    a->selector = xasprintf("spec.nodeName=%s", node);
    a->kind = (struct store_kind){.resource = &pods, .field_selector = a->selector, .keep = keep};
    a->pods = engine_add_kind(x, &a->kind);
    engine_on_change(x, a->pods, on_pod_change, a);
    a->controller = engine_add_controller(
        x, &(struct controller_spec){.name = "pause", .reconcile = reconcile, .data = a});
    controller_watch(a->controller, a->pods, NULL, NULL);
    a->egress = egress_sender_new(x, a->pods, a->shims);
    *ret = take(a);
    return 0;
}

void agent_free(struct agent *a)
{
    if (!a)
        return;
    LIST_FOREACH(n, &a->wards)
    ward_free(LIST_ENTRY(n, struct ward, node));
    map_free(a->by_uid);
    shims_free(a->shims); /* ends the calls, the egress sender's too */
    egress_sender_free(a->egress);
    source_free(a->look);
    free(a->selector);
    free(a);
}
