#pragma once
/*
 * Cleaning up after a container whose shim is gone, for the stateless `delete`: reads what the shim
 * noted under /run/glovebox/<ns>/<id>/ and in the bundle; nothing of it has to be there or be whole.
 */
#include <stdint.h>
#include <time.h>

#include "base/err.h"

struct cleanup_result {   /* the DeleteResponse */
    uint32_t pid;         /* the init's host pid as Create reported it, 0 when it is not known any more */
    uint32_t exit_status; /* 137, or what the shim itself had seen and noted before it died */
    struct timespec at;   /* wall clock */
};

/*
 * Kills every process of the container (thaws first), waits for their death, unmounts <bundle>/rootfs,
 * removes its cgroups, state and, when this was the last container of the pod, the sentry, the id range
 * and the pod's socket.  Idempotent.  Never touches other members of the pod, nor a process that only
 * has a recorded pid's number.  *ret is filled also when <0 is returned: then something could not be
 * removed and e says what.  ns and id must be plain names (-EINVAL otherwise).
 */
int cleanup_bundle(const char *ns, const char *id, const char *bundle, struct cleanup_result *ret,
                   struct err *e);
