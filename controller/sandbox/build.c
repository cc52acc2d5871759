#include "controller/sandbox/build.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/macro.h"
#include "base/scoped.h"
#include "base/strbuf.h"
#include "controller/kube/object.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/names.h"

json_t *owner_ref(const struct meta *m, const char *api_version, const char *kind)
{
    return json_pack("{ss ss ss ss sb sb}", "apiVersion", api_version, "kind", kind, "name", m->name, "uid",
                     m->uid, "controller", 1, "blockOwnerDeletion", 1);
}

/* ---- metadata of the Pod ---- */

bool key_is_reserved(const char *key)
{
    static const char *const prefixes[] = {GROUP_CORE "/", GROUP_EXT "/", GLOVEBOX_PREFIX};

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(key, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return strcmp(key, ANN_TRACE) == 0;
}

/* Keys of a template that are the user's own. */
static json_t *user_keys(const json_t *from)
{
    json_t *own = json_object(), *value;
    const char *key;

    json_object_foreach((json_t *)(uintptr_t)from, key, value) if (!key_is_reserved(key))
        json_object_set(own, key, value);
    return own;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* "a,b,c": what was copied from the template, so that it can be removed when it leaves the template. */
static char *key_list(const json_t *keys)
{
    size_t n = json_object_size(keys), i = 0;
    scoped_free const char **list = xcalloc(n + 1, sizeof *list);
    scoped_strbuf struct strbuf out;
    const char *key;
    json_t *value;

    strbuf_init(&out, 256 << 10);
    json_object_foreach((json_t *)(uintptr_t)keys, key, value) list[i++] = key;
    qsort(list, n, sizeof *list, by_text);
    for (i = 0; i < n; i++)
        strbuf_printf(&out, "%s%s", i ? "," : "", list[i]);
    return strbuf_detach(&out);
}

static const char *created_by(const char *value)
{
    static const char *const known[] = {"go-client", "python-client", CREATED_BY_US};

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(value, known[i]) == 0)
            return value;
    return CREATED_UNKNOWN;
}

static void copy_label(json_t *labels, const struct sandbox *s, const char *key)
{
    const char *value = meta_label(&s->meta, key);

    if (value)
        json_object_set_new(labels, key, json_string(value));
}

json_t *pod_labels(const struct sandbox *s, const struct pod_extra *x)
{
    json_t *labels = user_keys(s->pod_labels);
    const char *by = meta_label(&s->meta, LABEL_CREATED_BY);
    char hash[HASH_TEXT_MAX];

    hash_text(s->meta.name, hash);
    json_object_set_new(labels, LABEL_NAME_HASH, json_string(hash));
    if (x->owner == OWNER_POOL)
        copy_label(labels, s, LABEL_POOL);
    if (x->owner == OWNER_POOL || x->owner == OWNER_CLAIM)
        copy_label(labels, s, LABEL_TEMPLATE_REF_HASH);
    if (x->owner == OWNER_CLAIM)
        copy_label(labels, s, LABEL_CLAIM_UID);
    if (by)
        json_object_set_new(labels, LABEL_CREATED_BY, json_string(created_by(by)));
    return labels;
}

static void add_key_list(json_t *annotations, const char *key, const json_t *from)
{
    json_t *own = user_keys(from);

    if (json_object_size(own) > 0) {
        scoped_free char *list = key_list(own);
        json_object_set_new(annotations, key, json_string(list));
    }
    json_decref(own);
}

json_t *pod_annotations(const struct sandbox *s, const struct pod_extra *x)
{
    json_t *annotations = user_keys(s->pod_annotations);

    add_key_list(annotations, ANN_PROPAGATED_LABELS, s->pod_labels);
    add_key_list(annotations, ANN_PROPAGATED_ANNOTATIONS, s->pod_annotations);
    if (x->owner == OWNER_POOL && x->evictable && !json_object_get(annotations, ANN_SAFE_TO_EVICT))
        json_object_set_new(annotations, ANN_SAFE_TO_EVICT, json_string("true"));
    return annotations;
}

static void pause_keys(json_t *annotations, const struct pod_extra *x)
{
    char now[OBJ_TIME_MAX];

    obj_format_micro_time(x->now_ms * 1000, now);
    json_object_set_new(annotations, ANN_POD_PAUSE, json_string(x->pause ? PAUSE_TRUE : PAUSE_FALSE));
    json_object_set_new(annotations, ANN_POD_PAUSE_AT, json_string(now));
}

/* ---- the Pod ---- */

static void volumes_from_claims(const struct sandbox *s, json_t *spec)
{
    json_t *volumes = json_object_get(spec, "volumes");

    if (json_array_size(s->volume_claims) == 0)
        return;
    volumes = json_is_array(volumes) ? json_deep_copy(volumes) : json_array();
    for (size_t i = 0; i < json_array_size(s->volume_claims); i++) {
        const json_t *t = json_array_get(s->volume_claims, i);
        const char *name = obj_str(t, "metadata.name");
        scoped_free char *claim = pvc_name(s, t);

        if (!claim)
            continue;
        for (size_t j = json_array_size(volumes); j-- > 0;) {
            const char *have = obj_str(json_array_get(volumes, j), "name");
            if (have && strcmp(have, name) == 0)
                json_array_remove(volumes, j);
        }
        json_array_append_new(
            volumes, json_pack("{ss s{ss}}", "name", name, "persistentVolumeClaim", "claimName", claim));
    }
    json_object_set_new(spec, "volumes", volumes);
}

json_t *pod_body(const struct sandbox *s, const struct pod_extra *x)
{
    json_t *spec = s->pod_spec ? json_copy((json_t *)(uintptr_t)s->pod_spec) : json_object();
    json_t *annotations = pod_annotations(s, x);
    json_t *meta = json_pack("{ss ss so s[o]}", "name", s->meta.name, "namespace", s->meta.ns, "labels",
                             pod_labels(s, x), "ownerReferences", owner_ref(&s->meta, API_CORE, "Sandbox"));

    volumes_from_claims(s, spec);
    if (x->pause)
        pause_keys(annotations, x);
    if (json_object_size(annotations) > 0)
        json_object_set(meta, "annotations", annotations);
    json_decref(annotations);
    return json_pack("{ss ss so so}", "apiVersion", "v1", "kind", "Pod", "metadata", meta, "spec", spec);
}

/* changes[key] = value for each wanted key that differs. */
static void diff_keys(json_t *changes, const json_t *have, const json_t *want)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)want, key,
                        value) if (!json_equal(json_object_get(have, key), value))
        json_object_set(changes, key, value);
}

/* changes[key] = null for each key of a comma list that is there and no longer wanted. */
static void drop_listed(json_t *changes, const json_t *have, const json_t *want, const char *list)
{
    scoped_free char *copy = xstrdup(list);

    for (char *save = NULL, *key = copy ? strtok_r(copy, ",", &save) : NULL; key;
         key = strtok_r(NULL, ",", &save))
        if (json_object_get(have, key) && !json_object_get(want, key))
            json_object_set_new(changes, key, json_null());
}

json_t *pod_patch(const struct sandbox *s, const struct pod_extra *x, const struct pod *pod)
{
    const struct meta *m = &pod->meta;
    json_t *labels = json_object(), *annotations = json_object();
    json_t *want_labels = pod_labels(s, x), *want_annotations = pod_annotations(s, x);
    const char *pause = meta_annotation(m, ANN_POD_PAUSE);
    bool was_member = meta_label(m, LABEL_POOL) != NULL;

    diff_keys(labels, m->labels, want_labels);
    diff_keys(annotations, m->annotations, want_annotations);
    drop_listed(labels, m->labels, want_labels, meta_annotation(m, ANN_PROPAGATED_LABELS));
    drop_listed(annotations, m->annotations, want_annotations,
                meta_annotation(m, ANN_PROPAGATED_ANNOTATIONS));
    drop_listed(labels, m->labels, want_labels,
                LABEL_POOL "," LABEL_TEMPLATE_REF_HASH "," LABEL_CLAIM_UID "," LABEL_CREATED_BY);
    drop_listed(annotations, m->annotations, want_annotations,
                ANN_PROPAGATED_LABELS "," ANN_PROPAGATED_ANNOTATIONS);
    if (was_member && x->owner != OWNER_POOL)
        drop_listed(annotations, m->annotations, want_annotations, ANN_SAFE_TO_EVICT);
    if (x->pause != (pause && strcmp(pause, PAUSE_TRUE) == 0))
        pause_keys(annotations, x);
    json_decref(want_labels);
    json_decref(want_annotations);

    /* The uid makes the API server refuse when another Pod has taken the name meanwhile. */
    json_t *meta = json_pack("{ss}", "uid", m->uid);
    if (json_object_size(labels) > 0)
        json_object_set(meta, "labels", labels);
    if (json_object_size(annotations) > 0)
        json_object_set(meta, "annotations", annotations);
    json_decref(labels);
    json_decref(annotations);
    if (json_object_size(meta) == 1) {
        json_decref(meta);
        return NULL;
    }
    return json_pack("{so}", "metadata", meta);
}

json_t *adopt_patch(const struct sandbox *s, const struct meta *m)
{
    const json_t *refs = obj_at(m->json, "metadata.ownerReferences");
    json_t *owners = refs ? json_copy((json_t *)(uintptr_t)refs) : json_array();
    char hash[HASH_TEXT_MAX];

    hash_text(s->meta.name, hash);
    json_array_append_new(owners, owner_ref(&s->meta, API_CORE, "Sandbox"));
    return json_pack("{s{ss so s{ss}}}", "metadata", "uid", m->uid, "ownerReferences", owners, "labels",
                     LABEL_NAME_HASH, hash);
}

/* ---- Service ---- */

struct port {
    int64_t number;
    const char *protocol, *name;
};

static int by_port(const void *a, const void *b)
{
    const struct port *x = a, *y = b;

    return x->number != y->number ? (x->number < y->number ? -1 : 1) : strcmp(x->protocol, y->protocol);
}

static size_t collect_ports(const json_t *containers, bool sidecars_only, struct port *ports, size_t n,
                            size_t max)
{
    for (size_t i = 0; i < json_array_size(containers); i++) {
        const json_t *c = json_array_get(containers, i), *list = json_object_get(c, "ports");
        const char *restart = obj_str(c, "restartPolicy");

        if (sidecars_only && (!restart || strcmp(restart, "Always") != 0))
            continue;
        for (size_t j = 0; j < json_array_size(list) && n < max; j++) {
            const json_t *p = json_array_get(list, j);
            struct port port = {obj_int(p, "containerPort", 0), obj_str(p, "protocol"), obj_str(p, "name")};
            bool seen = port.number <= 0;

            port.protocol = port.protocol ? port.protocol : "TCP";
            for (size_t k = 0; k < n; k++)
                seen =
                    seen || (ports[k].number == port.number && strcmp(ports[k].protocol, port.protocol) == 0);
            if (!seen)
                ports[n++] = port;
        }
    }
    return n;
}

static bool name_is_taken(const json_t *ports, const char *name)
{
    for (size_t i = 0; i < json_array_size(ports); i++)
        if (strcmp(condition_str(json_array_get(ports, i), "name"), name) == 0)
            return true;
    return false;
}

json_t *service_ports(const json_t *pod_spec)
{
    struct port ports[128];
    size_t n = collect_ports(json_object_get(pod_spec, "containers"), false, ports, 0, ARRAY_LEN(ports));
    json_t *out = json_array();

    n = collect_ports(json_object_get(pod_spec, "initContainers"), true, ports, n, ARRAY_LEN(ports));
    qsort(ports, n, sizeof ports[0], by_port);
    for (size_t i = 0; i < n; i++) {
        char name[80], base[64];

        (void)snprintf(base, sizeof base, "p-%lld-%s", (long long)ports[i].number, ports[i].protocol);
        for (char *c = base; *c; c++)
            *c = (char)tolower((unsigned char)*c);
        (void)snprintf(name, sizeof name, "%s", ports[i].name ? ports[i].name : base);
        if (ports[i].name)
            (void)snprintf(base, sizeof base, "%s", ports[i].name);
        for (int k = 2; name_is_taken(out, name); k++)
            (void)snprintf(name, sizeof name, "%s-%d", base, k);
        json_array_append_new(out, json_pack("{ss sI ss sI}", "name", name, "port",
                                             (json_int_t)ports[i].number, "protocol", ports[i].protocol,
                                             "targetPort", (json_int_t)ports[i].number));
    }
    return out;
}

static json_t *service_spec(const struct sandbox *s)
{
    char hash[HASH_TEXT_MAX];
    json_t *ports = service_ports(s->pod_spec);

    hash_text(s->meta.name, hash);
    json_t *spec = json_pack("{ss s{ss}}", "clusterIP", "None", "selector", LABEL_NAME_HASH, hash);
    if (json_array_size(ports) > 0)
        json_object_set(spec, "ports", ports);
    json_decref(ports);
    return spec;
}

json_t *service_body(const struct sandbox *s)
{
    char hash[HASH_TEXT_MAX];

    hash_text(s->meta.name, hash);
    return json_pack("{ss ss s{ss ss s{ss} s[o]} so}", "apiVersion", "v1", "kind", "Service", "metadata",
                     "name", s->meta.name, "namespace", s->meta.ns, "labels", LABEL_NAME_HASH, hash,
                     "ownerReferences", owner_ref(&s->meta, API_CORE, "Sandbox"), "spec", service_spec(s));
}

/* The API server fills in more than we wrote, so only what we wrote is compared. */
static bool ports_equal(const json_t *have, const json_t *want)
{
    if (json_array_size(have) != json_array_size(want))
        return false;
    for (size_t i = 0; i < json_array_size(want); i++) {
        const char *key;
        json_t *value;

        json_object_foreach(
            json_array_get(want, i), key,
            value) if (!json_equal(json_object_get(json_array_get(have, i), key), value)) return false;
    }
    return true;
}

json_t *service_patch(const struct sandbox *s, const json_t *service)
{
    json_t *want = service_spec(s), *labels = json_object(), *spec = json_object(), *patch = json_object();
    char text[HASH_TEXT_MAX];

    hash_text(s->meta.name, text);
    if (!obj_label(service, LABEL_NAME_HASH) || strcmp(obj_label(service, LABEL_NAME_HASH), text) != 0)
        json_object_set_new(labels, LABEL_NAME_HASH, json_string(text));
    if (!json_equal(obj_at(service, "spec.selector"), json_object_get(want, "selector"))) {
        json_t *selector = json_copy(json_object_get(want, "selector")), *value;
        const char *key;

        json_object_foreach(obj_at(service, "spec.selector"), key, value) if (!json_object_get(selector, key))
            json_object_set_new(selector, key, json_null());
        json_object_set_new(spec, "selector", selector);
    }
    if (s->service == SERVICE_YES &&
        !ports_equal(obj_at(service, "spec.ports"), json_object_get(want, "ports"))) {
        json_t *ports = json_object_get(want, "ports");
        json_object_set_new(spec, "ports", ports ? json_incref(ports) : json_null());
    }
    if (json_object_size(labels) > 0)
        json_object_set_new(patch, "metadata",
                            json_pack("{ss sO}", "uid", obj_uid(service), "labels", labels));
    if (json_object_size(spec) > 0)
        json_object_set(patch, "spec", spec);
    json_decref(labels);
    json_decref(spec);
    json_decref(want);
    if (json_object_size(patch) > 0)
        return patch;
    json_decref(patch);
    return NULL;
}

/* ---- PersistentVolumeClaim ------------------------------------------------------------------------------
 */

char *pvc_name(const struct sandbox *s, const json_t *template)
{
    const char *name = obj_str(template, "metadata.name");

    return name && *name ? xasprintf("%s-%s", name, s->meta.name) : NULL;
}

json_t *pvc_body(const struct sandbox *s, const json_t *template)
{
    json_t *labels = obj_at(template, "metadata.labels"),
           *annotations = obj_at(template, "metadata.annotations");
    scoped_free char *name = pvc_name(s, template);
    char hash[HASH_TEXT_MAX];

    hash_text(s->meta.name, hash);
    labels = labels ? json_copy(labels) : json_object();
    json_object_set_new(labels, LABEL_NAME_HASH, json_string(hash));
    json_t *meta = json_pack("{ss ss so s[o]}", "name", name, "namespace", s->meta.ns, "labels", labels,
                             "ownerReferences", owner_ref(&s->meta, API_CORE, "Sandbox"));
    if (annotations)
        json_object_set(meta, "annotations", annotations);
    return json_pack("{ss ss so sO}", "apiVersion", "v1", "kind", "PersistentVolumeClaim", "metadata", meta,
                     "spec", json_object_get(template, "spec"));
}
