#pragma once
/*
 * Bodies of the objects a sandbox is made of, built from models.  Pure; every result is a new
 * reference.  Bodies carry apiVersion and kind, as the API server asks on creation.
 */
#include "controller/sandbox/model.h"

enum owner_kind { OWNER_NONE, OWNER_CLAIM, OWNER_POOL, OWNER_FRONT };

/* What is added to the metadata of a sandbox's Pod beyond its template. */
struct pod_extra {
    enum owner_kind owner;
    bool evictable; /* pool members: let the cluster autoscaler move them */
    /* hold it paused: annotation; and when that was asked */
    bool pause;
    int64_t now_ms;
};

bool key_is_reserved(const char *key); /* set by the controller alone, never copied from a template */
/* The labels (annotations) that the Pod of s should have. */
json_t *pod_labels(const struct sandbox *s, const struct pod_extra *x);
json_t *pod_annotations(const struct sandbox *s, const struct pod_extra *x);
json_t *pod_body(const struct sandbox *s, const struct pod_extra *x);
/* The merge patch that brings the metadata of an owned pod in line, or NULL. */
json_t *pod_patch(const struct sandbox *s, const struct pod_extra *x, const struct pod *pod);
/* Takes over an object without controller: owner reference and name-hash label. */
json_t *adopt_patch(const struct sandbox *s, const struct meta *m);

json_t *service_ports(const json_t *pod_spec);
json_t *service_body(const struct sandbox *s);
json_t *service_patch(const struct sandbox *s, const json_t *service); /* NULL: in order */
json_t *pvc_body(const struct sandbox *s, const json_t *template);
/* "<template>-<sandbox>"; NULL when the template has no name. The caller frees. */
char *pvc_name(const struct sandbox *s, const json_t *template);

/* A pod spec of a template with the defaults that make it safe. */
json_t *secure_pod_spec(const struct template *t);
/* volumeClaimTemplates, service and secured pod spec: what makes a member stale when it differs. */
uint32_t blueprint_hash(const struct template *t);
bool blueprint_equal(const struct template *t, const struct sandbox *s);
json_t *network_policy_body(const struct template *t, const char *router_ns);
json_t *owner_ref(const struct meta *m, const char *api_version, const char *kind);
