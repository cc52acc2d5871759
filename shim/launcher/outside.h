#pragma once
/*
 * What is set on the process from outside, by host root, because the process itself, root of a user
 * namespace only, may not: oom score, rlimits, scheduler, nice value, I/O priority, processors.
 */
#include <sys/types.h>

#include "base/err.h"
#include "shim/oci/spec.h"

int outside_apply(pid_t pid, const struct spec_process *p, struct err *e);
