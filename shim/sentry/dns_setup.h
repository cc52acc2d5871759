#pragma once
/*
 * The sockets of the pod's answerer, made by the shim with the node's rights: listeners on the pod's
 * nameserver addresses (put on the loopback of the pod's network namespace), and sockets in the node's
 * namespace towards the real nameservers.
 */
#include "base/err.h"
#include "shim/sentry/dns.h"

struct dns_setup_socket {
    enum dns_socket kind;
    int fd; /* stays the caller's */
    int family;
    const char *address; /* of the nameserver */
};
struct dns_setup_out {
    int (*socket)(void *data, const struct dns_setup_socket *s, struct err *e);
    int (*search)(void *data, const char *domain, struct err *e);
    void *data;
};
int dns_setup(int pod_net_ns, const char *resolv_conf, const struct dns_setup_out *out, struct err *e);
