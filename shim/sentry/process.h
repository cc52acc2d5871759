#pragma once
/* The sentry's own process, from the fork on. */
#include <stdint.h>
#include <sys/types.h>

#include "base/macro.h"
#include "shim/sentry/egress.h"

struct sentry_boot {
    pid_t shim;
    int control, audit; /* audit: -1 = none */
    int net_ns, user_ns, mnt_ns;
    const int *v1_tasks;
    size_t n_v1_tasks;
    struct sentry_counts *counts; /* shared */
    bool debug;
    int64_t cpu_milli, memory_bytes;
    const struct egress_range *hard_deny; /* copied by the fork */
    size_t n_hard_deny;
};

/* Takes over the process: never returns.  Failures go to the shim as MESSAGE_READY with an errno. */
NORETURN void sentry_process(const struct sentry_boot *b);

#ifdef __SANITIZE_ADDRESS__
#define SENTRY_SANITIZED                                                                                     \
    true /* its runtime makes calls and mappings of its own: such a build is for tests alone */
#else
#define SENTRY_SANITIZED false
#endif

/* The sentry's own system call filter: the calls of this folder, and nothing else. */
struct err;
int sentry_filter_install(struct err *e);
