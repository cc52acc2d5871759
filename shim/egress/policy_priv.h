#pragma once
/* Shared by policy.c (deciding) and policy_parse.c (reading); nobody else includes it. */
#include "base/map.h"
#include "shim/egress/name.h"
#include "shim/egress/policy.h"

struct port_range {
    uint16_t low, high;
};
struct rule {
    char *name;
    bool deny;
    unsigned protocols;       /* FLOW_TCP | FLOW_UDP */
    struct port_range *ports; /* none = every port */
    size_t n_ports;
    bool by_host;
};
/* Rules that one host pattern belongs to. */
struct rule_list {
    uint32_t *index;
    size_t n, cap;
};
struct cidr {
    struct ip ip; /* masked */
    uint8_t prefix;
    uint32_t rule; /* index; not used for hard denies */
};
struct cidr_set { /* sorted by family, prefix, address */
    struct cidr *items;
    size_t n, cap;
    struct {
        uint8_t family, prefix;
        size_t first, end;
    } * groups; /* one per (family, prefix) that occurs */
    size_t n_groups;
};
struct policy {
    char *name;
    uint64_t generation;
    bool audit, default_allow;
    int64_t lease_s;
    struct rule *rules;
    size_t n_rules;
    struct cidr_set hard, cidrs;
    struct map *hosts[3]; /* by enum name_pattern: name or suffix -> struct rule_list */
};

int cidr_parse(const char *text, struct cidr *ret);
void cidr_add(struct cidr_set *s, struct cidr c);
void cidr_seal(struct cidr_set *s); /* after the last add */
/* Calls fn for every entry that holds ip, until it returns true. */
bool cidr_each(const struct cidr_set *s, const struct ip *ip, bool (*fn)(void *data, const struct cidr *c),
               void *data);
