#include "shim/launcher/pod.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/features.h"
#include "shim/launcher/ids.h"
#include "shim/launcher/proto.h"
#include "shim/launcher/sys.h"
#include "shim/launcher/sysctl.h"
#include "shim/launcher/workshop.h"
#include "shim/oci/spec.h"

#define HELPER_MS 20000

/*
 * Two short-lived helpers make the namespaces, side by side:
 *   holder  is born in the pod's user, network, ipc and uts namespaces (all owned by the user namespace)
 *   opener  stays host root: the CNI namespace and its sysctls, and the empty mount namespace
 * The shim keeps descriptors and both exit.  They have no exit signal, so the shim's reaper never sees them.
 */
struct helper {
    pid_t pid;
    int sock;
};

static void helper_done(struct helper *h)
{
    fd_close(h->sock); /* it ends at once: both only wait for this */
    h->sock = -1;
    if (h->pid > 0)
        (void)waitpid(h->pid, NULL, __WALL);
    h->pid = 0;
}
static inline void helper_done_scoped(struct helper *h)
{
    helper_done(h);
}
#define scoped_helper __attribute__((cleanup(helper_done_scoped)))

static int helper_start(struct helper *h, uint64_t flags,
                        int (*fn)(int sock, const struct spec *spec, struct err *e), const struct spec *spec,
                        struct err *e)
{
    int pair[2];
    int r = msg_pair(pair, e);
    if (r < 0)
        return r;

    pid_t pid = sys_fork(flags, 0, -1, NULL);
    if (pid == 0) {
        struct err child = {0};
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        sys_close_others(&pair[1], 1);
        r = fn(pair[1], spec, &child);
        if (r < 0)
            (void)msg_fail(pair[1], r, &child);
        _exit(r < 0);
    }
    fd_close(pair[1]);
    if (pid < 0) {
        fd_close(pair[0]);
        return err_set(e, pid, "namespaces of the pod: %s", strerror(-pid));
    }
    h->pid = pid;
    h->sock = pair[0];
    return 0;
}

/* Blocks until the shim closes its end. */
static void wait_for_end(int sock)
{
    char c;

    while (read(sock, &c, 1) < 0 && errno == EINTR)
        continue;
}

/* A user namespace that containerd made (hostUsers: false): enter it and make the others below it. */
static int enter_given_user_ns(const char *path, struct err *e)
{
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || setns(fd, CLONE_NEWUSER) < 0)
        return err_sys(e, "linux.namespaces: user namespace %s", path);
    int r = sys_setgroups(0, NULL);
    if (r == 0)
        r = sys_setresgid(0);
    if (r == 0)
        r = sys_setresuid(0);
    if (r < 0)
        return err_set(e, r, "become root of user namespace %s: %s", path, strerror(-r));
    return unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0 ? err_sys(e, "namespaces of the pod") : 0;
}

static int holder_main(int sock, const struct spec *spec, struct err *e)
{
    struct msg m = {.kind = MSG_READY};
    const char *given = spec->ns[SPEC_NS_USER].path;

    int r = given ? enter_given_user_ns(given, e) : 0;
    if (r < 0)
        return r;
    if (spec->hostname && sethostname(spec->hostname, strlen(spec->hostname)) < 0)
        return err_sys(e, "hostname \"%s\"", spec->hostname);
    if (spec->domainname && setdomainname(spec->domainname, strlen(spec->domainname)) < 0)
        return err_sys(e, "domainname \"%s\"", spec->domainname);
    r = msg_send(sock, &m, NULL, 0);
    wait_for_end(sock);
    return r;
}

static int loopback_up(struct err *e)
{
    struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    scoped_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
        return err_sys(e, "bring lo up");
    return 0;
}

/* The network namespace of the pod's interfaces: the CNI's by path, or a new one with lo up. */
static int enter_cni(int proc_sys, const struct spec *spec, struct err *e)
{
    const char *path = spec->ns[SPEC_NS_NETWORK].path;

    if (!path) {
        if (unshare(CLONE_NEWNET) < 0)
            return err_sys(e, "new network namespace");
        int r = loopback_up(e);
        if (r < 0)
            return r;
    } else {
        scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
            return err_sys(e, "linux.namespaces: network namespace %s", path);
    }
    return sysctl_apply_cni(proc_sys, spec, e);
}

/* Sends namespaces of this process: what is entered now is kept by the descriptor. */
static int send_namespace(int sock, int self, const char *name, struct err *e)
{
    struct msg m = {.kind = MSG_READY};
    scoped_fd int fd = openat(self, name, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(e, "/proc/self/%s", name);
    int r = msg_send(sock, &m, &fd, 1);
    return r < 0 ? err_set(e, r, "pod helper: %s", strerror(-r)) : 0;
}

/* Sends the CNI's network namespace and the empty mount namespace; with sysctls, waits for the holder's, sets
 * them, says so. */
static int opener_main(int sock, const struct spec *spec, struct err *e)
{
    struct msg m = {.kind = MSG_READY};
    int fds[MSG_FDS_MAX];
    scoped_fd int self = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped_fd int proc_sys = open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);

    int r = enter_cni(proc_sys, spec, e);
    if (r == 0)
        r = send_namespace(sock, self, "ns/net", e);
    if (r == 0)
        r = workshop_make_empty(e);
    if (r == 0)
        r = send_namespace(sock, self, "ns/mnt", e);
    if (r < 0)
        return r;
    if (spec->n_sysctl > 0) {
        r = msg_recv(sock, HELPER_MS, &m, fds, e);
        if (r < 0)
            return r;
        r = sysctl_apply_pod(proc_sys, spec, &(struct sysctl_ns){fds[0], fds[1], fds[2], fds[3]}, e);
        if (r == 0)
            r = msg_send(sock, &m, NULL, 0);
        if (r < 0)
            return r;
    }
    wait_for_end(sock);
    return 0;
}

static int open_holder_namespaces(struct pod *pod, pid_t holder, struct err *e)
{
    const struct {
        const char *name;
        int *fd;
    } all[] = {{"user", &pod->user_ns}, {"net", &pod->net_ns}, {"ipc", &pod->ipc_ns}, {"uts", &pod->uts_ns}};
    char path[64];

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        (void)snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)holder, all[i].name);
        *all[i].fd = open(path, O_RDONLY | O_CLOEXEC);
        if (*all[i].fd < 0)
            return err_sys(e, "open %s", path);
    }
    return 0;
}

/* One write each: a map can be written only once. setgroups stays allowed: ids come from the range alone. */
static int map_ids(pid_t holder, uint32_t base, struct err *e)
{
    static const char *const files[] = {"uid_map", "gid_map"};
    char path[64], map[64];

    (void)snprintf(map, sizeof map, "0 %u %u\n", base, IDS_SIZE);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)holder, files[i]);
        int r = sys_write_text(AT_FDCWD, path, map);
        if (r < 0)
            return err_set(e, r, "write %s: %s", path, strerror(-r));
    }
    return 0;
}

/* A given user namespace must really have the range that the configuration says: everything is idmapped by
 * it. */
static int check_map(pid_t holder, uint32_t base, struct err *e)
{
    static const char *const files[] = {"uid_map", "gid_map"};

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char path[64];
        scoped_free char *text = NULL;
        unsigned inside = 1, outside = 0, size = 0;
        (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)holder, files[i]);
        int r = file_read(AT_FDCWD, path, 4096, &text, NULL, e);
        if (r < 0)
            return r;
        if (sscanf(text, "%u %u %u", &inside, &outside, &size) != 3 || inside != 0 || outside != base ||
            size < IDS_SIZE)
            return err_set(
                e, -EINVAL,
                "linux.namespaces: %s of the given user namespace is not that of linux.uidMappings",
                files[i]);
    }
    return 0;
}

/* The range the specification brings (pods with hostUsers: false), or a free one of ours. */
static int take_range(struct pod *pod, const struct spec *spec, const char *state_dir, struct err *e)
{
    if (spec->n_uid_map == 0 && spec->n_gid_map == 0 && spec->ns[SPEC_NS_USER].path)
        return err_set(e, -EINVAL,
                       "linux.uidMappings and gidMappings are missing for the given user namespace");
    if (spec->n_uid_map == 0 && spec->n_gid_map == 0)
        return ids_take(state_dir, pod->id, &pod->base, &pod->range_lock, e);

    const struct spec_id_map *u = spec->uid_map, *g = spec->gid_map;
    if (spec->n_uid_map != 1 || spec->n_gid_map != 1 || u->container_id != 0 || u->size < IDS_SIZE ||
        g->container_id != 0 || g->size < IDS_SIZE || u->host_id != g->host_id)
        return err_set(e, -EINVAL,
                       "linux.uidMappings and gidMappings must be one equal range of 65536 ids from 0");
    /* Above 2^31 ping sockets do not work: net.ipv4.ping_group_range ends there. */
    if (u->host_id == 0 || u->host_id > UINT32_MAX - IDS_SIZE)
        return err_set(e, -EINVAL,
                       "linux.uidMappings: the range must not hold the host's root, and not begin at %u",
                       u->host_id);
    pod->base = u->host_id;
    pod->ids_given = true;
    return 0;
}

static int recv_one_fd(int sock, int *ret, struct err *e)
{
    struct msg m;
    int fds[MSG_FDS_MAX];
    int r = msg_recv(sock, HELPER_MS, &m, fds, e);

    if (r < 0)
        return r;
    *ret = take_fd(fds[0]);
    fd_close_all(fds, MSG_FDS_MAX);
    return *ret < 0 ? err_set(e, -EPROTO, "pod helper sent no descriptor") : 0;
}

static int set_sysctls(struct pod *pod, int opener, struct err *e)
{
    const int ns[] = {pod->user_ns, pod->net_ns, pod->ipc_ns, pod->uts_ns};
    struct msg m = {.kind = MSG_READY};
    int fds[MSG_FDS_MAX];

    int r = msg_send(opener, &m, ns, ARRAY_LEN(ns));
    return r < 0 ? err_set(e, r, "pod helper: %s", strerror(-r)) : msg_recv(opener, HELPER_MS, &m, fds, e);
}

/*
 * Pending signals and timers of the pod are charged to the node's root as well, whose own programs would
 * find timer_create() failing.  A user namespace takes its limit from the soft limit of who makes it.
 */
static int start_holder(struct helper *holder, const struct spec *spec, struct err *e)
{
    struct rlimit ours, pods;

    if (spec->ns[SPEC_NS_USER].path)
        return helper_start(holder, 0, holder_main, spec, e);
    if (getrlimit(RLIMIT_SIGPENDING, &ours) < 0)
        return err_sys(e, "getrlimit");
    pods = ours;
    if (ours.rlim_cur != RLIM_INFINITY)
        pods.rlim_cur -= ours.rlim_cur / 4;
    if (setrlimit(RLIMIT_SIGPENDING, &pods) < 0)
        return err_sys(e, "setrlimit");
    int r = helper_start(holder, CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS, holder_main,
                         spec, e);
    (void)setrlimit(RLIMIT_SIGPENDING, &ours);
    return r;
}

static int make_namespaces(struct pod *pod, const struct spec *spec, struct err *e)
{
    scoped_helper struct helper holder = {.sock = -1}, opener = {.sock = -1};
    struct msg m = {.kind = MSG_READY};
    int fds[MSG_FDS_MAX];

    int r = helper_start(&opener, 0, opener_main, spec, e);
    if (r < 0)
        return r;
    bool given = spec->ns[SPEC_NS_USER].path != NULL;
    r = start_holder(&holder, spec, e);
    if (r == 0)
        r = given ? msg_recv(holder.sock, HELPER_MS, &m, fds, e) : map_ids(holder.pid, pod->base, e);
    if (r == 0 && given)
        r = check_map(holder.pid, pod->base, e);
    if (r == 0)
        r = open_holder_namespaces(pod, holder.pid, e);
    if (r < 0)
        return r;
    r = recv_one_fd(opener.sock, &pod->cni_net_ns, e);
    if (r == 0)
        r = recv_one_fd(opener.sock, &pod->empty_mnt_ns, e);
    if (r == 0 && spec->n_sysctl > 0)
        r = set_sysctls(pod, opener.sock, e);
    if (r < 0)
        return r;
    return given ? 0 : msg_recv(holder.sock, HELPER_MS, &m, fds, e);
}

int pod_new(const char *id, const struct spec *spec, const char *state_dir, struct pod **ret, struct err *e)
{
    assert(id && spec && state_dir);
    int r = features_check(e);
    if (r < 0)
        return r;

    struct pod *pod = xcalloc(1, sizeof *pod);
    pod->id = xstrdup(id);
    pod->user_ns = pod->net_ns = pod->ipc_ns = pod->uts_ns = -1;
    pod->cni_net_ns = pod->pid_ns = pod->empty_mnt_ns = pod->range_lock = -1;
    pod->features_checked = true;
    r = take_range(pod, spec, state_dir, e);
    if (r == 0)
        r = make_namespaces(pod, spec, e);
    if (r < 0) {
        pod_free(pod);
        return r;
    }
    *ret = pod;
    return 0;
}

void pod_free(struct pod *pod)
{
    if (!pod)
        return;
    int fds[] = {pod->user_ns,    pod->net_ns, pod->ipc_ns,      pod->uts_ns,
                 pod->cni_net_ns, pod->pid_ns, pod->empty_mnt_ns};
    fd_close_all(fds, ARRAY_LEN(fds));
    ids_give_back(pod->range_lock);
    free(pod->id);
    free(pod);
}

int pod_release(const char *id, const char *state_dir, struct err *e)
{
    return ids_release(state_dir, id, e);
}
