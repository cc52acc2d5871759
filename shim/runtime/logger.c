#include "shim/runtime/logger.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "shim/runtime/reaper.h"
#include "shim/runtime/uri.h"

#define READY_TIMEOUT_MS 10000
#define TERM_TIMEOUT_MS  12000 /* what the reference shim grants */

struct logger {
    struct loop *loop;
    struct reaper_watch *watch;
    pid_t pid; /* 0 = gone */
    int ready_fd;
    struct source *ready, *timer;
    bool must_confirm, released, told_ready;
    struct logger_events ev;
};

static void logger_free(struct logger *l)
{
    reaper_watch_free(l->watch);
    source_free(l->ready);
    source_free(l->timer);
    fd_close(l->ready_fd);
    free(l);
}

static void tell_ready(struct logger *l, int r, const struct err *e)
{
    source_free(take(l->ready));
    source_free(take(l->timer));
    fd_close(take_fd(l->ready_fd));
    l->told_ready = true;
    l->ev.ready(l->ev.data, r, e);
}

static void on_exit_(void *data, const struct reaper_exit *ex)
{
    struct logger *l = data;

    l->watch = NULL;
    l->pid = 0;
    log_debug("a stdio logger has ended", "pid=%d status=%u", ex->pid, ex->status);
    if (l->released) {
        logger_free(l);
        return;
    }
    if (!l->told_ready) {
        struct err e = {0};
        err_set(&e, -EIO, "the stdio logger exited with status %u before it was ready", ex->status);
        tell_ready(l, -EIO, &e);
        return;
    }
    l->ev.ended(l->ev.data);
}

static void on_ready(void *data, uint32_t events UNUSED)
{
    struct logger *l = data;
    char byte;
    ssize_t n = read(l->ready_fd, &byte, 1);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    struct err e = {0};
    if (n <= 0 && l->must_confirm)
        err_set(&e, -EIO, "the stdio logger closed its ready descriptor without a byte");
    tell_ready(l, e.code, &e);
}

static void on_ready_timeout(void *data)
{
    struct err e = {0};

    err_set(&e, -ETIMEDOUT, "the stdio logger was not ready within %d s", READY_TIMEOUT_MS / 1000);
    tell_ready(data, -ETIMEDOUT, &e);
}

/* Between fork and exec: only async-signal-safe calls. */
static NORETURN void child(char *const *argv, char *const *env, const int src[3])
{
    sigset_t none;
    int fds[3];

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)setpgid(0, 0);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        if (null < 0 || dup2(null, i) < 0)
            _exit(127);
    /* Up out of the way first: 3, 4 and 5 may be among the sources. */
    for (int i = 0; i < 3; i++)
        if ((fds[i] = fcntl(src[i] >= 0 ? src[i] : null, F_DUPFD, 16)) < 0)
            _exit(127);
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], 3 + i) < 0)
            _exit(127);
    if (syscall(SYS_close_range, 6U, ~0U, 0U) < 0)
        _exit(127);
    execve(argv[0], argv, env);
    _exit(errno == ENOENT ? 127 : 126);
}

int logger_start(const struct logger_params *p, struct logger **ret, struct err *e)
{
    int pair[2];

    if (access(p->uri->path, X_OK) < 0)
        return err_sys(e, "stdio logger %s", p->uri->path);
    if (pipe2(pair, O_CLOEXEC) < 0)
        return err_sys(e, "pipe2");
    scoped_fd int ready_r = pair[0], ready_w = pair[1];
    (void)fd_set_nonblock(ready_r, true);

    scoped_free char **argv = xcalloc(p->uri->n_args + 2, sizeof *argv);
    argv[0] = p->uri->path;
    for (size_t i = 0; i < p->uri->n_args; i++)
        argv[i + 1] = p->uri->args[i];
    scoped_free char *env_id = xasprintf("CONTAINER_ID=%s", p->id);
    scoped_free char *env_ns = xasprintf("CONTAINER_NAMESPACE=%s", p->ns);
    char *const env[] = {env_id, env_ns, NULL};
    const int src[3] = {p->out, p->err, ready_w};

    pid_t pid = fork();
    if (pid < 0)
        return err_sys(e, "fork a stdio logger");
    if (pid == 0)
        child(argv, env, src);

    struct logger *l = xcalloc(1, sizeof *l);
    *l = (struct logger){.loop = p->loop,
                         .pid = pid,
                         .ready_fd = take_fd(ready_r),
                         .must_confirm = p->uri->must_confirm,
                         .ev = p->events};
    l->watch = reaper_add(p->reaper, pid, -1, on_exit_, l);
    (void)loop_add_timer(p->loop, READY_TIMEOUT_MS, on_ready_timeout, l, &l->timer);
    int r = loop_add_fd(p->loop, l->ready_fd, EPOLLIN, on_ready, l, &l->ready);
    if (r < 0) {
        logger_release(l);
        return err_set(e, r, "watch the stdio logger");
    }
    *ret = l;
    return 0;
}

bool logger_is_running(const struct logger *l)
{
    return l && l->pid > 0;
}

static void on_kill(void *data)
{
    struct logger *l = data;

    log_warn("a stdio logger did not end, it is killed", "pid=%d", l->pid);
    (void)kill(l->pid, SIGKILL); /* our child and not reaped yet: the number is still its own */
}

void logger_release(struct logger *l)
{
    if (!l || l->released)
        return;
    l->released = true;
    if (l->pid == 0) {
        logger_free(l);
        return;
    }
    source_free(take(l->ready));
    source_free(take(l->timer));
    (void)kill(l->pid, SIGTERM);
    (void)loop_add_timer(l->loop, TERM_TIMEOUT_MS, on_kill, l, &l->timer);
}
