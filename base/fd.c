#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"

#define FD_PASS_MAX 32

void fd_close(int fd)
{
    if (fd < 0)
        return;
    int saved = errno;
    (void)close(fd);
    errno = saved;
}

void fd_close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fd_close(fds[i]);
        fds[i] = -1;
    }
}

int fd_write_all(int fd, const void *buf, size_t n)
{
    const char *p = buf;

    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        if (done == 0)
            return -EPIPE;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

int fd_read_exact(int fd, void *buf, size_t n)
{
    char *p = buf;
    size_t got = 0;

    while (got < n) {
        ssize_t done = read(fd, p + got, n - got);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        if (done == 0)
            return got == 0 ? 1 : -EPIPE;
        got += (size_t)done;
    }
    return 0;
}

int fd_read_all(int fd, size_t max, char **ret, size_t *ret_len, struct err *e)
{
    max = MIN(max, SIZE_MAX / 4);
    size_t cap = MIN(max, (size_t)4096) + 1; /* one more, to see that there is more */
    size_t n = 0;
    scoped_free char *buf = malloc(cap);

    if (!buf)
        return err_set(e, -ENOMEM, "out of memory");
    for (;;) {
        ssize_t done = read(fd, buf + n, cap - n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_sys(e, "read");
        if (done == 0)
            break;
        n += (size_t)done;
        if (n > max)
            return err_set(e, -EFBIG, "larger than %zu bytes", max);
        if (n == cap) {
            size_t bigger = MIN(cap * 2, max + 1);
            char *p = realloc(buf, bigger);
            if (!p)
                return err_set(e, -ENOMEM, "out of memory");
            buf = p;
            cap = bigger;
        }
    }
    buf[n] = '\0';
    if (ret_len)
        *ret_len = n;
    *ret = take(buf);
    return 0;
}

int file_read(int dir, const char *path, size_t max, char **ret, size_t *ret_len, struct err *e)
{
    scoped_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open %s", path);
    int r = fd_read_all(fd, max, ret, ret_len, e);
    return r < 0 ? err_wrap(e, r, "%s", path) : 0;
}

int file_write(int dir, const char *path, const char *text, struct err *e)
{
    scoped_fd int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open %s", path);
    ssize_t done = write(fd, text, strlen(text));
    if (done < 0)
        return err_sys(e, "write \"%s\" to %s", text, path);
    if ((size_t)done != strlen(text))
        return err_set(e, -EIO, "write to %s: short write", path);
    return 0;
}

int file_replace(int dir, const char *path, const char *text, mode_t mode, struct err *e)
{
    scoped_free char *temp = xasprintf("%s.tmp.%d", path, (int)getpid());
    scoped_fd int fd = openat(dir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return err_sys(e, "create %s", temp);
    int r = fd_write_all(fd, text, strlen(text));
    if (r < 0) {
        (void)unlinkat(dir, temp, 0);
        return err_set(e, r, "write %s: %s", temp, strerror(-r));
    }
    if (renameat(dir, temp, dir, path) < 0) {
        r = err_sys(e, "rename %s to %s", temp, path);
        (void)unlinkat(dir, temp, 0);
        return r;
    }
    return 0;
}

int fd_set_nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -errno;
    int want = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    return want != flags && fcntl(fd, F_SETFL, want) < 0 ? -errno : 0;
}

int fd_set_cloexec(int fd, bool on)
{
    return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

int fd_send_msg(int sock, const void *buf, size_t n, const int *fds, size_t n_fds)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (n_fds > FD_PASS_MAX)
        return -E2BIG;
    if (n_fds > 0) {
        memset(&control, 0, sizeof control);
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
    }
    for (;;) {
        ssize_t done = sendmsg(sock, &msg, MSG_NOSIGNAL);
        if (done >= 0)
            return (size_t)done == n ? 0 : -EMSGSIZE;
        if (errno != EINTR)
            return -errno;
    }
}

static size_t collect_fds(struct msghdr *msg, int *fds, size_t room, bool *overflow)
{
    size_t n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (n < room) {
                fds[n++] = fd;
            } else {
                fd_close(fd);
                *overflow = true;
            }
        }
    }
    return n;
}

int fd_recv_msg(int sock, void *buf, size_t size, size_t *ret_n, int *fds, size_t *n_fds)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    bool overflow = false;
    ssize_t done;

    msg.msg_control = control.bytes;
    msg.msg_controllen = sizeof control.bytes;
    do {
        done = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    } while (done < 0 && errno == EINTR);
    if (done < 0)
        return -errno;

    size_t room = n_fds ? *n_fds : 0;
    size_t n = collect_fds(&msg, fds, room, &overflow);
    if (overflow || msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        fd_close_all(fds, n);
        return -EMSGSIZE;
    }
    if (n_fds)
        *n_fds = n;
    *ret_n = (size_t)done;
    return done == 0 && n == 0 ? 1 : 0;
}

int parse_u64(const char *text, uint64_t max, uint64_t *ret)
{
    char *end = NULL;

    if (!text || text[0] < '0' || text[0] > '9')
        return -EINVAL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno)
        return -errno;
    if (*end)
        return -EINVAL;
    if (value > max)
        return -ERANGE;
    *ret = value;
    return 0;
}
