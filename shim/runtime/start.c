/* Start: an init is released, an exec is launched and released; the start event always comes before the exit
 * event. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "shim/oci/spec.h"
#include "shim/runtime/internal.h"

static void started(struct process *p)
{
    process_step(p, EV_STARTED);
    tell(p, p->exec_id ? RT_EXEC_STARTED : RT_STARTED);
    log_info("process started", "id=%s exec=%s pid=%d", p->c->id, p->exec_id ? p->exec_id : "", p->pid);
    answer_with(&p->answer, 0, &p->exit, NULL);
    exit_check(p->c); /* it may be over already */
}

/* What a shell would say; clients and kubelet show it. */
static unsigned failed_status(int code)
{
    return code == -ENOENT ? 127 : code == -EACCES ? 126 : 255;
}

void start_failed_end(struct process *p)
{
    struct err e = p->start_error;

    p->start_error.code = 0;
    p->exit.status = failed_status(e.code);
    if (!p->reaped)
        p->exit.at = clock_wall();
    p->reaped = p->exit_told = true; /* a start that failed has no start and no exit event */
    process_step(p, EV_START_FAILED);
    if (p->io)
        stdio_process_exited(p->io);
    answer_waiters(p, 0, NULL);
    answer_with(&p->answer, op_code(e.code), NULL, &e);
    exit_check(p->c); /* an init's exit may have waited for this exec */
}

/*
 * The caller is told when the process is really gone, so that its Delete works at once.  A process
 * that never was is gone already.
 */
void start_failed(struct process *p, int r, const char *why)
{
    pending_cancel(&p->pending);
    err_set(&p->start_error, r, "%s%s", p->exec_id ? "" : "OCI runtime start failed: ", why);
    log_warn("start failed", "id=%s exec=%s error=%s", p->c->id, p->exec_id ? p->exec_id : "", why);
    fd_close(take_fd(p->sync_fd));
    if (p->pid > 0 && !p->reaped)
        process_signal(p, SIGKILL);
    else
        start_failed_end(p);
}

static void on_poststart(void *data, int r, struct launch_result *result UNUSED, const struct err *e)
{
    struct process *p = data;

    pending_remove(&p->pending);
    if (r < 0)
        start_failed(p, r == -ENOENT || r == -EACCES ? -EIO : r, err_text(e));
    else
        started(p);
}

static void on_released(void *data, int r, struct launch_result *result UNUSED,
                        const struct err *launch_error)
{
    struct process *p = data;
    struct container *c = p->c;
    struct err e = {0};

    pending_remove(&p->pending);
    if (r < 0) {
        start_failed(p, r, err_text(launch_error));
        return;
    }
    if (p->exec_id || c->spec->hooks[HOOK_POSTSTART].n == 0) {
        started(p);
        return;
    }
    r = launch_hooks(c->rt->loop, c->spec, HOOK_POSTSTART, c->id, c->bundle, p->pid, "running", on_poststart,
                     p, &p->pending.launch, &e);
    if (r < 0)
        start_failed(p, -EIO, err_text(&e));
    else
        pending_add(c->rt, &p->pending);
}

static void release(struct process *p)
{
    struct err e = {0};
    int r =
        launch_release(p->c->rt->loop, take_fd(p->sync_fd), p->spec, on_released, p, &p->pending.launch, &e);

    if (r < 0)
        start_failed(p, r, err_text(&e));
    else
        pending_add(p->c->rt, &p->pending);
}

static void on_exec_launched(void *data, int r, struct launch_result *result, const struct err *launch_error)
{
    struct process *p = data;
    struct err e = {0};

    pending_remove(&p->pending);
    if (r < 0)
        e = *launch_error;
    else
        r = process_adopt(p, result, &e);
    if (r < 0)
        start_failed(p, r, err_text(&e));
    else
        release(p);
}

static void exec_launch(struct process *p)
{
    struct err e = {0};
    int r = process_launch(p, NULL, 0, on_exec_launched, &e);

    if (r < 0)
        start_failed(p, r, err_text(&e));
}

static void on_exec_stdio_ready(void *data, int r, const struct err *e)
{
    if (r < 0)
        start_failed(data, r, err_text(e));
    else
        exec_launch(data);
}

static void start_exec(struct process *p)
{
    struct err e = {0};
    int r = process_open_stdio(p, on_exec_stdio_ready, &e);

    if (r < 0)
        start_failed(p, r, err_text(&e));
    else if (r == 0)
        exec_launch(p);
}

static struct process *may_start(struct runtime *rt, const char *id, const char *exec_id, struct err *e)
{
    struct process *p = process_for(rt, id, exec_id, OP_START, e);

    if (!p)
        return NULL;
    if (rt->broken) {
        err_set(e, -EIO, "%s", rt->broken);
        return NULL;
    }
    if (p->exec_id && fsm_allows_exec_start(p->c->init.reaped ? PS_STOPPED : p->c->init.state, e) < 0)
        return NULL;
    if (p->deleting ||
        p->reaped) { /* killed before it was started, the exit is still on its way to the world */
        err_set(e, -EBADFD, "cannot start a stopped process");
        return NULL;
    }
    return p;
}

void runtime_start(struct runtime *rt, const char *id, const char *exec_id, rt_done_fn done, void *data)
{
    struct err e = {0};
    struct answer a = {.fn = done, .data = data};
    struct process *p = may_start(rt, id, exec_id, &e);

    if (!p) {
        answer_with(&a, e.code, NULL, &e);
        return;
    }
    p->answer = a;
    process_step(p, EV_START);
    quiet_update(rt);
    if (p->exec_id)
        start_exec(p);
    else
        release(p);
}
