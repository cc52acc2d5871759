#include "shim/launcher/workshop.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/scoped.h"
#include "shim/launcher/mountinfo.h"
#include "shim/launcher/sys.h"

#define PLACE_BESIDE_HOST "/run/glovebox"

static int make_tmpfs(struct err *e)
{
    static const char *const dirs[] = {"n", "v", "o"};
    const struct mount_option options[] = {{"source", "glovebox"}, {"mode", "0700"}, {"size", "64k"}};
    scoped_fd int fs = mount_new("tmpfs", options, ARRAY_LEN(options),
                                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);

    if (fs < 0)
        return fs;
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdirat(fs, dirs[i], 0700) < 0)
            return err_sys(e, "mkdir %s", dirs[i]);
    return take_fd(fs);
}

static int attach_at(int fs, const char *path, struct err *e)
{
    scoped_fd int at = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = at < 0 ? -errno : mount_attach(fs, at);

    return r < 0 ? err_set(e, r, "attach a workshop to %s: %s", path, strerror(-r)) : 0;
}

static int private_copy(struct err *e)
{
    if (unshare(CLONE_NEWNS) < 0)
        return err_sys(e, "new mount namespace");
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? err_sys(e, "make mounts private") : 0;
}

/* Entering one's own mount namespace sets root and working directory to the topmost mount on its root. */
static int go_to_top(int mnt_ns, struct err *e)
{
    return setns(mnt_ns, CLONE_NEWNS) < 0 ? err_sys(e, "enter the new mount namespace") : 0;
}

/* Everything below "/", the last mounted first. */
static int unmount_all(int self, struct err *e)
{
    scoped_mountinfo struct mountinfo m = {0};
    int r = mountinfo_read(self, &m, e);

    for (size_t i = m.n; r == 0 && i-- > 0;)
        if (strcmp(m.line[i].point, "/") != 0)
            (void)umount2(m.line[i].point, MNT_DETACH);
    return r;
}

/*
 * Not by pivot_root: below a host's root lies the rootfs of its start, and whatever an initramfs left
 * mounted there would stay in every copy of the namespace.  Nobody could reach it, but a procfs among it
 * counts as visible, and then root of a pod may mount one without our covers (mount_too_revealing()).
 * So: detach the host's root, go down to rootfs, unmount what is there, and lie on top of it.
 */
int workshop_make_empty(struct err *e)
{
    scoped_fd int self = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self < 0)
        return err_sys(e, "open /proc/self");
    int r = private_copy(e);
    if (r < 0)
        return r;
    scoped_fd int fs = make_tmpfs(e);
    if (fs < 0)
        return fs;
    scoped_fd int mnt_ns = openat(self, "ns/mnt", O_RDONLY | O_CLOEXEC);
    if (mnt_ns < 0)
        return err_sys(e, "open /proc/self/ns/mnt");
    /* EINVAL: the root is the rootfs itself, on a host that runs from its initramfs. */
    if (umount2("/", MNT_DETACH) < 0 && errno != EINVAL)
        return err_sys(e, "leave the host's root");
    r = go_to_top(mnt_ns, e);
    if (r == 0)
        r = unmount_all(self, e);
    if (r == 0)
        r = attach_at(fs, "/", e);
    return r < 0 ? r : go_to_top(mnt_ns, e);
}

int workshop_enter(int empty_mnt_ns, struct err *e)
{
    if (setns(empty_mnt_ns, CLONE_NEWNS) < 0)
        return err_sys(e, "enter the empty mount namespace");
    return unshare(CLONE_NEWNS) < 0 ? err_sys(e, "new mount namespace") : 0;
}

int workshop_enter_beside_host(struct err *e)
{
    if (mkdir(PLACE_BESIDE_HOST, 0711) < 0 && errno != EEXIST)
        return err_sys(e, "mkdir %s", PLACE_BESIDE_HOST);
    int r = private_copy(e);
    if (r < 0)
        return r;
    scoped_fd int fs = make_tmpfs(e);
    r = fs < 0 ? fs : attach_at(fs, PLACE_BESIDE_HOST, e);
    if (r < 0)
        return r;
    return fchdir(fs) < 0 ? err_sys(e, "enter the workshop") : 0;
}
