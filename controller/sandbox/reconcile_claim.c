#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "controller/kube/object.h"
#include "controller/sandbox/apply.h"
#include "controller/sandbox/context.h"
#include "controller/sandbox/names.h"
#include "controller/sandbox/plan_claim.h"

struct observed {
    struct claim_world world;
    struct pool pool;
    struct template template;
    struct sandbox *owned;
    struct sandbox named, noted, member;
    const char *member_uid;
};

static void observed_free(struct observed *o)
{
    if (o) {
        free(o->owned);
        free(o);
    }
}
SCOPED_DEFINE(struct observed, observed_free)

static int by_age(const void *a, const void *b)
{
    const struct sandbox *x = a, *y = b;

    if (x->meta.created_ms != y->meta.created_ms)
        return x->meta.created_ms < y->meta.created_ms ? -1 : 1;
    return strcmp(x->meta.name, y->meta.name);
}

static void observe_owned(const struct sandboxes *x, const struct claim *c, struct observed *o)
{
    const struct store *s = x->store[WATCH_SANDBOX];
    char value[INDEX_VALUE_MAX];
    struct index_cursor cursor;
    size_t n = 0;

    index_value(c->meta.ns, c->meta.uid, value);
    o->owned = xcalloc(store_index_count(s, SANDBOX_BY_OWNER, value) + 1, sizeof *o->owned);
    for (const struct object *i = store_index_first(s, SANDBOX_BY_OWNER, value, &cursor); i;
         i = store_index_next(&cursor))
        if (((const struct sandbox_digest *)object_digest(i))->owner == OWNER_CLAIM)
            sandbox_read(object_json(i), &o->owned[n++]);
    qsort(o->owned, n, sizeof *o->owned, by_age);
    o->world.owned = o->owned;
    o->world.n_owned = n;
}

static const struct sandbox *read_named(const struct sandboxes *x, const char *ns, const char *name,
                                        struct sandbox *into)
{
    const json_t *json = find_json(x->store[WATCH_SANDBOX], ns, name);

    if (!json)
        return NULL;
    sandbox_read(json, into);
    return into;
}

/* The pool and its template; what is not in the cache is asked for before it is called missing. */
static void observe_references(struct sandboxes *x, struct pass *p, const struct claim *c, struct observed *o)
{
    bool needed = o->world.n_owned == 0; /* a bound claim lives on without them */
    const json_t *pool = find_json(x->store[WATCH_POOL], c->meta.ns, c->pool), *template;

    if (!pool) {
        o->world.pool_missing = needed && c->pool && surely_missing(x, p, WATCH_POOL, c->pool);
        return;
    }
    pool_read(pool, &o->pool);
    o->world.pool = &o->pool;
    template = find_json(x->store[WATCH_TEMPLATE], c->meta.ns, o->pool.template);
    if (!template) {
        o->world.template_missing =
            needed && o->pool.template && surely_missing(x, p, WATCH_TEMPLATE, o->pool.template);
        return;
    }
    template_read(template, &o->template);
    o->world.template = &o->template;
}

static void pick_member(struct sandboxes *x, const struct claim *c, struct observed *o)
{
    uint32_t hash = o->pool.recreate ? template_hash_of(x, &o->template) : 0;
    size_t n, soon;
    scoped_free struct member *members = pool_members(x, &o->pool, hash, c->meta.uid, &n);

    if (!hash)
        hash = template_hash_of(x, &o->template);
    int i = pool_pick(members, n, hash, o->pool.recreate, &soon);
    if (i >= 0) {
        o->world.member = read_named(x, c->meta.ns, members[i].name, &o->member);
        o->member_uid = o->member.meta.uid;
    }
    o->world.member_soon = soon > waiters_before(x, c->meta.ns, c->pool, c->meta.name, c->meta.created_ms);
}

static struct observed *observe(struct sandboxes *x, struct pass *p, const struct claim *c)
{
    struct observed *o = xcalloc(1, sizeof *o);
    const char *noted = meta_annotation(&c->meta, ANN_SANDBOX_NAME);

    o->world = (struct claim_world){.now_ms = now_ms(),
                                    .label_domains = x->opt.label_domains,
                                    .events = x->opt.claim_events,
                                    .fault = lasting_failure(p)};
    o->world.hold = o->world.fault != NULL;
    noted = noted ? noted : meta_label(&c->meta, LABEL_SANDBOX_NAME);
    observe_owned(x, c, o);
    observe_references(x, p, c, o);
    if (o->world.n_owned > 0)
        return o;
    o->world.named = read_named(x, c->meta.ns, c->meta.name, &o->named);
    o->world.noted = noted ? read_named(x, c->meta.ns, noted, &o->noted) : NULL;
    if (o->world.pool && o->world.template && claim_is_waiting(c, &o->world))
        pick_member(x, c, o);
    return o;
}

int reconcile_claim(struct pass *p, void *data, struct err *e)
{
    struct sandboxes *x = data;
    struct key k = pass_key(p);
    const json_t *json = find_json(x->store[WATCH_CLAIM], k.ns, k.name);
    struct claim c = {.ttl_s = -1};
    scoped_plan struct plan plan;

    (void)e;
    plan_init(&plan);
    if (!json)
        return 0;
    claim_read(json, &c);
    scoped(observed_free) struct observed *o = observe(x, p, &c);
    claim_plan(&c, &o->world, &plan);
    waiter_remove(x, k.ns, c.pool ? c.pool : "", k.name);
    const struct step *adoption = plan_find(&plan, STEP_SANDBOX_PATCH);
    bool takes = o->member_uid && adoption && strcmp(adoption->name, o->member.meta.name) == 0;
    /* The pool counted those members as gone. */
    if (unreserve_all_of(x, c.meta.uid, takes ? o->member_uid : NULL) && c.pool)
        controller_add(x->pool, k.ns, c.pool);
    if (takes)
        reserve(x, o->member_uid, c.meta.uid);
    else if (o->member_uid) /* it was woken for a member that it does not want: the next one may */
        waiter_wake(x, k.ns, c.pool);
    else if (o->world.member_soon && plan.n == 0)
        waiter_add(x, k.ns, c.pool, k.name, c.meta.created_ms);
    if (o->world.hold)
        plan_again(&plan, FAULT_HOLD_MS);
    plan_apply(p, &plan, &(struct apply_about){&kind_claim, c.meta.json, k.ns, k.name});
    return 0;
}
