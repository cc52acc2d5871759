#include "shim/ttrpc/conn.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/loop.h"
#include "base/strbuf.h"

#define READ_MAX 16384
/* A peer that lets so much of our answers lie is not going to read them. */
#define BACKLOG_MAX (64u << 20)

struct ttrpc_conn {
    int fd;
    struct source *source, *ending; /* ending: a closed() that waits for the loop */
    uint32_t events;                /* what epoll watches for */
    struct loop *loop;
    struct ttrpc_conn_events ev;
    struct strbuf in;  /* the beginning of a frame that is not whole yet */
    size_t skip;       /* bytes of an oversized frame still to throw away */
    struct strbuf out; /* what the socket did not take, from `sent` on */
    size_t sent;
    bool read_done; /* end of file seen */
    bool dead;      /* freed by a callback */
    bool busy;      /* on_ready() is on the stack */
};

static void update_events(struct ttrpc_conn *c)
{
    uint32_t want = (c->read_done ? 0 : EPOLLIN) | (c->out.len > c->sent ? EPOLLOUT : 0);

    if (!c->source || want == c->events)
        return;
    c->events = want;
    (void)source_set_events(c->source, want);
}

static void destroy(struct ttrpc_conn *c)
{
    strbuf_done(&c->in);
    strbuf_done(&c->out);
    free(c);
}

void ttrpc_conn_free(struct ttrpc_conn *c)
{
    if (!c || c->dead)
        return;
    c->dead = true;
    source_free(c->source);
    source_free(c->ending);
    fd_close(c->fd);
    if (!c->busy)
        destroy(c);
}

static void report_closed(void *data)
{
    struct ttrpc_conn *c = data;

    c->ending = NULL;
    c->ev.closed(c->ev.data);
}

/* closed() always comes straight from the loop: the owner frees things that callers still hold. */
static void close_later(struct ttrpc_conn *c)
{
    if (c->ending || c->dead)
        return;
    c->read_done = true;
    c->sent = c->out.len;
    source_free(c->source);
    c->source = NULL;
    (void)loop_defer(c->loop, report_closed, c, &c->ending);
}

/* ---- writing ---- */

static void compact(struct ttrpc_conn *c)
{
    if (c->sent == c->out.len) {
        /* An idle connection keeps no buffer; there may be one connection per container. */
        strbuf_done(&c->out);
        strbuf_init(&c->out, BACKLOG_MAX);
        c->sent = 0;
    } else if (c->sent > c->out.len / 2) {
        strbuf_drop(&c->out, c->sent);
        c->sent = 0;
    }
}

static void flush(struct ttrpc_conn *c)
{
    while (c->out.len > c->sent) {
        ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            close_later(c);
            return;
        }
        c->sent += (size_t)n;
    }
    compact(c);
}

/* Bytes the socket took at once, 0 when it is full; -errno when it is broken. */
static ssize_t send_now(struct ttrpc_conn *c, const uint8_t *header, const uint8_t *payload, size_t len)
{
    struct iovec iov[2] = {
        {.iov_base = (void *)(uintptr_t)header, .iov_len = TTRPC_HEADER},
        {.iov_base = (void *)(uintptr_t)payload, .iov_len = len},
    };
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = len ? 2 : 1};

    for (;;) {
        ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL);
        if (n >= 0)
            return n;
        if (errno == EAGAIN)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

void ttrpc_conn_send(struct ttrpc_conn *c, const struct ttrpc_frame *f, const uint8_t *payload)
{
    uint8_t header[TTRPC_HEADER];
    size_t done = 0;

    assert(f->len <= TTRPC_PAYLOAD_MAX);
    if (c->dead || !c->source)
        return;
    ttrpc_frame_encode(f, header);
    if (c->out.len == c->sent) {
        ssize_t n = send_now(c, header, payload, f->len);
        if (n < 0) {
            close_later(c);
            return;
        }
        done = (size_t)n;
        if (done == TTRPC_HEADER + (size_t)f->len)
            return;
    }
    if (done < TTRPC_HEADER)
        strbuf_add(&c->out, header + done, TTRPC_HEADER - done);
    size_t from = done > TTRPC_HEADER ? done - TTRPC_HEADER : 0;
    if (f->len > from)
        strbuf_add(&c->out, payload + from, f->len - from);
    if (c->out.overflow)
        close_later(c);
    else
        update_events(c);
}

bool ttrpc_conn_idle(const struct ttrpc_conn *c)
{
    return c->out.len == c->sent;
}

/* ---- reading ---- */

static size_t skip_some(struct ttrpc_conn *c, size_t n)
{
    size_t drop = MIN(c->skip, n);

    c->skip -= drop;
    return drop;
}

/* Handles the whole frames in p and returns the bytes used; the connection may be dead afterwards. */
static size_t cut(struct ttrpc_conn *c, const uint8_t *p, size_t n)
{
    size_t used = skip_some(c, n);

    while (!c->dead && n - used >= TTRPC_HEADER) {
        struct ttrpc_frame f = ttrpc_frame_decode(p + used);
        if (f.len > TTRPC_PAYLOAD_MAX) {
            used += TTRPC_HEADER;
            c->skip = f.len;
            used += skip_some(c, n - used);
            c->ev.frame(c->ev.data, &f, NULL);
            continue;
        }
        if (n - used - TTRPC_HEADER < f.len)
            break;
        c->ev.frame(c->ev.data, &f, p + used + TTRPC_HEADER);
        used += TTRPC_HEADER + f.len;
    }
    return used;
}

static void feed(struct ttrpc_conn *c, const uint8_t *p, size_t n)
{
    if (c->in.len == 0) {
        size_t used = cut(c, p, n);
        if (!c->dead && used < n)
            strbuf_add(&c->in, p + used, n - used);
        return;
    }
    strbuf_add(&c->in, p, n);
    /* Not a whole frame yet: do not go through cut() for every 16 KiB of a large one. */
    if (c->in.len >= TTRPC_HEADER) {
        struct ttrpc_frame f = ttrpc_frame_decode((const uint8_t *)c->in.data);
        if (f.len <= TTRPC_PAYLOAD_MAX && c->in.len < TTRPC_HEADER + (size_t)f.len)
            return;
    }
    size_t used = cut(c, (const uint8_t *)c->in.data, c->in.len);
    if (c->dead)
        return;
    if (used == c->in.len) {
        strbuf_done(&c->in);
        strbuf_init(&c->in, TTRPC_HEADER + TTRPC_PAYLOAD_MAX + READ_MAX);
    } else {
        strbuf_drop(&c->in, used);
    }
}

/* One read a round, so that a busy connection does not keep the others waiting.  <0: no more comes. */
static int read_some(struct ttrpc_conn *c)
{
    uint8_t buf[READ_MAX];

    for (;;) {
        ssize_t n = recv(c->fd, buf, sizeof buf, 0);
        if (n > 0) {
            feed(c, buf, (size_t)n);
            return 0;
        }
        if (n == 0)
            return -EPIPE;
        if (errno == EAGAIN)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

static void read_ready(struct ttrpc_conn *c, bool gone)
{
    int r = read_some(c);

    if (r == 0 || c->dead)
        return; /* after a hang-up there may be more frames before the end */
    c->read_done = true;
    /* close(2) hangs up a unix socket, shutdown(SHUT_WR) does not. */
    if (gone || r != -EPIPE)
        close_later(c);
    else
        c->ev.half_closed(c->ev.data);
}

static void on_ready(void *data, uint32_t events)
{
    struct ttrpc_conn *c = data;
    bool gone = events & (EPOLLHUP | EPOLLERR);

    c->busy = true;
    if (!c->read_done)
        read_ready(c, gone);
    else if (gone)
        close_later(c);
    if (!c->dead && events & EPOLLOUT && c->source) {
        flush(c);
        if (c->source && ttrpc_conn_idle(c) && c->ev.drained)
            c->ev.drained(c->ev.data);
    }
    if (!c->dead)
        update_events(c);
    c->busy = false;
    if (c->dead)
        destroy(c);
}

int ttrpc_conn_new(struct loop *loop, int fd, const struct ttrpc_conn_events *ev, struct ttrpc_conn **ret,
                   struct err *e)
{
    scoped_fd int mine = fd;
    int r = fd_set_nonblock(mine, true);
    if (r < 0)
        return err_set(e, r, "make a ttrpc socket non-blocking");

    scoped(ttrpc_conn_free) struct ttrpc_conn *c = xcalloc(1, sizeof *c);
    c->fd = take_fd(mine);
    c->loop = loop;
    c->events = EPOLLIN;
    c->ev = *ev;
    strbuf_init(&c->in, TTRPC_HEADER + TTRPC_PAYLOAD_MAX + READ_MAX);
    strbuf_init(&c->out, BACKLOG_MAX);
    r = loop_add_fd(loop, c->fd, EPOLLIN, on_ready, c, &c->source);
    if (r < 0)
        return err_set(e, r, "watch a ttrpc socket");
    *ret = take(c);
    return 0;
}
