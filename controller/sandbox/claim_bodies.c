#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "base/scoped.h"
#include "controller/kube/object.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/names.h"
#include "controller/sandbox/plan_claim.h"

#define SAY(v, why, ...)                                                                                     \
    do {                                                                                                     \
        if (!(v)->reason) {                                                                                  \
            (void)snprintf((v)->text, sizeof(v)->text, __VA_ARGS__);                                         \
            (v)->reason = (why);                                                                             \
        }                                                                                                    \
    } while (0)

/* ---- labels and annotations that a claim asks for -------------------------------------------------------
 */

static bool is_name_part(const char *s, size_t n)
{
    if (n == 0 || n > 63 || !isalnum((unsigned char)s[0]) || !isalnum((unsigned char)s[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i]))
            return false;
    return true;
}

static bool is_domain(const char *s, size_t n)
{
    size_t start = 0;

    if (n == 0 || n > 253)
        return false;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && s[i] != '.') {
            if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) && s[i] != '-')
                return false;
            continue;
        }
        if (i == start || s[start] == '-' || s[i - 1] == '-')
            return false;
        start = i + 1;
    }
    return true;
}

/* "domain/name" or "name"; the length of the domain, 0 without one, -1 when it is not a qualified name. */
static ssize_t key_domain(const char *key)
{
    const char *slash = strchr(key, '/');

    if (!slash)
        return is_name_part(key, strlen(key)) ? 0 : -1;
    if (!is_domain(key, (size_t)(slash - key)) || !is_name_part(slash + 1, strlen(slash + 1)))
        return -1;
    return slash - key;
}

static bool is_in_domain(const char *key, size_t n, const char *domain)
{
    size_t m = strlen(domain);

    return (n == m && strncmp(key, domain, n) == 0) ||
           (n > m && key[n - m - 1] == '.' && strncmp(key + n - m, domain, m) == 0);
}

static void check_label(const char *key, const char *value, const char *const *domains, struct verdict *v)
{
    ssize_t n = key_domain(key);
    bool allowed = false;

    if (n < 0) {
        SAY(v, R_INVALID_METADATA, "additionalPodMetadata.labels: \"%.80s\" is not a valid label key", key);
        return;
    }
    if (strcasecmp(key, "app") == 0 && strcasecmp(value, "sandbox-router") == 0) {
        SAY(v, R_INVALID_METADATA, "additionalPodMetadata.labels: app=sandbox-router is kept for the router");
        return;
    }
    for (size_t i = 0; domains && domains[i] && n > 0; i++)
        allowed = allowed || is_in_domain(key, (size_t)n, domains[i]);
    if (!allowed)
        SAY(v, R_INVALID_METADATA,
            "additionalPodMetadata.labels: \"%.80s\" must have one of the allowed domains as its prefix, for "
            "example "
            "\"%s/name\"",
            key, domains && domains[0] ? domains[0] : "(none is allowed)");
    else if (*value && !is_name_part(value, strlen(value)))
        SAY(v, R_INVALID_METADATA,
            "additionalPodMetadata.labels: \"%.80s\" has a value that is not a valid label value", key);
}

static void check_annotation(const char *key, struct verdict *v)
{
    static const char *const refused[] = {"kubernetes.io", "k8s.io", "agents.x-k8s.io", "glovebox.dev"};
    ssize_t n = key_domain(key);

    if (n < 0)
        SAY(v, R_INVALID_METADATA,
            "additionalPodMetadata.annotations: \"%.80s\" is not a valid annotation key", key);
    if (strcmp(key, ANN_SAFE_TO_EVICT) == 0)
        return;
    for (size_t i = 0; i < ARRAY_LEN(refused) && n > 0; i++)
        if (is_in_domain(key, (size_t)n, refused[i]))
            SAY(v, R_INVALID_METADATA,
                "additionalPodMetadata.annotations: \"%.80s\" is in the reserved domain %s", key, refused[i]);
}

static void check_override(const char *what, const json_t *asked, const json_t *set, struct verdict *v)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)asked, key, value)
    {
        const char *have = json_string_value(json_object_get(set, key)), *want = json_string_value(value);

        if (have && want && strcmp(have, want) != 0)
            SAY(v, R_INVALID_METADATA,
                "metadata override conflict: %s \"%.80s\" is defined in template with value \"%.80s\", but "
                "claim requests "
                "\"%.80s\"",
                what, key, have, want);
    }
}

void claim_check_metadata(const struct claim *c, const struct template *t, const char *const *domains,
                          struct verdict *v)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)c->pod_labels, key, value)
        check_label(key, json_is_string(value) ? json_string_value(value) : "", domains, v);
    json_object_foreach((json_t *)(uintptr_t)c->pod_annotations, key, value) check_annotation(key, v);
    if (t) {
        check_override("label", c->pod_labels, t->pod_labels, v);
        check_override("annotation", c->pod_annotations, t->pod_annotations, v);
    }
}

/* ---- env ---- */

static json_t *container_of_name(json_t *spec, const char *name)
{
    static const char *const lists[] = {"containers", "initContainers"};

    for (size_t l = 0; l < ARRAY_LEN(lists); l++) {
        json_t *list = json_object_get(spec, lists[l]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const char *have = obj_str(json_array_get(list, i), "name");
            if (!name || !*name || (have && strcmp(have, name) == 0))
                return json_array_get(list, i);
        }
    }
    return NULL;
}

static void inject_one(const json_t *e, json_t *container, int policy, struct verdict *v)
{
    const char *name = obj_str(e, "name"), *value = obj_str(e, "value"), *target = obj_str(container, "name");
    json_t *env = json_object_get(container, "env");

    if (policy == POLICY_ALLOWED && json_array_size(json_object_get(container, "envFrom")) > 0) {
        SAY(v, R_ENV_REJECTED,
            "env \"%s\": container \"%s\" has envFrom, so it cannot be told whether the name is taken; the "
            "template "
            "needs envVarsInjectionPolicy Overrides",
            name, target);
        return;
    }
    if (!env) {
        env = json_array();
        json_object_set_new(container, "env", env);
    }
    for (size_t i = json_array_size(env); i-- > 0;) {
        const char *have = obj_str(json_array_get(env, i), "name");
        if (!have || strcmp(have, name) != 0)
            continue;
        if (policy != POLICY_OVERRIDES) {
            SAY(v, R_ENV_REJECTED,
                "env \"%s\" is set by the template; the template needs envVarsInjectionPolicy Overrides to "
                "replace it",
                name);
            return;
        }
        json_array_remove(env, i);
    }
    json_array_append_new(env, json_pack("{ss ss}", "name", name, "value", value ? value : ""));
}

static void inject_env(const struct claim *c, const struct template *t, json_t *spec, struct verdict *v)
{
    if (json_array_size(c->env) == 0)
        return;
    if (t->env_policy == POLICY_DISALLOWED) {
        SAY(v, R_ENV_REJECTED,
            "the template allows no env; it needs envVarsInjectionPolicy Allowed or Overrides");
        return;
    }
    for (size_t i = 0; i < json_array_size(c->env); i++) {
        const json_t *e = json_array_get(c->env, i);
        const char *where = obj_str(e, "containerName");
        json_t *container = container_of_name(spec, where);

        if (!container)
            SAY(v, R_ENV_REJECTED, "env \"%s\": the template has no container \"%s\"", obj_str(e, "name"),
                where);
        else
            inject_one(e, container, t->env_policy, v);
    }
}

/* ---- volumeClaimTemplates ---- */

static json_t *merge_volume_claims(const struct claim *c, const struct template *t, struct verdict *v)
{
    json_t *merged = t->volume_claims ? json_copy((json_t *)(uintptr_t)t->volume_claims) : json_array();

    if (json_array_size(c->volume_claims) > 0 && t->volume_policy == POLICY_DISALLOWED)
        SAY(v, R_VCT_ERROR,
            "the template allows no volumeClaimTemplates; it needs volumeClaimTemplatesPolicy Allowed or "
            "Overrides");
    for (size_t i = 0; i < json_array_size(c->volume_claims); i++) {
        json_t *mine = json_array_get(c->volume_claims, i);
        const char *name = obj_str(mine, "metadata.name");
        bool placed = false;

        if (!name || !*name) {
            SAY(v, R_VCT_ERROR, "volumeClaimTemplates[%zu] has no metadata.name", i);
            continue;
        }
        for (size_t j = 0; j < i; j++) {
            const char *other = obj_str(json_array_get(c->volume_claims, j), "metadata.name");
            if (other && strcmp(other, name) == 0)
                SAY(v, R_VCT_ERROR, "volumeClaimTemplates: the name \"%s\" is there twice", name);
        }
        for (size_t j = 0; j < json_array_size(t->volume_claims); j++) {
            const char *have = obj_str(json_array_get(t->volume_claims, j), "metadata.name");
            if (!have || strcmp(have, name) != 0)
                continue;
            if (t->volume_policy != POLICY_OVERRIDES)
                SAY(v, R_VCT_ERROR,
                    "volumeClaimTemplates: \"%s\" is set by the template; it needs "
                    "volumeClaimTemplatesPolicy Overrides "
                    "to replace it",
                    name);
            json_array_set(merged, j, mine);
            placed = true;
        }
        if (!placed)
            json_array_append(merged, mine);
    }
    return merged;
}

/* ---- bodies ---- */

static json_t *merged_keys(const json_t *a, const json_t *b)
{
    json_t *out = a ? json_copy((json_t *)(uintptr_t)a) : json_object();

    if (b)
        json_object_update_missing(out, (json_t *)(uintptr_t)b);
    return out;
}

static json_t *cold_meta(const struct claim *c, const struct template *t)
{
    const char *by = meta_label(&c->meta, LABEL_CREATED_BY), *trace = meta_annotation(&c->meta, ANN_TRACE);
    char ref[HASH_TEXT_MAX];

    hash_text(t->meta.name, ref);
    json_t *labels =
        json_pack("{ss ss ss ss}", LABEL_CLAIM_UID, c->meta.uid, LABEL_CREATED_BY, by ? by : CREATED_BY_US,
                  LABEL_LAUNCH_TYPE, LAUNCH_COLD, LABEL_TEMPLATE_REF_HASH, ref);
    json_t *annotations = json_pack("{ss ss}", ANN_TEMPLATE_REF, t->meta.name, ANN_POD_NAME, c->meta.name);
    if (trace)
        json_object_set_new(annotations, ANN_TRACE, json_string(trace));
    return json_pack("{ss ss so so s[o]}", "name", c->meta.name, "namespace", c->meta.ns, "labels", labels,
                     "annotations", annotations, "ownerReferences",
                     owner_ref(&c->meta, API_EXT, "SandboxClaim"));
}

json_t *claim_sandbox_body(const struct claim *c, const struct template *t, struct verdict *v)
{
    json_t *secure = secure_pod_spec(t), *spec = json_deep_copy(secure),
           *volumes = merge_volume_claims(c, t, v);
    json_t *body, *labels, *pod_meta = json_object();
    char ref[HASH_TEXT_MAX];

    json_decref(secure);
    inject_env(c, t, spec, v);
    if (v->reason) {
        json_decref(spec);
        json_decref(volumes);
        json_decref(pod_meta);
        return NULL;
    }
    hash_text(t->meta.name, ref);
    labels = merged_keys(t->pod_labels, c->pod_labels);
    json_object_set_new(labels, LABEL_CLAIM_UID, json_string(c->meta.uid));
    json_object_set_new(labels, LABEL_TEMPLATE_REF_HASH, json_string(ref));
    json_object_set_new(pod_meta, "labels", labels);
    json_object_set_new(pod_meta, "annotations", merged_keys(t->pod_annotations, c->pod_annotations));
    body = json_pack("{ss ss so s{s{so so}}}", "apiVersion", API_CORE, "kind", "Sandbox", "metadata",
                     cold_meta(c, t), "spec", "podTemplate", "metadata", pod_meta, "spec", spec);
    if (json_array_size(volumes) > 0)
        (void)obj_set(body, "spec.volumeClaimTemplates", json_incref(volumes));
    json_decref(volumes);
    if (t->service != SERVICE_UNSET)
        (void)obj_set(body, "spec.service", json_boolean(t->service == SERVICE_YES));
    return body;
}

static json_t *lacking(const json_t *have, const json_t *want)
{
    json_t *out = json_object(), *value;
    const char *key;

    json_object_foreach((json_t *)(uintptr_t)want, key,
                        value) if (!json_equal(json_object_get(have, key), value))
        json_object_set(out, key, value);
    return out;
}

json_t *claim_metadata_patch(const struct claim *c, const struct sandbox *s)
{
    json_t *labels = lacking(s->pod_labels, c->pod_labels),
           *annotations = lacking(s->pod_annotations, c->pod_annotations);
    json_t *meta = json_object();

    if (json_object_size(labels) > 0)
        json_object_set(meta, "labels", labels);
    if (json_object_size(annotations) > 0)
        json_object_set(meta, "annotations", annotations);
    json_decref(labels);
    json_decref(annotations);
    if (json_object_size(meta) == 0) {
        json_decref(meta);
        return NULL;
    }
    return json_pack("{s{ss} s{s{so}}}", "metadata", "uid", s->meta.uid, "spec", "podTemplate", "metadata",
                     meta);
}

/*
 * One write moves the member from the pool to the claim.  The owner reference is the durable record:
 * after a crash the claim finds the sandbox by it.  resourceVersion makes sure that of two claims (or
 * two controllers) only one succeeds.
 */
json_t *claim_adopt_patch(const struct claim *c, const struct sandbox *member)
{
    const char *by = meta_label(&c->meta, LABEL_CREATED_BY), *trace = meta_annotation(&c->meta, ANN_TRACE);
    json_t *labels = json_pack("{so so so ss ss}", LABEL_POOL, json_null(), LABEL_TEMPLATE_HASH, json_null(),
                               LABEL_POD_TEMPLATE_HASH, json_null(), LABEL_LAUNCH_TYPE, LAUNCH_WARM,
                               LABEL_CLAIM_UID, c->meta.uid);
    json_t *annotations = json_object(), *patch = claim_metadata_patch(c, member), *meta;

    if (by)
        json_object_set_new(labels, LABEL_CREATED_BY, json_string(by));
    if (!meta_annotation(&member->meta, ANN_POD_NAME))
        json_object_set_new(annotations, ANN_POD_NAME, json_string(member->meta.name));
    if (trace)
        json_object_set_new(annotations, ANN_TRACE, json_string(trace));
    meta = json_pack("{ss ss so s[o]}", "uid", member->meta.uid, "resourceVersion", member->meta.version,
                     "labels", labels, "ownerReferences", owner_ref(&c->meta, API_EXT, "SandboxClaim"));
    if (json_object_size(annotations) > 0)
        json_object_set(meta, "annotations", annotations);
    json_decref(annotations);
    if (!patch)
        patch = json_object();
    json_object_set_new(patch, "metadata", meta);
    return patch;
}
