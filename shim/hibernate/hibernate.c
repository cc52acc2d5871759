#include "shim/hibernate/hibernate.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/scoped.h"
#include "shim/hibernate/pager.h"
#include "shim/hibernate/serve.h"

struct hibernate {
    struct hibernate_params params;
    struct hibernate_events events;
    struct cgroup **cgroups;
    char *image_dir;
    struct loop *loop;
    struct source *source;
    pid_t pid;
    int pidfd, control;
    bool over; /* the last event was delivered */
    int *uffds;
    size_t n_uffds, cap_uffds;
};

static void drop_uffds(struct hibernate *h)
{
    fd_close_all(h->uffds, h->n_uffds);
    h->n_uffds = 0;
}

static void end(struct hibernate *h)
{
    source_free(take(h->source));
    h->over = true;
}

static void broken(struct hibernate *h, const struct err *e)
{
    if (h->over)
        return;
    end(h);
    h->events.broken(h->events.data, e);
}

static void on_message(struct hibernate *h, const struct pager_message *m, int *fd)
{
    struct err e = {.code = m->code};

    memcpy(e.text, m->text, sizeof e.text);
    e.text[sizeof e.text - 1] = '\0';
    if (m->type == PAGER_UFFD && *fd >= 0) {
        h->uffds = xgrow(h->uffds, h->n_uffds, &h->cap_uffds, sizeof *h->uffds);
        h->uffds[h->n_uffds++] = take_fd(*fd);
    } else if (m->type == PAGER_ASKED) {
        if (h->events.asked)
            h->events.asked(h->events.data);
    } else if (m->type == PAGER_PAUSED) {
        struct hibernate_result result = {.saved_bytes = m->a, .duration_ms = m->b, .lazy = m->code == 0};
        h->events.paused(h->events.data, 0, &result, NULL);
    } else if (m->type == PAGER_FAILED) {
        end(h);
        h->events.paused(h->events.data, e.code < 0 ? e.code : -EIO, NULL, &e);
    } else if (m->type == PAGER_RESUMABLE) {
        h->events.resumable(h->events.data);
    } else if (m->type == PAGER_FINISHED) {
        drop_uffds(h);
        (void)pager_send(h->control, PAGER_CLOSED, NULL, -1);
        end(h);
        h->events.finished(h->events.data);
    } else if (m->type == PAGER_BROKEN) {
        broken(h, &e);
    }
}

static void on_control(void *data, uint32_t events)
{
    struct hibernate *h = data;
    struct pager_message m;
    scoped_fd int fd = -1;
    size_t n = 0, n_fds = 1;
    int r = fd_recv_msg(h->control, &m, sizeof m, &n, &fd, &n_fds);

    (void)events;
    if (r == -EAGAIN)
        return;
    if (n_fds == 0)
        fd = -1;
    if (r != 0 || n != sizeof m) {
        struct err e;
        (void)err_set(&e, -EPIPE, "the process that keeps the paused memory ended");
        broken(h, &e);
        return;
    }
    on_message(h, &m, &fd);
}

/*
 * The cgroups' directories and files stay open.  Sockets, pipes and terminals must not: containerd and the
 * containers learn of an end by the close of the last copy.
 */
static void close_channels(int keep)
{
    DIR *d = opendir("/proc/self/fd");

    if (!d)
        return;
    for (struct dirent *entry; (entry = readdir(d));) {
        struct stat st;
        uint64_t fd;
        if (parse_u64(entry->d_name, INT32_MAX, &fd) < 0 || (int)fd == keep || (int)fd == dirfd(d) || fd < 3)
            continue;
        if (fstat((int)fd, &st) == 0 && !S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
            fd_close((int)fd);
    }
    (void)closedir(d);
}

static void become_pager(const struct hibernate *h, int control)
{
    sigset_t none;

    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)prctl(PR_SET_NAME, "glovebox-pager");
    close_channels(control);
    pager_main(&h->params, control);
}

int hibernate_pause(struct loop *loop, const struct hibernate_params *params,
                    const struct hibernate_events *events, struct hibernate **ret, struct err *e)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, "socketpair");

    struct hibernate *h = xcalloc(1, sizeof *h);
    *h = (struct hibernate){
        .params = *params, .events = *events, .loop = loop, .pid = -1, .pidfd = -1, .control = pair[0]};
    h->cgroups = xmemdup(params->cgroups, params->n_cgroups * sizeof *h->cgroups);
    h->image_dir = xstrdup(params->image_dir);
    h->params.cgroups = h->cgroups;
    h->params.image_dir = h->image_dir;
    h->pid = fork();
    if (h->pid == 0) {
        fd_close(pair[0]);
        become_pager(h, pair[1]);
    }
    fd_close(pair[1]);
    if (h->pid < 0) {
        int r = err_sys(e, "fork the pager");
        hibernate_free(h);
        return r;
    }
    h->pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    int r = loop_add_fd(loop, h->control, EPOLLIN, on_control, h, &h->source);
    if (r < 0) {
        hibernate_free(h);
        return err_set(e, r, "watch the pager: %s", strerror(-r));
    }
    *ret = h;
    return 0;
}

int hibernate_resume(struct hibernate *h, struct err *e)
{
    int r = pager_send(h->control, PAGER_RESUME, NULL, -1);

    return r < 0 ? err_set(e, r, "the process that keeps the paused memory does not answer") : 0;
}

void hibernate_free(struct hibernate *h)
{
    if (!h)
        return;
    source_free(h->source);
    if (h->pid > 0 && !h->over && h->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, h->pidfd, SIGKILL, NULL, 0);
    drop_uffds(h);
    free(h->uffds);
    fd_close(h->pidfd);
    fd_close(h->control);
    free(h->cgroups);
    free(h->image_dir);
    free(h);
}

pid_t hibernate_pid(const struct hibernate *h)
{
    return h->pid;
}

bool hibernate_reaped(struct hibernate *h, pid_t pid, int status)
{
    if (pid != h->pid)
        return false;
    h->pid = -1;
    if (!h->over && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        struct err e;
        (void)err_set(&e, -EPIPE, "the process that keeps the paused memory was killed");
        broken(h, &e);
    }
    return true;
}
