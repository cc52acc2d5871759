#pragma once
/* Ids and capabilities of the process, in the steps in which an init may take them. */
#include "base/err.h"
#include "shim/oci/spec.h"

/*
 * From root of the pod with all capabilities to the process's ids.  Keeps, beyond what the
 * specification grants, what is still needed: CAP_SYS_ADMIN to install filters unless
 * no_new_privileges is set.  The last step is creds_final().
 */
int creds_apply(const struct spec_process *p, uint64_t *ret_known, struct err *e);
/* Exactly what the specification grants. One system call, capset, because filters are in force. known: from
 * above. */
int creds_final(const struct spec_process *p, uint64_t known);
