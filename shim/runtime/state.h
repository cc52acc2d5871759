#pragma once
/*
 * What a killed shim leaves for the stateless clean-up: <state_dir>/<ns>/<id>/state, "key value" lines
 * closed by "end".  Written by rename; a reader takes what it can use from a truncated or foreign file.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "base/scoped.h"

/* A process that can be recognised later: a pid alone may be another process by then. */
struct state_process {
    pid_t pid;      /* 0 = none */
    uint64_t start; /* field 22 of /proc/<pid>/stat, clock ticks after boot */
};

struct state {
    char *pod, *cgroup, *sentry_cgroup_of, *socket, *bundle, *audit;
    struct state_process init, sentry, shim;
    bool has_exit;
    uint32_t exit_status;
    struct timespec exit_at;
};

/* Fills in the start time of a living process; start 0 when it cannot be read. */
struct state_process state_process_of(pid_t pid);
/* A pidfd of exactly that process, or -ESRCH. */
int state_process_open(const struct state_process *p);

int state_write(const char *state_dir, const char *ns, const char *id, const struct state *s, struct err *e);
/* -ENOENT: nothing there.  Otherwise *ret has what could be read, missing parts are zero. */
int state_read(const char *state_dir, const char *ns, const char *id, struct state **ret, struct err *e);
void state_free(struct state *s);
void state_remove(const char *state_dir, const char *ns,
                  const char *id); /* and the empty directories above it */
/* The ids with a state directory in ns; NULL-terminated, free with state_ids_free. */
char **state_ids(const char *state_dir, const char *ns);
void state_ids_free(char **ids);
/* [A-Za-z0-9]+([._-][A-Za-z0-9]+)*, at most 76: what may become part of a path. */
bool state_name_is_valid(const char *name);

SCOPED_DEFINE(struct state, state_free)
