#include "shim/cgroup/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/strbuf.h"
#include "shim/cgroup/internal.h"

SCOPED_DEFINE(struct cgroup, cgroup_free)

static struct cgroup *cgroup_new(void)
{
    struct cgroup *cg = xcalloc(1, sizeof *cg);
    cg->mode = cgroup_host_mode();
    cg->oom_fd = cg->oom_watched = -1;
    return cg;
}

void cgroup_free(struct cgroup *cg)
{
    if (!cg)
        return;
    for (size_t i = 0; i < cg->n; i++) {
        fd_close(cg->part[i].dir);
        fd_close(cg->part[i].tasks);
        free(cg->part[i].path);
    }
    fd_close(cg->oom_fd);
    fd_close(cg->oom_watched);
    free(cg->unit);
    free(cg);
}

const struct cg_dir *cg_part(const struct cgroup *cg, unsigned ctrl)
{
    for (size_t i = 0; i < cg->n; i++)
        if (cg->part[i].hier->ctrl & ctrl)
            return &cg->part[i];
    return NULL;
}

const struct cg_dir *cg_core(const struct cgroup *cg)
{
    return cg_part(cg, CG_CORE);
}

/* ---- cpuset of version 1 --------------------------------------------------------------------------- */

/*
 * A v1 cpuset takes no process until it has cpus and mems, and a new one has none.  Gives dir its
 * parent's value, and the parent its own parent's first.
 */
static int cpuset_inherit(int dir, const char *file, char *value, size_t size, int depth)
{
    ssize_t n = cg_read(dir, file, value, size);
    if (n < 0)
        return (int)n;
    value[strcspn(value, "\n")] = '\0';
    if (value[0] || depth == 0)
        return 0;

    scoped_fd int up = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (up < 0)
        return -errno;
    int r = cpuset_inherit(up, file, value, size, depth - 1);
    return r < 0 ? r : cg_write(dir, file, value);
}

static int cpuset_prepare(const struct cg_dir *d, struct err *e)
{
    static const char *const files[] = {"cpuset.cpus", "cpuset.mems"};
    int depth = 1;

    for (const char *p = d->path; *p; p++)
        depth += *p == '/';
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char value[1024];
        int r = cpuset_inherit(d->dir, files[i], value, sizeof value, depth);
        if (r < 0)
            return err_set(e, r, "copy %s into %s/%s: %s", files[i], d->hier->mount, d->path, strerror(-r));
    }
    return 0;
}

/* ---- subtree_control of version 2 -------------------------------------------------------------------- */

/* "+cpu +memory": what controllers has and enabled has not; "" = nothing. */
static void missing_controllers(const char *controllers, const char *enabled, struct strbuf *out)
{
    for (const char *p = controllers + strspn(controllers, " \n"); *p; p += strspn(p, " \n")) {
        size_t n = strcspn(p, " \n");
        const char *found = enabled;
        for (; *found; found += strspn(found, " \n")) {
            size_t m = strcspn(found, " \n");
            if (m == n && memcmp(found, p, n) == 0)
                break;
            found += m;
        }
        if (!*found)
            strbuf_printf(out, "%s+%.*s", out->len ? " " : "", (int)n, p);
        p += n;
    }
}

/*
 * Passes every controller that dir has on to its children.  A group with processes of its own cannot
 * (EBUSY); then some limit may be missing below, which is an error only if it is asked for.
 */
static void enable_controllers(int dir)
{
    char controllers[256], enabled[256];

    if (cg_read(dir, "cgroup.controllers", controllers, sizeof controllers) < 0 ||
        cg_read(dir, "cgroup.subtree_control", enabled, sizeof enabled) < 0)
        return;
    scoped_strbuf struct strbuf want;
    strbuf_init(&want, 512);
    missing_controllers(controllers, enabled, &want);
    if (want.len == 0 || cg_write(dir, "cgroup.subtree_control", want.data) == 0)
        return;
    char *rest = want.data; /* one of them is refused: take the others */
    for (char *word = strsep(&rest, " "); word; word = strsep(&rest, " "))
        (void)cg_write(dir, "cgroup.subtree_control", word);
}

/*
 * Top-down over all parents of path; the root of the tree first.  Before path is made: a neighbour that
 * does the same is seen in subtree_control before the kernel has made the files, but mkdir waits for it.
 */
static void enable_path(const struct cg_hier *h, const char *path)
{
    scoped_free char *prefix = xstrdup(path);

    enable_controllers(h->dir);
    for (char *slash = strchr(prefix, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        scoped_fd int fd = cg_opendir(h, prefix);
        if (fd >= 0)
            enable_controllers(fd);
        *slash = '/';
    }
}

/* ---- create and open ---------------------------------------------------------------------------------- */

/* path below the mount point of h: below our own group when it was relative. */
static char *path_in(const struct cg_hier *h, const char *path, const char *proc_cgroup)
{
    char own[1024];

    if (!proc_cgroup || !cg_own_path(proc_cgroup, h, own, sizeof own))
        return xstrdup(path);
    const char *below = own;
    size_t n = strlen(h->root);
    if (strcmp(h->root, "/") != 0 && strncmp(own, h->root, n) == 0 && (own[n] == '/' || !own[n]))
        below = own + n;
    below += strspn(below, "/");
    return below[0] ? xasprintf("%s/%s", below, path) : xstrdup(path);
}

static int open_part(struct cgroup *cg, const struct cg_hier *h, const char *path, struct err *e)
{
    struct cg_dir *d = &cg->part[cg->n];
    *d = (struct cg_dir){.hier = h, .dir = cg_opendir(h, path), .tasks = -1};
    if (d->dir < 0)
        return err_set(e, d->dir, "open %s/%s: %s", h->mount, path, strerror(-d->dir));
    d->path = xstrdup(path);
    cg->n++;
    if (h->v2)
        return 0;
    d->tasks = openat(d->dir, "tasks", O_WRONLY | O_CLOEXEC);
    if (d->tasks < 0)
        return err_sys(e, "open %s/%s/tasks", h->mount, path);
    cg->v1_tasks[cg->n_v1_tasks++] = d->tasks;
    return 0;
}

static int create_part(struct cgroup *cg, const struct cg_hier *h, const char *path, struct err *e)
{
    /* In a scope Delegate made systemd do it. */
    bool enable = h->v2 && cg->mode == CGROUP_V2 && !cg->unit;
    int made = cg_mkdir(h, path, enable ? enable_path : NULL, e);
    if (made < 0)
        return made;
    int r = open_part(cg, h, path, e);
    if (r < 0 && cg->n > 0 && cg->part[cg->n - 1].hier == h)
        cg->part[cg->n - 1].made = made > 0;
    else if (r < 0 && made > 0)
        (void)cg_rmdir(h->dir, path);
    if (r < 0)
        return r;
    cg->part[cg->n - 1].made = made > 0;
    return h->ctrl & CG_CPUSET && !h->v2 ? cpuset_prepare(&cg->part[cg->n - 1], e) : 0;
}

/* Takes away what cgroup_create() made before it failed. */
static void undo_create(struct cgroup *cg)
{
    for (size_t i = 0; i < cg->n; i++) {
        if (!cg->part[i].made)
            continue;
        (void)cg_rmdir(cg->part[i].hier->dir, cg->part[i].path);
        cg_rmdir_parents(cg->part[i].hier, cg->part[i].path);
    }
}

static int create_parts(struct cgroup *cg, const char *path, const char *proc_cgroup, struct err *e)
{
    const struct cg_host *host = cg_host();

    if (host->mode == CGROUP_NONE)
        return err_set(e, -ENOTSUP, "no control groups are mounted at /sys/fs/cgroup");
    for (size_t i = 0; i < host->n; i++) {
        if (host->hier[i].dir < 0)
            continue;
        scoped_free char *p = path_in(&host->hier[i], path, proc_cgroup);
        int r = create_part(cg, &host->hier[i], p, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int plan_new_group(const struct cgroup *cg, const struct spec_resources *res, struct err *e)
{
    static const struct cg_current fresh = {.memory_max = -1, .cpu_quota = "max", .cpu_period = "100000"};

    if (!res)
        return 0;
    __attribute__((cleanup(cg_plan_done_scoped))) struct cg_plan plan = {0};
    int r = cg->mode == CGROUP_V2 ? cg_plan_v2(res, &fresh, &plan, e) : cg_plan_v1(res, &plan, e);
    if (r == 0)
        r = cg_apply(cg, &plan, false, e);
    if (r == 0)
        r = cg->mode == CGROUP_V2 ? cg_devices_v2(cg, res, e) : cg_devices_v1(cg, res, e);
    return r;
}

static int create_at(struct cgroup *cg, const char *path, const char *proc_cgroup,
                     const struct spec_resources *res, struct err *e)
{
    int r = create_parts(cg, path, proc_cgroup, e);
    if (r == 0)
        r = plan_new_group(cg, res, e);
    if (r < 0)
        undo_create(cg);
    return r;
}

/* A scope that systemd makes: the path has its form, is no slice, and systemd runs here. */
static bool is_scope_here(const char *cgroups_path, const char *path)
{
    size_t n = strlen(path), tail = strlen(".slice");
    bool slice = n > tail && strcmp(path + n - tail, ".slice") == 0;

    return cg_path_is_systemd(cgroups_path) && !slice && cg_systemd_runs();
}

/* Its directories are a part of it. */
static int create_scope(struct cgroup *cg, const char *cgroups_path, const char *path,
                        const struct spec_resources *res, struct err *e)
{
    struct cg_scope scope = {0};
    int r = cg_systemd_start(cgroups_path, path, res, &scope, e);
    if (r < 0)
        return r;
    cg->unit = scope.unit;
    r = create_at(cg, path, NULL, res, e);
    if (r < 0)
        cg_systemd_abandon(&scope);
    return r;
}

int cgroup_create(const char *cgroups_path, const struct spec_resources *res, struct cgroup **ret,
                  struct err *e)
{
    scoped_free char *path = NULL;
    bool relative = false;
    int r = cg_path_expand(cgroups_path, &path, &relative, e);
    if (r < 0)
        return r;

    scoped_free char *own = NULL;
    size_t len = 0;
    if (relative) {
        r = file_read(AT_FDCWD, "/proc/self/cgroup", 1u << 20, &own, &len, e);
        if (r < 0)
            return r;
    }
    scoped(cgroup_free) struct cgroup *cg = cgroup_new();
    if (is_scope_here(cgroups_path, path))
        r = create_scope(cg, cgroups_path, path, res, e);
    else
        r = create_at(cg, path, own, res, e);
    if (r == 0)
        *ret = take(cg);
    return r;
}

/* "a/b.scope" and "-x" give "a/b-x.scope". */
static char *sibling_path(const char *path, const char *suffix)
{
    size_t n = strlen(path), tail = strlen(".scope");
    bool scope = n > tail && strcmp(path + n - tail, ".scope") == 0;

    return xasprintf("%.*s%s%s", (int)(n - (scope ? tail : 0)), path, suffix, scope ? ".scope" : "");
}

static int open_at(const char *cgroups_path, const char *suffix, struct cgroup **ret, struct err *e)
{
    scoped_free char *path = NULL;
    bool relative = false;
    int r = cg_path_expand(cgroups_path, &path, &relative, e);
    if (r < 0)
        return r;

    scoped_free char *own = NULL;
    size_t len = 0;
    if (relative)
        (void)file_read(AT_FDCWD, "/proc/self/cgroup", 1u << 20, &own, &len, NULL);
    scoped(cgroup_free) struct cgroup *cg = cgroup_new();
    if (!suffix[0] && is_scope_here(cgroups_path, path))
        cg->unit = xstrdup(strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    const struct cg_host *host = cg_host();
    for (size_t i = 0; i < host->n; i++) {
        scoped_free char *base = path_in(&host->hier[i], path, own);
        scoped_free char *p = sibling_path(base, suffix);
        if (host->hier[i].dir >= 0)
            (void)open_part(cg, &host->hier[i], p, NULL);
    }
    *ret = take(cg);
    return 0;
}

int cgroup_open(const char *cgroups_path, struct cgroup **ret, struct err *e)
{
    return open_at(cgroups_path, "", ret, e);
}

int cgroup_create_sibling(const struct cgroup *cg, const char *suffix, struct cgroup **ret, struct err *e)
{
    scoped(cgroup_free) struct cgroup *sibling = cgroup_new();

    for (size_t i = 0; i < cg->n; i++) {
        scoped_free char *p = sibling_path(cg->part[i].path, suffix);
        int r = create_part(sibling, cg->part[i].hier, p, e);
        if (r < 0) {
            undo_create(sibling);
            return r;
        }
    }
    *ret = take(sibling);
    return 0;
}

int cgroup_open_sibling(const char *cgroups_path, const char *suffix, struct cgroup **ret, struct err *e)
{
    return open_at(cgroups_path, suffix, ret, e);
}

/* ---- entry, views, removal ------------------------------------------------------------------------------
 */

struct cgroup_entry cgroup_entry(const struct cgroup *cg)
{
    const struct cg_dir *core = cg_core(cg);

    return (struct cgroup_entry){
        .v2_dir = core ? core->dir : -1,
        .v1_tasks = cg->v1_tasks,
        .n_v1_tasks = cg->n_v1_tasks,
    };
}

size_t cgroup_views(const struct cgroup *cg, struct cgroup_view *out, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < cg->n && n < max; i++) {
        const struct cg_hier *h = cg->part[i].hier;
        struct cgroup_view *v = &out[n++];
        *v = (struct cgroup_view){.name = cg->mode == CGROUP_V2 ? "" : strrchr(h->mount, '/') + 1,
                                  .dir = cg->part[i].dir};
        size_t aliases = 0;
        for (unsigned bit = 1; strchr(v->name, ',') && bit < CG_SYSTEMD; bit <<= 1)
            if (h->ctrl & bit && aliases < ARRAY_LEN(v->alias))
                v->alias[aliases++] = cg_ctrl_name(bit, cg->mode);
    }
    return n;
}

static int remove_part(const struct cg_dir *d)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    int r = cg_rmdir(d->hier->dir, d->path);

    /* A process that was just reaped may still be on its way out of the group. */
    for (int i = 0; r == -EBUSY && i < 3; i++) {
        (void)nanosleep(&pause, NULL);
        r = cg_rmdir(d->hier->dir, d->path);
    }
    if (r == 0)
        cg_rmdir_parents(d->hier, d->path);
    return r;
}

int cgroup_remove(struct cgroup *cg, struct err *e)
{
    int result = 0;

    if (cg->unit && !cgroup_is_empty(cg))
        return err_set(e, -EBUSY, "%s still has processes", cg->unit);
    if (cg->unit && cg_systemd_stop(cg->unit, e) == 0)
        free(take(cg->unit));
    for (size_t i = 0; i < cg->n; i++) {
        int r = remove_part(&cg->part[i]);
        if (r < 0)
            result =
                err_set(e, r, "remove %s/%s: %s", cg->part[i].hier->mount, cg->part[i].path, strerror(-r));
    }
    return result;
}
