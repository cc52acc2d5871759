/*
 * Random arguments to every call that the sentry answers, from several threads, on descriptors of all
 * kinds that are opened, closed and exchanged all the time, with memory that comes and goes.
 * storm SECONDS SEED; the only result is that the sentry is still there: the last line is "alive".
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int calls[] = {SYS_socket, SYS_connect,  SYS_sendto,   SYS_sendmsg, SYS_bind,
                            SYS_listen, SYS_sendmmsg, SYS_sendfile, SYS_sysinfo, SYS_sched_getaffinity};
static char *area; /* four pages; the last one is not there */
static time_t end;
static unsigned long done;

static uint64_t next(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void scribble(uint64_t *s)
{
    char *p = area + next(s) % (3 * 4096 - 128);
    struct sockaddr_in in = {.sin_family = (sa_family_t)(next(s) % 4 ? AF_INET : next(s) % 64),
                             .sin_port = htons((uint16_t)(next(s) % 3 ? 9 : next(s))),
                             .sin_addr = {htonl(0x7f000001)}};
    switch (next(s) % 4) {
    case 0:
        memcpy(p, &in, sizeof in);
        break;
    case 1: {
        struct iovec v = {area + next(s) % (4 * 4096), next(s) % 3 ? next(s) % 5000 : next(s)};
        memcpy(p, &v, sizeof v);
        break;
    }
    case 2: {
        struct msghdr h = {area + next(s) % 16384,
                           (socklen_t)(next(s) % 200),
                           (struct iovec *)(area + next(s) % 16384),
                           next(s) % 5 ? next(s) % 8 : next(s),
                           area + next(s) % 16384,
                           next(s) % 300,
                           0};
        memcpy(p, &h, sizeof h);
        break;
    }
    default:
        for (int i = 0; i < 64; i++)
            p[i] = (char)next(s);
    }
}

static uint64_t argument(uint64_t *s)
{
    switch (next(s) % 6) {
    case 0:
        return next(s) % 40;
    case 1:
    case 2:
        return (uint64_t)(uintptr_t)(area + next(s) % (4 * 4096));
    case 3:
        return next(s) % 200;
    case 4:
        return 1ULL << (next(s) % 64);
    default:
        return next(s);
    }
}

static void exchange(uint64_t *s)
{
    int fd = -1, a = (int)(3 + next(s) % 37);
    switch (next(s) % 9) {
    case 0:
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        break;
    case 1:
        fd = socket(AF_INET6, SOCK_DGRAM, 0);
        break;
    case 2:
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        break;
    case 3:
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        break;
    case 4:
        fd = open("/etc/passwd", O_RDONLY);
        break;
    case 5:
        fd = open("/proc/self/maps", O_RDONLY);
        break;
    case 6:
        fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, 0);
        break;
    case 7:
        fd = open("/tmp", O_PATH);
        break;
    default:
        close(a);
        return;
    }
    if (fd >= 0 && fd != a) {
        dup2(fd, a);
        close(fd);
    }
}

static void *run(void *x)
{
    uint64_t s = (uint64_t)(uintptr_t)x * 0x9e3779b97f4a7c15 + 1;
    while (time(NULL) < end) {
        if (next(&s) % 4 == 0)
            exchange(&s);
        scribble(&s);
        uint64_t fd = next(&s) % 5 ? 3 + next(&s) % 37 : argument(&s);
        syscall(calls[next(&s) % (sizeof calls / sizeof calls[0])], fd, argument(&s), argument(&s),
                argument(&s), argument(&s), argument(&s));
        if (next(&s) % 64 == 0) {
            mprotect(area + 4096, 4096, next(&s) % 2 ? PROT_NONE : PROT_READ | PROT_WRITE);
            mprotect(area + 4096, 4096, PROT_READ | PROT_WRITE);
        }
        __atomic_add_fetch(&done, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void nothing(int signal)
{
    (void)signal;
}

int main(int argc, char **argv)
{
    uintptr_t seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    pthread_t t[4];
    struct sigaction sa = {.sa_handler = nothing}; /* no SA_RESTART: blocked calls end */
    struct itimerval often = {{0, 100000}, {0, 100000}};

    end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 5);
    area = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(area + 3 * 4096, 4096);
    sigaction(SIGALRM, &sa, NULL);
    sigaction(SIGSEGV, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    for (int round = 0; round < 3; round++) { /* processes that die in the middle of calls */
        if (fork() == 0) {
            setitimer(ITIMER_REAL, &often, NULL);
            for (uintptr_t i = 0; i < 4; i++)
                pthread_create(&t[i], NULL, run, (void *)(seed * 100 + (uintptr_t)round * 10 + i));
            while (time(NULL) < end - 1)
                usleep(10000);
            fprintf(stderr, "%lu calls\n", done);
            kill(getpid(), SIGKILL);
        }
    }
    while (wait(NULL) > 0)
        ;
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    puts(s >= 0 ? "alive" : "dead");
    return s < 0;
}
