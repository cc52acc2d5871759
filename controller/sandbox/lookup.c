#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "controller/kube/object.h"
#include "controller/sandbox/build.h"
#include "controller/sandbox/context.h"
#include "controller/sandbox/hash.h"

#define MISSING_FOR_MS 60000

int64_t now_ms(void)
{
    struct timespec t = clock_wall();

    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *lasting_failure(const struct pass *p)
{
    const struct failure *f = pass_failure(p);

    if (!f || (f->code != -EINVAL && f->code != -EACCES && f->code != -EFBIG))
        return NULL;
    /* A namespace on its way out takes nothing new; everything in it goes soon, so nobody is told. */
    return strstr(f->text, "because it is being terminated") ? NULL : f->text;
}

const json_t *find_json(const struct store *s, const char *ns, const char *name)
{
    const struct object *o = s && name ? store_get(s, ns, name) : NULL;

    return o ? object_json(o) : NULL;
}

/* ---- templates ---- */

struct hash_of {
    int64_t generation;
    uint32_t hash;
};

uint32_t template_hash_of(struct sandboxes *x, const struct template *t)
{
    struct hash_of *h = map_get(x->hashes, t->meta.uid);

    if (!h) {
        h = xcalloc(1, sizeof *h);
        (void)map_put(x->hashes, t->meta.uid, h);
    }
    if (h->generation != t->meta.generation || h->hash == 0)
        *h = (struct hash_of){t->meta.generation, blueprint_hash(t)};
    return h->hash;
}

/* ---- members ---------------------------------------------------------------------------------------------
 */

/* A member of another hash is stale unless its blueprint says the same in other words: pools that were
 * filled by another implementation of this API carry hashes of another making.  That is only worth looking
 * at where stale members are deleted. */
static bool is_stale(struct sandboxes *x, const struct pool *p, const struct object *o, uint32_t hash)
{
    const struct sandbox_digest *d = object_digest(o);
    const json_t *json = find_json(x->store[WATCH_TEMPLATE], p->meta.ns, p->template);
    struct template t = {.service = 0};
    struct sandbox s = {.service = 0};

    if (d->template == hash || !json)
        return false;
    if (!p->recreate)
        return true;
    template_read(json, &t);
    sandbox_read(object_json(o), &s);
    return !blueprint_equal(&t, &s);
}

static bool node_is_out(const struct sandboxes *x, const struct object *o)
{
    const struct sandbox_digest *d = object_digest(o);
    const char *name;
    const struct object *node;

    /* Nodes are few and all is well most of the time: no parsing unless some node is out. */
    if (d->node == 0)
        return false;
    bool any = false;
    for (node = store_next(x->store[WATCH_NODE], NULL); node && !any;
         node = store_next(x->store[WATCH_NODE], node))
        any = ((const struct node_digest *)object_digest(node))->out;
    if (!any)
        return false;
    name = obj_str(object_json(o), "status.nodeName");
    node = name ? store_get(x->store[WATCH_NODE], "", name) : NULL;
    return node && ((const struct node_digest *)object_digest(node))->out;
}

struct member *pool_members(struct sandboxes *x, const struct pool *p, uint32_t template_hash,
                            const char *claim_uid, size_t *ret_n)
{
    const struct store *s = x->store[WATCH_SANDBOX];
    char hash[HASH_TEXT_MAX], value[INDEX_VALUE_MAX];
    struct index_cursor cursor;
    size_t n = 0;

    hash_text(p->meta.name, hash);
    index_value(p->meta.ns, hash, value);
    struct member *list = xcalloc(store_index_count(s, SANDBOX_BY_POOL, value) + 1, sizeof *list);
    for (const struct object *o = store_index_first(s, SANDBOX_BY_POOL, value, &cursor); o;
         o = store_index_next(&cursor)) {
        const struct sandbox_digest *d = object_digest(o);
        /* The label is a hash and anybody can write it; the owner reference decides. */
        if (d->owner != OWNER_POOL || strcmp(d->owner_uid, p->meta.uid) != 0)
            continue;
        list[n++] = (struct member){.d = d,
                                    .name = object_name(o),
                                    .uid = object_uid(o),
                                    .version = object_version(o),
                                    .reserved = is_reserved(x, object_uid(o), claim_uid),
                                    .node_out = node_is_out(x, o),
                                    .stale = template_hash && is_stale(x, p, o, template_hash)};
    }
    *ret_n = n;
    return list;
}

bool class_is_ours(const struct sandboxes *x, const char *runtime_class)
{
    const json_t *json = find_json(x->store[WATCH_RUNTIME_CLASS], "", runtime_class);
    const char *handler = obj_str(json, "handler");

    return handler && strcmp(handler, x->opt.runtime_handler) == 0;
}

/* ---- what is missing ---- */

struct absence {
    int64_t seen_ms; /* when the server said so; 0: not asked or there */
};

static int on_asked(void *data, const struct kube_result *r)
{
    struct absence *a = data;

    a->seen_ms = r->code == -ENOENT ? clock_mono_ms() : 0;
    return r->code == -ENOENT;
}

bool surely_missing(struct sandboxes *x, struct pass *p, enum watched kind, const char *name)
{
    const struct kube_resource *resource = watched_kinds[kind].resource;
    const char *ns = pass_key(p).ns;
    scoped_free char *key = xasprintf("%s/%s/%s", resource->plural, ns, name);
    struct absence *a = map_get(x->missing, key);

    if (a && a->seen_ms && clock_mono_ms() - a->seen_ms < MISSING_FOR_MS)
        return true;
    if (!a) {
        a = xcalloc(1, sizeof *a);
        (void)map_put(x->missing, key, a);
    }
    pass_add(
        p, (struct action){
               .verb = KUBE_GET, .resource = resource, .ns = ns, .name = name, .done = on_asked, .data = a});
    pass_after(p, 1);
    return false;
}
