#pragma once
/*
 * Calls to the Kubernetes API, one at a time or many at once over one HTTP/2 connection.  Nothing
 * here blocks: a call is sent from the loop and its callback runs later from the loop, exactly once,
 * never from inside kube_call().
 *
 * Result classes (HTTP status and Status.reason -> negative errno), the only ones a caller sees:
 *   0        done
 *   -ENOENT  404                          -EEXIST  409 AlreadyExists
 *   -ESTALE  409 Conflict, 410 (read again)
 *   -EINVAL  400, 405, 415, 422 and other 4xx (our request or the user's object is wrong)
 *   -EACCES  401, 403                     -EFBIG   413, an answer above the limit
 *   -EAGAIN  429, 5xx (try later; retry_after_ms when the server said so)
 *   -EIO     no usable answer: connection lost, time-out, bad TLS, bad JSON.  A write may or may
 *            not have happened.
 *   -ECANCELED  the client was freed first
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct kube;
struct kube_call;

#define KUBE_OBJECT_MAX (8u << 20) /* largest object or Status that is accepted */

/* A resource of the API; static const, compared by address. */
struct kube_resource {
    const char *group; /* "" = core */
    const char *version;
    const char *plural; /* "pods" */
    const char *kind;   /* "Pod" */
    bool cluster_scoped;
};

enum kube_verb {
    KUBE_NONE,
    KUBE_GET,
    KUBE_CREATE,      /* POST of body */
    KUBE_UPDATE,      /* PUT of body; metadata.resourceVersion in it is the precondition */
    KUBE_MERGE_PATCH, /* application/merge-patch+json; put metadata.resourceVersion in it for a precondition
                       */
    KUBE_JSON_PATCH,
    KUBE_STRATEGIC_PATCH, /* built-in kinds only: merges lists such as status.conditions by key */
    KUBE_APPLY,           /* server-side apply, force */
    KUBE_DELETE,
    KUBE_VERBS
};

struct kube_request {
    enum kube_verb verb;
    const struct kube_resource *resource;
    const char *ns;          /* NULL or "" for cluster-scoped */
    const char *name;        /* not for KUBE_CREATE */
    const char *subresource; /* "status", "scale" or NULL */
    const json_t *body;      /* serialised before kube_call returns */
    /* KUBE_DELETE: preconditions and propagation ("Background" when NULL). */
    const char *uid;
    const char *version;
    const char *propagation;
    int64_t grace_seconds; /* <= 0: the object's own; KUBE_GRACE_NOW: at once */
    int64_t timeout_ms;    /* 0: 30 s */
    bool background;       /* nobody waits for it: at most half of the calls in flight are such */
    bool low_priority;     /* waits behind every other call (events) */
};
#define KUBE_GRACE_NOW INT64_MIN

struct kube_result {
    int code;            /* see the classes above */
    int http;            /* 0: no answer */
    const char *reason;  /* Status.reason or "" */
    const char *message; /* one sentence for a human, never NULL */
    int64_t retry_after_ms;
    json_t *object; /* the object in the answer; NULL on failure.  Borrowed: json_incref to keep */
};
typedef void (*kube_done_fn)(void *data, const struct kube_result *result);

struct kube_config; /* kube/kubeconfig.h: where the server is and who we are */

/* Takes config. */
int kube_new(struct loop *loop, struct kube_config *config, struct kube **ret, struct err *e);
void kube_free(struct kube *k); /* calls in flight end with -ECANCELED; NULL is fine */

/* The request may be on the stack.  Never NULL; the call frees itself after `fn` ran. */
struct kube_call *kube_call(struct kube *k, const struct kube_request *req, kube_done_fn fn, void *data);
/* Forget the call: `fn` will not run.  A write that was sent may still happen. */
void kube_cancel(struct kube_call *c);

/* Calls sent and waiting; both 0 when idle. */
size_t kube_in_flight(const struct kube *k);
/* Our own namespace (in a pod) or the context's; "default" when neither says. */
const char *kube_namespace(const struct kube *k);

/* Calls finished since the start, by verb and HTTP status class, for metrics and tests. */
struct kube_stats {
    uint64_t calls[KUBE_VERBS];
    uint64_t failed[KUBE_VERBS];
    uint64_t lists, watches, bytes_in;
};
const struct kube_stats *kube_stats(const struct kube *k);

SCOPED_DEFINE(struct kube, kube_free)
