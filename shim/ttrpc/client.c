#include "shim/ttrpc/client.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/loop.h"
#include "shim/ttrpc/conn.h"
#include "ttrpc.pb-c.h"

#define NAMESPACE_KEY "containerd-namespace-ttrpc"

struct ttrpc_client {
    struct loop *loop;
    struct ttrpc_conn *conn; /* NULL: ended */
    uint32_t next_stream;
    struct list calls;  /* in flight */
    struct list failed; /* to be told so by the loop: they could not even be sent */
    struct source *telling;
    void (*on_closed)(void *data);
    void *on_closed_data;
    bool busy, dead; /* freed by one of its own callbacks */
};

struct flight {
    struct list node;
    struct ttrpc_client *client;
    uint32_t stream;
    ttrpc_done_fn done;
    void *data;
    struct source *timer;
    enum ttrpc_code code; /* for those on `failed` */
    const char *text;
};

static void flight_free(struct flight *f)
{
    source_free(f->timer);
    list_remove(&f->node);
    free(f);
}

static void drop_all(struct list *flights)
{
    while (!list_is_empty(flights))
        flight_free(LIST_ENTRY(flights->next, struct flight, node));
}

void ttrpc_client_free(struct ttrpc_client *c)
{
    if (!c || c->dead)
        return;
    c->dead = true;
    drop_all(&c->calls);
    drop_all(&c->failed);
    source_free(c->telling);
    ttrpc_conn_free(c->conn);
    c->conn = NULL;
    if (!c->busy)
        free(c);
}

void ttrpc_client_on_closed(struct ttrpc_client *c, void (*fn)(void *data), void *data)
{
    c->on_closed = fn;
    c->on_closed_data = data;
}

/* The flight is gone before its owner hears of it, who may well free the client. */
static void finish(struct flight *f, enum ttrpc_code code, const char *text, const uint8_t *payload,
                   size_t len)
{
    ttrpc_done_fn done = f->done;
    void *data = f->data;

    flight_free(f);
    done(data, code, text, payload, len);
}

/* ---- answers ---- */

static struct flight *find(struct ttrpc_client *c, uint32_t stream)
{
    LIST_FOREACH(n, &c->calls)
    {
        struct flight *f = LIST_ENTRY(n, struct flight, node);
        if (f->stream == stream)
            return f;
    }
    return NULL;
}

static void on_frame(void *data, const struct ttrpc_frame *frame, const uint8_t *payload)
{
    struct ttrpc_client *c = data;
    struct flight *f = frame->type == TTRPC_RESPONSE ? find(c, frame->stream) : NULL;

    if (!f)
        return; /* late, or of a kind that plain calls do not have */
    if (!payload) {
        finish(f, TTRPC_RESOURCE_EXHAUSTED, "the answer exceeds the size limit", NULL, 0);
        return;
    }
    Ttrpc__Response *r = ttrpc__response__unpack(NULL, frame->len, payload);
    if (!r)
        finish(f, TTRPC_INTERNAL, "the answer is not a valid ttrpc message", NULL, 0);
    else if (r->status && r->status->code != TTRPC_OK)
        finish(f, (enum ttrpc_code)r->status->code, r->status->message, NULL, 0);
    else
        finish(f, TTRPC_OK, "", r->payload.len ? r->payload.data : NULL, r->payload.len);
    if (r)
        ttrpc__response__free_unpacked(r, NULL);
}

static void on_timeout(void *data)
{
    finish(data, TTRPC_DEADLINE_EXCEEDED, ttrpc_code_text(TTRPC_DEADLINE_EXCEEDED), NULL, 0);
}

/* ---- the end ---- */

static void tell_failed(void *data)
{
    struct ttrpc_client *c = data;

    c->telling = NULL;
    c->busy = true;
    while (!c->dead && !list_is_empty(&c->failed)) {
        struct flight *f = LIST_ENTRY(c->failed.next, struct flight, node);
        finish(f, f->code, f->text, NULL, 0);
    }
    c->busy = false;
    if (c->dead)
        free(c);
}

static void on_closed(void *data)
{
    struct ttrpc_client *c = data;
    void (*tell)(void *) = c->on_closed;

    ttrpc_conn_free(c->conn);
    c->conn = NULL;
    c->busy = true;
    while (!c->dead && !list_is_empty(&c->calls))
        finish(LIST_ENTRY(c->calls.next, struct flight, node), TTRPC_UNAVAILABLE, "ttrpc: closed", NULL, 0);
    if (!c->dead && tell)
        tell(c->on_closed_data);
    c->busy = false;
    if (c->dead)
        free(c);
}

/* ---- calls ---- */

static void fail(struct flight *f, enum ttrpc_code code, const char *text)
{
    struct ttrpc_client *c = f->client;

    f->code = code;
    f->text = text;
    list_append(&c->failed, &f->node);
    if (!c->telling)
        (void)loop_defer(c->loop, tell_failed, c, &c->telling);
}

static void send_request(struct ttrpc_client *c, uint32_t stream, const Ttrpc__Request *m, size_t n)
{
    struct ttrpc_frame frame = {.len = (uint32_t)n, .stream = stream, .type = TTRPC_REQUEST};
    scoped_free uint8_t *buf = xcalloc(1, n);

    ttrpc__request__pack(m, buf);
    ttrpc_conn_send(c->conn, &frame, buf);
}

void ttrpc_client_call(struct ttrpc_client *c, const struct ttrpc_request *q, ttrpc_done_fn done, void *data)
{
    Ttrpc__KeyValue pair = TTRPC__KEY_VALUE__INIT, *pairs[] = {&pair};
    Ttrpc__Request m = TTRPC__REQUEST__INIT;
    struct flight *f = xcalloc(1, sizeof *f);

    *f = (struct flight){.client = c, .done = done, .data = data};
    list_init(&f->node);
    m.service = (char *)(uintptr_t)q->service;
    m.method = (char *)(uintptr_t)q->method;
    m.payload.data = (uint8_t *)(uintptr_t)q->payload;
    m.payload.len = q->len;
    m.timeout_nano = q->timeout_ms * 1000000;
    if (q->ns) {
        pair.key = (char *)(uintptr_t)NAMESPACE_KEY;
        pair.value = (char *)(uintptr_t)q->ns;
        m.metadata = pairs;
        m.n_metadata = 1;
    }
    size_t n = q->len > TTRPC_PAYLOAD_MAX ? q->len : ttrpc__request__get_packed_size(&m);
    if (n > TTRPC_PAYLOAD_MAX) {
        fail(f, TTRPC_RESOURCE_EXHAUSTED, "the request exceeds the size limit");
        return;
    }
    if (!c->conn || c->next_stream > INT32_MAX) {
        fail(f, TTRPC_UNAVAILABLE, "ttrpc: closed");
        return;
    }
    f->stream = c->next_stream;
    c->next_stream += 2;
    list_append(&c->calls, &f->node);
    if (q->timeout_ms > 0)
        (void)loop_add_timer(c->loop, q->timeout_ms, on_timeout, f, &f->timer);
    send_request(c, f->stream, &m, n);
}

/* ---- connecting ---- */

int ttrpc_client_new(struct loop *loop, int fd, struct ttrpc_client **ret, struct err *e)
{
    scoped(ttrpc_client_free) struct ttrpc_client *c = xcalloc(1, sizeof *c);
    struct ttrpc_conn_events ev = {
        /* A server that sends no more will never answer. */
        .frame = on_frame,
        .half_closed = on_closed,
        .closed = on_closed,
        .data = c,
    };

    c->loop = loop;
    c->next_stream = 1;
    list_init(&c->calls);
    list_init(&c->failed);
    int r = ttrpc_conn_new(loop, fd, &ev, &c->conn, e);
    if (r < 0)
        return r;
    *ret = take(c);
    return 0;
}

int ttrpc_dial(const char *address, struct err *e)
{
    static const char scheme[] = "unix://";
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path =
        strncmp(address, scheme, sizeof scheme - 1) == 0 ? address + sizeof scheme - 1 : address;
    size_t n = strlen(path);

    if (n == 0 || n >= sizeof to.sun_path)
        return err_set(e, n ? -ENAMETOOLONG : -EINVAL, "\"%s\" is no usable socket address", address);
    memcpy(to.sun_path, path, n + 1);
    socklen_t len = sizeof to;
    if (path[0] == '@') {
        to.sun_path[0] = '\0';
        len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    }
    scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, "socket");
    /* On a unix socket this never waits: EAGAIN means that the listener's backlog is full. */
    if (connect(fd, (const struct sockaddr *)&to, len) < 0)
        return err_sys(e, "connect to %s", path);
    return take_fd(fd);
}

int ttrpc_client_connect(struct loop *loop, const char *address, struct ttrpc_client **ret, struct err *e)
{
    int fd = ttrpc_dial(address, e);

    return fd < 0 ? fd : ttrpc_client_new(loop, fd, ret, e);
}
