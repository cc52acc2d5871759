#pragma once
/* Which file to execute, with which environment: looked up inside the container, as its user. */
#include "base/err.h"
#include "shim/oci/spec.h"

/* PATH lookup; the messages are runc's, because clients match on them. *ret is the caller's. */
int program_find(const struct spec_process *p, char **ret, struct err *e);
/* Last duplicate wins; HOME from /etc/passwd when unset. NULL-terminated; strings borrowed or leaked to the
 * exec. */
char **program_env(const struct spec_process *p);
/* -errno of a failed execve to the text of a client ("exec /p: exec format error"). */
void program_exec_error(const char *path, int r, struct err *e);
