#pragma once
/*
 * The socket guard: cgroup BPF programs that refuse connect, bind and addressed sends on the pod's
 * sockets unless the running task is the sentry.
 *
 * A socket belongs for ever to the cgroup of the task that made it, and the kernel runs that cgroup's
 * programs whoever uses the socket.  The sentry makes every inet socket of the pod, so whatever slips
 * past it (a descriptor swapped between its look and the kernel's, a call that nobody thought of) meets
 * a closed door in the kernel, which checks its own copy of the address.
 */
#include "base/err.h"
#include "base/scoped.h"

struct guard;

/*
 * v2_dir: the sentry's leaf on a v2 host (stays the caller's), or -1: a directory of our own is made in
 * the host's v2 hierarchy (glovebox/<pod_id>), which a hybrid host has beside the v1 ones.
 */
int guard_install(int v2_dir, const char *pod_id, struct guard **ret, struct err *e);
int guard_dir(const struct guard *g); /* the cgroup directory that the sentry must be in */
void guard_free(struct guard *g);     /* removes a directory of our own; the sentry must be gone */
int guard_remove(const char *pod_id); /* for a clean-up without the shim: 0, -EBUSY while a task is in it */
/* Proof, not hope: 0 when using `sock` (made by the sentry) from here is refused. */
int guard_check(int sock, struct err *e);

SCOPED_DEFINE(struct guard, guard_free)
