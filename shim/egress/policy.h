#pragma once
/*
 * An egress policy as an immutable snapshot: who may be talked to.  Pure: text in, verdicts out.
 *
 * Order: loopback is free; hard denies (nothing overrides them); Deny rules; Allow rules; the default.
 * A rule names hosts or CIDRs; hosts are matched against the names for which the pod's own resolver gave
 * out the address (grants.h), so an address that was not looked up matches no host rule.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "shim/egress/grants.h"

#define POLICY_TEXT_MAX  (8u << 20)
#define POLICY_RULES_MAX 10000

struct policy;

enum flow_protocol { FLOW_TCP = 1, FLOW_UDP = 2 };
struct egress_flow {
    struct ip to; /* v4-mapped addresses in their v4 form */
    uint16_t port;
    enum flow_protocol protocol;
};
enum egress_reason {
    EGRESS_LOOPBACK,  /* allowed: the pod itself */
    EGRESS_RULE,      /* allowed or denied by `rule` */
    EGRESS_DEFAULT,   /* allowed or denied because no rule matched */
    EGRESS_HARD_DENY, /* denied: a range that no rule can open */
    EGRESS_PORT,      /* denied: a rule names the peer, but not this port or protocol */
    EGRESS_NO_GRANT,  /* denied: the address was not looked up under an allowed name */
    EGRESS_LEASE,     /* denied: nobody has confirmed the policy for too long */
};
struct egress_verdict {
    bool allow;
    enum egress_reason reason;
    const char *rule; /* belongs to the policy; NULL = none */
    const char *name; /* the granted name that matched; belongs to the grants */
};

/*
 * JSON: {"name", "generation", "mode": "Enforce"|"Audit", "leaseSeconds", "defaultAction": "Deny"|"Allow",
 *  "hardDeny": [CIDR], "rules": [{"name", "action": "Allow"|"Deny", "hosts": [...], "cidrs": [...],
 *  "ports": [443, "8000-8010"], "protocol": "TCP"|"UDP"|"Any"}]}
 * -EINVAL with a sentence that names the field; *ret untouched.
 */
int policy_parse(const char *json, size_t len, struct policy **ret, struct err *e);
void policy_free(struct policy *p);
const char *policy_name(const struct policy *p);
uint64_t policy_generation(const struct policy *p);
bool policy_is_audit(const struct policy *p);   /* decide and record, but let through */
int64_t policy_lease_s(const struct policy *p); /* 0 = never expires */

/* expired: the lease is over; running flows are the caller's business. grants may be NULL. */
struct egress_verdict policy_judge(const struct policy *p, const struct grants *grants,
                                   const struct egress_flow *flow, int64_t now_ms, bool expired);
/* May this canonical name be resolved?  True when an Allow rule's hosts cover it, or the default allows and
 * no Deny rule covers it. */
bool policy_resolves(const struct policy *p, const char *name, bool *ret_wildcard);
/* May a lookup hand out this address (rebinding: not into the hard-deny ranges)? */
bool policy_may_grant(const struct policy *p, const struct ip *ip);
const char *egress_reason_name(enum egress_reason r);
