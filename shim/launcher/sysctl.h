#pragma once
/*
 * Kernel parameters of the specification.  Only namespaced ones: net.* goes to the pod's CNI namespace
 * (where the sentry's sockets are) and to the workload's empty one (what it reads in /proc/sys); the
 * others to the pod's ipc and uts namespaces.  Both run in a throw-away process of host root that
 * changes its namespaces.
 */
#include "base/err.h"

struct spec;

/* In the CNI namespace, after it was entered: what the sentry needs, then net.* of the spec. */
int sysctl_apply_cni(const struct spec *spec, struct err *e);
/* Enters the pod's namespaces and writes everything of the spec there. */
int sysctl_apply_pod(const struct spec *spec, int net_ns, int ipc_ns, int uts_ns, struct err *e);
