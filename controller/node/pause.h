#pragma once
/*
 * What the node agent does for one pod: PURE.  The pod as the API shows it and what is known of its
 * shim go in, one decision comes out.  The contract with the controller is in sandbox/names.h.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum pause_step {
    PAUSE_NOTHING,
    PAUSE_SCAN,  /* the pod's shim is not known: look for it */
    PAUSE_DO,    /* call Pause */
    PAUSE_UNDO,  /* call Resume */
    PAUSE_REPORT /* write the condition that `report` describes */
};

#define PAUSE_IDS_MAX 64
struct pod_facts {
    bool wanted; /* the annotation says paused */
    bool deleting, running, ready;
    const char *status, *reason, *message; /* of the condition; "" when it is absent */
    const char *ids[PAUSE_IDS_MAX];        /* containerd's ids of its containers, borrowed from the pod */
    size_t n_ids;
};
void pod_facts_read(const json_t *pod, struct pod_facts *ret);

/* What the agent knows beside the pod. */
struct shim_facts {
    bool found;       /* a shim has this pod's containers */
    bool searched;    /* it was looked for in vain since the containers were seen */
    bool busy;        /* a call is in flight */
    bool paused;      /* what the shim said last */
    bool have_result; /* an ended call, or a refusal, that the API does not show yet */
};

enum pause_step pause_decide(const struct pod_facts *pod, const struct shim_facts *shim);
