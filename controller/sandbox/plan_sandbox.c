#include "controller/sandbox/plan_sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "base/scoped.h"
#include "controller/kube/object.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/names.h"

#define PROBLEM(f, why, ...)                                                                                 \
    do {                                                                                                     \
        if (!(f)->problem[0]) {                                                                              \
            (void)snprintf((f)->problem, sizeof(f)->problem, __VA_ARGS__);                                   \
            (f)->problem_reason = (why);                                                                     \
        }                                                                                                    \
    } while (0)

#define FOREIGN_RECHECK_MS 30000 /* objects without our label are not watched */

bool sandbox_is_expired(const struct sandbox *s, int64_t now_ms)
{
    return s->shutdown_ms != 0 && now_ms >= s->shutdown_ms;
}

/* May this ownerless object be taken over? */
static bool is_adoptable(const struct sandbox *s, const struct meta *m)
{
    const char *marked = meta_label(m, LABEL_ADOPTABLE), *hash = meta_label(m, LABEL_NAME_HASH);
    char own[HASH_TEXT_MAX];

    hash_text(s->meta.name, own);
    return (marked && strcmp(marked, "true") == 0) || (hash && strcmp(hash, own) == 0);
}

static bool is_mine(const struct sandbox *s, const struct meta *m)
{
    return meta_is_owned_by(m, "Sandbox", s->meta.uid);
}

/* Is the name of this kind of object taken by one that we are not shown? */
static bool is_taken(const struct sandbox_world *w, const char *resource, const char *name,
                     struct sandbox_facts *f, struct plan *plan)
{
    if (!w->taken || strncmp(w->taken, resource, strlen(resource)) != 0)
        return false;
    PROBLEM(f, R_RECONCILER_ERROR,
            "%s \"%s\" exists and is not this sandbox's; delete it or label it " LABEL_ADOPTABLE "=true",
            resource, name);
    plan_again(plan, FOREIGN_RECHECK_MS);
    return true;
}

/* ---- PersistentVolumeClaims ---- */

static void plan_claim(const struct sandbox *s, const struct sandbox_world *w, size_t i,
                       struct sandbox_facts *f, struct plan *plan)
{
    const json_t *template = json_array_get(s->volume_claims, i), *have = w->claims[i];
    scoped_free char *name = pvc_name(s, template);
    struct meta m;

    if (!name) {
        PROBLEM(f, R_RECONCILER_ERROR, "volumeClaimTemplates: an entry has no metadata.name");
        return;
    }
    if (!have) {
        if (!f->gone && !is_taken(w, "persistentvolumeclaims", name, f, plan))
            plan_add(plan, STEP_PVC_CREATE, name, pvc_body(s, template));
        return;
    }
    meta_read(have, &m);
    if (is_mine(s, &m))
        return;
    if (!m.owner && is_adoptable(s, &m)) {
        plan_add(plan, STEP_PVC_PATCH, name, adopt_patch(s, &m));
        return;
    }
    PROBLEM(f, R_RECONCILER_ERROR,
            "PersistentVolumeClaim \"%s\" exists and is not this sandbox's; delete it or %s", name,
            m.owner ? "choose another sandbox name" : "label it " LABEL_ADOPTABLE "=true");
}

/* ---- Pod ---- */

static void plan_pod_gone(const struct sandbox_facts *f, struct plan *plan)
{
    if (f->pod && !meta_is_deleting(&f->pod->meta))
        plan_delete(plan, STEP_POD_DELETE, f->pod->meta.name, f->pod->meta.uid);
}

static struct pod_extra extra_of(const struct sandbox_world *w, const struct sandbox_facts *f)
{
    return (struct pod_extra){
        .owner = w->owner, .evictable = w->evictable, .pause = f->pause, .now_ms = w->now_ms};
}

static void plan_foreign_pod(const struct sandbox *s, const struct sandbox_world *w, struct sandbox_facts *f,
                             struct plan *plan)
{
    const struct meta *m = &w->named->meta;

    if (!m->owner && is_adoptable(s, m) && !f->gone) {
        plan_add(plan, STEP_POD_PATCH, m->name, adopt_patch(s, m));
        return;
    }
    f->pod_foreign = true;
    if (!f->gone)
        PROBLEM(f, R_RECONCILER_ERROR, "Pod \"%s\" exists and is not this sandbox's; delete it or %s",
                m->name, m->owner ? "choose another sandbox name" : "label it " LABEL_ADOPTABLE "=true");
}

static void plan_pod(const struct sandbox *s, const struct sandbox_world *w, struct sandbox_facts *f,
                     struct plan *plan)
{
    struct pod_extra x = extra_of(w, f);

    if (w->n_owned > 1) {
        PROBLEM(f, R_MULTIPLE_PODS,
                "%zu Pods are owned by this sandbox, and one is the most; delete all but one", w->n_owned);
        return;
    }
    f->pod = w->n_owned ? &w->owned[0] : NULL;
    if (!f->pod && w->named && !is_mine(s, &w->named->meta)) {
        plan_foreign_pod(s, w, f, plan);
    } else if (f->gone) {
        plan_pod_gone(f, plan);
    } else if (!f->pod) {
        if (!is_taken(w, "pods", s->meta.name, f, plan))
            plan_add(plan, STEP_POD_CREATE, s->meta.name, pod_body(s, &x));
    } else if (!meta_is_deleting(&f->pod->meta)) {
        json_t *patch = pod_patch(s, &x, f->pod);
        bool resumes = !f->pause && condition_is(f->pod->paused, "True");
        /* Labels of a Pod that was given to a claim can come a little later; its resume cannot. */
        if (patch)
            plan_add(plan, STEP_POD_PATCH, f->pod->meta.name, patch)->background =
                w->owner == OWNER_CLAIM && !resumes;
    }
}

/* The annotation follows the Pod for clients that read it; without it the Pod has the sandbox's name. */
static void plan_pod_name(const struct sandbox *s, const struct sandbox_world *w,
                          const struct sandbox_facts *f, struct plan *plan)
{
    const char *have = meta_annotation(&s->meta, ANN_POD_NAME);
    const char *want = f->pod ? f->pod->meta.name : f->gone ? NULL : have;

    if (w->n_owned > 1 || (!have && (w->owner == OWNER_NONE || w->owner == OWNER_FRONT) &&
                           (!want || strcmp(want, s->meta.name) == 0)))
        return;
    if (have == want || (have && want && strcmp(have, want) == 0))
        return;
    plan_add(plan, STEP_SANDBOX_PATCH, NULL,
             json_pack("{s{ss s{so}}}", "metadata", "uid", s->meta.uid, "annotations", ANN_POD_NAME,
                       want ? json_string(want) : json_null()));
}

/* ---- Service ---- */

static void plan_service_kept(const struct sandbox *s, const struct sandbox_world *w, struct sandbox_facts *f,
                              struct plan *plan)
{
    json_t *patch = service_patch(s, w->service);

    f->service_there = true;
    if (patch)
        plan_add(plan, STEP_SERVICE_PATCH, NULL, patch);
}

static void plan_service(const struct sandbox *s, const struct sandbox_world *w, struct sandbox_facts *f,
                         struct plan *plan)
{
    struct meta m;

    if (!w->service) {
        if (s->service == SERVICE_YES && !is_taken(w, "services", s->meta.name, f, plan))
            plan_add(plan, STEP_SERVICE_CREATE, NULL, service_body(s));
        return;
    }
    meta_read(w->service, &m);
    if (is_mine(s, &m)) {
        if (s->service == SERVICE_NO)
            plan_delete(plan, STEP_SERVICE_DELETE, NULL, m.uid);
        else
            plan_service_kept(s, w, f, plan);
        return;
    }
    if (s->service == SERVICE_NO || (s->service == SERVICE_UNSET && !m.owner))
        return;
    const char *ip = obj_str(w->service, "spec.clusterIP");
    if (!m.owner && is_adoptable(s, &m) && (!ip || !*ip || strcmp(ip, "None") == 0)) {
        plan_add(plan, STEP_SERVICE_PATCH, NULL, adopt_patch(s, &m));
        return;
    }
    PROBLEM(f, R_RECONCILER_ERROR, "Service \"%s\" exists and is not this sandbox's; delete it or %s",
            s->meta.name,
            m.owner ? "choose another sandbox name"
                    : "make it headless and label it " LABEL_ADOPTABLE "=true");
}

/* ---- expiry ---- */

static void plan_expired(const struct sandbox *s, const struct sandbox_world *w, struct plan *plan)
{
    struct conds c;
    struct meta m;

    for (size_t i = 0; i < w->n_owned; i++)
        if (!meta_is_deleting(&w->owned[i].meta))
            plan_delete(plan, STEP_POD_DELETE, w->owned[i].meta.name, w->owned[i].meta.uid)->parallel = i > 0;
    if (w->service) {
        meta_read(w->service, &m);
        if (is_mine(s, &m))
            plan_delete(plan, STEP_SERVICE_DELETE, NULL, m.uid)->parallel = true;
    }
    if (s->shutdown_delete) {
        plan_note(plan, "Normal", EV_EXPIRED, "The shutdown time has come; the sandbox is deleted");
        plan_delete(plan, STEP_SANDBOX_DELETE, NULL, s->meta.uid);
        return;
    }
    conds_init(&c, s->status, s->meta.generation, w->now_ms);
    conds_set(&c, COND_READY, "False", R_SANDBOX_EXPIRED, "Sandbox has expired");
    conds_set(&c, COND_PAUSED, "False", R_NOT_PAUSED, "Sandbox has expired");
    conds_keep(&c, COND_FINISHED);
    json_t *patch = status_patch(s->status, json_pack("{so}", "conditions", conds_take(&c)));
    if (patch) {
        plan_add(plan, STEP_SANDBOX_STATUS, NULL, patch);
        plan_note(plan, "Normal", EV_EXPIRED,
                  "The shutdown time has come; the Pod is deleted, the sandbox kept");
    }
}

/* ---- status ---- */

static int64_t annotated_ms(const struct pod *pod, const char *key)
{
    const char *text = pod ? meta_annotation(&pod->meta, key) : NULL;
    int64_t ms = 0;

    return text && obj_parse_time(text, &ms) == 0 ? ms : 0;
}

/*
 * How long to wait before writing this status, because it only tells of a step that is being made and
 * the next fact will come in milliseconds.  0: write now.  Never while the old status claims Ready and
 * nobody asked for the change.
 */
static int64_t settle_ms(const struct sandbox *s, const struct sandbox_world *w,
                         const struct sandbox_facts *f, const json_t *conditions)
{
    const json_t *status = json_pack("{sO}", "conditions", conditions);
    const json_t *ready = condition_find(status, COND_READY), *paused = condition_find(status, COND_PAUSED);
    const char *reason = condition_str(ready, "reason");
    bool was_ready = condition_is(condition_find(s->status, COND_READY), "True");
    int64_t since = 0, left;

    if (f->problem[0] || w->node_lost) {
        since = 0;
    } else if (strcmp(condition_str(paused, "reason"), R_PAUSING) == 0 && !w->hold_paused) {
        since = annotated_ms(f->pod, ANN_POD_PAUSE_AT);
    } else if (strcmp(condition_str(paused, "reason"), R_RESUMING) == 0) {
        since = annotated_ms(f->pod, ANN_POD_PAUSE_AT);
    } else if (f->gone && f->pod) {
        since = f->pod->meta.deleted_ms ? f->pod->meta.deleted_ms - f->pod->meta.grace_s * 1000 : w->now_ms;
    } else if (strcmp(reason, R_DEPS_NOT_READY) == 0 && !was_ready) {
        since = f->pod ? f->pod->meta.created_ms : w->now_ms;
    }
    json_decref((json_t *)(uintptr_t)status);
    /* Time stamps of the API have whole seconds, cut off: such a one may seem up to a second too old. */
    left = since ? since + SETTLE_MS - w->now_ms : 0;
    return left > 0 && left <= SETTLE_MS + 1000 ? left : 0;
}

/* At most one event a status write: the most telling change. */
static void plan_events(const struct sandbox *s, const struct sandbox_world *w, const json_t *conditions,
                        struct plan *plan)
{
    static const struct {
        const char *type, *status, *event_type, *reason;
    } table[] = {
        {COND_PAUSED, "True", "Normal", EV_PAUSED},
        {COND_RESUMED, "True", "Normal", EV_RESUMED},
        {COND_SUSPENDED, "True", "Normal", EV_SUSPENDED},
        {COND_FINISHED, "True", "Normal", "SandboxFinished"},
        {COND_READY, "True", "Normal", EV_READY},
        {COND_READY, "False", "Warning", EV_NOT_READY},
    };
    json_t *status = json_pack("{sO}", "conditions", conditions);

    for (size_t i = 0; i < ARRAY_LEN(table) && w->owner != OWNER_POOL; i++) {
        const json_t *old = condition_find(s->status, table[i].type),
                     *now = condition_find(status, table[i].type);
        const char *reason = condition_str(now, "reason");
        bool first = !old && (strcmp(table[i].status, "True") != 0 || strcmp(table[i].type, COND_READY) == 0);

        /* Being born is no transition; a first trouble is one. */
        if (first && strcmp(reason, R_RECONCILER_ERROR) != 0 && strcmp(reason, R_MULTIPLE_PODS) != 0)
            continue;
        if (!condition_is(now, table[i].status) ||
            (old && condition_is(old, table[i].status) && strcmp(condition_str(old, "reason"), reason) == 0))
            continue;
        if (old && condition_is(old, table[i].status) && strcmp(table[i].type, COND_READY) != 0)
            continue; /* another reason alone is news only for Ready */
        plan_note(plan, table[i].event_type, table[i].reason, "%s", condition_str(now, "message"));
        break;
    }
    json_decref(status);
}

static void plan_status(const struct sandbox *s, const struct sandbox_world *w, const struct sandbox_facts *f,
                        struct plan *plan)
{
    json_t *status = sandbox_status(s, w, f);
    const json_t *conditions = json_object_get(status, "conditions");
    const json_t *ready = condition_find(status, COND_READY);
    int64_t wait = settle_ms(s, w, f, conditions);

    if (probe_grace_ms(f->pod, w->now_ms) > 0)
        plan_again(plan, probe_grace_ms(f->pod, w->now_ms));
    /* Where the Pod landed is told together with the next real news. */
    if (!condition_is(ready, "True") && json_equal(conditions, json_object_get(s->status, "conditions")) &&
        json_object_get(s->status, "nodeName") == NULL)
        json_object_del(status, "nodeName");
    json_t *keep = json_incref((json_t *)(uintptr_t)conditions);
    json_t *patch = status_patch(s->status, status);
    if (patch && wait > 0) {
        plan_again(plan, wait);
        json_decref(patch);
    } else if (patch) {
        plan_add(plan, STEP_SANDBOX_STATUS, NULL, patch);
        plan_events(s, w, keep, plan);
    }
    json_decref(keep);
}

/* ---- the plan ---- */

/* How `paused` is to be done on this sandbox. */
static void decide_pause(const struct sandbox *s, const struct sandbox_world *w, struct sandbox_facts *f)
{
    const struct pod *pod = w->n_owned == 1 ? &w->owned[0] : NULL;
    bool refused = pod && pod->paused && strcmp(condition_str(pod->paused, "reason"), POD_PAUSE_REFUSED) == 0;
    bool can = w->in_place && !refused;
    bool by_delete = s->pause_mode == PAUSE_DELETE || (s->pause_mode == PAUSE_AUTO && !can);

    f->gone = s->suspended || (s->paused && by_delete);
    f->pause = !f->gone && w->in_place && (s->paused || w->hold_paused);
}

void sandbox_plan(const struct sandbox *s, const struct sandbox_world *w, struct plan *plan)
{
    struct sandbox_facts f = {.gone = false};

    if (meta_is_deleting(&s->meta))
        return;
    if (sandbox_is_expired(s, w->now_ms)) {
        plan_expired(s, w, plan);
        return;
    }
    if (s->shutdown_ms)
        plan_again(plan, s->shutdown_ms - w->now_ms);

    decide_pause(s, w, &f);
    for (size_t i = 0; i < json_array_size(s->volume_claims); i++)
        plan_claim(s, w, i, &f, plan);
    plan_pod(s, w, &f, plan);
    plan_service(s, w, &f, plan);
    plan_pod_name(s, w, &f, plan);

    if (w->fault)
        PROBLEM(&f, R_RECONCILER_ERROR, "%s", w->fault);
    if (w->hold)
        plan_drop_steps(plan);
    /* What a step changes is seen at once and planned again, so the status waits for the last step.
     * A trouble is told beside them. */
    if (plan->n == 0 || f.problem[0])
        plan_status(s, w, &f, plan);
    if (w->owner == OWNER_POOL)
        plan_in_background(plan);
}
