#include "shim/sentry/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SIN6_LEN_MIN 24 /* without sin6_scope_id: what the kernel still accepts (RFC 2133) */

static int parse_v4(const struct address *a, struct endpoint *ret)
{
    if (a->len < sizeof a->u.v4)
        return -EINVAL;
    ret->family = AF_INET;
    memcpy(ret->ip, &a->u.v4.sin_addr, 4);
    ret->port = ntohs(a->u.v4.sin_port);
    return 0;
}

/* IPv6 forms that end at an IPv4 host: prefix, its length in bytes, where the IPv4 bytes are. */
static const struct {
    uint8_t prefix[12], len, at;
} carriers[] = {
    {{0x00, 0x64, 0xff, 0x9b}, 12, 12}, /* NAT64 64:ff9b::/96 */
    {{0x20, 0x02}, 2, 2},               /* 6to4 2002::/16 */
    {{0}, 12, 12},                      /* v4-compatible ::/96 */
};

static void find_carried(struct endpoint *p)
{
    static const uint8_t low[16]; /* :: and ::1 carry nothing */
    if (memcmp(p->ip, low, 15) == 0 && p->ip[15] <= 1)
        return;
    for (size_t i = 0; i < ARRAY_LEN(carriers) && !p->has_v4; i++) {
        if (memcmp(p->ip, carriers[i].prefix, carriers[i].len) != 0)
            continue;
        p->has_v4 = true;
        memcpy(p->v4, p->ip + carriers[i].at, 4);
    }
}

static int parse_v6(const struct address *a, struct endpoint *ret)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (a->len < SIN6_LEN_MIN)
        return -EINVAL;
    memcpy(ret->ip, &a->u.v6.sin6_addr, 16);
    ret->port = ntohs(a->u.v6.sin6_port);
    ret->scope = a->len >= sizeof a->u.v6 ? a->u.v6.sin6_scope_id : 0;
    ret->family = AF_INET6;
    if (memcmp(ret->ip, mapped, sizeof mapped) == 0) {
        ret->family = AF_INET;
        memmove(ret->ip, ret->ip + 12, 4);
        memset(ret->ip + 4, 0, 12);
        return 0;
    }
    find_carried(ret);
    return 0;
}

int address_parse(const struct address *a, int domain, enum address_use use, struct endpoint *ret)
{
    struct endpoint p = {0};
    int r;

    if (a->len < sizeof a->u.any.sa_family)
        return -EINVAL;
    switch (a->u.any.sa_family) {
    case AF_INET:
        r = parse_v4(a, &p);
        break;
    case AF_INET6:
        r = domain == AF_INET6 ? parse_v6(a, &p) : -EAFNOSUPPORT;
        break;
    case AF_UNSPEC:
        if (domain == AF_INET &&
            use != ADDRESS_CONNECT) /* the kernel reads it as AF_INET (udp_sendmsg, inet_bind) */
            r = parse_v4(a, &p);
        else
            r = use == ADDRESS_BIND ? -EAFNOSUPPORT : 1;
        break;
    default:
        return -EAFNOSUPPORT;
    }
    if (r >= 0)
        *ret = p;
    return r;
}

void endpoint_format(const struct endpoint *p, char out[ENDPOINT_TEXT_MAX])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (p->family == AF_UNSPEC) {
        (void)snprintf(out, ENDPOINT_TEXT_MAX, "none");
        return;
    }
    (void)inet_ntop(p->family, p->ip, ip, sizeof ip);
    (void)snprintf(out, ENDPOINT_TEXT_MAX, p->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, p->port);
}
