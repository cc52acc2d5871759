#pragma once
/*
 * Pausing a pod so that its memory goes back to the node, and waking it in milliseconds.  The work is
 * done by the pager, a forked process of the shim's (host root); the shim only exchanges messages with
 * it and holds a copy of every userfaultfd: if the pager dies, no page can silently turn into zeros,
 * and the pod is killed.  Sequence and reasons: docs/hibernate.md.
 *
 *   pause:   stop (ptrace) -> save pages to the image -> userfaultfd inside -> drop -> freeze -> arm
 *   resume:  thaw; faults are served from the image, the rest is brought back in the background
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct loop;
struct cgroup;
struct hibernate;

struct hibernate_params {
    struct cgroup *const *cgroups; /* all containers of the pod; must outlive the hibernate */
    size_t n_cgroups;
    const char *image_dir;    /* e.g. /var/lib/glovebox/paused */
    int64_t stop_deadline_ms; /* 0 = 2000 */
};
struct hibernate_result {
    uint64_t saved_bytes;
    uint64_t duration_ms;
    bool lazy; /* pages come back on demand; otherwise all of them before the thaw */
};
struct hibernate_events {
    /* Optional, may come several times: every thread has been asked to stop.  Calls that the sentry holds for
     * them must be answered now, so that the kernel restarts them after the thaw. */
    void (*asked)(void *data);
    /* The pause is over: r == 0 the cgroups are frozen and the memory is in the image; r < 0 nothing was
     * moved out and nothing is frozen (e says why): the caller may freeze without giving the memory back. */
    void (*paused)(void *data, int r, const struct hibernate_result *result, const struct err *e);
    void (*resumable)(void *data); /* after hibernate_resume(): thaw now */
    void (*finished)(void *data);  /* all memory is back; free the hibernate */
    /* Memory is lost, or the pager died: kill the pod, then free the hibernate. */
    void (*broken)(void *data, const struct err *e);
    void *data;
};

/* Forks the pager and returns at once. params and events are copied. */
int hibernate_pause(struct loop *loop, const struct hibernate_params *params,
                    const struct hibernate_events *events, struct hibernate **ret, struct err *e);
int hibernate_resume(struct hibernate *h, struct err *e);
/* Kills the pager. Only for a pod that is dead or finished: NULL is fine. */
void hibernate_free(struct hibernate *h);
pid_t hibernate_pid(const struct hibernate *h);
/* From the reaper; true if it was the pager. */
bool hibernate_reaped(struct hibernate *h, pid_t pid, int status);
