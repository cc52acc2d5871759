/* Out-of-memory kills: a descriptor that tells when to look, and the kernel's own count. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "shim/cgroup/internal.h"

/* v1: the eventfd is registered in cgroup.event_control and lives as long as the group. */
static int watch_v1(struct cgroup *cg, const struct cg_dir *d, struct err *e)
{
    scoped_fd int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0)
        return err_sys(e, "eventfd");
    scoped_fd int control = openat(d->dir, "memory.oom_control", O_RDONLY | O_CLOEXEC);
    if (control < 0)
        return err_sys(e, "open memory.oom_control");

    char line[32];
    (void)snprintf(line, sizeof line, "%d %d", event, control);
    int r = cg_write(d->dir, "cgroup.event_control", line);
    if (r < 0)
        return err_set(e, r, "register for out-of-memory events: %s", strerror(-r));
    cg->oom_watched = take_fd(control);
    cg->oom_fd = take_fd(event);
    return 0;
}

static int watch_v2(struct cgroup *cg, const struct cg_dir *d, struct err *e)
{
    scoped_fd int inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (inotify < 0)
        return err_sys(e, "inotify_init1");

    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/memory.events", d->dir);
    if (inotify_add_watch(inotify, path, IN_MODIFY) < 0)
        return err_sys(e, "watch memory.events");
    cg->oom_fd = take_fd(inotify);
    return 0;
}

int cgroup_oom_fd(struct cgroup *cg, struct err *e)
{
    if (cg->oom_fd >= 0)
        return cg->oom_fd;
    const struct cg_dir *d = cg_part(cg, CG_MEMORY);
    if (!d)
        return err_set(e, -ENOTSUP, "this host has no memory controller");
    int r = d->hier->v2 ? watch_v2(cg, d, e) : watch_v1(cg, d, e);
    return r < 0 ? r : cg->oom_fd;
}

void cgroup_oom_drain(struct cgroup *cg)
{
    char buf[4096];

    while (cg->oom_fd >= 0 && read(cg->oom_fd, buf, sizeof buf) > 0)
        continue;
}

/*
 * oom_kill, not oom: when a pod and its container have the same limit the kernel counts `oom` on the
 * pod, and an allocation that merely failed counts there too.
 */
uint64_t cgroup_oom_count(const struct cgroup *cg)
{
    const struct cg_dir *d = cg_part(cg, CG_MEMORY);
    char text[512];
    uint64_t kills = 0;

    if (!d || cg_read(d->dir, d->hier->v2 ? "memory.events" : "memory.oom_control", text, sizeof text) < 0)
        return 0;
    return cg_keyed(text, "oom_kill", &kills) ? kills : 0;
}
