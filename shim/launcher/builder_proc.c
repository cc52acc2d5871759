/* /proc, /sys, the container's own cgroup, and what is covered of them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/scoped.h"
#include "shim/launcher/build.h"
#include "shim/launcher/inroot.h"
#include "shim/launcher/sys.h"
#include "shim/oci/spec.h"

#define QUIET (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* ---- synthetic files ---------------------------------------------------------------------------- */

int build_view(struct build *b, struct err *e)
{
    static const char *const dirs[] = {"proc", "sys", "empty"};
    struct plan *plan = b->plan;
    const char *cgroups[PLAN_CGROUPS_MAX];
    scoped_fd int fs =
        mount_new("tmpfs", (struct mount_option[]){{"source", "glovebox"}, {"mode", "0555"}, {"size", "4m"}},
                  3, QUIET, e);
    if (fs < 0)
        return fs;
    scoped_fd int at = open("v", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = at < 0 ? -errno : mount_attach(fs, at);
    if (r < 0)
        return err_set(e, r, "attach the synthetic files: %s", strerror(-r));
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdirat(fs, dirs[i], 0555) < 0)
            return err_sys(e, "synthetic files");
    scoped_fd int proc = openat(fs, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped_fd int sys = openat(fs, "sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0 || sys < 0)
        return err_sys(e, "synthetic files");
    r = view_write_proc(proc, &plan->facts, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < plan->n_cgroups; i++)
        cgroups[i] = plan->cgroups[i].name;
    r = view_write_sys(sys, &plan->facts, cgroups, plan->n_cgroups, e);
    for (size_t i = 0; r == 0 && i < plan->n_cgroups; i++) {
        for (size_t k = 0; k < ARRAY_LEN(plan->cgroups[i].alias) && plan->cgroups[i].alias[k]; k++) {
            char path[80];
            (void)snprintf(path, sizeof path, "fs/cgroup/%s", plan->cgroups[i].alias[k]);
            if (symlinkat(plan->cgroups[i].name, sys, path) < 0 && errno != EEXIST)
                return err_sys(e, "synthetic /sys/%s", path);
        }
    }
    b->view = take_fd(fs);
    return r;
}

/* A read-only clone of view/path. Descriptor or -errno. */
static int clone_view(struct build *b, const char *path, struct err *e)
{
    scoped_fd int fd = mount_clone(b->view, path, false);
    int r = fd < 0 ? fd : mount_change(fd, &(struct mount_change){.set = MOUNT_ATTR_RDONLY, .user_ns = -1});

    return r < 0 ? err_set(e, r, "clone synthetic %s: %s", path, strerror(-r)) : take_fd(fd);
}

int build_sys(struct build *b, const struct spec_mount *m, const struct entry *entry UNUSED, struct err *e)
{
    scoped_fd int fd = clone_view(b, "sys", e);
    if (fd < 0)
        return fd;
    b->has_sys |= strcmp(m->destination, "/sys") == 0;
    return build_attach_plain(b, fd, m->destination, e);
}

/* The container's own directories, read-only. In /sys their places exist; elsewhere they are cloned from
 * there. */
int build_cgroup(struct build *b, const struct spec_mount *m, const struct entry *entry UNUSED, struct err *e)
{
    struct plan *plan = b->plan;
    int r = 0;

    if (plan->n_cgroups == 0)
        return 0;
    if (!b->has_sys || strcmp(m->destination, "/sys/fs/cgroup") != 0) {
        scoped_fd int fd = clone_view(b, "sys/fs/cgroup", e);
        r = fd < 0 ? fd : build_attach_plain(b, fd, m->destination, e);
    }
    scoped_fd int dir = r < 0 ? -1 : inroot_open(b->root, m->destination);
    if (dir < 0)
        return r < 0 ? r : err_set(e, dir, "%s: %s", m->destination, strerror(-dir));
    for (size_t i = 0; i < plan->n_cgroups; i++) {
        const char *name = plan->cgroups[i].name;
        scoped_fd int at = openat(dir, name[0] ? name : ".", O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
        r = at < 0 ? -errno : mount_attach(plan->cgroup_mount[i], at);
        if (r < 0)
            return err_set(e, r, "cgroup %s: %s", name, strerror(-r));
    }
    return 0;
}

/* ---- /proc -------------------------------------------------------------------------------------- */

/* 1: this kernel has no `pidns` option. */
static int proc_by_option(struct build *b, int *ret, struct err *e)
{
    scoped_fd int fs = fsopen("proc", FSOPEN_CLOEXEC);
    if (fs < 0)
        return err_sys(e, "file system proc");
    (void)fsconfig(fs, FSCONFIG_SET_STRING, "source", "proc", 0);
    if (fsconfig(fs, FSCONFIG_SET_FD, "pidns", NULL, b->pid_ns) < 0)
        return 1;
    int fd = mount_create(fs, QUIET, e);
    if (fd >= 0)
        *ret = fd;
    return fd < 0 ? fd : 0;
}

/*
 * A child in the pid namespace makes the mount.  It shares our descriptor table and puts the mount
 * where we keep a place free, so the mount is ours too.
 */
static int proc_by_child(struct build *b, int *ret, struct err *e)
{
    int status = 0;
    scoped_fd int place = fcntl(b->pid_ns, F_DUPFD_CLOEXEC, 3);

    if (place < 0 || setns(b->pid_ns, CLONE_NEWPID) < 0)
        return err_sys(e, "enter the pid namespace");
    pid_t pid = sys_fork(CLONE_FILES, 0, -1, NULL);
    if (pid < 0)
        return err_set(e, pid, "fork into the pid namespace: %s", strerror(-pid));
    if (pid == 0) {
        int fd = mount_new("proc", (struct mount_option[]){{"source", "proc"}}, 1, QUIET, NULL);
        if (fd >= 0 && dup3(fd, place, O_CLOEXEC) < 0)
            fd = -errno;
        _exit(fd < 0 ? -fd & 127 : 0);
    }
    if (waitpid(pid, &status, __WALL) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(e, -EIO, "mount proc: %s",
                       WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "helper was killed");
    *ret = take_fd(place);
    return 0;
}

int build_proc(struct build *b, const struct spec_mount *m, const struct entry *entry UNUSED, struct err *e)
{
    scoped_fd int fd = -1;

    int r = proc_by_option(b, &fd, e);
    if (r > 0)
        r = proc_by_child(b, &fd, e);
    if (r == 0)
        r = build_attach_plain(b, fd, m->destination, e);
    if (r == 0 && strcmp(m->destination, "/proc") == 0) {
        fd_close(b->proc);
        b->proc = take_fd(fd);
    }
    return r;
}

/* ---- covers ------------------------------------------------------------------------------------- */

/*
 * Entries of /proc that speak of the whole host and that no program needs.  What stays visible is
 * listed in docs/launcher.md.
 */
static const char *const host_entries[] = {
    "acpi",        "asound",     "buddyinfo", "bus",         "config.gz",     "consoles",    "crypto",
    "devices",     "diskstats",  "dma",       "driver",      "dynamic_debug", "execdomains", "fb",
    "fs",          "interrupts", "iomem",     "ioports",     "irq",           "kallsyms",    "kcore",
    "key-users",   "keys",       "kmsg",      "kpagecgroup", "kpagecount",    "kpageflags",  "latency_stats",
    "mdstat",      "misc",       "modules",   "mtrr",        "pagetypeinfo",  "pressure",    "sched_debug",
    "schedstat",   "scsi",       "slabinfo",  "softirqs",    "sysrq-trigger", "timer_list",  "tty",
    "vmallocinfo", "zoneinfo",   "cmdline",   "bootconfig",
};

static bool is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

/*
 * The object a spec's path names.  In /proc it is looked up from the mount itself and through no link:
 * links in an image must not divert a cover to another place.
 */
static int open_covered(struct build *b, const char *path)
{
    if (b->proc >= 0 && is_below(path, "/proc"))
        return sys_openat2(b->proc, path + sizeof "/proc/" - 1, O_PATH | O_NOFOLLOW,
                           RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
    return inroot_open(b->root, path);
}

static int cover(struct build *b, int at, const char *what, struct err *e)
{
    struct stat st;

    if (fstat(at, &st) < 0)
        return err_sys(e, "mask %s", what);
    scoped_fd int with = S_ISDIR(st.st_mode) ? clone_view(b, "empty", e) : mount_clone(b->dev, "null", false);
    int r = with < 0 ? with : mount_attach(with, at);
    return r < 0 ? err_set(e, r, "mask %s: %s", what, strerror(-r)) : 0;
}

static int cover_host_entries(struct build *b, struct err *e)
{
    for (size_t i = 0; b->proc >= 0 && i < ARRAY_LEN(host_entries); i++) {
        scoped_fd int at = openat(b->proc, host_entries[i], O_PATH | O_NOFOLLOW | O_CLOEXEC);
        int r = at < 0 ? 0 : cover(b, at, host_entries[i], e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int show_view(struct build *b, struct err *e)
{
    const char *names[VIEW_FILES_MAX];
    size_t n = view_proc_names(&b->plan->facts, names);

    for (size_t i = 0; b->proc >= 0 && i < n; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "proc/%s", names[i]);
        scoped_fd int at = openat(b->proc, names[i], O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (at < 0)
            continue;
        scoped_fd int fd = clone_view(b, path, e);
        int r = fd < 0 ? fd : mount_attach(fd, at);
        if (r < 0)
            return err_set(e, r, "show /proc/%s: %s", names[i], strerror(-r));
    }
    return 0;
}

/* A clone of the place, read-only with everything below, on the place itself. */
static int make_readonly(int at, const char *path, struct err *e)
{
    scoped_fd int fd = mount_clone(at, "", true);
    int r = fd < 0 ? fd
                   : mount_change(fd, &(struct mount_change){.set = MOUNT_ATTR_RDONLY,
                                                             .propagation = MS_PRIVATE,
                                                             .user_ns = -1,
                                                             .recursive = true});
    if (r == 0)
        r = mount_attach(fd, at);
    return r < 0 ? err_set(e, r, "read-only %s: %s", path, strerror(-r)) : 0;
}

/* Covered already, whatever the spec wants for it: the usual lists name many of them again. */
static bool is_done(struct build *b, const char *path)
{
    if (b->proc < 0 || !is_below(path, "/proc"))
        return false;
    path += sizeof "/proc/" - 1;
    for (size_t i = 0; i < ARRAY_LEN(host_entries); i++)
        if (strcmp(path, host_entries[i]) == 0)
            return true;
    return false;
}

static bool is_absent(int r)
{
    return r == -ENOENT || r == -ENOTDIR;
}

static int apply_paths(struct build *b, const struct spec_strings *paths, bool mask, const char *field,
                       struct err *e)
{
    for (size_t i = 0; i < paths->n; i++) {
        const char *path = paths->item[i];
        if (is_done(b, path) || (!mask && b->proc >= 0 && strcmp(path, "/proc/sys") == 0))
            continue;
        scoped_fd int at = open_covered(b, path);
        if (is_absent(at))
            continue;
        if (at < 0)
            return err_set(e, at, "%s: %s: %s", field, path, strerror(-at));
        int r = mask ? cover(b, at, path, e) : make_readonly(at, path, e);
        if (r < 0)
            return err_wrap(e, r, "%s", field);
    }
    return 0;
}

/* /proc/sys is read-only whatever the spec says: sysctls of the pod are set by the shim. */
static int lock_proc_sys(struct build *b, struct err *e)
{
    scoped_fd int at =
        b->proc < 0 ? -1 : openat(b->proc, "sys", O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);

    return at < 0 ? 0 : make_readonly(at, "/proc/sys", e);
}

int build_masks(struct build *b, struct err *e)
{
    const struct spec *spec = b->plan->p.spec;

    int r = lock_proc_sys(b, e);
    if (r == 0)
        r = show_view(b, e);
    if (r == 0)
        r = apply_paths(b, &spec->readonly_paths, false, "linux.readonlyPaths", e);
    if (r == 0)
        r = cover_host_entries(b, e);
    if (r == 0)
        r = apply_paths(b, &spec->masked_paths, true, "linux.maskedPaths", e);
    for (size_t i = 0; r == 0 && i < b->n_late_ro; i++)
        r = mount_change(b->late_ro[i], &(struct mount_change){.set = MOUNT_ATTR_RDONLY, .user_ns = -1});
    return r;
}
