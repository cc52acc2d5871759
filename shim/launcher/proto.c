#include "shim/launcher/proto.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

int msg_send(int sock, const struct msg *m, const int *fds, size_t n_fds)
{
    return fd_send_msg(sock, m, sizeof *m, fds, n_fds);
}

int msg_write(int sock, const struct msg *m)
{
    ssize_t n = write(sock, m, sizeof *m);

    return n == (ssize_t)sizeof *m ? 0 : n < 0 ? -errno : -EMSGSIZE;
}

static int wait_readable(int sock, int pidfd, int timeout_ms)
{
    struct pollfd p[] = {{.fd = sock, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
    int64_t end = timeout_ms < 0 ? 0 : clock_mono_ms() + timeout_ms;

    for (;;) {
        int left = timeout_ms < 0 ? -1 : (int)MAX(end - clock_mono_ms(), 0);
        int n = poll(p, ARRAY_LEN(p), left);
        /* What it sent before it died is there already: a second look at the socket alone decides. */
        if (n > 0 && !p[0].revents && poll(p, 1, 0) == 0)
            return -EPIPE;
        if (n > 0)
            return 0;
        if (n == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

int msg_recv(int sock, int timeout_ms, struct msg *m, int fds[MSG_FDS_MAX], struct err *e)
{
    return msg_recv_from(sock, -1, timeout_ms, m, fds, e);
}

int msg_recv_from(int sock, int pidfd, int timeout_ms, struct msg *m, int fds[MSG_FDS_MAX], struct err *e)
{
    size_t n = 0, n_fds = MSG_FDS_MAX;
    struct msg got;

    for (size_t i = 0; i < MSG_FDS_MAX; i++)
        fds[i] = -1;
    int r = wait_readable(sock, pidfd, timeout_ms);
    if (r < 0)
        return err_set(e, r, "launch: %s",
                       r == -ETIMEDOUT ? "a helper process did not answer in time"
                       : r == -EPIPE   ? "a helper process ended without an answer"
                                       : strerror(-r));
    r = fd_recv_msg(sock, &got, sizeof got, &n, fds, &n_fds);
    if (r == -ECONNRESET) { /* it ended without reading what we sent; its last words are still in the queue */
        n_fds = MSG_FDS_MAX;
        r = fd_recv_msg(sock, &got, sizeof got, &n, fds, &n_fds);
    }
    if (r < 0)
        return err_set(e, r, "launch: receive: %s", strerror(-r));
    if (r > 0 || n != sizeof got) {
        fd_close_all(fds, MSG_FDS_MAX);
        return err_set(e, -EPIPE, "launch: a helper process ended without an answer");
    }
    got.text[sizeof got.text - 1] = '\0';
    if (got.kind == MSG_FAILED) {
        fd_close_all(fds, MSG_FDS_MAX);
        return err_set(e, got.r < 0 ? got.r : -EIO, "%s", got.text);
    }
    *m = got;
    return 0;
}

int msg_fail(int sock, int r, const struct err *e)
{
    struct msg m = {.kind = MSG_FAILED, .r = r};

    (void)snprintf(m.text, sizeof m.text, "%s", e && e->code ? err_text(e) : strerror(-r));
    (void)msg_send(sock, &m, NULL, 0);
    return r;
}

int msg_pair(int ret[2], struct err *e)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret) < 0)
        return err_sys(e, "socketpair");
    return 0;
}
