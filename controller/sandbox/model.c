#include "controller/sandbox/model.h"

#include <string.h>

#include "base/macro.h"
#include "controller/kube/object.h"
#include "controller/sandbox/names.h"

/* ---- field tables ---- */

struct word {
    const char *text;
    int value;
};

enum field_type { FIELD_STR, FIELD_INT, FIELD_BOOL, FIELD_TIME, FIELD_JSON, FIELD_WORD, FIELD_TRISTATE };

struct field {
    const char *path;
    enum field_type type;
    size_t offset;
    const struct word *words; /* FIELD_WORD: ends with text NULL; unknown words read as 0 */
    int64_t absent;           /* FIELD_INT */
};

#define AT(type, member) offsetof(struct type, member)

static const struct word modes[] = {{"Suspended", 1}, {NULL, 0}};
static const struct word deletes[] = {
    {"Delete", SHUTDOWN_DELETE}, {"DeleteForeground", SHUTDOWN_FOREGROUND}, {NULL, 0}};
static const struct word pauses[] = {{"InPlace", PAUSE_IN_PLACE}, {"Delete", PAUSE_DELETE}, {NULL, 0}};
static const struct word policies[] = {
    {"Allowed", POLICY_ALLOWED}, {"Overrides", POLICY_OVERRIDES}, {NULL, 0}};
static const struct word managements[] = {{"Unmanaged", 1}, {NULL, 0}};
static const struct word strategies[] = {{"Recreate", 1}, {NULL, 0}};
static const struct word states[] = {{"Running", MEMBER_RUNNING}, {"Paused", MEMBER_PAUSED}, {NULL, 0}};
static const struct word phases[] = {{"Pending", PHASE_PENDING},
                                     {"Running", PHASE_RUNNING},
                                     {"Succeeded", PHASE_SUCCEEDED},
                                     {"Failed", PHASE_FAILED},
                                     {NULL, 0}};

static const struct field meta_fields[] = {
    {.path = "metadata.namespace", FIELD_STR, AT(meta, ns)},
    {.path = "metadata.name", FIELD_STR, AT(meta, name)},
    {.path = "metadata.uid", FIELD_STR, AT(meta, uid)},
    {.path = "metadata.resourceVersion", FIELD_STR, AT(meta, version)},
    {.path = "metadata.generation", FIELD_INT, AT(meta, generation)},
    {.path = "metadata.creationTimestamp", FIELD_TIME, AT(meta, created_ms)},
    {.path = "metadata.deletionTimestamp", FIELD_TIME, AT(meta, deleted_ms)},
    {.path = "metadata.deletionGracePeriodSeconds", FIELD_INT, AT(meta, grace_s)},
    {.path = "metadata.labels", FIELD_JSON, AT(meta, labels)},
    {.path = "metadata.annotations", FIELD_JSON, AT(meta, annotations)},
};
static const struct field sandbox_fields[] = {
    {.path = "spec.podTemplate.metadata.labels", FIELD_JSON, AT(sandbox, pod_labels)},
    {.path = "spec.podTemplate.metadata.annotations", FIELD_JSON, AT(sandbox, pod_annotations)},
    {.path = "spec.podTemplate.spec", FIELD_JSON, AT(sandbox, pod_spec)},
    {.path = "spec.volumeClaimTemplates", FIELD_JSON, AT(sandbox, volume_claims)},
    {.path = "spec.service", FIELD_TRISTATE, AT(sandbox, service)},
    {.path = "spec.shutdownTime", FIELD_TIME, AT(sandbox, shutdown_ms)},
    {.path = "spec.shutdownPolicy", FIELD_WORD, AT(sandbox, shutdown_delete), deletes},
    {.path = "spec.operatingMode", FIELD_WORD, AT(sandbox, suspended), modes},
    {.path = "spec.paused", FIELD_BOOL, AT(sandbox, paused)},
    {.path = "spec.pausePolicy.mode", FIELD_WORD, AT(sandbox, pause_mode), pauses},
    {.path = "status", FIELD_JSON, AT(sandbox, status)},
};
static const struct field pod_fields[] = {
    {.path = "status.phase", FIELD_WORD, AT(pod, phase), phases},
    {.path = "status.phase", FIELD_STR, AT(pod, phase_text)},
    {.path = "spec.nodeName", FIELD_STR, AT(pod, node)},
    {.path = "spec.runtimeClassName", FIELD_STR, AT(pod, runtime_class)},
    {.path = "status.podIPs", FIELD_JSON, AT(pod, ips)},
    {.path = "status.containerStatuses", FIELD_JSON, AT(pod, containers)},
    {.path = "status.initContainerStatuses", FIELD_JSON, AT(pod, init_containers)},
    {.path = "status.reason", FIELD_STR, AT(pod, reason)},
    {.path = "status.message", FIELD_STR, AT(pod, message)},
};
static const struct field claim_fields[] = {
    {.path = "spec.warmPoolRef.name", FIELD_STR, AT(claim, pool)},
    {.path = "spec.lifecycle.shutdownTime", FIELD_TIME, AT(claim, shutdown_ms)},
    {.path = "spec.lifecycle.ttlSecondsAfterFinished", FIELD_INT, AT(claim, ttl_s), .absent = -1},
    {.path = "spec.lifecycle.shutdownPolicy", FIELD_WORD, AT(claim, shutdown_policy), deletes},
    {.path = "spec.additionalPodMetadata.labels", FIELD_JSON, AT(claim, pod_labels)},
    {.path = "spec.additionalPodMetadata.annotations", FIELD_JSON, AT(claim, pod_annotations)},
    {.path = "spec.env", FIELD_JSON, AT(claim, env)},
    {.path = "spec.volumeClaimTemplates", FIELD_JSON, AT(claim, volume_claims)},
    {.path = "status.sandbox.name", FIELD_STR, AT(claim, bound)},
    {.path = "status", FIELD_JSON, AT(claim, status)},
};
static const struct field template_fields[] = {
    {.path = "spec.podTemplate.metadata.labels", FIELD_JSON, AT(template, pod_labels)},
    {.path = "spec.podTemplate.metadata.annotations", FIELD_JSON, AT(template, pod_annotations)},
    {.path = "spec.podTemplate.spec", FIELD_JSON, AT(template, pod_spec)},
    {.path = "spec.volumeClaimTemplates", FIELD_JSON, AT(template, volume_claims)},
    {.path = "spec.service", FIELD_TRISTATE, AT(template, service)},
    {.path = "spec.networkPolicy", FIELD_JSON, AT(template, network_policy)},
    {.path = "spec.networkPolicyManagement", FIELD_WORD, AT(template, unmanaged), managements},
    {.path = "spec.envVarsInjectionPolicy", FIELD_WORD, AT(template, env_policy), policies},
    {.path = "spec.volumeClaimTemplatesPolicy", FIELD_WORD, AT(template, volume_policy), policies},
};
static const struct field pool_fields[] = {
    {.path = "spec.sandboxTemplateRef.name", FIELD_STR, AT(pool, template)},
    {.path = "spec.replicas", FIELD_INT, AT(pool, replicas), .absent = 1},
    {.path = "spec.updateStrategy.type", FIELD_WORD, AT(pool, recreate), strategies},
    {.path = "spec.memberState", FIELD_WORD, AT(pool, member_state), states},
    {.path = "status", FIELD_JSON, AT(pool, status)},
};

static int word_value(const struct word *words, const char *text)
{
    for (; text && words->text; words++)
        if (strcmp(words->text, text) == 0)
            return words->value;
    return 0;
}

static int64_t time_value(const char *text)
{
    int64_t ms = 0;

    return text && obj_parse_time(text, &ms) == 0 ? ms : 0;
}

static void field_read(const json_t *o, const struct field *f, void *out)
{
    void *at = (char *)out + f->offset;
    const json_t *v = obj_at(o, f->path);

    switch (f->type) {
    case FIELD_STR:
        *(const char **)at = json_string_value(v);
        break;
    case FIELD_INT:
        *(int64_t *)at = json_is_integer(v) ? json_integer_value(v) : f->absent;
        break;
    case FIELD_BOOL:
        *(bool *)at = json_is_true(v);
        break;
    case FIELD_TIME:
        *(int64_t *)at = time_value(json_string_value(v));
        break;
    case FIELD_JSON:
        *(const json_t **)at = json_is_object(v) || json_is_array(v) ? v : NULL;
        break;
    case FIELD_WORD:
        *(int *)at = word_value(f->words, json_string_value(v));
        break;
    case FIELD_TRISTATE:
        *(int *)at = json_is_true(v) ? SERVICE_YES : json_is_false(v) ? SERVICE_NO : SERVICE_UNSET;
        break;
    }
}

static void fields_read(const json_t *o, const struct field *fields, size_t n, void *out)
{
    for (size_t i = 0; i < n; i++)
        field_read(o, &fields[i], out);
}

void meta_read(const json_t *o, struct meta *ret)
{
    fields_read(o, meta_fields, ARRAY_LEN(meta_fields), ret);
    ret->ns = ret->ns ? ret->ns : "";
    ret->owner = obj_controller(o);
    ret->json = o;
}

void sandbox_read(const json_t *o, struct sandbox *ret)
{
    meta_read(o, &ret->meta);
    fields_read(o, sandbox_fields, ARRAY_LEN(sandbox_fields), ret);
}

void pod_read(const json_t *o, struct pod *ret)
{
    meta_read(o, &ret->meta);
    fields_read(o, pod_fields, ARRAY_LEN(pod_fields), ret);
    ret->ready = obj_condition(o, "Ready");
    ret->scheduled = obj_condition(o, COND_POD_SCHEDULED);
    ret->paused = obj_condition(o, COND_POD_PAUSED);
}

void claim_read(const json_t *o, struct claim *ret)
{
    meta_read(o, &ret->meta);
    fields_read(o, claim_fields, ARRAY_LEN(claim_fields), ret);
}

void template_read(const json_t *o, struct template *ret)
{
    meta_read(o, &ret->meta);
    fields_read(o, template_fields, ARRAY_LEN(template_fields), ret);
}

void pool_read(const json_t *o, struct pool *ret)
{
    meta_read(o, &ret->meta);
    fields_read(o, pool_fields, ARRAY_LEN(pool_fields), ret);
}

/* ---- accessors ---- */

const char *meta_label(const struct meta *m, const char *key)
{
    return json_string_value(json_object_get(m->labels, key));
}

const char *meta_annotation(const struct meta *m, const char *key)
{
    return json_string_value(json_object_get(m->annotations, key));
}

bool meta_is_deleting(const struct meta *m)
{
    return m->deleted_ms != 0;
}

/* A reference is only believed when its group is ours: anybody can write a kind called Sandbox. */
static bool group_is_ours(const char *api_version)
{
    static const char *const groups[] = {GROUP_CORE "/", GROUP_EXT "/", GROUP_FRONT "/"};

    for (size_t i = 0; api_version && i < ARRAY_LEN(groups); i++)
        if (strncmp(api_version, groups[i], strlen(groups[i])) == 0)
            return true;
    return false;
}

bool meta_is_owned_by(const struct meta *m, const char *kind, const char *uid)
{
    const char *k = obj_str(m->owner, "kind"), *u = obj_str(m->owner, "uid");

    return k && u && strcmp(k, kind) == 0 && (!uid || strcmp(u, uid) == 0) &&
           group_is_ours(obj_str(m->owner, "apiVersion"));
}

bool condition_is(const json_t *condition, const char *status)
{
    return strcmp(condition_str(condition, "status"), status) == 0;
}

const char *condition_str(const json_t *condition, const char *field)
{
    const char *text = json_string_value(json_object_get(condition, field));

    return text ? text : "";
}

int64_t condition_since_ms(const json_t *condition)
{
    return time_value(json_string_value(json_object_get(condition, "lastTransitionTime")));
}

const json_t *condition_find(const json_t *status, const char *type)
{
    const json_t *list = json_object_get(status, "conditions");

    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(condition_str(json_array_get(list, i), "type"), type) == 0)
            return json_array_get(list, i);
    return NULL;
}
