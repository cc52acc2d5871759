#include "shim/sentry/egress.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define DNS_PORT       53
#define GRANT_EXTRA_MS 30000 /* clients keep an answer a little longer than its TTL */
#define GRANT_LEAST_S  60

static bool in_range(const struct egress_range *range, int family, const uint8_t *ip)
{
    size_t whole = range->prefix_len / 8, rest = range->prefix_len % 8;
    if (range->family != family || memcmp(range->ip, ip, whole) != 0)
        return false;
    return rest == 0 || (uint8_t)((range->ip[whole] ^ ip[whole]) >> (8 - rest)) == 0;
}

void egress_init(struct egress *g, const struct egress_range *hard_deny, size_t n)
{
    *g = (struct egress){.hard_deny = hard_deny, .n_hard_deny = n};
    pthread_rwlock_init(&g->lock, NULL);
}

static bool node_denies(const struct egress *g, const struct endpoint *to)
{
    for (size_t i = 0; i < g->n_hard_deny; i++)
        if (in_range(&g->hard_deny[i], to->family, to->ip) ||
            (to->has_v4 && in_range(&g->hard_deny[i], AF_INET, to->v4)))
            return true;
    return false;
}

static struct ip ip_of(int family, const uint8_t *bytes)
{
    struct ip ip = {.family = (uint8_t)family};

    memcpy(ip.bytes, bytes, family == AF_INET6 ? 16 : 4);
    return ip;
}

static bool is_resolver(const struct egress *g, const struct ip *ip, uint16_t port)
{
    for (size_t i = 0; i < g->n_resolvers; i++)
        if (port == DNS_PORT && memcmp(&g->resolvers[i], ip, sizeof *ip) == 0)
            return true;
    return false;
}

static void refuse(struct egress_answer *ret, const struct policy *p, const struct egress_verdict *v,
                   const struct flow *flow)
{
    bool probe = flow->type == SOCK_DGRAM && flow->use == ADDRESS_CONNECT && v->reason == EGRESS_PORT;

    /* Fast and final for the program; a datagram has no connection that could be refused. */
    int error = v->reason == EGRESS_HARD_DENY                           ? EACCES
                : flow->type == SOCK_DGRAM && flow->use == ADDRESS_SEND ? EPERM
                                                                        : ECONNREFUSED;
    ret->error = policy_is_audit(p) ? 0 : error;
    /* Resolvers sort addresses by connecting UDP sockets without sending anything (RFC 6724): no attempt to
     * talk. */
    ret->record = !probe;
    (void)snprintf(ret->rule, sizeof ret->rule, "egress %.60s generation %llu: %s%s%.40s%s", policy_name(p),
                   (unsigned long long)policy_generation(p), egress_reason_name(v->reason),
                   v->rule ? " (" : "", v->rule ? v->rule : "", v->rule ? ")" : "");
}

static void judge(struct egress *g, const struct flow *flow, struct egress_answer *ret)
{
    struct egress_flow f = {.to = ip_of(flow->to.family, flow->to.ip),
                            .port = flow->to.port,
                            .protocol = flow->type == SOCK_DGRAM ? FLOW_UDP : FLOW_TCP};
    int64_t now = clock_mono_ms(), lease = policy_lease_s(g->policy);
    bool expired = lease > 0 && now - g->confirmed_ms > lease * 1000;

    if (is_resolver(g, &f.to, f.port))
        return;
    struct egress_verdict v = policy_judge(g->policy, g->grants, &f, now, expired);
    if (v.allow && flow->to.has_v4) { /* the IPv4 address inside an IPv6 one must be allowed too */
        f.to = ip_of(AF_INET, flow->to.v4);
        v = policy_judge(g->policy, g->grants, &f, now, expired);
    }
    __atomic_fetch_add(v.allow ? &g->allowed : &g->denied, 1, __ATOMIC_RELAXED);
    if (!v.allow)
        refuse(ret, g->policy, &v, flow);
}

void egress_decide(struct egress *g, const struct flow *flow, struct egress_answer *ret)
{
    *ret = (struct egress_answer){0};
    if (flow->use == ADDRESS_BIND || flow->to.family == AF_UNSPEC)
        return;
    if (node_denies(g, &flow->to)) {
        *ret = (struct egress_answer){
            .error = EACCES, .record = true, .rule = "egress: denied for every pod of this node"};
        return;
    }
    pthread_rwlock_rdlock(&g->lock);
    if (g->policy)
        judge(g, flow, ret);
    pthread_rwlock_unlock(&g->lock);
}

int egress_set_policy(struct egress *g, const char *json, size_t len, struct err *e)
{
    struct policy *fresh = NULL;
    int r = json ? policy_parse(json, len, &fresh, e) : 0;

    if (r < 0)
        return r;
    pthread_rwlock_wrlock(&g->lock);
    struct policy *old = g->policy;
    g->policy = fresh;
    g->confirmed_ms = clock_mono_ms();
    if (fresh && !g->grants)
        g->grants = grants_new(GRANTS_MAX);
    pthread_rwlock_unlock(&g->lock);
    policy_free(old);
    return 0;
}

void egress_confirm(struct egress *g)
{
    pthread_rwlock_wrlock(&g->lock);
    g->confirmed_ms = clock_mono_ms();
    pthread_rwlock_unlock(&g->lock);
}

void egress_add_resolver(struct egress *g, const struct ip *ip)
{
    pthread_rwlock_wrlock(&g->lock);
    if (g->n_resolvers < RESOLVERS_MAX)
        g->resolvers[g->n_resolvers++] = *ip;
    pthread_rwlock_unlock(&g->lock);
}

enum egress_lookup egress_look_up(struct egress *g, const char *name)
{
    bool wildcard = false;

    pthread_rwlock_rdlock(&g->lock);
    bool yes = !g->policy || policy_resolves(g->policy, name, &wildcard);
    pthread_rwlock_unlock(&g->lock);
    return !yes ? LOOKUP_REFUSED : wildcard ? LOOKUP_WILDCARD : LOOKUP_ALLOWED;
}

size_t egress_grant(struct egress *g, const char *name, struct ip *ips, size_t n, uint32_t ttl_s)
{
    int64_t until = clock_mono_ms() + (int64_t)MAX(ttl_s, (uint32_t)GRANT_LEAST_S) * 1000 + GRANT_EXTRA_MS;
    size_t kept = 0;

    pthread_rwlock_wrlock(&g->lock);
    for (size_t i = 0; i < n; i++) {
        if (g->policy && !policy_may_grant(g->policy, &ips[i]))
            continue;
        ips[kept++] = ips[i];
        if (g->policy)
            grants_add(g->grants, &ips[i], name, until);
    }
    pthread_rwlock_unlock(&g->lock);
    return kept;
}
