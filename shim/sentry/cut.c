#include "shim/sentry/cut.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/scoped.h"
#include "shim/sentry/core.h"
#include "shim/sentry/message.h"

#define TCP_ESTABLISHED 1
#define TCP_LISTEN      10
#define ALL_STATES      0xfffU
#define DUMP_BYTES      16384
#ifndef SOCK_DESTROY
#define SOCK_DESTROY 21
#endif

struct dump {
    struct core *core;
    int family, protocol;
    bool judging;                 /* second round; the first collects the listeners */
    uint8_t listening[65536 / 8]; /* local ports */
};

static void judge(struct dump *d, const struct inet_diag_msg *m)
{
    uint16_t local = ntohs(m->id.idiag_sport), remote = ntohs(m->id.idiag_dport);
    struct flow flow = {.use = ADDRESS_CONNECT,
                        .type = d->protocol == IPPROTO_UDP ? SOCK_DGRAM : SOCK_STREAM};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = m->id.idiag_dport};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = m->id.idiag_dport};
    struct address a = {.len = m->idiag_family == AF_INET6 ? sizeof v6 : sizeof v4};
    struct egress_answer answer;

    if (remote == 0 || (d->listening[local / 8] >> (local % 8) & 1))
        return;
    memcpy(&v6.sin6_addr, m->id.idiag_dst, 16);
    memcpy(&v4.sin_addr, m->id.idiag_dst, 4);
    if (m->idiag_family == AF_INET6)
        a.u.v6 = v6;
    else
        a.u.v4 = v4;
    if (address_parse(&a, m->idiag_family, ADDRESS_CONNECT, &flow.to) != 0)
        return;
    egress_decide(&d->core->egress, &flow, &answer);
    if (!answer.error)
        return;
    struct message out = {.type = MESSAGE_CUT,
                          .value = m->idiag_family << 16 | d->protocol,
                          .a = (int64_t)local << 16 | remote};
    size_t bytes = m->idiag_family == AF_INET6 ? 16 : 4;
    memcpy(out.text, m->id.idiag_src, bytes);
    memcpy(out.text + 16, m->id.idiag_dst, bytes);
    (void)fd_send_msg(d->core->control, &out, sizeof out, NULL,
                      0); /* the shim reads while it waits for the answer */
}

static void look_at(struct dump *d, const struct inet_diag_msg *m)
{
    uint16_t local = ntohs(m->id.idiag_sport);

    if (d->judging)
        judge(d, m);
    else if (m->idiag_state == TCP_LISTEN)
        d->listening[local / 8] |= (uint8_t)(1 << (local % 8));
}

/* 1: the dump is over. */
static int take_batch(struct dump *d, char *buf, size_t len)
{
    for (struct nlmsghdr *h = (struct nlmsghdr *)(void *)buf; NLMSG_OK(h, len); h = NLMSG_NEXT(h, len)) {
        if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
            return 1;
        if (h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
            look_at(d, NLMSG_DATA(h));
    }
    return 0;
}

static void dump(struct dump *d, int fd)
{
    struct {
        struct nlmsghdr h;
        struct inet_diag_req_v2 r;
    } req = {.h = {.nlmsg_len = sizeof req,
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
             .r = {.sdiag_family = (uint8_t)d->family,
                   .sdiag_protocol = (uint8_t)d->protocol,
                   .idiag_states = ALL_STATES}};
    struct iovec part = {&req, sizeof req};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    scoped_free char *buf = malloc(DUMP_BYTES);

    if (!buf || sendmsg(fd, &h, 0) < 0)
        return;
    for (;;) {
        part = (struct iovec){buf, DUMP_BYTES};
        ssize_t n = recvmsg(fd, &h, 0);
        if (n <= 0 || take_batch(d, buf, (size_t)n))
            return;
    }
}

void cut_find(struct core *c)
{
    static const int families[] = {AF_INET, AF_INET6}, protocols[] = {IPPROTO_TCP, IPPROTO_UDP};
    scoped_free struct dump *d = calloc(1, sizeof *d);
    scoped_fd int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

    if (!d || fd < 0)
        return;
    d->core = c;
    for (int round = 0; round < 2; round++) {
        d->judging = round == 1;
        for (size_t i = 0; i < 4; i++) {
            d->family = families[i % 2];
            d->protocol = protocols[i / 2];
            dump(d, fd);
        }
    }
}

int cut_destroy(int net_ns, const struct cut_socket *s, struct err *e)
{
    size_t bytes = s->family == AF_INET6 ? 16 : 4;
    struct {
        struct nlmsghdr h;
        struct inet_diag_req_v2 r;
    } req = {
        .h = {.nlmsg_len = sizeof req, .nlmsg_type = SOCK_DESTROY, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .r = {.sdiag_family = (uint8_t)s->family,
              .sdiag_protocol = (uint8_t)s->protocol,
              .idiag_states = ALL_STATES}};
    struct {
        struct nlmsghdr h;
        struct nlmsgerr error;
        char more[256];
    } answer;

    req.r.id = (struct inet_diag_sockid){.idiag_sport = htons(s->local_port),
                                         .idiag_dport = htons(s->remote_port),
                                         .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}};
    memcpy(req.r.id.idiag_src, s->local, bytes);
    memcpy(req.r.id.idiag_dst, s->remote, bytes);
    scoped_fd int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || setns(net_ns, CLONE_NEWNET) < 0)
        return err_sys(e, "enter the pod's network namespace");
    scoped_fd int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (setns(home, CLONE_NEWNET) < 0)
        abort(); /* a shim in the pod's network would be worse than none */
    if (fd < 0 || send(fd, &req, sizeof req, 0) < 0 ||
        recv(fd, &answer, sizeof answer, 0) < (ssize_t)(NLMSG_HDRLEN + sizeof answer.error.error))
        return err_sys(e, "destroy a socket of the pod");
    return answer.error.error ? err_set(e, answer.error.error, "destroy a socket of the pod: %s",
                                        strerror(-answer.error.error))
                              : 0;
}
