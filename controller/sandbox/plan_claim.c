#include "controller/sandbox/plan_claim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "controller/kube/object.h"
#include "controller/sandbox/names.h"

/* What the pass found out, for the status. */
struct claim_facts {
    const struct sandbox *sandbox; /* bound, or being bound in this pass */
    bool terminal;                 /* the user's mistake: nothing helps but another spec */
    const char *reason;            /* NULL: the sandbox's own Ready counts */
    char text[480];
};

static void say(struct claim_facts *f, const char *reason, const char *text)
{
    if (f->reason)
        return;
    f->reason = reason;
    (void)snprintf(f->text, sizeof f->text, "%s", text);
}

bool claim_takes_member(const struct claim *c)
{
    return json_array_size(c->env) == 0 && json_array_size(c->volume_claims) == 0;
}

/* ---- expiry ---- */

static int64_t expiry_ms(const struct claim *c, const struct sandbox *s)
{
    const json_t *finished = s ? condition_find(s->status, COND_FINISHED) : NULL;
    int64_t at = c->shutdown_ms;

    if (!condition_is(finished, "True"))
        finished = condition_find(c->status, COND_FINISHED);
    if (c->ttl_s >= 0 && condition_is(finished, "True")) {
        int64_t ttl = condition_since_ms(finished) + c->ttl_s * 1000;
        at = at == 0 || ttl < at ? ttl : at;
    }
    return at;
}

static void keep_or_drop_finished(struct conds *k, const struct claim *c, const struct sandbox *s,
                                  bool expired)
{
    const json_t *finished = s ? condition_find(s->status, COND_FINISHED) : NULL;

    (void)c;
    if (condition_is(finished, "True"))
        conds_set(k, COND_FINISHED, "True", condition_str(finished, "reason"), "%s",
                  condition_str(finished, "message"));
    else if (expired)
        conds_keep(k, COND_FINISHED);
}

static void plan_expired(const struct claim *c, const struct claim_world *w, const struct sandbox *s,
                         struct plan *plan)
{
    struct conds k;

    if (c->shutdown_policy != SHUTDOWN_RETAIN) {
        bool front = c->shutdown_policy == SHUTDOWN_FOREGROUND;
        struct step *step = plan_delete(plan, STEP_CLAIM_DELETE, NULL, c->meta.uid);

        step->propagation = front ? "Foreground" : NULL;
        plan_note(plan, "Normal", R_CLAIM_EXPIRED, "Deleting Claim (ShutdownPolicy=%s)",
                  front ? "DeleteForeground" : "Delete");
        return;
    }
    for (size_t i = 0; i < w->n_owned; i++)
        if (!meta_is_deleting(&w->owned[i].meta))
            plan_delete(plan, STEP_SANDBOX_DELETE, w->owned[i].meta.name, w->owned[i].meta.uid);
    bool foreign = !s && c->bound && w->named && strcmp(c->bound, w->named->meta.name) == 0;
    conds_init(&k, c->status, c->meta.generation, w->now_ms);
    conds_set(&k, COND_READY, "False", R_CLAIM_EXPIRED, "%s",
              foreign ? "Claim expired. The sandbox is not controlled by the claim, deletion skipped."
                      : "Claim expired. Sandbox cleanup initiated.");
    keep_or_drop_finished(&k, c, s, true);
    json_t *status = json_pack("{so}", "conditions", conds_take(&k));
    if (json_object_get(c->status, "sandbox"))
        json_object_set(status, "sandbox", json_object_get(c->status, "sandbox"));
    json_t *patch = status_patch(c->status, status);
    if (patch) {
        plan_add(plan, STEP_CLAIM_STATUS, NULL, patch);
        plan_note(plan, "Normal", R_CLAIM_EXPIRED, "Claim expired. Sandbox cleanup initiated.");
    }
}

/* ---- which sandbox ----------------------------------------------------------------------------------------
 */

static bool is_members_pool(const struct claim *c, const struct claim_world *w, const struct sandbox *s)
{
    (void)c;
    return s && w->pool && !meta_is_deleting(&s->meta) &&
           meta_is_owned_by(&s->meta, "SandboxWarmPool", w->pool->meta.uid);
}

/* The one this claim has.  More than one can only come from a crash of two controllers at once; the
 * one in the status stays, else the oldest, and the others go. */
static const struct sandbox *bound_sandbox(const struct claim *c, const struct claim_world *w,
                                           struct plan *plan)
{
    const struct sandbox *keep = w->n_owned ? &w->owned[0] : NULL;

    for (size_t i = 0; i < w->n_owned; i++)
        if (c->bound && strcmp(w->owned[i].meta.name, c->bound) == 0)
            keep = &w->owned[i];
    for (size_t i = 0; i < w->n_owned; i++)
        if (&w->owned[i] != keep && !meta_is_deleting(&w->owned[i].meta))
            plan_delete(plan, STEP_SANDBOX_DELETE, w->owned[i].meta.name, w->owned[i].meta.uid);
    return keep;
}

static void plan_cold(const struct claim *c, const struct claim_world *w, struct claim_facts *f,
                      struct plan *plan)
{
    struct verdict v = {NULL, ""};
    json_t *body = claim_sandbox_body(c, w->template, &v);

    if (!body) {
        f->terminal = true;
        say(f, v.reason, v.text);
        return;
    }
    plan_add(plan, STEP_SANDBOX_CREATE, c->meta.name, body);
    if (w->events)
        plan_note(plan, "Normal", EV_PROVISIONED, "Created Sandbox \"%s\"", c->meta.name);
}

static void plan_adoption(const struct claim *c, const struct claim_world *w, const struct sandbox *member,
                          struct claim_facts *f, struct plan *plan)
{
    plan_add(plan, STEP_SANDBOX_PATCH, member->meta.name, claim_adopt_patch(c, member));
    f->sandbox = member;
    if (w->events)
        plan_note(plan, "Normal", EV_ADOPTED, "Adopted warm pool Sandbox \"%s\"", member->meta.name);
}

static bool references_are_missing(const struct claim_world *w, const struct claim *c, struct claim_facts *f,
                                   struct plan *plan)
{
    char text[400];

    if (w->pool_missing) {
        (void)snprintf(text, sizeof text, "SandboxWarmPool \"%s\" not found", c->pool ? c->pool : "");
        say(f, R_POOL_NOT_FOUND, text);
        plan_again(plan, MISSING_RECHECK_MS);
    } else if (w->pool && w->template_missing) {
        (void)snprintf(text, sizeof text, "SandboxTemplate \"%s\" not found", w->pool->template);
        say(f, R_TEMPLATE_NOT_FOUND, text);
        plan_again(plan, MISSING_RECHECK_MS);
    }
    return !w->pool || !w->template;
}

/* No sandbox yet: take one, wait for one, or make one. */
static bool plan_unbound(const struct claim *c, const struct claim_world *w, struct claim_facts *f,
                         struct plan *plan)
{
    int64_t waited = w->now_ms - c->meta.created_ms;
    char text[400];

    if (references_are_missing(w, c, f, plan))
        return f->reason != NULL;
    if (w->named && !meta_is_owned_by(&w->named->meta, "SandboxClaim", c->meta.uid)) {
        (void)snprintf(
            text, sizeof text,
            "Error seen: sandbox \"%s\" is not controlled by claim \"%s\". Please use a different claim "
            "name or delete the sandbox manually",
            c->meta.name, c->meta.name);
        say(f, R_RECONCILER_ERROR, text);
        return true;
    }
    if (is_members_pool(c, w, w->noted)) {
        plan_adoption(c, w, w->noted, f, plan);
        return true;
    }
    if (w->member && claim_takes_member(c)) {
        plan_adoption(c, w, w->member, f, plan);
        return true;
    }
    if (w->member_soon && claim_takes_member(c) && waited < MEMBER_WAIT_MS) {
        plan_again(plan, MEMBER_WAIT_MS - waited);
        return false;
    }
    plan_cold(c, w, f, plan);
    return f->reason != NULL;
}

/* ---- status ---- */

static void set_ready(struct conds *k, const struct claim_world *w, const struct claim_facts *f)
{
    const json_t *ready = f->sandbox ? condition_find(f->sandbox->status, COND_READY) : NULL;

    if (w->fault && !f->reason)
        conds_set(k, COND_READY, "False", R_RECONCILER_ERROR, "Error seen: %s", w->fault);
    else if (f->reason)
        conds_set(k, COND_READY, "False", f->reason, "%s", f->text);
    else if (!f->sandbox)
        conds_set(k, COND_READY, "False", R_SANDBOX_MISSING, "Sandbox does not exist");
    else if (meta_is_deleting(&f->sandbox->meta))
        conds_set(k, COND_READY, "False", R_SANDBOX_NOT_READY, "Sandbox is being deleted");
    else if (!ready)
        conds_set(k, COND_READY, "False", R_SANDBOX_NOT_READY, "Sandbox is not ready");
    else if (strcmp(condition_str(ready, "reason"), R_SANDBOX_EXPIRED) == 0)
        conds_set(k, COND_READY, "False", R_SANDBOX_EXPIRED,
                  "Underlying Sandbox resource has expired independently of the Claim.");
    else
        conds_set(k, COND_READY, condition_str(ready, "status"), condition_str(ready, "reason"), "%s",
                  condition_str(ready, "message"));
}

/* Until a fresh claim is Ready, one that only waits for its sandbox is not worth a write. */
static int64_t settle_ms(const struct claim *c, const struct claim_world *w, const struct claim_facts *f,
                         const json_t *status)
{
    static const char *const passing[] = {R_DEPS_NOT_READY, R_SANDBOX_NOT_READY, R_SANDBOX_MISSING, R_PAUSED};
    const json_t *ready = condition_find(status, COND_READY);
    /* Time stamps of the API are cut to whole seconds. */
    int64_t left = c->meta.created_ms + 2000 - w->now_ms;
    bool waits = false;

    for (size_t i = 0; i < ARRAY_LEN(passing); i++)
        waits = waits || strcmp(condition_str(ready, "reason"), passing[i]) == 0;
    if (f->reason || w->fault || !waits || condition_find(c->status, COND_READY))
        return 0;
    return left > 0 && left <= 3000 ? left : 0;
}

static void plan_status(const struct claim *c, const struct claim_world *w, const struct claim_facts *f,
                        struct plan *plan)
{
    json_t *status = json_object(), *sandbox;
    struct conds k;

    conds_init(&k, c->status, c->meta.generation, w->now_ms);
    set_ready(&k, w, f);
    keep_or_drop_finished(&k, c, f->sandbox, false);
    json_object_set_new(status, "conditions", conds_take(&k));
    if (f->sandbox) {
        sandbox = json_pack("{ss}", "name", f->sandbox->meta.name);
        if (json_object_get(f->sandbox->status, "podIPs"))
            json_object_set(sandbox, "podIPs", json_object_get(f->sandbox->status, "podIPs"));
        json_object_set_new(status, "sandbox", sandbox);
    }
    int64_t wait = settle_ms(c, w, f, status);
    json_t *patch = status_patch(c->status, status);
    if (patch && wait > 0) {
        plan_again(plan, wait);
        json_decref(patch);
    } else if (patch) {
        plan_add(plan, STEP_CLAIM_STATUS, NULL, patch);
    }
}

/* ---- the plan ---- */

static bool metadata_is_wrong(const struct claim *c, const struct claim_world *w, struct claim_facts *f)
{
    struct verdict v = {NULL, ""};

    claim_check_metadata(c, w->template, w->label_domains, &v);
    if (v.reason) {
        f->terminal = true;
        say(f, v.reason, v.text);
    }
    return v.reason != NULL;
}

bool claim_is_waiting(const struct claim *c, const struct claim_world *w)
{
    return !meta_is_deleting(&c->meta) && w->n_owned == 0 && claim_takes_member(c) && !w->named &&
           !(c->shutdown_ms && w->now_ms >= c->shutdown_ms);
}

void claim_plan(const struct claim *c, const struct claim_world *w, struct plan *plan)
{
    struct claim_facts f = {.sandbox = NULL};
    int64_t expiry;
    bool tell = true;

    if (meta_is_deleting(&c->meta))
        return;
    const struct sandbox *bound = bound_sandbox(c, w, plan);
    expiry = expiry_ms(c, bound);
    if (expiry && w->now_ms >= expiry) {
        plan_drop_steps(plan);
        plan_expired(c, w, bound, plan);
        return;
    }
    if (expiry)
        plan_again(plan, expiry - w->now_ms);

    bool wrong = metadata_is_wrong(c, w, &f);
    if (bound) {
        json_t *patch = wrong || meta_is_deleting(&bound->meta) ? NULL : claim_metadata_patch(c, bound);
        if (patch)
            plan_add(plan, STEP_SANDBOX_PATCH, bound->meta.name, patch);
        f.sandbox = bound;
    } else if (!wrong) {
        tell = plan_unbound(c, w, &f, plan);
    }
    if (w->hold)
        plan_drop_steps(plan);
    if (w->hold && !bound)
        f.sandbox = NULL;
    if (tell || w->fault)
        plan_status(c, w, &f, plan);
}
