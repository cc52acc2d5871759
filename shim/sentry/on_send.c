/*
 * sendto with an address, sendmsg, sendmmsg.
 *
 * A TCP socket takes no address from a message (the filter lets no fast open through), so what it may do
 * does not depend on the caller's memory: it continues in the kernel, where it can block, send in part
 * and raise SIGPIPE as ever.  Datagrams are sent by the sentry from its own copy.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/scoped.h"
#include "shim/sentry/calls.h"
#include "shim/sentry/msghdr.h"
#include "shim/sentry/sock.h"

#define SMALL_BYTES 2048
#define BATCH_MAX   64 /* messages per call; callers must handle fewer than they asked for */

struct outgoing {      /* one datagram, in private memory */
    struct address to; /* len 0: to the connected peer */
    size_t n;
    size_t n_control;
    uint8_t *data;
    uint8_t control[MSG_CONTROL_MAX];
    uint8_t small[SMALL_BYTES];
    uint8_t *large; /* owned; NULL while small is enough */
};

static void outgoing_done_scoped(struct outgoing *o)
{
    free(o->large);
}

static int outgoing_room(struct outgoing *o, size_t n)
{
    o->n = n;
    o->data = o->small;
    if (n <= sizeof o->small)
        return 0;
    free(o->large);
    o->large = malloc(n); /* at most MSG_DATAGRAM_MAX */
    o->data = o->large;
    return o->large ? 0 : -ENOBUFS;
}

/* Sends what was copied and judged. Bytes sent, or -errno; 1 in *ret_done: the call was answered. */
static ssize_t perform(struct call *call, const struct sock *s, struct outgoing *o, int flags, bool first,
                       bool *ret_done)
{
    struct iovec part = {o->data, o->n};
    struct msghdr h = {
        .msg_name = o->to.len ? &o->to.u : NULL,
        .msg_namelen = o->to.len,
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = o->n_control ? o->control : NULL,
        .msg_controllen = o->n_control,
    };
    flags |= MSG_NOSIGNAL;
    ssize_t n = sendmsg(s->fd, &h, flags | MSG_DONTWAIT);
    if (n >= 0 || errno != EAGAIN || (flags & MSG_DONTWAIT) || sock_is_nonblocking(s))
        return n < 0 ? -errno : n;

    int r = call_park(call);
    if (r < 0)
        return r;
    while ((n = sendmsg(s->fd, &h, flags)) < 0 && errno == EINTR) {
        if (!first && call->interrupt)
            return -EINTR; /* the messages sent so far are the answer */
        if (call_interrupted(call, s->fd)) {
            *ret_done = true;
            return -EINTR;
        }
    }
    return n < 0 ? -errno : n;
}

/* Datagrams only: everything else was answered. */
static int take_datagram_socket(struct call *call, struct sock *s)
{
    if (sock_take(call, (int)call_arg(call, 0), s))
        return 1;
    if (s->type == SOCK_DGRAM)
        return 0;
    call_continue(call);
    return 1;
}

void on_sendto(struct call *call)
{
    scoped(sock_done) struct sock s = SOCK_NONE;
    __attribute__((cleanup(outgoing_done_scoped))) struct outgoing o;
    bool done = false;

    o.large = NULL;
    o.n_control = 0;
    if (take_datagram_socket(call, &s))
        return;
    uint64_t bytes = call_arg(call, 2);
    if (bytes > MSG_DATAGRAM_MAX) {
        call_fail(call, EMSGSIZE);
        return;
    }
    int r = outgoing_room(&o, bytes);
    if (r == 0)
        r = call_read(call, call_arg(call, 1), o.data, bytes);
    if (r < 0) {
        call_fail(call, -r);
        return;
    }
    if (sock_address(call, &s, ADDRESS_SEND, call_arg(call, 4), (int)call_arg(call, 5), &o.to))
        return;
    ssize_t n = perform(call, &s, &o, (int)call_arg(call, 3), true, &done);
    if (done)
        return;
    if (n < 0)
        call_fail(call, (int)-n);
    else
        call_return(call, n);
}

/* Copies one message, everything it points to included. 0 or -errno. */
static int copy_message(struct call *call, const struct wire_msghdr *h, struct outgoing *o)
{
    struct iovec few[8];
    scoped_free struct iovec *many = NULL;
    struct iovec *iov = few;

    int r = msghdr_check(h);
    if (r < 0)
        return r;
    if (h->iov_len > ARRAY_LEN(few))
        iov = many = calloc(h->iov_len, sizeof *iov);
    if (!iov)
        return -ENOBUFS;
    memset(&o->to, 0, sizeof o->to);
    if (h->name)
        o->to.len = MIN((socklen_t)h->name_len, (socklen_t)sizeof o->to.u.space);
    o->n_control = h->control ? h->control_len : 0;
    if (call_read(call, h->iov, iov, h->iov_len * sizeof *iov) < 0 ||
        call_read(call, h->name, &o->to.u, o->to.len) < 0 ||
        call_read(call, h->control, o->control, o->n_control) < 0)
        return -EFAULT;
    int64_t bytes = msghdr_data_bytes(iov, h->iov_len);
    if (bytes < 0)
        return (int)bytes;
    r = msghdr_control_check(o->control, o->n_control);
    if (r < 0)
        return r;
    r = outgoing_room(o, (size_t)bytes);
    return r < 0 ? r : call_read_vec(call, iov, h->iov_len, o->data, (size_t)bytes);
}

/* Copy, judge, send. As perform(). */
static ssize_t send_message(struct call *call, const struct sock *s, const struct wire_msghdr *h, int flags,
                            bool first, bool *ret_done)
{
    __attribute__((cleanup(outgoing_done_scoped))) struct outgoing o;

    o.large = NULL;
    int r = copy_message(call, h, &o);
    if (r < 0)
        return r;
    if (!call_valid(call)) {
        call->answered = *ret_done = true;
        return -EINTR;
    }
    int refused = o.to.len ? sock_judge(call, s, ADDRESS_SEND, &o.to) : 0;
    if (refused) {
        *ret_done = call->answered;
        return -refused;
    }
    return perform(call, s, &o, flags, first, ret_done);
}

void on_sendmsg(struct call *call)
{
    scoped(sock_done) struct sock s = SOCK_NONE;
    struct wire_msghdr h = {0};
    bool done = false;

    if (take_datagram_socket(call, &s))
        return;
    if (call_read(call, call_arg(call, 1), &h, sizeof h) < 0) {
        call_fail(call, EFAULT);
        return;
    }
    ssize_t n = send_message(call, &s, &h, (int)call_arg(call, 2), true, &done);
    if (done)
        return;
    if (n < 0)
        call_fail(call, (int)-n);
    else
        call_return(call, n);
}

void on_sendmmsg(struct call *call)
{
    scoped(sock_done) struct sock s = SOCK_NONE;
    struct wire_mmsghdr h[BATCH_MAX];
    uint64_t at = call_arg(call, 1);
    unsigned want = MIN((unsigned)call_arg(call, 2), (unsigned)BATCH_MAX), sent = 0;
    bool done = false;
    ssize_t n = 0;

    if (take_datagram_socket(call, &s))
        return;
    if (call_read(call, at, h, want * sizeof h[0]) < 0) {
        call_fail(call, EFAULT);
        return;
    }
    for (; sent < want; sent++) {
        n = send_message(call, &s, &h[sent].h, (int)call_arg(call, 3), sent == 0, &done);
        uint32_t bytes = (uint32_t)n;
        if (n < 0 || call_write(call, at + sent * sizeof h[0] + offsetof(struct wire_mmsghdr, sent), &bytes,
                                sizeof bytes) < 0)
            break;
    }
    if (done && call->answered)
        return;
    if (sent == 0 && want > 0)
        call_fail(call, n < 0 ? (int)-n : EFAULT);
    else
        call_return(call, sent);
}
