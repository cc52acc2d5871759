#pragma once
/* linux.seccomp of a specification, translated to cBPF. Pure. */
#include <linux/filter.h>
#include <stddef.h>

#include "base/err.h"

/*
 * *ret is the caller's, *ret_n = 0 when the profile allows everything.  Conditions of one entry must
 * all hold; among entries of one call the first with conditions that hold counts, then one without,
 * then the default.  Names this kernel table does not have are skipped; calls newer than any the
 * profile names get ENOSYS, so that programs fall back, as runc does.
 */
int oci_seccomp_build(const char *json, struct sock_filter **ret, size_t *ret_n, struct err *e);
