#include "shim/sentry/egress.h"

#include <errno.h>
#include <string.h>

static bool in_range(const struct egress_range *range, int family, const uint8_t *ip)
{
    size_t whole = range->prefix_len / 8, rest = range->prefix_len % 8;
    if (range->family != family || memcmp(range->ip, ip, whole) != 0)
        return false;
    return rest == 0 || (uint8_t)((range->ip[whole] ^ ip[whole]) >> (8 - rest)) == 0;
}

int egress_decide(const struct egress_policy *policy, const struct flow *flow)
{
    if (flow->use == ADDRESS_BIND || flow->to.family == AF_UNSPEC)
        return 0;
    for (size_t i = 0; i < policy->n_hard_deny; i++) {
        const struct egress_range *r = &policy->hard_deny[i];
        if (in_range(r, flow->to.family, flow->to.ip))
            return EACCES;
        if (flow->to.has_v4 && in_range(r, AF_INET, flow->to.v4))
            return EACCES;
    }
    return 0;
}
