#pragma once
/* The option shim_cgroup: the shim's own process joins a cgroup, in every mounted hierarchy, made if it is
 * missing. */
#include "base/err.h"

int shim_cgroup_enter(const char *path, struct err *e);
/* The same with another list of mounts, for tests: text in the form of /proc/self/mountinfo. */
int shim_cgroup_enter_at(const char *mountinfo, const char *path, struct err *e);
