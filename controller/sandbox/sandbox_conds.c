#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "controller/kube/object.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/names.h"
#include "controller/sandbox/plan_sandbox.h"

#define TEXT_MAX 600

/* ---- why a Pod is not ready, in words that do not change from one retry of the kubelet to the next -- */

/* Waiting reasons that alternate or carry a counter are told by a steady sentence. */
static const struct {
    const char *reason, *words;
} steady[] = {
    {"ErrImagePull", "cannot pull its image"},
    {"ImagePullBackOff", "cannot pull its image"},
    {"InvalidImageName", "has an image name that is not valid"},
    {"ErrImageNeverPull", "needs an image that is not on the node, and may not pull it"},
    {"CrashLoopBackOff", "ends soon after every start"},
};

static bool waiting_text(const json_t *statuses, char *out, size_t size)
{
    for (size_t i = 0; i < json_array_size(statuses); i++) {
        const json_t *c = json_array_get(statuses, i), *waiting = obj_at(c, "state.waiting");
        const char *reason = obj_str(waiting, "reason"), *message = obj_str(waiting, "message");
        const char *name = obj_str(c, "name"), *image = obj_str(c, "image");

        if (!reason || strcmp(reason, "ContainerCreating") == 0 || strcmp(reason, "PodInitializing") == 0)
            continue;
        for (size_t j = 0; j < ARRAY_LEN(steady); j++)
            if (strcmp(reason, steady[j].reason) == 0) {
                bool about_image = strstr(steady[j].words, "image") != NULL;
                (void)snprintf(out, size, "container \"%s\" %s%s%s%s", name ? name : "", steady[j].words,
                               about_image ? " \"" : "", about_image && image ? image : "",
                               about_image ? "\"" : "");
                return true;
            }
        (void)snprintf(out, size, "container \"%s\" waits: %s%s%s", name ? name : "", reason,
                       message ? ": " : "", message ? message : "");
        return true;
    }
    return false;
}

/* "; why" or "". */
static void pod_detail(const struct pod *pod, bool node_lost, char *out, size_t size)
{
    char text[TEXT_MAX] = "";

    if (node_lost)
        (void)snprintf(text, sizeof text, "its node \"%s\" does not answer", pod->node ? pod->node : "");
    else if (condition_is(pod->scheduled, "False"))
        (void)snprintf(text, sizeof text, "%s", condition_str(pod->scheduled, "message"));
    else if (!waiting_text(pod->init_containers, text, sizeof text))
        (void)waiting_text(pod->containers, text, sizeof text);
    (void)snprintf(out, size, "%s%s", text[0] ? ": " : "", text);
}

/* ---- Ready ---- */

/*
 * A readiness probe cannot be answered by stopped processes, so the kubelet reports the Pod as not
 * ready during a pause and needs up to a period of the probe to notice that it is back.  The Pod was
 * Ready when it was paused; until the kubelet had the time to look again, that holds.
 */
int64_t probe_grace_ms(const struct pod *pod, int64_t now_ms)
{
    int64_t resumed = pod ? condition_since_ms(pod->paused) : 0;

    if (!pod || strcmp(condition_str(pod->paused, "reason"), POD_RUNNING) != 0 ||
        condition_is(pod->ready, "True") || condition_since_ms(pod->ready) > resumed)
        return 0;
    return MAX(resumed + PROBE_GRACE_MS - now_ms, 0);
}

static const char *service_words(const struct sandbox *s, const struct sandbox_facts *f)
{
    if (f->service_there)
        return "; Service Exists";
    return s->service == SERVICE_YES ? "; Service does not exist" : "";
}

static void set_ready_of_pod(struct conds *c, const struct sandbox *s, const struct sandbox_world *w,
                             const struct sandbox_facts *f)
{
    const struct pod *pod = f->pod;
    const char *service = service_words(s, f);
    char detail[TEXT_MAX + 8];

    if (!pod) {
        conds_set(c, COND_READY, "False", R_DEPS_NOT_READY, "Pod does not exist%s", service);
        return;
    }
    pod_detail(pod, w->node_lost, detail, sizeof detail);
    if (meta_is_deleting(&pod->meta))
        conds_set(c, COND_READY, "False", R_DEPS_NOT_READY, "Pod is being deleted%s", service);
    else if (pod->phase != PHASE_RUNNING)
        conds_set(c, COND_READY, "False", R_DEPS_NOT_READY, "Pod exists with phase: %s%s%s",
                  pod->phase_text ? pod->phase_text : "Pending", service, detail);
    else if (w->node_lost || (!condition_is(pod->ready, "True") && probe_grace_ms(pod, w->now_ms) == 0))
        conds_set(c, COND_READY, "False", R_DEPS_NOT_READY, "Pod is Running but not Ready%s%s", service,
                  detail);
    else if (json_array_size(pod->ips) == 0)
        conds_set(c, COND_READY, "False", R_DEPS_NOT_READY, "Pod is Ready but has no podIPs yet%s", service);
    else if (s->service == SERVICE_YES && !f->service_there)
        conds_set(c, COND_READY, "False", R_DEPS_NOT_READY, "Pod is Ready%s", service);
    else
        conds_set(c, COND_READY, "True", R_DEPS_READY, "Pod is Ready%s", service);
}

static bool is_terminal(const struct pod *pod)
{
    return pod && (pod->phase == PHASE_FAILED || pod->phase == PHASE_SUCCEEDED);
}

static void set_terminal(struct conds *c, const char *type, const char *status, const struct pod *pod)
{
    bool failed = pod->phase == PHASE_FAILED;

    conds_set(c, type, status, failed ? R_POD_FAILED : R_POD_SUCCEEDED, "%s%s%s%s%s",
              failed ? "Pod failed" : "Pod completed successfully", pod->reason ? ": " : "",
              pod->reason ? pod->reason : "", pod->message ? ": " : "", pod->message ? pod->message : "");
}

static void set_ready(struct conds *c, const struct sandbox *s, const struct sandbox_world *w,
                      const struct sandbox_facts *f)
{
    bool paused = f->pod && condition_is(f->pod->paused, "True");

    if (f->problem[0] && (strcmp(f->problem_reason, R_RECONCILER_ERROR) != 0 || !f->gone))
        conds_set(c, COND_READY, "False", f->problem_reason, "%s%s",
                  strcmp(f->problem_reason, R_RECONCILER_ERROR) == 0 ? "Error seen: " : "", f->problem);
    else if (f->gone)
        conds_set(c, COND_READY, "False", s->suspended ? R_SUSPENDED : R_PAUSED, "Sandbox is %s",
                  f->pod || f->pod_foreign ? (s->suspended ? "suspending" : "pausing")
                                           : (s->suspended ? "suspended" : "paused"));
    else if (is_terminal(f->pod))
        set_terminal(c, COND_READY, "False", f->pod);
    else if (paused && !meta_is_deleting(&f->pod->meta))
        conds_set(c, COND_READY, "False", R_PAUSED, "Sandbox is paused%s",
                  w->owner == OWNER_POOL ? " and waits for a claim" : "");
    else
        set_ready_of_pod(c, s, w, f);
}

/* ---- Suspended ---- */

static void set_suspended(struct conds *c, const struct sandbox_facts *f)
{
    if (!f->gone)
        conds_set(c, COND_SUSPENDED, "False", R_NOT_SUSPENDED, "Sandbox is not suspended");
    else if (f->pod_foreign)
        conds_set(c, COND_SUSPENDED, "False", R_POD_NOT_OWNED,
                  "Refused to delete pod because it is not owned by this sandbox");
    else if (f->problem[0] && strcmp(f->problem_reason, R_MULTIPLE_PODS) == 0)
        conds_set(c, COND_SUSPENDED, "Unknown", R_POD_UNKNOWN,
                  "Pod state is unknown. Sandbox suspension cannot be confirmed");
    else if (f->pod)
        conds_set(c, COND_SUSPENDED, "False", R_POD_TERMINATING, "Pod is terminating. Sandbox is suspending");
    else
        conds_set(c, COND_SUSPENDED, "True", R_POD_TERMINATED,
                  "Pod has been terminated. Sandbox is suspended");
}

/* ---- Paused, Resumed -------------------------------------------------------------------------------------
 */

bool pause_message_read(const char *message, int64_t *before, int64_t *after)
{
    unsigned long long b, a;
    long long took;

    if (sscanf(message, POD_PAUSED_MESSAGE, &b, &a, &took) != 3 || b > INT64_MAX || a > INT64_MAX)
        return false;
    *before = (int64_t)b;
    *after = (int64_t)a;
    return true;
}

static void set_paused_in_place(struct conds *c, const json_t *p, bool failing)
{
    int64_t before, after;

    if (failing)
        conds_set(c, COND_PAUSED, "True", R_RESUME_FAILED, "%s", condition_str(p, "message"));
    else if (pause_message_read(condition_str(p, "message"), &before, &after))
        conds_set(c, COND_PAUSED, "True", R_PAUSED_IN_PLACE,
                  "Processes are stopped; memory went from %.1f to %.1f MiB", (double)before / 1048576,
                  (double)after / 1048576);
    else
        conds_set(c, COND_PAUSED, "True", R_PAUSED_IN_PLACE, "Processes are stopped");
}

static void set_pausing(struct conds *c, const struct pod *pod)
{
    const json_t *p = pod ? pod->paused : NULL;

    if (strcmp(condition_str(p, "reason"), POD_PAUSE_FAILED) == 0)
        conds_set(c, COND_PAUSED, "False", R_PAUSE_FAILED, "%s", condition_str(p, "message"));
    else if (!pod || pod->phase != PHASE_RUNNING || !condition_is(pod->ready, "True"))
        conds_set(c, COND_PAUSED, "False", R_PAUSING, "Sandbox pauses as soon as its Pod is Ready");
    else
        conds_set(c, COND_PAUSED, "False", R_PAUSING,
                  "The node agent of node \"%s\" is asked to pause the Pod", pod->node ? pod->node : "");
}

static void set_paused(struct conds *c, const struct sandbox *s, const struct sandbox_world *w,
                       const struct sandbox_facts *f)
{
    const struct pod *pod = f->pod;
    const json_t *p = pod && !meta_is_deleting(&pod->meta) && !is_terminal(pod) ? pod->paused : NULL;
    bool refused = strcmp(condition_str(p, "reason"), POD_PAUSE_REFUSED) == 0;

    if (f->gone && s->paused)
        conds_set(c, COND_PAUSED, pod || f->pod_foreign ? "False" : "True",
                  pod || f->pod_foreign ? R_PAUSING : R_PAUSED_DELETED,
                  pod || f->pod_foreign ? "The Pod is being deleted"
                                        : "The Pod is deleted; volumes and name are kept");
    else if (f->gone)
        conds_set(c, COND_PAUSED, "False", R_NOT_PAUSED, "Sandbox is suspended");
    else if (s->paused && !w->in_place)
        conds_set(
            c, COND_PAUSED, "False", R_PAUSE_REFUSED,
            "The Pod does not run under glovebox, so it cannot be paused in place; set runtimeClassName to a "
            "RuntimeClass with handler " RUNTIME_HANDLER ", or pausePolicy.mode to Auto or Delete");
    else if (f->pause && refused)
        conds_set(c, COND_PAUSED, "False", R_PAUSE_REFUSED, "%s", condition_str(p, "message"));
    else if (condition_is(p, "True") && f->pause)
        set_paused_in_place(c, p, false);
    else if (condition_is(p, "True") && strcmp(condition_str(p, "reason"), POD_RESUME_FAILED) == 0)
        set_paused_in_place(c, p, true);
    else if (condition_is(p, "True"))
        conds_set(c, COND_PAUSED, "True", R_RESUMING,
                  "The node agent of node \"%s\" is asked to resume the Pod", pod->node ? pod->node : "");
    else if (f->pause)
        set_pausing(c, pod);
    else
        conds_set(c, COND_PAUSED, "False", R_NOT_PAUSED, "Sandbox is not paused");
}

/* Only once it was paused: the opposite of Paused, for kubectl wait --for=condition=Resumed. */
static void set_resumed(struct conds *c, const struct sandbox_facts *f)
{
    const json_t *status = json_pack("{sO}", "conditions", c->list);
    const json_t *paused = condition_find(status, COND_PAUSED);
    const json_t *p = f->pod ? f->pod->paused : NULL;

    if (condition_is(paused, "True"))
        conds_set(c, COND_RESUMED, "False", condition_str(paused, "reason"), "Sandbox is paused");
    else if (condition_find(c->before, COND_RESUMED))
        conds_set(c, COND_RESUMED, "True", R_RUNNING, "%s",
                  strcmp(condition_str(p, "reason"), POD_RUNNING) == 0
                      ? "Processes go on where they were stopped"
                      : "Sandbox is not paused any more");
    json_decref((json_t *)(uintptr_t)status);
}

/* ---- the rest ---- */

static void set_scheduled(struct conds *c, const struct pod *pod)
{
    const json_t *p = pod->scheduled;
    const char *reason = condition_str(p, "reason");

    if (!p)
        conds_set(c, COND_POD_SCHEDULED, "Unknown", R_SCHED_UNKNOWN,
                  "Pod has not reported a PodScheduled condition yet");
    else
        conds_set(c, COND_POD_SCHEDULED, condition_str(p, "status"),
                  *reason                   ? reason
                  : condition_is(p, "True") ? R_SCHEDULED
                                            : R_SCHED_UNKNOWN,
                  "%s", condition_str(p, "message"));
}

json_t *sandbox_conditions(const struct sandbox *s, const struct sandbox_world *w,
                           const struct sandbox_facts *f)
{
    struct conds c;

    conds_init(&c, s->status, s->meta.generation, w->now_ms);
    set_ready(&c, s, w, f);
    set_suspended(&c, f);
    set_paused(&c, s, w, f);
    set_resumed(&c, f);
    if (f->pod)
        set_scheduled(&c, f->pod);
    /* A Pod that is being stopped may end with any code; that is no result. */
    if (is_terminal(f->pod) && !f->gone && !meta_is_deleting(&f->pod->meta))
        set_terminal(&c, COND_FINISHED, "True", f->pod);
    return conds_take(&c);
}

static void add_memory(json_t *status, const struct sandbox *s, const struct sandbox_facts *f)
{
    const json_t *p = f->pod ? f->pod->paused : NULL, *old = json_object_get(s->status, "memory");
    int64_t before, after;

    if (condition_is(p, "True") && pause_message_read(condition_str(p, "message"), &before, &after))
        json_object_set_new(
            status, "memory",
            json_pack("{sI sI}", "beforePause", (json_int_t)before, "afterPause", (json_int_t)after));
    else if (old)
        json_object_set(status, "memory", (json_t *)(uintptr_t)old);
}

static json_t *plain_ips(const json_t *pod_ips)
{
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(pod_ips); i++) {
        const char *ip = obj_str(json_array_get(pod_ips, i), "ip");
        if (ip && *ip)
            json_array_append_new(list, json_string(ip));
    }
    return list;
}

json_t *sandbox_status(const struct sandbox *s, const struct sandbox_world *w, const struct sandbox_facts *f)
{
    json_t *status = json_object();
    char hash[HASH_TEXT_MAX];

    json_object_set_new(status, "conditions", sandbox_conditions(s, w, f));
    hash_text(s->meta.name, hash);
    json_object_set_new(status, "selector", json_sprintf("%s=%s", LABEL_NAME_HASH, hash));
    if (f->service_there) {
        json_object_set_new(status, "service", json_string(s->meta.name));
        json_object_set_new(status, "serviceFQDN",
                            json_sprintf("%s.%s.svc.%s", s->meta.name, s->meta.ns, w->cluster_domain));
    }
    if (f->pod && json_array_size(f->pod->ips) > 0)
        json_object_set_new(status, "podIPs", plain_ips(f->pod->ips));
    if (f->pod && f->pod->node)
        json_object_set_new(status, "nodeName", json_string(f->pod->node));
    add_memory(status, s, f);
    return status;
}
