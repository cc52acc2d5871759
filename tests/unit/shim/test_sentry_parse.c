/* What the sentry decodes: addresses, message headers, control messages; and what it decides from them. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include "shim/sentry/address.h"
#include "shim/sentry/egress.h"
#include "shim/sentry/msghdr.h"
#include "tests/unit/shim/unit.h"

static struct address v4(const char *ip, uint16_t port)
{
    struct address a = {.len = sizeof a.u.v4};
    a.u.v4.sin_family = AF_INET;
    a.u.v4.sin_port = htons(port);
    assert_int_equal(inet_pton(AF_INET, ip, &a.u.v4.sin_addr), 1);
    return a;
}

static struct address v6(const char *ip, uint16_t port)
{
    struct address a = {.len = sizeof a.u.v6};
    a.u.v6.sin6_family = AF_INET6;
    a.u.v6.sin6_port = htons(port);
    assert_int_equal(inet_pton(AF_INET6, ip, &a.u.v6.sin6_addr), 1);
    return a;
}

static void an_address_is_what_the_kernel_will_make_of_it(void **state)
{
    static const struct {
        const char *ip, *want, *carried;
    } cases[] = {
        {"1.2.3.4", "1.2.3.4:80", NULL},
        {"::1", "[::1]:80", NULL},
        {"::", "[::]:80", NULL},
        {"::ffff:1.2.3.4", "1.2.3.4:80", NULL},
        {"::1.2.3.4", "[::1.2.3.4]:80", "1.2.3.4"},
        {"64:ff9b::a9fe:a9fe", "[64:ff9b::a9fe:a9fe]:80", "169.254.169.254"},
        {"2002:a9fe:a9fe::1", "[2002:a9fe:a9fe::1]:80", "169.254.169.254"},
        {"2001:db8::1", "[2001:db8::1]:80", NULL},
        {"fe80::1", "[fe80::1]:80", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct address a = strchr(cases[i].ip, ':') ? v6(cases[i].ip, 80) : v4(cases[i].ip, 80);
        char text[ENDPOINT_TEXT_MAX], carried[INET_ADDRSTRLEN] = "";
        struct endpoint p;
        assert_int_equal(address_parse(&a, AF_INET6, ADDRESS_CONNECT, &p), 0);
        endpoint_format(&p, text);
        assert_string_equal(text, cases[i].want);
        assert_int_equal(p.has_v4, cases[i].carried != NULL);
        if (cases[i].carried)
            assert_string_equal(inet_ntop(AF_INET, p.v4, carried, sizeof carried), cases[i].carried);
    }
}

static void short_and_foreign_addresses_are_refused(void **state)
{
    struct endpoint p;
    struct address a = v4("1.2.3.4", 1);
    (void)state;
    for (socklen_t n = 0; n < sizeof a.u.v4; n++) {
        a.len = n;
        assert_int_equal(address_parse(&a, AF_INET, ADDRESS_CONNECT, &p), -EINVAL);
    }
    a = v6("::1", 1);
    for (socklen_t n = 0; n < 24; n++) {
        a.len = n;
        assert_int_equal(address_parse(&a, AF_INET6, ADDRESS_CONNECT, &p), -EINVAL);
    }
    a.len = 24; /* without a scope: valid */
    assert_int_equal(address_parse(&a, AF_INET6, ADDRESS_CONNECT, &p), 0);
    assert_int_equal(address_parse(&a, AF_INET, ADDRESS_CONNECT, &p), -EAFNOSUPPORT);
    for (int family = 0; family < 64; family++) {
        a.u.any.sa_family = (sa_family_t)family;
        a.len = sizeof a.u.space;
        int r = address_parse(&a, AF_INET6, ADDRESS_CONNECT, &p);
        assert_int_equal(r, family == AF_UNSPEC                       ? 1
                            : family == AF_INET || family == AF_INET6 ? 0
                                                                      : -EAFNOSUPPORT);
    }
}

/* udp_sendmsg() and inet_bind() take AF_UNSPEC for AF_INET: it must not get round the policy as "no address".
 */
static void an_unspecified_family_is_read_as_the_kernel_reads_it(void **state)
{
    static const struct {
        int domain, want;
        enum address_use use;
    } cases[] = {
        {AF_INET, 1, ADDRESS_CONNECT}, {AF_INET6, 1, ADDRESS_CONNECT},
        {AF_INET, 0, ADDRESS_SEND},    {AF_INET6, 1, ADDRESS_SEND},
        {AF_INET, 0, ADDRESS_BIND},    {AF_INET6, -EAFNOSUPPORT, ADDRESS_BIND},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct address a = v4("169.254.169.254", 80);
        struct endpoint p;
        a.u.any.sa_family = AF_UNSPEC;
        assert_int_equal(address_parse(&a, cases[i].domain, cases[i].use, &p), cases[i].want);
        if (cases[i].want == 0)
            assert_int_equal(p.family, AF_INET);
    }
}

static void denied_ranges_hold_in_every_spelling(void **state)
{
    static const struct egress_range deny[] = {{AF_INET, {169, 254, 169, 254}, 32},
                                               {AF_INET, {10}, 8},
                                               {AF_INET, {172, 16}, 12},
                                               {AF_INET6, {0xfd}, 8}};
    struct egress egress = {0};
    static const struct {
        const char *ip;
        int want;
    } cases[] = {
        {"169.254.169.254", EACCES},
        {"169.254.169.253", 0},
        {"::ffff:169.254.169.254", EACCES},
        {"64:ff9b::a9fe:a9fe", EACCES},
        {"2002:a9fe:a9fe::", EACCES},
        {"::169.254.169.254", EACCES},
        {"10.255.0.1", EACCES},
        {"11.0.0.0", 0},
        {"172.16.0.1", EACCES},
        {"172.31.255.255", EACCES},
        {"172.32.0.0", 0},
        {"fd00::1", EACCES},
        {"fe00::1", 0},
        {"127.0.0.1", 0},
        {"::1", 0},
    };
    (void)state;
    egress_init(&egress, deny, ARRAY_LEN(deny));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct address a = strchr(cases[i].ip, ':') ? v6(cases[i].ip, 80) : v4(cases[i].ip, 80);
        struct flow f = {.use = ADDRESS_CONNECT, .type = SOCK_STREAM};
        assert_int_equal(address_parse(&a, AF_INET6, f.use, &f.to), 0);
        struct egress_answer answer;
        egress_decide(&egress, &f, &answer);
        assert_int_equal(answer.error, cases[i].want);
        f.use = ADDRESS_BIND;
        egress_decide(&egress, &f, &answer);
        assert_int_equal(answer.error, 0);
    }
}

static void message_headers_are_bounded(void **state)
{
    struct wire_msghdr h = {.name = 1, .name_len = 16, .iov = 1, .iov_len = 1};
    (void)state;
    assert_int_equal(msghdr_check(&h), 0);
    h.name_len = -1;
    assert_int_equal(msghdr_check(&h), -EINVAL);
    h.name = 0;
    assert_int_equal(msghdr_check(&h), 0);
    h.iov_len = MSG_IOV_MAX + 1;
    assert_int_equal(msghdr_check(&h), -EMSGSIZE);
    h.iov_len = UINT64_MAX;
    assert_int_equal(msghdr_check(&h), -EMSGSIZE);
    h.iov_len = 0;
    h.control_len = MSG_CONTROL_MAX + 1;
    assert_int_equal(msghdr_check(&h), -ENOBUFS);

    struct iovec v[3] = {{NULL, MSG_DATAGRAM_MAX}, {NULL, 0}, {NULL, 1}};
    assert_int_equal(msghdr_data_bytes(v, 2), MSG_DATAGRAM_MAX);
    assert_int_equal(msghdr_data_bytes(v, 3), -EMSGSIZE);
    v[0].iov_len = SIZE_MAX;
    assert_int_equal(msghdr_data_bytes(v, 3), -EINVAL);
}

static void control_messages_are_listed(void **state)
{
    static const struct {
        int level, type, want;
    } cases[] = {
        {IPPROTO_IP, IP_PKTINFO, 0},       {IPPROTO_IPV6, IPV6_PKTINFO, 0},     {IPPROTO_IP, IP_TOS, 0},
        {SOL_SOCKET, SCM_RIGHTS, -EINVAL}, {IPPROTO_UDP, 103, -EINVAL},         {SOL_SOCKET, 61, -EINVAL},
        {IPPROTO_IP, IP_RETOPTS, -EINVAL}, {IPPROTO_IPV6, IPV6_RTHDR, -EINVAL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        union {
            struct cmsghdr c;
            uint8_t bytes[CMSG_SPACE(20) * 2];
        } u = {.c = {.cmsg_len = CMSG_LEN(20), .cmsg_level = cases[i].level, .cmsg_type = cases[i].type}};
        assert_int_equal(msghdr_control_check(&u, CMSG_SPACE(20)), cases[i].want);
        /* the same one as the second */
        struct cmsghdr second = u.c;
        u.c = (struct cmsghdr){.cmsg_len = CMSG_LEN(20), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO};
        memcpy(u.bytes + CMSG_SPACE(20), &second, sizeof second);
        assert_int_equal(msghdr_control_check(&u, sizeof u), cases[i].want);
    }
    struct cmsghdr bad = {.cmsg_len = 3, .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO};
    assert_int_equal(msghdr_control_check(&bad, sizeof bad), -EINVAL);
    bad.cmsg_len = SIZE_MAX;
    assert_int_equal(msghdr_control_check(&bad, sizeof bad), -EINVAL);
    bad.cmsg_len = sizeof bad + 1;
    assert_int_equal(msghdr_control_check(&bad, sizeof bad), -EINVAL);
    assert_int_equal(msghdr_control_check(&bad, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_what_the_kernel_will_make_of_it),
        cmocka_unit_test(short_and_foreign_addresses_are_refused),
        cmocka_unit_test(an_unspecified_family_is_read_as_the_kernel_reads_it),
        cmocka_unit_test(denied_ranges_hold_in_every_spelling),
        cmocka_unit_test(message_headers_are_bounded),
        cmocka_unit_test(control_messages_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
