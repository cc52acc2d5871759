#include "shim/launcher/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/scoped.h"

pid_t sys_fork(uint64_t flags, int exit_signal, int cgroup_fd, int *ret_pidfd)
{
    int pidfd = -1;
    struct clone_args args = {.flags = flags, .exit_signal = (uint64_t)exit_signal};

    if (ret_pidfd) {
        args.flags |= CLONE_PIDFD;
        args.pidfd = (uint64_t)(uintptr_t)&pidfd;
    }
    if (cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup_fd;
    }
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0)
        return -errno;
    if (pid > 0 && ret_pidfd)
        *ret_pidfd = pidfd;
    return (pid_t)pid;
}

int sys_openat2(int dir, const char *path, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = resolve};
    long fd;

    /* EAGAIN: a rename or mount elsewhere raced with the scoped lookup; the kernel asks to try again. */
    for (int tries = 0; tries < 64; tries++) {
        fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno != EAGAIN && errno != EINTR)
            break;
    }
    return -errno;
}

int sys_setgroups(size_t n, const uint32_t *groups)
{
    return syscall(SYS_setgroups, n, groups) < 0 ? -errno : 0;
}

int sys_setresuid(uint32_t uid)
{
    return syscall(SYS_setresuid, uid, uid, uid) < 0 ? -errno : 0;
}

int sys_setresgid(uint32_t gid)
{
    return syscall(SYS_setresgid, gid, gid, gid) < 0 ? -errno : 0;
}

int sys_pivot_root_here(void)
{
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        return -errno;
    /* "." is now the old root, on top of the new one. */
    if (umount2(".", MNT_DETACH) < 0)
        return -errno;
    return chdir("/") < 0 ? -errno : 0;
}

int sys_seccomp(unsigned op, unsigned flags, void *arg)
{
    long r = syscall(SYS_seccomp, op, flags, arg);

    return r < 0 ? -errno : (int)r;
}

static int compare_fd(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

void sys_close_others(int *keep, size_t n)
{
    unsigned from = 3;

    qsort(keep, n, sizeof *keep, compare_fd);
    for (size_t i = 0; i < n; i++) {
        if (keep[i] < (int)from)
            continue;
        if (keep[i] > (int)from)
            (void)close_range(from, (unsigned)keep[i] - 1, 0);
        from = (unsigned)keep[i] + 1;
    }
    (void)close_range(from, ~0U, 0);
}

long sys_fs_magic(int fd)
{
    struct statfs st;

    return fstatfs(fd, &st) < 0 ? 0 : (long)st.f_type;
}

const char *sys_fs_name(long magic, char *buf, size_t size)
{
    static const struct {
        long magic;
        const char *name;
    } known[] = {
        {EXT4_SUPER_MAGIC, "ext4"},
        {XFS_SUPER_MAGIC, "xfs"},
        {BTRFS_SUPER_MAGIC, "btrfs"},
        {TMPFS_MAGIC, "tmpfs"},
        {OVERLAYFS_SUPER_MAGIC, "overlay"},
        {NFS_SUPER_MAGIC, "nfs"},
        {0x65735546, "fuse"},
        {0xFF534D42, "cifs"},
        {0xFE534D42, "smb"},
        {V9FS_MAGIC, "9p"},
        {PROC_SUPER_MAGIC, "proc"},
        {SYSFS_MAGIC, "sysfs"},
        {CGROUP_SUPER_MAGIC, "cgroup"},
        {CGROUP2_SUPER_MAGIC, "cgroup2"},
        {DEVPTS_SUPER_MAGIC, "devpts"},
        {SQUASHFS_MAGIC, "squashfs"},
        {EROFS_SUPER_MAGIC_V1, "erofs"},
        {0x858458f6, "ramfs"},
        {0x2fc12fc1, "zfs"},
        {0xCAFE4A11, "bpf"},
        {DEBUGFS_MAGIC, "debugfs"},
        {TRACEFS_MAGIC, "tracefs"},
        {SECURITYFS_MAGIC, "securityfs"},
        {0x19800202, "mqueue"},
        {HUGETLBFS_MAGIC, "hugetlbfs"},
        {NSFS_MAGIC, "nsfs"},
        {BINFMTFS_MAGIC, "binfmt_misc"},
        {PSTOREFS_MAGIC, "pstore"},
        {EFIVARFS_MAGIC, "efivarfs"},
        {0x62656570, "configfs"},
        {AUTOFS_SUPER_MAGIC, "autofs"},
        {F2FS_SUPER_MAGIC, "f2fs"},
        {CEPH_SUPER_MAGIC, "ceph"},
        {SELINUX_MAGIC, "selinuxfs"},
        {0x00c36400, "ceph"},
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].magic == magic)
            return known[i].name;
    (void)snprintf(buf, size, "unknown (0x%lx)", (unsigned long)magic);
    return buf;
}

int mount_change(int fd, const struct mount_change *c)
{
    struct mount_attr attr = {.attr_set = c->set, .attr_clr = c->clear, .propagation = c->propagation};

    if (c->user_ns >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)c->user_ns;
    }
    unsigned flags = AT_EMPTY_PATH | (c->recursive ? AT_RECURSIVE : 0);
    return mount_setattr(fd, "", flags, &attr, sizeof attr) < 0 ? -errno : 0;
}

int mount_clone(int dir, const char *path, bool recursive)
{
    unsigned flags =
        OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (recursive ? AT_RECURSIVE : 0) | (path[0] ? 0 : AT_EMPTY_PATH);
    int fd = open_tree(dir, path, flags);

    return fd < 0 ? -errno : fd;
}

int mount_attach(int mount, int target)
{
    return move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0 ? -errno
                                                                                                    : 0;
}

int mount_log(int fs, int r, struct err *e, const char *what)
{
    char line[200];
    ssize_t n = read(fs, line, sizeof line - 1); /* one message for each read; "e text\n" */

    if (n <= 2)
        return err_set(e, r, "%s: %s", what, strerror(-r));
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return err_set(e, r, "%s: %s (%s)", what, strerror(-r), line + 2);
}

int mount_create(int fs, uint64_t attr, struct err *e)
{
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return mount_log(fs, -errno, e, "create file system");
    int fd = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attr);
    return fd < 0 ? mount_log(fs, -errno, e, "make mount") : fd;
}

int mount_new(const char *type, const struct mount_option *options, size_t n, uint64_t attr, struct err *e)
{
    scoped_fd int fs = fsopen(type, FSOPEN_CLOEXEC);
    if (fs < 0)
        return err_sys(e, "file system %s", type);

    for (size_t i = 0; i < n; i++) {
        const struct mount_option *o = &options[i];
        int r = o->value ? fsconfig(fs, FSCONFIG_SET_STRING, o->key, o->value, 0)
                         : fsconfig(fs, FSCONFIG_SET_FLAG, o->key, NULL, 0);
        if (r < 0) {
            r = mount_log(fs, -errno, e, o->key);
            return err_wrap(e, r, "%s option", type);
        }
    }
    int fd = mount_create(fs, attr, e);
    return fd < 0 ? err_wrap(e, fd, "%s", type) : fd;
}

int sys_write_text(int dir, const char *path, const char *text)
{
    scoped_fd int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}
