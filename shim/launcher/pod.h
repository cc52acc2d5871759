#pragma once
/*
 * What all containers of a pod share: the user namespace with its id range, the empty network
 * namespace of the workload, ipc and uts namespaces, the sandbox's pid namespace, and the network
 * namespace of the pod's CNI, which only the sentry joins.  Lives in the shim; owns descriptors only,
 * so closing them is all that is needed once the processes are gone.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct spec;

struct pod {
    char *id;
    uint32_t base;  /* host id of container id 0; the range is [base, base + 65536) */
    bool ids_given; /* the specification brought the range: its file systems are shifted already, unless a
                       mount says it is not */
    int user_ns, net_ns, ipc_ns, uts_ns; /* net_ns: the workload's empty one */
    int cni_net_ns;                      /* the sentry's: from the spec's path, or a fresh one with lo up */
    int pid_ns;       /* of the first container (shareProcessNamespace); -1 before it exists */
    int empty_mnt_ns; /* a mount namespace with nothing in it, to start builders from */
    int range_lock;   /* holds the id range */
    bool features_checked;
};

/* Makes the namespaces from the sandbox's (or only container's) spec.  state_dir: /run/glovebox. */
int pod_new(const char *id, const struct spec *spec, const char *state_dir, struct pod **ret, struct err *e);
void pod_free(struct pod *pod); /* closes; gives the id range back */
/* For `delete` after a killed shim: gives back the range of pod `id`. */
int pod_release(const char *id, const char *state_dir, struct err *e);
