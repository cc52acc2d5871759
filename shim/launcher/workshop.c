#include "shim/launcher/workshop.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/scoped.h"
#include "shim/launcher/sys.h"

#define PLACE_BESIDE_HOST "/run/glovebox"

/* The tmpfs over `path`, as the working directory. */
static int furnish(const char *path, struct err *e)
{
    static const char *const dirs[] = {"n", "v", "o"};
    const struct mount_option options[] = {{"source", "glovebox"}, {"mode", "0700"}, {"size", "64k"}};

    if (unshare(CLONE_NEWNS) < 0)
        return err_sys(e, "new mount namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(e, "make mounts private");
    scoped_fd int fs = mount_new("tmpfs", options, ARRAY_LEN(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);
    if (fs < 0)
        return fs;
    scoped_fd int at = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = at < 0 ? -errno : mount_attach(fs, at);
    if (r < 0)
        return err_set(e, r, "attach a workshop to %s: %s", path, strerror(-r));
    if (fchdir(fs) < 0)
        return err_sys(e, "enter the workshop");
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdir(dirs[i], 0700) < 0)
            return err_sys(e, "mkdir %s", dirs[i]);
    return 0;
}

int workshop_make_empty(struct err *e)
{
    int r = furnish("/proc", e); /* any directory that surely exists */
    if (r < 0)
        return r;
    r = sys_pivot_root_here();
    if (r == -EINVAL)
        return err_set(e, r, "pivot_root: the host's root is an initramfs, which cannot be left");
    return r < 0 ? err_set(e, r, "pivot_root: %s", strerror(-r)) : 0;
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
    return furnish(PLACE_BESIDE_HOST, e);
}
