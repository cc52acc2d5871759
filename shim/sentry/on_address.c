/* socket, connect, bind, listen: the sentry performs them on the caller's own sockets. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/scoped.h"
#include "shim/sentry/calls.h"
#include "shim/sentry/sock.h"

#define CONNECT_INLINE_US 250 /* loopback is done by then; the rest of the world may take minutes */

void on_socket(struct call *call)
{
    int domain = (int)call_arg(call, 0), type = (int)call_arg(call, 1), protocol = (int)call_arg(call, 2);

    /* The filter has checked the triple. The socket belongs to the pod's network and to the guarded cgroup.
     */
    scoped_fd int fd = socket(domain, type | SOCK_CLOEXEC, protocol);
    if (fd < 0)
        call_fail(call, errno);
    else
        call_give_fd(call, fd, type & SOCK_CLOEXEC);
}

/* The socket and the address of a call (fd, address, length). 0: go on; 1: answered. */
static int take_socket_and_address(struct call *call, enum address_use use, struct sock *s, struct address *a)
{
    if (sock_take(call, (int)call_arg(call, 0), s))
        return 1;
    return sock_address(call, s, use, call_arg(call, 1), (int64_t)(int)call_arg(call, 2), a);
}

static void connect_parked(struct call *call, int fd, const struct address *a)
{
    int r = call_park(call);
    if (r < 0) {
        call_fail(call, -r);
        return;
    }
    /* The attempt goes on in the kernel; connecting again waits for it (inet_stream_connect). */
    while (connect(fd, &a->u.any, a->len) < 0) {
        if (errno != EINTR) {
            /* The end of SO_SNDTIMEO: "already" is about our own second look, the caller asked once. */
            call_fail(call, errno == EALREADY ? EINPROGRESS : errno);
            return;
        }
        if (call_interrupted(call, fd))
            return;
    }
    call_return(call, 0);
}

void on_connect(struct call *call)
{
    scoped(sock_done) struct sock s = SOCK_NONE;
    struct address a;

    if (take_socket_and_address(call, ADDRESS_CONNECT, &s, &a))
        return;
    bool may_block = s.type == SOCK_STREAM && !sock_is_nonblocking(&s);
    if (may_block && !worker_arm(call->worker, CONNECT_INLINE_US)) { /* nothing would interrupt the lead */
        connect_parked(call, s.fd, &a);
        return;
    }
    int r = connect(s.fd, &a.u.any, a.len);
    int error = r < 0 ? errno : 0;
    if (may_block)
        (void)worker_arm(call->worker, 0);
    if (error == EINTR)
        connect_parked(call, s.fd, &a);
    else if (error)
        call_fail(call, error);
    else
        call_return(call, 0);
}

void on_bind(struct call *call)
{
    scoped(sock_done) struct sock s = SOCK_NONE;
    struct address a;

    if (take_socket_and_address(call, ADDRESS_BIND, &s, &a))
        return;
    if (bind(s.fd, &a.u.any, a.len) < 0)
        call_fail(call, errno);
    else
        call_return(call, 0);
}

void on_listen(struct call *call)
{
    scoped(sock_done) struct sock s = SOCK_NONE;

    if (sock_take(call, (int)call_arg(call, 0), &s))
        return;
    if (!call_valid(call))
        return;
    if (listen(s.fd, (int)call_arg(call, 1)) < 0)
        call_fail(call, errno);
    else
        call_return(call, 0);
}
