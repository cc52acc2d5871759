#pragma once
/*
 * Starts container and exec processes.  The work is done by a forked launcher (host root), so that
 * the shim's loop never waits: results come as one message.  Sequence and reasons: docs/launcher.md.
 *
 *   shim --fork--> launcher --(joiner, CLONE_PARENT)--> init, a child of the SHIM, blocked before exec
 *
 * The init has its seccomp filter already; the launcher took the listener with pidfd_getfd.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct loop;
struct pod;
struct spec;
struct spec_process;
struct cgroup;

struct launch_mount { /* containerd.types.Mount: the snapshot */
    const char *type, *source, *target;
    const char *const *options;
    size_t n_options;
};

struct launch_params {
    const struct pod *pod;
    const char *id;                     /* container id */
    const char *bundle;                 /* absolute */
    const struct spec *spec;            /* of the container */
    const struct spec_process *process; /* == &spec->process for an init */
    const struct launch_mount *rootfs;  /* may be empty: spec->root_path is used */
    size_t n_rootfs;
    const struct cgroup *cgroup;
    int stdio[3];       /* descriptors for 0,1,2; ignored with a terminal; stay the caller's */
    bool shares_pid_ns; /* join pod->pid_ns instead of a new one */
    pid_t join;         /* exec: the container's init (host pid); 0 for an init */
    int join_pidfd;     /* exec: its pidfd, -1 for an init */
    bool debug;         /* trace the steps to the log */
};

struct launch_result { /* the receiver owns the descriptors */
    pid_t pid;         /* host pid of the init or exec process; a child of the shim */
    int pidfd;
    int sync_fd;      /* launch_release() writes "go" here; EOF after it = exec succeeded */
    int listener_fd;  /* seccomp notify: hand to sentry_add_listener() before launch_release() */
    int console_fd;   /* pty master, -1 without a terminal */
    int proc_view_fd; /* directory with the synthetic /proc files, -1 if none: the shim rewrites them on a
                         resize */
};

struct launch;
/* Called exactly once from the loop: result on success (r == 0), otherwise r < 0 and e tells the person why.
 */
typedef void (*launch_done_fn)(void *data, int r, struct launch_result *result, const struct err *e);

/* Validates what can be without work, forks the launcher, returns at once. params are copied or used before
 * return. */
int launch_start(struct loop *loop, const struct launch_params *params, launch_done_fn done, void *data,
                 struct launch **ret, struct err *e);
/* Abandons: kills the launcher and everything it made; done() is not called. */
void launch_cancel(struct launch *l);
/* The reaper saw pid; true if it was one of the launcher's own helpers. */
bool launch_reaped(struct launch *l, pid_t pid, int status);

/*
 * Let the process exec.  done: r == 0 exec succeeded; r < 0: the text is what runc would say
 * ("exec: \"x\": executable file not found in $PATH").
 */
int launch_release(struct loop *loop, int sync_fd /* taken */, const struct spec_process *process,
                   launch_done_fn done, void *data, struct launch **ret, struct err *e);

/* Hooks outside of a launch: poststart, poststop. Runs in a forked child; done as above with result NULL. */
int launch_hooks(struct loop *loop, const struct spec *spec, int kind /* enum spec_hook_kind */,
                 const char *id, const char *bundle, pid_t pid, const char *status, launch_done_fn done,
                 void *data, struct launch **ret, struct err *e);
