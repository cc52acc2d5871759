#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/launch.h"
#include "shim/launcher/mountinfo.h"
#include "shim/launcher/pod.h"
#include "shim/launcher/source.h"
#include "shim/launcher/sys.h"
#include "shim/oci/spec.h"

#define SCAN_MAX 512 /* directory entries looked at for an unmapped tmpfs */

/*
 * Attributes a bind mount may only gain: the host's own read-only, nosuid... on the source mount stay,
 * whatever the options say.
 */
#define ONLY_GAINED                                                                                          \
    (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSYMFOLLOW)

bool volume_is_bind(const struct spec_mount *m, const struct mountopt *opt)
{
    return opt->bind || (m->type && strcmp(m->type, "bind") == 0);
}

/* Kernel interfaces, which no volume can mean: below a recursive bind they are left out. */
static bool is_pseudo_fs(const char *name)
{
    static const char *const pseudo[] = {"proc",      "sysfs",   "cgroup",      "cgroup2",    "devpts",
                                         "bpf",       "debugfs", "tracefs",     "securityfs", "mqueue",
                                         "hugetlbfs", "nsfs",    "binfmt_misc", "pstore",     "efivarfs",
                                         "configfs",  "autofs",  "selinuxfs"};

    for (size_t i = 0; i < ARRAY_LEN(pseudo); i++)
        if (strcmp(pseudo[i], name) == 0)
            return true;
    return false;
}

/* devtmpfs has the magic of tmpfs. */
static bool is_devtmpfs(int fd)
{
    struct stat st, dev;

    return fstat(fd, &st) == 0 && stat("/dev", &dev) == 0 && st.st_dev == dev.st_dev;
}

static bool all_readable(int dir, int depth)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    bool ok = d != NULL;

    if (!d) {
        fd_close(copy);
        return false;
    }
    int seen = 0;
    for (struct dirent *entry; ok && (entry = readdir(d)) && seen < SCAN_MAX; seen++) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(copy, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st.st_mode))
            continue;
        ok = (st.st_mode & 0004) && (!S_ISDIR(st.st_mode) || (st.st_mode & 0001));
        if (ok && S_ISDIR(st.st_mode) && depth > 0) {
            scoped_fd int sub = openat(copy, entry->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            ok = sub >= 0 && all_readable(sub, depth - 1);
        }
    }
    (void)closedir(d);
    return ok;
}

/*
 * Before 6.3 tmpfs has no idmapped mounts.  Unmapped, the pod's processes are "others" to every file,
 * which can only take rights away; it is allowed where nothing depends on the owner.
 */
static bool tmpfs_works_unmapped(int fd)
{
    struct stat st;

    if (sys_fs_magic(fd) != TMPFS_MAGIC || is_devtmpfs(fd) || fstat(fd, &st) < 0)
        return false;
    if (!S_ISDIR(st.st_mode))
        return st.st_mode & 0004;
    return (st.st_mode & 0005) == 0005 && all_readable(fd, 2);
}

/* 0, 1: is a kernel interface and left out, or -errno. */
static int idmap_one(const struct pod *pod, int fd, const struct mount_change *change, const char *path,
                     const char *field, struct err *e)
{
    struct mount_change c = *change;
    struct utsname u = {0};
    char buf[40];

    c.user_ns = pod->user_ns;
    int r = mount_change(fd, &c);
    if (r == 0)
        return 0;
    if (r == -EPERM)
        return err_set(e, r, "%s: volume %s is an idmapped mount already.", field, path);
    if (r != -EINVAL)
        return err_set(e, r, "%s: volume %s: %s", field, path, strerror(-r));

    const char *name = sys_fs_name(sys_fs_magic(fd), buf, sizeof buf);
    if (is_devtmpfs(fd))
        name = "devtmpfs";
    if (is_pseudo_fs(name) || strcmp(name, "devtmpfs") == 0)
        r = 1;
    else if (tmpfs_works_unmapped(fd)) {
        c.user_ns = -1;
        r = mount_change(fd, &c);
        if (r == 0)
            return 0;
    }
    (void)uname(&u);
    (void)err_set(e, -EINVAL, "%s: volume %s (%s) has no idmapped mounts on kernel %s.", field, path, name,
                  u.release);
    return r;
}

/* ---- submounts one by one ----------------------------------------------------------------------- */

static int add_submount(const struct pod *pod, struct volume *v, const char *top, const char *path,
                        const struct mount_change *change, const char *field, struct err *e)
{
    const char *below = path + (strcmp(top, "/") == 0 ? 0 : strlen(top));
    below += strspn(below, "/");
    for (size_t i = 0; i < v->n_sub; i++)
        if (strcmp(v->sub[i].path, below) == 0)
            return 0; /* stacked mounts: the path leads to the topmost */

    scoped_fd int fd = mount_clone(AT_FDCWD, path, false);
    if (fd < 0)
        return err_set(e, fd, "%s: clone %s: %s", field, path, strerror(-fd));
    int r = idmap_one(pod, fd, change, path, field, e);
    if (r != 0)
        return r > 0 ? 0 : r;
    v->sub = xrealloc_array(v->sub, v->n_sub + 1, sizeof *v->sub);
    v->sub[v->n_sub++] = (struct submount){.path = xstrdup(below), .fd = take_fd(fd)};
    return 0;
}

static int add_submounts(const struct pod *pod, struct volume *v, const char *top,
                         const struct mount_change *change, const char *field, struct err *e)
{
    scoped_mountinfo struct mountinfo m = {0};
    size_t n_top = strcmp(top, "/") == 0 ? 0 : strlen(top);
    int r = mountinfo_read(AT_FDCWD, &m, e);

    for (size_t i = 0; r == 0 && i < m.n; i++) {
        const char *path = m.line[i].point;
        if (strncmp(path, top, n_top) == 0 && path[n_top] == '/' && path[n_top + 1])
            r = add_submount(pod, v, top, path, change, field, e);
    }
    return r;
}

static int real_path(int fd, char *out, size_t size, struct err *e)
{
    char link[40];

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, size - 1);
    if (n < 0)
        return err_sys(e, "readlink %s", link);
    out[n] = '\0';
    return 0;
}

/* The recursive idmap failed, and inner mounts of a detached tree cannot be changed singly: clone each alone.
 */
static int open_singly(const struct pod *pod, const char *source, const struct mount_change *change,
                       const char *field, struct volume *v, struct err *e)
{
    char top[PATH_MAX];
    scoped_fd int at = open(source, O_PATH | O_CLOEXEC);

    if (at < 0)
        return err_sys(e, "%s: volume %s", field, source);
    int r = real_path(at, top, sizeof top, e);
    if (r < 0)
        return r;
    struct mount_change one = *change;
    one.recursive = false;
    scoped_fd int fd = mount_clone(at, "", false);
    if (fd < 0)
        return err_set(e, fd, "%s: clone %s: %s", field, source, strerror(-fd));
    r = idmap_one(pod, fd, &one, source, field, e);
    if (r != 0)
        return r > 0 ? -EINVAL : r; /* the volume itself is a kernel interface: e names it */
    r = add_submounts(pod, v, top, &one, field, e);
    if (r == 0)
        v->fd = take_fd(fd);
    return r;
}

/* ---- overlays ----------------------------------------------------------------------------------- */

/*
 * Overlay itself has no idmapped mounts, but its layers have: a read-only one, which is what
 * containerd makes of an image that is to be a volume, is built again from its layers.
 */
static const struct mountinfo_line *find_mount(const struct mountinfo *m, int fd)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
        return NULL;
    for (size_t i = 0; i < m->n; i++)
        if (m->line[i].id == st.stx_mnt_id)
            return &m->line[i];
    return NULL;
}

/*
 * The layers from the mount's options: "lowerdir=a:b", or "lowerdir+=a,lowerdir+=b"; an upper one is
 * read like the others (containerd prepares a writable snapshot of the image and mounts it read-only).
 */
static char *layers_of(char *options)
{
    static const char *const keys[] = {"lowerdir=", "lowerdir+=", "upperdir="};
    char *rest = options, *list = xstrdup("");

    for (char *word; (word = strsep(&rest, ","));)
        for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
            const char *dir = word + strlen(keys[k]);
            if (strncmp(word, keys[k], strlen(keys[k])) != 0)
                continue;
            char *longer = k == 2 ? xasprintf("%s%s%s", dir, list[0] ? ":" : "", list)
                                  : xasprintf("%s%s%s", list, list[0] ? ":" : "", dir);
            free(list);
            list = longer;
        }
    return list;
}

/* 1: it is no overlay that can be built again. */
static int open_overlay(const struct launch_params *p, const char *source, struct volume *v, struct err *e)
{
    char path[PATH_MAX];
    scoped_mountinfo struct mountinfo m = {0};
    scoped_fd int at = open(source, O_PATH | O_CLOEXEC);

    if (at < 0 || sys_fs_magic(at) != OVERLAYFS_SUPER_MAGIC)
        return 1;
    int r = real_path(at, path, sizeof path, e);
    if (r == 0)
        r = mountinfo_read(AT_FDCWD, &m, e);
    const struct mountinfo_line *line = r < 0 ? NULL : find_mount(&m, at);
    if (!line || strncmp(path, line->point, strlen(line->point)) != 0)
        return r < 0 ? r : 1;
    scoped_free char *options = xstrdup(line->fs_options);
    scoped_free char *layers = layers_of(options);
    if (layers[0] != '/')
        return 1; /* relative names cannot be resolved any more */

    const char *words[] = {xasprintf("lowerdir=%s", layers)};
    struct mountopt o = {.data = words, .n_data = 1};
    v->overlay = xcalloc(1, sizeof *v->overlay);
    v->overlay->mount = -1;
    r = overlay_source_open(p, &o, v->overlay, e);
    const char *below = path + strlen(line->point);
    below += strspn(below, "/");
    v->below = xstrdup(*below ? below : ".");
    return r;
}

static int check_source(int fd, const char *source, const char *field, bool *ret_is_dir, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(e, "%s: volume %s", field, source);
    if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
        return err_set(e, -EPERM, "%s: %s is a device; host devices are not available in a sandbox", field,
                       source);
    *ret_is_dir = S_ISDIR(st.st_mode);
    return 0;
}

int volume_open(const struct launch_params *p, const struct spec_mount *m, const struct mountopt *opt,
                const char *field, struct volume *ret, struct err *e)
{
    struct volume v = {.fd = -1};

    if (!m->source || !m->source[0])
        return err_set(e, -EINVAL, "%s: a bind mount needs a source", field);
    scoped_free char *source =
        m->source[0] == '/' ? xstrdup(m->source) : xasprintf("%s/%s", p->bundle, m->source);
    scoped_fd int fd = mount_clone(AT_FDCWD, source, opt->recursive);
    if (fd < 0)
        return err_set(e, fd, "%s: volume %s: %s", field, source,
                       fd == -EINVAL ? "not in the host's mount namespace, or unbindable" : strerror(-fd));
    int r = check_source(fd, source, field, &v.is_dir, e);
    if (r < 0)
        return r;

    bool shifted = p->pod->ids_given && !opt->idmap && m->n_uid_map == 0;
    struct mount_change tree = {.set = opt->rec_set | MOUNT_ATTR_NODEV,
                                .clear = opt->rec_clear & ~(uint64_t)ONLY_GAINED,
                                .propagation = opt->propagation,
                                .user_ns = shifted ? -1 : p->pod->user_ns,
                                .recursive = opt->recursive};
    r = mount_change(fd, &tree);
    if (r == 0)
        v.fd = take_fd(fd);
    else {
        r = (opt->set | opt->rec_set) & MOUNT_ATTR_RDONLY ? open_overlay(p, source, &v, e) : 1;
        if (r == 0)
            *ret = v;
        if (r <= 0)
            return r < 0 ? err_wrap(e, r, "%s", field) : 0;
        r = open_singly(p->pod, source, &tree, field, &v, e);
    }
    if (r < 0)
        return r;
    struct mount_change top = {.set = opt->set, .clear = opt->clear & ~(uint64_t)ONLY_GAINED, .user_ns = -1};
    if (top.set | top.clear)
        r = mount_change(v.fd, &top);
    if (r < 0)
        return err_set(e, r, "%s: mount options: %s", field, strerror(-r));
    *ret = v;
    return 0;
}
