#include "controller/core/health.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/strbuf.h"

#define CONNECTIONS_MAX 32
#define REQUEST_MAX     4096
#define ANSWER_MAX      (16u << 20)
#define PATIENCE_MS     5000

struct health {
    struct loop *loop;
    int fd;
    struct source *source;
    const struct health_route *routes;
    void *data;
    struct list connections;
    size_t n;
};

struct connection {
    struct list node;
    struct health *health;
    int fd;
    struct source *source, *timer;
    char request[REQUEST_MAX + 1];
    size_t have;
    struct strbuf answer;
    size_t sent;
};

static const struct {
    int status;
    const char *text;
} reasons[] = {
    {200, "OK"},
    {400, "Bad Request"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {500, "Internal Server Error"},
    {503, "Service Unavailable"},
};

static const char *reason_of(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Status";
}

static void connection_free(struct connection *c)
{
    list_remove(&c->node);
    c->health->n--;
    source_free(c->source);
    source_free(c->timer);
    strbuf_done(&c->answer);
    fd_close(c->fd);
    free(c);
}

static void on_patience_over(void *data)
{
    connection_free(data);
}

static void write_some(struct connection *c)
{
    while (c->sent < c->answer.len) {
        ssize_t n = send(c->fd, c->answer.data + c->sent, c->answer.len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            source_set_events(c->source, EPOLLOUT);
            return;
        }
        if (n < 0)
            break;
        c->sent += (size_t)n;
    }
    (void)shutdown(c->fd, SHUT_WR);
    connection_free(c);
}

static void put_answer(struct connection *c, int status, const char *type, const struct strbuf *body,
                       bool head_only)
{
    strbuf_printf(&c->answer,
                  "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n"
                  "X-Content-Type-Options: nosniff\r\n\r\n",
                  status, reason_of(status), type, body->len);
    if (!head_only)
        strbuf_add(&c->answer, body->data, body->len);
    write_some(c);
}

static const struct health_route *find_route(const struct health *h, const char *path, size_t n)
{
    for (const struct health_route *r = h->routes; r->path; r++)
        if (strlen(r->path) == n && memcmp(r->path, path, n) == 0)
            return r;
    return NULL;
}

/* "GET /path?query HTTP/1.1": status 0 and the path, or the status that refuses it. */
static int read_request(const char *line, const char **ret_path, size_t *ret_n, bool *ret_head)
{
    *ret_head = strncmp(line, "HEAD ", 5) == 0;
    if (!*ret_head && strncmp(line, "GET ", 4) != 0)
        return strchr(line, ' ') ? 405 : 400;
    *ret_path = line + (*ret_head ? 5 : 4);
    *ret_n = strcspn(*ret_path, " ?\r\n");
    const char *version = *ret_path + strcspn(*ret_path, " \r\n");
    return **ret_path == '/' && strncmp(version, " HTTP/1.", 8) == 0 ? 0 : 400;
}

static void answer(struct connection *c)
{
    const char *path, *type = "text/plain; charset=utf-8";
    size_t n;
    bool head = false;
    struct strbuf body;
    int status = read_request(c->request, &path, &n, &head);
    const struct health_route *r = status ? NULL : find_route(c->health, path, n);

    strbuf_init(&body, ANSWER_MAX);
    if (r) {
        status = r->answer(c->health->data, &body);
        if (r->content_type)
            type = r->content_type;
    } else {
        status = status ? status : 404;
        strbuf_printf(&body, "%s\n", reason_of(status));
    }
    put_answer(c, status, type, &body, head);
    strbuf_done(&body);
}

static void on_readable(struct connection *c)
{
    ssize_t n = recv(c->fd, c->request + c->have, REQUEST_MAX - c->have, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        connection_free(c);
        return;
    }
    c->have += (size_t)n;
    c->request[c->have] = '\0';
    bool whole = strstr(c->request, "\r\n\r\n") || strstr(c->request, "\n\n");
    if (!whole && c->have < REQUEST_MAX && strlen(c->request) == c->have)
        return;
    source_set_events(c->source, 0);
    if (!whole)
        c->request[0] = '\0'; /* too long, or a NUL in it: 400 */
    answer(c);
}

static void on_connection(void *data, uint32_t events)
{
    struct connection *c = data;

    if (c->answer.len > 0 && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
        write_some(c);
    else if (events & EPOLLIN)
        on_readable(c);
    else if (events & (EPOLLERR | EPOLLHUP))
        connection_free(c);
}

static void on_accept(void *data, uint32_t events)
{
    struct health *h = data;

    (void)events;
    int fd = accept4(h->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (h->n >= CONNECTIONS_MAX) { /* the oldest has had its time */
        connection_free(LIST_ENTRY(h->connections.next, struct connection, node));
    }
    struct connection *c = xcalloc(1, sizeof *c);
    c->health = h;
    c->fd = fd;
    strbuf_init(&c->answer, ANSWER_MAX + 1024);
    list_append(&h->connections, &c->node);
    h->n++;
    if (loop_add_fd(h->loop, fd, EPOLLIN, on_connection, c, &c->source) < 0 ||
        loop_add_timer(h->loop, PATIENCE_MS, on_patience_over, c, &c->timer) < 0)
        connection_free(c);
}

/* Splits host and port; the host may be empty. */
static int split_address(const char *address, char **host, char **port, struct err *e)
{
    const char *colon = strrchr(address, ':');

    if (!colon || !colon[1])
        return err_set(e, -EINVAL, "address \"%s\" must be host:port", address);
    size_t n = (size_t)(colon - address);
    if (n >= 2 && address[0] == '[' && address[n - 1] == ']')
        *host = xstrndup(address + 1, n - 2);
    else
        *host = xstrndup(address, n);
    *port = xstrdup(colon + 1);
    return 0;
}

static int listen_one(const struct addrinfo *a, int *ret_fd)
{
    int one = 1, zero = 0;
    scoped_fd int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, 64) < 0)
        return -errno;
    *ret_fd = take_fd(fd);
    return 0;
}

static int listen_at(const char *host, const char *port, int *ret_fd)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list;
    int r = -EADDRNOTAVAIL;

    if (getaddrinfo(host, port, &hints, &list) != 0)
        return -EADDRNOTAVAIL;
    for (struct addrinfo *a = list; a && r < 0; a = a->ai_next)
        r = listen_one(a, ret_fd);
    freeaddrinfo(list);
    return r;
}

/* Without a host: one socket for both families where the kernel has IPv6, else IPv4. */
static int listen_anywhere(const char *address, int *ret_fd, struct err *e)
{
    scoped_free char *host = NULL, *port = NULL;
    int r = split_address(address, &host, &port, e);

    if (r < 0)
        return r;
    r = listen_at(*host ? host : "::", port, ret_fd);
    if (r < 0 && !*host)
        r = listen_at("0.0.0.0", port, ret_fd);
    return r < 0 ? err_set(e, r, "listen at %s: %s", address, strerror(-r)) : 0;
}

int health_new(struct loop *loop, const char *address, const struct health_route *routes, void *data,
               struct health **ret, struct err *e)
{
    scoped(health_free) struct health *h = xcalloc(1, sizeof *h);

    h->loop = loop;
    h->routes = routes;
    h->data = data;
    h->fd = -1;
    list_init(&h->connections);
    int r = listen_anywhere(address, &h->fd, e);
    if (r < 0)
        return r;
    r = loop_add_fd(loop, h->fd, EPOLLIN, on_accept, h, &h->source);
    if (r < 0)
        return err_set(e, r, "watch the listening socket");
    *ret = take(h);
    return 0;
}

void health_free(struct health *h)
{
    if (!h)
        return;
    LIST_FOREACH(n, &h->connections)
    connection_free(LIST_ENTRY(n, struct connection, node));
    source_free(h->source);
    fd_close(h->fd);
    free(h);
}

int health_port(const struct health *h)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;

    if (getsockname(h->fd, (struct sockaddr *)&a, &n) < 0)
        return -errno;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}
