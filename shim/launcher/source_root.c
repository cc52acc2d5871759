#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/launch.h"
#include "shim/launcher/pod.h"
#include "shim/launcher/source.h"
#include "shim/launcher/sys.h"
#include "shim/oci/spec.h"

#define LAYERS_MAX 500 /* overlayfs: "too many lower directories" */

static int cannot_idmap(int fd, const char *path, int r, struct err *e)
{
    struct utsname u = {0};
    char buf[40];

    (void)uname(&u);
    if (r == -EPERM)
        return err_set(e, r, "snapshot file system at %s is an idmapped mount already.", path);
    if (r != -EINVAL)
        return err_set(e, r, "snapshot at %s: idmapped mount: %s", path, strerror(-r));
    return err_set(
        e, r, "snapshot file system %s at %s has no idmapped mounts on kernel %s; use ext4, xfs or btrfs.",
        sys_fs_name(sys_fs_magic(fd), buf, sizeof buf), path, u.release);
}

/*
 * A private clone of the mount that holds path; user_ns: idmapped, unless -1.  Descriptor or -errno.
 *
 * Which ids are on disk?  The container's, 0 to 65535, as a rule.  In a pod that brings its own range
 * (hostUsers: false) containerd has them shifted to the host's, but says "uidmap=" on a mount whose
 * lower layers are not; the upper one it makes is shifted even then.
 */
static int clone_for(int user_ns, const char *path, bool recursive, struct err *e)
{
    scoped_fd int fd = mount_clone(AT_FDCWD, path, recursive);
    if (fd < 0)
        return err_set(e, fd, "snapshot %s: %s", path, strerror(-fd));
    int r = mount_change(fd, &(struct mount_change){.propagation = MS_PRIVATE,
                                                    .user_ns = user_ns,
                                                    .recursive = recursive,
                                                    .set = MOUNT_ATTR_NODEV});
    if (r < 0)
        return cannot_idmap(fd, path, r, e);
    return take_fd(fd);
}

/* ---- overlay ------------------------------------------------------------------------------------ */

/* One directory name off a lowerdir list; ':' and '\' are escaped by '\'. NULL at the end. */
static char *next_lower(const char **list)
{
    const char *p = *list;
    char *out = xcalloc(strlen(p) + 1, 1);
    size_t n = 0;

    while (*p && *p != ':') {
        if (*p == '\\' && p[1])
            p++;
        out[n++] = *p++;
    }
    *list = *p ? p + 1 : p;
    return out;
}

static int mount_id(const char *path, uint64_t *ret, struct err *e)
{
    struct statx st;

    if (statx(AT_FDCWD, path, 0, STATX_MNT_ID | STATX_TYPE, &st) < 0)
        return err_sys(e, "snapshot directory %s", path);
    if (!S_ISDIR(st.stx_mode))
        return err_set(e, -ENOTDIR, "snapshot directory %s is no directory", path);
    *ret = st.stx_mnt_id;
    return 0;
}

/* Shortens parent to the longest directory that holds path as well. */
static void common_parent(char *parent, const char *path)
{
    size_t i = 0, cut = 0;

    for (; parent[i] && parent[i] == path[i]; i++)
        if (parent[i] == '/')
            cut = i;
    if ((parent[i] == '\0' || parent[i] == '/') && (path[i] == '\0' || path[i] == '/'))
        cut = i;
    parent[cut ? cut : 1] = '\0';
}

struct overlay_dirs {
    char *path[LAYERS_MAX + 2]; /* lower..., then upper and work if there are any */
    uint64_t mount[LAYERS_MAX + 2];
    int user_ns[LAYERS_MAX + 2]; /* to idmap with, -1 = none */
    struct layer_dir *slot[LAYERS_MAX + 2];
    size_t n;
};

static int add_dir(struct overlay_dirs *d, char *path /* taken */, int user_ns, struct layer_dir *slot,
                   struct err *e)
{
    d->path[d->n] = path;
    d->user_ns[d->n] = user_ns;
    d->slot[d->n] = slot;
    d->n++;
    if (path[0] != '/')
        return err_set(e, -EINVAL, "rootfs: overlay directory \"%s\" must be absolute", path);
    return mount_id(path, &d->mount[d->n - 1], e);
}

static int collect_dirs(const struct pod *pod, const struct mountopt *o, struct root_source *s,
                        struct overlay_dirs *d, struct err *e)
{
    const int lower_ns = pod->ids_given && !o->idmap ? -1 : pod->user_ns,
              upper_ns = pod->ids_given ? -1 : pod->user_ns;
    const char *list = mountopt_data(o, "lowerdir"), *upper = mountopt_data(o, "upperdir"),
               *work = mountopt_data(o, "workdir");

    if (!list || !list[0])
        return err_set(e, -EINVAL, "rootfs: overlay without lowerdir");
    s->lower = xcalloc(LAYERS_MAX, sizeof *s->lower);
    while (*list) {
        if (s->n_lower == LAYERS_MAX)
            return err_set(e, -EINVAL, "rootfs: more than %d layers", LAYERS_MAX);
        int r = add_dir(d, next_lower(&list), lower_ns, &s->lower[s->n_lower++], e);
        if (r < 0)
            return r;
    }
    if (!upper)
        return 0;
    if (!work)
        return err_set(e, -EINVAL, "rootfs: overlay with upperdir but without workdir");
    int r = add_dir(d, xstrdup(upper), upper_ns, &s->upper, e);
    return r < 0 ? r : add_dir(d, xstrdup(work), upper_ns, &s->work, e);
}

static bool same_group(const struct overlay_dirs *d, size_t a, size_t b)
{
    return !d->slot[a]->path && d->mount[a] == d->mount[b] && d->user_ns[a] == d->user_ns[b];
}

/*
 * One clone for all directories that lie in the same mount, of their common parent: closing a clone
 * for each of 128 layers takes 20 ms, and upper and work must come from the same mount.
 */
static int clone_group(struct root_source *s, struct overlay_dirs *d, size_t first, struct err *e)
{
    scoped_free char *parent = xstrdup(d->path[first]);

    for (size_t i = first + 1; i < d->n; i++)
        if (same_group(d, i, first))
            common_parent(parent, d->path[i]);
    int fd = clone_for(d->user_ns[first], parent, false, e);
    if (fd < 0)
        return fd;
    s->trees[s->n_trees++] = fd;
    size_t skip = strcmp(parent, "/") == 0 ? 0 : strlen(parent);
    for (size_t i = first; i < d->n; i++) {
        if (!same_group(d, i, first))
            continue;
        const char *below = d->path[i] + skip;
        below += strspn(below, "/");
        *d->slot[i] = (struct layer_dir){.tree = (int)s->n_trees - 1, .path = xstrdup(*below ? below : ".")};
    }
    return 0;
}

int overlay_source_open(const struct launch_params *p, const struct mountopt *o, struct root_source *s,
                        struct err *e)
{
    struct overlay_dirs *d = xcalloc(1, sizeof *d);

    int r = collect_dirs(p->pod, o, s, d, e);
    s->trees = xcalloc(d->n + 1, sizeof *s->trees);
    for (size_t i = 0; r == 0 && i < d->n; i++)
        if (!d->slot[i]->path)
            r = clone_group(s, d, i, e);
    for (size_t i = 0; i < d->n; i++)
        free(d->path[i]);
    free(d);
    if (r < 0)
        return r;
    s->options = xcalloc(o->n_data + 1, sizeof *s->options);
    for (size_t i = 0; i < o->n_data; i++)
        if (strncmp(o->data[i], "lowerdir=", 9) != 0 && strncmp(o->data[i], "upperdir=", 9) != 0 &&
            strncmp(o->data[i], "workdir=", 8) != 0)
            s->options[s->n_options++] = o->data[i];
    s->read_only = o->fs_ro || !s->upper.path;
    return 0;
}

/* ---- everything else ---------------------------------------------------------------------------- */

static int whole_ns(const struct pod *pod, const struct mountopt *o)
{
    return pod->ids_given && !o->idmap ? -1 : pod->user_ns;
}

/* A file system of its own (erofs, ext4, ...): mounted by the launcher, where its source can be found. */
static int open_other(const struct launch_params *p, const struct launch_mount *m, const struct mountopt *o,
                      struct root_source *s, struct err *e)
{
    if (o->loop)
        return err_set(e, -EINVAL, "rootfs: loop mounts are not supported; let containerd attach the device");
    struct mount_option *list = xcalloc(o->n_data + 2, sizeof *list);
    size_t n = 0;

    if (m->source && m->source[0])
        list[n++] = (struct mount_option){"source", m->source};
    if (o->fs_ro)
        list[n++] = (struct mount_option){"ro", NULL};
    for (size_t i = 0; i < o->n_data; i++) {
        char *word = xstrdup(o->data[i]);
        char *eq = strchr(word, '=');
        if (eq)
            *eq++ = '\0';
        list[n++] = (struct mount_option){word, eq}; /* freed with this short-lived process */
    }
    scoped_fd int fd = mount_new(m->type, list, n, MOUNT_ATTR_NODEV | (o->set & MOUNT_ATTR_RDONLY), e);
    free(list);
    if (fd < 0)
        return err_wrap(e, fd, "rootfs %s", m->source ? m->source : "");
    int r =
        mount_change(fd, &(struct mount_change){.propagation = MS_PRIVATE, .user_ns = whole_ns(p->pod, o)});
    if (r < 0)
        return cannot_idmap(fd, m->source ? m->source : m->type, r, e);
    s->mount = take_fd(fd);
    s->read_only = o->fs_ro;
    return 0;
}

/* No snapshot: root.path of the configuration, absolute or relative to the bundle. */
static int open_path(const struct launch_params *p, struct root_source *s, struct err *e)
{
    const char *path = p->spec->root_path;

    if (!path || !path[0])
        return err_set(e, -EINVAL, "root.path is missing");
    scoped_free char *full = path[0] == '/' ? xstrdup(path) : xasprintf("%s/%s", p->bundle, path);
    s->mount = clone_for(p->pod->ids_given ? -1 : p->pod->user_ns, full, true, e);
    return s->mount < 0 ? err_wrap(e, s->mount, "root.path") : 0;
}

int root_source_open(const struct launch_params *p, struct root_source *ret, struct err *e)
{
    struct root_source s = {.mount = -1};

    if (p->n_rootfs == 0) {
        int r = open_path(p, &s, e);
        if (r == 0)
            *ret = s;
        return r;
    }
    if (p->n_rootfs > 1)
        return err_set(e, -EINVAL, "rootfs: %zu stacked mounts are not supported; one is", p->n_rootfs);

    const struct launch_mount *m = &p->rootfs[0];
    struct mountopt o; /* its words stay referenced by s.options, so it lives as long as the launcher */
    int r = mountopt_parse(m->options, m->n_options, "rootfs", &o, e);
    if (r < 0)
        return r;
    if (m->target && m->target[0])
        r = err_set(e, -EINVAL, "rootfs: a single mount with target \"%s\"", m->target);
    else if (o.bind || strcmp(m->type, "bind") == 0) {
        s.read_only = o.fs_ro;
        r = s.mount = clone_for(whole_ns(p->pod, &o), m->source, true, e);
    } else if (strcmp(m->type, "overlay") == 0)
        r = overlay_source_open(p, &o, &s, e);
    else
        r = open_other(p, m, &o, &s, e);
    if (r < 0)
        return r;
    *ret = s;
    return 0;
}
