#include "shim/sentry/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <linux/capability.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "shim/sentry/core.h"
#include "shim/sentry/cut.h"
#include "shim/sentry/dns.h"
#include "shim/sentry/message.h"
#include "shim/sentry/task.h"

#define FILES_MAX 4096
#define DATA_MAX  (128UL * 1024 * 1024)
#ifndef PIDFD_THREAD
#define PIDFD_THREAD 0x80
#endif

/* ---- becoming harmless ---- */

/*
 * The v1 hierarchies; in the v2 one it was born.  Writing "0" to `tasks` moves the writer without the global
 * lock that moving somebody else, or any write to cgroup.procs, takes (10 ms).
 */
static int join(int fd, const char *what, struct err *e)
{
    return write(fd, "0", 1) == 1 ? 0 : err_sys(e, "join cgroup %s", what);
}

static int join_cgroups(const struct sentry_boot *b, struct err *e)
{
    for (size_t i = 0; i < b->n_v1_tasks; i++) {
        int r = join(b->v1_tasks[i], "tasks", e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The network namespace first: once in the user namespace there is no right to it any more. */
static int enter_namespaces(const struct sentry_boot *b, struct err *e)
{
    if (setns(b->net_ns, CLONE_NEWNET) < 0)
        return err_sys(e, "enter the pod's network namespace");
    if (setns(b->mnt_ns, CLONE_NEWNS) < 0)
        return err_sys(e, "enter the empty mount namespace");
    if (setns(b->user_ns, CLONE_NEWUSER) < 0)
        return err_sys(e, "enter the pod's user namespace");
    if (chdir("/") < 0)
        return err_sys(e, "chdir");
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return err_sys(e, "become the pod's root");
    return 0;
}

/* What is left of root: reading the pod's memory and descriptors, and SIGPIPE. */
static int drop_capabilities(struct err *e)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const uint32_t keep = 1U << CAP_SYS_PTRACE | 1U << CAP_KILL;
    struct __user_cap_data_struct data[2] = {{.effective = keep, .permitted = keep}};

    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return syscall(SYS_capset, &header, data) < 0 ? err_sys(e, "drop capabilities") : 0;
}

static void on_signal(int signal)
{
    (void)signal; /* only there to interrupt a system call */
}

static int set_signals(struct err *e)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGTSTP};
    struct sigaction ours = {.sa_handler = on_signal}, plain = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        (void)sigaction(i, &plain, NULL); /* KILL, STOP and libc's own fail, and should */
    /* Signals to the shim's process group are the shim's: it ends us, or its death does. */
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        (void)signal(ignored[i], SIG_IGN);
    if (sigaction(SIGUSR1, &ours, NULL) < 0) /* no SA_RESTART */
        return err_sys(e, "signals");
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    return 0;
}

static int become_harmless(const struct sentry_boot *b, struct err *e)
{
    struct rlimit none = {0, 0}, files = {FILES_MAX, FILES_MAX}, data = {DATA_MAX, DATA_MAX};

    int r = set_signals(e);
    if (r == 0)
        r = join_cgroups(b, e);
    if (r == 0)
        r = enter_namespaces(b, e);
    if (r == 0)
        r = drop_capabilities(e);
    if (r < 0)
        return r;
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)setrlimit(RLIMIT_NOFILE, &files);
    /* Its memory, but not the kernel's for the pod's sockets, which a limit of its cgroup would count as
     * well. */
    if (!SENTRY_SANITIZED)
        (void)setrlimit(RLIMIT_DATA, &data);
    (void)prctl(PR_SET_NAME, "glovebox-sentry");
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        return err_sys(e, "not dumpable");
    /* After the change of ids, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return err_sys(e, "parent death signal");
    return getppid() == b->shim ? 0 : err_set(e, -ESRCH, "the shim is gone");
}

/* Standard streams lead nowhere. While the host's mounts are still there. */
static void close_standard(void)
{
    scoped_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++)
        (void)dup2(null, i);
}

/* Keeps `control` and `audit` (-1: none) as 3 and 4; everything else that the shim had open goes. */
static int close_others(int *control, int *audit, struct err *e)
{
    int fds[2] = {*control, *audit};
    for (int i = 0; i < 2; i++) /* out of the way of each other first */
        if (fds[i] >= 0 && (fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 10)) < 0)
            return err_sys(e, "dup");
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0 && dup3(fds[i], 3 + i, O_CLOEXEC) < 0)
            return err_sys(e, "dup");
    *control = 3;
    *audit = *audit >= 0 ? 4 : -1;
    (void)syscall(SYS_close_range, *audit >= 0 ? 5 : 4, ~0U, 0);
    return 0;
}

/* ---- talking to the shim ---- */

/* Waits until the shim takes it: an answer must not get lost, and the shim never waits for us in turn. */
static void reply(struct core *c, uint64_t cookie, int value)
{
    const struct message m = {.type = MESSAGE_DONE, .cookie = cookie, .value = value};
    (void)fd_send_msg(c->control, &m, sizeof m, NULL, 0);
}

struct waiting { /* requests that are answered when calls in flight are done */
    uint64_t quiesce, release;
};

/* The shim has checked who sent the text, not what it says. */
static int take_policy(struct core *c, int fd, int64_t len)
{
    if (fd < 0)
        return egress_set_policy(&c->egress, NULL, 0, NULL); /* more is allowed now, nothing less */
    if (len < 0 || len > (int64_t)POLICY_TEXT_MAX)
        return -EFBIG;
    scoped_free char *text = malloc((size_t)len + 1);
    if (!text || pread(fd, text, (size_t)len, 0) != len)
        return -EIO;
    int r = egress_set_policy(&c->egress, text, (size_t)len, NULL);
    if (r == 0)
        cut_find(c);
    return r;
}

static int take_dns_socket(struct core *c, const struct message *m, int fd)
{
    struct ip ip = {.family = m->a == AF_INET6 ? AF_INET6 : AF_INET};
    int r = fd < 0 ? -EBADF : 0;

    if (r == 0 && !c->dns)
        r = dns_new(&c->egress, &c->audit, c->dns_wake, &c->dns);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    if (m->value == DNS_UDP && inet_pton(ip.family, m->text, ip.bytes) == 1)
        egress_add_resolver(&c->egress, &ip);
    return dns_add_socket(c->dns, (enum dns_socket)m->value, fd);
}

static void take_message(struct core *c, struct waiting *w, struct message *m, int fd)
{
    m->text[sizeof m->text - 1] = '\0';
    switch (m->type) {
    case MESSAGE_LISTENER:
        reply(c, m->cookie, fd >= 0 ? core_add_listener(c, fd, m->text) : -EBADF);
        return;
    case MESSAGE_QUIESCE:
        w->quiesce = m->cookie;
        core_stop(c, true);
        break;
    case MESSAGE_RELEASE:
        w->release = m->text[0] ? w->release : m->cookie;
        core_release_parked(c, m->text);
        break;
    case MESSAGE_RESUME:
        *w = (struct waiting){0};
        core_stop(c, false);
        reply(c, m->cookie, 0);
        break;
    case MESSAGE_LIMITS:
        c->cpu_milli = m->a;
        c->memory_bytes = m->b;
        reply(c, m->cookie, 0);
        break;
    case MESSAGE_POLICY:
        reply(c, m->cookie, take_policy(c, fd, m->a));
        break;
    case MESSAGE_CONFIRM:
        egress_confirm(&c->egress);
        reply(c, m->cookie, 0);
        break;
    case MESSAGE_DNS:
        reply(c, m->cookie, take_dns_socket(c, m, fd));
        return;
    case MESSAGE_SEARCH:
        if (c->dns)
            dns_add_search(c->dns, m->text);
        reply(c, m->cookie, c->dns ? 0 : -ENOENT);
        break;
    case MESSAGE_TASK:
        task_answer(c, m->cookie, m->value);
        core_task_answer(c, m->cookie, m->value, m->a != 0);
        break;
    default:
        break;
    }
    fd_close(fd);
}

static void answer_waiting(struct core *c, struct waiting *w)
{
    if (w->quiesce && core_is_quiet(c)) {
        reply(c, w->quiesce, 0);
        w->quiesce = 0;
    }
    if (w->release && core_is_empty(c)) {
        reply(c, w->release, 0);
        w->release = 0;
    }
}

static NORETURN void run(struct core *c)
{
    struct waiting waiting = {0};
    struct pollfd fds[] = {{.fd = c->control, .events = POLLIN}, {.fd = c->wake_main, .events = POLLIN}};

    for (;;) {
        int n = poll(fds, ARRAY_LEN(fds), core_tick(c));
        if (n > 0 && fds[1].revents) {
            uint64_t count;
            (void)!read(c->wake_main, &count, sizeof count);
        }
        if (n > 0 && fds[0].revents) {
            struct message m;
            size_t len, n_fds = 1;
            int fd = -1;
            int r = fd_recv_msg(c->control, &m, sizeof m, &len, &fd, &n_fds);
            if (r != 0) /* the shim is gone: so are we, and the pod's calls fail */
                _exit(0);
            if (len == sizeof m)
                take_message(c, &waiting, &m, n_fds == 1 ? fd : -1);
        }
        answer_waiting(c, &waiting);
    }
}

static bool has_thread_pidfds(void)
{
    scoped_fd int fd = (int)syscall(SYS_pidfd_open, syscall(SYS_gettid), PIDFD_THREAD);
    return fd >= 0;
}

static void tell_ready(int control, int value, const char *text, int fd)
{
    struct message m = {.type = MESSAGE_READY, .value = value};
    (void)strncat(m.text, text, sizeof m.text - 1);
    (void)fd_send_msg(control, &m, sizeof m, fd >= 0 ? &fd : NULL, fd >= 0);
}

static int start(struct core *c, const struct sentry_boot *b, struct err *e)
{
    core_init(c);
    if (c->wake_leader < 0 || c->wake_main < 0)
        return err_set(e, -EMFILE, "eventfd");
    c->pid = getpid();
    c->thread_pidfds = has_thread_pidfds();
    c->debug = b->debug;
    c->counts = b->counts;
    c->cpu_milli = b->cpu_milli;
    c->memory_bytes = b->memory_bytes;
    egress_init(&c->egress, b->hard_deny, b->n_hard_deny);
    json_object_seed(0); /* reads /dev/urandom, which is out of reach later */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, c->dns_wake) < 0)
        return err_sys(e, "socketpair");
    /* The first thread before the filter: libc sets up signal handlers then, which the filter refuses. */
    pthread_mutex_lock(&c->lock);
    int r = core_start_worker(c);
    pthread_mutex_unlock(&c->lock);
    return r < 0 ? err_set(e, r, "start a thread") : sentry_filter_install(e);
}

void sentry_process(const struct sentry_boot *b)
{
    struct core *core = xcalloc(1, sizeof *core); /* threads use it until the end */
    struct err e = {0};
    int control = b->control, audit = b->audit;

    /* One heap for all threads: memory, not speed, is what counts here. */
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 32 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 64 * 1024);
    (void)mallopt(M_TOP_PAD, 16 * 1024);

    close_standard();
    /* The rest closes last: the namespaces' descriptors are among them. */
    int r = become_harmless(b, &e);
    if (r == 0)
        r = close_others(&control, &audit, &e);
    if (r == 0) {
        core->control = control;
        audit_init(&core->audit, audit);
        r = start(core, b, &e);
    }
    if (r < 0) {
        tell_ready(control, r, err_text(&e), -1);
        _exit(1);
    }
    scoped_fd int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    tell_ready(control, probe < 0 ? -errno : 0, "", probe);
    fd_close(take_fd(probe));
    run(core);
}
