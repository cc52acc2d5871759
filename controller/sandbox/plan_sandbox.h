#pragma once
/*
 * The Sandbox of agents.x-k8s.io: one Pod, its claims and Service, suspend, pause, expiry.  PURE.
 */
#include "controller/sandbox/build.h"
#include "controller/sandbox/plan.h"

/*
 * Facts beside the Sandbox itself, all borrowed.
 */
struct sandbox_world {
    int64_t now_ms;
    enum owner_kind owner;
    const struct pod *owned; /* Pods whose controller is this Sandbox */
    size_t n_owned;
    const struct pod *named;     /* the Pod that has the name, whoever's it is */
    const json_t *service;       /* the Service of the Sandbox's name */
    const json_t *const *claims; /* for each volumeClaimTemplate: the object of its name, or NULL */
    const char *cluster_domain;
    bool in_place;    /* the Pod's RuntimeClass leads to the shim */
    bool hold_paused; /* a pool member that has to wait paused */
    bool evictable;
    bool node_lost; /* the Pod's node is gone or does not answer */
    /* The API server said of a creation that the name is taken, and no watch shows by what: its sentence,
     * which starts with the resource ("pods ..."). */
    const char *taken;
    /* Why the last write for this object failed (NULL: it did not), and whether to leave off writing
     * for now. */
    const char *fault;
    bool hold;
};

/* A status that only says "coming up" or "going down" waits this long for a better one. */
#define SETTLE_MS 1000
/* After a resume the kubelet needs a period to repeat a readiness probe that failed in the pause. */
#define PROBE_GRACE_MS 30000

void sandbox_plan(const struct sandbox *s, const struct sandbox_world *w, struct plan *plan);

/* ---- inside ---- */

/* What the steps found out, for the conditions. */
struct sandbox_facts {
    const struct pod *pod; /* the owned one */
    bool gone;             /* there should be no Pod: suspended, or paused by Delete */
    bool pause;            /* the Pod should be held paused in place */
    bool pod_foreign;      /* somebody else's Pod has the name */
    bool service_there;
    char problem[512]; /* "" or one sentence: why it cannot get ready */
    const char *problem_reason;
};
json_t *sandbox_conditions(const struct sandbox *s, const struct sandbox_world *w,
                           const struct sandbox_facts *f);
/* The whole status. */
json_t *sandbox_status(const struct sandbox *s, const struct sandbox_world *w, const struct sandbox_facts *f);
bool sandbox_is_expired(const struct sandbox *s, int64_t now_ms);
/* For how long a Pod whose probe failed in a pause still counts as ready; 0: it does not, or is ready. */
int64_t probe_grace_ms(const struct pod *pod, int64_t now_ms);
/* Bytes out of the node agent's message; false when it is not in the agreed form. */
bool pause_message_read(const char *message, int64_t *before, int64_t *after);
