#pragma once
/*
 * System calls for which glibc 2.36 has no wrapper, and the few combinations of mount calls that every
 * builder needs.  Nothing here knows what it is used for.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * fork() by clone3 with namespace flags.  0 in the child; the pid in the parent; -errno on failure.
 * exit_signal must be 0 with CLONE_PARENT (the kernel then takes the caller's own).  cgroup_fd: -1 or
 * a v2 directory (CLONE_INTO_CGROUP).  ret_pidfd may be NULL.
 */
pid_t sys_fork(uint64_t flags, int exit_signal, int cgroup_fd, int *ret_pidfd);
/* A descriptor or -errno; O_CLOEXEC is added. */
int sys_openat2(int dir, const char *path, int flags, uint64_t resolve);
/*
 * Ids of this process alone.  glibc's wrappers signal every thread they know of, and after a raw clone3
 * they still know the parent's.  0 or -errno.
 */
int sys_setgroups(size_t n, const uint32_t *groups);
int sys_setresuid(uint32_t uid);
int sys_setresgid(uint32_t gid);
int sys_pivot_root_here(void); /* pivot_root(".", ".") and detach the old root; 0 or -errno */
int sys_seccomp(unsigned op, unsigned flags, void *arg); /* >= 0 or -errno */
/* Closes every descriptor >= 3 that is not in keep (sorted in place; -1 entries are fine). */
void sys_close_others(int *keep, size_t n);

/* The magic of the file system of fd, 0 when it cannot be told. */
long sys_fs_magic(int fd);
/* A name for it, "unknown (0x...)" in buf otherwise. */
const char *sys_fs_name(long magic, char *buf, size_t size);

/* Propagation is always set: a clone of a shared mount would stay in its peer group. */
struct mount_change {
    uint64_t set, clear;  /* MOUNT_ATTR_* */
    uint64_t propagation; /* MS_PRIVATE or MS_SLAVE; 0 = leave */
    int user_ns;          /* idmap with it; -1 = no */
    bool recursive;
};
int mount_change(int fd, const struct mount_change *c); /* 0 or -errno */
/* open_tree clone of dir/path ("" = dir itself). A descriptor or -errno. */
int mount_clone(int dir, const char *path, bool recursive);
/* Attach a detached mount onto the object held by target. 0 or -errno. */
int mount_attach(int mount, int target);

/* fsopen ... fsmount with string options {key, value} (value NULL = flag). A descriptor or -errno, e names
 * the option. */
struct mount_option {
    const char *key, *value;
};
int mount_new(const char *type, const struct mount_option *options, size_t n, uint64_t attr, struct err *e);
int mount_create(int fs, uint64_t attr,
                 struct err *e); /* FSCONFIG_CMD_CREATE and fsmount of a prepared context */
/* What the kernel wrote into the fs context ("e overlay: ..."), appended to e. */
int mount_log(int fs, int r, struct err *e, const char *what);

int sys_write_text(int dir, const char *path,
                   const char *text); /* one write to an existing file; 0 or -errno */
