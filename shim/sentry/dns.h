#pragma once
/*
 * The pod's own DNS answerer: one thread of the sentry.  Its listening sockets have the addresses of the
 * pod's nameservers (on the pod's loopback), so clients need no change; its upstream sockets belong to
 * the node's network.  Both are made by the shim.  Only names that the policy lists go upstream, and an
 * address is granted before its answer leaves.
 */
#include <stdbool.h>

#include "shim/sentry/audit.h"
#include "shim/sentry/egress.h"

enum dns_socket { DNS_UDP, DNS_TCP, DNS_UPSTREAM };
struct dns;

/* Starts the thread. wake: a connected pair, non-blocking, by which it learns of new sockets; stays the
 * caller's. 0 or -errno. */
int dns_new(struct egress *egress, struct audit *audit, const int wake[2], struct dns **ret);
/* fd taken. */
int dns_add_socket(struct dns *d, enum dns_socket kind, int fd);
/* Names below it that are not allowed get NXDOMAIN instead of REFUSED: resolvers try the next search domain
 * only then. */
void dns_add_search(struct dns *d, const char *domain);
