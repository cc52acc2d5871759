/* The calls that are answered at once: Exec, Kill, State, Pids, Wait, ResizePty, CloseIO, Update, Stats. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "shim/cgroup/cgroup.h"
#include "shim/launcher/view.h"
#include "shim/oci/spec.h"
#include "shim/runtime/internal.h"
#include "shim/runtime/state.h"

int runtime_exec(struct runtime *rt, const struct rt_exec *req, struct err *e)
{
    struct process *init = process_for(rt, req->id, NULL, OP_EXEC, e);

    if (!init)
        return e->code;
    if (init->reaped || init->deleting)
        return err_set(e, -EBADFD, "cannot exec in a stopped state");
    if (!state_name_is_valid(req->exec_id))
        return err_set(e, -EINVAL, "exec_id: \"%.80s\" is not a valid name",
                       req->exec_id ? req->exec_id : "");
    if (strcmp(req->exec_id, req->id) == 0 || process_find(rt, req->id, req->exec_id, NULL))
        return err_set(e, -EEXIST, "exec %s: already exists", req->exec_id);
    int r = stdio_check(req->uri, e);
    if (r < 0)
        return r;
    struct spec_process *spec = NULL;
    r = spec_process_parse(req->spec_json, req->spec_len, &spec, e);
    if (r < 0)
        return err_wrap(e, op_code(r), "spec of the exec process");

    struct process *p = xcalloc(1, sizeof *p);
    process_init(p, init->c, req->exec_id);
    p->state = PS_CREATED;
    p->spec = spec;
    p->terminal = req->terminal;
    spec->terminal = req->terminal;
    p->io_uid = init->io_uid;
    p->io_gid = init->io_gid;
    for (int i = 0; i < 3; i++)
        p->uri[i] = xstrdup(req->uri[i]);
    list_append(&init->c->execs, &p->node);
    tell(p, RT_EXEC_ADDED);
    return 0;
}

/*
 * A container that waits for Start has our code as its pid 1, which the kernel protects from every
 * signal it has no handler for; whoever ends it means the container.
 */
static bool ends_a_created(int signal)
{
    static const int fatal[] = {SIGKILL, SIGTERM, SIGINT, SIGQUIT, SIGHUP};

    for (size_t i = 0; i < ARRAY_LEN(fatal); i++)
        if (fatal[i] == signal)
            return true;
    return false;
}

static int send_signal(struct process *p, int signal, struct err *e)
{
    if (p->reaped)
        return err_set(e, -ESRCH, "process already finished: not found");
    if (p->pidfd < 0) {
        p->pending_signal = signal; /* an exec on its way: it gets the signal before its first instruction */
        return 0;
    }
    if (syscall(SYS_pidfd_send_signal, p->pidfd, signal, NULL, 0) == 0)
        return 0;
    if (errno == ESRCH)
        return err_set(e, -ESRCH, "process already finished: not found");
    int r = errno == EINVAL ? -EINVAL : -EIO;
    return err_set(e, r, "signal %d to process %d: %s", signal, p->pid, strerror(errno));
}

int runtime_kill(struct runtime *rt, const char *id, const char *exec_id, int signal, bool all, struct err *e)
{
    struct process *p = process_for(rt, id, exec_id, OP_KILL, e);

    if (!p)
        return e->code;
    if (signal < 0 || signal > SIGRTMAX)
        return err_set(e, -EINVAL, "signal: %d is not a signal", signal);
    struct container *c = p->c;
    if (p->state == PS_CREATING) {
        create_abort(c, -ECANCELED, "killed before it was created");
        return 0;
    }
    if (!p->exec_id && p->state == PS_CREATED && ends_a_created(signal))
        signal = SIGKILL;
    int r = send_signal(p, signal, e);
    if (all && !p->exec_id && !c->init.exit_told && c->cg) {
        struct err kill_error = {0};
        int x = cgroup_kill(c->cg, signal, &kill_error);
        if (x < 0 && r == 0)
            return err_wrap(&kill_error, -EIO, "kill all"), err_set(e, -EIO, "%s", err_text(&kill_error));
        r = x < 0 ? r : 0;
    }
    if (signal == SIGKILL && r == 0 && !p->exec_id)
        pause_thaw(c);
    else if (signal == SIGKILL && r == 0)
        pause_let_die(c);
    return r;
}

static void on_wait_later(void *data)
{
    struct rt_waiter *w = data;
    struct answer a = w->answer;
    struct rt_reply reply = w->reply;

    list_remove(&w->node);
    free(w);
    answer_with(&a, 0, &reply, NULL);
}

int runtime_wait(struct runtime *rt, const char *id, const char *exec_id, rt_done_fn done, void *data,
                 struct rt_waiter **ret, struct err *e)
{
    struct process *p = process_for(rt, id, exec_id, OP_WAIT, e);

    if (!p)
        return e->code;
    struct rt_waiter *w = xcalloc(1, sizeof *w);
    *w = (struct rt_waiter){.answer = {.fn = done, .data = data}, .reply = p->exit};
    if (p->exit_told) { /* on no list: the process may be deleted before the answer goes out */
        list_init(&w->node);
        (void)loop_defer(rt->loop, on_wait_later, w, &w->later);
    } else {
        list_append(&p->waiters, &w->node);
    }
    *ret = w;
    return 0;
}

void runtime_wait_cancel(struct rt_waiter *w)
{
    list_remove(&w->node);
    source_free(w->later);
    free(w);
}

int runtime_state(struct runtime *rt, const char *id, const char *exec_id, struct rt_state *ret,
                  struct err *e)
{
    struct process *p = process_for(rt, id, exec_id, OP_STATE, e);

    if (!p)
        return e->code;
    *ret = (struct rt_state){.id = p->c->id,
                             .exec_id = p->exec_id,
                             .bundle = p->c->bundle,
                             .uri = {p->uri[0], p->uri[1], p->uri[2]},
                             .terminal = p->terminal,
                             .state = p->state,
                             .process = p->exit};
    if (!p->exit_told) { /* not before its event */
        ret->process.status = 0;
        ret->process.at = (struct timespec){0};
    }
    return 0;
}

static const char *exec_of(struct container *c, pid_t pid)
{
    LIST_FOREACH(n, &c->execs)
    {
        struct process *p = LIST_ENTRY(n, struct process, node);
        if (p->pid == pid && !p->reaped)
            return p->exec_id;
    }
    return NULL;
}

int runtime_pids(struct runtime *rt, const char *id, struct rt_pid **ret, size_t *ret_n, struct err *e)
{
    struct process *p = process_for(rt, id, NULL, OP_PIDS, e);
    scoped_free pid_t *pids = NULL;
    size_t n = 0;

    if (!p)
        return e->code;
    int r = cgroup_pids(p->c->cg, &pids, &n, e);
    if (r < 0)
        return fail(e, r, "processes of the container");
    struct rt_pid *out = xcalloc(n + 1, sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = (struct rt_pid){.pid = pids[i], .exec_id = exec_of(p->c, pids[i])};
    if (n == 0 && !p->reaped) /* containerd takes an empty list for a leaked shim */
        out[n++] = (struct rt_pid){.pid = p->pid};
    *ret = out;
    *ret_n = n;
    return 0;
}

int runtime_resize(struct runtime *rt, const char *id, const char *exec_id, unsigned width, unsigned height,
                   struct err *e)
{
    struct process *p = process_for(rt, id, exec_id, OP_RESIZE, e);

    if (!p)
        return e->code;
    p->has_size = true;
    p->width = width;
    p->height = height;
    int r = p->io ? stdio_resize(p->io, width, height, e) : 0;
    return r < 0 ? fail(e, r, "ResizePty") : 0;
}

int runtime_close_stdin(struct runtime *rt, const char *id, const char *exec_id, struct err *e)
{
    struct process *p = process_for(rt, id, exec_id, OP_CLOSE_IO, e);

    if (!p)
        return e->code;
    p->close_stdin = true;
    if (p->io)
        stdio_close_stdin(p->io);
    return 0;
}

int runtime_update(struct runtime *rt, const char *id, const char *json, size_t len, struct err *e)
{
    struct process *p = process_for(rt, id, NULL, OP_UPDATE, e);
    struct spec_resources *res = NULL;

    if (!p)
        return e->code;
    int r = spec_resources_parse(json, len, &res, e);
    if (r < 0)
        return err_wrap(e, op_code(r), "resources");
    r = cgroup_update(p->c->cg, res, e);
    spec_resources_free(res);
    if (r < 0)
        return fail(e, r, "Update");
    struct container *c = p->c;
    struct err view_error = {0};
    if (c->proc_view_fd >= 0 && launch_view_update(c->proc_view_fd, cgroup_cpu_limit_milli(c->cg),
                                                   cgroup_memory_limit(c->cg), &view_error) < 0)
        log_warn("the container's view of its limits is old", "id=%s error=%s", id, err_text(&view_error));
    pod_view_update(rt);
    return 0;
}

int runtime_stats(struct runtime *rt, const char *id, struct cgroup_stats *out, struct err *e)
{
    struct process *p = process_for(rt, id, NULL, OP_STATS, e);

    if (!p)
        return e->code;
    int r = cgroup_stats_read(p->c->cg, out, e);
    return r < 0 ? fail(e, r, "Stats") : 0;
}
