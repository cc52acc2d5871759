/* P01-P09, P18-P20, P22-P28, P33, P34: processes, memory, files, timers, IPC. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long clone_newuser(const struct probe *p)
{
    (void)p;
    long r = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
    if (r == 0)
        _exit(0);
    if (r < 0)
        return -errno;
    waitpid((pid_t)r, NULL, 0);
    return 1;
}

/* The 32-bit system call entry of x86-64; the pointer arguments must lie below 4 GiB. */
static long int80(long nr, long a, long b)
{
    long r;
    __asm__ volatile("int $0x80"
                     : "=a"(r)
                     : "a"(nr), "b"(a), "c"(b), "d"(0L), "S"(0L), "D"(0L)
                     : "memory", "r8", "r9", "r10", "r11");
    return (int)r;
}

static long i386_getpid(const struct probe *p)
{
    (void)p;
    long r = int80(20, 0, 0);
    return r > 0 ? 1 : r;
}

static long i386_socketcall(const struct probe *p)
{
    uint32_t *args = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

    if (args == MAP_FAILED) { /* MAP_32BIT refused: a fixed low address does as well */
        args = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                    -1, 0);
        if (args == MAP_FAILED)
            return -errno;
    }
    args[0] = (uint32_t)p->arg[0];
    args[1] = SOCK_STREAM;
    args[2] = 0;
    long r = int80(102, 1, (long)args);
    if (r >= 0)
        close((int)r);
    return r;
}

static long x32_getpid(const struct probe *p)
{
    (void)p;
    long r = syscall(0x40000000L | 39);
    return r < 0 ? -errno : 1;
}

static long ns_ioctl(const struct probe *p)
{
    (void)p;
    int fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    long r = ioctl(fd, 0xb701);
    r = r < 0 ? -errno : r;
    close(fd);
    return r;
}

static long traceme(const struct probe *p)
{
    (void)p;
    pid_t child = fork();
    if (child == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 ? 0 : errno);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

static long vm_readv_self(const struct probe *p)
{
    (void)p;
    long r = syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, ~0UL);
    return r < 0 ? -errno : r;
}

static long futex_same(const struct probe *p)
{
    uint32_t word = 0;
    /* Both words are the same one, which the kernel refuses before it looks at the value. */
    struct timespec soon = {.tv_nsec = 1};
    void *fourth = p->arg[0] == (11 | 128) ? (void *)&soon : (void *)1;
    long r = syscall(SYS_futex, &word, p->arg[0], 1, fourth, &word, 0);
    return r < 0 ? -errno : r;
}

static long timer_of_clock(const struct probe *p)
{
    struct sigevent ev = {.sigev_notify = SIGEV_NONE};
    int id = -1; /* the kernel's timer_t, not glibc's pointer */
    long r = syscall(SYS_timer_create, p->arg[0], &ev, &id);
    if (r < 0)
        return -errno;
    syscall(SYS_timer_delete, id);
    return 0;
}

static long timerfd_cancel_on_set(const struct probe *p)
{
    (void)p;
    struct itimerspec t = {.it_value = {.tv_sec = 1 << 30}};
    long fd = syscall(SYS_timerfd_create, CLOCK_REALTIME, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    long r = syscall(SYS_timerfd_settime, fd, 3, &t, NULL);
    r = r < 0 ? -errno : r;
    close((int)fd);
    return r;
}

static long pipe_flags(const struct probe *p)
{
    int fd[2];
    if (pipe2(fd, (int)p->arg[0]) < 0)
        return -errno;
    close(fd[0]);
    close(fd[1]);
    return 0;
}

static long pipe_ioctl(const struct probe *p)
{
    int fd[2];
    if (pipe(fd) < 0)
        return -errno;
    long r = ioctl(fd[0], (unsigned long)p->arg[0], 0);
    r = r < 0 ? -errno : r;
    close(fd[0]);
    close(fd[1]);
    return r;
}

/* FOLL_FORCE write to an own read-only page: the write side of the Dirty COW family. */
static long mem_write(const struct probe *p)
{
    (void)p;
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (fd < 0 || page == MAP_FAILED)
        return -errno;
    long r = pwrite(fd, "x", 1, (off_t)(uintptr_t)page);
    r = r < 0 ? -errno : r;
    close(fd);
    return r;
}

static long map_with(const struct probe *p)
{
    void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (int)p->arg[0], -1, 0);
    return m == MAP_FAILED ? -errno : 0;
}

static long advise(const struct probe *p)
{
    void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED)
        return -errno;
    return madvise(m, 4096, (int)p->arg[0]) < 0 ? -errno : 0;
}

static long handle_at(const struct probe *p)
{
    (void)p;
    long r = syscall(SYS_name_to_handle_at, -1, "", NULL, NULL, ~0);
    return r < 0 ? -errno : r;
}

#define CALL(g, n, ...)      .group = g, .name = n, .run = run_syscall, .arg = {__VA_ARGS__}
#define FN(g, n, f, ...)     .group = g, .name = n, .run = f, .arg = {__VA_ARGS__}
#define PATH(g, n, t, flags) .group = g, .name = n, .run = run_open, .text = t, .arg = {flags}
#define REACHED(...)         .reached = {__VA_ARGS__}
#define BAD                  (-1L)
#define NO_PID               0x7ffffff0L

const struct probe probes_kernel[] = {
    {CALL("P01", "unshare(NEWUSER)", SYS_unshare, CLONE_NEWUSER), REACHED(PROBE_OK)},
    {CALL("P01", "unshare(NEWUSER|NEWNET)", SYS_unshare, CLONE_NEWUSER | CLONE_NEWNET), REACHED(PROBE_OK)},
    {FN("P01", "clone(NEWUSER)", clone_newuser), .key = SYS_clone, REACHED(PROBE_OK)},
    {CALL("P01", "clone3(NULL,0)", SYS_clone3, 0, 0), REACHED(EINVAL)},

    {FN("P02", "int80 getpid", i386_getpid), REACHED(PROBE_OK)},
    {FN("P02", "int80 socketcall vsock", i386_socketcall, 40),
     REACHED(PROBE_OK, EAFNOSUPPORT, EPROTONOSUPPORT, ESOCKTNOSUPPORT, EFAULT)},
    {FN("P02", "int80 socketcall alg", i386_socketcall, 38),
     REACHED(PROBE_OK, EAFNOSUPPORT, EPROTONOSUPPORT, ESOCKTNOSUPPORT, EFAULT)},
    {FN("P02", "x32 getpid", x32_getpid), REACHED(PROBE_OK)},

    {CALL("P03", "fsconfig", 431, BAD, 0, 0, 0, 0), REACHED(EINVAL, EBADF)},
    {CALL("P03", "open_tree", 428, BAD, (long)"", 0x7fffffff), REACHED(EINVAL)},
    {CALL("P03", "mount_setattr", 442, BAD, (long)"", ~0L, 0, 0), REACHED(EINVAL)},
    {CALL("P03", "umount2", SYS_umount2, (long)"/x", ~0L), REACHED(EINVAL)},
    {CALL("P03", "mount(NULL)", SYS_mount, 0, 0, 0, 0, 0), REACHED(EFAULT)},

    {CALL("P04", "setns(-1)", SYS_setns, BAD, 0), REACHED(EBADF)},
    {FN("P04", "ioctl(NS_GET_USERNS)", ns_ioctl), .key = SYS_ioctl, REACHED(PROBE_OK, EPERM)},

    {CALL("P05", "bpf", SYS_bpf, 9999, 0, 0x100000), REACHED(E2BIG)},

    {CALL("P06", "io_uring_setup", 425, 0, 0), REACHED(EFAULT)},
    {CALL("P06", "io_uring_enter", 426, BAD, 0, 0, 0, 0, 0), REACHED(EBADF)},
    {CALL("P06", "io_uring_register", 427, BAD, 0, 0, 0), REACHED(EINVAL, EBADF)},

    {CALL("P07", "keyctl(9999)", SYS_keyctl, 9999), REACHED(EOPNOTSUPP)},
    {CALL("P07", "keyctl(GET_KEYRING_ID)", SYS_keyctl, 0, -3L, 0), REACHED(PROBE_OK, ENOKEY)},
    {CALL("P07", "add_key", SYS_add_key, (long)"user", (long)"x", (long)"y", 0x200000, -1L), REACHED(EINVAL)},
    {CALL("P07", "request_key", SYS_request_key, 0, 0, 0, 0), REACHED(EFAULT)},

    {CALL("P08", "ptrace(PEEKDATA)", SYS_ptrace, 2, NO_PID, 0, 0), REACHED(ESRCH)},
    {FN("P08", "ptrace(TRACEME)", traceme), .key = SYS_ptrace, REACHED(PROBE_OK)},
    {FN("P08", "process_vm_readv", vm_readv_self), .key = SYS_process_vm_readv, REACHED(EINVAL)},
    {CALL("P08", "pidfd_getfd", 438, BAD, BAD, ~0L), REACHED(EINVAL)},
    {CALL("P08", "kcmp", SYS_kcmp, NO_PID, NO_PID, 99, 0, 0), REACHED(ESRCH)},
    {CALL("P08", "process_madvise", 440, BAD, 0, 0, 0, ~0L), REACHED(EINVAL)},

    {CALL("P09", "perf_event_open", SYS_perf_event_open, 0, 0, BAD, BAD, 0xffffffffL), REACHED(EINVAL)},

    {CALL("P18", "futex LOCK_PI", SYS_futex, 0, 6 | 128, 0, 0, 0, 0), REACHED(EFAULT)},
    {CALL("P18", "futex TRYLOCK_PI", SYS_futex, 0, 8 | 128, 0, 0, 0, 0), REACHED(EFAULT)},
    {FN("P18", "futex WAIT_REQUEUE_PI", futex_same, 11 | 128), .key = SYS_futex, REACHED(EINVAL)},
    {FN("P18", "futex CMP_REQUEUE_PI", futex_same, 12 | 128), .key = SYS_futex, REACHED(EINVAL)},
    {CALL("P18", "futex_requeue", 456, 0, ~0L, 0, 0), REACHED(EINVAL)},
    {CALL("P18", "futex_waitv", 449, 0, 0, ~0L, 0, 0), REACHED(EINVAL)},

    {FN("P19", "timer_create(PROCESS_CPUTIME)", timer_of_clock, CLOCK_PROCESS_CPUTIME_ID),
     .key = SYS_timer_create, REACHED(PROBE_OK)},
    {FN("P19", "timerfd CANCEL_ON_SET", timerfd_cancel_on_set), .key = SYS_timerfd_settime,
     REACHED(PROBE_OK)},
    {PATH("P19", "open /proc/self/timers", "/proc/self/timers", O_RDONLY), REACHED(PROBE_OK)},

    {.group = "P20", .name = "TIOCSETD 0", .run = run_pty_ioctl, .arg = {0x5423, 0}, REACHED(PROBE_OK)},
    {.group = "P20",
     .name = "TIOCSETD 13",
     .run = run_pty_ioctl,
     .arg = {0x5423, 13},
     REACHED(PROBE_OK, EINVAL)},
    {.group = "P20", .name = "TIOCSETD 99", .run = run_pty_ioctl, .arg = {0x5423, 99}, REACHED(EINVAL)},
    {.group = "P20",
     .name = "TIOCSTI",
     .run = run_pty_ioctl,
     .arg = {0x5412, 'x'},
     REACHED(PROBE_OK, EPERM, EIO)},

    {CALL("P22", "splice", SYS_splice, BAD, 0, BAD, 0, 1, ~0L), REACHED(EINVAL)},
    {CALL("P22", "splice zero flags", SYS_splice, BAD, 0, BAD, 0, 1, 0), REACHED(EBADF)},
    {CALL("P22", "vmsplice", SYS_vmsplice, BAD, 0, 0, ~0L), REACHED(EINVAL)},
    {CALL("P22", "tee", SYS_tee, BAD, BAD, 1, 0), REACHED(EBADF)},
    {CALL("P22", "sendfile", SYS_sendfile, BAD, BAD, 0, 1), REACHED(EBADF)},

    {FN("P23", "pipe2(O_EXCL)", pipe_flags, O_EXCL), .key = SYS_pipe2, REACHED(PROBE_OK, ENOPKG)},
    {FN("P23", "IOC_WATCH_QUEUE_SET_SIZE", pipe_ioctl, 0x5760), .key = SYS_ioctl,
     REACHED(PROBE_OK, EINVAL, ENODEV)},
    {FN("P23", "IOC_WATCH_QUEUE_SET_FILTER", pipe_ioctl, 0x5761), .key = SYS_ioctl,
     REACHED(PROBE_OK, EINVAL, ENODEV)},

    {CALL("P24", "userfaultfd", SYS_userfaultfd, 0x7fffffff), REACHED(EINVAL)},
    {PATH("P24", "open /dev/userfaultfd", "/dev/userfaultfd", O_RDWR), REACHED(PROBE_OK, EACCES, EPERM)},
    {PATH("P24", "open /dev/fuse", "/dev/fuse", O_RDWR), REACHED(PROBE_OK, EACCES, EPERM)},

    {FN("P26", "write through /proc/self/mem", mem_write), REACHED(PROBE_OK)},
    {FN("P26", "mmap(GROWSDOWN)", map_with, MAP_GROWSDOWN), .key = SYS_mmap, REACHED(PROBE_OK)},
    {FN("P26", "mmap(HUGETLB)", map_with, MAP_HUGETLB), .key = SYS_mmap, REACHED(PROBE_OK)},
    {CALL("P26", "remap_file_pages", SYS_remap_file_pages, 0x1000, 4096, 1, 0, 0), REACHED(EINVAL)},
    {FN("P26", "madvise(HWPOISON)", advise, 100), .key = SYS_madvise, REACHED(PROBE_OK, EPERM)},
    {FN("P26", "madvise(MERGEABLE)", advise, 12), .key = SYS_madvise, REACHED(PROBE_OK)},

    {CALL("P27", "inotify_init1", SYS_inotify_init1, 0), REACHED(PROBE_OK)},
    {CALL("P27", "fanotify_init", SYS_fanotify_init, 0x200, 0), REACHED(PROBE_OK)},
    {FN("P27", "name_to_handle_at", handle_at), .key = SYS_name_to_handle_at, REACHED(EINVAL)},
    {CALL("P27", "open_by_handle_at", SYS_open_by_handle_at, BAD, 0, 0), REACHED(EFAULT, EBADF)},

    {CALL("P28", "msgget", SYS_msgget, 0x7a7a7a7a, 0), REACHED(ENOENT)},
    {CALL("P28", "semget", SYS_semget, 0x7a7a7a7a, 0, 0), REACHED(ENOENT)},
    {CALL("P28", "shmget", SYS_shmget, 0x7a7a7a7a, 0, 0), REACHED(ENOENT)},
    {CALL("P28", "mq_open", SYS_mq_open, 0, 0, 0, 0), REACHED(EFAULT)},
    {CALL("P28", "mq_notify", SYS_mq_notify, BAD, 0), REACHED(EBADF)},
    {CALL("P28", "io_setup", SYS_io_setup, 0, 0), REACHED(EFAULT)},

    {CALL("P33", "seccomp(bad op)", SYS_seccomp, 0x7fffffff, 0, 0), REACHED(EINVAL)},
    {CALL("P33", "seccomp(FILTER, NULL)", SYS_seccomp, 1, 0, 0), REACHED(EFAULT)},

    {CALL("P34", "modify_ldt", SYS_modify_ldt, 0, 0, 0), REACHED(PROBE_OK)},
    {CALL("P34", "personality(PER_LINUX32)", SYS_personality, 0x0440000), REACHED(PROBE_OK)},
    {CALL("P34", "memfd_secret", 447, ~0L), REACHED(EINVAL)},
    {CALL("P34", "mbind", SYS_mbind, 0, 0, 0xffff, 0, 0, ~0L), REACHED(EINVAL)},
    {CALL("P34", "migrate_pages", SYS_migrate_pages, NO_PID, 0, 0, 0), REACHED(ESRCH, PROBE_OK)},
    {CALL("P34", "move_pages", SYS_move_pages, NO_PID, 0, 0, 0, 0, 0), REACHED(ESRCH)},
    {CALL("P34", "swapon", SYS_swapon, 0, ~0L), REACHED(EINVAL, EFAULT)},
    {CALL("P34", "quotactl", SYS_quotactl, 0x7fffff00, 0, 0, 0), REACHED(EINVAL, ENODEV, EFAULT)},
};
const size_t probes_kernel_n = sizeof probes_kernel / sizeof probes_kernel[0];
