#include "shim/sentry/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

static int get_int(int fd, int option)
{
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &len) < 0 ? -errno : value;
}

int sock_take(struct call *call, int fd, struct sock *ret)
{
    int mine = call_take_fd(call, fd);
    if (mine < 0) {
        call_fail(call, -mine);
        return 1;
    }
    int domain = get_int(mine, SO_DOMAIN);
    if (domain == AF_INET || domain == AF_INET6) {
        *ret = (struct sock){.fd = mine, .domain = domain, .type = get_int(mine, SO_TYPE)};
        return 0;
    }
    fd_close(mine);
    if (domain == AF_UNIX || domain == AF_NETLINK)
        call_continue(call);
    else
        call_fail(call, domain < 0 ? -domain : EAFNOSUPPORT);
    return 1;
}

int sock_judge(struct call *call, const struct sock *s, enum address_use use, const struct address *a)
{
    char where[ENDPOINT_TEXT_MAX];
    struct flow flow = {.use = use, .type = s->type};

    int r = address_parse(a, s->domain, use, &flow.to);
    if (r < 0)
        return -r;
    if (r > 0)
        return 0;
    struct egress_answer answer;
    egress_decide(&call->core->egress, &flow, &answer);
    if (answer.record)
        endpoint_format(&flow.to, where);
    if (answer.error && answer.record)
        call_refuse(call, answer.error, answer.rule, where);
    else if (answer.record)
        call_note(call, answer.rule, where);
    return answer.error;
}

int sock_address(struct call *call, const struct sock *s, enum address_use use, uint64_t at, int64_t len,
                 struct address *ret)
{
    if (len < 0 || len > (int64_t)sizeof ret->u.space) {
        call_fail(call, EINVAL);
        return 1;
    }
    memset(ret, 0, sizeof *ret);
    ret->len = (socklen_t)len;
    if (call_read(call, at, &ret->u, (size_t)len) < 0) {
        call_fail(call, EFAULT);
        return 1;
    }
    if (!call_valid(call)) {
        call->answered = true; /* nobody waits any more */
        return 1;
    }
    int refused = sock_judge(call, s, use, ret);
    if (refused && !call->answered)
        call_fail(call, refused);
    return refused != 0;
}

bool sock_is_nonblocking(const struct sock *s)
{
    int flags = fcntl(s->fd, F_GETFL);
    return flags >= 0 && (flags & O_NONBLOCK);
}
