/*
 * probe WHAT N: nanoseconds of one system call, or of one TCP connection, as the median of N inside a
 * container.  Static, so that nothing but the calls themselves is in the way.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct sockaddr_in address = {.sin_family = AF_INET};
static int listener;

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            close(fd);
    }
    return NULL;
}

static void start_server(void)
{
    socklen_t len = sizeof address;
    pthread_t thread;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(listener >= 0, "socket");
    must(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    must(listen(listener, 128) == 0, "listen");
    must(getsockname(listener, (struct sockaddr *)&address, &len) == 0, "getsockname");
    must(pthread_create(&thread, NULL, serve, NULL) == 0, "pthread_create");
}

static int64_t do_getpid(void)
{
    int64_t began = now();
    syscall(SYS_getpid);
    return now() - began;
}
/* Answered by the supervisor: what it tells is the pod's memory, not the machine's. */
static int64_t do_sysinfo(void)
{
    struct sysinfo info;
    int64_t began = now();
    must(sysinfo(&info) == 0, "sysinfo");
    return now() - began;
}
static int64_t do_socket(void)
{
    int64_t began = now();
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int64_t took = now() - began;
    must(fd >= 0, "socket");
    close(fd);
    return took;
}
/* The connect alone; resets on close, so that 100,000 of them leave no port in TIME_WAIT. */
static int64_t do_connect(void)
{
    struct linger reset = {.l_onoff = 1};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0, "socket");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    int64_t began = now();
    int r = connect(fd, (struct sockaddr *)&address, sizeof address);
    int64_t took = now() - began;
    must(r == 0, "connect");
    close(fd);
    return took;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int64_t (*fn)(void);
    } all[] = {
        {"getpid", do_getpid}, {"sysinfo", do_sysinfo}, {"socket", do_socket}, {"connect", do_connect}};
    size_t n = argc == 3 ? (size_t)atol(argv[2]) : 0;
    int64_t *took = calloc(n + 1, sizeof *took);

    for (size_t i = 0; n > 0 && took && i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(argv[1], all[i].name) != 0)
            continue;
        if (all[i].fn == do_connect)
            start_server();
        for (size_t k = 0; k < n; k++)
            took[k] = all[i].fn();
        qsort(took, n, sizeof *took, by_size);
        printf("%s %lld\n", argv[1], (long long)took[n / 2]);
        return 0;
    }
    fprintf(stderr, "usage: probe getpid|sysinfo|socket|connect N\n");
    return 2;
}
