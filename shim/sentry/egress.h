#pragma once
/*
 * The one place where the sentry decides whether the pod may talk to an address.  A flow goes in, 0 or
 * the errno for the caller comes out; handlers know nothing else of policy.
 *
 * For now everything is allowed except what the node's administrator denies for good (metadata
 * services, the node itself): those ranges are fixed at start and nothing overrides them.
 */
#include <stddef.h>
#include <stdint.h>

#include "shim/sentry/address.h"

struct egress_range {
    int family; /* AF_INET, AF_INET6 */
    uint8_t ip[16];
    uint8_t prefix_len;
};
struct egress_policy {
    const struct egress_range *hard_deny;
    size_t n_hard_deny;
};
struct flow {
    enum address_use use;
    int type; /* SOCK_STREAM, SOCK_DGRAM */
    struct endpoint to; /* ADDRESS_BIND: the local address */
};

int egress_decide(const struct egress_policy *policy, const struct flow *flow); /* 0, or a positive errno */
