#include "shim/runtime/runtime.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/map.h"
#include "shim/cgroup/cgroup.h"
#include "shim/oci/spec.h"
#include "shim/runtime/internal.h"
#include "shim/runtime/state.h"
#include "shim/sentry/sentry.h"

static bool claim(void *data, pid_t pid, int raw)
{
    struct runtime *rt = data;

    if (rt->sentry && sentry_reaped(rt->sentry, pid, raw))
        return true;
    LIST_FOREACH(n, &rt->launches)
    if (launch_reaped(LIST_ENTRY(n, struct pending, node)->launch, pid, raw))
        return true;
    return sleep_reaped(rt, pid, raw);
}

static bool expect(void *data)
{
    struct runtime *rt = data;

    return !list_is_empty(&rt->launches);
}

int runtime_new(const struct rt_params *p, struct runtime **ret, struct err *e)
{
    scoped(runtime_free) struct runtime *rt = xcalloc(1, sizeof *rt);

    *rt = (struct runtime){.loop = p->loop,
                           .ns = xstrdup(p->ns),
                           .id = xstrdup(p->id),
                           .state_dir = xstrdup(p->state_dir),
                           .audit_dir = xstrdup(p->audit_dir),
                           .socket_path = xstrdup(p->socket_path),
                           .debug = p->debug,
                           .sink = p->sink,
                           .containers = map_new()};
    list_init(&rt->launches);
    list_init(&rt->trash);
    int r = reaper_new(p->loop, claim, expect, rt, &rt->reaper, e);
    if (r < 0)
        return r;
    *ret = take(rt);
    return 0;
}

void runtime_free(struct runtime *rt)
{
    if (!rt)
        return;
    rt->ending = true; /* the state of what was not deleted stays: `delete` is still to come for it */
    runtime_kill_all(rt);
    size_t at = 0;
    void *c;
    while (map_next(rt->containers, &at, NULL, &c))
        container_drop(c);
    pod_unneeded(rt);
    trash_free(rt);
    source_free(rt->quiet_timer);
    source_free(rt->broken_source);
    reaper_free(rt->reaper);
    free(rt->resolv_conf);
    map_free(rt->containers);
    char *all[] = {rt->ns,          rt->id,     rt->state_dir, rt->audit_dir,
                   rt->socket_path, rt->pod_id, rt->broken,    rt->sentry_cg_of};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
    free(rt);
}

void runtime_kill_all(struct runtime *rt)
{
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value)) {
        struct container *c = value;
        if (c->cg)
            (void)cgroup_kill(c->cg, SIGKILL, NULL);
        pause_thaw(c);
    }
}

struct container *container_find(const struct runtime *rt, const char *id)
{
    return map_get(rt->containers, id);
}

struct process *process_find(struct runtime *rt, const char *id, const char *exec_id, struct err *e)
{
    struct container *c = container_find(rt, id);

    if (!c) {
        err_set(e, -ENOENT, "container not created: not found");
        return NULL;
    }
    if (!exec_id || !*exec_id)
        return &c->init;
    LIST_FOREACH(n, &c->execs)
    {
        struct process *p = LIST_ENTRY(n, struct process, node);
        if (strcmp(p->exec_id, exec_id) == 0)
            return p;
    }
    err_set(e, -ENOENT, "process %s does not exist: not found", exec_id);
    return NULL;
}

struct process *process_for(struct runtime *rt, const char *id, const char *exec_id, enum proc_op op,
                            struct err *e)
{
    struct process *p = process_find(rt, id, exec_id, e);

    if (!p)
        return NULL;
    if (fsm_allows(p->state, p->exec_id != NULL, op, e) == 0)
        return p;
    /* Whoever asks why must not have to read the log. */
    if (rt->broken && (op == OP_START || op == OP_EXEC))
        err_wrap(e, e->code, "%s", rt->broken);
    return NULL;
}

void process_init(struct process *p, struct container *c, const char *exec_id)
{
    *p = (struct process){.c = c, .exec_id = xstrdup(exec_id), .pidfd = -1, .sync_fd = -1};
    list_init(&p->node);
    list_init(&p->waiters);
    list_init(&p->pending.node);
}

void process_done(struct process *p)
{
    struct err gone = {0};

    list_remove(&p->node);
    pending_cancel(&p->pending);
    reaper_watch_free(take(p->watch));
    stdio_free(take(p->io));
    err_set(&gone, -ENOENT, "process deleted: not found");
    answer_with(&p->answer, -ENOENT, NULL, &gone);
    answer_waiters(p, -ENOENT, &gone);
    fd_close(take_fd(p->pidfd));
    fd_close(take_fd(p->sync_fd));
    for (int i = 0; i < 3; i++)
        free(take(p->uri[i]));
    if (p->exec_id)
        spec_process_free(p->spec);
    p->spec = NULL;
    free(take(p->exec_id));
}

void process_step(struct process *p, enum proc_event event)
{
    enum proc_state to = fsm_next(p->state, event);

    assert(to != PS_NONE);
    log_debug("process changes state", "id=%s exec=%s pid=%d from=%s to=%s", p->c->id,
              p->exec_id ? p->exec_id : "", p->pid, fsm_state_name(p->state), fsm_state_name(to));
    p->state = to;
}

void answer_with(struct answer *a, int r, const struct rt_reply *reply, const struct err *e)
{
    rt_done_fn fn = take(a->fn);

    if (fn)
        fn(a->data, r, reply, e);
}

int op_code(int r)
{
    static const int ours[] = {-EINVAL, -EPERM, -ENOTSUP, -ECANCELED, -ETIMEDOUT, -EEXIST, -EBADFD, -EBUSY};

    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (r == ours[i])
            return r;
    return -EIO;
}

int fail(struct err *e, int r, const char *what)
{
    return err_wrap(e, op_code(r), "%s", what);
}

void tell(struct process *p, enum rt_event event)
{
    const struct rt_event_info info = {.id = p->c->id, .exec_id = p->exec_id, .process = p->exit};

    p->c->rt->sink.publish(p->c->rt->sink.data, event, &info);
}

void pending_add(struct runtime *rt, struct pending *pending)
{
    assert(pending->launch);
    list_append(&rt->launches, &pending->node);
}

void pending_remove(struct pending *pending)
{
    list_remove(&pending->node);
    pending->launch = NULL;
}

void pending_cancel(struct pending *pending)
{
    struct launch *l = pending->launch;

    pending_remove(pending);
    if (l)
        launch_cancel(l);
}

void process_signal(struct process *p, int signal)
{
    if (p->pidfd >= 0 && !p->reaped)
        (void)syscall(SYS_pidfd_send_signal, p->pidfd, signal, NULL, 0);
}

pid_t runtime_init_pid(struct runtime *rt, const char *id)
{
    struct container *c = container_find(rt, id);

    return c && c->init.state != PS_CREATING ? c->init.pid : 0;
}

bool runtime_is_empty(const struct runtime *rt)
{
    return map_count(rt->containers) == 0;
}

bool runtime_is_leaving(const struct runtime *rt)
{
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value)) {
        const struct process *init = &((const struct container *)value)->init;
        if (init->state != PS_DELETING && !init->deleting)
            return false;
    }
    return true;
}

bool runtime_is_clean(const struct runtime *rt)
{
    return runtime_is_empty(rt) && list_is_empty(&rt->trash);
}

bool runtime_all_ended(const struct runtime *rt)
{
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value))
        if (!((struct container *)value)->init.exit_told)
            return false;
    return true;
}

const char *runtime_pod_id(const struct runtime *rt)
{
    return rt->pod_id;
}

pid_t runtime_sentry_pid(const struct runtime *rt)
{
    return rt->sentry && !rt->broken ? sentry_pid(rt->sentry) : 0;
}

size_t runtime_refused(const struct runtime *rt, struct sentry_count *out, size_t max)
{
    return rt->sentry ? sentry_refused(rt->sentry, out, max) : 0;
}

const char *runtime_broken(const struct runtime *rt)
{
    return rt->broken;
}

int runtime_pod_next(struct runtime *rt, size_t *cursor, struct rt_pod_item *ret)
{
    void *value;

    if (!map_next(rt->containers, cursor, NULL, &value))
        return 0;
    const struct container *c = value;
    *ret = (struct rt_pod_item){.id = c->id, .state = c->init.state, .pid = c->init.pid};
    if (c->init.state == PS_PAUSED)
        ret->paused_at = c->paused_at;
    return 1;
}

static void dump_process(const struct process *p)
{
    log_info("state of a process", "id=%s exec=%s pid=%d state=%s reaped=%d told=%d launching=%d", p->c->id,
             p->exec_id ? p->exec_id : "", p->pid, fsm_state_name(p->state), p->reaped, p->exit_told,
             p->pending.launch != NULL);
}

void runtime_dump(struct runtime *rt)
{
    size_t at = 0;
    void *value;

    log_info("state of the shim", "pod=%s containers=%zu exits_remembered=%zu broken=%s",
             rt->pod_id ? rt->pod_id : "", map_count(rt->containers), reaper_remembered(rt->reaper),
             rt->broken ? rt->broken : "");
    while (map_next(rt->containers, &at, NULL, &value)) {
        struct container *c = value;
        dump_process(&c->init);
        LIST_FOREACH(n, &c->execs)
        dump_process(LIST_ENTRY(n, struct process, node));
    }
}
