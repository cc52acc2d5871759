#pragma once
/*
 * OCI hooks: programs of the node's administrator that get the container's state as JSON on stdin.
 * They run with the rights of whoever calls this, one after another, each with its time limit.
 */
#include <sys/types.h>

#include "base/err.h"
#include "shim/oci/spec.h"

struct hook_state {
    const struct spec *spec;
    const char *id, *bundle, *status; /* "creating", "created", "running", "stopped" */
    pid_t pid;                        /* as the hook sees it; 0 = none */
};
/* 0, or the first failure, which names the hook and shows what it printed. Blocks: never in the shim itself.
 */
int hooks_run(const struct hook_state *s, enum spec_hook_kind kind, struct err *e);

/*
 * startContainer hooks: programs of the image, run by the init itself under its filters, with its user
 * and capabilities (before_exec sets them in the child).  Nothing but natively allowed calls are made.
 */
int hooks_run_inside(const struct hook_state *s, int (*before_exec)(void *data), void *data, struct err *e);
