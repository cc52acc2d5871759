#pragma once
/*
 * Egress policies of this node's pods.  A pod whose annotation glovebox.dev/egress names a policy starts
 * with everything denied; the agent compiles the EgressPolicy of that name in the pod's namespace, with
 * the floor of every ClusterEgressPolicy, and sends it to the pod's shim, and again when either changes.
 * A policy that was deleted means that everything is denied.  What was sent is confirmed before its lease
 * ends.
 */
#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct engine;
struct store;
struct shims;
struct egress_sender;

/* Before engine_start. pods: the store of the node's pods. */
struct egress_sender *egress_sender_new(struct engine *x, struct store *pods, struct shims *shims);
void egress_sender_free(struct egress_sender *s);
/* The pod's shim was found, or has gone: look at the pod again. */
void egress_sender_wake(struct egress_sender *s, const char *ns, const char *name);

/*
 * PURE.  The policy as the shim takes it (shim/egress/policy.h), a string of the caller's.  policy NULL:
 * there is none of that name.  floors: an array of ClusterEgressPolicy objects.
 */
char *egress_compile(const char *name, const json_t *policy, const json_t *floors);
