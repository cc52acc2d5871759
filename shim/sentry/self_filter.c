/*
 * What the sentry itself may ask the kernel for.  It reads bytes that hostile programs wrote; if one of
 * them takes it over, this list and its user namespace are all there is to attack with.  No file can be
 * opened, no program started, no memory made executable, no namespace entered.
 */
#include <errno.h>
#include <linux/seccomp.h>
#include <linux/types.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/filter/condition.h"
#include "shim/sentry/process.h"

/* clang-format off */
#define NOTIF(nr, size, dir) (((uint32_t)(dir) << 30) | ((uint32_t)(size) << 16) | ('!' << 8) | (nr))
static const uint32_t ioctls[] = {
    (uint32_t)SECCOMP_IOCTL_NOTIF_RECV, (uint32_t)SECCOMP_IOCTL_NOTIF_SEND, (uint32_t)SECCOMP_IOCTL_NOTIF_ID_VALID,
    (uint32_t)SECCOMP_IOCTL_NOTIF_ADDFD, NOTIF(4, 8, 1), /* SET_FLAGS, 6.6 */
};
static const uint32_t families[] = {2, 10, 16}, options[] = {3, 21, 39}; /* TYPE SNDTIMEO DOMAIN */
static const uint32_t futex_ops[] = {0, 1, 9, 10}, fcntls[] = {3};       /* WAIT WAKE *_BITSET; GETFL */
static const uint32_t advice[] = {4}, clocks[] = {1}, masks[] = {0, 1, 2};
static const uint32_t pidfd_flags[] = {0, 0x80}, seeks[] = {0, 1};
static const struct rule_case
    ioctl_cases[] = {NATIVE(IN(1, ioctls))},
    socket_cases[] = {NATIVE(IN(0, families))},
    getsockopt_cases[] = {NATIVE(IS(1, 1), IN(2, options))},
    futex_cases[] = {NATIVE(IN_MASK(1, ~0x180U, futex_ops))},
    fcntl_cases[] = {NATIVE(IN(1, fcntls))},
    mmap_cases[] = {NATIVE(BITS64(2, 0x3), BITS64(3, 0x2 | 0x20 | 0x4000 | 0x20000))}, /* PRIVATE ANON NORESERVE STACK */
    mprotect_cases[] = {NATIVE(BITS64(2, 0x3))},
    madvise_cases[] = {NATIVE(IN(2, advice))},
    clone_cases[] = {NATIVE(IS64(0, 0x3d0f00))}, /* a thread as glibc makes it */
    timer_cases[] = {NATIVE(IN(0, clocks))},
    sigmask_cases[] = {NATIVE(IN(0, masks))},
    pidfd_cases[] = {NATIVE(IN(1, pidfd_flags))},
    pidfd_getfd_cases[] = {NATIVE(IS(2, 0))},
    accept_cases[] = {NATIVE(IS(3, 0x80800))}, /* CLOEXEC NONBLOCK */
    mremap_cases[] = {NATIVE(BITS64(3, 0x1))}, /* MAYMOVE: realloc() of large pieces */
    lseek_cases[] = {NATIVE(IN(2, seeks))};
#define PLAIN(sys)   [SYS_##sys] = {.how = RULE_NATIVE}
#define ONLY(sys, c) [SYS_##sys] = {.how = RULE_NATIVE, .cases = c##_cases, .n_cases = ARRAY_LEN(c##_cases)}
static const struct rule self[] = {
    PLAIN(read), PLAIN(write), PLAIN(pread64), PLAIN(close), PLAIN(poll), PLAIN(fstat), PLAIN(fstatfs),
    PLAIN(process_vm_readv), PLAIN(process_vm_writev), PLAIN(connect), PLAIN(bind), PLAIN(listen),
    PLAIN(sendmsg), PLAIN(recvmsg), PLAIN(munmap), PLAIN(brk), PLAIN(exit), PLAIN(exit_group),
    PLAIN(rt_sigreturn), PLAIN(set_robust_list), PLAIN(rseq), PLAIN(gettid), PLAIN(sched_getaffinity), PLAIN(sysinfo),
    PLAIN(clock_gettime), PLAIN(timer_settime), PLAIN(timer_delete), PLAIN(restart_syscall),
    PLAIN(getrandom),
    ONLY(accept4, accept), ONLY(mremap, mremap),
    ONLY(ioctl, ioctl), ONLY(socket, socket), ONLY(getsockopt, getsockopt), ONLY(futex, futex), ONLY(fcntl, fcntl),
    ONLY(mmap, mmap), ONLY(mprotect, mprotect), ONLY(madvise, madvise), ONLY(clone, clone), ONLY(timer_create, timer),
    ONLY(rt_sigprocmask, sigmask), ONLY(pidfd_open, pidfd), ONLY(pidfd_getfd, pidfd_getfd), ONLY(lseek, lseek),
    PLAIN(tkill), PLAIN(tgkill),
    [SYS_clone3] = {.how = RULE_DENY, .error = ENOSYS}, /* flags in memory; glibc falls back to clone */
    [SYS_membarrier] = {.how = RULE_DENY, .error = ENOSYS},
};
/* clang-format on */

int sentry_filter_install(struct err *e)
{
    scoped_free struct sock_filter *program = xcalloc(FILTER_MAX, sizeof *program);
    size_t n;

    int r = filter_build_strict(self, ARRAY_LEN(self), program, FILTER_MAX, &n, e);
    if (r < 0)
        return r;
    struct sock_fprog prog = {.len = (unsigned short)n, .filter = program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(e, "no_new_privs");
    if (!SENTRY_SANITIZED &&
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) != 0)
        return err_sys(e, "install the sentry's filter");
    return 0;
}
