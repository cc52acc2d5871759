#include <string.h>

#include "controller/kube/object.h"
#include "controller/sandbox/context.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/model.h"
#include "controller/sandbox/names.h"

/* ---- small helpers ---- */

static const struct object *either(const struct change *c)
{
    return c->now ? c->now : c->old;
}

/* The object's controller, when it is of this kind. */
static void add_owner(struct controller *to, const struct object *o, const char *kind)
{
    struct meta m = {.name = NULL};

    if (!o || !to)
        return;
    meta_read(object_json(o), &m);
    const char *name = obj_str(m.owner, "name");
    if (name && meta_is_owned_by(&m, kind, NULL))
        controller_add(to, m.ns, name);
}

static void add_indexed(struct controller *to, const struct store *s, int index, const char *value)
{
    struct index_cursor cursor;

    for (const struct object *o = store_index_first(s, index, value, &cursor); o;
         o = store_index_next(&cursor))
        controller_add(to, object_ns(o), object_name(o));
}

static int64_t generation(const struct object *o)
{
    return o ? obj_int(object_json(o), "metadata.generation", 0) : -1;
}

/* ---- children of a Sandbox ---- */

static void on_pod(struct controller *c, const struct change *ch, void *data)
{
    struct sandboxes *x = data;

    (void)c;
    add_owner(x->sandbox, either(ch), "Sandbox");
    /* A Pod without owner can stand in the way of the sandbox of its name. */
    if (store_get(x->store[WATCH_SANDBOX], object_ns(either(ch)), object_name(either(ch))))
        controller_add(x->sandbox, object_ns(either(ch)), object_name(either(ch)));
}

static void on_pvc(struct controller *c, const struct change *ch, void *data)
{
    struct sandboxes *x = data;

    (void)c;
    add_owner(x->sandbox, ch->old, "Sandbox");
    add_owner(x->sandbox, ch->now, "Sandbox");
}

static void on_node(struct controller *c, const struct change *ch, void *data)
{
    const struct node_digest *old = ch->old ? object_digest(ch->old) : NULL,
                             *now = ch->now ? object_digest(ch->now) : NULL;
    struct sandboxes *x = data;
    struct index_cursor cursor;
    const char *node = object_name(either(ch));

    (void)c;
    if (old && now && old->lost == now->lost)
        return;
    for (const struct object *o = store_index_first(x->store[WATCH_POD], POD_BY_NODE, node, &cursor); o;
         o = store_index_next(&cursor))
        add_owner(x->sandbox, o, "Sandbox");
}

/* Rare: an administrator changes what a RuntimeClass means. */
static void on_runtime_class(struct controller *c, const struct change *ch, void *data)
{
    struct sandboxes *x = data;

    (void)c;
    (void)ch;
    for (const struct object *o = store_next(x->store[WATCH_SANDBOX], NULL); o;
         o = store_next(x->store[WATCH_SANDBOX], o))
        controller_add(x->sandbox, object_ns(o), object_name(o));
}

/* ---- a Sandbox, for its claim, its pool and its front ---- */

/* The pool by the name in its owner reference, before and after. */
static void for_pool(struct sandboxes *x, const struct change *ch)
{
    const struct sandbox_digest *old = ch->old ? object_digest(ch->old) : NULL,
                                *now = ch->now ? object_digest(ch->now) : NULL;

    if (old && old->owner == OWNER_POOL)
        add_owner(x->pool, ch->old, "SandboxWarmPool");
    else if (now && now->owner == OWNER_POOL)
        add_owner(x->pool, ch->now, "SandboxWarmPool");
    if (!now || now->owner != OWNER_POOL)
        unreserve(x, object_uid(either(ch)));
    if (now && now->owner == OWNER_POOL && now->ready && now->has_ips &&
        !(old && old->ready && old->has_ips)) {
        struct meta m = {.name = NULL};
        meta_read(object_json(ch->now), &m);
        waiter_wake(x, m.ns, obj_str(m.owner, "name"));
    }
}

static void on_sandbox(struct controller *c, const struct change *ch, void *data)
{
    const struct sandbox_digest *now = ch->now ? object_digest(ch->now) : NULL;
    struct sandboxes *x = data;

    (void)c;
    if (x->claim) {
        for_pool(x, ch);
        if (!now || now->owner == OWNER_CLAIM)
            add_owner(x->claim, either(ch), "SandboxClaim");
        /* A claim of the same name may wait for a stranger to go. */
        if (!now && store_get(x->store[WATCH_CLAIM], object_ns(ch->old), object_name(ch->old)))
            controller_add(x->claim, object_ns(ch->old), object_name(ch->old));
    }
    if (x->front[FRONT_SANDBOX])
        add_owner(x->front[FRONT_SANDBOX], either(ch), "Sandbox");
}

/* ---- pools and templates ---- */

/* Claims that still look for a sandbox; bound ones do not care. */
static void add_unbound_claims(struct sandboxes *x, const char *ns, const char *pool)
{
    struct index_cursor cursor;
    char value[INDEX_VALUE_MAX];

    index_value(ns, pool, value);
    for (const struct object *o = store_index_first(x->store[WATCH_CLAIM], CLAIM_BY_POOL, value, &cursor); o;
         o = store_index_next(&cursor))
        if (!((const struct claim_digest *)object_digest(o))->bound)
            controller_add(x->claim, ns, object_name(o));
}

static void on_pool(struct controller *c, const struct change *ch, void *data)
{
    struct sandboxes *x = data;
    const struct object *o = either(ch);
    char hash[HASH_TEXT_MAX], value[INDEX_VALUE_MAX];

    (void)c;
    if (ch->old && ch->now && generation(ch->old) == generation(ch->now))
        return;
    add_unbound_claims(x, object_ns(o), object_name(o));
    /* memberState may have changed: the members are asked. */
    hash_text(object_name(o), hash);
    index_value(object_ns(o), hash, value);
    if (ch->old)
        add_indexed(x->sandbox, x->store[WATCH_SANDBOX], SANDBOX_BY_POOL, value);
}

static void on_template(struct controller *c, const struct change *ch, void *data)
{
    struct sandboxes *x = data;
    const struct object *o = either(ch);
    struct index_cursor cursor;
    char value[INDEX_VALUE_MAX];

    (void)c;
    if (ch->old && ch->now && generation(ch->old) == generation(ch->now))
        return;
    index_value(object_ns(o), object_name(o), value);
    for (const struct object *p = store_index_first(x->store[WATCH_POOL], POOL_BY_TEMPLATE, value, &cursor);
         p; p = store_index_next(&cursor)) {
        controller_add(x->pool, object_ns(p), object_name(p));
        add_unbound_claims(x, object_ns(p), object_name(p));
    }
}

/* A claim that waited and was deleted must not be the one that is woken. */
static void on_claim(struct controller *c, const struct change *ch, void *data)
{
    struct sandboxes *x = data;
    const char *pool = ch->now ? NULL : obj_str(object_json(ch->old), "spec.warmPoolRef.name");

    (void)c;
    if (pool)
        waiter_remove(x, object_ns(ch->old), pool, object_name(ch->old));
}

static void on_policy(struct controller *c, const struct change *ch, void *data)
{
    static const char tail[] = "-network-policy";
    struct sandboxes *x = data;
    const char *name = object_name(either(ch));
    size_t n = strlen(name);
    char template[256];

    (void)c;
    if (n <= sizeof tail - 1 || n >= sizeof template || strcmp(name + n - (sizeof tail - 1), tail) != 0)
        return;
    memcpy(template, name, n - (sizeof tail - 1));
    template[n - (sizeof tail - 1)] = '\0';
    controller_add(x->template, object_ns(either(ch)), template);
}

/* ---- fronts ---- */

static void on_core(struct controller *c, const struct change *ch, void *data)
{
    const char *kind = data;

    add_owner(c, either(ch), kind);
}

/* A front claim by template waits for the template or a pool of it. */
static void on_front_reference(struct controller *c, const struct change *ch, void *data)
{
    struct sandboxes *x = data;
    const struct object *o = either(ch);
    char value[INDEX_VALUE_MAX];

    if (ch->old && ch->now)
        return;
    index_value(object_ns(o), object_name(o), value);
    add_indexed(c, x->store[WATCH_FRONT_CLAIM], FRONT_CLAIM_BY_TEMPLATE, value);
}

static void wire_fronts(struct sandboxes *x)
{
    static const enum watched fronts[FRONT_KINDS] = {WATCH_FRONT_SANDBOX, WATCH_FRONT_TEMPLATE,
                                                     WATCH_FRONT_CLAIM, WATCH_FRONT_POOL};
    static const enum watched cores[FRONT_KINDS] = {WATCH_SANDBOX, WATCH_TEMPLATE, WATCH_CLAIM, WATCH_POOL};
    static char kinds[FRONT_KINDS][20] = {"Sandbox", "SandboxTemplate", "SandboxClaim", "SandboxWarmPool"};

    for (int i = 0; i < FRONT_KINDS; i++) {
        if (!x->front[i])
            continue;
        controller_watch(x->front[i], x->store[fronts[i]], NULL, NULL);
        if (i != FRONT_SANDBOX) /* on_sandbox does it */
            controller_watch(x->front[i], x->store[cores[i]], on_core, kinds[i]);
    }
    if (x->front[FRONT_CLAIM])
        controller_watch(x->front[FRONT_CLAIM], x->store[WATCH_TEMPLATE], on_front_reference, x);
}

void wire_watches(struct sandboxes *x)
{
    controller_watch(x->sandbox, x->store[WATCH_SANDBOX], NULL, NULL);
    controller_watch(x->sandbox, x->store[WATCH_SANDBOX], on_sandbox, x);
    controller_watch(x->sandbox, x->store[WATCH_POD], on_pod, x);
    controller_watch(x->sandbox, x->store[WATCH_FREE_POD], on_pod, x);
    controller_watch(x->sandbox, x->store[WATCH_SERVICE], on_pod, x);
    controller_watch(x->sandbox, x->store[WATCH_FREE_SERVICE], on_pod, x);
    controller_watch(x->sandbox, x->store[WATCH_PVC], on_pvc, x);
    controller_watch(x->sandbox, x->store[WATCH_NODE], on_node, x);
    controller_watch(x->sandbox, x->store[WATCH_RUNTIME_CLASS], on_runtime_class, x);
    if (x->claim) {
        controller_watch(x->claim, x->store[WATCH_CLAIM], NULL, NULL);
        controller_watch(x->claim, x->store[WATCH_CLAIM], on_claim, x);
        controller_watch(x->pool, x->store[WATCH_POOL], NULL, NULL);
        controller_watch(x->pool, x->store[WATCH_POOL], on_pool, x);
        controller_watch(x->template, x->store[WATCH_TEMPLATE], NULL, NULL);
        controller_watch(x->template, x->store[WATCH_TEMPLATE], on_template, x);
        controller_watch(x->template, x->store[WATCH_POLICY], on_policy, x);
    }
    wire_fronts(x);
}
