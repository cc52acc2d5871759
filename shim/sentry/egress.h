#pragma once
/*
 * The one place where the sentry decides whether the pod may talk to an address.  A flow goes in, an
 * answer for the caller comes out; handlers know nothing else of policy.
 *
 * Without a policy everything is allowed except the ranges that the node denies to every pod (fixed at
 * start, nothing overrides them).  A policy is replaced as a whole; the lock is held for memory work only.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "shim/egress/policy.h"
#include "shim/sentry/address.h"

struct egress_range {
    int family; /* AF_INET, AF_INET6 */
    uint8_t ip[16];
    uint8_t prefix_len;
};
#define RESOLVERS_MAX 3
struct egress {
    const struct egress_range *hard_deny;
    size_t n_hard_deny;
    pthread_rwlock_t lock; /* protects the rest */
    struct policy *policy; /* NULL = none */
    struct grants *grants; /* made with the first policy */
    int64_t confirmed_ms;
    struct ip resolvers[RESOLVERS_MAX]; /* addresses where the pod's own answerer listens, port 53 */
    size_t n_resolvers;
    uint64_t allowed, denied; /* by a policy; atomic */
};
struct flow {
    enum address_use use;
    int type;           /* SOCK_STREAM, SOCK_DGRAM */
    struct endpoint to; /* ADDRESS_BIND: the local address */
};
struct egress_answer {
    int error;      /* positive errno for the caller, 0 = go on */
    bool record;    /* tell the audit, also when error is 0 (mode Audit) */
    char rule[160]; /* what decided, for the record */
};

void egress_init(struct egress *g, const struct egress_range *hard_deny, size_t n);
void egress_decide(struct egress *g, const struct flow *flow, struct egress_answer *ret);
/* Replaces the policy (NULL text: none any more); a bad one changes nothing. */
int egress_set_policy(struct egress *g, const char *json, size_t len, struct err *e);
/* Somebody in charge still stands behind the policy: its lease starts anew. */
void egress_confirm(struct egress *g);
void egress_add_resolver(struct egress *g, const struct ip *ip);

/* For the answerer: may the name be resolved, and the addresses that may be given out are granted. */
enum egress_lookup { LOOKUP_REFUSED, LOOKUP_ALLOWED, LOOKUP_WILDCARD };
enum egress_lookup egress_look_up(struct egress *g, const char *name);
/* Keeps of ips[] what the policy lets through and grants it for ttl_s; the number kept. */
size_t egress_grant(struct egress *g, const char *name, struct ip *ips, size_t n, uint32_t ttl_s);
