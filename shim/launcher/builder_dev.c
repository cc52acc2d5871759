/* /dev and the file systems made fresh for the container: tmpfs, devpts, mqueue; and its terminal. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/build.h"
#include "shim/launcher/inroot.h"
#include "shim/launcher/pod.h"
#include "shim/launcher/sys.h"
#include "shim/oci/spec.h"

#define OPTIONS_MAX 32
#define TTY_GROUP   5

/*
 * The only device nodes that exist in a sandbox.  They are made, not bound, in a file system of the
 * host's user namespace: nobody in the pod can make another, and every other mount is NODEV.
 */
static const struct device {
    const char *name;
    unsigned major, minor;
} devices[] = {
    {"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};
static const struct {
    const char *name, *target;
} links[] = {
    {"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
    {"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"},
};

/* A uid= or gid= of the spec means an id of the container. */
static char *shift_id(struct build *b, const char *value, struct err *e)
{
    uint64_t id;

    if (parse_u64(value, 65535, &id) < 0) {
        (void)err_set(e, -EINVAL, "id %s is outside the pod's range 0-65535.", value);
        return NULL;
    }
    return xasprintf("%u", b->base + (uint32_t)id);
}

int build_fresh(struct build *b, const char *type, const struct spec_mount *m, const struct entry *entry,
                uint64_t attr, struct err *e)
{
    scoped_fd int fs = fsopen(type, FSOPEN_CLOEXEC);
    if (fs < 0)
        return err_sys(e, "file system %s", type);
    bool has_uid = false, has_gid = false;
    const struct mountopt *o = entry ? &entry->opt : &(struct mountopt){0};

    (void)fsconfig(fs, FSCONFIG_SET_STRING, "source", m->source && m->source[0] ? m->source : type, 0);
    for (size_t i = 0; i < o->n_data; i++) {
        scoped_free char *key = xstrdup(o->data[i]);
        char *eq = strchr(key, '=');
        if (eq)
            *eq++ = '\0';
        bool uid = strcmp(key, "uid") == 0, gid = strcmp(key, "gid") == 0;
        scoped_free char *shifted = (uid || gid) && eq ? shift_id(b, eq, e) : NULL;
        if ((uid || gid) && !shifted)
            return -EINVAL;
        has_uid |= uid;
        has_gid |= gid;
        int r = eq ? fsconfig(fs, FSCONFIG_SET_STRING, key, shifted ? shifted : eq, 0)
                   : fsconfig(fs, FSCONFIG_SET_FLAG, key, NULL, 0);
        if (r < 0)
            return mount_log(fs, -errno, e, key);
    }
    const char *label = b->plan->label.mount;
    if (label && fsconfig(fs, FSCONFIG_SET_STRING, "context", label, 0) < 0)
        return mount_log(fs, -errno, e, "linux.mountLabel");
    char id[16];
    (void)snprintf(id, sizeof id, "%u", b->base);
    if (strcmp(type, "tmpfs") == 0) {
        if (!has_uid)
            (void)fsconfig(fs, FSCONFIG_SET_STRING, "uid", id, 0);
        if (!has_gid)
            (void)fsconfig(fs, FSCONFIG_SET_STRING, "gid", id, 0);
    }
    return mount_create(fs, attr | o->set | o->rec_set, e);
}

static int attach_and_drop(struct build *b, int fd, const char *destination, struct err *e)
{
    int r = build_attach(b, fd, destination, false, e);

    fd_close(fd);
    return r;
}

int build_tmpfs(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e)
{
    if (entry->opt.tmpcopyup)
        return err_set(e, -EINVAL, "tmpcopyup is not supported");
    /* Read-only only when whatever is mounted below it has its place. */
    struct entry own = *entry;
    own.opt.set &= ~(uint64_t)MOUNT_ATTR_RDONLY;
    int fd = build_fresh(b, "tmpfs", m, &own, MOUNT_ATTR_NODEV, e);
    if (fd < 0)
        return fd;
    if (!(entry->opt.set & MOUNT_ATTR_RDONLY))
        return attach_and_drop(b, fd, m->destination, e);
    if (b->n_late_ro == ARRAY_LEN(b->late_ro))
        return err_set(e, -E2BIG, "more than %zu read-only tmpfs mounts", ARRAY_LEN(b->late_ro));
    b->late_ro[b->n_late_ro++] = fd;
    return build_attach(b, fd, m->destination, false, e);
}

int build_devpts(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e)
{
    struct entry own = *entry;
    const char *defaults[OPTIONS_MAX];
    size_t n = 0;

    if (entry->opt.n_data == 0) {
        defaults[n++] = "ptmxmode=0666";
        defaults[n++] = "mode=0620";
        defaults[n++] = "gid=5";
        own.opt.data = defaults;
        own.opt.n_data = n;
    }
    own.opt.set &= ~(uint64_t)MOUNT_ATTR_NODEV; /* its nodes are terminals */
    int fd = build_fresh(b, "devpts", m, &own, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, e);
    if (fd < 0)
        return fd;
    (void)!fchownat(fd, "", b->base, b->base, AT_EMPTY_PATH);
    return attach_and_drop(b, fd, m->destination, e);
}

int build_mqueue(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e)
{
    /* The queues shown are those of the ipc namespace of whoever mounts. */
    if (setns(b->plan->p.pod->ipc_ns, CLONE_NEWIPC) < 0)
        return err_sys(e, "enter the pod's ipc namespace");
    int fd = build_fresh(b, "mqueue", m, entry, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);
    if (fd < 0)
        return fd;
    (void)!fchownat(fd, "", b->base, b->base, AT_EMPTY_PATH); /* made with the namespace, by host root */
    return attach_and_drop(b, fd, m->destination, e);
}

/* ---- /dev --------------------------------------------------------------------------------------- */

static int make_node(struct build *b, const struct device *d, uint32_t mode, uint32_t uid, uint32_t gid,
                     struct err *e)
{
    if (uid > 65535 || gid > 65535)
        return err_set(e, -EINVAL, "linux.devices: id %u is outside the pod's range 0-65535.",
                       uid > 65535 ? uid : gid);
    (void)unlinkat(b->dev, d->name, 0);
    if (mknodat(b->dev, d->name, S_IFCHR | (mode & 0777), makedev(d->major, d->minor)) < 0)
        return err_sys(e, "device node %s", d->name);
    if ((uid || gid) && fchownat(b->dev, d->name, b->base + uid, b->base + gid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, "owner of device node %s", d->name);
    return 0;
}

static int make_spec_device(struct build *b, const struct spec_device *s, struct err *e)
{
    const char *name = strncmp(s->path, "/dev/", 5) == 0 ? s->path + 5 : NULL;

    for (size_t i = 0; name && i < ARRAY_LEN(devices); i++)
        if (strcmp(name, devices[i].name) == 0 && (s->type == 'c' || s->type == 'u') &&
            s->major == (int64_t)devices[i].major && s->minor == (int64_t)devices[i].minor)
            return make_node(b, &devices[i], s->file_mode ? s->file_mode : 0666, s->uid, s->gid, e);
    return err_set(e, -EPERM, "linux.devices: %s is not among the devices of a sandbox", s->path);
}

int build_dev(struct build *b, const struct entry *entry, struct err *e)
{
    static const char *const defaults[] = {"mode=755", "size=65536k"};
    struct entry own = entry ? *entry : (struct entry){0};
    const char *words[ARRAY_LEN(defaults)] = {defaults[0], defaults[1]};

    if (own.opt.n_data == 0) {
        own.opt.data = words;
        own.opt.n_data = ARRAY_LEN(defaults);
    }
    own.opt.set &= ~(uint64_t)(MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY);
    scoped_fd int fd = build_fresh(b, "tmpfs", &(struct spec_mount){.source = (char[]){"tmpfs"}}, &own,
                                   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, e);
    if (fd < 0)
        return err_wrap(e, fd, "/dev");
    int r = build_attach_plain(b, fd, "/dev", e);
    if (r < 0)
        return r;
    b->dev = take_fd(fd);
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
        r = make_node(b, &devices[i], 0666, 0, 0, e);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < ARRAY_LEN(links); i++)
        if (symlinkat(links[i].target, b->dev, links[i].name) < 0)
            return err_sys(e, "link /dev/%s", links[i].name);
    for (size_t i = 0; i < b->plan->p.spec->n_devices; i++) {
        r = make_spec_device(b, &b->plan->p.spec->devices[i], e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- terminal ----------------------------------------------------------------------------------- */

int build_terminal(struct build *b, struct err *e)
{
    int unlock = 0;
    scoped_fd int pts = inroot_open(b->root, "/dev/pts");
    if (pts < 0)
        return err_set(e, pts, "process.terminal needs a devpts mount at /dev/pts: %s", strerror(-pts));
    scoped_fd int master = openat(pts, "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
        return err_sys(e, "process.terminal: open /dev/pts/ptmx");
    scoped_fd int tty = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (tty < 0)
        return err_sys(e, "process.terminal: open the terminal");
    unsigned number;
    char name[16];
    if (ioctl(master, TIOCGPTN, &number) < 0)
        return err_sys(e, "process.terminal: number");
    (void)snprintf(name, sizeof name, "%u", number);
    scoped_fd int clone = mount_clone(pts, name, false);
    if (clone < 0)
        return err_set(e, clone, "process.terminal: clone %s: %s", name, strerror(-clone));
    int r = build_attach(b, clone, "/dev/console", true, e);
    if (r < 0)
        return err_wrap(e, r, "process.terminal");
    const struct spec_process *p = b->plan->p.process;
    struct winsize size = {.ws_row = (unsigned short)p->console_height,
                           .ws_col = (unsigned short)p->console_width};
    if (size.ws_row || size.ws_col)
        (void)ioctl(master, TIOCSWINSZ, &size);
    b->console = take_fd(master);
    b->tty = take_fd(tty);
    return 0;
}
