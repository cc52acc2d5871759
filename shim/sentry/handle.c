/* The shim's side of the sentry. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/magic.h>
#include <linux/sched.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/scoped.h"
#include "shim/cgroup/cgroup.h"
#include "shim/egress/policy.h"
#include "shim/filter/filter.h"
#include "shim/launcher/pod.h"
#include "shim/sentry/core.h"
#include "shim/sentry/cut.h"
#include "shim/sentry/dns_setup.h"
#include "shim/sentry/guard.h"
#include "shim/sentry/message.h"
#include "shim/sentry/process.h"
#include "shim/sentry/sentry.h"
#include "shim/sentry/task.h"

#define READY_MS           10000
#define ANSWER_MS          5000
#define MESSAGES_PER_ROUND 16
#define V1_TASKS_MAX       32

struct sentry {
    pid_t pid;
    int control, net_ns; /* net_ns: the pod's, a copy */
    bool asked_to_stop, gone;
    struct guard *guard;
    struct sentry_counts *counts; /* shared with it; whatever it writes there are just numbers */
    struct loop *loop;
    struct source *source;
    struct sentry_events events;
    uint64_t last_cookie;
    /* one quiesce or release at a time */
    uint64_t waiting;
    void (*done)(void *data);
    void *done_data;
    /* the answer that request() waits for */
    uint64_t wanted;
    bool got;
    int got_value;
};

static int send_message(struct sentry *s, const struct message *m, int fd, struct err *e)
{
    if (s->gone)
        return err_set(e, -ESRCH, "the sentry is gone");
    int r = fd_send_msg(s->control, m, sizeof *m, fd >= 0 ? &fd : NULL, fd >= 0);
    return r < 0 ? err_set(e, r, "the sentry does not answer: %s", strerror(-r)) : 0;
}

static void answer_query(struct sentry *s, const struct message *m)
{
    bool pending = false;
    int tgid = task_look_up(m->value, &pending);
    struct message answer = {.type = MESSAGE_TASK, .cookie = m->cookie, .value = tgid, .a = pending};
    (void)send_message(s, &answer, -1, NULL); /* it asks again */
}

/* What it asks for stays inside the pod's own network namespace. */
static void cut(const struct sentry *s, const struct message *m)
{
    struct cut_socket sock = {.family = m->value >> 16 == AF_INET6 ? AF_INET6 : AF_INET,
                              .protocol = (m->value & 0xff) == IPPROTO_UDP ? IPPROTO_UDP : IPPROTO_TCP,
                              .local_port = (unsigned short)(m->a >> 16),
                              .remote_port = (unsigned short)m->a};
    struct err e = {0};

    memcpy(sock.local, m->text, sizeof sock.local);
    memcpy(sock.remote, m->text + sizeof sock.local, sizeof sock.remote);
    if (cut_destroy(s->net_ns, &sock, &e) < 0)
        log_warn("a connection that the policy no longer allows goes on", "error=%s", err_text(&e));
}

static void take_message(struct sentry *s, const struct message *m)
{
    if (m->type == MESSAGE_CUT) {
        cut(s, m);
        return;
    }
    if (m->type == MESSAGE_TASK_QUERY) {
        answer_query(s, m);
    } else if (m->type == MESSAGE_DONE && m->cookie == s->wanted) {
        s->got = true;
        s->got_value = m->value;
    } else if (m->type == MESSAGE_DONE && m->cookie == s->waiting) {
        s->waiting = 0;
        s->done(s->done_data);
    }
}

/* 1: one message was taken; 0: none there; -errno: the other side is gone. Never blocks, takes no
 * descriptors. */
static int read_message(struct sentry *s)
{
    struct message m;
    ssize_t n = recv(s->control, &m, sizeof m, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -EPIPE;
    if (n == (ssize_t)sizeof m)
        take_message(s, &m);
    return 1;
}

static void on_control(void *data, uint32_t events)
{
    struct sentry *s = data;
    (void)events;
    for (int i = 0; i < MESSAGES_PER_ROUND; i++) {
        int r = read_message(s);
        if (r == 0)
            return;
        if (r < 0) { /* the reaper tells us how it died */
            s->gone = true;
            source_free(s->source);
            s->source = NULL;
            return;
        }
    }
}

/* Sends and waits for the answer; other messages are handled meanwhile. */
static int request(struct sentry *s, struct message *m, int fd, struct err *e)
{
    int64_t until = clock_mono_ms() + ANSWER_MS;

    m->cookie = s->wanted = ++s->last_cookie;
    s->got = false;
    int r = send_message(s, m, fd, e);
    while (r == 0 && !s->got) {
        struct pollfd p = {.fd = s->control, .events = POLLIN};
        int64_t left = until - clock_mono_ms();
        if (left <= 0)
            r = err_set(e, -ETIMEDOUT, "the sentry does not answer");
        else if (poll(&p, 1, (int)left) > 0 && read_message(s) < 0)
            r = err_set(e, -ESRCH, "the sentry is gone");
    }
    s->wanted = 0;
    if (r < 0)
        return r;
    return s->got_value < 0 ? err_set(e, s->got_value, "the sentry refuses: %s", strerror(-s->got_value)) : 0;
}

/* The descriptors of v1 hierarchies; a v2 one (hybrid hosts) would take the sentry out of the guard's
 * directory. */
static size_t v1_tasks(const struct cgroup_entry *entry, int *out)
{
    size_t n = 0;
    for (size_t i = 0; i < entry->n_v1_tasks && n < V1_TASKS_MAX; i++) {
        struct statfs fs;
        if (fstatfs(entry->v1_tasks[i], &fs) == 0 && fs.f_type != CGROUP2_SUPER_MAGIC)
            out[n++] = entry->v1_tasks[i];
    }
    return n;
}

/* A fork whose child is in the v2 cgroup from the start: moving it there later takes 10 ms. Single-threaded
 * callers only. */
static pid_t fork_into(int cgroup_dir)
{
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup_dir};
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static int fork_sentry(struct sentry *s, const struct sentry_params *p, const struct cgroup_entry *entry,
                       struct err *e)
{
    int tasks[V1_TASKS_MAX], pair[2];
    struct sentry_boot boot = {
        .shim = getpid(),
        .audit = p->audit_fd,
        .net_ns = p->pod->cni_net_ns,
        .user_ns = p->pod->user_ns,
        .mnt_ns = p->pod->empty_mnt_ns,
        .counts = s->counts,
        .v1_tasks = tasks,
        .n_v1_tasks = v1_tasks(entry, tasks),
        .debug = p->debug,
        .cpu_milli = p->cpu_milli,
        .memory_bytes = p->memory_bytes,
        .hard_deny = p->hard_deny,
        .n_hard_deny = p->n_hard_deny,
    };

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, "sentry: socketpair");
    s->control = pair[0];
    (void)fd_set_nonblock(s->control,
                          true); /* whatever has become of the sentry, the shim does not wait for it */
    scoped_fd int theirs = pair[1];
    boot.control = theirs;
    s->pid = fork_into(guard_dir(s->guard));
    if (s->pid < 0)
        return err_sys(e, "sentry: fork into its cgroup");
    if (s->pid == 0)
        sentry_process(&boot);
    return 0;
}

static int died_early(struct sentry *s, struct err *e)
{
    int status = 0;
    (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, &status, 0);
    s->pid = -1;
    return err_set(e, -EPROTO, "the sentry died while it started: %s %d",
                   WIFSIGNALED(status) ? "signal" : "status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* It says so itself, and its first socket is the proof that the guard works. */
static int wait_ready(struct sentry *s, struct err *e)
{
    struct pollfd p = {.fd = s->control, .events = POLLIN};
    struct message m;
    size_t len, n_fds = 1;
    int fd = -1;

    if (poll(&p, 1, READY_MS) <= 0)
        return err_set(e, -ETIMEDOUT, "the sentry does not start");
    int r = fd_recv_msg(s->control, &m, sizeof m, &len, &fd, &n_fds);
    if (r != 0 || len != sizeof m || m.type != MESSAGE_READY)
        return died_early(s, e);
    scoped_fd int probe = n_fds == 1 ? fd : -1;
    m.text[sizeof m.text - 1] = '\0';
    if (m.value < 0 || probe < 0)
        return err_set(e, m.value < 0 ? m.value : -EPROTO, "sentry: %s",
                       m.text[0] ? m.text : "no test socket");
    return guard_check(probe, e);
}

int sentry_start(struct loop *loop, const struct sentry_params *p, const struct sentry_events *ev,
                 struct sentry **ret, struct err *e)
{
    struct cgroup_entry entry = {.v2_dir = -1};
    if (p->cgroup)
        entry = cgroup_entry(p->cgroup);

    scoped(sentry_stop) struct sentry *s = xcalloc(1, sizeof *s);
    s->control = -1;
    s->net_ns = fcntl(p->pod->cni_net_ns, F_DUPFD_CLOEXEC, 3);
    s->loop = loop;
    s->events = *ev;
    s->counts = mmap(NULL, sizeof *s->counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->counts == MAP_FAILED) {
        s->counts = NULL;
        return err_sys(e, "sentry: shared page");
    }
    int r = guard_install(entry.v2_dir, p->pod->id, &s->guard, e);
    if (r == 0)
        r = fork_sentry(s, p, &entry, e);
    if (r == 0)
        r = wait_ready(s, e);
    if (r == 0)
        r = loop_add_fd(loop, s->control, EPOLLIN, on_control, s, &s->source);
    if (r < 0)
        return r;
    *ret = take(s);
    return 0;
}

void sentry_stop(struct sentry *s)
{
    if (!s)
        return;
    s->asked_to_stop = true;
    source_free(s->source);
    if (s->pid > 0) {
        (void)kill(s->pid, SIGKILL);
        (void)waitpid(s->pid, NULL, 0); /* the guard's directory can go only after it */
    }
    fd_close(s->control);
    fd_close(s->net_ns);
    guard_free(s->guard);
    if (s->counts)
        (void)munmap(s->counts, sizeof *s->counts);
    free(s);
}

pid_t sentry_pid(const struct sentry *s)
{
    return s->pid;
}

bool sentry_reaped(struct sentry *s, pid_t pid, int status)
{
    if (!s || pid != s->pid || pid <= 0)
        return false;
    s->pid = -1;
    s->gone = true;
    if (!s->asked_to_stop && s->events.died)
        s->events.died(s->events.data, status);
    return true;
}

int sentry_add_listener(struct sentry *s, int listener_fd, const char *container_id, struct err *e)
{
    scoped_fd int fd = listener_fd;
    struct message m = {.type = MESSAGE_LISTENER};
    (void)strncat(m.text, container_id, sizeof m.text - 1);
    return request(s, &m, fd, e);
}

static int request_later(struct sentry *s, enum message_type type, void (*done)(void *data), void *data,
                         struct err *e)
{
    struct message m = {.type = type, .cookie = ++s->last_cookie};

    if (s->waiting)
        return err_set(e, -EBUSY, "the sentry is being quiesced already");
    int r = send_message(s, &m, -1, e);
    if (r < 0)
        return r;
    s->waiting = m.cookie;
    s->done = done;
    s->done_data = data;
    return 0;
}

int sentry_quiesce(struct sentry *s, void (*done)(void *data), void *data, struct err *e)
{
    return request_later(s, MESSAGE_QUIESCE, done, data, e);
}

int sentry_release_container(struct sentry *s, const char *container_id, struct err *e)
{
    struct message m = {.type = MESSAGE_RELEASE};
    (void)strncat(m.text, container_id, sizeof m.text - 1);
    return send_message(s, &m, -1, e);
}

size_t sentry_refused(const struct sentry *s, struct sentry_count *out, size_t max)
{
    size_t n = 0;
    for (long nr = 0; nr < COUNTED_CALLS; nr++) {
        const struct rule *r = rule_for(nr);
        uint64_t count = s->counts->refused[nr];
        if (count == 0 || !r)
            continue;
        if (n < max)
            out[n] = (struct sentry_count){r->name, count};
        n++;
    }
    return n;
}

int sentry_release_parked(struct sentry *s, void (*done)(void *data), void *data, struct err *e)
{
    return request_later(s, MESSAGE_RELEASE, done, data, e);
}

int sentry_unquiesce(struct sentry *s, struct err *e)
{
    struct message m = {.type = MESSAGE_RESUME};
    s->waiting = 0;
    return request(s, &m, -1, e);
}

int sentry_set_limits(struct sentry *s, int64_t cpu_milli, int64_t memory_bytes, struct err *e)
{
    struct message m = {.type = MESSAGE_LIMITS, .a = cpu_milli, .b = memory_bytes};
    return request(s, &m, -1, e);
}

int sentry_set_policy(struct sentry *s, const char *json, size_t len, struct err *e)
{
    struct message m = {.type = MESSAGE_POLICY, .a = (int64_t)len};
    scoped_fd int fd = -1;

    if (json) {
        struct policy *check = NULL; /* its sentences are better than an error number */
        int r = policy_parse(json, len, &check, e);
        if (r < 0)
            return r;
        policy_free(check);
        fd = memfd_create("policy", MFD_CLOEXEC);
        if (fd < 0)
            return err_sys(e, "memfd_create");
        r = fd_write_all(fd, json, len);
        if (r < 0)
            return err_set(e, r, "copy the policy: %s", strerror(-r));
    }
    return request(s, &m, fd, e);
}

int sentry_confirm_policy(struct sentry *s, struct err *e)
{
    struct message m = {.type = MESSAGE_CONFIRM};
    return request(s, &m, -1, e);
}

static int give_dns_socket(void *data, const struct dns_setup_socket *sock, struct err *e)
{
    struct message m = {.type = MESSAGE_DNS, .value = sock->kind, .a = sock->family};
    (void)strncat(m.text, sock->address, sizeof m.text - 1);
    return request(data, &m, sock->fd, e);
}

static int give_search(void *data, const char *domain, struct err *e)
{
    struct message m = {.type = MESSAGE_SEARCH};
    (void)strncat(m.text, domain, sizeof m.text - 1);
    return request(data, &m, -1, e);
}

int sentry_serve_dns(struct sentry *s, const struct pod *pod, const char *resolv_conf, struct err *e)
{
    const struct dns_setup_out out = {.socket = give_dns_socket, .search = give_search, .data = s};
    return dns_setup(pod->cni_net_ns, resolv_conf, &out, e);
}

int sentry_clean_up(const char *pod_id)
{
    return guard_remove(pod_id);
}
