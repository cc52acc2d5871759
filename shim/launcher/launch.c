#include "shim/launcher/launch.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/scoped.h"
#include "shim/launcher/hooks.h"
#include "shim/launcher/launcher.h"
#include "shim/launcher/plan.h"
#include "shim/launcher/proto.h"
#include "shim/launcher/sys.h"

#define STRAY_MAX 16

/*
 * The shim's side.  One object for each child that is to answer: a launch (launcher), a release (the
 * init's socket, no child) or hooks.  It ends with done() or with launch_cancel().
 */
enum job { JOB_LAUNCH, JOB_RELEASE, JOB_HOOKS };

struct launch {
    enum job job;
    int sock;
    struct source *source;
    pid_t child; /* launcher or hook runner, 0 = none or reaped */
    int child_pidfd;
    pid_t init; /* JOB_LAUNCH, once born */
    int init_pidfd;
    pid_t stray[STRAY_MAX]; /* exits seen that nobody knew: one of them may be the init's */
    size_t n_stray;
    char *id;
    struct trace *trace;
    launch_done_fn done;
    void *data;
};

static struct launch *launch_alloc(enum job job, int sock, launch_done_fn done, void *data)
{
    struct launch *l = xcalloc(1, sizeof *l);

    l->job = job;
    l->sock = sock;
    l->child_pidfd = l->init_pidfd = -1;
    l->done = done;
    l->data = data;
    return l;
}

static void launch_free(struct launch *l)
{
    source_free(l->source);
    fd_close(l->sock);
    fd_close(l->child_pidfd);
    fd_close(l->init_pidfd);
    trace_free(l->trace);
    free(l->id);
    free(l);
}

static void kill_by(int pidfd)
{
    if (pidfd >= 0)
        (void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
}

/* Ends the object before the callback, which may start the next launch. */
static void finish(struct launch *l, int r, struct launch_result *result, const struct err *e)
{
    launch_done_fn done = l->done;
    void *data = l->data;
    struct err said = {0};

    trace_step(l->trace, 'S', r < 0 ? "failed" : "done");
    trace_log(l->trace, l->id);
    if (r < 0)
        (void)err_set(&said, r, "glovebox: %s", err_text(e));
    launch_free(l);
    done(data, r, result, r < 0 ? &said : NULL);
}

/* ---- launch ------------------------------------------------------------------------------------- */

static bool was_reaped(const struct launch *l, pid_t pid)
{
    for (size_t i = 0; i < l->n_stray; i++)
        if (l->stray[i] == pid)
            return true;
    return false;
}

static void take_birth(struct launch *l, const struct msg *m, int fds[MSG_FDS_MAX])
{
    l->init = (pid_t)m->value;
    l->init_pidfd = take_fd(fds[0]);
    fd_close_all(fds, MSG_FDS_MAX);
}

static void take_result(struct launch *l, const struct msg *m, int fds[MSG_FDS_MAX])
{
    struct err e = {0};
    struct launch_result result = {.pid = (pid_t)m->value,
                                   .pidfd = fds[0],
                                   .sync_fd = fds[1],
                                   .listener_fd = fds[2],
                                   .console_fd = -1,
                                   .proc_view_fd = -1};
    size_t n = 3;

    if (m->have & HAVE_CONSOLE)
        result.console_fd = fds[n++];
    if (m->have & HAVE_VIEW)
        result.proc_view_fd = fds[n++];
    if (was_reaped(l, result.pid)) {
        fd_close_all(fds, MSG_FDS_MAX);
        (void)err_set(&e, -ESRCH, "the process was killed before it could start");
        finish(l, -ESRCH, NULL, &e);
        return;
    }
    finish(l, 0, &result, NULL);
}

static void on_launcher(void *data, uint32_t events UNUSED)
{
    struct launch *l = data;
    struct msg m;
    int fds[MSG_FDS_MAX];
    struct err e = {0};

    int r = msg_recv(l->sock, 0, &m, fds, &e);
    if (r < 0) {
        kill_by(l->init_pidfd);
        kill_by(l->child_pidfd);
        finish(l, r, NULL, &e);
    } else if (m.kind == MSG_BORN) {
        take_birth(l, &m, fds);
    } else {
        take_result(l, &m, fds);
    }
}

int launch_start(struct loop *loop, const struct launch_params *params, launch_done_fn done, void *data,
                 struct launch **ret, struct err *e)
{
    int pair[2];

    int r = plan_check(params, e);
    if (r == 0)
        r = msg_pair(pair, e);
    if (r < 0)
        return err_wrap(e, r, "glovebox");

    struct launch *l = launch_alloc(JOB_LAUNCH, pair[0], done, data);
    l->id = xstrdup(params->id);
    l->trace = params->debug ? trace_new() : NULL;
    l->child = sys_fork(0, SIGCHLD, -1, &l->child_pidfd);
    if (l->child == 0) {
        struct plan *plan = xcalloc(1, sizeof *plan);
        plan->p = *params;
        plan->trace = l->trace;
        plan->shim_sock = pair[1];
        launcher_main(plan);
    }
    fd_close(pair[1]);
    r = l->child < 0 ? l->child : loop_add_fd(loop, l->sock, EPOLLIN, on_launcher, l, &l->source);
    if (r < 0) {
        kill_by(l->child_pidfd);
        launch_free(l);
        return err_set(e, r, "glovebox: start a launcher: %s", strerror(-r));
    }
    trace_step(l->trace, 'S', "launcher started");
    *ret = l;
    return 0;
}

void launch_cancel(struct launch *l)
{
    if (!l)
        return;
    kill_by(l->child_pidfd);
    kill_by(l->init_pidfd);
    launch_free(l);
}

bool launch_reaped(struct launch *l, pid_t pid, int status UNUSED)
{
    if (pid == l->child) {
        l->child = 0; /* its message, or the end of its socket, is still to be read */
        return true;
    }
    if (l->job == JOB_LAUNCH && l->n_stray < STRAY_MAX)
        l->stray[l->n_stray++] = pid;
    return false;
}

/* ---- release ------------------------------------------------------------------------------------ */

static void on_init(void *data, uint32_t events UNUSED)
{
    struct launch *l = data;
    struct msg m;
    int fds[MSG_FDS_MAX];
    struct err e = {0};

    /* The socket is close-on-exec: its end means that the program runs (or was killed, which is an exit like
     * any other). */
    int r = msg_recv(l->sock, 0, &m, fds, &e);
    if (r == 0)
        fd_close_all(fds, MSG_FDS_MAX);
    finish(l, r == -EPIPE || r == -ECONNRESET ? 0 : r == 0 ? -EPROTO : r, NULL, &e);
}

int launch_release(struct loop *loop, int sync_fd, const struct spec_process *process UNUSED,
                   launch_done_fn done, void *data, struct launch **ret, struct err *e)
{
    struct launch *l = launch_alloc(JOB_RELEASE, sync_fd, done, data);
    struct msg m = {.kind = MSG_GO};

    int r = msg_send(sync_fd, &m, NULL, 0);
    if (r == -EPIPE || r == -ECONNRESET)
        r = 0; /* killed while it waited: on_init reports the end */
    if (r == 0)
        r = loop_add_fd(loop, sync_fd, EPOLLIN, on_init, l, &l->source);
    if (r < 0) {
        launch_free(l);
        return err_set(e, r, "glovebox: release the process: %s", strerror(-r));
    }
    *ret = l;
    return 0;
}

/* ---- hooks -------------------------------------------------------------------------------------- */

static void on_hooks(void *data, uint32_t events UNUSED)
{
    struct launch *l = data;
    struct msg m;
    int fds[MSG_FDS_MAX];
    struct err e = {0};

    int r = msg_recv(l->sock, 0, &m, fds, &e);
    finish(l, r, NULL, &e);
}

static NORETURN void hooks_main(int sock, const struct hook_state *state, enum spec_hook_kind kind)
{
    struct msg m = {.kind = MSG_DONE};
    struct err e = {0};

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sys_close_others(&sock, 1);
    (void)!chdir(state->bundle); /* it may be gone already; hooks get its name anyway */
    int r = hooks_run(state, kind, &e);
    if (r < 0)
        (void)msg_fail(sock, r, &e);
    else
        (void)msg_send(sock, &m, NULL, 0);
    _exit(r < 0);
}

int launch_hooks(struct loop *loop, const struct spec *spec, int kind, const char *id, const char *bundle,
                 pid_t pid, const char *status, launch_done_fn done, void *data, struct launch **ret,
                 struct err *e)
{
    int pair[2];

    assert(kind >= 0 && kind < HOOK_KINDS);
    int r = msg_pair(pair, e);
    if (r < 0)
        return r;
    struct launch *l = launch_alloc(JOB_HOOKS, pair[0], done, data);
    l->id = xstrdup(id);
    l->child = sys_fork(0, SIGCHLD, -1, &l->child_pidfd);
    if (l->child == 0)
        hooks_main(
            pair[1],
            &(struct hook_state){.spec = spec, .id = id, .bundle = bundle, .status = status, .pid = pid},
            (enum spec_hook_kind)kind);
    fd_close(pair[1]);
    r = l->child < 0 ? l->child : loop_add_fd(loop, l->sock, EPOLLIN, on_hooks, l, &l->source);
    if (r < 0) {
        kill_by(l->child_pidfd);
        launch_free(l);
        return err_set(e, r, "glovebox: start the hooks: %s", strerror(-r));
    }
    *ret = l;
    return 0;
}
