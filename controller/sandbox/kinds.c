#include "controller/sandbox/kinds.h"

#include <stdio.h>
#include <string.h>

#include "controller/kube/object.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/model.h"
#include "controller/sandbox/names.h"

const struct kube_resource kind_sandbox = {GROUP_CORE, "v1beta1", "sandboxes", "Sandbox", false};
const struct kube_resource kind_claim = {GROUP_EXT, "v1beta1", "sandboxclaims", "SandboxClaim", false};
const struct kube_resource kind_template = {GROUP_EXT, "v1beta1", "sandboxtemplates", "SandboxTemplate",
                                            false};
const struct kube_resource kind_pool = {GROUP_EXT, "v1beta1", "sandboxwarmpools", "SandboxWarmPool", false};
const struct kube_resource kind_pod = {"", "v1", "pods", "Pod", false};
const struct kube_resource kind_service = {"", "v1", "services", "Service", false};
const struct kube_resource kind_pvc = {"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", false};
const struct kube_resource kind_policy = {"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy",
                                          false};
const struct kube_resource kind_node = {"", "v1", "nodes", "Node", true};
const struct kube_resource kind_runtime_class = {"node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", true};
const struct kube_resource kind_front_sandbox = {GROUP_FRONT, "v1alpha1", "sandboxes", "Sandbox", false};
const struct kube_resource kind_front_template = {GROUP_FRONT, "v1alpha1", "sandboxtemplates",
                                                  "SandboxTemplate", false};
const struct kube_resource kind_front_claim = {GROUP_FRONT, "v1alpha1", "sandboxclaims", "SandboxClaim",
                                               false};
const struct kube_resource kind_front_pool = {GROUP_FRONT, "v1alpha1", "sandboxwarmpools", "SandboxWarmPool",
                                              false};

/* ---- indexes ---- */

void index_value(const char *ns, const char *value, char out[INDEX_VALUE_MAX])
{
    (void)snprintf(out, INDEX_VALUE_MAX, "%s/%s", ns, value);
}

static void add_in_ns(const json_t *o, const char *value, struct index_values *v)
{
    char text[INDEX_VALUE_MAX];

    if (!value)
        return;
    index_value(obj_ns(o), value, text);
    index_add(v, text);
}

static void by_pool_label(const json_t *o, struct index_values *v)
{
    add_in_ns(o, obj_label(o, LABEL_POOL), v);
}

static void by_owner(const json_t *o, struct index_values *v)
{
    add_in_ns(o, obj_str(obj_controller(o), "uid"), v);
}

static void by_pool_ref(const json_t *o, struct index_values *v)
{
    add_in_ns(o, obj_str(o, "spec.warmPoolRef.name"), v);
}

static void by_template_ref(const json_t *o, struct index_values *v)
{
    add_in_ns(o, obj_str(o, "spec.sandboxTemplateRef.name"), v);
}

static void by_node(const json_t *o, struct index_values *v)
{
    index_add(v, obj_str(o, "spec.nodeName"));
}

/* ---- digests --------------------------------------------------------------------------------------------
 */

static enum owner_kind owner_of(const struct meta *m)
{
    if (meta_is_owned_by(m, "SandboxClaim", NULL))
        return OWNER_CLAIM;
    if (meta_is_owned_by(m, "SandboxWarmPool", NULL))
        return OWNER_POOL;
    return meta_is_owned_by(m, "Sandbox", NULL) ? OWNER_FRONT : OWNER_NONE;
}

static void sandbox_digest_make(const json_t *o, void *out)
{
    struct sandbox_digest *d = out;
    struct meta m = {.name = NULL};
    const json_t *status = json_object_get(o, "status");
    const json_t *ready, *paused, *scheduled;
    const char *node = obj_str(status, "nodeName"), *uid;

    meta_read(o, &m);
    ready = condition_find(status, COND_READY);
    paused = condition_find(status, COND_PAUSED);
    scheduled = condition_find(status, COND_POD_SCHEDULED);
    uid = obj_str(m.owner, "uid");
    d->created_ms = m.created_ms;
    d->owner = (uint8_t)owner_of(&m);
    d->pool = hash_parse(meta_label(&m, LABEL_POOL));
    d->template_ref = hash_parse(meta_label(&m, LABEL_TEMPLATE_REF_HASH));
    d->template = hash_parse(meta_label(&m, LABEL_TEMPLATE_HASH));
    d->node = node ? hash_str(node) : 0;
    d->paused = condition_is(paused, "True");
    d->ready = condition_is(ready, "True") ||
               (d->paused && strcmp(condition_str(paused, "reason"), R_PAUSED_IN_PLACE) == 0);
    d->has_ips = json_array_size(json_object_get(status, "podIPs")) > 0;
    d->deleting = meta_is_deleting(&m);
    d->finished = condition_is(condition_find(status, COND_FINISHED), "True");
    d->unschedulable =
        condition_is(scheduled, "False") && strcmp(condition_str(scheduled, "reason"), "Unschedulable") == 0;
    d->faulty = strcmp(condition_str(ready, "reason"), R_RECONCILER_ERROR) == 0;
    d->unready_ms = d->ready ? 0 : condition_is(ready, "False") ? condition_since_ms(ready) : m.created_ms;
    (void)snprintf(d->owner_uid, sizeof d->owner_uid, "%s", uid ? uid : "");
}

static void claim_digest_make(const json_t *o, void *out)
{
    struct claim_digest *d = out;

    d->bound = obj_str(o, "status.sandbox.name") != NULL;
}

static void node_digest_make(const json_t *o, void *out)
{
    struct node_digest *d = out;

    d->lost = !obj_condition_is_true(o, "Ready");
    d->out = d->lost || obj_bool(o, "spec.unschedulable", false) || obj_is_deleting(o);
}

/* ---- the kinds --------------------------------------------------------------------------------------------
 */

static const char *const pod_keep[] = {"metadata",
                                       "spec.nodeName",
                                       "spec.runtimeClassName",
                                       "status.phase",
                                       "status.conditions",
                                       "status.podIPs",
                                       "status.containerStatuses",
                                       "status.initContainerStatuses",
                                       "status.reason",
                                       "status.message",
                                       NULL};
static const char *const sandbox_share[] = {"spec.podTemplate", "spec.volumeClaimTemplates", NULL};
static const char *const front_share[] = {"spec.template", "spec.volumeClaimTemplates", NULL};
static const char *const service_keep[] = {"metadata", "spec.clusterIP", "spec.selector", "spec.ports", NULL};
static const char *const pvc_keep[] = {"metadata", "status.phase", NULL};
static const char *const policy_keep[] = {"metadata", "spec", NULL};
static const char *const node_keep[] = {"metadata.name",
                                        "metadata.uid",
                                        "metadata.resourceVersion",
                                        "metadata.deletionTimestamp",
                                        "spec.unschedulable",
                                        "status.conditions",
                                        NULL};
static const char *const class_keep[] = {"metadata.name", "metadata.uid", "metadata.resourceVersion",
                                         "handler", NULL};

const struct store_kind watched_kinds[WATCH_COUNT] = {
    [WATCH_SANDBOX] = {.resource = &kind_sandbox,
                       .share = sandbox_share,
                       .index = {{"pool", by_pool_label}, {"owner", by_owner}},
                       .digest_size = sizeof(struct sandbox_digest),
                       .digest = sandbox_digest_make},
    [WATCH_CLAIM] = {.resource = &kind_claim,
                     .index = {{"pool", by_pool_ref}},
                     .digest_size = sizeof(struct claim_digest),
                     .digest = claim_digest_make,
                     .optional = true},
    [WATCH_TEMPLATE] = {.resource = &kind_template, .optional = true},
    [WATCH_POOL] = {.resource = &kind_pool, .index = {{"template", by_template_ref}}, .optional = true},
    [WATCH_POD] = {.resource = &kind_pod,
                   .label_selector = LABEL_NAME_HASH,
                   .keep = pod_keep,
                   .index = {{"owner", by_owner}, {"node", by_node}}},
    [WATCH_SERVICE] = {.resource = &kind_service, .label_selector = LABEL_NAME_HASH, .keep = service_keep},
    [WATCH_PVC] = {.resource = &kind_pvc, .label_selector = LABEL_NAME_HASH, .keep = pvc_keep},
    [WATCH_FREE_POD] = {.resource = &kind_pod, .label_selector = LABEL_ADOPTABLE "=true", .keep = pod_keep},
    [WATCH_FREE_SERVICE] = {.resource = &kind_service,
                            .label_selector = LABEL_ADOPTABLE "=true",
                            .keep = service_keep},
    [WATCH_FREE_PVC] = {.resource = &kind_pvc, .label_selector = LABEL_ADOPTABLE "=true", .keep = pvc_keep},
    [WATCH_POLICY] = {.resource = &kind_policy, .keep = policy_keep},
    [WATCH_NODE] = {.resource = &kind_node,
                    .keep = node_keep,
                    .digest_size = sizeof(struct node_digest),
                    .digest = node_digest_make},
    [WATCH_RUNTIME_CLASS] = {.resource = &kind_runtime_class, .keep = class_keep},
    [WATCH_FRONT_SANDBOX] = {.resource = &kind_front_sandbox, .share = front_share, .optional = true},
    [WATCH_FRONT_TEMPLATE] = {.resource = &kind_front_template, .share = front_share, .optional = true},
    [WATCH_FRONT_CLAIM] = {.resource = &kind_front_claim,
                           .index = {{"template", by_template_ref}},
                           .optional = true},
    [WATCH_FRONT_POOL] = {.resource = &kind_front_pool, .optional = true},
};
