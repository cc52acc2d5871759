/*
 * The end of processes.  Order told to the world: oom, exits of the execs, exit of the init; never an
 * exit before the process's own start.  Only the init's exit is ever held back, and not for ever.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "shim/cgroup/cgroup.h"
#include "shim/runtime/internal.h"

#define HOLD_MS    10000 /* an exec in uninterruptible sleep must not hide the container's end */
#define SWEEP_MS   5
#define SWEEPS_MAX 400

void answer_waiters(struct process *p, int r, const struct err *e)
{
    while (!list_is_empty(&p->waiters)) {
        struct rt_waiter *w = LIST_ENTRY(p->waiters.next, struct rt_waiter, node);
        struct answer a = w->answer;
        list_remove(&w->node);
        source_free(w->later);
        free(w);
        answer_with(&a, r, r == 0 ? &p->exit : NULL, e);
    }
}

static void exit_tell(struct process *p)
{
    struct container *c = p->c;
    struct err e = {0};

    p->exit_told = true;
    if (!p->exec_id)
        pause_abandon(c, "the container has ended");
    process_step(p, EV_REAPED);
    /* A killed shim's clean-up must report the same numbers. */
    if (!p->exec_id && container_note(c, &e) < 0)
        log_warn("cannot note the exit", "id=%s error=%s", c->id, err_text(&e));
    tell(p, RT_EXITED);
    log_info("process exited", "id=%s exec=%s pid=%d status=%u", c->id, p->exec_id ? p->exec_id : "", p->pid,
             p->exit.status);
    answer_waiters(p, 0, NULL);
    if (!p->exec_id)
        quiet_update(c->rt);
    if (p->deleting)
        delete_stopped(p);
}

static bool can_tell(const struct process *p)
{
    return p->reaped && !p->exit_told && fsm_next(p->state, EV_REAPED) != PS_NONE;
}

static bool execs_live(struct container *c)
{
    LIST_FOREACH(n, &c->execs)
    {
        const struct process *p = LIST_ENTRY(n, struct process, node);
        if (p->state == PS_STARTING || (p->state == PS_RUNNING && !p->exit_told))
            return true;
    }
    return false;
}

static void on_hold_over(void *data)
{
    struct container *c = data;

    log_warn("exec processes outlive their container's init", "id=%s", c->id);
    c->hold_over = true;
    exit_check(c);
}

void exit_check(struct container *c)
{
    if (c->exiting)
        return;
    LIST_FOREACH(n, &c->execs)
    {
        struct process *p = LIST_ENTRY(n, struct process, node);
        if (can_tell(p))
            exit_tell(p);
    }
    if (!can_tell(&c->init))
        return;
    if (execs_live(c) && !c->hold_over) {
        if (!c->hold_timer)
            (void)loop_add_timer(c->rt->loop, HOLD_MS, on_hold_over, c, &c->hold_timer);
        return;
    }
    source_free(take(c->hold_timer));
    oom_check(c);
    exit_tell(&c->init);
}

/*
 * Whoever is left in the cgroup after the init: with a private pid namespace the kernel has killed
 * them; with a shared one nobody has, and a fork may slip between reading the list and the signal.
 */
static void on_sweep(void *data)
{
    struct container *c = data;

    source_free(take(c->sweep_timer));
    if (!c->cg || cgroup_is_empty(c->cg))
        return;
    (void)cgroup_kill(c->cg, SIGKILL, NULL);
    if (++c->sweeps < SWEEPS_MAX)
        (void)loop_add_timer(c->rt->loop, SWEEP_MS, on_sweep, c, &c->sweep_timer);
    else
        log_warn("processes survive SIGKILL", "id=%s", c->id);
}

static void fail_execs_in_launch(struct container *c)
{
    LIST_FOREACH(n, &c->execs)
    {
        struct process *p = LIST_ENTRY(n, struct process, node);
        if (p->state == PS_STARTING && p->pid == 0 && !p->start_error.code)
            start_failed(p, -EBUSY, "cannot exec in a stopped container: failed precondition");
    }
}

void on_process_exit(void *data, const struct reaper_exit *ex)
{
    struct process *p = data;
    struct container *c = p->c;

    p->watch = NULL;
    p->reaped = true;
    p->exit.status = ex->status;
    p->exit.at = ex->at;
    if (p->io)
        stdio_process_exited(p->io);
    if (!p->exec_id) {
        c->exiting = true; /* the last exec that fails must not end, and free, the container under the loop */
        on_sweep(c);
        fail_execs_in_launch(c);
        c->exiting = false;
    }
    if (c->init.state == PS_CREATING && !p->exec_id) /* the answer of Create will find it reaped */
        return;
    if (p->start_error.code)
        start_failed_end(p);
    else
        exit_check(c);
}

void oom_check(struct container *c)
{
    uint64_t n = c->cg ? cgroup_oom_count(c->cg) : 0;

    if (n <= c->oom_told)
        return;
    c->oom_told = n;
    log_info("the kernel killed a process of the container for memory", "id=%s kills=%llu", c->id,
             (unsigned long long)n);
    tell(&c->init, RT_OOM);
}

static void on_oom(void *data, uint32_t events UNUSED)
{
    struct container *c = data;

    cgroup_oom_drain(c->cg);
    if (!c->init.exit_told) /* the descriptor also fires when the cgroup goes */
        oom_check(c);
}

void oom_arm(struct container *c)
{
    struct err e = {0};
    int fd = cgroup_oom_fd(c->cg, &e);

    c->oom_told = cgroup_oom_count(c->cg); /* a directory that was there already has its history */
    if (fd < 0) {
        log_warn("no notice of memory kills, they are seen at the end only", "id=%s error=%s", c->id,
                 err_text(&e));
        return;
    }
    int r = loop_add_fd(c->rt->loop, fd, EPOLLIN, on_oom, c, &c->oom_watch);
    if (r < 0)
        log_warn("cannot watch for memory kills", "id=%s", c->id);
}
