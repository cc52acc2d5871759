#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "shim/egress/policy_priv.h"

#define LIST_MAX 4096
SCOPED_DEFINE(json_t, json_decref)
SCOPED_DEFINE(struct policy, policy_free)

static void free_lists(struct map *m)
{
    size_t at = 0;
    void *value;

    while (m && map_next(m, &at, NULL, &value)) {
        free(((struct rule_list *)value)->index);
        free(value);
    }
    map_free(m);
}

void policy_free(struct policy *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_rules; i++) {
        free(p->rules[i].name);
        free(p->rules[i].ports);
    }
    for (size_t i = 0; i < ARRAY_LEN(p->hosts); i++)
        free_lists(p->hosts[i]);
    free(p->rules);
    free(p->hard.items);
    free(p->hard.groups);
    free(p->cidrs.items);
    free(p->cidrs.groups);
    free(p->name);
    free(p);
}

/* A string out of a short list of words: its index; -1 absent; -EINVAL with a sentence. */
static int word(const json_t *object, const char *key, const char *const *words, size_t n, const char *where,
                struct err *e)
{
    const json_t *v = json_object_get(object, key);

    if (!v)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (json_is_string(v) && strcmp(json_string_value(v), words[i]) == 0)
            return (int)i;
    return err_set(e, -EINVAL, "%s%s must be one of %s, %s%s%s", where, key, words[0], words[1],
                   n > 2 ? ", " : "", n > 2 ? words[2] : "");
}
#define WORD(object, key, where, e, ...)                                                                     \
    word(object, key, (const char *const[]){__VA_ARGS__}, ARRAY_LEN(((const char *const[]){__VA_ARGS__})),   \
         where, e)

typedef int (*item_fn)(struct policy *p, uint32_t rule, const json_t *item, const char *where, struct err *e);

/* Every item of an optional array. */
static int each(struct policy *p, uint32_t rule, const json_t *object, const char *key, const char *where,
                item_fn fn, struct err *e)
{
    const json_t *list = json_object_get(object, key);
    char at[160];

    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > LIST_MAX)
        return err_set(e, -EINVAL, "%s%s must be a list of at most %d", where, key, LIST_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        (void)snprintf(at, sizeof at, "%s%s[%zu]", where, key, i);
        int r = fn(p, rule, json_array_get(list, i), at, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_host(struct policy *p, uint32_t rule, const json_t *item, const char *where, struct err *e)
{
    enum name_pattern kind;
    char name[NAME_MAX_BYTES];

    if (!json_is_string(item) || name_pattern_parse(json_string_value(item), &kind, name) < 0)
        return err_set(e, -EINVAL, "%s must be a host name, *.name or **.name", where);
    struct rule_list *list = map_get(p->hosts[kind], name);
    if (!list) {
        list = xcalloc(1, sizeof *list);
        (void)map_put(p->hosts[kind], name, list);
    }
    list->index = xgrow(list->index, list->n, &list->cap, sizeof *list->index);
    list->index[list->n++] = rule;
    p->rules[rule].by_host = true;
    return 0;
}

static int read_cidr(const json_t *item, struct cidr *ret, const char *where, struct err *e)
{
    if (!json_is_string(item) || cidr_parse(json_string_value(item), ret) < 0)
        return err_set(e, -EINVAL, "%s must be an address or a CIDR such as 10.0.0.0/8", where);
    return 0;
}

static int add_cidr(struct policy *p, uint32_t rule, const json_t *item, const char *where, struct err *e)
{
    struct cidr c;
    int r = read_cidr(item, &c, where, e);

    if (r < 0)
        return r;
    c.rule = rule;
    cidr_add(&p->cidrs, c);
    return 0;
}

static int add_hard(struct policy *p, uint32_t rule, const json_t *item, const char *where, struct err *e)
{
    struct cidr c;
    int r = read_cidr(item, &c, where, e);

    (void)rule;
    if (r < 0)
        return r;
    cidr_add(&p->hard, c);
    return 0;
}

static int parse_ports(const json_t *item, struct port_range *ret)
{
    char text[16];
    uint64_t low, high;

    if (json_is_integer(item)) {
        json_int_t n = json_integer_value(item);
        *ret = (struct port_range){(uint16_t)n, (uint16_t)n};
        return n < 1 || n > 65535 ? -EINVAL : 0;
    }
    if (!json_is_string(item) || json_string_length(item) >= sizeof text)
        return -EINVAL;
    memcpy(text, json_string_value(item), json_string_length(item) + 1);
    char *dash = strchr(text, '-');
    if (dash)
        *dash = '\0';
    if (parse_u64(text, 65535, &low) < 0 || parse_u64(dash ? dash + 1 : text, 65535, &high) < 0 || low < 1 ||
        high < low)
        return -EINVAL;
    *ret = (struct port_range){(uint16_t)low, (uint16_t)high};
    return 0;
}

static int add_port(struct policy *p, uint32_t rule, const json_t *item, const char *where, struct err *e)
{
    struct rule *r = &p->rules[rule];
    struct port_range range;

    if (parse_ports(item, &range) < 0)
        return err_set(e, -EINVAL, "%s must be a port (1-65535) or a range such as \"8000-8010\"", where);
    r->ports = xrealloc_array(r->ports, r->n_ports + 1, sizeof *r->ports);
    r->ports[r->n_ports++] = range;
    return 0;
}

static int add_rule(struct policy *p, uint32_t unused, const json_t *item, const char *where, struct err *e)
{
    static const unsigned protocols[] = {FLOW_TCP, FLOW_UDP, FLOW_TCP | FLOW_UDP};
    uint32_t index = (uint32_t)p->n_rules;
    struct rule *rule = &p->rules[index];
    char prefix[176];

    (void)unused;
    (void)snprintf(prefix, sizeof prefix, "%s.", where);
    if (!json_is_object(item))
        return err_set(e, -EINVAL, "%s must be an object", where);
    int deny = WORD(item, "action", prefix, e, "Allow", "Deny");
    int protocol = WORD(item, "protocol", prefix, e, "TCP", "UDP", "Any");
    if (deny == -EINVAL || protocol == -EINVAL)
        return -EINVAL;
    const char *name = json_string_value(json_object_get(item, "name"));
    rule->name = xstrdup(name ? name : where);
    rule->deny = deny == 1;
    /* A Deny that names no protocol means all of it; an Allow means TCP, because UDP must be asked for. */
    rule->protocols = protocol >= 0 ? protocols[protocol] : rule->deny ? FLOW_TCP | FLOW_UDP : FLOW_TCP;
    p->n_rules++;
    int r = each(p, index, item, "hosts", prefix, add_host, e);
    size_t before = p->cidrs.n;
    if (r == 0)
        r = each(p, index, item, "cidrs", prefix, add_cidr, e);
    if (r == 0)
        r = each(p, index, item, "ports", prefix, add_port, e);
    if (r == 0 && !rule->by_host && p->cidrs.n == before)
        return err_set(e, -EINVAL, "%s must name hosts or cidrs; a rule without them would match nothing",
                       where);
    return r;
}

/* Link-local, and where clouds keep metadata and host services: no rule of a policy opens these. */
static const char *const always_denied[] = {
    "169.254.0.0/16", "fe80::/10",   "fd00:ec2::/32", "fd20:ce::254", "100.100.100.200",
    "168.63.129.16",  "192.0.0.192", "224.0.0.0/4",   "ff00::/8",     "255.255.255.255",
};

static int fill(struct policy *p, const json_t *root, struct err *e)
{
    const json_t *rules = json_object_get(root, "rules");
    int audit = WORD(root, "mode", "", e, "Enforce", "Audit");
    int allow = WORD(root, "defaultAction", "", e, "Deny", "Allow");

    if (audit == -EINVAL || allow == -EINVAL)
        return -EINVAL;
    if (rules && (!json_is_array(rules) || json_array_size(rules) > POLICY_RULES_MAX))
        return err_set(e, -EINVAL, "rules must be a list of at most %d", POLICY_RULES_MAX);
    const char *name = json_string_value(json_object_get(root, "name"));
    p->name = xstrdup(name ? name : "unnamed");
    p->generation = (uint64_t)json_integer_value(json_object_get(root, "generation"));
    p->lease_s = json_integer_value(json_object_get(root, "leaseSeconds"));
    p->audit = audit == 1;
    p->default_allow = allow == 1;
    p->rules = xcalloc(json_array_size(rules), sizeof *p->rules);
    for (size_t i = 0; i < ARRAY_LEN(always_denied); i++) {
        struct cidr c;
        if (cidr_parse(always_denied[i], &c) == 0)
            cidr_add(&p->hard, c);
    }
    int r = each(p, 0, root, "hardDeny", "", add_hard, e);
    for (size_t i = 0; r == 0 && i < json_array_size(rules); i++) {
        char at[32];
        (void)snprintf(at, sizeof at, "rules[%zu]", i);
        r = add_rule(p, 0, json_array_get(rules, i), at, e);
    }
    return r;
}

int policy_parse(const char *json, size_t len, struct policy **ret, struct err *e)
{
    json_error_t where;

    if (len > POLICY_TEXT_MAX)
        return err_set(e, -EFBIG, "the policy is larger than %u bytes", POLICY_TEXT_MAX);
    scoped(json_decref) json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return err_set(e, -EINVAL, "the policy is not JSON: line %d: %s", where.line, where.text);
    if (!json_is_object(root))
        return err_set(e, -EINVAL, "the policy must be a JSON object");
    scoped(policy_free) struct policy *p = xcalloc(1, sizeof *p);
    for (size_t i = 0; i < ARRAY_LEN(p->hosts); i++)
        p->hosts[i] = map_new();
    int r = fill(p, root, e);
    if (r < 0)
        return r;
    cidr_seal(&p->hard);
    cidr_seal(&p->cidrs);
    *ret = take(p);
    return 0;
}
