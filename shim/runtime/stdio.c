#include "shim/runtime/stdio.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "shim/runtime/logger.h"
#include "shim/runtime/stream.h"
#include "shim/runtime/uri.h"

#define DRAIN_TICK_MS 100

static const char *const stream_name[3] = {"stdin", "stdout", "stderr"};

struct stdio {
    struct loop *loop;
    struct reaper *reaper;
    char *ns, *id;
    bool terminal;
    uid_t uid;
    gid_t gid;
    struct uri *uri[3];
    int child[3];     /* the process's side, ours until it has started */
    int logger_in[2]; /* terminal with a logger: write ends of its pipes */
    int file_fd;      /* file://: shared by stdout and stderr */
    int master;       /* for TIOCSWINSZ; the streams have their own duplicates */
    struct stream *stream[3];
    struct logger *logger;
    bool close_stdin, exited;
    unsigned width, height;
    void (*ready)(void *data, int r, const struct err *e);
    void *ready_data;
    struct source *drain_timer;
    int64_t drain_end_ms, drain_idle_ms;
    uint64_t drain_seen;
    void (*drained)(void *data);
    void *drained_data;
};

static int parse_all(const char *const text[3], struct uri *uri[3], struct err *e)
{
    for (int i = 0; i < 3; i++) {
        int r = uri_parse(text[i], stream_name[i], &uri[i], e);
        if (r < 0)
            return r;
    }
    if (uri[STDIO_IN]->kind == URI_FILE || uri[STDIO_IN]->kind == URI_LOGGER)
        return err_set(e, -EINVAL, "stdin: only a FIFO can be read from");
    return 0;
}

int stdio_check(const char *const text[3], struct err *e)
{
    struct uri *uri[3] = {NULL};
    int r = parse_all(text, uri, e);

    for (int i = 0; i < 3; i++)
        uri_free(uri[i]);
    return r;
}

static void on_stream_done(void *data)
{
    struct stdio *io = data;

    if (io->drain_timer)
        source_arm(io->drain_timer, 0);
}

static int make_pipe(const struct stdio *io, int *ret_r, int *ret_w, struct err *e)
{
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(e, "pipe2");
    /* Both ends are one inode.  Without this the container's ids could not reopen /dev/stdout. */
    if ((io->uid || io->gid) && fchown(p[0], io->uid, io->gid) < 0) {
        int r = err_sys(e, "give a stdio pipe to %u:%u", io->uid, io->gid);
        fd_close_all(p, 2);
        return r;
    }
    *ret_r = p[0];
    *ret_w = p[1];
    return 0;
}

static int open_null(int *ret, struct err *e)
{
    *ret = open("/dev/null", O_RDWR | O_CLOEXEC);
    return *ret < 0 ? err_sys(e, "open /dev/null") : 0;
}

/* mkdir -p of the parent, then append. */
static int open_file(const char *path, int *ret, struct err *e)
{
    scoped_free char *dir = xstrdup(path);

    for (char *p = strchr(dir + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(dir, 0755) < 0 && errno != EEXIST)
            return err_sys(e, "create %s", dir);
        *p = '/';
    }
    *ret = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
    return *ret < 0 ? err_sys(e, "open %s", path) : 0;
}

/* A copier from src (taken) to where the URI of `which` points. */
static int add_output(struct stdio *io, int which, int src, enum stream_source source, struct err *e)
{
    scoped_fd int from = src;
    scoped_fd int to = -1;
    const struct uri *u = io->uri[which];

    if (u->kind == URI_LOGGER) {
        to = take_fd(io->logger_in[0]);
    } else if (u->kind == URI_NULL) {
        int r = open_null(&to, e);
        if (r < 0)
            return r;
    } else if (u->kind == URI_FILE) {
        to = fcntl(io->file_fd, F_DUPFD_CLOEXEC, 3);
        if (to < 0)
            return err_sys(e, "duplicate the log file");
    }
    const struct stream_params p = {.loop = io->loop,
                                    .src = take_fd(from),
                                    .dst = take_fd(to),
                                    .source = source,
                                    .fifo_path = u->kind == URI_PATH ? u->path : NULL,
                                    .src_keep = -1,
                                    .done = on_stream_done,
                                    .data = io};
    return stream_new(&p, &io->stream[which], e);
}

/*
 * A copier from the stdin FIFO to `dst` (taken).  O_RDONLY|O_NONBLOCK never waits for a writer; our
 * own writer then keeps one client's hang-up from being the end for the next one.
 */
static int add_input(struct stdio *io, int dst, struct err *e)
{
    const char *path = io->uri[STDIO_IN]->path;
    scoped_fd int to = dst;
    scoped_fd int from = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat st;

    if (from < 0 || fstat(from, &st) < 0)
        return err_sys(e, "stdin: open %s", path);
    scoped_fd int keep = -1;
    if (S_ISFIFO(st.st_mode)) {
        keep = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (keep < 0)
            return err_sys(e, "stdin: open %s for writing", path);
    }
    const struct stream_params p = {.loop = io->loop,
                                    .src = take_fd(from),
                                    .dst = take_fd(to),
                                    .source = STREAM_PIPE,
                                    .src_keep = take_fd(keep),
                                    .quit_on_dst_error = true,
                                    .done = on_stream_done,
                                    .data = io};
    int r = stream_new(&p, &io->stream[STDIO_IN], e);
    if (r == 0 && io->close_stdin)
        stream_close_keep(io->stream[STDIO_IN]);
    return r;
}

static int open_stdin(struct stdio *io, struct err *e)
{
    int r, w;

    if (io->uri[STDIO_IN]->kind == URI_NULL)
        return open_null(&io->child[STDIO_IN], e);
    int x = make_pipe(io, &r, &w, e);
    if (x < 0)
        return x;
    io->child[STDIO_IN] = r;
    return add_input(io, w, e);
}

static int open_output(struct stdio *io, int which, struct err *e)
{
    int r, w;

    if (io->uri[which]->kind == URI_NULL)
        return open_null(&io->child[which], e);
    int x = make_pipe(io, &r, &w, e);
    if (x < 0)
        return x;
    io->child[which] = w;
    return add_output(io, which, r, STREAM_PIPE, e);
}

static void on_logger_ready(void *data, int r, const struct err *e)
{
    struct stdio *io = data;

    io->ready(io->ready_data, r, e);
}

static void on_logger_ended(void *data)
{
    on_stream_done(data);
}

/*
 * One logger serves both outputs; it reads the container's pipes itself.  With a terminal it gets a
 * pipe that the copier of the master fills.
 */
static int open_logger(struct stdio *io, struct err *e)
{
    scoped_fd int out = -1;
    scoped_fd int err_fd = -1;
    int w[2];

    int r = make_pipe(io, &out, &w[0], e);
    if (r < 0)
        return r;
    int *first = io->terminal ? &io->logger_in[0] : &io->child[STDIO_OUT];
    *first = w[0];
    r = make_pipe(io, &err_fd, &w[1], e);
    if (r < 0)
        return r;
    int *second = io->terminal ? &io->logger_in[1] : &io->child[STDIO_ERR];
    *second = w[1];
    const struct logger_params p = {
        .loop = io->loop,
        .reaper = io->reaper,
        .uri = io->uri[STDIO_OUT],
        .ns = io->ns,
        .id = io->id,
        .out = out,
        .err = err_fd,
        .events = {.ready = on_logger_ready, .ended = on_logger_ended, .data = io}};
    return logger_start(&p, &io->logger, e);
}

static int open_outputs(struct stdio *io, struct err *e)
{
    const struct uri *out = io->uri[STDIO_OUT], *err = io->uri[STDIO_ERR];
    int r = 0;

    if (out->kind == URI_LOGGER)
        return open_logger(io, e);
    if (err->kind == URI_LOGGER)
        return err_set(e, -EINVAL, "stderr: a logger must serve stdout too");
    if (out->kind == URI_FILE || err->kind == URI_FILE) {
        const char *path = out->kind == URI_FILE ? out->path : err->path;
        if (out->kind == URI_FILE && err->kind == URI_FILE && strcmp(out->path, err->path) != 0)
            return err_set(e, -EINVAL, "stderr: must be the same file as stdout");
        r = open_file(path, &io->file_fd, e);
    }
    if (io->terminal) /* the copier comes with the console */
        return r;
    for (int i = STDIO_OUT; i <= STDIO_ERR && r == 0; i++)
        r = open_output(io, i, e);
    return r;
}

int stdio_open(const struct stdio_params *p, struct stdio **ret, struct err *e)
{
    scoped(stdio_free) struct stdio *io = xcalloc(1, sizeof *io);

    *io = (struct stdio){.loop = p->loop,
                         .reaper = p->reaper,
                         .ns = xstrdup(p->ns),
                         .id = xstrdup(p->id),
                         .terminal = p->terminal,
                         .uid = p->uid,
                         .gid = p->gid,
                         .child = {-1, -1, -1},
                         .logger_in = {-1, -1},
                         .file_fd = -1,
                         .master = -1,
                         .ready = p->ready,
                         .ready_data = p->data};
    int r = parse_all(p->uri, io->uri, e);
    if (r == 0)
        r = open_outputs(io, e);
    if (r == 0 && !io->terminal)
        r = open_stdin(io, e);
    if (r < 0)
        return r;
    r = io->logger ? 1 : 0;
    *ret = take(io);
    return r;
}

void stdio_free(struct stdio *io)
{
    if (!io)
        return;
    source_free(io->drain_timer);
    for (int i = 0; i < 3; i++) {
        stream_free(io->stream[i]);
        uri_free(io->uri[i]);
    }
    fd_close_all(io->child, 3);
    fd_close_all(io->logger_in, 2);
    fd_close(io->file_fd);
    fd_close(io->master);
    logger_release(io->logger);
    free(io->ns);
    free(io->id);
    free(io);
}

const int *stdio_child_fds(const struct stdio *io)
{
    return io->child;
}

void stdio_child_started(struct stdio *io)
{
    for (int i = 0; i < 3; i++) {
        fd_close(io->child[i]);
        io->child[i] = -1;
    }
}

/*
 * Two duplicates, because one descriptor number can be in epoll only once and the two directions wait
 * independently of each other.
 */
int stdio_set_console(struct stdio *io, int master, struct err *e)
{
    assert(io->terminal && io->master < 0);
    io->master = master;
    int out = fcntl(master, F_DUPFD_CLOEXEC, 3);
    if (out < 0)
        return err_sys(e, "duplicate the console");
    int r = add_output(io, STDIO_OUT, out, STREAM_TTY, e);
    if (r < 0)
        return r;
    fd_close(take_fd(io->logger_in[1]));
    if (io->uri[STDIO_IN]->kind != URI_NULL) {
        int in = fcntl(master, F_DUPFD_CLOEXEC, 3);
        if (in < 0)
            return err_sys(e, "duplicate the console");
        r = add_input(io, in, e);
    }
    if (r == 0 && (io->width || io->height))
        r = stdio_resize(io, io->width, io->height, e);
    return r;
}

int stdio_resize(struct stdio *io, unsigned width, unsigned height, struct err *e)
{
    const struct winsize size = {.ws_col = (unsigned short)MIN(width, 65535U),
                                 .ws_row = (unsigned short)MIN(height, 65535U)};

    if (!io->terminal)
        return 0;
    io->width = width;
    io->height = height;
    if (io->master >= 0 && ioctl(io->master, TIOCSWINSZ, &size) < 0)
        return err_sys(e, "resize the terminal");
    return 0;
}

void stdio_close_stdin(struct stdio *io)
{
    io->close_stdin = true;
    if (io->stream[STDIO_IN])
        stream_close_keep(io->stream[STDIO_IN]);
}

void stdio_process_exited(struct stdio *io)
{
    io->exited = true;
    stdio_child_started(io);
    stream_free(take(io->stream[STDIO_IN]));
    if (io->stream[STDIO_OUT])
        stream_exited(io->stream[STDIO_OUT]);
}

bool stdio_is_drained(const struct stdio *io)
{
    for (int i = STDIO_OUT; i <= STDIO_ERR; i++)
        if (io->stream[i] && !stream_is_empty(io->stream[i]))
            return false;
    return !logger_is_running(io->logger);
}

static uint64_t total_moved(const struct stdio *io)
{
    uint64_t n = 0;

    for (int i = STDIO_OUT; i <= STDIO_ERR; i++)
        n += io->stream[i] ? stream_moved(io->stream[i]) : 0;
    return n;
}

static void on_drain_tick(void *data)
{
    struct stdio *io = data;
    int64_t now = clock_mono_ms();
    uint64_t moved = total_moved(io);

    if (moved != io->drain_seen) {
        io->drain_seen = moved;
        io->drain_idle_ms = now + STDIO_DRAIN_IDLE_MS;
    }
    bool late = now >= io->drain_end_ms || now >= io->drain_idle_ms;
    if (!stdio_is_drained(io) && !late) {
        source_arm(io->drain_timer, DRAIN_TICK_MS);
        return;
    }
    if (late)
        log_info("output of a finished process is cut off", "id=%s moved=%llu", io->id,
                 (unsigned long long)moved);
    source_free(take(io->drain_timer));
    io->drained(io->drained_data);
}

void stdio_drain(struct stdio *io, void (*done)(void *data), void *data)
{
    int64_t now = clock_mono_ms();

    assert(!io->drain_timer);
    io->drained = done;
    io->drained_data = data;
    io->drain_seen = total_moved(io);
    io->drain_end_ms = now + STDIO_DRAIN_MAX_MS;
    io->drain_idle_ms = now + STDIO_DRAIN_IDLE_MS;
    (void)loop_add_timer(io->loop, 0, on_drain_tick, io, &io->drain_timer);
}
