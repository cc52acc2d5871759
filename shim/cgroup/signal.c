/* The processes of a group: listing, freezing, signalling. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "shim/cgroup/internal.h"

#define DEPTH_MAX     32
#define PIDS_TEXT_MAX (16u << 20)

/* Where membership is read: every process that entered through cgroup_entry() is in it. */
static const struct cg_dir *members(const struct cgroup *cg)
{
    const struct cg_dir *d = cg->mode == CGROUP_V2 ? cg_core(cg) : cg_part(cg, CG_FREEZER);
    return d || cg->n == 0 ? d : &cg->part[0];
}

/* ---- listing ------------------------------------------------------------------------------------------ */

static int add_pids(int dir, struct cg_pids *out, struct err *e)
{
    scoped_free char *text = NULL;
    size_t len = 0;
    int r = file_read(dir, "cgroup.procs", PIDS_TEXT_MAX, &text, &len, e);
    if (r == -ENOENT || r == -ENODEV) /* the group was removed meanwhile */
        return 0;
    if (r < 0)
        return r;
    for (const char *p = text; *p;) {
        char *end = NULL;
        long pid = strtol(p, &end, 10);
        if (end == p)
            break;
        if (pid > 0) { /* 0: of a pid namespace that we cannot see */
            out->pid = xgrow(out->pid, out->n, &out->cap, sizeof *out->pid);
            out->pid[out->n++] = (pid_t)pid;
        }
        p = end + strspn(end, "\n");
    }
    return 0;
}

static int walk(int dir, int depth, struct cg_pids *out, struct err *e)
{
    if (depth > DEPTH_MAX)
        return err_set(e, -ELOOP, "control groups are nested more than %d deep", DEPTH_MAX);
    int r = add_pids(dir, out, e);
    if (r < 0)
        return r;

    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    if (!list) {
        fd_close(copy);
        return 0; /* removed meanwhile */
    }
    for (struct dirent *d = readdir(list); d && r == 0; d = readdir(list)) {
        if (d->d_type != DT_DIR || d->d_name[0] == '.')
            continue;
        scoped_fd int child = openat(dir, d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (child >= 0)
            r = walk(child, depth + 1, out, e);
    }
    (void)closedir(list);
    return r;
}

int cg_pids_walk(int dir, struct cg_pids *ret, struct err *e)
{
    return walk(dir, 0, ret, e);
}

int cgroup_pids(const struct cgroup *cg, pid_t **ret, size_t *ret_n, struct err *e)
{
    struct cg_pids list = {0};
    const struct cg_dir *d = members(cg);
    int r = d ? cg_pids_walk(d->dir, &list, e) : 0;
    if (r < 0) {
        free(list.pid);
        return r;
    }
    *ret = list.pid ? list.pid : xcalloc(1, sizeof *list.pid);
    *ret_n = list.n;
    return 0;
}

bool cgroup_is_empty(const struct cgroup *cg)
{
    const struct cg_dir *d = members(cg);
    char events[256];
    uint64_t populated = 1;

    if (!d)
        return true;
    if (d->hier->v2) {
        ssize_t n = cg_read(d->dir, "cgroup.events", events, sizeof events);
        return n < 0 || (cg_keyed(events, "populated", &populated) && populated == 0);
    }
    struct cg_pids list = {0};
    int r = cg_pids_walk(d->dir, &list, NULL);
    free(list.pid);
    return r == 0 && list.n == 0;
}

/* ---- freezer ------------------------------------------------------------------------------------------- */

/* The freezer controller of v1, else the v2 tree's own. */
static const struct cg_dir *freezer(const struct cgroup *cg)
{
    const struct cg_dir *d = cg_part(cg, CG_FREEZER);
    return d ? d : cg_core(cg);
}

int cgroup_freeze(struct cgroup *cg, bool frozen, struct err *e)
{
    const struct cg_dir *d = freezer(cg);
    if (!d)
        return err_set(e, -ENOTSUP, "this host has no freezer controller");
    int r = d->hier->v2 ? cg_write(d->dir, "cgroup.freeze", frozen ? "1" : "0")
                        : cg_write(d->dir, "freezer.state", frozen ? "FROZEN" : "THAWED");
    return r < 0 ? err_set(e, r, "%s the control group: %s", frozen ? "freeze" : "thaw", strerror(-r)) : 0;
}

int cgroup_frozen(const struct cgroup *cg, struct err *e)
{
    const struct cg_dir *d = freezer(cg);
    char text[256];
    uint64_t frozen = 0;

    if (!d)
        return err_set(e, -ENOTSUP, "this host has no freezer controller");
    ssize_t n = cg_read(d->dir, d->hier->v2 ? "cgroup.events" : "freezer.state", text, sizeof text);
    if (n < 0)
        return err_set(e, (int)n, "read the freezer's state: %s", strerror((int)-n));
    if (d->hier->v2)
        return cg_keyed(text, "frozen", &frozen) && frozen;
    /*
     * v1 can stay FREEZING for ever when a task was missed in the middle of a fork; writing the
     * state again makes the kernel look at all of them again.
     */
    if (strncmp(text, "FREEZING", 8) == 0)
        (void)cg_write(d->dir, "freezer.state", "FROZEN");
    return strncmp(text, "FROZEN", 6) == 0;
}

/* ---- signals ------------------------------------------------------------------------------------------- */

static int compare_pids(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;
    return (x > y) - (x < y);
}

/*
 * A number read from cgroup.procs may belong to somebody else by the time it is used, and we are root.
 * So: pin each process by a pidfd, read the list again, and signal only those that are still in it.
 * Returns how many were signalled that `seen` does not have yet.
 */
static int signal_round(int dir, int sig, struct cg_pids *seen, size_t *ret_new, struct err *e)
{
    struct cg_pids before = {0}, after = {0};
    int r = cg_pids_walk(dir, &before, e);
    scoped_free int *pidfd = xcalloc(before.n + 1, sizeof *pidfd);
    for (size_t i = 0; i < before.n; i++)
        pidfd[i] = (int)syscall(SYS_pidfd_open, before.pid[i], 0);
    if (r == 0 && before.n > 0)
        r = cg_pids_walk(dir, &after, e);
    if (after.n > 0)
        qsort(after.pid, after.n, sizeof *after.pid, compare_pids);

    *ret_new = 0;
    for (size_t i = 0; i < before.n; i++) {
        bool still =
            after.n > 0 && bsearch(&before.pid[i], after.pid, after.n, sizeof *after.pid, compare_pids);
        bool known = false;
        for (size_t k = 0; k < seen->n && !known; k++)
            known = seen->pid[k] == before.pid[i];
        if (r == 0 && still && !known && pidfd[i] >= 0 &&
            syscall(SYS_pidfd_send_signal, pidfd[i], sig, NULL, 0) == 0) {
            seen->pid = xgrow(seen->pid, seen->n, &seen->cap, sizeof *seen->pid);
            seen->pid[seen->n++] = before.pid[i];
            ++*ret_new;
        }
        fd_close(pidfd[i]);
    }
    free(before.pid);
    free(after.pid);
    return r;
}

/* Rounds until nobody new is found: a process may fork between the list and its own end. */
static int signal_all(const struct cgroup *cg, int sig, struct err *e)
{
    const struct cg_dir *d = members(cg);
    struct cg_pids seen = {0};
    int r = 0;

    for (int round = 0; d && r == 0 && round < 64; round++) {
        size_t fresh = 0;
        r = signal_round(d->dir, sig, &seen, &fresh, e);
        if (fresh == 0)
            break;
    }
    free(seen.pid);
    return r;
}

int cgroup_kill(struct cgroup *cg, int sig, struct err *e)
{
    if (sig != SIGKILL)
        return signal_all(cg, sig, e);

    /* 5.14: the kernel kills the whole tree at once, and forks of it too. A hybrid host has it as well. */
    const struct cg_dir *core = cg_core(cg), *v1 = cg->mode == CGROUP_V1 ? cg_part(cg, CG_FREEZER) : NULL;
    bool killed = core && cg_write(core->dir, "cgroup.kill", "1") == 0;
    int r = 0;
    if (!killed || cg->mode == CGROUP_V1) {
        /* Nobody forks while the group freezes, so one list is complete. */
        if (v1)
            (void)cg_write(v1->dir, "freezer.state", "FROZEN");
        r = signal_all(cg, SIGKILL, e);
    }
    /* v1: a frozen task does not die of anything, SIGKILL included. */
    if (v1)
        (void)cg_write(v1->dir, "freezer.state", "THAWED");
    return r;
}
