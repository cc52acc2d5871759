/*
 * Process L.  Host root; leads one launch: prepares what only the host's mount namespace can give,
 * starts the builder and the joiner side by side, carries descriptors between them, and sends the shim
 * one message at the end.  Whoever fails says why; when L ends, its sockets end, and with them all helpers.
 */
#include "shim/launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/hooks.h"
#include "shim/launcher/outside.h"
#include "shim/launcher/pod.h"
#include "shim/launcher/proto.h"
#include "shim/launcher/sys.h"

#define ANSWER_MS 100000
#define KEEP_MAX  32

struct lead {
    struct plan *plan;
    int init_sock;    /* to the joiner, then the init */
    int joiner_pidfd; /* it shares its end with the init that it gives birth to */
    int builder_sock; /* -1 for an exec */
    pid_t builder, init;
    int init_pidfd;
    int mnt_ns, tty, console, view;
};

/* ---- helpers ------------------------------------------------------------------------------------ */

/* In a new helper: only its own socket stays of the sockets. */
static int run_helper(struct lead *l, int (*fn)(struct plan *, int, struct err *), int sock, int other)
{
    struct err e = {0};

    fd_close(l->plan->shim_sock);
    fd_close(l->init_sock);
    fd_close(other);
    l->plan->shim_sock = -1;
    int r = fn(l->plan, sock, &e);
    if (r < 0)
        (void)msg_fail(sock, r, &e);
    _exit(r < 0);
}

static int start_joiner(struct lead *l, struct err *e)
{
    struct plan *plan = l->plan;
    int pair[2];
    int r = msg_pair(pair, e);
    if (r < 0)
        return r;

    l->init_sock = pair[0];
    int into = plan->p.cgroup ? cgroup_entry(plan->p.cgroup).v2_dir : -1;
    pid_t pid = sys_fork(CLONE_PARENT, 0, into, &l->joiner_pidfd);
    if (pid == 0)
        run_helper(l, joiner_main, pair[1], -1);
    fd_close(pair[1]);
    return pid < 0
               ? err_set(e, pid, "start a helper%s: %s", into >= 0 ? " in the cgroup" : "", strerror(-pid))
               : 0;
}

static int start_builder(struct lead *l, struct err *e)
{
    int pair[2];
    int r = msg_pair(pair, e);
    if (r < 0)
        return r;

    l->builder_sock = pair[0];
    l->builder = sys_fork(0, SIGCHLD, -1, NULL);
    if (l->builder == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_helper(l, builder_main, pair[1], pair[0]);
    }
    fd_close(pair[1]);
    return l->builder < 0 ? err_set(e, l->builder, "start the builder: %s", strerror(-l->builder)) : 0;
}

/* ---- steps -------------------------------------------------------------------------------------- */

static int await_birth(struct lead *l, struct err *e)
{
    struct msg m;
    int fds[MSG_FDS_MAX];
    int r = msg_recv_from(l->init_sock, l->joiner_pidfd, ANSWER_MS, &m, fds, e);

    if (r < 0)
        return r;
    if (m.kind != MSG_BORN || fds[0] < 0)
        return err_set(e, -EPROTO, "launch: unexpected message %u instead of a birth", m.kind);
    l->init = (pid_t)m.value;
    l->init_pidfd = fds[0];
    /* So that the shim can kill it if we die now. */
    (void)msg_send(l->plan->shim_sock, &m, fds, 1);
    return 0;
}

static int run_early_hooks(struct lead *l, struct err *e)
{
    const struct launch_params *p = &l->plan->p;
    const struct hook_state state = {
        .spec = p->spec, .id = p->id, .bundle = p->bundle, .status = "creating", .pid = l->init};

    int r = hooks_run(&state, HOOK_PRESTART, e);
    return r < 0 ? r : hooks_run(&state, HOOK_CREATE_RUNTIME, e);
}

/* For a new namespace the init's, for a shared one the pod's. Descriptor or -errno. */
static int open_pid_ns(struct lead *l, struct err *e)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)l->init);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open %s", path);
    return fd;
}

static int await_tree(struct lead *l, struct err *e)
{
    struct msg m = {.kind = MSG_PID_NS, .value = l->init};
    int fds[MSG_FDS_MAX];
    char path[64];
    scoped_fd int ns = open_pid_ns(l, e);

    if (ns < 0)
        return ns;
    int r = msg_send(l->builder_sock, &m, &ns, 1);
    if (r < 0 && r != -EPIPE) /* EPIPE: its message says why */
        return err_set(e, r, "builder: %s", strerror(-r));
    r = msg_recv(l->builder_sock, ANSWER_MS, &m, fds, e);
    if (r < 0)
        return r;
    size_t i = 0;
    if (m.have & HAVE_CONSOLE)
        l->console = fds[i++];
    if (m.have & HAVE_TTY)
        l->tty = fds[i++];
    if (m.have & HAVE_VIEW)
        l->view = fds[i++];
    (void)snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)l->builder);
    l->mnt_ns = open(path, O_RDONLY | O_CLOEXEC);
    return l->mnt_ns < 0 ? err_sys(e, "open %s", path) : 0;
}

static int send_root(struct lead *l, struct err *e)
{
    struct msg m = {.kind = MSG_ROOT};
    int fds[2];
    size_t n = 0;

    if (l->mnt_ns >= 0) {
        m.have |= HAVE_MNT;
        fds[n++] = l->mnt_ns;
    }
    if (l->tty >= 0) {
        m.have |= HAVE_TTY;
        fds[n++] = l->tty;
    }
    int r = msg_send(l->init_sock, &m, fds, n);
    return r < 0 && r != -EPIPE ? err_set(e, r, "init: %s", strerror(-r)) : 0;
}

/* The init waits for "go" now; its descriptors are taken from outside, because a filtered process cannot be
 * asked to send them. */
static int await_ready(struct lead *l, int *ret_listener, struct err *e)
{
    struct msg m;
    int fds[MSG_FDS_MAX];
    int r = msg_recv(l->init_sock, ANSWER_MS, &m, fds, e);

    if (r < 0)
        return r;
    fd_close_all(fds, MSG_FDS_MAX);
    if (m.kind != MSG_READY || m.value < 0)
        return err_set(e, -EPROTO, "launch: unexpected message %u instead of readiness", m.kind);
    *ret_listener = pidfd_getfd(l->init_pidfd, (int)m.value, 0);
    if (*ret_listener < 0)
        return err_sys(e, "fetch the seccomp listener");
    if (m.value2 >= 0) {
        l->console = pidfd_getfd(l->init_pidfd, (int)m.value2, 0);
        if (l->console < 0)
            return err_sys(e, "fetch the terminal");
    }
    return 0;
}

static int send_result(struct lead *l, int listener, struct err *e)
{
    struct msg m = {.kind = MSG_DONE, .value = l->init, .have = HAVE_LISTENER};
    int fds[MSG_FDS_MAX] = {l->init_pidfd, l->init_sock, listener};
    size_t n = 3;

    if (l->console >= 0) {
        m.have |= HAVE_CONSOLE;
        fds[n++] = l->console;
    }
    if (l->view >= 0) {
        m.have |= HAVE_VIEW;
        fds[n++] = l->view;
    }
    int r = msg_send(l->plan->shim_sock, &m, fds, n);
    return r < 0 ? err_set(e, r, "send the result: %s", strerror(-r)) : 0;
}

/* ---- order -------------------------------------------------------------------------------------- */

/* An init that failed makes the builder fail too (no fork into its pid namespace): its own reason counts. */
static int blame_init(struct lead *l, int r, struct err *e)
{
    struct msg m;
    int fds[MSG_FDS_MAX];
    struct err why = {0};

    int said = l->init > 0 ? msg_recv(l->init_sock, 0, &m, fds, &why) : 0;
    if (said == 0 && l->init > 0)
        fd_close_all(fds, MSG_FDS_MAX);
    if (said == 0 || said == -ETIMEDOUT || said == -EPIPE)
        return r;
    *e = why;
    return said;
}

static int build_tree(struct lead *l, struct err *e)
{
    struct plan *plan = l->plan;

    int r = plan_sources(plan, e);
    if (r == 0)
        r = start_builder(l, e);
    trace_step(plan->trace, 'L', "builder started");
    if (r == 0)
        r = await_birth(l, e);
    trace_step(plan->trace, 'L', "init is born");
    if (r == 0)
        r = run_early_hooks(l, e);
    if (r == 0)
        r = outside_apply(l->init, plan->p.process, e);
    trace_step(plan->trace, 'L', "limits set");
    if (r == 0)
        r = await_tree(l, e);
    trace_step(plan->trace, 'L', "tree stands");
    return r < 0 ? blame_init(l, r, e) : 0;
}

static int launch(struct lead *l, struct err *e)
{
    struct plan *plan = l->plan;
    scoped_fd int listener = -1;

    int r = label_open(plan->p.spec, plan->p.process, &plan->label, e);
    if (r == 0 && plan->p.join == 0)
        r = plan_entries(plan, e);
    if (r == 0)
        r = start_joiner(l, e);
    trace_step(plan->trace, 'L', "joiner started");
    if (r < 0)
        return r;
    if (plan->p.join == 0)
        r = build_tree(l, e);
    else {
        r = await_birth(l, e);
        if (r == 0)
            r = outside_apply(l->init, plan->p.process, e);
    }
    if (r == 0)
        r = send_root(l, e);
    if (r == 0)
        r = await_ready(l, &listener, e);
    trace_step(plan->trace, 'L', "init is ready");
    return r < 0 ? r : send_result(l, listener, e);
}

/* Descriptors of the shim that a launch has no use for would be held open by us, a hook for minutes. */
static void drop_foreign_fds(const struct plan *plan)
{
    const struct pod *pod = plan->p.pod;
    int keep[KEEP_MAX + 2 * PLAN_CGROUPS_MAX] = {
        plan->shim_sock,  pod->user_ns,     pod->net_ns,        pod->ipc_ns,
        pod->uts_ns,      pod->pid_ns,      pod->empty_mnt_ns,  plan->p.stdio[0],
        plan->p.stdio[1], plan->p.stdio[2], plan->p.join_pidfd, pod->cni_net_ns,
    };
    size_t n = 12;

    if (plan->p.cgroup) {
        struct cgroup_entry entry = cgroup_entry(plan->p.cgroup);
        struct cgroup_view views[PLAN_CGROUPS_MAX];
        size_t n_views = cgroup_views(plan->p.cgroup, views, PLAN_CGROUPS_MAX);
        keep[n++] = entry.v2_dir;
        for (size_t i = 0; i < entry.n_v1_tasks && i < PLAN_CGROUPS_MAX; i++)
            keep[n++] = entry.v1_tasks[i];
        for (size_t i = 0; i < n_views; i++)
            keep[n++] = views[i].dir;
    }
    sys_close_others(keep, n);
}

void launcher_main(struct plan *plan)
{
    struct lead l = {.plan = plan,
                     .init_sock = -1,
                     .joiner_pidfd = -1,
                     .builder_sock = -1,
                     .init_pidfd = -1,
                     .mnt_ns = -1,
                     .tty = -1,
                     .console = -1,
                     .view = -1};
    struct err e = {0};

    /* Not dumpable: what the launcher and its helpers hold must not be reachable by /proc from a container.
     */
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NAME, "glovebox-launch");
    drop_foreign_fds(plan);
    trace_step(plan->trace, 'L', "runs");
    int r = launch(&l, &e);
    if (r < 0) {
        if (l.init_pidfd >= 0)
            (void)pidfd_send_signal(l.init_pidfd, SIGKILL, NULL, 0);
        if (l.builder > 0)
            (void)kill(l.builder, SIGKILL);
        (void)msg_fail(plan->shim_sock, r, &e);
    }
    fd_close(plan->shim_sock); /* the shim goes on while we clean up */
    fd_close(l.builder_sock);
    if (l.builder > 0)
        (void)waitpid(l.builder, NULL, 0);
    _exit(r < 0);
}
