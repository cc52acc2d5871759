/* Delete: bounded drain, poststop hooks, answer; what is still busy then is removed from a timer. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "shim/cgroup/cgroup.h"
#include "shim/oci/spec.h"
#include "shim/runtime/internal.h"

#define LAYERS_MAX 64

static void exec_deleted(struct process *p)
{
    struct answer a = p->answer;
    struct rt_reply exit = p->exit;

    p->answer.fn = NULL;
    process_done(p);
    free(p);
    answer_with(&a, 0, &exit, NULL);
}

/* A snapshot that is mounted on the host's side of the bundle; lazily, since a slow umount must not delay the
 * answer. */
static void unmount_rootfs(const char *bundle)
{
    scoped_free char *path = xasprintf("%s/rootfs", bundle);

    for (int i = 0; i < LAYERS_MAX && umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0; i++)
        ;
}

static void container_deleted(struct container *c)
{
    struct answer a = c->init.answer;
    struct rt_reply exit = c->init.exit;

    c->init.answer.fn = NULL;
    unmount_rootfs(c->bundle);
    tell(&c->init, RT_DELETED);
    log_info("container deleted", "id=%s status=%u", c->id, exit.status);
    container_drop(c);
    answer_with(&a, 0, &exit, NULL);
}

static void on_poststop(void *data, int r, struct launch_result *result UNUSED, const struct err *e)
{
    struct process *p = data;

    pending_remove(&p->pending);
    if (r < 0)
        log_warn("a poststop hook failed", "id=%s error=%s", p->c->id, err_text(e));
    container_deleted(p->c);
}

static void on_drained(void *data)
{
    struct process *p = data;
    struct container *c = p->c;
    struct err e = {0};

    stdio_free(take(p->io));
    if (p->exec_id) {
        exec_deleted(p);
        return;
    }
    if (c->spec->hooks[HOOK_POSTSTOP].n == 0) {
        container_deleted(c);
        return;
    }
    int r = launch_hooks(c->rt->loop, c->spec, HOOK_POSTSTOP, c->id, c->bundle, p->pid, "stopped",
                         on_poststop, p, &p->pending.launch, &e);
    if (r < 0)
        on_poststop(p, r, NULL, &e);
    else
        pending_add(c->rt, &p->pending);
}

void delete_stopped(struct process *p)
{
    p->deleting = false;
    process_step(p, EV_DELETE);
    if (p->io && !stdio_is_drained(p->io))
        stdio_drain(p->io, on_drained, p);
    else
        on_drained(p);
}

static void delete_created(struct process *p)
{
    if (p->exec_id) { /* there never was a process */
        process_step(p, EV_DELETE);
        exec_deleted(p);
        return;
    }
    p->deleting = true;
    process_signal(p, SIGKILL);
    if (p->c->cg)
        (void)cgroup_kill(p->c->cg, SIGKILL, NULL);
    exit_check(p->c); /* it may be reaped and held back */
}

void runtime_delete(struct runtime *rt, const char *id, const char *exec_id, rt_done_fn done, void *data)
{
    struct err e = {0};
    struct answer a = {.fn = done, .data = data};
    struct process *p = process_for(rt, id, exec_id, OP_DELETE, &e);

    if (p && p->deleting) {
        err_set(&e, -ENOENT, "process does not exist: not found");
        p = NULL;
    }
    if (p && p->state == PS_CREATING) {
        create_abort(p->c, -ECANCELED, "deleted before it was created");
        err_set(&e, -ENOENT, "container not created: not found");
        p = NULL;
    }
    if (!p) {
        answer_with(&a, e.code, NULL, &e);
        return;
    }
    p->answer = a;
    if (p->state == PS_CREATED)
        delete_created(p);
    else
        delete_stopped(p);
}
