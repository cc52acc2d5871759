#include "shim/hibernate/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "shim/cgroup/cgroup.h"
#include "shim/hibernate/serve.h"
#include "shim/hibernate/stop.h"

#define STOP_DEADLINE_MS   2000
#define FREEZE_DEADLINE_MS 2000

struct pager {
    const struct hibernate_params *params;
    struct stop_set stopped;
    struct space_list spaces; /* one per address space, in the order of the processes that own them */
    struct image *img;
    int device; /* /dev/userfaultfd */
    bool eager; /* at least one space has no userfaultfd */
    int control;
};

static int list_pids(void *data, pid_t **ret, size_t *ret_n, struct err *e)
{
    const struct hibernate_params *p = ((struct pager *)data)->params;
    size_t n = 0, cap = 0;
    pid_t *all = NULL;

    for (size_t i = 0; i < p->n_cgroups; i++) {
        scoped_free pid_t *pids = NULL;
        size_t n_pids = 0;
        int r = cgroup_pids(p->cgroups[i], &pids, &n_pids, e);
        if (r < 0) {
            free(all);
            return r;
        }
        for (size_t j = 0; j < n_pids; j++) {
            all = xgrow(all, n, &cap, sizeof *all);
            all[n++] = pids[j];
        }
    }
    *ret = all;
    *ret_n = n;
    return 0;
}

static void on_asked(void *data)
{
    (void)pager_send(((struct pager *)data)->control, PAGER_ASKED, NULL, -1);
}

static int save_all(struct pager *p, struct err *e)
{
    for (size_t i = 0; i < p->stopped.n; i++) {
        struct stopped *proc = p->stopped.items[i];
        if (proc->n == 0 || proc->shares_mm)
            continue;
        p->spaces.items = xgrow(p->spaces.items, p->spaces.n, &p->spaces.cap, sizeof *p->spaces.items);
        struct space *s = &p->spaces.items[p->spaces.n++];
        *s = (struct space){.pid = proc->pid, .uffd = -1};
        int r = space_save(s, p->img, e);
        if (r < 0)
            return r;
    }
    return image_flush(p->img, e);
}

static int drop_all(struct pager *p, struct err *e)
{
    size_t next = 0;

    for (size_t i = 0; i < p->stopped.n; i++) {
        struct stopped *proc = p->stopped.items[i];
        if (proc->n == 0 || proc->shares_mm)
            continue;
        struct space *s = &p->spaces.items[next++];
        if (s->n_regions == 0)
            continue;
        int r = space_drop(s, proc, p->device, e);
        if (r < 0)
            return r;
        p->eager = p->eager || r == 1;
    }
    return 0;
}

static int freeze_all(const struct pager *p, bool frozen, struct err *e)
{
    int64_t until = clock_mono_ms() + FREEZE_DEADLINE_MS;

    for (size_t i = 0; i < p->params->n_cgroups; i++) {
        int r = cgroup_freeze(p->params->cgroups[i], frozen, e);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; frozen && i < p->params->n_cgroups; i++)
        for (;;) {
            int r = cgroup_frozen(p->params->cgroups[i], e);
            if (r < 0)
                return r;
            if (r == 1)
                break;
            if (clock_mono_ms() > until)
                return err_set(e, -ETIMEDOUT, "the control group did not freeze in time");
            (void)usleep(100);
        }
    return 0;
}

/* Puts everything back as if nothing had happened.  <0: it cannot. */
static int undo(struct pager *p, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < p->stopped.n; i++)
        if (p->stopped.items[i]->injecting && inject_end(p->stopped.items[i], NULL) < 0)
            r = err_set(e, -EIO, "process %d could not be put back", p->stopped.items[i]->pid);
    for (size_t i = 0; r == 0 && i < p->spaces.n; i++)
        if (p->spaces.items[i].dropped)
            r = space_restore(&p->spaces.items[i], p->img, e);
    if (r == 0) {
        (void)freeze_all(p, false, NULL);
        stop_detach(&p->stopped);
    }
    return r;
}

/* 0: frozen and armed.  1: undone, the pod is as before (*e says why).  <0: memory is lost. */
static int pause_all(struct pager *p, struct err *e)
{
    int64_t deadline = p->params->stop_deadline_ms ? p->params->stop_deadline_ms : STOP_DEADLINE_MS;
    const struct stop_calls calls = {.list = list_pids, .asked = on_asked, .data = p};
    struct err lost = {0};

    if (stop_all(&p->stopped, &calls, deadline, e) < 0)
        return 1;
    int r = save_all(p, e);
    if (r == 0)
        r = drop_all(p, e);
    if (r == 0)
        r = freeze_all(p, true, e);
    if (r < 0) {
        r = undo(p, &lost);
        if (r < 0)
            return err_set(e, r, "%s", lost.text);
        return 1;
    }
    stop_detach(&p->stopped);
    for (size_t i = 0; i < p->spaces.n; i++) {
        r = p->spaces.items[i].dropped ? space_arm(&p->spaces.items[i], p->img, e) : 0;
        if (r == -ENOENT || r == -ESRCH) /* killed in the middle: its memory is nobody's */
            continue;
        if (r < 0)
            return r;
    }
    return 0;
}

static void report(const struct pager *p, int control, enum pager_msg type, int64_t ms, const struct err *e)
{
    struct pager_message m = {.code = p->eager, .a = p->img ? image_bytes(p->img) : 0, .b = (uint64_t)ms};

    if (e) {
        m.code = e->code;
        memcpy(m.text, e->text, sizeof m.text);
    }
    if (type == PAGER_PAUSED) /* before the news: the shim holds them from the first moment on */
        for (size_t i = 0; i < p->spaces.n; i++)
            if (p->spaces.items[i].uffd >= 0)
                (void)pager_send(control, PAGER_UFFD, NULL, p->spaces.items[i].uffd);
    (void)pager_send(control, type, &m, -1);
}

void pager_main(const struct hibernate_params *params, int control)
{
    struct pager p = {
        .params = params, .control = control, .device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC)};
    struct err e = {0};
    int64_t start = clock_mono_ms();
    int r = image_new(params->image_dir, &p.img, &e);

    r = r < 0 ? 1 : pause_all(&p, &e);
    if (r == 1) {
        report(&p, control, PAGER_FAILED, clock_mono_ms() - start, &e);
        _exit(0);
    }
    stop_done(&p.stopped);
    fd_close(p.device);
    if (r == 0) {
        for (size_t i = 0; i < params->n_cgroups; i++)
            (void)cgroup_reclaim(params->cgroups[i], NULL); /* page cache: a bonus */
        report(&p, control, PAGER_PAUSED, clock_mono_ms() - start, NULL);
        r = serve_run(&p.spaces, p.img, control, &e);
    }
    if (r < 0) {
        for (size_t i = 0; i < params->n_cgroups; i++)
            (void)cgroup_kill(params->cgroups[i], SIGKILL, NULL);
        report(&p, control, PAGER_BROKEN, 0, &e);
        _exit(1);
    }
    _exit(0);
}
