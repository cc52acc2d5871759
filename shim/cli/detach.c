#include "shim/cli/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/cli/shim_cgroup.h"

#define OOM_SCORE_ADJ_MAX 1000
enum { FD_LISTEN = 3, FD_LOG = 4, FD_FIRST_FREE = 5 };

/* ---- in the daemon ---- */

/* A shim must die before containerd does when memory is short, but not long before. */
static int adjust_oom_score(pid_t containerd, struct err *e)
{
    char path[64], text[16];
    scoped_free char *now = NULL;

    (void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)containerd);
    if (file_read(AT_FDCWD, path, sizeof text, &now, NULL, NULL) < 0)
        return 0; /* it ended meanwhile; our own value is what it gave us */
    (void)snprintf(text, sizeof text, "%d", MIN((int)strtol(now, NULL, 10) + 1, OOM_SCORE_ADJ_MAX));
    int r = file_write(AT_FDCWD, "/proc/self/oom_score_adj", text, e);
    /* Without CAP_SYS_RESOURCE a value below our own is refused: then ours is high enough. */
    return r == -EACCES || r == -EPERM ? 0 : r;
}

/*
 * containerd made the FIFO and reads it.  Opened for both directions so that it opens without a reader
 * and outlives one: containerd's next life opens the same FIFO again.
 */
static int open_log(void)
{
    struct stat st;
    scoped_fd int fd = open("log", O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
        return -1;
    return take_fd(fd);
}

/* Puts *fd at number `at`, which is free or replaced. */
static int place(int *fd, int at)
{
    if (*fd < 0 || *fd == at)
        return *fd < 0 ? 0 : fd_set_cloexec(at, true);
    if (dup3(*fd, at, O_CLOEXEC) < 0)
        return -errno;
    *fd = at;
    return 0;
}

static int arrange_fds(struct detach *d, int *status, struct err *e)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_sys(e, "open /dev/null");
    for (int fd = 0; fd < 3; fd++)
        if (dup2(null, fd) < 0)
            return err_sys(e, "dup2");

    d->log_fd = open_log();
    /* First out of the way of the places, then onto them. */
    int from[] = {d->listen_fd, d->log_fd, *status};
    for (size_t i = 0; i < ARRAY_LEN(from); i++) {
        if (from[i] < 0)
            continue;
        from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 16);
        if (from[i] < 0)
            return err_sys(e, "move a descriptor");
    }
    int at[] = {FD_LISTEN, FD_LOG, FD_FIRST_FREE};
    for (size_t i = 0; i < ARRAY_LEN(from); i++) {
        int r = place(&from[i], at[i]);
        if (r < 0)
            return err_set(e, r, "move a descriptor: %s", strerror(-r));
    }
    if (d->log_fd < 0)
        fd_close(FD_LOG);
    d->listen_fd = from[0];
    d->log_fd = from[1];
    *status = from[2];
    if (close_range(FD_FIRST_FREE + 1, ~0U, 0) < 0)
        return err_sys(e, "close_range");
    return 0;
}

static int become_daemon(struct detach *d, pid_t containerd, int *status, struct err *e)
{
    sigset_t held;

    /* A request to end that comes before the daemon's loop can take it waits for it, or the socket would
     * stay. */
    sigemptyset(&held);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGINT);
    (void)sigprocmask(SIG_SETMASK, &held, NULL);
    if (setsid() < 0)
        return err_sys(e, "setsid");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return err_sys(e, "become a subreaper");
    int r = adjust_oom_score(containerd, e);
    if (r >= 0 && d->shim_cgroup)
        r = shim_cgroup_enter(d->shim_cgroup, e);
    if (r >= 0)
        r = arrange_fds(d, status, e);
    return r;
}

/* ---- in start ---- */

/* The daemon says nothing when all is well. */
static int await(int status, pid_t pid, struct err *e)
{
    char text[ERR_TEXT_MAX];
    size_t n = 0;

    for (;;) {
        ssize_t got = read(status, text + n, sizeof text - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    text[n] = '\0';
    if (n == 1 && text[0] == '+')
        return 0;
    int code = 0;
    (void)waitpid(pid, &code, 0);
    if (n == 0)
        return err_set(e, -ECHILD, "the shim process ended with wait status %#x before it was ready", code);
    return err_set(e, -EIO, "%s", text);
}

pid_t detach(struct detach *d, struct err *e)
{
    int pipe_fds[2];
    pid_t containerd = getppid();

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return err_sys(e, "pipe2");
    scoped_fd int reading = pipe_fds[0];
    scoped_fd int writing = pipe_fds[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(e, "fork the shim process");
    if (pid > 0) {
        fd_close(take_fd(writing));
        int r = await(reading, pid, e);
        return r < 0 ? r : pid;
    }

    struct err why = {0};
    int status = take_fd(writing);
    (void)take_fd(reading); /* closed with all the rest */
    int r = become_daemon(d, containerd, &status, &why);
    const char *say = r < 0 ? err_text(&why) : "+";
    (void)fd_write_all(status, say, strlen(say));
    if (r < 0)
        _exit(1);
    fd_close(status);
    return 0;
}
