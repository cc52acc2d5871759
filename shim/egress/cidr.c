/* Sets of address ranges: one binary search per prefix length that occurs. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "shim/egress/policy_priv.h"

static struct ip masked(const struct ip *ip, unsigned prefix)
{
    struct ip m = {.family = ip->family};

    memcpy(m.bytes, ip->bytes, prefix / 8);
    if (prefix % 8)
        m.bytes[prefix / 8] = ip->bytes[prefix / 8] & (uint8_t)(0xff << (8 - prefix % 8));
    return m;
}

int cidr_parse(const char *text, struct cidr *ret)
{
    char buf[64];
    struct ip ip = {0};
    uint64_t prefix;
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);

    if (n >= sizeof buf)
        return -EINVAL;
    memcpy(buf, text, n);
    buf[n] = '\0';
    ip.family = strchr(buf, ':') ? AF_INET6 : AF_INET;
    unsigned max = ip.family == AF_INET6 ? 128 : 32;
    if (inet_pton(ip.family, buf, ip.bytes) != 1)
        return -EINVAL;
    prefix = max;
    if (slash && parse_u64(slash + 1, max, &prefix) < 0)
        return -EINVAL;
    *ret = (struct cidr){.ip = masked(&ip, (unsigned)prefix), .prefix = (uint8_t)prefix};
    return 0;
}

void cidr_add(struct cidr_set *s, struct cidr c)
{
    s->items = xgrow(s->items, s->n, &s->cap, sizeof *s->items);
    s->items[s->n++] = c;
}

static int compare_ip(const struct cidr *x, uint8_t family, uint8_t prefix, const struct ip *ip)
{
    if (x->ip.family != family)
        return x->ip.family < family ? -1 : 1;
    if (x->prefix != prefix)
        return x->prefix < prefix ? -1 : 1;
    return memcmp(x->ip.bytes, ip->bytes, sizeof ip->bytes);
}

static int compare(const void *a, const void *b)
{
    const struct cidr *y = b;

    return compare_ip(a, y->ip.family, y->prefix, &y->ip);
}

void cidr_seal(struct cidr_set *s)
{
    if (s->n == 0)
        return;
    qsort(s->items, s->n, sizeof *s->items, compare);
    s->groups = xcalloc(s->n, sizeof *s->groups);
    for (size_t i = 0; i < s->n; i++) {
        const struct cidr *c = &s->items[i];
        if (s->n_groups == 0 || s->groups[s->n_groups - 1].family != c->ip.family ||
            s->groups[s->n_groups - 1].prefix != c->prefix) {
            s->groups[s->n_groups].family = c->ip.family;
            s->groups[s->n_groups].prefix = c->prefix;
            s->groups[s->n_groups++].first = i;
        }
        s->groups[s->n_groups - 1].end = i + 1;
    }
}

bool cidr_each(const struct cidr_set *s, const struct ip *ip, bool (*fn)(void *data, const struct cidr *c),
               void *data)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        if (s->groups[g].family != ip->family)
            continue;
        struct ip key = masked(ip, s->groups[g].prefix);
        size_t low = s->groups[g].first, high = s->groups[g].end;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (memcmp(s->items[middle].ip.bytes, key.bytes, sizeof key.bytes) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < s->groups[g].end && memcmp(s->items[low].ip.bytes, key.bytes, sizeof key.bytes) == 0;
             low++)
            if (fn(data, &s->items[low]))
                return true;
    }
    return false;
}
