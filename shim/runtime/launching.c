/* From a process on paper to a blocked process: stdio, the launcher, and taking over what it made. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/map.h"
#include "shim/cgroup/cgroup.h"
#include "shim/launcher/pod.h"
#include "shim/oci/spec.h"
#include "shim/runtime/internal.h"
#include "shim/sentry/sentry.h"

#define ID_RANGE 65536

/* The host id that the container sees as its own. */
static uint32_t host_id(const struct pod *pod, uint32_t id)
{
    return pod->base + (id < ID_RANGE ? id : 0);
}

int process_open_stdio(struct process *p, void (*ready)(void *, int, const struct err *), struct err *e)
{
    struct runtime *rt = p->c->rt;
    bool given = p->io_uid || p->io_gid;
    const struct stdio_params params = {.loop = rt->loop,
                                        .reaper = rt->reaper,
                                        .ns = rt->ns,
                                        .id = p->exec_id ? p->exec_id : p->c->id,
                                        .uri = {p->uri[0], p->uri[1], p->uri[2]},
                                        .terminal = p->terminal,
                                        .uid = given ? p->io_uid : host_id(rt->pod, p->spec->uid),
                                        .gid = given ? p->io_gid : host_id(rt->pod, p->spec->gid),
                                        .ready = ready,
                                        .data = p};

    int r = stdio_open(&params, &p->io, e);
    if (r >= 0 && p->close_stdin)
        stdio_close_stdin(p->io);
    return r;
}

/*
 * The pid namespace that a container shares: the sandbox's, or that of another container of the pod
 * (kubectl debug --target).  -1: none of the pod's, which the launcher refuses.
 */
static int shared_pid_ns(const struct runtime *rt, const struct container *c)
{
    const char *path = c->spec->ns[SPEC_NS_PID].path;
    struct stat want, have;
    size_t at = 0;
    void *value;

    if (!path || stat(path, &want) < 0 ||
        (rt->pod->pid_ns >= 0 && fstat(rt->pod->pid_ns, &have) == 0 && have.st_dev == want.st_dev &&
         have.st_ino == want.st_ino))
        return -1;
    while (map_next(rt->containers, &at, NULL, &value)) {
        const struct container *other = value;
        char own[64];
        if (other == c || other->init.pid <= 0 || other->init.reaped)
            continue;
        snprintf(own, sizeof own, "/proc/%d/ns/pid", other->init.pid);
        scoped_fd int fd = open(own, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &have) == 0 && have.st_dev == want.st_dev && have.st_ino == want.st_ino)
            return take_fd(fd);
    }
    return -1;
}

int process_launch(struct process *p, const struct launch_mount *rootfs, size_t n_rootfs, launch_done_fn done,
                   struct err *e)
{
    struct container *c = p->c;
    struct runtime *rt = c->rt;
    const int *fds = stdio_child_fds(p->io);
    scoped_fd int pid_ns = p->exec_id || c->private_pid_ns ? -1 : shared_pid_ns(rt, c);
    struct pod pod = *rt->pod; /* a view of it; the launcher has forked when this returns */
    if (pid_ns >= 0)
        pod.pid_ns = pid_ns;
    const struct launch_params params = {.pod = &pod,
                                         .id = c->id,
                                         .bundle = c->bundle,
                                         .spec = c->spec,
                                         .process = p->spec,
                                         .rootfs = rootfs,
                                         .n_rootfs = n_rootfs,
                                         .cgroup = c->cg,
                                         .stdio = {fds[0], fds[1], fds[2]},
                                         .shares_pid_ns = !c->private_pid_ns,
                                         .join = p->exec_id ? c->init.pid : 0,
                                         .join_pidfd = p->exec_id ? c->init.pidfd : -1,
                                         .debug = rt->debug};

    assert(!p->pending.launch);
    int r = launch_start(rt->loop, &params, done, p, &p->pending.launch, e);
    if (r < 0)
        return r;
    pending_add(rt, &p->pending);
    stdio_child_started(p->io);
    return 0;
}

/* The sandbox's pid namespace, for members that share it. */
static void keep_pid_ns(struct process *p)
{
    struct pod *pod = p->c->rt->pod;
    char path[64];

    if (p->exec_id || pod->pid_ns >= 0)
        return;
    snprintf(path, sizeof path, "/proc/%d/ns/pid", p->pid);
    pod->pid_ns = open(path, O_RDONLY | O_CLOEXEC);
    if (pod->pid_ns < 0)
        log_warn("cannot hold the pid namespace of the pod", "pid=%d", p->pid);
}

int process_adopt(struct process *p, struct launch_result *result, struct err *e)
{
    struct container *c = p->c;
    struct runtime *rt = c->rt;
    scoped_fd int listener = result->listener_fd;
    scoped_fd int console = result->console_fd;
    scoped_fd int view = result->proc_view_fd;

    p->pid = result->pid;
    p->pidfd = result->pidfd;
    p->sync_fd = result->sync_fd;
    p->exit.pid = (uint32_t)p->pid;
    p->watch = reaper_add(rt->reaper, p->pid, p->pidfd, on_process_exit, p);
    keep_pid_ns(p);
    if (!p->exec_id)
        c->proc_view_fd = take_fd(view);
    if (rt->broken)
        return err_set(e, -EIO, "%s", rt->broken);

    /* Before the process may run a single instruction of its own: nobody else would answer its calls. */
    int r = listener >= 0 ? sentry_add_listener(rt->sentry, take_fd(listener), c->id, e) : 0;
    if (r < 0)
        return err_wrap(e, r, "hand the process to the sentry");
    if (p->terminal != (console >= 0))
        return err_set(e, -EIO,
                       p->terminal ? "the launcher gave no terminal"
                                   : "the launcher gave a terminal nobody asked for");
    if (console >= 0)
        r = stdio_set_console(p->io, take_fd(console), e);
    if (r == 0 && p->has_size)
        r = stdio_resize(p->io, p->width, p->height, e);
    if (r == 0 && p->pending_signal)
        process_signal(p, p->pending_signal);
    return r;
}
