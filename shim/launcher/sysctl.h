#pragma once
/*
 * Kernel parameters of the specification.  Only namespaced ones: net.* goes to the pod's CNI namespace
 * (where the sentry's sockets are) and to the workload's empty one (what it reads in /proc/sys); the
 * others to the pod's ipc and uts namespaces.  Both run in a throw-away process of host root that
 * changes its namespaces.
 */
#include "base/err.h"

struct spec;

/* proc_sys: a descriptor of the host's /proc/sys, which shows the namespaces of whoever opens a file in it.
 */

/* In the CNI namespace, after it was entered: what the sentry needs, then net.* of the spec. */
int sysctl_apply_cni(int proc_sys, const struct spec *spec, struct err *e);
/* Enters the pod's namespaces and writes everything of the spec there. The caller's ids change: its last
 * step. */
struct sysctl_ns {
    int user, net, ipc, uts;
};
int sysctl_apply_pod(int proc_sys, const struct spec *spec, const struct sysctl_ns *ns, struct err *e);
