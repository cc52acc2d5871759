#pragma once
/*
 * The objects as plain structs.  A model borrows everything from the jansson tree it was read from
 * and lives no longer than that; reading is by the field tables in model.c and cannot fail: the
 * schema of the API server has checked the types, and what is absent is 0 or NULL.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct meta {
    const char *ns, *name, *uid, *version;
    int64_t generation;
    int64_t created_ms;
    int64_t deleted_ms; /* when the deletion is due (request + grace); 0: not being deleted */
    int64_t grace_s;
    const json_t *labels, *annotations;
    const json_t *owner; /* the controller reference */
    const json_t *json;
};

enum { SERVICE_UNSET = 0, SERVICE_NO, SERVICE_YES };
enum pause_mode { PAUSE_AUTO, PAUSE_IN_PLACE, PAUSE_DELETE };

struct sandbox {
    struct meta meta;
    const json_t *pod_labels, *pod_annotations, *pod_spec;
    const json_t *volume_claims; /* array or NULL */
    int service;
    int64_t shutdown_ms; /* 0: never */
    int shutdown_delete;
    int suspended;
    bool paused;
    int pause_mode;
    const json_t *status;
};

enum pod_phase { PHASE_UNKNOWN, PHASE_PENDING, PHASE_RUNNING, PHASE_SUCCEEDED, PHASE_FAILED };

struct pod {
    struct meta meta;
    int phase;
    const char *phase_text, *node, *runtime_class;
    const json_t *ips;   /* status.podIPs */
    const json_t *ready; /* conditions, NULL when absent */
    const json_t *scheduled;
    const json_t *paused;
    const json_t *containers, *init_containers; /* statuses */
    const char *reason, *message;               /* status.reason: Evicted, NodeLost, ... */
};

enum shutdown_policy { SHUTDOWN_RETAIN, SHUTDOWN_DELETE, SHUTDOWN_FOREGROUND };

struct claim {
    struct meta meta;
    const char *pool;
    int64_t shutdown_ms;
    int64_t ttl_s; /* -1: none */
    int shutdown_policy;
    const json_t *pod_labels, *pod_annotations;
    const json_t *env, *volume_claims;
    const char *bound; /* status.sandbox.name */
    const json_t *status;
};

enum policy { POLICY_DISALLOWED, POLICY_ALLOWED, POLICY_OVERRIDES };

struct template
{
    struct meta meta;
    const json_t *pod_labels, *pod_annotations, *pod_spec;
    const json_t *volume_claims;
    int service;
    const json_t *network_policy;
    int unmanaged;
    int env_policy, volume_policy;
};

enum member_state { MEMBER_UNSET, MEMBER_RUNNING, MEMBER_PAUSED };

struct pool {
    struct meta meta;
    const char *template;
    int64_t replicas;
    int recreate;
    int member_state;
    const json_t *status;
};

void meta_read(const json_t *o, struct meta *ret);
void sandbox_read(const json_t *o, struct sandbox *ret);
void pod_read(const json_t *o, struct pod *ret);
void claim_read(const json_t *o, struct claim *ret);
void template_read(const json_t *o, struct template *ret);
void pool_read(const json_t *o, struct pool *ret);

const char *meta_label(const struct meta *m, const char *key);
const char *meta_annotation(const struct meta *m, const char *key);
/* The controller reference is of this kind and, unless NULL, this uid; its group is one of ours. */
bool meta_is_owned_by(const struct meta *m, const char *kind, const char *uid);
bool meta_is_deleting(const struct meta *m);
/* Fields of one condition (an element of a conditions array, or NULL). */
bool condition_is(const json_t *condition, const char *status);
const char *condition_str(const json_t *condition, const char *field); /* "" when absent */
int64_t condition_since_ms(const json_t *condition);
const json_t *condition_find(const json_t *status, const char *type);
