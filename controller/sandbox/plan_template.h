#pragma once
/* The SandboxTemplate: its NetworkPolicy and its own label.  PURE. */
#include "controller/sandbox/build.h"
#include "controller/sandbox/plan.h"

struct template_world {
    const json_t *policy;  /* the NetworkPolicy of the agreed name, or NULL */
    const char *router_ns; /* where the router runs: it alone may connect to sandboxes */
};
void template_plan(const struct template *t, const struct template_world *w, struct plan *plan);
