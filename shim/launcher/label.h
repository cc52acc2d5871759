#pragma once
/*
 * AppArmor profile and SELinux labels.  Both are written by the process itself into its own attributes
 * and take effect at the exec.  The attributes are reached through the host's procfs, held by descriptor:
 * what a container has mounted at /proc is not trusted with it.
 */
#include <stdbool.h>

#include "base/err.h"
#include "shim/oci/spec.h"

struct label {
    int host_proc;        /* O_PATH of the host's /proc; -1 = nothing to write */
    const char *apparmor; /* NULL = none */
    const char *selinux;
    const char *mount; /* context= of the container's own file systems; NULL = none or SELinux is off */
};
/* In the launcher. A profile without AppArmor in the kernel is an error; SELinux labels without SELinux are
 * none. */
int label_open(const struct spec *spec, const struct spec_process *p, struct label *ret, struct err *e);
/* In the init, before it gives up its rights. */
int label_apply(const struct label *l, struct err *e);
