#include "controller/sandbox/plan_pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/macro.h"
#include "base/scoped.h"
#include "controller/kube/object.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/names.h"

/* ---- a new member ---- */

json_t *member_body(const struct pool *p, const struct template *t, uint32_t template_hash, const char *name)
{
    char pool[HASH_TEXT_MAX], ref[HASH_TEXT_MAX], hash[HASH_TEXT_MAX];
    json_t *pod_meta = json_object(), *spec, *body;

    hash_text(p->meta.name, pool);
    hash_text(t->meta.name, ref);
    hash_hex(template_hash, hash);
    if (t->pod_labels)
        json_object_set(pod_meta, "labels", (json_t *)(uintptr_t)t->pod_labels);
    if (t->pod_annotations)
        json_object_set(pod_meta, "annotations", (json_t *)(uintptr_t)t->pod_annotations);
    spec = json_pack("{s{so so}}", "podTemplate", "metadata", pod_meta, "spec", secure_pod_spec(t));
    if (json_array_size(t->volume_claims) > 0)
        json_object_set(spec, "volumeClaimTemplates", (json_t *)(uintptr_t)t->volume_claims);
    if (t->service != SERVICE_UNSET)
        json_object_set_new(spec, "service", json_boolean(t->service == SERVICE_YES));
    body = json_pack("{ss ss s{ss ss s{ss ss ss ss ss} s{ss ss} s[o]} so}", "apiVersion", API_CORE, "kind",
                     "Sandbox", "metadata", "name", name, "namespace", p->meta.ns, "labels", LABEL_POOL, pool,
                     LABEL_TEMPLATE_REF_HASH, ref, LABEL_TEMPLATE_HASH, hash, LABEL_LAUNCH_TYPE, LAUNCH_WARM,
                     LABEL_CREATED_BY, CREATED_BY_US, "annotations", ANN_TEMPLATE_REF, t->meta.name,
                     ANN_POD_NAME, name, "ownerReferences", owner_ref(&p->meta, API_EXT, "SandboxWarmPool"),
                     "spec", spec);
    return body;
}

/* "<pool>-xxxxx", as generateName would make it; the pool's part is cut so that it stays a label. */
static void member_name(const struct pool *p, uint64_t r, char out[64])
{
    static const char letters[] = "bcdfghjklmnpqrstvwxz2456789";
    char tail[6];

    for (size_t i = 0; i < 5; i++, r /= sizeof letters - 1)
        tail[i] = letters[r % (sizeof letters - 1)];
    tail[5] = '\0';
    (void)snprintf(out, 64, "%.57s-%s", p->meta.name, tail);
}

/* ---- which go ---- */

struct tally {
    int64_t active, ready, paused, starting, stuck, faulty;
};

static bool is_active(const struct member *m)
{
    return !m->d->deleting && !m->reserved;
}

/* One that finds no node, or that the API server refuses, would only be made again as it is; it goes when
 * the template has changed. */
static bool is_stuck(const struct member *m)
{
    return !m->d->ready && (m->d->unschedulable || m->d->faulty);
}

static bool is_dead(const struct member *m, const struct pool_world *w)
{
    if (m->d->finished || is_stuck(m))
        return m->d->finished || m->stale;
    return !m->d->ready && m->d->unready_ms && w->now_ms - m->d->unready_ms >= w->grace_ms;
}

static void drop(struct plan *plan, struct member *m)
{
    struct step *s = plan_delete(plan, STEP_SANDBOX_DELETE, m->name, m->uid);

    /* Not if a claim has taken it since we looked. */
    s->version = xasprintf("%" PRIu64, m->version);
    s->parallel = plan->n > 1;
    m->reserved = true; /* no longer counted */
}

/* Not ready first, then stale, then the newest: what a claim would take last goes first. */
static int by_worth(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->d->ready != y->d->ready)
        return x->d->ready ? 1 : -1;
    if (x->stale != y->stale)
        return x->stale ? -1 : 1;
    if (x->d->created_ms != y->d->created_ms)
        return x->d->created_ms > y->d->created_ms ? -1 : 1;
    return strcmp(x->name, y->name);
}

static struct tally count(const struct pool_world *w)
{
    struct tally t = {0};

    for (size_t i = 0; i < w->n; i++) {
        const struct member *m = &w->members[i];
        if (!is_active(m))
            continue;
        t.active++;
        t.ready += m->d->ready;
        t.paused += m->d->paused;
        t.starting += !m->d->ready && !is_stuck(m);
        t.faulty += !m->d->ready && m->d->faulty;
        t.stuck += !m->d->ready && m->d->unschedulable && w->now_ms - m->d->unready_ms >= w->grace_ms;
    }
    return t;
}

/* Stale members go a quarter of the pool at a time, so that claims find ready ones all the while. */
static void drop_stale(const struct pool *p, const struct pool_world *w, struct plan *plan)
{
    struct tally t = count(w);
    int64_t budget = MAX(p->replicas / 4, 1), may = t.ready - (p->replicas - budget);

    for (size_t i = 0; i < w->n; i++) {
        struct member *m = &w->members[i];
        if (!is_active(m) || !m->stale)
            continue;
        if (m->d->ready && may-- <= 0)
            continue;
        drop(plan, m);
    }
}

static void plan_removals(const struct pool *p, const struct pool_world *w, struct plan *plan)
{
    int64_t surplus;

    qsort(w->members, w->n, sizeof w->members[0], by_worth);
    for (size_t i = 0; i < w->n; i++)
        if (is_active(&w->members[i]) && is_dead(&w->members[i], w))
            drop(plan, &w->members[i]);
    if (p->recreate && w->template)
        drop_stale(p, w, plan);
    surplus = count(w).active - p->replicas;
    for (size_t i = 0; i < w->n && surplus > 0; i++)
        if (is_active(&w->members[i])) {
            drop(plan, &w->members[i]);
            surplus--;
        }
}

static void plan_creations(const struct pool *p, const struct pool_world *w, struct plan *plan)
{
    struct tally t = count(w);
    int64_t missing = MIN(p->replicas - t.active, w->starts_max - t.starting);

    for (int64_t i = 0; w->template && i < missing && plan->n < PLAN_STEPS_MAX - 4; i++) {
        char name[64];

        member_name(p, (w->seed + (uint64_t)i) * 0x9e3779b97f4a7c15u >> 16, name);
        plan_add(plan, STEP_SANDBOX_CREATE, name, member_body(p, w->template, w->template_hash, name))
            ->parallel = plan->n > 1;
    }
}

/* Look again when the next member has had its time. */
static void plan_recheck(const struct pool_world *w, const struct tally *t, struct plan *plan)
{
    for (size_t i = 0; i < w->n; i++) {
        const struct sandbox_digest *d = w->members[i].d;
        int64_t left = d->unready_ms + w->grace_ms - w->now_ms;
        if (is_active(&w->members[i]) && !d->ready && !d->faulty && d->unready_ms && left > -1000)
            plan_again(plan, left + 1000);
    }
    if (t->stuck > 0)
        plan_again(plan, UNSCHEDULABLE_RECHECK_MS);
}

/* ---- status ---- */

static void set_conditions(struct conds *c, const struct pool *p, const struct pool_world *w,
                           const struct tally *t)
{
    if (w->template_missing)
        conds_set(c, COND_PROGRESSING, "False", R_POOL_TEMPLATE_ERROR, "SandboxTemplate \"%s\" not found",
                  p->template);
    else if (w->fault)
        conds_set(c, COND_PROGRESSING, "False", R_POOL_NOT_PROGRESSING, "Error seen: %s", w->fault);
    else if (t->faulty > 0)
        conds_set(c, COND_PROGRESSING, "False", R_POOL_NOT_PROGRESSING,
                  "The API server refuses something of the members; their Ready conditions say what");
    else if (t->stuck > 0)
        conds_set(c, COND_PROGRESSING, "False", R_POOL_NOT_PROGRESSING,
                  "Members find no node that has room for them; they are kept until one does");
    else
        conds_set(c, COND_PROGRESSING, "True", R_POOL_PROGRESSING, "Members are made as they are needed");
    if (t->ready >= p->replicas)
        conds_set(c, COND_READY, "True", R_POOL_READY, "As many members as wanted are ready");
    else
        conds_set(c, COND_READY, "False", R_POOL_FILLING, "Fewer members than wanted are ready");
}

static void plan_progress_event(const struct pool *p, const json_t *conditions, struct plan *plan)
{
    json_t *status = json_pack("{sO}", "conditions", conditions);
    const json_t *now = condition_find(status, COND_PROGRESSING),
                 *old = condition_find(p->status, COND_PROGRESSING);

    if (condition_is(now, "False") && !condition_is(old, "False"))
        plan_note(plan, "Warning", R_POOL_NOT_PROGRESSING, "%s", condition_str(now, "message"));
    else if (condition_is(now, "True") && condition_is(old, "False"))
        plan_note(plan, "Normal", R_POOL_PROGRESSING, "Warm pool is progressing again");
    json_decref(status);
}

static void plan_status(const struct pool *p, const struct pool_world *w, const struct tally *t,
                        struct plan *plan, bool *ret_deferred)
{
    char hash[HASH_TEXT_MAX];
    struct conds c;

    hash_text(p->meta.name, hash);
    conds_init(&c, p->status, p->meta.generation, w->now_ms);
    set_conditions(&c, p, w, t);
    json_t *conditions = conds_take(&c);
    json_t *patch = status_patch(
        p->status, json_pack("{sI sI sI so sI so}", "replicas", (json_int_t)t->active, "readyReplicas",
                             (json_int_t)t->ready, "pausedReplicas", (json_int_t)t->paused, "selector",
                             json_sprintf("%s=%s", LABEL_POOL, hash), "observedGeneration",
                             (json_int_t)p->meta.generation, "conditions", json_incref(conditions)));
    json_t *status = json_pack("{sO}", "conditions", conditions);
    const json_t *progress = condition_find(status, COND_PROGRESSING);
    bool news =
        condition_is(progress, "False") != condition_is(condition_find(p->status, COND_PROGRESSING), "False");
    int64_t left = w->deferred_ms ? w->deferred_ms + POOL_SETTLE_MS - w->now_ms : POOL_SETTLE_MS;

    *ret_deferred = patch && !news && left > 0;
    if (*ret_deferred)
        plan_again(plan, left);
    else if (patch)
        plan_add(plan, STEP_POOL_STATUS, NULL, json_incref(patch));
    if (patch && !*ret_deferred)
        plan_progress_event(p, conditions, plan);
    json_decref(patch);
    json_decref(status);
    json_decref(conditions);
}

void pool_plan(const struct pool *p, const struct pool_world *w, struct plan *plan, bool *ret_deferred)
{
    struct tally t;

    *ret_deferred = false;
    if (meta_is_deleting(&p->meta))
        return;
    /* Counted before anything changes: what is made or dropped now is seen, and counted, next time. */
    t = count(w);
    if (!w->hold) {
        plan_removals(p, w, plan);
        plan_creations(p, w, plan);
    }
    plan_recheck(w, &t, plan);
    plan_status(p, w, &t, plan, ret_deferred);
    plan_in_background(plan);
}

/* ---- which one a claim gets ---- */

static bool may_be_taken(const struct member *m, uint32_t template_hash, bool recreate)
{
    return is_active(m) && !m->d->finished && !m->node_out &&
           !(recreate && m->stale && m->d->template != template_hash);
}

static bool is_better(const struct member *a, const struct member *b, uint32_t hash)
{
    bool fresh_a = a->d->template == hash, fresh_b = b->d->template == hash;

    if (fresh_a != fresh_b)
        return fresh_a;
    if (a->d->paused != b->d->paused)
        return !a->d->paused;
    return a->d->created_ms < b->d->created_ms;
}

struct node_best {
    uint32_t node;
    size_t count;
    const struct member *best;
};
#define NODES_SEEN_MAX 64

/* One walk over the members; nodes beyond the table's size compete as one. */
int pool_pick(const struct member *members, size_t n, uint32_t template_hash, bool recreate, size_t *ret_soon)
{
    struct node_best nodes[NODES_SEEN_MAX];
    const struct node_best *winner = NULL;
    size_t seen = 0;

    *ret_soon = 0;
    for (size_t i = 0; i < n; i++) {
        const struct member *m = &members[i];
        size_t k = 0;

        if (!may_be_taken(m, template_hash, recreate))
            continue;
        if (!m->d->ready || !m->d->has_ips) {
            *ret_soon += !is_stuck(m);
            continue;
        }
        while (k < seen && nodes[k].node != m->d->node && k < NODES_SEEN_MAX - 1)
            k++;
        if (k == seen)
            nodes[seen++] = (struct node_best){m->d->node, 0, m};
        nodes[k].count++;
        if (is_better(m, nodes[k].best, template_hash))
            nodes[k].best = m;
    }
    for (size_t k = 0; k < seen; k++)
        if (!winner || nodes[k].count > winner->count ||
            (nodes[k].count == winner->count && is_better(nodes[k].best, winner->best, template_hash)))
            winner = &nodes[k];
    return winner ? (int)(winner->best - members) : -1;
}
