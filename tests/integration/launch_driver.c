/*
 * launch-driver [OPTION]... BUNDLE
 *
 * Starts the bundle's config.json through pod_new, cgroup_create, launch_start and launch_release with
 * real namespaces, waits for it, prints what happened, exits with its status.  No containerd, no
 * sentry: for the launcher's own tests and for measuring it.
 *
 *   -d          trace of the steps, on stderr
 *   -n RUNS     again and again; prints the median and the best of "create to exec"
 *   -c CGROUP   cgroups path, otherwise none
 *   -o OPTIONS  rootfs is an overlay with these options ("lowerdir=...,upperdir=...,workdir=...")
 *   -b DIR      rootfs is a bind mount of DIR
 *   -x FILE     when the container runs, exec the process of this JSON file; its status counts
 *   -k          keep: leave the pod's id range to be found (for tests of a killed shim)
 *   -f          no filter: what the namespaces and mounts alone hold back
 *   -w MS       wait between launch and release
 *   -S DIR      state directory, /run/glovebox
 *
 * Notified system calls are answered with ENOSYS, but with CONTINUE under -s: only a test may do that.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/scoped.h"
#include "shim/cgroup/cgroup.h"
#include "shim/launcher/launch.h"
#include "shim/launcher/pod.h"
#include "shim/oci/spec.h"

SCOPED_DEFINE(struct spec_process, spec_process_free)
SCOPED_DEFINE(struct spec, spec_free)
SCOPED_DEFINE(struct loop, loop_free)

static struct {
    bool debug, follow, keep, open;
    int runs, wait_ms;
    const char *cgroup, *overlay, *bind, *exec, *state;
} opt = {.runs = 1, .state = "/run/glovebox"};

struct result {
    bool done;
    int r;
    struct launch_result l;
    struct err e;
};

static void on_done(void *data, int r, struct launch_result *result, const struct err *e)
{
    struct result *out = data;

    out->done = true;
    out->r = r;
    if (r == 0 && result)
        out->l = *result;
    if (r < 0)
        out->e = *e;
}

/* ---- the filter, replaced under -f (link option --wrap) --------------------------------------------- */

struct filter_options;
int __real_filter_build(const struct filter_options *o, struct sock_filter *out, size_t max, size_t *ret_n,
                        struct err *e);
int __wrap_filter_build(const struct filter_options *o, struct sock_filter *out, size_t max, size_t *ret_n,
                        struct err *e);

int __wrap_filter_build(const struct filter_options *o, struct sock_filter *out, size_t max, size_t *ret_n,
                        struct err *e)
{
    if (!opt.open)
        return __real_filter_build(o, out, max, ret_n, e);
    out[0] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    *ret_n = 1;
    return 0;
}

/* ---- a supervisor for tests --------------------------------------------------------------------- */

static void *supervise(void *arg)
{
    int fd = (int)(intptr_t)arg;

    for (;;) {
        struct seccomp_notif req = {0};
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, -1) < 0 || p.revents & (POLLHUP | POLLERR))
            break;
        if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &req) < 0) {
            if (errno == ENOENT || errno == EINTR)
                continue;
            break;
        }
        struct seccomp_notif_resp resp = {.id = req.id};
        if (opt.follow)
            resp.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        else
            resp.error = -ENOSYS;
        (void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &resp);
    }
    close(fd);
    return NULL;
}

static void start_supervisor(int fd)
{
    pthread_t t;
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&t, &attr, supervise, (void *)(intptr_t)fd) != 0)
        abort();
    pthread_attr_destroy(&attr);
}

/* ---- one launch --------------------------------------------------------------------------------- */

static int copy_console(int master)
{
    char buf[4096];
    ssize_t n;

    while ((n = read(master, buf, sizeof buf)) > 0)
        if (write(1, buf, (size_t)n) < 0)
            break;
    return 0;
}

/* Any child: a zombie in the container's pid namespace keeps its init from ending. */
static int wait_for(pid_t pid)
{
    int status = 0;

    for (pid_t got; (got = waitpid(-1, &status, 0)) != pid;)
        if (got < 0 && errno != EINTR)
            return 255;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Launch, release; 0 with the process running. */
static int run(struct loop *loop, struct launch_params *p, struct result *res, struct err *e)
{
    struct launch *launch;
    *res = (struct result){0};
    int r = launch_start(loop, p, on_done, res, &launch, e);
    if (r < 0)
        return r;
    while (!res->done)
        (void)loop_step(loop, -1, e);
    if (res->r < 0) {
        *e = res->e;
        return res->r;
    }
    start_supervisor(res->l.listener_fd);
    usleep((useconds_t)opt.wait_ms * 1000);
    struct result go = {0};
    r = launch_release(loop, res->l.sync_fd, p->process, on_done, &go, &launch, e);
    while (r == 0 && !go.done)
        (void)loop_step(loop, -1, e);
    if (r == 0 && go.r < 0) {
        *e = go.e;
        r = go.r;
    }
    return r;
}

static int exec_in(struct loop *loop, const struct launch_params *base, const struct result *init,
                   struct err *e)
{
    scoped_free char *text = NULL;
    size_t len = 0;
    scoped(spec_process_free) struct spec_process *process = NULL;
    struct result res;

    int r = file_read(AT_FDCWD, opt.exec, 1 << 20, &text, &len, e);
    if (r == 0)
        r = spec_process_parse(text, len, &process, e);
    if (r < 0)
        return r;
    struct launch_params p = *base;
    p.process = process;
    p.join = init->l.pid;
    p.join_pidfd = init->l.pidfd;
    int64_t start = clock_mono_ns();
    r = run(loop, &p, &res, e);
    if (r < 0)
        return r;
    if (opt.debug)
        fprintf(stderr, "exec: %.2f ms\n", (double)(clock_mono_ns() - start) / 1e6);
    if (res.l.console_fd >= 0)
        copy_console(res.l.console_fd);
    return wait_for(res.l.pid);
}

static int once(struct loop *loop, const char *bundle, const struct spec *spec, const struct pod *pod,
                double *ret_ms, struct err *e)
{
    struct cgroup *cg = NULL;
    struct result res;
    const char *words[64];
    size_t n_words = 0;
    scoped_free char *text = xstrdup(opt.overlay);
    char *rest = text;
    int64_t start = clock_mono_ns();
    int r = opt.cgroup ? cgroup_create(opt.cgroup, &spec->resources, &cg, e) : 0;

    if (r < 0)
        return r;
    for (char *w; rest && n_words < 64 && (w = strsep(&rest, ","));)
        words[n_words++] = w;
    if (opt.bind)
        words[n_words++] = "rbind";
    const struct launch_mount root = {.type = opt.bind ? "bind" : "overlay",
                                      .source = opt.bind ? opt.bind : "overlay",
                                      .options = words,
                                      .n_options = n_words};
    struct launch_params p = {.pod = pod,
                              .id = "driver",
                              .bundle = bundle,
                              .spec = spec,
                              .process = &spec->process,
                              .rootfs = &root,
                              .n_rootfs = n_words ? 1 : 0,
                              .cgroup = cg,
                              .stdio = {0, 1, 2},
                              .join_pidfd = -1,
                              .debug = opt.debug};
    r = run(loop, &p, &res, e);
    *ret_ms = (double)(clock_mono_ns() - start) / 1e6;
    if (r == 0) {
        if (opt.exec) {
            r = exec_in(loop, &p, &res, e);
            (void)kill(res.l.pid, SIGKILL);
        }
        if (res.l.console_fd >= 0 && !opt.exec)
            copy_console(res.l.console_fd);
        int status = wait_for(res.l.pid);
        if (!opt.exec)
            r = status;
        fd_close(res.l.pidfd);
        fd_close(res.l.console_fd);
        fd_close(res.l.proc_view_fd);
    }
    while (waitpid(-1, NULL, 0) > 0) /* the launcher's helpers end by themselves */
        continue;
    if (cg) {
        (void)cgroup_kill(cg, SIGKILL, NULL);
        for (int i = 0; i < 100 && cgroup_remove(cg, NULL) < 0; i++)
            usleep(5000);
        cgroup_free(cg);
    }
    return r;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int drive(const char *bundle, struct err *e)
{
    scoped(spec_free) struct spec *spec = NULL;
    scoped(loop_free) struct loop *loop = NULL;
    struct pod *pod;
    scoped_fd int dir = open(bundle, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped_free double *ms = xcalloc((size_t)opt.runs, sizeof *ms);

    if (dir < 0)
        return err_sys(e, "%s", bundle);
    int r = spec_load(dir, &spec, e);
    if (r == 0)
        r = loop_new(&loop, e);
    if (r < 0)
        return r;
    int64_t start = clock_mono_ns();
    r = pod_new("driver", spec, opt.state, &pod, e);
    if (r < 0)
        return r;
    if (opt.debug || opt.runs > 1)
        fprintf(stderr, "pod: %.2f ms, base %u\n", (double)(clock_mono_ns() - start) / 1e6, pod->base);
    for (int i = 0; i < opt.runs && r >= 0; i++)
        r = once(loop, bundle, spec, pod, &ms[i], e);
    if (opt.runs > 1 && r >= 0) {
        qsort(ms, (size_t)opt.runs, sizeof *ms, compare);
        fprintf(stderr, "create to exec: median %.2f ms, best %.2f, worst %.2f\n", ms[opt.runs / 2], ms[0],
                ms[opt.runs - 1]);
    }
    if (!opt.keep)
        pod_free(pod);
    return r;
}

int main(int argc, char **argv)
{
    struct err e = {0};

    for (int c; (c = getopt(argc, argv, "dn:c:o:b:x:sS:kfw:")) != -1;) {
        if (c == 'd')
            opt.debug = true;
        else if (c == 'n')
            opt.runs = atoi(optarg);
        else if (c == 'c')
            opt.cgroup = optarg;
        else if (c == 'o')
            opt.overlay = optarg;
        else if (c == 'b')
            opt.bind = optarg;
        else if (c == 'x')
            opt.exec = optarg;
        else if (c == 's')
            opt.follow = true;
        else if (c == 'S')
            opt.state = optarg;
        else if (c == 'k')
            opt.keep = true;
        else if (c == 'w')
            opt.wait_ms = atoi(optarg);
        else if (c == 'f')
            opt.open = true;
        else
            return 2;
    }
    if (optind + 1 != argc || opt.runs < 1)
        return 2;
    log_init(2, opt.debug ? LOG_DEBUG : LOG_INFO);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)signal(SIGPIPE, SIG_IGN);
    scoped_free char *bundle = realpath(argv[optind], NULL);
    if (!bundle)
        return 2;
    int r = drive(bundle, &e);
    if (r < 0)
        fprintf(stderr, "%s\n", err_text(&e));
    return r < 0 ? 125 : r;
}
