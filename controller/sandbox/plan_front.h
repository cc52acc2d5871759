#pragma once
/*
 * sandbox.k8s.io/v1alpha1: a front.  Every object drives one core object of the same kind and name,
 * which does the work, and shows its status.  PURE.
 *
 * `kubectl patch sandbox` picks the core kind when both are installed, so the one field that people
 * patch by hand (paused; of pools, replicas) may be changed on either object: the later change wins and
 * both show it.  An annotation on the core object remembers the value both had, which tells which side
 * has changed.
 */
#include "controller/sandbox/model.h"
#include "controller/sandbox/plan.h"

enum front_kind { FRONT_SANDBOX, FRONT_TEMPLATE, FRONT_CLAIM, FRONT_POOL, FRONT_KINDS };

struct front_world {
    int64_t now_ms;
    const json_t *core; /* the core object of the same name, or NULL */
    bool pod_resources; /* the cluster takes resources of a whole Pod (1.34 and later) */
    /* Claims: the pool to use; NULL with pool_missing: the template that is named does not exist. */
    const char *pool;
    bool make_pool;              /* it is the empty one of the template, and has to be made */
    const struct meta *template; /* its owner */
    bool template_missing;
    const char *fault;
    bool hold;
};

void front_plan(enum front_kind kind, const json_t *front, const struct front_world *w, struct plan *plan);
/* The core object's spec; a new reference. */
json_t *front_spec(enum front_kind kind, const json_t *front, const struct front_world *w);
