#pragma once
/*
 * The controllers of all kinds together: stores, controllers and the little that is remembered between
 * passes.  Nothing of that is needed for a right result: after a restart everything follows from the
 * objects.
 */
#include "base/err.h"
#include "base/scoped.h"

struct engine;
struct metrics;
struct sandboxes;

struct sandboxes_options {
    const char *cluster_domain;       /* "cluster.local" */
    const char *router_namespace;     /* whence the router may connect to sandboxes */
    const char *const *label_domains; /* that claims may put on Pods; NULL-terminated */
    const char *runtime_handler;      /* of RuntimeClasses whose pods can be paused in place */
    bool extensions;                  /* claims, templates and pools too */
    bool front;                       /* sandbox.k8s.io too */
    bool pod_resources;               /* the API server takes resources of a whole Pod */
    bool claim_events;
    bool evictable;  /* pool members may be moved by the cluster autoscaler */
    long starts_max; /* members of one pool on their way at once */
    long readiness_grace_ms;
    long passes_max; /* keys at work at once, per kind */
};

/* Strings stay the caller's.  Adds kinds and controllers to the engine, before engine_start. */
int sandboxes_new(struct engine *x, const struct sandboxes_options *o, struct metrics *m,
                  struct sandboxes **ret, struct err *e);
void sandboxes_free(struct sandboxes *s);

SCOPED_DEFINE(struct sandboxes, sandboxes_free)
