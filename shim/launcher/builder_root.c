/* The root file system and the mounts that come from elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/strbuf.h"
#include "shim/launcher/build.h"
#include "shim/launcher/inroot.h"
#include "shim/launcher/pod.h"
#include "shim/launcher/sys.h"
#include "shim/oci/spec.h"

/* ---- overlay ------------------------------------------------------------------------------------ */

static int give_dir(int fs, const struct root_source *s, const char *key, const struct layer_dir *d,
                    struct err *e)
{
    scoped_fd int fd = openat(s->trees[d->tree], d->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "layer %s", d->path);
    return fsconfig(fs, FSCONFIG_SET_FD, key, NULL, fd) < 0 ? mount_log(fs, -errno, e, key) : 0;
}

static int give_options(int fs, const struct root_source *s, struct err *e)
{
    for (size_t i = 0; i < s->n_options; i++) {
        scoped_free char *word = xstrdup(s->options[i]);
        char *eq = strchr(word, '=');
        if (eq)
            *eq++ = '\0';
        int r = eq ? fsconfig(fs, FSCONFIG_SET_STRING, word, eq, 0)
                   : fsconfig(fs, FSCONFIG_SET_FLAG, word, NULL, 0);
        if (r < 0)
            return mount_log(fs, -errno, e, word);
    }
    return 0;
}

/*
 * Linux >= 6.13 takes layers as descriptors, >= 6.15 ones that are attached nowhere.  1: this kernel
 * does not (EINVAL: no such option; EOPNOTSUPP: no descriptors), use the old way.
 */
static int overlay_by_fd(const struct root_source *s, const char *label, int *ret, struct err *e)
{
    scoped_fd int fs = fsopen("overlay", FSOPEN_CLOEXEC);
    if (fs < 0)
        return err_sys(e, "file system overlay");

    (void)fsconfig(fs, FSCONFIG_SET_STRING, "source", "overlay", 0);
    for (size_t i = 0; i < s->n_lower; i++) {
        int r = give_dir(fs, s, "lowerdir+", &s->lower[i], e);
        if ((r == -EINVAL || r == -EOPNOTSUPP) && i == 0)
            return 1;
        if (r < 0)
            return r;
    }
    int r = s->upper.path ? give_dir(fs, s, "upperdir", &s->upper, e) : 0;
    if (r == 0 && s->work.path)
        r = give_dir(fs, s, "workdir", &s->work, e);
    if (r == 0)
        r = give_options(fs, s, e);
    if (r == 0 && label && fsconfig(fs, FSCONFIG_SET_STRING, "context", label, 0) < 0)
        r = mount_log(fs, -errno, e, "linux.mountLabel");
    if (r < 0)
        return r;
    int fd = mount_create(fs, MOUNT_ATTR_NODEV, e);
    if (fd < 0)
        return fd == -EINVAL ? 1 : fd; /* 6.13, 6.14: detached layers are refused only here */
    *ret = fd;
    return 0;
}

/* Relative to o, where the only tree or one directory for each of several is attached: the option text has
 * one page. */
static void put_dir(struct strbuf *s, const struct root_source *root, const struct layer_dir *d)
{
    if (root->n_trees > 1)
        strbuf_printf(s, "%d/", d->tree);
    for (const char *p = d->path; *p; p++) {
        if (*p == ':' || *p == '\\' || *p == ',')
            strbuf_putc(s, '\\');
        strbuf_putc(s, *p);
    }
}

static int attach_trees(const struct root_source *s, struct err *e)
{
    scoped_fd int place = open("o", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (place < 0)
        return err_sys(e, "open o");
    if (s->n_trees > 1) {
        scoped_fd int fs =
            mount_new("tmpfs", (struct mount_option[]){{"mode", "0700"}}, 1, MOUNT_ATTR_NODEV, e);
        int r = fs < 0 ? fs : mount_attach(fs, place);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < s->n_trees; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "o/%zu", i);
        if (s->n_trees > 1 && mkdir(name, 0700) < 0)
            return err_sys(e, "mkdir %s", name);
        scoped_fd int at = open(s->n_trees > 1 ? name : "o", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int r = at < 0 ? -errno : mount_attach(s->trees[i], at);
        if (r < 0)
            return err_set(e, r, "attach layers: %s", strerror(-r));
    }
    return chdir("o") < 0 ? err_sys(e, "chdir o") : 0;
}

/* Before 6.15: attach the layers, mount(2) with paths, take the result out again, let go of the layers. */
static int overlay_by_path(struct build *b, const struct root_source *s, int *ret, struct err *e)
{
    scoped_strbuf struct strbuf o;

    strbuf_init(&o, (size_t)sysconf(_SC_PAGESIZE) - 1);
    int r = attach_trees(s, e);
    if (r < 0)
        return r;
    strbuf_puts(&o, "lowerdir=");
    for (size_t i = 0; i < s->n_lower; i++) {
        if (i)
            strbuf_putc(&o, ':');
        put_dir(&o, s, &s->lower[i]);
    }
    if (s->upper.path) {
        strbuf_puts(&o, ",upperdir=");
        put_dir(&o, s, &s->upper);
        strbuf_puts(&o, ",workdir=");
        put_dir(&o, s, &s->work);
    }
    for (size_t i = 0; i < s->n_options; i++)
        strbuf_printf(&o, ",%s", s->options[i]);
    if (b->plan->label.mount)
        strbuf_printf(&o, ",context=\"%s\"", b->plan->label.mount);
    if (o.overflow)
        return err_set(e, -E2BIG, "rootfs: %zu layers do not fit into one page of overlay options",
                       s->n_lower);
    if (mount("overlay", "../n", "overlay", MS_NODEV, o.data) < 0)
        return err_sys(e, "rootfs: overlay of %zu layers", s->n_lower);
    int fd = mount_clone(AT_FDCWD, "../n", false);
    if (fd < 0)
        return err_set(e, fd, "rootfs: clone overlay: %s", strerror(-fd));
    *ret = fd;
    if (fchdir(b->shop) < 0 || umount2("n", MNT_DETACH) < 0 || umount2("o", MNT_DETACH) < 0)
        return err_sys(e, "rootfs: let go of the layers");
    return 0;
}

static int mount_overlay(struct build *b, const struct root_source *s, int *ret, struct err *e)
{
    int r = overlay_by_fd(s, b->plan->label.mount, ret, e);

    return r > 0 ? overlay_by_path(b, s, ret, e) : r;
}

int build_root(struct build *b, struct err *e)
{
    struct root_source *s = &b->plan->root;
    scoped_fd int fd = -1;
    struct statvfs st;

    int r = 0;
    if (s->mount >= 0)
        fd = s->mount;
    else
        r = mount_overlay(b, s, &fd, e);
    if (r < 0)
        return err_wrap(e, r, "rootfs");
    /* With a file id that has no place on disk the mount succeeds, read-only, and says so only in the
     * kernel's log. */
    if (fstatvfs(fd, &st) == 0 && (st.f_flag & ST_RDONLY) && s->mount < 0 && s->upper.path && !s->read_only)
        return err_set(e, -EROFS,
                       "overlay came up read-only: upper directory not writable for the pod's id range.");
    scoped_fd int at = open(b->place, O_PATH | O_DIRECTORY | O_CLOEXEC);
    r = at < 0 ? -errno : mount_attach(fd, at);
    if (r < 0)
        return err_set(e, r, "rootfs: attach to %s: %s", b->place, strerror(-r));
    b->root = open(b->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return b->root < 0 ? err_sys(e, "rootfs: open") : 0;
}

/* ---- mount points ------------------------------------------------------------------------------- */

int build_attach(struct build *b, int mount, const char *destination, bool as_file, struct err *e)
{
    scoped_fd int at = inroot_make(b->root, destination, as_file, e);
    if (at < 0)
        return at;
    /* A link in a volume that a running container can write must not place a mount in /proc. */
    if (sys_fs_magic(at) == PROC_SUPER_MAGIC && strncmp(destination, "/proc/", 6) != 0)
        return err_set(e, -EPERM, "%s leads into /proc", destination);
    int r = mount_attach(mount, at);
    if (r == -EINVAL || r == -ENOTDIR)
        return err_set(e, -ENOTDIR,
                       as_file ? "source is a file, but %s is a directory"
                               : "source is a directory, but %s is a file",
                       destination);
    return r < 0 ? err_set(e, r, "mount on %s: %s", destination, strerror(-r)) : 0;
}

int build_attach_plain(struct build *b, int mount, const char *destination, struct err *e)
{
    scoped_fd int made = inroot_make(b->root, destination, false, e);
    if (made < 0)
        return made;
    scoped_fd int at = sys_openat2(b->root, destination, O_PATH | O_DIRECTORY | O_NOFOLLOW,
                                   RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
    if (at < 0)
        return err_set(e, at, "%s must be an ordinary directory: %s", destination, strerror(-at));
    int r = mount_attach(mount, at);
    return r < 0 ? err_set(e, r, "mount on %s: %s", destination, strerror(-r)) : 0;
}

/* An image as a volume: attached aside to take the wanted part out, since detached trees cannot be cloned
 * before 6.15. */
static int bind_overlay(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e)
{
    const struct volume *v = &entry->volume;
    const struct mount_change change = {.set = entry->opt.set | entry->opt.rec_set | MOUNT_ATTR_NODEV |
                                               MOUNT_ATTR_RDONLY,
                                        .propagation = MS_PRIVATE,
                                        .user_ns = -1};
    scoped_fd int whole = -1;

    int r = mount_overlay(b, v->overlay, &whole, e);
    if (r < 0)
        return r;
    scoped_fd int aside = openat(b->shop, "o", O_PATH | O_DIRECTORY | O_CLOEXEC);
    r = aside < 0 ? -errno : mount_attach(whole, aside);
    if (r < 0)
        return err_set(e, r, "attach an overlay aside: %s", strerror(-r));
    scoped_fd int part = sys_openat2(whole, v->below, O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    scoped_fd int clone = part < 0 ? part : mount_clone(part, "", false);
    r = clone < 0 ? clone : mount_change(clone, &change);
    if (r < 0)
        return err_set(e, r, "clone %s of an overlay: %s", v->below, strerror(-r));
    if (umount2("o", MNT_DETACH) < 0)
        return err_sys(e, "let go of an overlay");
    return build_attach(b, clone, m->destination, !v->is_dir, e);
}

int build_bind(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e)
{
    const struct volume *v = &entry->volume;
    if (v->overlay)
        return bind_overlay(b, m, entry, e);
    int r = build_attach(b, v->fd, m->destination, !v->is_dir, e);

    for (size_t i = 0; r == 0 && i < v->n_sub; i++) {
        scoped_fd int at = sys_openat2(v->fd, v->sub[i].path, O_PATH, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
        r = at < 0 ? at : mount_attach(v->sub[i].fd, at);
        if (r < 0)
            (void)err_set(e, r, "mount below %s at %s: %s", m->destination, v->sub[i].path, strerror(-r));
    }
    return r;
}
