#pragma once
/* The kinds that are watched: what is kept of each, by what it is found, and its digest. */
#include "controller/core/store.h"
#include "controller/sandbox/plan_pool.h"

extern const struct kube_resource kind_sandbox, kind_claim, kind_template, kind_pool;
extern const struct kube_resource kind_pod, kind_service, kind_pvc, kind_policy, kind_node,
    kind_runtime_class;
extern const struct kube_resource kind_front_sandbox, kind_front_template, kind_front_claim, kind_front_pool;

enum watched {
    WATCH_SANDBOX,
    WATCH_CLAIM,
    WATCH_TEMPLATE,
    WATCH_POOL,
    WATCH_POD,
    WATCH_SERVICE,
    WATCH_PVC,
    WATCH_FREE_POD, /* free for adoption by the label, so without the one the others are watched by */
    WATCH_FREE_SERVICE,
    WATCH_FREE_PVC,
    WATCH_POLICY,
    WATCH_NODE,
    WATCH_RUNTIME_CLASS,
    WATCH_FRONT_SANDBOX,
    WATCH_FRONT_TEMPLATE,
    WATCH_FRONT_CLAIM,
    WATCH_FRONT_POOL,
    WATCH_COUNT
};
extern const struct store_kind watched_kinds[WATCH_COUNT];

/* Index positions. Values are "namespace/..." so that no object of another namespace is ever found. */
enum { SANDBOX_BY_POOL = 0, SANDBOX_BY_OWNER }; /* hash of the pool's name; uid of the controller */
enum { CLAIM_BY_POOL = 0 };                     /* name of the pool */
enum { POOL_BY_TEMPLATE = 0 };                  /* name of the template */
enum { POD_BY_OWNER = 0, POD_BY_NODE };         /* uid of the controller; the node's name alone */
enum { FRONT_CLAIM_BY_TEMPLATE = 0 };

/* "ns/value" into out; false when it does not fit (names of the API are at most 253 long). */
#define INDEX_VALUE_MAX 600
void index_value(const char *ns, const char *value, char out[INDEX_VALUE_MAX]);

struct claim_digest {
    bool bound;
};

struct node_digest {
    bool out;  /* cordoned, or not Ready */
    bool lost; /* not Ready: it does not answer */
};
