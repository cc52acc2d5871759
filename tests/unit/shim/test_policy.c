#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "shim/egress/name.h"
#include "shim/egress/policy.h"

static struct ip ip_of(const char *text)
{
    struct ip ip = {.family = strchr(text, ':') ? AF_INET6 : AF_INET};

    assert_int_equal(inet_pton(ip.family, text, ip.bytes), 1);
    return ip;
}

static struct policy *parse(const char *json)
{
    struct policy *p = NULL;
    struct err e = {0};

    if (policy_parse(json, strlen(json), &p, &e) < 0)
        fail_msg("%s", e.text);
    return p;
}

static void names_have_one_form_or_are_rejected(void **state)
{
    static const struct {
        const char *in;
        size_t len;
        const char *out; /* NULL = rejected */
    } cases[] = {
        {"API.Test.Example", 16, "api.test.example"},
        {"api.test.example.", 17, "api.test.example"},
        {"a", 1, "a"},
        {"_srv._tcp.x", 11, "_srv._tcp.x"},
        {"api.test\0.evil", 14, NULL},
        {"a..b", 4, NULL},
        {".a", 2, NULL},
        {"", 0, NULL},
        {".", 1, NULL},
        {"a b", 3, NULL},
        {"user@host", 9, NULL},
        {"a%00b", 5, NULL},
        {"xn--bcher-kva.example", 21, "xn--bcher-kva.example"},
        {"b\xc3\xbc", 3, NULL},
        {"a:443", 5, NULL},
        {"a..", 3, NULL},
    };
    char out[NAME_MAX_BYTES], longest[300];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int r = name_canonical(cases[i].in, cases[i].len, out);
        assert_int_equal(r == 0, cases[i].out != NULL);
        if (cases[i].out)
            assert_string_equal(out, cases[i].out);
    }
    memset(longest, 'a', sizeof longest);
    assert_int_equal(name_canonical(longest, 63, out), 0);
    assert_int_not_equal(name_canonical(longest, 64, out), 0);
    for (size_t i = 63; i < sizeof longest; i += 64)
        longest[i] = '.';
    assert_int_equal(name_canonical(longest, 253, out), 0);
    assert_int_not_equal(name_canonical(longest, 255, out), 0);
}

static const char full[] = "{\"name\":\"agent\",\"generation\":7,\"leaseSeconds\":60,\"hardDeny\":[\"169.254."
                           "0.0/16\",\"fd00:ec2::254\"],\"rules\":["
                           "{\"name\":\"packages\",\"hosts\":[\"files.example\",\"*.one.example\",\"**.deep."
                           "example\"],\"ports\":[443,\"8000-8010\"]},"
                           "{\"name\":\"no-evil\",\"action\":\"Deny\",\"hosts\":[\"evil.deep.example\"],"
                           "\"cidrs\":[\"10.1.0.0/16\"]},"
                           "{\"name\":\"db\",\"cidrs\":[\"10.0.0.0/8\",\"fd00::/8\"],\"ports\":[5432]},"
                           "{\"name\":\"ntp\",\"cidrs\":[\"192.0.2.1\"],\"protocol\":\"UDP\"}]}";

static void a_flow_is_judged_by_hard_denies_then_denies_then_allows(void **state)
{
    static const struct {
        const char *ip;
        uint16_t port;
        enum flow_protocol protocol;
        bool allow;
        enum egress_reason reason;
        const char *rule;
    } cases[] = {
        {"127.0.0.1", 9, FLOW_TCP, true, EGRESS_LOOPBACK, NULL},
        {"0.0.0.0", 9, FLOW_TCP, true, EGRESS_LOOPBACK, NULL},
        {"::1", 9, FLOW_UDP, true, EGRESS_LOOPBACK, NULL},
        {"169.254.169.254", 80, FLOW_TCP, false, EGRESS_HARD_DENY, NULL},
        {"fd00:ec2::254", 5432, FLOW_TCP, false, EGRESS_HARD_DENY, NULL},
        {"10.2.3.4", 5432, FLOW_TCP, true, EGRESS_RULE, "db"},
        {"10.2.3.4", 5433, FLOW_TCP, false, EGRESS_PORT, "db"},
        {"10.2.3.4", 5432, FLOW_UDP, false, EGRESS_PORT, "db"},
        {"10.1.3.4", 5432, FLOW_TCP, false, EGRESS_RULE, "no-evil"},
        {"192.0.2.1", 123, FLOW_UDP, true, EGRESS_RULE, "ntp"},
        {"192.0.2.1", 123, FLOW_TCP, false, EGRESS_PORT, "ntp"},
        {"192.0.2.2", 123, FLOW_UDP, false, EGRESS_NO_GRANT, NULL},
        {"198.51.100.1", 443, FLOW_TCP, true, EGRESS_RULE, "packages"}, /* files.example */
        {"198.51.100.1", 8005, FLOW_TCP, true, EGRESS_RULE, "packages"},
        {"198.51.100.1", 80, FLOW_TCP, false, EGRESS_PORT, "packages"},
        {"198.51.100.2", 443, FLOW_TCP, true, EGRESS_RULE, "packages"}, /* a.one.example */
        {"198.51.100.3", 443, FLOW_TCP, false, EGRESS_NO_GRANT, NULL},  /* a.b.one.example */
        {"198.51.100.4", 443, FLOW_TCP, true, EGRESS_RULE, "packages"}, /* a.b.deep.example */
        {"198.51.100.5", 443, FLOW_TCP, false, EGRESS_RULE, "no-evil"}, /* evil.deep.example */
        {"198.51.100.6", 443, FLOW_TCP, false, EGRESS_NO_GRANT, NULL},  /* expired */
        {"2001:db8::1", 443, FLOW_TCP, true, EGRESS_RULE, "packages"},
    };
    static const struct {
        const char *ip, *name;
        int64_t until;
    } granted[] = {{"198.51.100.1", "files.example", 2000},     {"198.51.100.2", "a.one.example", 2000},
                   {"198.51.100.3", "a.b.one.example", 2000},   {"198.51.100.4", "a.b.deep.example", 2000},
                   {"198.51.100.5", "evil.deep.example", 2000}, {"198.51.100.6", "files.example", 999},
                   {"2001:db8::1", "files.example", 2000}};
    struct policy *p = parse(full);
    struct grants *g = grants_new(100);

    (void)state;
    for (size_t i = 0; i < sizeof granted / sizeof granted[0]; i++) {
        struct ip ip = ip_of(granted[i].ip);
        grants_add(g, &ip, granted[i].name, granted[i].until);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct egress_flow flow = {
            .to = ip_of(cases[i].ip), .port = cases[i].port, .protocol = cases[i].protocol};
        struct egress_verdict v = policy_judge(p, g, &flow, 1000, false);
        if (v.allow != cases[i].allow || v.reason != cases[i].reason ||
            (v.rule == NULL) != (cases[i].rule == NULL) || (v.rule && strcmp(v.rule, cases[i].rule) != 0))
            fail_msg("%s:%u: allow %d, %s, rule %s", cases[i].ip, cases[i].port, v.allow,
                     egress_reason_name(v.reason), v.rule ? v.rule : "-");
    }
    const struct egress_flow db = {.to = ip_of("10.2.3.4"), .port = 5432, .protocol = FLOW_TCP};
    assert_int_equal(policy_judge(p, g, &db, 1000, true).reason, EGRESS_LEASE);
    assert_int_equal(policy_generation(p), 7);
    assert_int_equal(policy_lease_s(p), 60);
    grants_free(g);
    policy_free(p);
}

static void an_empty_policy_denies_everything_but_loopback(void **state)
{
    static const char *const empty[] = {"{}", "{\"rules\":[]}"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct policy *p = parse(empty[i]);
        const struct egress_flow flow = {.to = ip_of("198.51.100.1"), .port = 443, .protocol = FLOW_TCP};
        bool wildcard;
        assert_false(policy_judge(p, NULL, &flow, 0, false).allow);
        assert_false(policy_resolves(p, "files.example", &wildcard));
        policy_free(p);
    }
}

static void only_listed_names_are_resolved(void **state)
{
    static const struct {
        const char *name;
        bool yes, wildcard;
    } cases[] = {{"files.example", true, false},    {"x.files.example", false, false},
                 {"a.one.example", true, true},     {"one.example", false, false},
                 {"a.b.one.example", false, false}, {"a.b.c.deep.example", true, true},
                 {"deep.example", false, false},    {"evil.deep.example", false, false}};
    struct policy *p = parse(full);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool wildcard = false;
        assert_int_equal(policy_resolves(p, cases[i].name, &wildcard), cases[i].yes);
        if (cases[i].yes)
            assert_int_equal(wildcard, cases[i].wildcard);
    }
    struct ip own = ip_of("127.0.0.1"), metadata = ip_of("169.254.169.254"), other = ip_of("10.9.9.9");
    assert_false(policy_may_grant(p, &own));
    assert_false(policy_may_grant(p, &metadata));
    assert_true(policy_may_grant(p, &other));
    policy_free(p);
}

static void bad_policies_are_refused_with_the_field(void **state)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"", "not JSON"},
        {"[]", "must be a JSON object"},
        {"{\"mode\":\"Log\"}", "mode must be one of Enforce, Audit"},
        {"{\"hardDeny\":[\"10.0.0.0/33\"]}", "hardDeny[0] must be an address or a CIDR"},
        {"{\"rules\":{}}", "rules must be a list"},
        {"{\"rules\":[{\"hosts\":[\"*\"]}]}", "rules[0].hosts[0] must be a host name"},
        {"{\"rules\":[{\"hosts\":[\"a.*.b\"]}]}", "rules[0].hosts[0]"},
        {"{\"rules\":[{\"name\":\"x\"}]}", "rules[0] must name hosts or cidrs"},
        {"{\"rules\":[{\"hosts\":[\"a\"],\"ports\":[0]}]}", "rules[0].ports[0] must be a port"},
        {"{\"rules\":[{\"hosts\":[\"a\"],\"ports\":[\"9-8\"]}]}", "rules[0].ports[0]"},
        {"{\"rules\":[{\"hosts\":[\"a\"],\"protocol\":\"SCTP\"}]}",
         "rules[0].protocol must be one of TCP, UDP, Any"},
        {"{\"rules\":[{\"hosts\":[\"a\"],\"action\":\"Maybe\"}]}",
         "rules[0].action must be one of Allow, Deny"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct policy *p = NULL;
        struct err e = {0};
        assert_int_equal(policy_parse(cases[i].json, strlen(cases[i].json), &p, &e), -EINVAL);
        assert_null(p);
        if (!strstr(e.text, cases[i].text))
            fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].text);
    }
}

static void grants_are_bounded_and_the_first_to_end_go(void **state)
{
    struct grants *g = grants_new(1000);
    struct policy *p = parse("{\"rules\":[{\"name\":\"r\",\"hosts\":[\"keep.example\"]}]}");
    char name[64];

    (void)state;
    struct ip keep = ip_of("203.0.113.7");
    grants_add(g, &keep, "keep.example", INT64_MAX);
    for (int i = 0; i < 20000; i++) {
        struct ip ip = {.family = AF_INET, .bytes = {10, (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i}};
        snprintf(name, sizeof name, "n%d.example", i % 50);
        grants_add(g, &ip, name, 1000 + i);
        assert_true(grants_count(g) <= 1000);
    }
    const struct egress_flow flow = {.to = keep, .port = 1, .protocol = FLOW_TCP};
    assert_true(policy_judge(p, g, &flow, 5, false).allow);
    policy_free(p);
    grants_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_one_form_or_are_rejected),
        cmocka_unit_test(a_flow_is_judged_by_hard_denies_then_denies_then_allows),
        cmocka_unit_test(an_empty_policy_denies_everything_but_loopback),
        cmocka_unit_test(only_listed_names_are_resolved),
        cmocka_unit_test(bad_policies_are_refused_with_the_field),
        cmocka_unit_test(grants_are_bounded_and_the_first_to_end_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
