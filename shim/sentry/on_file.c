/*
 * sendfile to a socket, by copying: pages of the page cache never get into a socket buffer, where a
 * whole family of kernel bugs wrote on them.  Other pairs give EINVAL, and programs copy by themselves.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/scoped.h"
#include "shim/sentry/calls.h"

#define CHUNK_BYTES    (64 * 1024)
#define CALL_BYTES_MAX (16 * 1024 * 1024) /* callers must handle less than they asked for */

struct transfer {
    int in, out;
    bool own_offset; /* the file's position moves along (no offset argument) */
    bool wait;       /* the socket blocks */
    off_t at;
    size_t left, sent;
    uint8_t *buffer;
};

/* A file with pages, of a file system where reading does not depend on who reads: not proc, not sysfs. */
static int check_input(int fd)
{
    struct stat st;
    struct statfs fs;

    /* Not fstat(3), which is newfstatat and so takes a path: the sentry's filter has no call with paths. */
    if (syscall(SYS_fstat, fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC ||
        fs.f_type == CGROUP_SUPER_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC)
        return -EINVAL;
    int flags = fcntl(fd, F_GETFL);
    return (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH) ? -EBADF : 0;
}

static int check_output(int fd)
{
    int type;
    socklen_t len = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
        return errno == EBADF ? -EBADF : -EINVAL;
    return type == SOCK_STREAM || type == SOCK_SEQPACKET || type == SOCK_DGRAM ? 0 : -EINVAL;
}

/* Waits until the socket takes more. 0; 1: answered or to be answered with what was sent; -errno. */
static int wait_writable(struct call *call, struct transfer *t)
{
    struct pollfd p = {.fd = t->out, .events = POLLOUT};
    int r = call_park(call);
    if (r < 0)
        return r;
    while (poll(&p, 1, -1) < 0) {
        if (t->sent > 0 && call->interrupt)
            return 1;
        if (t->sent == 0 && call_interrupted(call, t->out))
            return 1;
    }
    return 0;
}

static ssize_t send_chunk(struct transfer *t, size_t n)
{
    struct iovec part = {t->buffer, n};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t done = sendmsg(t->out, &h, MSG_DONTWAIT | MSG_NOSIGNAL | (t->left > n ? MSG_MORE : 0));
    return done < 0 ? -errno : done;
}

/* 0: all sent, or the file ended; 1: stopped early on purpose; -errno. */
static int run(struct call *call, struct transfer *t)
{
    while (t->left > 0) {
        ssize_t got = pread(t->in, t->buffer, MIN(t->left, (size_t)CHUNK_BYTES), t->at);
        if (got <= 0)
            return got < 0 ? -errno : 0;
        if (!call_valid(call))
            return 1;
        ssize_t done = send_chunk(t, (size_t)got);
        if (done == -EAGAIN && t->wait) {
            int r = wait_writable(call, t);
            if (r != 0)
                return r;
            continue;
        }
        if (done < 0)
            return (int)done;
        t->sent += (size_t)done;
        t->left -= (size_t)done;
        t->at += done;
    }
    return 0;
}

static int start(struct call *call, struct transfer *t)
{
    uint64_t offset = call_arg(call, 2);

    int r = check_input(t->in);
    if (r == 0)
        r = check_output(t->out);
    if (r < 0)
        return r;
    t->own_offset = offset == 0;
    if (t->own_offset)
        t->at = lseek(t->in, 0, SEEK_CUR);
    else if (call_read(call, offset, &t->at, sizeof t->at) < 0)
        return -EFAULT;
    if (t->at < 0)
        return -EINVAL;
    t->wait = !(fcntl(t->out, F_GETFL) & O_NONBLOCK);
    t->left = MIN(call_arg(call, 3), (uint64_t)CALL_BYTES_MAX);
    return call_valid(call) ? 0 : -EINTR;
}

static void finish(struct call *call, struct transfer *t, int r)
{
    if (t->own_offset && t->sent > 0)
        (void)lseek(t->in, t->at, SEEK_SET);
    if (!t->own_offset && t->sent > 0)
        (void)call_write(call, call_arg(call, 2), &t->at, sizeof t->at);
    if (call->answered)
        return;
    if (r < 0 && t->sent == 0) {
        /* What the kernel does to a writer whose peer has gone. */
        if (r == -EPIPE && call_valid(call))
            (void)syscall(SYS_tkill, (pid_t)call->u.n.pid, SIGPIPE);
        call_fail(call, -r);
        return;
    }
    call_return(call, (int64_t)t->sent);
}

void on_sendfile(struct call *call)
{
    scoped_fd int out = call_take_fd(call, (int)call_arg(call, 0));
    scoped_fd int in = call_take_fd(call, (int)call_arg(call, 1));
    if (in < 0 || out < 0) {
        call_fail(call, in < 0 ? -in : -out);
        return;
    }
    struct transfer t = {.in = in, .out = out};
    int r = start(call, &t);
    if (r < 0) {
        call_fail(call, -r);
        return;
    }
    scoped_free uint8_t *buffer = malloc(MIN(MAX(t.left, (size_t)1), (size_t)CHUNK_BYTES));
    t.buffer = buffer;
    r = buffer ? run(call, &t) : -ENOMEM;
    finish(call, &t, r);
}
