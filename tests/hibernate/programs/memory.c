/*
 * Uses memory in every way that moving it out could get wrong, and checks it all the time: discarded,
 * moved, protected, shared by fork; threads wait in calls that a stop must not interrupt.  Ends with 0
 * after SIGUSR1; prints WRONG and ends with 9 otherwise.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1u << 20)
static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

static void wrong(const char *what)
{
    printf("WRONG: %s\n", what);
    fflush(stdout);
    _exit(9);
}

static uint32_t word(uint32_t seed, size_t i)
{
    return seed * 2654435761u + (uint32_t)i * 7 + 1;
}

static void fill(void *p, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes / 4; i++)
        ((uint32_t *)p)[i] = word(seed, i);
}

static void check(const void *p, size_t bytes, uint32_t seed, const char *what)
{
    for (size_t i = 0; i < bytes / 4; i++)
        if (((const uint32_t *)p)[i] != word(seed, i))
            wrong(what);
}

static void check_zero(const void *p, size_t bytes, const char *what)
{
    for (size_t i = 0; i < bytes / 4; i++)
        if (((const uint32_t *)p)[i])
            wrong(what);
}

static void *get(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        wrong("no memory");
    return p;
}

/* Every one returns -1 with EINTR only when a signal came, and none is sent to these threads. */
static int wait_epoll(void)
{
    struct epoll_event ev;
    int fd = epoll_create1(0), r = epoll_wait(fd, &ev, 1, 700);
    close(fd);
    return r;
}
static int wait_poll(void)
{
    return poll(NULL, 0, 300);
}
static int wait_sleep(void)
{
    struct timespec t = {.tv_nsec = 300000000};
    return nanosleep(&t, NULL);
}
static int wait_recv(void)
{
    int s[2];
    char c;
    struct timeval limit = {.tv_usec = 700000};
    socketpair(AF_UNIX, SOCK_STREAM, 0, s);
    setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int r = (int)recv(s[0], &c, 1, 0);
    int e = errno;
    close(s[0]);
    close(s[1]);
    errno = e;
    return r < 0 && errno == EAGAIN ? 0 : r;
}
static int wait_sigtimedwait(void)
{
    sigset_t set;
    struct timespec t = {.tv_nsec = 700000000};
    sigemptyset(&set);
    sigaddset(&set, SIGRTMAX);
    int r = sigtimedwait(&set, NULL, &t);
    return r < 0 && errno == EAGAIN ? 0 : r;
}

struct waiter {
    const char *name;
    int (*fn)(void);
};

static void *wait_loop(void *arg)
{
    const struct waiter *w = arg;

    while (!stop)
        if (w->fn() < 0 && errno == EINTR)
            wrong(w->name);
    return NULL;
}

static void nap(unsigned max_ms)
{
    (void)usleep(1000 * ((unsigned)rand() % max_ms + 1));
}

static void one_round(uint32_t seed, const char *keep, size_t keep_bytes)
{
    char *p = get(8 * MIB);

    fill(p, 8 * MIB, seed);
    nap(30);
    madvise(p + MIB, MIB, MADV_DONTNEED);
    check_zero(p + MIB, MIB, "a discarded page had its old content");
    nap(10);
    madvise(p + 2 * MIB, MIB, MADV_FREE);
    fill(p + 2 * MIB, MIB, seed + 1);
    char *q = mremap(p, 4 * MIB, 6 * MIB, MREMAP_MAYMOVE);
    if (q == MAP_FAILED)
        wrong("mremap");
    nap(20);
    check(q, MIB, seed, "moved memory");
    check(q + 2 * MIB, MIB, seed + 1, "memory written after MADV_FREE");
    check_zero(q + 4 * MIB, 2 * MIB, "memory that grew");
    pid_t child = fork();
    if (child == 0) {
        check(keep, keep_bytes, 99, "the child's copy");
        nap(20);
        check(q, MIB, seed, "the child's copy of moved memory");
        _exit(0);
    }
    nap(20);
    int status;
    while (waitpid(child, &status, 0) < 0)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        wrong("the child failed");
    munmap(q, 6 * MIB);
    if (q == p)
        munmap(p + 6 * MIB, 2 * MIB);
    else
        munmap(p + 4 * MIB, 4 * MIB);
}

int main(int argc, char **argv)
{
    static const struct waiter waiters[] = {{"epoll_wait: EINTR", wait_epoll},
                                            {"poll: EINTR", wait_poll},
                                            {"nanosleep: EINTR", wait_sleep},
                                            {"recv: EINTR", wait_recv},
                                            {"sigtimedwait: EINTR", wait_sigtimedwait}};
    size_t keep_bytes = (argc > 1 ? (size_t)atol(argv[1]) : 32) * MIB;
    struct sigaction act = {.sa_handler = on_signal};
    pthread_t thread;
    sigset_t set;

    sigaction(SIGUSR1, &act, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (size_t i = 0; i < sizeof waiters / sizeof waiters[0]; i++)
        pthread_create(&thread, NULL, wait_loop, (void *)&waiters[i]);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);

    char *keep = get(keep_bytes), *hidden = get(MIB), *fixed = get(MIB);
    uint32_t *shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fill(keep, keep_bytes, 99);
    fill(hidden, MIB, 77);
    fill(fixed, MIB, 55);
    fill(shared, MIB, 33);
    (void)mlock(fixed, MIB);
    mprotect(hidden, MIB, PROT_NONE);
    uint32_t seed = 1;
    for (; !stop; seed++) {
        one_round(seed, keep, keep_bytes);
        if (seed % 3)
            continue;
        check(keep, keep_bytes, 99, "memory that was never touched");
        check(fixed, MIB, 55, "locked memory");
        check(shared, MIB, 33, "shared memory");
        mprotect(hidden, MIB, PROT_READ);
        check(hidden, MIB, 77, "memory behind PROT_NONE");
        mprotect(hidden, MIB, PROT_NONE);
    }
    printf("right after %u rounds\n", seed);
    return 0;
}
