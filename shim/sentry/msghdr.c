#include "shim/sentry/msghdr.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

int msghdr_check(const struct wire_msghdr *h)
{
    if (h->name && h->name_len < 0)
        return -EINVAL;
    if (h->iov_len > MSG_IOV_MAX)
        return -EMSGSIZE;
    if (h->control_len > MSG_CONTROL_MAX)
        return -ENOBUFS;
    return 0;
}

int64_t msghdr_data_bytes(const struct iovec *iov, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (iov[i].iov_len > SSIZE_MAX)
            return -EINVAL;
        sum += iov[i].iov_len;
        if (sum > MSG_DATAGRAM_MAX)
            return -EMSGSIZE;
    }
    return (int64_t)sum;
}

/* Not: segmentation offload, transmission times, marks, source routes, descriptors. */
static const struct {
    int level, type;
} allowed[] = {
    {IPPROTO_IP, IP_PKTINFO},      {IPPROTO_IP, IP_TOS},          {IPPROTO_IP, IP_TTL},
    {IPPROTO_IPV6, IPV6_PKTINFO},  {IPPROTO_IPV6, IPV6_HOPLIMIT}, {IPPROTO_IPV6, IPV6_TCLASS},
    {IPPROTO_IPV6, IPV6_DONTFRAG},
};

int msghdr_control_check(const void *control, size_t n)
{
    const uint8_t *p = control;

    while (n >= sizeof(struct cmsghdr)) {
        struct cmsghdr c;
        memcpy(&c, p, sizeof c);
        if (c.cmsg_len < sizeof c || c.cmsg_len > n)
            return -EINVAL;
        size_t i = 0;
        while (i < ARRAY_LEN(allowed) && (allowed[i].level != c.cmsg_level || allowed[i].type != c.cmsg_type))
            i++;
        if (i == ARRAY_LEN(allowed))
            return -EINVAL;
        size_t step = CMSG_ALIGN(c.cmsg_len);
        if (step >= n)
            break;
        p += step;
        n -= step;
    }
    return 0;
}
