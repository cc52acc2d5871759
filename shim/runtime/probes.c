#include "shim/runtime/probes.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "shim/runtime/probe_steer.h"

#define CONNECTIONS_MAX 32
#define BEGINNING_MAX   4096
#define PATIENCE_MS     3000

struct probes {
    struct loop *loop;
    int listener;
    struct source *source;
    struct steer steer;
    struct list connections;
    size_t n;
};

struct connection {
    struct list node;
    struct probes *probes;
    int fd;
    struct source *source, *timer;
    bool greeted; /* something has been answered */
    size_t have;
    unsigned char got[BEGINNING_MAX];
};

/* ---- what is answered ---- */

static const char http_ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\npaused\n";
static const char http_paused[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 22\r\nConnection: close\r\n\r\n"
    "the sandbox is paused\n";
static const char h2_preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/*
 * HTTP/2 frames (RFC 9113).  Our settings and the acknowledgement of the client's come first: gRPC asks
 * nothing before it has seen them.  Then, on stream 1, where a client's first call is, the answer of
 * grpc.health.v1.Health/Check: status 1, SERVING.
 */
static const char h2_settings[] = "\0\0\0\4\0\0\0\0\0"                 /* SETTINGS */
                                  "\0\0\0\4\1\0\0\0\0";                /* SETTINGS, ACK */
static const char grpc_serving[] = "\0\0\24\1\4\0\0\0\1"               /* HEADERS, END_HEADERS */
                                   "\210\17\20\20application/grpc"     /* :status 200, content-type */
                                   "\0\0\7\0\0\0\0\0\1\0\0\0\0\2\10\1" /* DATA: 2 bytes, field 1 = 1 */
                                   "\0\0\17\1\5\0\0\0\1"               /* HEADERS, END_STREAM too */
                                   "\0\13grpc-status\1"                /* trailer */
                                   "0";

#define FRAME_HEAD 9
enum { FRAME_DATA = 0, FRAME_HEADERS = 1, FLAG_END_STREAM = 1 };

/* Has the client's first call been sent to its end? */
static bool h2_asked(const unsigned char *got, size_t n)
{
    for (size_t at = sizeof h2_preface - 1; n - at >= FRAME_HEAD && at <= n;) {
        const unsigned char *f = got + at;
        size_t len = (size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2];
        bool stream1 = f[5] == 0 && f[6] == 0 && f[7] == 0 && f[8] == 1;
        if (n - at - FRAME_HEAD < len)
            return false;
        if (stream1 && (f[3] == FRAME_DATA || f[3] == FRAME_HEADERS) && (f[4] & FLAG_END_STREAM))
            return true;
        at += FRAME_HEAD + len;
    }
    return false;
}

/* The kubelet's clients of all kinds begin their name so. */
static bool says_probe(const unsigned char *got, size_t n)
{
    static const char name[] = "\r\nUser-Agent: kube-probe/";

    return memmem(got, n, name, sizeof name - 1) != NULL;
}

static const char *answer_h2(const unsigned char *got, size_t n, bool greeted, size_t *ret_len, bool *done)
{
    if (n < sizeof h2_preface - 1)
        return NULL;
    if (!greeted) {
        *ret_len = sizeof h2_settings - 1;
        return h2_settings;
    }
    *ret_len = sizeof grpc_serving - 1;
    *done = h2_asked(got, n);
    return *done ? grpc_serving : NULL;
}

const char *probes_answer(const unsigned char *got, size_t n, bool greeted, size_t *ret_len, bool *done)
{
    *done = false;
    if (n > 0 && (got[0] < 'A' || got[0] > 'Z')) { /* no HTTP: TLS, most likely */
        *done = true;
        return NULL;
    }
    if (n > 0 && memcmp(got, h2_preface, MIN(n, sizeof h2_preface - 1)) == 0)
        return answer_h2(got, n, greeted, ret_len, done);
    if (!memmem(got, n, "\r\n\r\n", 4))
        return NULL;
    *done = true;
    bool probe = says_probe(got, n);
    *ret_len = probe ? sizeof http_ok - 1 : sizeof http_paused - 1;
    return probe ? http_ok : http_paused;
}

/* ---- connections ---- */

static void connection_free(struct connection *c)
{
    list_remove(&c->node);
    c->probes->n--;
    source_free(c->source);
    source_free(c->timer);
    fd_close(c->fd);
    free(c);
}

static void on_patience_over(void *data)
{
    connection_free(data);
}

static void on_bytes(void *data, uint32_t events)
{
    struct connection *c = data;
    ssize_t n = recv(c->fd, c->got + c->have, sizeof c->got - c->have, 0);
    bool done;
    size_t len = 0;

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* a TCP probe closes without a word */
        connection_free(c);
        return;
    }
    c->have += (size_t)n;
    const char *answer;
    do {
        answer = probes_answer(c->got, c->have, c->greeted, &len, &done);
        if (answer) /* a hundred bytes always fit into an empty socket */
            (void)send(c->fd, answer, len, MSG_NOSIGNAL);
        c->greeted |= answer != NULL;
    } while (answer && !done);
    if (done && answer)
        (void)shutdown(c->fd, SHUT_WR);
    if (done && !answer)
        connection_free(c);
    else if (done || c->have == sizeof c->got)
        c->have = 0; /* the client closes; what it still says is not kept */
}

static void on_connection(void *data, uint32_t events)
{
    struct probes *p = data;

    (void)events;
    int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (p->n >= CONNECTIONS_MAX)
        connection_free(LIST_ENTRY(p->connections.next, struct connection, node));
    struct connection *c = xcalloc(1, sizeof *c);
    c->probes = p;
    c->fd = fd;
    list_append(&p->connections, &c->node);
    p->n++;
    if (loop_add_fd(p->loop, fd, EPOLLIN, on_bytes, c, &c->source) < 0 ||
        loop_add_timer(p->loop, PATIENCE_MS, on_patience_over, c, &c->timer) < 0)
        connection_free(c);
}

/* ---- the listener ---- */

static int listen_here(int family)
{
    struct sockaddr_storage any = {.ss_family = (sa_family_t)family}; /* all zero: every address, any port */
    const int zero = 0;
    scoped_fd int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, (const struct sockaddr *)&any, sizeof any) < 0 || listen(fd, CONNECTIONS_MAX) < 0)
        return -errno;
    return take_fd(fd);
}

/*
 * A socket belongs to the namespace in which it was made, so we go there for a moment.  One thread: nobody
 * else is in the wrong namespace meanwhile.  If there is no way back, nothing that we do is right any more.
 */
static int listen_in(int net_ns, struct err *e)
{
    scoped_fd int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    if (home < 0)
        return err_sys(e, "our own network namespace");
    if (setns(net_ns, CLONE_NEWNET) < 0)
        return err_sys(e, "the pod's network namespace");
    int fd = listen_here(AF_INET6);
    if (fd < 0)
        fd = listen_here(AF_INET);
    if (setns(home, CLONE_NEWNET) < 0)
        abort();
    return fd < 0 ? err_set(e, fd, "listen in the pod's network namespace: %s", strerror(-fd)) : fd;
}

int probes_new(struct loop *loop, int net_ns, struct probes **ret, struct err *e)
{
    scoped(probes_free) struct probes *p = xcalloc(1, sizeof *p);

    p->loop = loop;
    p->steer = (struct steer)STEER_NONE;
    list_init(&p->connections);
    p->listener = listen_in(net_ns, e);
    if (p->listener < 0)
        return p->listener;
    int r = loop_add_fd(loop, p->listener, EPOLLIN, on_connection, p, &p->source);
    if (r < 0)
        return err_set(e, r, "watch the listener for probes");
    r = steer_init(&p->steer, net_ns, p->listener, e);
    if (r < 0)
        return r;
    *ret = take(p);
    return 0;
}

void probes_free(struct probes *p)
{
    if (!p)
        return;
    steer_done(&p->steer); /* first: from here on the workload's listeners are found again */
    LIST_FOREACH(n, &p->connections)
    connection_free(LIST_ENTRY(n, struct connection, node));
    source_free(p->source);
    fd_close(p->listener);
    free(p);
}
