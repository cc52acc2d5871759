#include "shim/cli/kernel.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/launcher/features.h"

/* Newer than the headers we build with. */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS      SECCOMP_IOW(4, __u64)
#endif

static bool has_required(void)
{
    return features_check(NULL) == 0;
}

/* A known flag gets as far as the missing program (EFAULT); an unknown one is EINVAL. */
static bool has_wait_killable(void)
{
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;

    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, NULL) < 0 && errno == EFAULT;
}

/* The flag can only be tried on a real listener: in a child, which the filter dies with. */
static int try_sync_wake_up(void)
{
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog prog = {.len = 1, .filter = allow};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return 1;
    long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
    return fd < 0 || ioctl((int)fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP) < 0;
}

static bool has_sync_wake_up(void)
{
    int status = 1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(try_sync_wake_up());
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/*
 * The structure of clone3 grew by the field `cgroup`, its eleventh: a kernel that does not know it says
 * E2BIG, one that does finds that the value cannot be a descriptor (EINVAL).
 */
static bool has_clone_into_cgroup(void)
{
    const uint64_t args[11] = {[0] = 0x200000000ULL /* CLONE_INTO_CGROUP */, [10] = (uint64_t)1 << 40};

    return syscall(SYS_clone3, args, sizeof args) < 0 && errno != E2BIG && errno != ENOSYS;
}

static const struct {
    const char *what;
    bool (*has)(void);
} table[] = {
    {"the features a pod needs (no pod starts; see the error of its creation)", has_required},
    {"CLONE_INTO_CGROUP, 5.7 (containers join their cgroup more slowly)", has_clone_into_cgroup},
    {"SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 5.19 (signals may interrupt a brokered call)",
     has_wait_killable},
    {"SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, 6.6 (brokered calls take several times as long)", has_sync_wake_up},
};

unsigned kernel_missing(struct strbuf *out)
{
    unsigned n = 0;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].has())
            continue;
        strbuf_printf(out, "%s%s", n ? ", " : "", table[i].what);
        n++;
    }
    return n;
}
