#include "shim/sentry/dns_setup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/scoped.h"

#define DNS_PORT             53
#define SERVERS_MAX          3 /* as libc reads them (MAXNS) */
#define SEARCH_DOMAINS_MAX   6
#define UPSTREAMS_PER_SERVER 4 /* each has a port of its own, so an off-path forger must guess it as well */
#define LOOPBACK_INDEX       1

struct server {
    char text[INET6_ADDRSTRLEN];
    struct ip ip;
};
struct resolv {
    struct server servers[SERVERS_MAX];
    size_t n;
    char *search[SEARCH_DOMAINS_MAX];
    size_t n_search;
};

static void resolv_done_scoped(struct resolv *r)
{
    for (size_t i = 0; i < r->n_search; i++)
        free(r->search[i]);
}

static void add_server(struct resolv *r, const char *text)
{
    struct server s = {.ip.family = strchr(text, ':') ? AF_INET6 : AF_INET};

    if (r->n == SERVERS_MAX || strlen(text) >= sizeof s.text || inet_pton(s.ip.family, text, s.ip.bytes) != 1)
        return;
    memcpy(s.text, text, strlen(text) + 1);
    r->servers[r->n++] = s;
}

/* resolv.conf(5): the last `search` or `domain` line counts. */
static void parse(const char *conf, struct resolv *r)
{
    scoped_free char *copy = xstrdup(conf);
    char *rest = copy;

    for (char *line; (line = strsep(&rest, "\n"));) {
        char *key = strsep(&line, " \t");
        bool search = strcmp(key, "search") == 0 || strcmp(key, "domain") == 0;
        for (size_t i = 0; search && i < r->n_search; i++)
            free(r->search[i]);
        r->n_search = search ? 0 : r->n_search;
        for (char *word; line && (word = strsep(&line, " \t"));) {
            if (*word && strcmp(key, "nameserver") == 0)
                add_server(r, word);
            if (*word && search && r->n_search < SEARCH_DOMAINS_MAX)
                r->search[r->n_search++] = xstrdup(word);
        }
    }
}

/* ip addr add ADDRESS dev lo */
static int add_address(const struct ip *ip, struct err *e)
{
    size_t bytes = ip->family == AF_INET6 ? 16 : 4;
    struct {
        struct nlmsghdr h;
        struct ifaddrmsg a;
        struct rtattr attr;
        uint8_t ip[16];
    } req = {.h = {.nlmsg_type = RTM_NEWADDR, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE},
             .a = {.ifa_family = ip->family,
                   .ifa_prefixlen = (uint8_t)(bytes * 8),
                   .ifa_flags = IFA_F_NODAD,
                   .ifa_index = LOOPBACK_INDEX},
             .attr = {.rta_len = (unsigned short)RTA_LENGTH(bytes), .rta_type = IFA_LOCAL}};
    struct {
        struct nlmsghdr h;
        struct nlmsgerr error;
        uint8_t more[256];
    } answer;

    memcpy(req.ip, ip->bytes, bytes);
    req.h.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof req.a) + RTA_LENGTH(bytes));
    scoped_fd int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &req, req.h.nlmsg_len, 0) < 0)
        return err_sys(e, "netlink");
    if (recv(fd, &answer, sizeof answer, 0) < (ssize_t)(NLMSG_HDRLEN + sizeof answer.error.error))
        return err_set(e, -EPROTO, "netlink: short answer");
    if (answer.error.error && answer.error.error != -EEXIST)
        return err_set(e, answer.error.error, "put a nameserver's address on the pod's loopback: %s",
                       strerror(-answer.error.error));
    return 0;
}

static socklen_t socket_address(const struct ip *ip, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    if (ip->family == AF_INET6) {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)ret;
        a->sin6_family = AF_INET6;
        a->sin6_port = htons(DNS_PORT);
        memcpy(&a->sin6_addr, ip->bytes, 16);
        return sizeof *a;
    }
    struct sockaddr_in *a = (struct sockaddr_in *)ret;
    a->sin_family = AF_INET;
    a->sin_port = htons(DNS_PORT);
    memcpy(&a->sin_addr, ip->bytes, 4);
    return sizeof *a;
}

static int listener(const struct server *s, int type, struct err *e)
{
    struct sockaddr_storage at;
    socklen_t len = socket_address(&s->ip, &at);
    int on = 1;
    scoped_fd int fd = socket(s->ip.family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&at, len) < 0 || (type == SOCK_STREAM && listen(fd, 64) < 0))
        return err_sys(e, "answer DNS at %s", s->text);
    return take_fd(fd);
}

static int upstream(const struct server *s, struct err *e)
{
    struct sockaddr_storage to;
    socklen_t len = socket_address(&s->ip, &to);
    scoped_fd int fd = socket(s->ip.family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, len) < 0)
        return err_sys(e, "reach the nameserver %s", s->text);
    return take_fd(fd);
}

static int give(const struct dns_setup_out *out, const struct server *s, enum dns_socket kind, int fd,
                struct err *e)
{
    scoped_fd int mine = fd;

    if (fd < 0)
        return fd;
    return out->socket(
        out->data,
        &(struct dns_setup_socket){.kind = kind, .fd = mine, .family = s->ip.family, .address = s->text}, e);
}

/* In the pod's network namespace. */
static int listen_at(const struct server *s, const struct dns_setup_out *out, struct err *e)
{
    int r = add_address(&s->ip, e);

    if (r == 0)
        r = give(out, s, DNS_UDP, listener(s, SOCK_DGRAM, e), e);
    return r == 0 ? give(out, s, DNS_TCP, listener(s, SOCK_STREAM, e), e) : r;
}

int dns_setup(int pod_net_ns, const char *resolv_conf, const struct dns_setup_out *out, struct err *e)
{
    __attribute__((cleanup(resolv_done_scoped))) struct resolv conf = {0};
    int r = 0;

    parse(resolv_conf, &conf);
    if (conf.n == 0)
        return err_set(e, -ENOENT, "the pod's resolv.conf names no nameserver by address");
    for (size_t i = 0; r == 0 && i < conf.n; i++) /* before the listeners: the first query may come at once */
        for (int k = 0; r == 0 && k < UPSTREAMS_PER_SERVER; k++)
            r = give(out, &conf.servers[i], DNS_UPSTREAM, upstream(&conf.servers[i], e), e);
    for (size_t i = 0; r == 0 && i < conf.n_search; i++)
        r = out->search(out->data, conf.search[i], e);
    if (r < 0)
        return r;
    scoped_fd int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || setns(pod_net_ns, CLONE_NEWNET) < 0)
        return err_sys(e, "enter the pod's network namespace");
    for (size_t i = 0; r == 0 && i < conf.n; i++)
        r = listen_at(&conf.servers[i], out, e);
    if (setns(home, CLONE_NEWNET) < 0)
        abort(); /* a shim in the pod's network would be worse than none */
    return r;
}
