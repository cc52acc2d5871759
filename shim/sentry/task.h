#pragma once
/* Questions about a thread that only the shim can answer: the sentry has no procfs. */
#include <sys/types.h>

#include "shim/sentry/core.h"

/* The process of a thread, for kernels without thread pidfds; asks the shim and waits. -errno when it is
 * gone. */
pid_t task_process(struct core *core, pid_t tid);
/* An answer came. True if somebody waited for it. */
void task_answer(struct core *core, uint64_t cookie, int tgid);
/* The other side, in the shim: the process of `tid`, and whether an unblocked signal waits for that very
 * thread. */
int task_look_up(pid_t tid, bool *ret_pending);
