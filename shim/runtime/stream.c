#include "shim/runtime/stream.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"

#define CHUNK          (64 * 1024)
#define ROUNDS         16 /* chunks per wake-up, so that one busy stream does not starve the others */
#define RETRY_FIRST_MS 1  /* FIFO without a reader; doubles up to the last */
#define RETRY_LAST_MS  64
#define TTY_RETRY_MS   50
#define GONE_RETRY_MS  100

enum waiting { WAIT_NONE, WAIT_SRC, WAIT_DST, WAIT_TIMER };

struct stream {
    struct loop *loop;
    int src, dst;
    int src_keep; /* our own writer of a stdin FIFO */
    int dst_keep; /* our own reader of an output FIFO */
    enum stream_source source;
    char *fifo_path; /* still to be opened when dst < 0 */
    int retry_ms;
    bool is_fifo, throw_away, quit_on_dst_error, exited, eof, is_done;
    enum waiting waiting;
    struct source *watch; /* fd, timer or deferred: what `waiting` says */
    char *left;           /* read but not written yet */
    size_t left_at, left_len;
    uint64_t moved;
    stream_done_fn done;
    void *data;
};

static void pump(struct stream *s);

static void stop_waiting(struct stream *s)
{
    source_free(s->watch);
    s->watch = NULL;
    s->waiting = WAIT_NONE;
}

static void on_fd(void *data, uint32_t events UNUSED)
{
    pump(data);
}

static void on_timer(void *data)
{
    struct stream *s = data;

    stop_waiting(s);
    pump(s);
}

static void on_deferred(void *data)
{
    struct stream *s = data;

    s->watch = NULL; /* it has run and is gone */
    s->waiting = WAIT_NONE;
    pump(s);
}

static void wait_timer(struct stream *s, int ms)
{
    stop_waiting(s);
    s->waiting = WAIT_TIMER;
    (void)loop_add_timer(s->loop, ms, on_timer, s, &s->watch);
}

/*
 * Only the side we wait for is in epoll: EPOLLHUP of the other one cannot be masked and would spin.
 * Regular files cannot be polled (EPERM) and are always ready.
 */
static void wait_fd(struct stream *s, enum waiting side)
{
    if (s->waiting == side && s->watch)
        return;
    stop_waiting(s);
    s->waiting = side;
    int fd = side == WAIT_SRC ? s->src : s->dst;
    int r = loop_add_fd(s->loop, fd, side == WAIT_SRC ? EPOLLIN : EPOLLOUT, on_fd, s, &s->watch);
    if (r < 0) {
        s->waiting = WAIT_TIMER;
        (void)loop_defer(s->loop, on_deferred, s, &s->watch);
    }
}

static void close_fds(struct stream *s)
{
    int *fds[] = {&s->src, &s->dst, &s->src_keep, &s->dst_keep};

    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fd_close(*fds[i]);
        *fds[i] = -1;
    }
}

static void finish(struct stream *s)
{
    stop_waiting(s);
    close_fds(s);
    free(take(s->left));
    s->is_done = true;
    s->done(s->data);
}

/* 0: open.  1: a FIFO without a reader, try later.  <0: cannot be opened. */
static int open_sink(struct stream *s, struct err *e)
{
    struct stat st;
    int fd = open(s->fifo_path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

    if (fd < 0 && errno == ENXIO)
        return 1;
    if (fd < 0)
        return err_sys(e, "open %s for writing", s->fifo_path);
    s->dst = fd;
    if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
        return 0;
    s->is_fifo = true;
    s->dst_keep = open(s->fifo_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (s->dst_keep < 0)
        log_warn("no keep-alive reader for a stdio FIFO", "path=%s error=%s", s->fifo_path, strerror(errno));
    return 0;
}

/* Writes what is left over. true: nothing is left. */
static bool flush_left(struct stream *s)
{
    while (s->left_len > 0) {
        ssize_t n = s->throw_away ? (ssize_t)s->left_len : write(s->dst, s->left + s->left_at, s->left_len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n < 0) {
            log_debug("a stdio destination fails, the rest is thrown away", "error=%s", strerror(errno));
            s->throw_away = true;
            continue;
        }
        s->left_at += (size_t)n;
        s->left_len -= (size_t)n;
        s->moved += (uint64_t)n;
    }
    s->left_at = 0;
    return true;
}

/* 1: bytes in left.  0: end.  -EAGAIN: nothing now.  Other errors count as the end. */
static int fill(struct stream *s)
{
    if (!s->left)
        s->left = xrealloc_array(NULL, CHUNK, 1);
    for (;;) {
        ssize_t n = read(s->src, s->left, CHUNK);
        if (n > 0) {
            s->left_len = (size_t)n;
            return 1;
        }
        if (n == 0)
            return 0;
        if (errno != EINTR)
            return errno == EAGAIN ? -EAGAIN : (errno == EIO ? -EIO : 0);
    }
}

/*
 * At the end of an output FIFO: does anyone but us still have it open for reading?  While containerd
 * restarts nobody does, and closing now would lose what is in the FIFO.  Looked at with our own
 * reader closed: a pipe without readers reports EPOLLERR on its write end.
 */
static bool reader_is_missing(struct stream *s)
{
    struct pollfd p = {.fd = s->dst, .events = POLLOUT};
    int unread = 0;

    if (!s->is_fifo || s->dst_keep < 0 || ioctl(s->dst_keep, FIONREAD, &unread) < 0 || unread == 0)
        return false;
    fd_close(s->dst_keep);
    s->dst_keep = -1;
    if (poll(&p, 1, 0) != 1 || !(p.revents & POLLERR))
        return false;
    s->dst_keep = open(s->fifo_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return s->dst_keep >= 0;
}

/* The source has ended and everything read is written. */
static void at_end(struct stream *s)
{
    if (s->fifo_path && s->is_fifo && reader_is_missing(s)) {
        fd_close(s->src);
        s->src = -1;
        wait_timer(s, GONE_RETRY_MS);
        return;
    }
    finish(s);
}

/* false: stop pumping, something is waited for or all is over. */
static bool pump_once(struct stream *s)
{
    if (!flush_left(s)) {
        wait_fd(s, WAIT_DST);
        return false;
    }
    if (s->throw_away && s->quit_on_dst_error) {
        finish(s);
        return false;
    }
    if (s->eof) {
        at_end(s);
        return false;
    }
    int r = fill(s);
    if (r == -EAGAIN) {
        free(take(s->left)); /* an idle stream keeps no buffer */
        wait_fd(s, WAIT_SRC);
        return false;
    }
    if (r == -EIO && s->source == STREAM_TTY && !s->exited) {
        wait_timer(s, TTY_RETRY_MS); /* nobody holds the slave at the moment; somebody may open it again */
        return false;
    }
    s->eof = r <= 0;
    return true;
}

static void pump(struct stream *s)
{
    if (s->is_done)
        return;
    if (s->dst < 0 && !s->throw_away) {
        struct err e = {0};
        int r = open_sink(s, &e);
        if (r > 0) {
            wait_timer(s, s->retry_ms);
            s->retry_ms = MIN(s->retry_ms * 2, RETRY_LAST_MS);
            return;
        }
        if (r < 0) {
            log_warn("a stdio FIFO is gone, output is thrown away", "error=%s", err_text(&e));
            s->throw_away = true;
        }
    }
    for (int i = 0; i < ROUNDS; i++)
        if (!pump_once(s))
            return;
    /* Still busy: let the others run first. */
    stop_waiting(s);
    s->waiting = WAIT_TIMER;
    (void)loop_defer(s->loop, on_deferred, s, &s->watch);
}

int stream_new(const struct stream_params *p, struct stream **ret, struct err *e)
{
    scoped(stream_free) struct stream *s = xcalloc(1, sizeof *s);

    assert(p->loop && p->src >= 0 && p->done && (p->dst >= 0 || p->fifo_path));
    *s = (struct stream){.loop = p->loop,
                         .src = p->src,
                         .dst = p->dst,
                         .src_keep = p->src_keep,
                         .dst_keep = -1,
                         .source = p->source,
                         .fifo_path = xstrdup(p->fifo_path),
                         .retry_ms = RETRY_FIRST_MS,
                         .quit_on_dst_error = p->quit_on_dst_error,
                         .done = p->done,
                         .data = p->data};
    int r = fd_set_nonblock(s->src, true);
    if (r == 0 && s->dst >= 0)
        r = fd_set_nonblock(s->dst, true);
    if (r < 0)
        return err_set(e, r, "make a stdio descriptor non-blocking");
    if (s->dst < 0) {
        r = open_sink(s, e);
        if (r < 0)
            return r;
    }
    s->waiting = WAIT_TIMER;
    r = loop_defer(s->loop, on_deferred, s, &s->watch);
    if (r < 0)
        return err_set(e, r, "start a stdio copier");
    *ret = take(s);
    return 0;
}

void stream_free(struct stream *s)
{
    if (!s)
        return;
    stop_waiting(s);
    close_fds(s);
    free(s->left);
    free(s->fifo_path);
    free(s);
}

void stream_close_keep(struct stream *s)
{
    fd_close(s->src_keep);
    s->src_keep = -1;
    /* Without any writer the FIFO now reports EPOLLHUP, which wakes a stream that waits for it. */
}

void stream_exited(struct stream *s)
{
    s->exited = true;
    if (!s->is_done && s->source == STREAM_TTY && s->waiting == WAIT_TIMER && s->dst >= 0) {
        stop_waiting(s);
        s->waiting = WAIT_TIMER;
        (void)loop_defer(s->loop, on_deferred, s, &s->watch);
    }
}

bool stream_is_done(const struct stream *s)
{
    return s->is_done;
}

bool stream_is_empty(const struct stream *s)
{
    struct pollfd p = {.fd = s->src, .events = POLLIN};

    if (s->is_done)
        return true;
    return s->dst < 0 && s->left_len == 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) &&
           !(p.revents & POLLIN);
}

uint64_t stream_moved(const struct stream *s)
{
    return s->moved;
}
