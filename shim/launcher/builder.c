/*
 * Process X.  Builds the container's whole tree as host root, in a mount namespace of the host's user
 * namespace, and only then crosses into the pod's: that copy locks every mount and every flag, so that
 * root in the container, with all capabilities, cannot unmount a mask or make a read-only volume
 * writable (mount_namespaces(7); had the init mounted anything itself, nothing would be locked).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/build.h"
#include "shim/launcher/hooks.h"
#include "shim/launcher/inroot.h"
#include "shim/launcher/pod.h"
#include "shim/launcher/proto.h"
#include "shim/launcher/sys.h"
#include "shim/launcher/workshop.h"
#include "shim/oci/spec.h"

#define ANSWER_MS 100000

/*
 * Files are made with the ids of the pod's root: with fsuid 0 an idmapped mount has no id to write to
 * disk (EOVERFLOW).  NO_SETUID_FIXUP first, or leaving fsuid 0 would drop the file capabilities.
 */
static int take_file_ids(uint32_t base, struct err *e)
{
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
        return err_sys(e, "securebits");
    (void)setfsgid(base);
    (void)setfsuid(base);
    if ((uint32_t)setfsuid((uid_t)-1) != base || (uint32_t)setfsgid((gid_t)-1) != base)
        return err_set(e, -EPERM, "cannot act with file ids of the pod");
    (void)umask(0);
    return 0;
}

/*
 * createContainer hooks run in the container's mount namespace before the root is changed, but are
 * programs of the host, which look for the root at root.path: for them alone the tree is built among a
 * copy of the host's mounts.
 */
static int enter_workshop(struct build *b, struct err *e)
{
    const struct launch_params *p = &b->plan->p;
    const char *root = p->spec->root_path && p->spec->root_path[0] ? p->spec->root_path : "rootfs";
    bool hooks = p->spec->hooks[HOOK_CREATE_CONTAINER].n > 0;

    int r = hooks ? workshop_enter_beside_host(e) : workshop_enter(p->pod->empty_mnt_ns, e);
    if (r < 0)
        return r;
    b->place = !hooks ? "n" : root[0] == '/' ? root : xasprintf("%s/%s", p->bundle, root);
    b->shop = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return b->shop < 0 ? err_sys(e, "open the workshop") : take_file_ids(b->base, e);
}

static bool is_below_proc(const char *destination)
{
    return strcmp(destination, "/proc") == 0 || strncmp(destination, "/proc/", 6) == 0;
}

static int build_entry(struct build *b, size_t i, struct err *e)
{
    static int (*const build[])(struct build *, const struct spec_mount *, const struct entry *,
                                struct err *) = {
        [ENTRY_BIND] = build_bind,     [ENTRY_TMPFS] = build_tmpfs,   [ENTRY_PROC] = build_proc,
        [ENTRY_SYS] = build_sys,       [ENTRY_DEVPTS] = build_devpts, [ENTRY_MQUEUE] = build_mqueue,
        [ENTRY_CGROUP] = build_cgroup,
    };
    const struct spec_mount *m = &b->plan->p.spec->mounts[i];
    const struct entry *entry = &b->plan->entries[i];

    if (entry->kind == ENTRY_TMPFS && strcmp(m->destination, "/dev") == 0)
        return 0; /* done first of all */
    int r = build[entry->kind](b, m, entry, e);
    return r < 0 ? err_wrap(e, r, "%s", entry->field) : 0;
}

/* In the order of the spec, but /proc and below last: it needs the init's pid namespace, which comes
 * meanwhile. */
static int build_entries(struct build *b, bool in_proc, struct err *e)
{
    for (size_t i = 0; i < b->plan->p.spec->n_mounts; i++) {
        if (is_below_proc(b->plan->p.spec->mounts[i].destination) != in_proc)
            continue;
        int r = build_entry(b, i, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int find_dev_entry(struct build *b, struct err *e)
{
    const struct spec *spec = b->plan->p.spec;

    for (size_t i = 0; i < spec->n_mounts; i++)
        if (b->plan->entries[i].kind == ENTRY_TMPFS && strcmp(spec->mounts[i].destination, "/dev") == 0)
            return build_dev(b, &b->plan->entries[i], e);
    return build_dev(b, NULL, e);
}

static bool has_entry(const struct plan *plan, enum entry_kind kind)
{
    for (size_t i = 0; i < plan->p.spec->n_mounts; i++)
        if (plan->entries[i].kind == kind)
            return true;
    return false;
}

static int recv_pid_ns(struct build *b, int sock, struct err *e)
{
    struct msg m;
    int fds[MSG_FDS_MAX];
    int r = msg_recv(sock, ANSWER_MS, &m, fds, e);

    if (r < 0)
        return r;
    b->init = (pid_t)m.value;
    b->pid_ns = take_fd(fds[0]);
    fd_close_all(fds, MSG_FDS_MAX);
    return b->pid_ns < 0 ? err_set(e, -EPROTO, "no pid namespace for /proc") : 0;
}

/* As runc: the working directory is made if it is missing, since images name ones that do not exist. */
static int make_cwd(struct build *b, struct err *e)
{
    const char *cwd = b->plan->p.process->cwd;
    scoped_fd int fd = inroot_make(b->root, cwd && cwd[0] ? cwd : "/", false, e);

    return fd < 0 ? err_wrap(e, fd, "process.cwd") : 0;
}

static int set_root_readonly(struct build *b, struct err *e)
{
    if (!b->plan->p.spec->root_readonly && !b->plan->root.read_only)
        return 0;
    int r = mount_change(b->root, &(struct mount_change){.set = MOUNT_ATTR_RDONLY, .user_ns = -1});
    return r < 0 ? err_set(e, r, "root.readonly: %s", strerror(-r)) : 0;
}

static int run_hooks(struct build *b, struct err *e)
{
    const struct launch_params *p = &b->plan->p;
    const struct hook_state state = {
        .spec = p->spec, .id = p->id, .bundle = p->bundle, .status = "creating", .pid = b->init};

    return hooks_run(&state, HOOK_CREATE_CONTAINER, e);
}

/* A tree that was built beside the host's mounts moves to the empty namespace: the container gets nothing
 * else. */
static int move_to_empty(struct build *b, struct err *e)
{
    scoped_fd int tree = mount_clone(b->root, "", true);
    if (tree < 0)
        return err_set(e, tree, "clone the finished tree: %s", strerror(-tree));
    int r = workshop_enter(b->plan->p.pod->empty_mnt_ns, e);
    if (r < 0)
        return r;
    scoped_fd int at = open("n", O_PATH | O_DIRECTORY | O_CLOEXEC);
    r = at < 0 ? -errno : mount_attach(tree, at);
    if (r < 0)
        return err_set(e, r, "attach the finished tree: %s", strerror(-r));
    fd_close(b->root);
    b->root = open("n", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return b->root < 0 ? err_sys(e, "open the finished tree") : 0;
}

static int cross_over(struct build *b, struct err *e)
{
    int r = strcmp(b->place, "n") != 0 ? move_to_empty(b, e) : 0;
    if (r < 0)
        return r;
    if (fchdir(b->root) < 0)
        return err_sys(e, "enter the new root");
    r = sys_pivot_root_here();
    if (r < 0)
        return err_set(e, r, "pivot_root: %s", strerror(-r));
    if (setns(b->plan->p.pod->user_ns, CLONE_NEWUSER) < 0)
        return err_sys(e, "enter the pod's user namespace");
    if (unshare(CLONE_NEWNS) < 0)
        return err_sys(e, "lock the mounts");
    return 0;
}

static int build_tree(struct build *b, int sock, struct err *e)
{
    struct trace *t = b->plan->trace;

    int r = build_root(b, e);
    trace_step(t, 'X', "root");
    if (r == 0)
        r = build_view(b, e);
    trace_step(t, 'X', "view");
    if (r == 0)
        r = find_dev_entry(b, e);
    trace_step(t, 'X', "dev");
    if (r == 0)
        r = build_entries(b, false, e);
    if (r == 0 && b->has_sys && !has_entry(b->plan, ENTRY_CGROUP))
        r = build_cgroup(b, &(struct spec_mount){.destination = (char[]){"/sys/fs/cgroup"}}, NULL, e);
    trace_step(t, 'X', "mounts");
    if (r == 0 && b->plan->p.process->terminal)
        r = build_terminal(b, e);
    if (r == 0)
        r = recv_pid_ns(b, sock, e); /* also the sign that the hooks before this point have run */
    trace_step(t, 'X', "pid namespace is there");
    if (r == 0)
        r = build_entries(b, true, e);
    trace_step(t, 'X', "proc");
    if (r == 0)
        r = make_cwd(b, e);
    if (r == 0)
        r = build_masks(b, e);
    trace_step(t, 'X', "masks");
    if (r == 0)
        r = run_hooks(b, e);
    return r < 0 ? r : set_root_readonly(b, e);
}

static int send_built(struct build *b, int view, int sock)
{
    struct msg m = {.kind = MSG_BUILT};
    int fds[MSG_FDS_MAX];
    size_t n = 0;

    if (b->console >= 0) {
        m.have |= HAVE_CONSOLE | HAVE_TTY;
        fds[n++] = b->console;
        fds[n++] = b->tty;
    }
    m.have |= HAVE_VIEW;
    fds[n++] = view;
    return msg_send(sock, &m, fds, n);
}

int builder_main(struct plan *plan, int sock, struct err *e)
{
    struct build b = {.plan = plan,
                      .base = plan->p.pod->base,
                      .root = -1,
                      .view = -1,
                      .dev = -1,
                      .proc = -1,
                      .pid_ns = -1,
                      .shop = -1,
                      .console = -1,
                      .tty = -1};
    char c;

    trace_step(plan->trace, 'X', "runs");
    int r = enter_workshop(&b, e);
    trace_step(plan->trace, 'X', "workshop");
    if (r == 0)
        r = build_tree(&b, sock, e);
    if (r < 0)
        return r;
    scoped_fd int view = openat(b.view, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (view < 0)
        return err_sys(e, "open the synthetic files");
    r = cross_over(&b, e);
    trace_step(plan->trace, 'X', "crossed");
    if (r == 0)
        r = send_built(&b, view, sock);
    if (r < 0)
        return r;
    (void)!read(sock, &c, 1); /* until the launcher has our mount namespace */
    return 0;
}
