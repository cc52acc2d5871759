#include "shim/sentry/dns.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "shim/egress/dns_wire.h"

#define SOCKETS_MAX    24
#define CLIENTS_MAX    16 /* TCP */
#define PENDING_MAX    64
#define CACHE_MAX      512
#define SEARCH_MAX     8
#define TRY_MS         800 /* per upstream server */
#define TRIES          3
#define CLIENT_IDLE_MS 10000
#define TTL_LEAST      5
#define TTL_MOST       300
/* A wildcard lets a client put data into the names it asks for: the answerer forwards few and small ones. */
#define WILDCARD_PER_MINUTE 30
#define WILDCARD_NAME_MAX   100
#define WILDCARD_LABELS_MAX 8
#define STACK_BYTES         (128 * 1024)

struct client { /* where an answer goes */
    int fd;
    bool tcp;
    uint32_t serial; /* tcp: of the connection, in case its slot was used again */
    struct sockaddr_storage to;
    socklen_t to_len;
};
struct connection {
    int fd;
    uint32_t serial;
    int64_t last_ms;
    size_t n;
    uint8_t buf[2 + DNS_MESSAGE_MAX];
};
struct pending {
    bool used;
    uint16_t id;
    size_t upstream; /* index of the socket that was asked */
    unsigned tries;
    int64_t due_ms;
    struct dns_question q;
    struct client client;
};
struct cached {
    int64_t until_ms;
    uint16_t type;
    char *name;
    struct dns_answer answer;
};
struct dns {
    struct egress *egress;
    struct audit *audit;
    pthread_mutex_t lock; /* protects sockets and search, which the main thread adds to */
    struct {
        int fd;
        enum dns_socket kind;
    } sockets[SOCKETS_MAX];
    size_t n_sockets;
    char *search[SEARCH_MAX];
    size_t n_search;
    struct connection connections[CLIENTS_MAX];
    uint32_t last_serial;
    struct pending pending[PENDING_MAX];
    struct cached cache[CACHE_MAX];
    unsigned wildcard_tokens;
    int64_t refilled_ms;
    int wake[2]; /* a byte: a socket was added */
};

/* ---- answering ---- */

static void send_reply(struct dns *d, const struct client *c, const uint8_t *msg, size_t n)
{
    uint8_t framed[2 + DNS_MESSAGE_MAX];
    struct iovec part = {(void *)(uintptr_t)msg, n};
    struct msghdr h = {
        .msg_name = (void *)(uintptr_t)&c->to, .msg_namelen = c->to_len, .msg_iov = &part, .msg_iovlen = 1};

    if (!c->tcp) {
        (void)sendmsg(c->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    }
    framed[0] = (uint8_t)(n >> 8);
    framed[1] = (uint8_t)n;
    memcpy(framed + 2, msg, n);
    part = (struct iovec){framed, n + 2};
    h.msg_namelen = 0;
    for (size_t i = 0; i < CLIENTS_MAX; i++) /* the connection may have gone meanwhile */
        if (d->connections[i].fd == c->fd && d->connections[i].serial == c->serial)
            (void)sendmsg(c->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void reply(struct dns *d, const struct client *c, const struct dns_question *q,
                  const struct dns_answer *a)
{
    uint8_t out[DNS_MESSAGE_MAX];
    size_t n = dns_reply_build(q, a, out, sizeof out);

    if (n)
        send_reply(d, c, out, n);
}

static void reply_code(struct dns *d, const struct client *c, const struct dns_question *q,
                       enum dns_rcode rcode)
{
    const struct dns_answer a = {.rcode = rcode};

    reply(d, c, q, &a);
}

static bool below(const char *name, const char *domain)
{
    size_t n = strlen(name), m = strlen(domain);

    return n > m && strcmp(name + n - m, domain) == 0 && name[n - m - 1] == '.';
}

static void refuse(struct dns *d, const struct client *c, const struct dns_question *q, const char *rule)
{
    enum dns_rcode rcode = DNS_REFUSED;

    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_search; i++)
        if (below(q->name, d->search[i]))
            rcode = DNS_NXDOMAIN;
    pthread_mutex_unlock(&d->lock);
    if (rcode == DNS_REFUSED) {
        const uint64_t none[6] = {q->type};
        audit_write(d->audit, &(struct audit_record){.container = "",
                                                     .call = "dns",
                                                     .args = none,
                                                     .detail = q->name,
                                                     .rule = rule,
                                                     .error = ECONNREFUSED});
    }
    reply_code(d, c, q, rcode);
}

/* ---- cache ---- */

static struct cached *cache_slot(struct dns *d, const char *name, uint16_t type)
{
    uint32_t h = type;

    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    return &d->cache[h % CACHE_MAX];
}

static const struct dns_answer *cache_get(struct dns *d, const char *name, uint16_t type)
{
    struct cached *c = cache_slot(d, name, type);

    return c->name && c->type == type && c->until_ms > clock_mono_ms() && strcmp(c->name, name) == 0
               ? &c->answer
               : NULL;
}

static void cache_put(struct dns *d, const char *name, uint16_t type, const struct dns_answer *a)
{
    struct cached *c = cache_slot(d, name, type);

    if (!c->name || strcmp(c->name, name) != 0) {
        free(c->name);
        c->name = xstrdup(name);
    }
    c->type = type;
    c->answer = *a;
    c->until_ms = clock_mono_ms() + (int64_t)a->ttl * 1000;
}

/* ---- upstream ---- */

/* Another socket than last time, so another server and port. -1: there is none. */
static ssize_t pick_upstream(struct dns *d, const struct pending *p)
{
    size_t list[SOCKETS_MAX], n = 0;
    uint32_t random = 0;

    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_sockets; i++)
        if (d->sockets[i].kind == DNS_UPSTREAM && (p->tries == 0 || i != p->upstream))
            list[n++] = i;
    pthread_mutex_unlock(&d->lock);
    if (getrandom(&random, sizeof random, 0) != sizeof random || n == 0)
        return n ? (ssize_t)list[0] : p->tries ? (ssize_t)p->upstream : -1;
    return (ssize_t)list[random % n];
}

static void ask_upstream(struct dns *d, struct pending *p)
{
    uint8_t out[DNS_MESSAGE_MAX];
    ssize_t to = pick_upstream(d, p);

    if (to < 0 ||
        getrandom(&p->id, sizeof p->id, 0) != sizeof p->id) { /* an id that can be guessed is none */
        p->used = false;
        reply_code(d, &p->client, &p->q, DNS_SERVFAIL);
        return;
    }
    p->upstream = (size_t)to;
    p->tries++;
    p->due_ms = clock_mono_ms() + TRY_MS;
    size_t n = dns_query_build(&p->q, p->id, out, sizeof out);
    struct iovec part = {out, n};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    (void)sendmsg(d->sockets[to].fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL); /* lost ones are tried again */
}

static void forward(struct dns *d, const struct client *c, const struct dns_question *q)
{
    for (size_t i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &d->pending[i];
        if (p->used)
            continue;
        *p = (struct pending){.used = true, .q = *q, .client = *c};
        ask_upstream(d, p);
        return;
    }
    reply_code(d, c, q, DNS_SERVFAIL);
}

static void finish(struct dns *d, struct pending *p, struct dns_answer *a)
{
    a->ttl = a->n ? MIN(MAX(a->ttl, (uint32_t)TTL_LEAST), (uint32_t)TTL_MOST) : TTL_LEAST;
    a->n = egress_grant(d->egress, p->q.name, a->addresses, a->n, a->ttl);
    if (a->rcode == DNS_NOERROR || a->rcode == DNS_NXDOMAIN)
        cache_put(d, p->q.name, p->q.type, a);
    reply(d, &p->client, &p->q, a);
    p->used = false;
}

static void on_upstream(struct dns *d, size_t index)
{
    uint8_t msg[DNS_MESSAGE_MAX + 1];
    struct dns_answer a;

    for (;;) {
        struct iovec part = {msg, sizeof msg};
        struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
        ssize_t n = recvmsg(d->sockets[index].fd, &h, MSG_DONTWAIT);
        if (n < 0)
            return;
        for (size_t i = 0; i < PENDING_MAX; i++) {
            struct pending *p = &d->pending[i];
            if (!p->used || p->upstream != index || dns_answer_parse(msg, (size_t)n, &p->q, p->id, &a) < 0)
                continue;
            if (a.rcode == DNS_SERVFAIL && p->tries < TRIES)
                ask_upstream(d, p);
            else
                finish(d, p, &a);
            break;
        }
    }
}

/* ---- questions ---- */

static bool wildcard_may_go(struct dns *d, const char *name)
{
    int64_t now = clock_mono_ms();
    unsigned labels = 1;

    for (const char *p = name; *p; p++)
        labels += *p == '.';
    if (strlen(name) > WILDCARD_NAME_MAX || labels > WILDCARD_LABELS_MAX)
        return false;
    int64_t grown = (now - d->refilled_ms) * WILDCARD_PER_MINUTE / 60000;
    if (grown > 0) {
        d->wildcard_tokens = (unsigned)MIN((int64_t)WILDCARD_PER_MINUTE, (int64_t)d->wildcard_tokens + grown);
        d->refilled_ms = now;
    }
    if (d->wildcard_tokens == 0)
        return false;
    d->wildcard_tokens--;
    return true;
}

static void on_question(struct dns *d, const struct client *c, const uint8_t *msg, size_t n)
{
    struct dns_question q;
    int r = dns_question_parse(msg, n, &q);

    if (r < 0)
        return;
    if (r > 0) {
        reply_code(d, c, &q, (enum dns_rcode)r);
        return;
    }
    if (q.bad_name) {
        refuse(d, c, &q, "egress: not a host name");
        return;
    }
    enum egress_lookup may = egress_look_up(d->egress, q.name);
    if (may == LOOKUP_REFUSED) {
        refuse(d, c, &q, "egress: no rule names this host");
        return;
    }
    if (q.type != DNS_A && q.type != DNS_AAAA) { /* the name exists; nothing else about it is told */
        reply_code(d, c, &q, DNS_NOERROR);
        return;
    }
    const struct dns_answer *known = cache_get(d, q.name, q.type);
    if (known) {
        struct dns_answer a = *known;
        a.n = egress_grant(d->egress, q.name, a.addresses, a.n, a.ttl);
        reply(d, c, &q, &a);
        return;
    }
    if (may == LOOKUP_WILDCARD && !wildcard_may_go(d, q.name)) {
        refuse(d, c, &q, "egress: too many or too long names under a wildcard");
        return;
    }
    forward(d, c, &q);
}

static void on_datagrams(struct dns *d, int fd)
{
    uint8_t msg[DNS_MESSAGE_MAX];

    for (int i = 0; i < 64; i++) {
        struct client c = {.fd = fd};
        struct iovec part = {msg, sizeof msg};
        struct msghdr h = {.msg_name = &c.to, .msg_namelen = sizeof c.to, .msg_iov = &part, .msg_iovlen = 1};
        ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT);
        if (n < 0)
            return;
        c.to_len = h.msg_namelen;
        if (!(h.msg_flags & MSG_TRUNC))
            on_question(d, &c, msg, (size_t)n);
    }
}

static void on_accept(struct dns *d, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    for (size_t i = 0; fd >= 0 && i < CLIENTS_MAX; i++) {
        struct connection *c = &d->connections[i];
        if (c->fd >= 0)
            continue;
        *c = (struct connection){.fd = fd, .serial = ++d->last_serial, .last_ms = clock_mono_ms()};
        return;
    }
    fd_close(fd);
}

static void hang_up(struct connection *c)
{
    fd_close(c->fd);
    c->fd = -1;
}

static void on_stream(struct dns *d, struct connection *c)
{
    ssize_t n = read(c->fd, c->buf + c->n, sizeof c->buf - c->n);

    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            hang_up(c);
        return;
    }
    c->n += (size_t)n;
    c->last_ms = clock_mono_ms();
    while (c->fd >= 0 && c->n >= 2) {
        size_t len = (size_t)c->buf[0] << 8 | c->buf[1];
        if (len > DNS_MESSAGE_MAX) {
            hang_up(c);
            return;
        }
        if (c->n < 2 + len)
            return;
        const struct client to = {.fd = c->fd, .tcp = true, .serial = c->serial};
        on_question(d, &to, c->buf + 2, len);
        c->n -= 2 + len;
        memmove(c->buf, c->buf + 2 + len, c->n);
    }
}

/* ---- the thread ---- */

/* What is late; how long to sleep, -1 = for ever. */
static int tick(struct dns *d)
{
    int64_t now = clock_mono_ms(), first = INT64_MAX;

    for (size_t i = 0; i < PENDING_MAX; i++) {
        struct pending *p = &d->pending[i];
        if (p->used && p->due_ms <= now) {
            if (p->tries < TRIES) {
                ask_upstream(d, p);
            } else {
                reply_code(d, &p->client, &p->q, DNS_SERVFAIL);
                p->used = false;
            }
        }
        if (p->used)
            first = MIN(first, p->due_ms);
    }
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct connection *c = &d->connections[i];
        if (c->fd >= 0 && now - c->last_ms > CLIENT_IDLE_MS)
            hang_up(c);
        if (c->fd >= 0)
            first = MIN(first, c->last_ms + CLIENT_IDLE_MS + 1);
    }
    return first == INT64_MAX ? -1 : (int)MAX(first - now, (int64_t)1);
}

static void serve(struct dns *d, size_t index, enum dns_socket kind, int fd)
{
    if (kind == DNS_UDP)
        on_datagrams(d, fd);
    else if (kind == DNS_TCP)
        on_accept(d, fd);
    else
        on_upstream(d, index);
}

static void *run(void *arg)
{
    struct dns *d = arg;

    for (;;) {
        struct pollfd fds[SOCKETS_MAX + CLIENTS_MAX + 1];
        size_t n_sockets, n;

        int wait = tick(d);
        pthread_mutex_lock(&d->lock);
        n_sockets = d->n_sockets;
        for (n = 0; n < n_sockets; n++)
            fds[n] = (struct pollfd){.fd = d->sockets[n].fd, .events = POLLIN};
        pthread_mutex_unlock(&d->lock);
        for (size_t i = 0; i < CLIENTS_MAX; i++)
            fds[n++] = (struct pollfd){.fd = d->connections[i].fd, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = d->wake[0], .events = POLLIN};
        if (poll(fds, n, wait) <= 0)
            continue;
        for (size_t i = 0; i < n_sockets; i++)
            if (fds[i].revents)
                serve(d, i, d->sockets[i].kind, fds[i].fd);
        for (size_t i = 0; i < CLIENTS_MAX; i++)
            if (fds[n_sockets + i].revents && d->connections[i].fd == fds[n_sockets + i].fd)
                on_stream(d, &d->connections[i]);
        char c;
        if (fds[n - 1].revents)
            (void)!read(d->wake[0], &c, 1);
    }
    return NULL;
}

int dns_new(struct egress *egress, struct audit *audit, const int wake[2], struct dns **ret)
{
    pthread_attr_t attr;
    pthread_t thread;
    struct dns *d = xcalloc(1, sizeof *d);

    *d = (struct dns){.egress = egress,
                      .audit = audit,
                      .wildcard_tokens = WILDCARD_PER_MINUTE,
                      .refilled_ms = clock_mono_ms(),
                      .wake = {wake[0], wake[1]}};
    pthread_mutex_init(&d->lock, NULL);
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        d->connections[i].fd = -1;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int r = pthread_create(&thread, &attr, run, d);
    pthread_attr_destroy(&attr);
    if (r != 0) {
        free(d);
        return -r;
    }
    *ret = d;
    return 0;
}

int dns_add_socket(struct dns *d, enum dns_socket kind, int fd)
{
    int r = -ENOBUFS;

    pthread_mutex_lock(&d->lock);
    if (d->n_sockets < SOCKETS_MAX) {
        d->sockets[d->n_sockets].kind = kind;
        d->sockets[d->n_sockets++].fd = fd;
        r = 0;
    }
    pthread_mutex_unlock(&d->lock);
    if (r < 0)
        fd_close(fd);
    else
        (void)!write(d->wake[1], "", 1);
    return r;
}

void dns_add_search(struct dns *d, const char *domain)
{
    char name[NAME_MAX_BYTES];

    if (name_canonical(domain, strlen(domain), name) < 0)
        return;
    pthread_mutex_lock(&d->lock);
    if (d->n_search < SEARCH_MAX)
        d->search[d->n_search++] = xstrdup(name);
    pthread_mutex_unlock(&d->lock);
}
