/*
 * cgroups that cannot be removed yet: the kernel lets go of a cgroup a moment after its last process
 * was reaped, and a process in uninterruptible sleep may take long.  Nobody waits for this.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "shim/cgroup/cgroup.h"
#include "shim/runtime/internal.h"
#include "shim/runtime/state.h"

#define TRASH_TICK_MS 10
#define TRASH_TRIES   3000 /* half a minute */

struct trash {
    struct list node;
    struct cgroup *cg;
    char *id; /* its state directory goes with it; NULL = none */
    int tries;
};

static void trash_drop(struct trash *t)
{
    list_remove(&t->node);
    cgroup_free(t->cg);
    free(t->id);
    free(t);
}

/* true: done with it. */
static bool try_remove(struct runtime *rt, struct trash *t)
{
    struct err e = {0};

    if (!cgroup_is_empty(t->cg))
        (void)cgroup_kill(t->cg, SIGKILL, NULL);
    int r = cgroup_remove(t->cg, &e);
    if (r < 0 && ++t->tries < TRASH_TRIES)
        return false;
    if (r < 0)
        log_error("a cgroup cannot be removed", "id=%s error=%s", t->id ? t->id : "", err_text(&e));
    if (r == 0 && t->id)
        state_remove(rt->state_dir, rt->ns, t->id);
    return true;
}

static void on_tick(void *data)
{
    struct runtime *rt = data;

    LIST_FOREACH(n, &rt->trash)
    {
        struct trash *t = LIST_ENTRY(n, struct trash, node);
        if (try_remove(rt, t))
            trash_drop(t);
    }
    if (!list_is_empty(&rt->trash))
        source_arm(rt->trash_timer, TRASH_TICK_MS);
}

void trash_add(struct runtime *rt, struct cgroup *cg, const char *id)
{
    struct trash *t = xcalloc(1, sizeof *t);

    *t = (struct trash){.cg = cg, .id = xstrdup(id)};
    list_append(&rt->trash, &t->node);
    if (try_remove(rt, t)) {
        trash_drop(t);
        return;
    }
    if (!rt->trash_timer)
        (void)loop_add_timer(rt->loop, TRASH_TICK_MS, on_tick, rt, &rt->trash_timer);
    else
        source_arm(rt->trash_timer, TRASH_TICK_MS);
}

void trash_forget(struct runtime *rt, const char *id)
{
    LIST_FOREACH(n, &rt->trash)
    {
        struct trash *t = LIST_ENTRY(n, struct trash, node);
        if (t->id && strcmp(t->id, id) == 0) {
            (void)try_remove(rt, t);
            trash_drop(t);
        }
    }
}

void trash_free(struct runtime *rt)
{
    LIST_FOREACH(n, &rt->trash)
    trash_drop(LIST_ENTRY(n, struct trash, node));
    source_free(take(rt->trash_timer));
}
