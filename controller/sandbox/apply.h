#pragma once
/* Steps of a plan become actions of a pass, by a table. */
#include "controller/core/engine.h"
#include "controller/sandbox/plan.h"

struct apply_about {
    const struct kube_resource *resource; /* of the planned object: events, and the front's own writes */
    const json_t *json;
    const char *ns, *name;
};
/* Moves the steps out of the plan.  */
void plan_apply(struct pass *p, struct plan *plan, const struct apply_about *about);
