#pragma once
/*
 * After a change of policy: connections that it no longer allows end.  The sentry lists the pod's sockets and
 * judges them; the shim, which has the right to, destroys those it is told of (NETLINK_SOCK_DIAG, Linux 4.5,
 * CONFIG_INET_DIAG_DESTROY).  Connections that others made to the pod's listeners are not egress and stay.
 */
#include "base/err.h"

struct core;
struct cut_socket {
    int family, protocol; /* IPPROTO_TCP, IPPROTO_UDP */
    unsigned char local[16], remote[16];
    unsigned short local_port, remote_port;
};
/* In the sentry: tells the shim of every socket whose peer is not allowed any more. */
void cut_find(struct core *c);
/* In the shim. net_ns: the pod's. -ENOENT: it has gone already; -EOPNOTSUPP: this kernel cannot. */
int cut_destroy(int net_ns, const struct cut_socket *s, struct err *e);
