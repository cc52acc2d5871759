/*
 * Runs one program the way a container runs, without the rest: user and network namespaces of its own,
 * the glovebox filter, a sentry.  Not part of the product; the integration tests drive the sentry with it.
 *
 *   sentry_driver [options] -- program [argument...]
 *     -c MILLI   CPU limit in thousandths      -m BYTES  memory limit
 *     -d CIDR4   an address range that is denied for good ("10.0.0.0/8")
 *     -D         debug: every refusal goes by way of the sentry
 *     -N         the sentry stays in the caller's network namespace instead of a fresh one with only lo
 *     -P AT:FOR  pause: AT ms after the start, for FOR ms, with the cgroup freezer
 *     -r         print what the sentry costs at the end (PSS, descriptors, threads)
 * Exit status: the program's.  Audit lines go to descriptor 9 when it is open.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/scoped.h"
#include "shim/filter/filter.h"
#include "shim/launcher/pod.h"
#include "shim/sentry/egress.h"
#include "shim/sentry/sentry.h"

#define BASE_ID 1900000000U
#define CHECK(x)                                                                                             \
    do {                                                                                                     \
        if ((x) < 0) {                                                                                       \
            perror(#x);                                                                                      \
            exit(125);                                                                                       \
        }                                                                                                    \
    } while (0)

struct options {
    int64_t cpu, memory;
    bool debug, host_net, report;
    long pause_at, pause_for;
    struct egress_range deny[8];
    size_t n_deny;
};
struct run {
    struct options o;
    struct loop *loop;
    struct sentry *sentry;
    pid_t child;
    int status;
    char freezer[128];
    struct source *timer;
    int64_t t0;
    double quiet_at;
};

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(125);
    }
    close(fd);
}

static void lo_up(void)
{
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(s);
    CHECK(ioctl(s, SIOCSIFFLAGS, &r));
    close(s);
}

static int ns_fd(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd);
    return fd;
}

/* A process that makes namespaces and waits; the descriptors keep them alive after it. */
static pid_t holder(int flags, int *ready)
{
    int p[2];
    CHECK(pipe2(p, O_CLOEXEC));
    pid_t pid = fork();
    CHECK(pid);
    if (pid == 0) {
        CHECK(unshare(flags));
        if (flags == CLONE_NEWNET) {
            lo_up();
            write_file("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
        }
        if (flags & CLONE_NEWNS) {
            CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
            CHECK(mount("tmpfs", "/mnt", "tmpfs", 0, "mode=755"));
            CHECK(chdir("/mnt"));
            CHECK(syscall(SYS_pivot_root, ".", "."));
            CHECK(umount2(".", MNT_DETACH));
        }
        CHECK(write(p[1], "x", 1));
        pause();
        _exit(0);
    }
    close(p[1]);
    *ready = p[0];
    char c;
    CHECK(read(p[0], &c, 1) == 1 ? 0 : -1);
    return pid;
}

static void end(pid_t pid, int ready)
{
    close(ready);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void make_pod(struct pod *pod, const struct options *o)
{
    char path[64], map[64];
    int ready;

    static char id[32];
    snprintf(id, sizeof id, "driver-%d", getpid());
    *pod = (struct pod){.id = id, .base = BASE_ID, .pid_ns = -1, .range_lock = -1};
    pid_t z = holder(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC, &ready);
    snprintf(map, sizeof map, "0 %u 65536", BASE_ID);
    snprintf(path, sizeof path, "/proc/%d/uid_map", z);
    write_file(path, map);
    snprintf(path, sizeof path, "/proc/%d/gid_map", z);
    write_file(path, map);
    pod->user_ns = ns_fd(z, "user");
    pod->net_ns = ns_fd(z, "net");
    pod->ipc_ns = ns_fd(z, "ipc");
    end(z, ready);
    z = holder(CLONE_NEWNET, &ready);
    pod->cni_net_ns = ns_fd(o->host_net ? getpid() : z, "net");
    end(z, ready);
    z = holder(CLONE_NEWNS, &ready);
    pod->empty_mnt_ns = ns_fd(z, "mnt");
    end(z, ready);
}

static void install_filter(const struct options *o, int sync)
{
    static struct sock_filter program[FILTER_MAX];
    struct filter_options fo = {.report_denials = o->debug};
    struct err e = {0};
    size_t n;

    if (filter_build(&fo, program, FILTER_MAX, &n, &e) < 0) {
        fprintf(stderr, "%s\n", err_text(&e));
        exit(125);
    }
    struct sock_fprog prog = {(unsigned short)n, program};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    int listener =
        (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                     SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &prog);
    CHECK(listener);
    CHECK(write(sync, &listener, sizeof listener));
    char go;
    CHECK(read(sync, &go, 1) == 1 ? 0 : -1);
}

static pid_t start_program(struct run *r, const struct pod *pod, char **argv, int *ret_listener)
{
    int pair[2], number;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    pid_t pid = fork();
    CHECK(pid);
    if (pid == 0) {
        close(pair[0]); /* so that the driver's end is noticed */
        if (r->freezer[0]) {
            char path[160];
            snprintf(path, sizeof path, "%s/cgroup.procs", r->freezer);
            write_file(path, "0");
        }
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        CHECK(setns(pod->net_ns, CLONE_NEWNET));
        CHECK(setns(pod->ipc_ns, CLONE_NEWIPC));
        CHECK(setns(pod->user_ns, CLONE_NEWUSER));
        CHECK(setgroups(0, NULL));
        CHECK(setresgid(0, 0, 0));
        CHECK(setresuid(0, 0, 0));
        install_filter(&r->o, pair[1]);
        execvp(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    close(pair[1]);
    CHECK(read(pair[0], &number, sizeof number) == sizeof number ? 0 : -1);
    scoped_fd int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    *ret_listener = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    CHECK(*ret_listener);
    struct err e = {0};
    if (sentry_add_listener(r->sentry, *ret_listener, "driver", &e) < 0) {
        fprintf(stderr, "%s\n", err_text(&e));
        exit(125);
    }
    CHECK(write(pair[0], "x", 1));
    close(pair[0]);
    return pid;
}

/* ---- pausing ---- */

static bool is_v2(void)
{
    return access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
}

static void freezer_make(struct run *r)
{
    snprintf(r->freezer, sizeof r->freezer, "/sys/fs/cgroup/%sdriver-%d", is_v2() ? "" : "freezer/",
             getpid());
    CHECK(mkdir(r->freezer, 0755));
}

static void freezer_set(struct run *r, bool on)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", r->freezer, is_v2() ? "cgroup.freeze" : "freezer.state");
    write_file(path, is_v2() ? (on ? "1" : "0") : (on ? "FROZEN" : "THAWED"));
}

static bool freezer_is_frozen(struct run *r)
{
    char path[160], text[256] = "";
    snprintf(path, sizeof path, "%s/%s", r->freezer, is_v2() ? "cgroup.events" : "freezer.state");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd);
    CHECK(read(fd, text, sizeof text - 1));
    close(fd);
    return strstr(text, is_v2() ? "frozen 1" : "FROZEN") != NULL;
}

static double ms(struct run *r)
{
    return (double)(clock_mono_ns() - r->t0) / 1e6;
}

static void resume(void *data)
{
    struct run *r = data;
    struct err e = {0};
    freezer_set(r, false);
    if (sentry_unquiesce(r->sentry, &e) < 0)
        fprintf(stderr, "unquiesce: %s\n", err_text(&e));
}

static void released(void *data)
{
    struct run *r = data;
    int n = 0;
    double at = ms(r);
    while (!freezer_is_frozen(r) && n < 1000) {
        usleep(1000);
        n++;
    }
    fprintf(stderr, "driver: quiet %.1f released %.1f %s %.1f ms\n", r->quiet_at, at,
            n < 1000 ? "frozen" : "NOT FROZEN", ms(r));
    loop_add_timer(r->loop, r->o.pause_for, resume, r, NULL);
}

static void quiet(void *data)
{
    struct run *r = data;
    struct err e = {0};
    r->quiet_at = ms(r);
    freezer_set(r, true);
    if (sentry_release_parked(r->sentry, released, r, &e) < 0)
        fprintf(stderr, "release: %s\n", err_text(&e));
}

static void pause_now(void *data)
{
    struct run *r = data;
    struct err e = {0};
    r->t0 = clock_mono_ns();
    if (sentry_quiesce(r->sentry, quiet, r, &e) < 0)
        fprintf(stderr, "quiesce: %s\n", err_text(&e));
}

/* ---- the whole ---- */

static void died(void *data, int status)
{
    struct run *r = data;
    fprintf(stderr, "driver: the sentry died, status %#x\n", status);
    kill(r->child, SIGKILL);
}

static void on_signal(void *data, int signal)
{
    struct run *r = data;
    int status;
    pid_t pid;

    if (signal != SIGCHLD) {
        kill(r->child, signal);
        return;
    }
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (sentry_reaped(r->sentry, pid, status) || pid != r->child)
            continue;
        r->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        loop_quit(r->loop);
    }
}

static void report(struct run *r)
{
    char command[256];
    snprintf(command, sizeof command,
             "p=%d; grep -E '^(Pss|Rss|Private_Dirty|Pss_Dirty):' /proc/$p/smaps_rollup | tr -s ' ' | tr "
             "'\\n' ' '; "
             "echo fds: $(ls /proc/$p/fd | wc -l) threads: $(ls /proc/$p/task | wc -l)",
             sentry_pid(r->sentry));
    fflush(stdout);
    if (system(command) != 0)
        fprintf(stderr, "no report\n");
}

static void parse(struct run *r, int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "+c:m:d:DNP:r")) != -1) {
        struct egress_range *d = &r->o.deny[r->o.n_deny % 8];
        char *slash = optarg ? strchr(optarg, '/') : NULL;
        switch (c) {
        case 'c':
            r->o.cpu = atoll(optarg);
            break;
        case 'm':
            r->o.memory = atoll(optarg);
            break;
        case 'D':
            r->o.debug = true;
            break;
        case 'N':
            r->o.host_net = true;
            break;
        case 'r':
            r->o.report = true;
            break;
        case 'P':
            CHECK(sscanf(optarg, "%ld:%ld", &r->o.pause_at, &r->o.pause_for) == 2 ? 0 : -1);
            break;
        case 'd':
            CHECK(slash ? 0 : -1);
            *slash = '\0';
            d->family = AF_INET;
            d->prefix_len = (uint8_t)atoi(slash + 1);
            CHECK(inet_pton(AF_INET, optarg, d->ip) == 1 ? 0 : -1);
            r->o.n_deny++;
            break;
        default:
            exit(125);
        }
    }
}

int main(int argc, char **argv)
{
    struct run r = {0};
    struct pod pod;
    struct err e = {0};
    sigset_t set;

    parse(&r, argc, argv);
    argv += optind;
    if (!argv[0]) {
        fprintf(stderr, "usage: sentry_driver [options] -- program...\n");
        return 125;
    }
    make_pod(&pod, &r.o);
    if (r.o.pause_for)
        freezer_make(&r);
    CHECK(loop_new(&r.loop, &e));
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    CHECK(loop_add_signals(r.loop, &set, on_signal, &r, NULL));

    struct sentry_params p = {.pod = &pod,
                              .audit_fd = fcntl(9, F_GETFD) >= 0 ? 9 : -1,
                              .debug = r.o.debug,
                              .cpu_milli = r.o.cpu,
                              .memory_bytes = r.o.memory,
                              .hard_deny = r.o.deny,
                              .n_hard_deny = r.o.n_deny};
    struct sentry_events ev = {.died = died, .data = &r};
    int64_t t = clock_mono_ns();
    if (sentry_start(r.loop, &p, &ev, &r.sentry, &e) < 0) {
        fprintf(stderr, "driver: %s\n", err_text(&e));
        return 125;
    }
    if (r.o.report)
        fprintf(stderr, "driver: sentry started in %.2f ms\n", (double)(clock_mono_ns() - t) / 1e6);
    int listener;
    r.child = start_program(&r, &pod, argv, &listener);
    if (r.o.pause_for)
        loop_add_timer(r.loop, r.o.pause_at, pause_now, &r, &r.timer);
    CHECK(loop_run(r.loop, &e));
    if (r.o.report)
        report(&r);
    sentry_stop(r.sentry);
    if (r.freezer[0])
        rmdir(r.freezer);
    return r.status;
}
