/* P10-P17, P21, P35-P38: sockets, options, netlink. */
#include "probe.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ANY_SOCKET_ANSWER REACHED(PROBE_OK, EPROTONOSUPPORT, ESOCKTNOSUPPORT, EPROTOTYPE)
#define REACHED(...)      .reached = {__VA_ARGS__}

static long any_family(const struct probe *p)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
    long worst = -EAFNOSUPPORT;

    for (int family = 0; family < 64; family++) {
        if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
            continue;
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
            struct probe one = {.arg = {family, types[i], p->arg[0]}};
            long r = run_socket(&one);
            if (r >= 0 || r == -EPROTONOSUPPORT || r == -ESOCKTNOSUPPORT || r == -EPROTOTYPE)
                return r;
        }
    }
    return worst;
}

static long oob(const struct probe *p)
{
    int s[2];
    char c;
    (void)p;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) < 0)
        return -errno;
    long r = send(s[0], "x", 1, MSG_OOB);
    r = r < 0 ? -errno : r;
    if (r > 0)
        (void)recv(s[1], &c, 1, MSG_OOB | MSG_PEEK);
    close(s[0]);
    close(s[1]);
    return r;
}

/* A socket in flight inside itself: the shape that AF_UNIX garbage collection exists for. */
static long rights_cycle(const struct probe *p)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {.iov_base = "x", .iov_len = 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    int s[2];

    (void)p;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) < 0)
        return -errno;
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &s[1], sizeof(int));
    long r = sendmsg(s[0], &msg, 0);
    r = r < 0 ? -errno : r;
    close(s[0]);
    close(s[1]);
    return r;
}

static long fastopen(const struct probe *p)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    (void)p;
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    if (l < 0 || c < 0 || bind(l, (struct sockaddr *)&at, len) < 0 || listen(l, 1) < 0 ||
        getsockname(l, (struct sockaddr *)&at, &len) < 0)
        return -errno;
    long r = sendto(c, "hello", 5, 0x20000000 | MSG_NOSIGNAL, (struct sockaddr *)&at, len);
    r = r < 0 ? -errno : r;
    close(c);
    close(l);
    return r;
}

#define SOCK(g, n, ...) .group = g, .name = n, .run = run_socket, .arg = {__VA_ARGS__}
#define SET(g, n, ...)  .group = g, .name = n, .run = run_setsockopt, .arg = {__VA_ARGS__}
#define GET(g, n, ...)  .group = g, .name = n, .run = run_getsockopt, .arg = {__VA_ARGS__}
#define NETLINK(n, proto)                                                                                    \
    {                                                                                                        \
        SOCK("P12", n, AF_NETLINK, SOCK_RAW, proto), REACHED(PROBE_OK)                                       \
    }
#define IOCTL(n, r)                                                                                          \
    {                                                                                                        \
        .group = "P37", .name = n, .run = run_sock_ioctl, .arg = {r}, REACHED(EFAULT, EPERM, EINVAL)         \
    }
#define T  AF_INET, SOCK_STREAM
#define T6 AF_INET6, SOCK_STREAM
#define U  AF_INET, SOCK_DGRAM

const struct probe probes_net[] = {
    {SOCK("P10", "AF_ALG stream", 38, SOCK_STREAM, 0), ANY_SOCKET_ANSWER},
    {SOCK("P10", "AF_ALG seqpacket", 38, SOCK_SEQPACKET, 0), ANY_SOCKET_ANSWER},
    {.group = "P11",
     .name = "all other families",
     .key = SYS_socket,
     .run = any_family,
     .arg = {0x7fff},
     ANY_SOCKET_ANSWER},
    {.group = "P11",
     .name = "all other families, protocol 0",
     .key = SYS_socket,
     .run = any_family,
     .arg = {0},
     ANY_SOCKET_ANSWER},

    NETLINK("SOCK_DIAG", 4),
    NETLINK("XFRM", 6),
    NETLINK("SELINUX", 7),
    NETLINK("ISCSI", 8),
    NETLINK("AUDIT", 9),
    NETLINK("FIB_LOOKUP", 10),
    NETLINK("CONNECTOR", 11),
    NETLINK("NETFILTER", 12),
    NETLINK("KOBJECT_UEVENT", 15),
    NETLINK("GENERIC", 16),
    NETLINK("RDMA", 20),
    NETLINK("CRYPTO", 21),
    NETLINK("SMC", 22),
    NETLINK("USERSOCK", 2),

    {SET("P13", "IPT_SO_SET_REPLACE", T, 0, 64, 1, 0), REACHED(EPERM, EINVAL)},
    {SET("P13", "IPT_SO_SET_ADD_COUNTERS", T, 0, 65, 1, 0), REACHED(EPERM, EINVAL)},
    {SET("P13", "ARPT_SO_SET_REPLACE", T, 0, 96, 1, 0), REACHED(EPERM, EINVAL)},
    {SET("P13", "EBT_SO_SET_ENTRIES", T, 0, 128, 1, 0), REACHED(EPERM, EINVAL)},
    {SET("P13", "IP_VS_SO_SET", T, 0, 0x482, 1, 0), REACHED(EPERM, EINVAL)},
    {SET("P13", "IP6T_SO_SET_REPLACE", T6, 41, 64, 1, 0), REACHED(EPERM, EINVAL)},
    {GET("P13", "IPT_SO_GET_INFO", T, 0, 64, 1), REACHED(EPERM, EINVAL)},

    {SET("P14", "TCP_ULP unknown", T, 6, 31, 4, 0), .text = "zzz", REACHED(ENOENT, PROBE_OK)},
    {SET("P14", "TCP_ULP tls", T, 6, 31, 4, 0), .text = "tls", REACHED(ENOTCONN, PROBE_OK)},
    {SET("P14", "SOL_TLS", T, 282, 1, 4, 0), REACHED(PROBE_OK, EINVAL)},

    {.group = "P15", .name = "AF_UNIX MSG_OOB", .key = SYS_sendto, .run = oob, REACHED(PROBE_OK)},
    {.group = "P16",
     .name = "AF_UNIX SCM_RIGHTS cycle",
     .key = SYS_sendmsg,
     .run = rights_cycle,
     REACHED(PROBE_OK)},

    {SET("P17", "IP_ADD_MEMBERSHIP", U, 0, 35, 1, 0), REACHED(EINVAL, PROBE_OK)},
    {SET("P17", "IP_MSFILTER", U, 0, 41, 1, 0), REACHED(EINVAL, PROBE_OK)},
    {SET("P17", "MCAST_JOIN_GROUP", U, 0, 42, 1, 0), REACHED(EINVAL, PROBE_OK)},
    {SET("P17", "IP_OPTIONS", U, 0, 4, 0, 0), REACHED(PROBE_OK)},
    {SET("P17", "IP_XFRM_POLICY", U, 0, 17, 1, 0), REACHED(EPERM, EINVAL)},
    {SET("P17", "IPV6_ADDRFORM", T6, 41, 1, 4, 0), REACHED(PROBE_OK, EINVAL, ENOTCONN)},
    {SET("P17", "IPV6_JOIN_GROUP", T6, 41, 20, 1, 0), REACHED(EINVAL, PROBE_OK)},
    {SET("P17", "IPV6_FLOWLABEL_MGR", T6, 41, 32, 1, 0), REACHED(EINVAL, PROBE_OK)},
    {SET("P17", "IPV6_HOPOPTS", T6, 41, 54, 1, 0), REACHED(EPERM, EINVAL, PROBE_OK)},
    {SET("P17", "IPV6_RTHDR", T6, 41, 57, 1, 0), REACHED(EPERM, EINVAL, PROBE_OK)},
    {SET("P17", "SO_SNDBUFFORCE", U, 1, 32, 4, 0), REACHED(EPERM, PROBE_OK)},

    {SOCK("P21", "AF_PACKET raw", 17, SOCK_RAW, 0), REACHED(PROBE_OK, EPERM)},
    {SOCK("P21", "AF_INET raw", AF_INET, SOCK_RAW, 1), REACHED(PROBE_OK)},
    {SOCK("P21", "AF_XDP", 44, SOCK_RAW, 0), REACHED(PROBE_OK, EPERM)},
    {SOCK("P21", "ping socket", AF_INET, SOCK_DGRAM, 1), REACHED(PROBE_OK, EACCES)},

    {SET("P33", "SO_ATTACH_FILTER", U, 1, 26, 1, 0), REACHED(EINVAL)},
    {SET("P33", "SO_ATTACH_BPF", U, 1, 50, 4, 0xff), REACHED(EBADF, EINVAL)},
    {SET("P33", "SO_ATTACH_REUSEPORT_CBPF", U, 1, 51, 1, 0), REACHED(EINVAL)},

    {SET("P35", "UDP_CORK", U, 17, 1, 4, 0), REACHED(PROBE_OK)},
    {SET("P35", "UDP_SEGMENT", U, 17, 103, 4, 0), REACHED(PROBE_OK)},
    {SET("P35", "UDP_GRO", U, 17, 104, 4, 0), REACHED(PROBE_OK)},
    {SET("P35", "UDP_ENCAP", U, 17, 100, 4, 2), REACHED(PROBE_OK)},
    {SET("P35", "SO_NO_CHECK", U, 1, 11, 4, 1), REACHED(PROBE_OK)},
    {SET("P35", "SO_ZEROCOPY", T, 1, 60, 4, 1), REACHED(PROBE_OK)},
    {SET("P35", "SO_TXTIME", U, 1, 61, 8, 0), REACHED(PROBE_OK, EINVAL)},

    {SOCK("P36", "SCTP", AF_INET, SOCK_STREAM, 132), REACHED(PROBE_OK)},
    {SOCK("P36", "DCCP", AF_INET, 6, 33), REACHED(PROBE_OK)},
    {SOCK("P36", "MPTCP", AF_INET, SOCK_STREAM, 262), REACHED(PROBE_OK)},
    {SOCK("P36", "L2TP", AF_INET, SOCK_DGRAM, 115), REACHED(PROBE_OK)},
    {SOCK("P36", "UDP-Lite", AF_INET, SOCK_DGRAM, 136), REACHED(PROBE_OK)},

    IOCTL("SIOCETHTOOL", 0x8946),
    IOCTL("SIOCSIFFLAGS", 0x8914),
    IOCTL("SIOCBRADDBR", 0x89a0),
    IOCTL("SIOCDEVPRIVATE+1", 0x89f1),
    IOCTL("SIOCADDDLCI/PROTOPRIVATE", 0x89e0),

    {.group = "P38",
     .name = "MSG_FASTOPEN to own listener",
     .key = SYS_sendto,
     .run = fastopen,
     REACHED(PROBE_OK)},
    {SET("P38", "TCP_FASTOPEN_CONNECT", T, 6, 30, 4, 1), REACHED(PROBE_OK)},
    {SET("P38", "TCP_REPAIR", T, 6, 19, 4, 1), REACHED(PROBE_OK, EPERM)},
};
const size_t probes_net_n = sizeof probes_net / sizeof probes_net[0];
