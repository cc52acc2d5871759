#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static long result(long r)
{
    return r < 0 ? -errno : r;
}

long run_syscall(const struct probe *p)
{
    return result(syscall(p->arg[0], p->arg[1], p->arg[2], p->arg[3], p->arg[4], p->arg[5], p->arg[6]));
}

long run_socket(const struct probe *p)
{
    long r = result(socket((int)p->arg[0], (int)p->arg[1], (int)p->arg[2]));

    if (r >= 0)
        close((int)r);
    return r;
}

long run_setsockopt(const struct probe *p)
{
    static const int domain_default = AF_INET;
    char value[64] = {0};
    int fd = socket(p->arg[0] ? (int)p->arg[0] : domain_default, (int)p->arg[1], 0);

    if (fd < 0)
        return -errno;
    if (p->text)
        memcpy(value, p->text, strlen(p->text) + 1);
    else
        value[0] = (char)p->arg[5];
    long r = result(setsockopt(fd, (int)p->arg[2], (int)p->arg[3], value, (socklen_t)p->arg[4]));
    close(fd);
    return r;
}

long run_getsockopt(const struct probe *p)
{
    char value[256] = {0};
    socklen_t len = (socklen_t)p->arg[4];
    int fd = socket((int)p->arg[0], (int)p->arg[1], 0);

    if (fd < 0)
        return -errno;
    long r = result(getsockopt(fd, (int)p->arg[2], (int)p->arg[3], value, &len));
    close(fd);
    return r;
}

long run_open(const struct probe *p)
{
    long r = result(open(p->text, (int)p->arg[0] | O_CLOEXEC | O_NONBLOCK));

    if (r >= 0)
        close((int)r);
    return r;
}

long run_sock_ioctl(const struct probe *p)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (fd < 0)
        return -errno;
    long r = result(ioctl(fd, (unsigned long)p->arg[0], NULL));
    close(fd);
    return r;
}

long run_pty_ioctl(const struct probe *p)
{
    int value = (int)p->arg[1];
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    long r = result(ioctl(fd, (unsigned long)p->arg[0], &value));
    close(fd);
    return r;
}
