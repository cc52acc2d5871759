#include "shim/egress/policy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macro.h"
#include "shim/egress/policy_priv.h"

static const char *const reason_names[] = {
    [EGRESS_LOOPBACK] = "loopback",   [EGRESS_RULE] = "rule", [EGRESS_DEFAULT] = "default",
    [EGRESS_HARD_DENY] = "hard_deny", [EGRESS_PORT] = "port", [EGRESS_NO_GRANT] = "no_grant",
    [EGRESS_LEASE] = "lease"};

const char *egress_reason_name(enum egress_reason r)
{
    return reason_names[r];
}

const char *policy_name(const struct policy *p)
{
    return p->name;
}

uint64_t policy_generation(const struct policy *p)
{
    return p->generation;
}

bool policy_is_audit(const struct policy *p)
{
    return p->audit;
}

int64_t policy_lease_s(const struct policy *p)
{
    return p->lease_s;
}

/* The unspecified address means this host to connect(2), for both families (tcp_v4_connect, tcp_v6_connect).
 */
static bool is_own(const struct ip *ip)
{
    static const uint8_t zero[16], one[16] = {[15] = 1};

    if (ip->family == AF_INET)
        return ip->bytes[0] == 127 || memcmp(ip->bytes, zero, 4) == 0;
    return memcmp(ip->bytes, zero, 16) == 0 || memcmp(ip->bytes, one, 16) == 0;
}

static bool any(void *data UNUSED, const struct cidr *c UNUSED)
{
    return true;
}

/* The best match found so far: Deny beats Allow, a full match beats one on another port. */
struct search {
    const struct policy *p;
    const struct egress_flow *flow; /* NULL: only the name counts (DNS) */
    const struct rule *deny, *allow, *near;
    const char *name, *allow_name;
    bool wildcard;
};

static bool fits(const struct rule *r, const struct egress_flow *flow)
{
    if (!flow)
        return true;
    if (!(r->protocols & flow->protocol))
        return false;
    for (size_t i = 0; i < r->n_ports; i++)
        if (flow->port >= r->ports[i].low && flow->port <= r->ports[i].high)
            return true;
    return r->n_ports == 0;
}

static void consider(struct search *s, uint32_t index)
{
    const struct rule *r = &s->p->rules[index];

    if (!fits(r, s->flow)) {
        s->near = r->deny ? s->near : r;
    } else if (r->deny) {
        s->deny = s->deny ? s->deny : r;
    } else if (!s->allow) {
        s->allow = r;
        s->allow_name = s->name;
    }
}

static bool on_cidr(void *data, const struct cidr *c)
{
    struct search *s = data;

    consider(s, c->rule);
    return s->deny != NULL;
}

static void look_up(struct search *s, enum name_pattern kind, const char *key)
{
    const struct rule_list *list = map_get(s->p->hosts[kind], key);

    for (size_t i = 0; list && i < list->n; i++) {
        const struct rule *before = s->allow;
        consider(s, list->index[i]);
        if (s->allow != before)
            s->wildcard = kind != NAME_EXACT;
    }
}

static bool on_name(void *data, const char *name)
{
    struct search *s = data;

    s->name = name;
    look_up(s, NAME_EXACT, name);
    const char *parent = name_parent(name);
    if (parent)
        look_up(s, NAME_ONE_LABEL, parent);
    for (; parent; parent = name_parent(parent))
        look_up(s, NAME_ANY_DEPTH, parent);
    return s->deny != NULL;
}

static struct egress_verdict verdict(bool allow, enum egress_reason reason, const struct rule *r,
                                     const char *name)
{
    return (struct egress_verdict){
        .allow = allow, .reason = reason, .rule = r ? r->name : NULL, .name = name};
}

struct egress_verdict policy_judge(const struct policy *p, const struct grants *grants,
                                   const struct egress_flow *flow, int64_t now_ms, bool expired)
{
    struct search s = {.p = p, .flow = flow};

    if (is_own(&flow->to))
        return verdict(true, EGRESS_LOOPBACK, NULL, NULL);
    if (cidr_each(&p->hard, &flow->to, any, NULL))
        return verdict(false, EGRESS_HARD_DENY, NULL, NULL);
    if (expired)
        return verdict(false, EGRESS_LEASE, NULL, NULL);
    if (!cidr_each(&p->cidrs, &flow->to, on_cidr, &s) && grants)
        (void)grants_each(grants, &flow->to, now_ms, on_name, &s);
    if (s.deny)
        return verdict(false, EGRESS_RULE, s.deny, s.name);
    if (s.allow)
        return verdict(true, EGRESS_RULE, s.allow, s.allow_name);
    if (p->default_allow)
        return verdict(true, EGRESS_DEFAULT, NULL, NULL);
    if (s.near)
        return verdict(false, EGRESS_PORT, s.near, s.name);
    return verdict(false, EGRESS_NO_GRANT, NULL, NULL);
}

bool policy_resolves(const struct policy *p, const char *name, bool *ret_wildcard)
{
    struct search s = {.p = p};

    (void)on_name(&s, name);
    /* A Deny rule for some ports only must not hide the name. */
    if (s.deny && s.deny->n_ports == 0 && s.deny->protocols == (FLOW_TCP | FLOW_UDP))
        return false;
    *ret_wildcard = s.wildcard;
    return s.allow || p->default_allow;
}

bool policy_may_grant(const struct policy *p, const struct ip *ip)
{
    return !is_own(ip) && !cidr_each(&p->hard, ip, any, NULL);
}
