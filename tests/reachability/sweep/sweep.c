/*
 * Tries every system call number and many argument combinations, each harmless, and prints what it
 * tried: `NR A0 A1 A2 A3 A4 A5 RESULT`.  An outside observer (oracle.py) knows by the name of the
 * process which of them the host's kernel really ran.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME        "gbsweep"
#define PATIENCE_MS 200
#define LAST_NUMBER 1023
#define LEN(a)      (sizeof(a) / sizeof((a)[0]))

struct attempt {
    long nr, arg[6];
};

static void print_attempt(const struct attempt *a, long result)
{
    printf("%ld", a->nr);
    for (int i = 0; i < 6; i++)
        printf(" %lx", (unsigned long)a->arg[i]);
    printf(" %ld\n", result);
}

static long call(const struct attempt *a)
{
    long r = syscall(a->nr, a->arg[0], a->arg[1], a->arg[2], a->arg[3], a->arg[4], a->arg[5]);
    return r < 0 ? -errno : r;
}

/* One attempt in a child of its own: it may end, block or damage the caller. */
static void try_alone(const struct attempt *a)
{
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_NAME, NAME);
        call(a);
        _exit(0);
    }
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int ended = pidfd >= 0 ? poll(&p, 1, PATIENCE_MS) : 0;
    if (pidfd < 0)
        usleep(PATIENCE_MS * 1000);
    if (ended <= 0)
        kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (pidfd >= 0)
        close(pidfd);
    print_attempt(a, WIFSIGNALED(status) ? -1000 - WTERMSIG(status) : 0);
}

/* Many attempts in one child, which only prints after it has taken its own name off again. */
static void try_together(const struct attempt *a, size_t n)
{
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        long *result = calloc(n, sizeof *result);
        prctl(PR_SET_NAME, NAME);
        for (size_t i = 0; i < n; i++)
            result[i] = call(&a[i]);
        prctl(PR_SET_NAME, "done");
        for (size_t i = 0; i < n; i++) {
            print_attempt(&a[i], result[i]);
            if ((a[i].nr == SYS_socket) && result[i] >= 0)
                close((int)result[i]);
        }
        (void)fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        printf("# a batch of %zu ended with status %d\n", n, status);
}

static void every_number(void)
{
    for (long nr = 0; nr <= LAST_NUMBER; nr++) {
        struct attempt zero = {.nr = nr}, ones = {.nr = nr, .arg = {-1, -1, -1, -1, -1, -1}};
        if (nr == SYS_rt_sigreturn || nr == SYS_exit || nr == SYS_exit_group || nr == SYS_write ||
            nr == SYS_prctl)
            continue;
        try_alone(&zero);
        if (nr != SYS_kill && nr != SYS_clone && nr != SYS_vfork && nr != SYS_fork)
            try_alone(&ones);
    }
}

static void socket_triples(void)
{
    static const int types[] = {0, 1, 2, 3, 4, 5, 6, 10},
                     protocols[] = {0, 1, 2, 6, 17, 33, 58, 132, 136, 255, 262, 0x7fff};
    static struct attempt a[LEN(types) * LEN(protocols)];

    for (int family = -1; family < 64; family++) {
        size_t n = 0;
        for (size_t t = 0; t < LEN(types); t++)
            for (size_t p = 0; p < LEN(protocols); p++)
                a[n++] = (struct attempt){SYS_socket, {family, types[t], protocols[p]}};
        try_together(a, n);
    }
}

static void socket_options(long nr)
{
    static const int levels[] = {-1,  0,   1,   2,   6,   17,  41,  58,  132, 136, 255, 263, 264, 268,
                                 270, 271, 272, 273, 274, 276, 279, 280, 281, 282, 283, 284, 285, 286};
    static struct attempt a[256];

    for (size_t l = 0; l < LEN(levels); l++) {
        for (long o = 0; o < 256; o++)
            a[o] = (struct attempt){nr, {-1, levels[l], o, 0, 4}};
        try_together(a, 256);
    }
}

/* fcntl, prctl, madvise, futex, ...: `nr` with register `reg` running over first..last; a bad descriptor or
 * address elsewhere. */
static void range(long nr, int reg, long first, long last, struct attempt base)
{
    static struct attempt a[4096];
    size_t n = 0;

    base.nr = nr;
    for (long v = first; v <= last && n < LEN(a); v++) {
        a[n] = base;
        a[n++].arg[reg] = v;
    }
    try_together(a, n);
}

static void single_bits(long nr, int reg, struct attempt base)
{
    struct attempt a[64];

    base.nr = nr;
    for (int bit = 0; bit < 64; bit++) {
        a[bit] = base;
        a[bit].arg[reg] |= (long)(1UL << bit);
    }
    try_together(a, 64);
}

static void clone_bits(void)
{
    /* A null stack with CLONE_VM would crash the child, so every flag goes alone, each with an exit signal
     * that ends it. */
    for (int bit = 8; bit < 32; bit++) {
        struct attempt a = {.nr = SYS_clone, .arg = {(long)(1UL << bit)}};
        if ((1UL << bit) == CLONE_VM || (1UL << bit) == CLONE_VFORK)
            continue;
        try_alone(&a);
    }
}

int main(void)
{
    const struct attempt bad_fd = {.arg = {-1}}, nothing = {0};

    prctl(PR_SET_NAME, "done");
    every_number();
    socket_triples();
    socket_options(SYS_setsockopt);
    socket_options(SYS_getsockopt);
    range(SYS_fcntl, 1, 0, 64, bad_fd);
    range(SYS_fcntl, 1, 1020, 1060, bad_fd);
    range(SYS_ioctl, 1, 0x5400, 0x54ff, bad_fd);
    range(SYS_ioctl, 1, 0x8900, 0x89ff, bad_fd);
    range(SYS_ioctl, 1, 0x5700, 0x57ff, bad_fd);
    range(SYS_ioctl, 1, 0xb700, 0xb70f, bad_fd);
    range(SYS_madvise, 2, 0, 120, nothing);
    range(SYS_futex, 1, 0, 15, nothing);
    range(SYS_futex, 1, 128, 128 + 15, nothing);
    range(SYS_prctl, 0, 59, 90, nothing);
    range(SYS_timer_create, 0, -8, 12, nothing);
    range(SYS_timerfd_create, 0, -8, 12, (struct attempt){.arg = {0, -1}});
    range(SYS_shmctl, 1, 0, 40, bad_fd);
    range(SYS_seccomp, 0, 0, 16, (struct attempt){.arg = {0, ~0L}});
    single_bits(SYS_mmap, 3, (struct attempt){.arg = {0, 0, 0, 0, -1}});
    single_bits(SYS_mprotect, 2, nothing);
    single_bits(SYS_mremap, 3, (struct attempt){.arg = {1}});
    single_bits(SYS_sendto, 3, bad_fd);
    single_bits(SYS_recvfrom, 3, bad_fd);
    single_bits(SYS_sendmsg, 2, bad_fd);
    single_bits(SYS_recvmsg, 2, bad_fd);
    single_bits(SYS_pipe2, 1, nothing);
    single_bits(SYS_accept4, 3, bad_fd);
    single_bits(SYS_memfd_create, 1, nothing);
    single_bits(SYS_renameat2, 4, bad_fd);
    single_bits(SYS_timerfd_settime, 1, bad_fd);
    single_bits(SYS_close_range, 2, (struct attempt){.arg = {-1, 0}});
    single_bits(SYS_unshare, 0, nothing);
    clone_bits();
    return 0;
}
