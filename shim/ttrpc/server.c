#include "shim/ttrpc/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/loop.h"
#include "shim/ttrpc/conn.h"
#include "shim/ttrpc/text.h"
#include "ttrpc.pb-c.h"

#define ACCEPT_PAUSE_MS 100
#define ACCEPT_BURST    32
#define STATUS_TEXT_MAX 65536

struct ttrpc_server {
    struct loop *loop;
    int listen_fd;
    struct source *source, *pause; /* pause: accept again after we had no descriptors */
    const struct ttrpc_method *methods;
    size_t n_methods;
    void *data;
    struct list peers;
    bool spoken_to; /* a request has come since nobody was connected */
    void (*on_alone)(void *data);
    void *on_alone_data;
};

struct peer {
    struct list node;
    struct ttrpc_server *server;
    struct ttrpc_conn *conn;
    uint32_t last_stream; /* streams only count up */
    bool half_closed;
    struct source *ending; /* a look at whether it still has a use */
    struct list calls;     /* not answered yet */
};

struct ttrpc_call {
    struct list node;
    struct peer *peer; /* NULL: the peer has gone */
    uint32_t stream;
    int64_t timeout_ms; /* from the request, 0 = none; counts for parked calls only */
    struct source *deadline;
    void (*cancel)(void *data);
    void *cancel_data;
};

/* ---- answers ---- */

static void send_response(struct peer *p, uint32_t stream, const Ttrpc__Response *response)
{
    uint8_t small[512];
    size_t n = ttrpc__response__get_packed_size(response);
    struct ttrpc_frame f = {.len = (uint32_t)n, .stream = stream, .type = TTRPC_RESPONSE};

    if (n <= sizeof small) {
        ttrpc__response__pack(response, small);
        ttrpc_conn_send(p->conn, &f, small);
        return;
    }
    scoped_free uint8_t *big = xcalloc(1, n);
    ttrpc__response__pack(response, big);
    ttrpc_conn_send(p->conn, &f, big);
}

static void send_status(struct peer *p, uint32_t stream, enum ttrpc_code code, const char *text)
{
    Ttrpc__Status status = TTRPC__STATUS__INIT;
    Ttrpc__Response response = TTRPC__RESPONSE__INIT;
    scoped_free char *copy = xstrndup(text ? text : "", STATUS_TEXT_MAX);

    /* Go refuses a whole message for one bad byte in a string, and paths may be any bytes. */
    ttrpc_text_clean(copy);
    status.code = (int32_t)code;
    status.message = copy;
    response.status = &status;
    send_response(p, stream, &response);
}

static void peer_free(struct peer *p)
{
    struct ttrpc_server *s = p->server;

    list_remove(&p->node);
    source_free(p->ending);
    ttrpc_conn_free(p->conn);
    free(p);
    if (list_is_empty(&s->peers) && s->spoken_to && s->on_alone) {
        s->spoken_to = false;
        s->on_alone(s->on_alone_data);
    }
}

static void end_if_served(void *data)
{
    struct peer *p = data;

    p->ending = NULL;
    if (list_is_empty(&p->calls) && ttrpc_conn_idle(p->conn))
        peer_free(p);
}

/* A peer that sends no more is let go when it has got all its answers.  Later: our caller may hold it. */
static void look_if_served(void *data)
{
    struct peer *p = data;

    if (p->half_closed && !p->ending)
        (void)loop_defer(p->server->loop, end_if_served, p, &p->ending);
}

static void call_free(struct ttrpc_call *call)
{
    source_free(call->deadline);
    list_remove(&call->node);
    free(call);
}

void ttrpc_reply(struct ttrpc_call *call, const uint8_t *payload, size_t len)
{
    Ttrpc__Response response = TTRPC__RESPONSE__INIT;
    struct peer *p = call->peer;
    uint32_t stream = call->stream;

    call_free(call);
    if (!p)
        return;
    response.payload.data = (uint8_t *)(uintptr_t)payload;
    response.payload.len = len;
    size_t total = len > TTRPC_PAYLOAD_MAX ? len : ttrpc__response__get_packed_size(&response);
    if (total > TTRPC_PAYLOAD_MAX) {
        char text[120];
        (void)snprintf(text, sizeof text, "response of %zu bytes exceeds the limit of %u bytes", total,
                       TTRPC_PAYLOAD_MAX);
        send_status(p, stream, TTRPC_RESOURCE_EXHAUSTED, text);
    } else {
        send_response(p, stream, &response);
    }
    look_if_served(p);
}

void ttrpc_reply_error(struct ttrpc_call *call, enum ttrpc_code code, const char *text)
{
    struct peer *p = call->peer;
    uint32_t stream = call->stream;

    /* A status of 0 would read as success with an empty body. */
    assert(code != TTRPC_OK);
    call_free(call);
    if (!p)
        return;
    send_status(p, stream, code, text);
    look_if_served(p);
}

/* ---- parked calls ---- */

static void call_cancel(struct ttrpc_call *call)
{
    void (*cancel)(void *) = call->cancel;
    void *data = call->cancel_data;

    if (!cancel) {
        /* Its handler still holds it and will answer some day: to nobody. */
        call->peer = NULL;
        list_remove(&call->node);
        return;
    }
    call->cancel = NULL;
    cancel(data);
    call_free(call);
}

static void on_deadline(void *data)
{
    struct ttrpc_call *call = data;
    struct peer *p = call->peer;
    uint32_t stream = call->stream;

    call_cancel(call);
    send_status(p, stream, TTRPC_DEADLINE_EXCEEDED, ttrpc_code_text(TTRPC_DEADLINE_EXCEEDED));
    look_if_served(p);
}

void ttrpc_call_on_cancel(struct ttrpc_call *call, void (*fn)(void *data), void *data)
{
    call->cancel = fn;
    call->cancel_data = data;
    source_free(call->deadline);
    call->deadline = NULL;
    /* The client has forgotten the call by then; without this a poller would pile up parked calls. */
    if (fn && call->peer && call->timeout_ms > 0)
        (void)loop_add_timer(call->peer->server->loop, call->timeout_ms, on_deadline, call, &call->deadline);
}

/* ---- requests ---- */

static const struct ttrpc_method *find_method(const struct ttrpc_server *s, const Ttrpc__Request *q,
                                              bool *ret_service_known)
{
    *ret_service_known = false;
    for (size_t i = 0; i < s->n_methods; i++) {
        if (strcmp(s->methods[i].service, q->service) != 0)
            continue;
        *ret_service_known = true;
        if (strcmp(s->methods[i].method, q->method) == 0)
            return &s->methods[i];
    }
    return NULL;
}

static void refuse_unknown(struct peer *p, uint32_t stream, const Ttrpc__Request *q, bool service_known)
{
    char text[300];

    (void)snprintf(text, sizeof text, "%s %.200s", service_known ? "method" : "service",
                   service_known ? q->method : q->service);
    send_status(p, stream, TTRPC_UNIMPLEMENTED, text);
}

static void run_request(struct peer *p, uint32_t stream, const Ttrpc__Request *q)
{
    struct ttrpc_server *s = p->server;
    bool service_known;
    const struct ttrpc_method *m = find_method(s, q, &service_known);

    if (!m) {
        refuse_unknown(p, stream, q, service_known);
        return;
    }
    struct ttrpc_call *call = xcalloc(1, sizeof *call);
    *call = (struct ttrpc_call){.peer = p, .stream = stream};
    if (q->timeout_nano > 0)
        call->timeout_ms = q->timeout_nano / 1000000 + 1;
    list_append(&p->calls, &call->node);
    m->fn(s->data, call, q->payload.data, q->payload.len);
}

static void on_request(struct peer *p, const struct ttrpc_frame *f, const uint8_t *payload)
{
    if (f->stream % 2 == 0) {
        send_status(p, f->stream, TTRPC_INVALID_ARGUMENT, "stream ids of a client are odd");
        return;
    }
    if (f->stream <= p->last_stream) {
        send_status(p, f->stream, TTRPC_INVALID_ARGUMENT, "stream ids must increase");
        return;
    }
    p->last_stream = f->stream;
    p->server->spoken_to = true;
    if (f->flags & TTRPC_REMOTE_OPEN) {
        send_status(p, f->stream, TTRPC_UNIMPLEMENTED, "streaming calls are not served here");
        return;
    }
    Ttrpc__Request *q = ttrpc__request__unpack(NULL, f->len, payload);
    if (!q) {
        send_status(p, f->stream, TTRPC_INVALID_ARGUMENT, "request is not a valid ttrpc message");
        return;
    }
    run_request(p, f->stream, q);
    ttrpc__request__free_unpacked(q, NULL);
}

static void on_frame(void *data, const struct ttrpc_frame *f, const uint8_t *payload)
{
    struct peer *p = data;

    if (f->type != TTRPC_REQUEST && f->type != TTRPC_DATA)
        return;
    if (!payload) {
        char text[120];
        (void)snprintf(text, sizeof text, "message of %u bytes exceeds the limit of %u bytes", f->len,
                       TTRPC_PAYLOAD_MAX);
        send_status(p, f->stream, TTRPC_RESOURCE_EXHAUSTED, text);
        return;
    }
    if (f->type == TTRPC_DATA)
        send_status(p, f->stream, TTRPC_INVALID_ARGUMENT, "data for a stream that is not open");
    else
        on_request(p, f, payload);
}

static void on_half_closed(void *data)
{
    struct peer *p = data;

    p->half_closed = true;
    look_if_served(p);
}

static void on_closed(void *data)
{
    struct peer *p = data;

    /* A cancel may answer or cancel others of the list, so it is taken from its head. */
    while (!list_is_empty(&p->calls))
        call_cancel(LIST_ENTRY(p->calls.next, struct ttrpc_call, node));
    peer_free(p);
}

/* ---- connections ---- */

/*
 * Whoever may speak here may start processes as root: only our own user and group, whatever the mode
 * of the socket says (it is in a directory that others can pass, and abstract sockets have no mode).
 */
static bool may_speak(int fd)
{
    struct ucred who;
    socklen_t len = sizeof who;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        return false;
    return who.uid == geteuid() && who.gid == getegid();
}

static void add_peer(struct ttrpc_server *s, int fd)
{
    struct peer *p = xcalloc(1, sizeof *p);
    struct ttrpc_conn_events ev = {
        .frame = on_frame,
        .half_closed = on_half_closed,
        .drained = look_if_served,
        .closed = on_closed,
        .data = p,
    };

    p->server = s;
    list_init(&p->calls);
    list_append(&s->peers, &p->node);
    if (ttrpc_conn_new(s->loop, fd, &ev, &p->conn, NULL) < 0)
        peer_free(p);
}

static void accept_again(void *data)
{
    struct ttrpc_server *s = data;

    (void)source_set_events(s->source, EPOLLIN);
}

/* Whether to go on with the next one. */
static bool accept_one(struct ttrpc_server *s)
{
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        if (may_speak(fd))
            add_peer(s, fd);
        else
            fd_close(fd);
        return true;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        /* The connection stays in the backlog and would wake us without end. */
        (void)source_set_events(s->source, 0);
        source_arm(s->pause, ACCEPT_PAUSE_MS);
    }
    return errno == EINTR || errno == ECONNABORTED;
}

static void on_accept(void *data, uint32_t events UNUSED)
{
    /* A few at a time: a full backlog turns away the next one at once, and there is no second try. */
    for (int i = 0; i < ACCEPT_BURST && accept_one(data); i++)
        ;
}

int ttrpc_server_new(struct loop *loop, int listen_fd, const struct ttrpc_method *methods, size_t n,
                     void *data, struct ttrpc_server **ret, struct err *e)
{
    scoped(ttrpc_server_free) struct ttrpc_server *s = xcalloc(1, sizeof *s);

    *s = (struct ttrpc_server){
        .loop = loop, .listen_fd = listen_fd, .methods = methods, .n_methods = n, .data = data};
    list_init(&s->peers);
    int r = fd_set_nonblock(listen_fd, true);
    if (r >= 0)
        r = loop_add_fd(loop, listen_fd, EPOLLIN, on_accept, s, &s->source);
    if (r >= 0)
        r = loop_add_timer(loop, -1, accept_again, s, &s->pause);
    if (r < 0)
        return err_set(e, r, "watch the listening socket: %s", strerror(-r));
    *ret = take(s);
    return 0;
}

void ttrpc_server_on_alone(struct ttrpc_server *s, void (*fn)(void *data), void *data)
{
    s->on_alone = fn;
    s->on_alone_data = data;
}

bool ttrpc_server_is_alone(const struct ttrpc_server *s)
{
    return list_is_empty(&s->peers);
}

void ttrpc_server_stop_accepting(struct ttrpc_server *s)
{
    source_free(s->source);
    source_free(s->pause);
    s->source = s->pause = NULL;
    fd_close(s->listen_fd);
    s->listen_fd = -1;
}

void ttrpc_server_free(struct ttrpc_server *s)
{
    if (!s)
        return;
    s->on_alone = NULL;
    ttrpc_server_stop_accepting(s);
    while (!list_is_empty(&s->peers))
        on_closed(LIST_ENTRY(s->peers.next, struct peer, node));
    free(s);
}

bool ttrpc_server_idle(const struct ttrpc_server *s)
{
    LIST_FOREACH(n, &s->peers)
    if (!ttrpc_conn_idle(LIST_ENTRY(n, struct peer, node)->conn))
        return false;
    return true;
}
