/*
 * Pause of one container or of the whole pod.
 *
 *   1. The sentry is made quiet first: it answers what is in flight and takes no more, so that no
 *      emulated call is performed and then interrupted by the freezer (it would happen twice).
 *   2. Then the container's cgroup is asked to freeze.  A process that waits for the sentry to take its
 *      call is in an interruptible sleep: it is frozen there, and the kernel restarts the call after the
 * thaw.
 *   3. Calls of it that the sentry has taken and that block (a connect) are given back for a restart, which
 *      the freezer's signal makes invisible; those of containers that run on are left alone.
 *   4. When nothing is PAUSING any more the sentry serves again, unless no container of the pod could call
 *      it: while all are paused it stays quiet, and the first resume, create or start wakes it.
 *
 * Several pauses at a time share one quiet period.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/map.h"
#include "shim/cgroup/cgroup.h"
#include "shim/launcher/pod.h"
#include "shim/runtime/internal.h"
#include "shim/runtime/probes.h"
#include "shim/sentry/sentry.h"

#define QUIET_MS       3000 /* for the sentry to become quiet */
#define FREEZE_MS      5000 /* for the kernel to freeze; a v1 freezer is asked again meanwhile */
#define FREEZE_TICK_MS 1
#define LET_DIE_MS     20

static void freeze_begin(struct container *c);
static void pod_resume_check(struct runtime *rt);

static void pod_answer_check(struct runtime *rt)
{
    size_t at = 0;
    void *value;

    if (!rt->pod_answer.fn)
        return;
    while (map_next(rt->containers, &at, NULL, &value))
        if (((struct container *)value)->init.state == PS_PAUSING)
            return;
    struct err e = rt->pod_error;
    const struct rt_reply none = {0};
    rt->pod_error.code = 0;
    answer_with(&rt->pod_answer, e.code, &none, &e);
}

/* The end of PAUSING, well or not. */
static void pausing_over(struct container *c, int r, const struct err *e)
{
    const struct rt_reply none = {0};

    c->freezing = c->stop_asked = false;
    source_free(take(c->freeze_timer));
    if (r < 0 && c->pod_pause)
        c->rt->pod_error = *e;
    c->pod_pause = false;
    answer_with(&c->pause_answer, r, &none, e);
    quiet_update(c->rt);
    pod_answer_check(c->rt);
}

static void pausing_failed(struct container *c, int r, const char *why)
{
    struct err e = {0};

    (void)cgroup_freeze(c->cg, false, NULL);
    process_step(&c->init, EV_THAWED);
    err_set(&e, r, "cannot pause: %s", why);
    log_warn("pause failed", "id=%s error=%s", c->id, why);
    pausing_over(c, r, &e);
}

void pause_abandon(struct container *c, const char *why)
{
    if (c->init.state == PS_PAUSING)
        pausing_failed(c, -EIO, why);
}

void pause_thaw(struct container *c)
{
    if (c->init.state == PS_PAUSING) {
        pause_abandon(c, "the container was killed");
    } else if (c->init.state == PS_PAUSED) {
        int r;
        source_free(take(c->refreeze_timer));
        (void)sleep_wake(c, &r, NULL); /* who dies may still touch its memory */
        (void)cgroup_freeze(c->cg, false, NULL);
        process_step(&c->init, EV_THAWED);
        quiet_update(c->rt);
    }
}

static void on_refreeze(void *data)
{
    struct container *c = data;

    source_free(take(c->refreeze_timer));
    if (c->init.state == PS_PAUSED)
        (void)cgroup_freeze(c->cg, true, NULL);
}

/*
 * v2 kills a frozen process; v1 does not until it is thawed.  So that a killed exec of a paused
 * container dies now and not at Resume, the container runs for a moment, with a sentry that stays quiet.
 */
void pause_let_die(struct container *c)
{
    if (c->init.state != PS_PAUSED || cgroup_host_mode() != CGROUP_V1 || c->refreeze_timer ||
        (c->sleep && !c->lazy))
        return;
    (void)cgroup_freeze(c->cg, false, NULL);
    (void)loop_add_timer(c->rt->loop, LET_DIE_MS, on_refreeze, c, &c->refreeze_timer);
}

static void each_pausing(struct runtime *rt, void (*fn)(struct container *c))
{
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value)) {
        struct container *c = value;
        if (c->init.state == PS_PAUSING && !c->freezing)
            fn(c);
    }
}

/* May any container of the pod call the sentry, or will it? */
static bool someone_runs(struct runtime *rt)
{
    static const bool runs[PS_STATES] = {
        [PS_CREATING] = true, [PS_CREATED] = true, [PS_STARTING] = true, [PS_RUNNING] = true};
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value))
        if (runs[((struct container *)value)->init.state])
            return true;
    return false;
}

static bool someone_pauses(struct runtime *rt)
{
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value))
        if (((struct container *)value)->init.state == PS_PAUSING)
            return true;
    return false;
}

/* Only after the stop was asked for: a call given back to a thread that goes on would end with an odd error.
 */
void pause_release_parked(struct container *c)
{
    struct err e = {0};

    c->stop_asked = true;
    if (c->rt->sentry && !c->rt->broken && sentry_release_container(c->rt->sentry, c->id, &e) < 0)
        log_debug("parked calls are not given back", "id=%s error=%s", c->id, err_text(&e));
}

static void freeze_all(struct runtime *rt)
{
    each_pausing(rt, freeze_begin);
}

static void on_quiet(void *data)
{
    struct runtime *rt = data;

    if (rt->quiet != QUIET_COMING)
        return;
    rt->quiet = QUIET_YES;
    source_free(take(rt->quiet_timer));
    freeze_all(rt);
    quiet_update(rt); /* all of them may have been abandoned meanwhile */
}

static void not_quiet(struct container *c)
{
    pausing_failed(c, -ETIMEDOUT, "the sentry did not become quiet");
}

static void on_quiet_timeout(void *data)
{
    struct runtime *rt = data;

    source_free(take(rt->quiet_timer));
    log_error("the sentry did not become quiet in time", "pod=%s", rt->pod_id);
    each_pausing(rt, not_quiet); /* the last one makes it serve again */
}

static int make_quiet(struct runtime *rt, struct err *e)
{
    if (rt->quiet == QUIET_YES) {
        freeze_all(rt);
        return 0;
    }
    if (rt->quiet == QUIET_COMING)
        return 0;
    rt->quiet = QUIET_COMING;
    (void)loop_add_timer(rt->loop, QUIET_MS, on_quiet_timeout, rt, &rt->quiet_timer);
    int r = sentry_quiesce(rt->sentry, on_quiet, rt, e);
    if (r < 0) {
        rt->quiet = QUIET_NO;
        source_free(take(rt->quiet_timer));
    }
    return r;
}

static bool someone_is_paused(struct runtime *rt)
{
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value))
        if (((struct container *)value)->init.state == PS_PAUSED)
            return true;
    return false;
}

/* A pod of which anything runs answers for itself. */
static void probes_update(struct runtime *rt)
{
    bool want = someone_is_paused(rt) && !someone_pauses(rt) && !someone_runs(rt) && rt->pod;
    struct err e = {0};

    if (!want)
        probes_free(take(rt->probes));
    else if (!rt->probes && probes_new(rt->loop, rt->pod->cni_net_ns, &rt->probes, &e) < 0)
        log_warn("probes by network are not answered while the pod is paused", "pod=%s why=%s", rt->pod_id,
                 err_text(&e));
}

void quiet_update(struct runtime *rt)
{
    struct err e = {0};

    probes_update(rt);
    if (rt->quiet == QUIET_NO || someone_pauses(rt) || (rt->quiet == QUIET_YES && !someone_runs(rt)))
        return;
    rt->quiet = QUIET_NO;
    source_free(take(rt->quiet_timer));
    if (rt->sentry && !rt->broken && sentry_unquiesce(rt->sentry, &e) < 0)
        log_error("the sentry does not serve again", "pod=%s error=%s", rt->pod_id, err_text(&e));
}

void pause_frozen(struct container *c)
{
    process_step(&c->init, EV_FROZEN);
    c->paused_at = clock_wall();
    tell(&c->init, RT_PAUSED);
    log_info("container paused", "id=%s", c->id);
    pausing_over(c, 0, NULL);
}

static void on_freeze_tick(void *data)
{
    struct container *c = data;
    struct err e = {0};

    source_free(take(c->freeze_timer));
    int r = cgroup_frozen(c->cg, &e);
    if (r > 0) {
        pause_frozen(c);
        return;
    }
    if (r < 0) {
        pausing_failed(c, -EIO, err_text(&e));
        return;
    }
    if (clock_mono_ms() >= c->freeze_deadline_ms) {
        pausing_failed(c, -ETIMEDOUT, "its processes did not freeze in time");
        return;
    }
    (void)cgroup_freeze(c->cg, true, NULL); /* v1 may stay FREEZING until it is asked again */
    (void)loop_add_timer(c->rt->loop, FREEZE_TICK_MS, on_freeze_tick, c, &c->freeze_timer);
}

void pause_plain(struct container *c)
{
    struct err e = {0};
    int r = cgroup_freeze(c->cg, true, &e);

    if (r < 0) {
        pausing_failed(c, -EIO, err_text(&e));
        return;
    }
    pause_release_parked(c);
    c->freeze_deadline_ms = clock_mono_ms() + FREEZE_MS;
    (void)loop_add_timer(c->rt->loop, 0, on_freeze_tick, c, &c->freeze_timer);
}

static void freeze_begin(struct container *c)
{
    c->freezing = true;
    if (!sleep_begin(c))
        pause_plain(c);
}

static int pause_allowed(struct process *p, struct err *e)
{
    struct runtime *rt = p->c->rt;

    if (rt->broken || !rt->sentry)
        return err_set(e, -EIO, "%s", rt->broken ? rt->broken : "the pod has no sentry");
    if (p->reaped)
        return err_set(e, -EBADFD, "cannot pause a stopped container");
    return 0;
}

void runtime_pause(struct runtime *rt, const char *id, rt_done_fn done, void *data)
{
    struct err e = {0};
    struct answer a = {.fn = done, .data = data};
    struct process *p = process_for(rt, id, NULL, OP_PAUSE, &e);

    if (!p || pause_allowed(p, &e) < 0) {
        answer_with(&a, e.code, NULL, &e);
        return;
    }
    p->c->pause_answer = a;
    process_step(p, EV_PAUSE);
    if (make_quiet(rt, &e) < 0)
        pausing_failed(p->c, -EIO, err_text(&e));
}

static void resumed(struct container *c, int r, const struct err *e)
{
    const struct rt_reply none = {0};

    answer_with(&c->resume_answer, r, &none, e);
    pod_resume_check(c->rt);
}

/* Thaws; the answer to Resume follows. */
void pause_wake(struct container *c)
{
    struct err e = {0};

    if (c->init.state != PS_PAUSED) { /* killed or given up meanwhile; v1 needs the thaw all the same */
        (void)cgroup_freeze(c->cg, false, NULL);
        resumed(c, c->resume_answer.fn ? fail(&e, -EIO, "cannot resume: the container was killed") : 0, &e);
        return;
    }
    int r = cgroup_freeze(c->cg, false, &e);
    if (r < 0) {
        resumed(c, fail(&e, r, "cannot resume"), &e);
        return;
    }
    process_step(&c->init, EV_THAWED);
    c->paused_at = (struct timespec){0};
    tell(&c->init, RT_RESUMED);
    log_info("container resumed", "id=%s", c->id);
    quiet_update(c->rt);
    resumed(c, 0, NULL);
}

static void resume(struct container *c)
{
    struct err e = {0};
    int r = 0;

    source_free(take(c->refreeze_timer));
    if (!sleep_wake(c, &r, &e))
        pause_wake(c);
    else if (r < 0)
        sleep_broken(c, &e);
}

void runtime_resume(struct runtime *rt, const char *id, rt_done_fn done, void *data)
{
    struct err e = {0};
    struct answer a = {.fn = done, .data = data};
    struct process *p = process_for(rt, id, NULL, OP_RESUME, &e);

    if (p && p->c->resume_answer.fn)
        err_set(&e, -EBUSY, "the container is being resumed already: failed precondition");
    if (e.code) {
        answer_with(&a, e.code, NULL, &e);
        return;
    }
    p->c->resume_answer = a;
    resume(p->c);
}

void runtime_pause_pod(struct runtime *rt, rt_done_fn done, void *data)
{
    struct err e = {0};
    struct answer a = {.fn = done, .data = data};
    size_t at = 0;
    void *value;

    if (rt->pod_answer.fn)
        err_set(&e, -EBUSY, "the pod is being paused already: failed precondition");
    else if (rt->broken || !rt->sentry)
        err_set(&e, -EBUSY, "%s",
                rt->broken ? rt->broken : "the pod has no running container: failed precondition");
    if (e.code) {
        answer_with(&a, e.code, NULL, &e);
        return;
    }
    rt->pod_error.code = 0;
    rt->pod_answer = a;
    while (map_next(rt->containers, &at, NULL, &value)) {
        struct container *c = value;
        if (c->init.state != PS_RUNNING || c->init.reaped)
            continue;
        c->pod_pause = true;
        process_step(&c->init, EV_PAUSE);
    }
    if (someone_pauses(rt) && make_quiet(rt, &e) < 0) {
        rt->pod_error = e;
        at = 0;
        while (map_next(rt->containers, &at, NULL, &value))
            pause_abandon(value, err_text(&e));
    }
    pod_answer_check(rt);
}

static void on_pod_member(void *data, int r, const struct rt_reply *reply UNUSED, const struct err *e)
{
    struct runtime *rt = data;

    if (r < 0)
        rt->pod_error = *e;
}

/* Resume of the whole pod is answered when the last container has been. */
static void pod_resume_check(struct runtime *rt)
{
    const struct rt_reply none = {0};
    size_t at = 0;
    void *value;

    if (!rt->pod_resume.fn || rt->pod_resuming)
        return;
    while (map_next(rt->containers, &at, NULL, &value))
        if (((struct container *)value)->resume_answer.fn)
            return;
    struct err e = rt->pod_error;
    rt->pod_error.code = 0;
    answer_with(&rt->pod_resume, e.code, &none, &e);
}

void runtime_resume_pod(struct runtime *rt, rt_done_fn done, void *data)
{
    struct err e = {0};
    struct answer a = {.fn = done, .data = data};
    size_t at = 0;
    void *value;

    if (rt->pod_resume.fn) {
        err_set(&e, -EBUSY, "the pod is being resumed already: failed precondition");
        answer_with(&a, e.code, NULL, &e);
        return;
    }
    rt->pod_resume = a;
    rt->pod_resuming = true;
    while (map_next(rt->containers, &at, NULL, &value)) {
        struct container *c = value;
        pause_abandon(c, "the pod is resumed");
        if (c->init.state != PS_PAUSED || c->resume_answer.fn)
            continue;
        c->resume_answer = (struct answer){.fn = on_pod_member, .data = rt};
        resume(c);
    }
    rt->pod_resuming = false;
    pod_resume_check(rt);
}
