#pragma once
/*
 * Stand-ins for what needs root: cgroups, the pod's namespaces, the sentry and the launcher.  The
 * processes are real: the fake launcher forks a child that waits for "go" and then becomes
 * /bin/sh -c <args[0]>, so pids, signals, exit codes and reaping are the kernel's.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/scoped.h"
#include "shim/cgroup/stats.h"
#include "shim/hibernate/hibernate.h"
#include "shim/launcher/launch.h"
#include "shim/launcher/pod.h"
#include "shim/launcher/view.h"
#include "shim/oci/spec.h"
#include "shim/sentry/sentry.h"

static struct fake {
    int fail_launch, fail_sentry, fail_listener, fail_freeze, fail_update; /* negative errno */
    bool hold_launch; /* results wait for fake_deliver() */
    bool hold_quiet;  /* the sentry is not quiet before fake_quiet() */
    bool never_frozen;
    uint64_t ooms;
    int quiesced, unquiesced, released, sentries, pods, cgroups, hooks;
    struct sentry_events sentry_events;
    void (*quiet_done)(void *data);
    void *quiet_data;
    struct list launches;
} fake;

/* ---- cgroup ---- */
#define FAKE_PIDS 1024
struct cgroup {
    pid_t pid[FAKE_PIDS];
    size_t n;
    bool frozen;
    int oom_fd;
};
enum cgroup_mode cgroup_host_mode(void)
{
    return CGROUP_V1;
}
static int fake_cgroup(struct cgroup **ret)
{
    *ret = xcalloc(1, sizeof **ret);
    (*ret)->oom_fd = -1;
    fake.cgroups++;
    return 0;
}
int sentry_set_policy(struct sentry *s UNUSED, const char *json UNUSED, size_t len UNUSED,
                      struct err *e UNUSED)
{
    return 0;
}
int sentry_confirm_policy(struct sentry *s UNUSED, struct err *e UNUSED)
{
    return 0;
}
int sentry_serve_dns(struct sentry *s UNUSED, const struct pod *pod UNUSED, const char *resolv_conf UNUSED,
                     struct err *e UNUSED)
{
    return 0;
}

/* No memory is moved here: the runtime falls back to the plain freezer. */
int hibernate_pause(struct loop *l UNUSED, const struct hibernate_params *p UNUSED,
                    const struct hibernate_events *ev UNUSED, struct hibernate **ret UNUSED, struct err *e)
{
    return err_set(e, -ENOTSUP, "not in this test");
}
int hibernate_resume(struct hibernate *h UNUSED, struct err *e UNUSED)
{
    return 0;
}
void hibernate_free(struct hibernate *h UNUSED)
{
}
bool hibernate_reaped(struct hibernate *h UNUSED, pid_t pid UNUSED, int status UNUSED)
{
    return false;
}
int cgroup_create(const char *path UNUSED, const struct spec_resources *res UNUSED, struct cgroup **ret,
                  struct err *e UNUSED)
{
    return fake_cgroup(ret);
}
int cgroup_open(const char *path UNUSED, struct cgroup **ret UNUSED, struct err *e UNUSED)
{
    return -ENOENT;
}
int cgroup_create_sibling(const struct cgroup *cg UNUSED, const char *suffix UNUSED, struct cgroup **ret,
                          struct err *e UNUSED)
{
    return fake_cgroup(ret);
}
void cgroup_free(struct cgroup *cg)
{
    if (!cg)
        return;
    fake.cgroups--;
    fd_close(cg->oom_fd);
    free(cg);
}
int cgroup_apply_pod(const struct cgroup *cg UNUSED, const struct cgroup_pod_limits *l UNUSED,
                     struct err *e UNUSED)
{
    return 0;
}
int cgroup_update(struct cgroup *cg UNUSED, const struct spec_resources *res UNUSED, struct err *e)
{
    return fake.fail_update ? err_set(e, fake.fail_update, "fake update") : 0;
}
int cgroup_freeze(struct cgroup *cg, bool frozen, struct err *e)
{
    if (frozen && fake.fail_freeze)
        return err_set(e, fake.fail_freeze, "fake freeze");
    cg->frozen = frozen;
    for (size_t i = 0; i < cg->n; i++)
        (void)kill(cg->pid[i], frozen ? SIGSTOP : SIGCONT);
    return 0;
}
int cgroup_frozen(const struct cgroup *cg, struct err *e UNUSED)
{
    return cg->frozen && !fake.never_frozen;
}
static bool fake_alive(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}
int cgroup_kill(struct cgroup *cg, int sig, struct err *e UNUSED)
{
    for (size_t i = 0; i < cg->n; i++)
        if (fake_alive(cg->pid[i]))
            (void)kill(cg->pid[i], sig);
    return 0;
}
int cgroup_pids(const struct cgroup *cg, pid_t **ret, size_t *ret_n, struct err *e UNUSED)
{
    *ret = xcalloc(cg->n + 1, sizeof **ret);
    *ret_n = 0;
    for (size_t i = 0; i < cg->n; i++)
        if (fake_alive(cg->pid[i]))
            (*ret)[(*ret_n)++] = cg->pid[i];
    return 0;
}
bool cgroup_is_empty(const struct cgroup *cg)
{
    for (size_t i = 0; i < cg->n; i++)
        if (fake_alive(cg->pid[i]))
            return false;
    return true;
}
int cgroup_remove(struct cgroup *cg, struct err *e)
{
    return cgroup_is_empty(cg) ? 0 : err_set(e, -EBUSY, "fake busy");
}
int64_t cgroup_memory_limit(const struct cgroup *cg UNUSED)
{
    return 0;
}
int64_t cgroup_cpu_limit_milli(const struct cgroup *cg UNUSED)
{
    return 0;
}
int cgroup_oom_fd(struct cgroup *cg, struct err *e UNUSED)
{
    return cg->oom_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}
void cgroup_oom_drain(struct cgroup *cg)
{
    eventfd_t n;
    (void)eventfd_read(cg->oom_fd, &n);
}
uint64_t cgroup_oom_count(const struct cgroup *cg UNUSED)
{
    return fake.ooms;
}
int cgroup_stats_read(const struct cgroup *cg UNUSED, struct cgroup_stats *out, struct err *e UNUSED)
{
    *out = (struct cgroup_stats){.mode = CGROUP_V1};
    return 0;
}
void cgroup_stats_done(struct cgroup_stats *s UNUSED)
{
}

/* ---- pod, sentry ---- */
int pod_new(const char *id, const struct spec *spec UNUSED, const char *state_dir UNUSED, struct pod **ret,
            struct err *e UNUSED)
{
    *ret = xcalloc(1, sizeof **ret);
    (*ret)->id = xstrdup(id);
    (*ret)->pid_ns = -1;
    fake.pods++;
    return 0;
}
void pod_free(struct pod *pod)
{
    if (!pod)
        return;
    fake.pods--;
    fd_close(pod->pid_ns);
    free(pod->id);
    free(pod);
}
int pod_release(const char *id UNUSED, const char *state_dir UNUSED, struct err *e UNUSED)
{
    return 0;
}
struct sentry {
    int listeners;
};
int sentry_start(struct loop *loop UNUSED, const struct sentry_params *p UNUSED,
                 const struct sentry_events *ev, struct sentry **ret, struct err *e)
{
    if (fake.fail_sentry)
        return err_set(e, fake.fail_sentry, "fake sentry");
    fake.sentry_events = *ev;
    fake.sentries++;
    *ret = xcalloc(1, sizeof **ret);
    return 0;
}
void sentry_stop(struct sentry *s)
{
    fake.sentries -= s != NULL;
    free(s);
}
pid_t sentry_pid(const struct sentry *s UNUSED)
{
    return getpid();
}
bool sentry_reaped(struct sentry *s UNUSED, pid_t pid UNUSED, int status UNUSED)
{
    return false;
}
int sentry_add_listener(struct sentry *s, int fd, const char *id UNUSED, struct err *e)
{
    fd_close(fd);
    s->listeners++;
    return fake.fail_listener ? err_set(e, fake.fail_listener, "fake listener") : 0;
}
int sentry_quiesce(struct sentry *s UNUSED, void (*done)(void *data), void *data, struct err *e UNUSED)
{
    fake.quiesced++;
    fake.quiet_done = done;
    fake.quiet_data = data;
    if (!fake.hold_quiet)
        done(data);
    return 0;
}
int sentry_release_container(struct sentry *s UNUSED, const char *id UNUSED, struct err *e UNUSED)
{
    fake.released++;
    return 0;
}
size_t sentry_refused(const struct sentry *s UNUSED, struct sentry_count *out UNUSED, size_t max UNUSED)
{
    return 0;
}
int sentry_unquiesce(struct sentry *s UNUSED, struct err *e UNUSED)
{
    fake.unquiesced++;
    return 0;
}
int sentry_set_limits(struct sentry *s UNUSED, int64_t cpu UNUSED, int64_t memory UNUSED,
                      struct err *e UNUSED)
{
    return 0;
}

/* ---- launcher ---- */
struct launch {
    struct list node;
    struct loop *loop;
    struct source *source;
    launch_done_fn done;
    void *data;
    struct launch_result result;
    bool has_result;
    int sync_fd;
    const char *why;
};

static void fake_launch_free(struct launch *l)
{
    list_remove(&l->node);
    source_free(l->source);
    fd_close(l->sync_fd);
    free(l);
}
static void fake_finish(void *data)
{
    struct launch *l = data;
    struct launch_result result = l->result;
    launch_done_fn done = l->done;
    void *to = l->data;
    struct err e = {0};

    l->source = NULL;
    if (l->why)
        err_set(&e, -ENOENT, "%s", l->why);
    fake_launch_free(l);
    done(to, e.code, e.code ? NULL : &result, &e);
}
static UNUSED void fake_deliver(void)
{
    while (!list_is_empty(&fake.launches))
        fake_finish(LIST_ENTRY(fake.launches.next, struct launch, node));
}

static pid_t fake_child(const struct launch_params *p, int go, int slave)
{
    const char *text = p->process->args.item[0];
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 0; i < 3; i++)
        dup2(p->process->terminal ? slave : p->stdio[i], i);
    char byte;
    if (read(go, &byte, 1) != 1)
        _exit(1);
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
}

int launch_view_update(int fd UNUSED, int64_t cpu UNUSED, int64_t memory UNUSED, struct err *e UNUSED)
{
    return 0;
}
int launch_start(struct loop *loop, const struct launch_params *p, launch_done_fn done, void *data,
                 struct launch **ret, struct err *e)
{
    int pair[2], slave = -1;

    if (fake.fail_launch)
        return err_set(e, fake.fail_launch, "fake launch");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct launch *l = xcalloc(1, sizeof *l);
    *l = (struct launch){.loop = loop, .done = done, .data = data, .has_result = true, .sync_fd = -1};
    l->result = (struct launch_result){
        .listener_fd = open("/dev/null", O_RDWR | O_CLOEXEC), .console_fd = -1, .proc_view_fd = -1};
    if (p->process->terminal) {
        l->result.console_fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        assert_int_equal(unlockpt(l->result.console_fd), 0);
        slave = open(ptsname(l->result.console_fd), O_RDWR | O_NOCTTY | O_CLOEXEC);
    }
    l->result.pid = fake_child(p, pair[1], slave);
    l->result.pidfd = (int)syscall(SYS_pidfd_open, l->result.pid, 0);
    l->result.sync_fd = pair[0];
    fd_close(pair[1]);
    fd_close(slave);
    struct cgroup *cg = (struct cgroup *)(uintptr_t)p->cgroup;
    cg->pid[cg->n++ % FAKE_PIDS] = l->result.pid;
    list_init(&l->node);
    if (fake.hold_launch)
        list_append(&fake.launches, &l->node);
    else
        loop_defer(loop, fake_finish, l, &l->source);
    *ret = l;
    return 0;
}

static void fake_on_exec(void *data, uint32_t events UNUSED)
{
    struct launch *l = data;
    source_free(take(l->source));
    fake_finish(l);
}

int launch_release(struct loop *loop, int sync_fd, const struct spec_process *process, launch_done_fn done,
                   void *data, struct launch **ret, struct err *e UNUSED)
{
    struct launch *l = xcalloc(1, sizeof *l);

    *l = (struct launch){.loop = loop, .done = done, .data = data, .sync_fd = sync_fd};
    list_init(&l->node);
    *ret = l;
    if (strncmp(process->args.item[0], "nowhere", 7) == 0) {
        l->why = "exec: \"nowhere\": executable file not found in $PATH";
        loop_defer(loop, fake_finish, l, &l->source);
        return 0;
    }
    ssize_t n = send(sync_fd, "g", 1, MSG_NOSIGNAL);
    (void)n;
    return loop_add_fd(loop, sync_fd, EPOLLIN, fake_on_exec, l, &l->source);
}

void launch_cancel(struct launch *l)
{
    if (l->has_result) {
        (void)kill(l->result.pid, SIGKILL);
        int fds[] = {l->result.pidfd, l->result.sync_fd, l->result.listener_fd, l->result.console_fd};
        fd_close_all(fds, ARRAY_LEN(fds));
    }
    fake_launch_free(l);
}
bool launch_reaped(struct launch *l UNUSED, pid_t pid UNUSED, int status UNUSED)
{
    return false;
}
int launch_hooks(struct loop *loop, const struct spec *spec UNUSED, int kind UNUSED, const char *id UNUSED,
                 const char *bundle UNUSED, pid_t pid UNUSED, const char *status UNUSED, launch_done_fn done,
                 void *data, struct launch **ret, struct err *e UNUSED)
{
    struct launch *l = xcalloc(1, sizeof *l);

    fake.hooks++;
    *l = (struct launch){.loop = loop, .done = done, .data = data, .sync_fd = -1};
    list_init(&l->node);
    *ret = l;
    return loop_defer(loop, fake_finish, l, &l->source);
}
