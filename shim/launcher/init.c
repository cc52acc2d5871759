/*
 * Process Y: becomes the container's init or an exec process.  It is root of the pod's user namespace
 * when it starts here, gives up everything it must not keep, comes under the filters and waits for the
 * word to execute.  Until then no instruction of the image has run in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/filter/filter.h"
#include "shim/launcher/creds.h"
#include "shim/launcher/hooks.h"
#include "shim/launcher/oci_seccomp.h"
#include "shim/launcher/plan.h"
#include "shim/launcher/program.h"
#include "shim/launcher/proto.h"
#include "shim/launcher/sys.h"
#include "shim/oci/spec.h"

#define ANSWER_MS 100000
#define DEV_PTMX  makedev(5, 2)

struct init {
    struct plan *plan;
    const struct spec_process *process;
    int sock;
    int tty;    /* slave: becomes stdio */
    int master; /* exec with a terminal: for the launcher to fetch */
    char *program;
    char **env;
    uint64_t known_caps;
    struct sock_fprog filter;     /* glovebox's */
    struct sock_fprog oci_filter; /* of linux.seccomp; len 0 = none */
};

/* Waits for the tree (init) or the word to go on (exec), and enters it. */
static int enter_root(struct init *y, struct err *e)
{
    struct msg m;
    int fds[MSG_FDS_MAX];

    int r = msg_recv(y->sock, ANSWER_MS, &m, fds, e);
    if (r < 0)
        return r;
    scoped_fd int mnt = m.have & HAVE_MNT ? fds[0] : -1;
    y->tty = m.have & HAVE_TTY ? fds[1] : -1;
    if (y->plan->p.join)
        return 0;
    if (setns(mnt, CLONE_NEWNS) < 0)
        return err_sys(e, "enter the mount namespace");
    return unshare(CLONE_NEWCGROUP) < 0 ? err_sys(e, "new cgroup namespace") : 0;
}

/*
 * An exec makes its terminal in the container's own devpts.  The container may have put anything at
 * that path, so what was opened must be the multiplexer of a devpts; a pty made there is the pod's own.
 */
static int open_pty(struct init *y, struct err *e)
{
    struct stat st;
    int unlock = 0;
    scoped_fd int master =
        sys_openat2(AT_FDCWD, "/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NOFOLLOW, RESOLVE_NO_SYMLINKS);

    if (master < 0)
        return err_set(e, master, "process.terminal: open /dev/pts/ptmx: %s", strerror(-master));
    if (fstat(master, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != DEV_PTMX ||
        sys_fs_magic(master) != DEVPTS_SUPER_MAGIC)
        return err_set(e, -EPERM, "process.terminal: /dev/pts/ptmx is not a terminal multiplexer");
    if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
        return err_sys(e, "process.terminal: unlock");
    y->tty = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (y->tty < 0)
        return err_sys(e, "process.terminal: open the terminal");
    struct winsize size = {.ws_row = (unsigned short)y->process->console_height,
                           .ws_col = (unsigned short)y->process->console_width};
    if (size.ws_row || size.ws_col)
        (void)ioctl(master, TIOCSWINSZ, &size);
    y->master = take_fd(master);
    return 0;
}

static int set_stdio(struct init *y, struct err *e)
{
    if (setsid() < 0 && errno != EPERM)
        return err_sys(e, "setsid");
    if (!y->process->terminal) {
        for (int i = 0; i < 3; i++)
            if (dup2(y->plan->p.stdio[i], i) < 0)
                return err_sys(e, "descriptor %d", i);
        return 0;
    }
    int r = y->tty < 0 ? open_pty(y, e) : 0;
    if (r < 0)
        return r;
    if (fchown(y->tty, y->process->uid, (gid_t)-1) < 0)
        return err_sys(e, "process.terminal: owner of the terminal");
    for (int i = 0; i < 3; i++)
        if (dup2(y->tty, i) < 0)
            return err_sys(e, "descriptor %d", i);
    return ioctl(0, TIOCSCTTY, 0) < 0 ? err_sys(e, "process.terminal: controlling terminal") : 0;
}

/* Otherwise the workload would hold the session keyring of the shim, the host root's. */
static int new_keyring(struct err *e)
{
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
        return err_sys(e, "new session keyring");
    return 0;
}

static int set_personality(const struct spec *spec, struct err *e)
{
    if (!spec->has_personality || !spec->personality)
        return 0;
    unsigned long value = strcmp(spec->personality, "LINUX32") == 0 ? PER_LINUX32 : PER_LINUX;
    return personality(value) < 0 ? err_sys(e, "linux.personality") : 0;
}

/*
 * As root first: a working directory that only root may enter works with other runtimes too.  What
 * getcwd says afterwards must begin at the root: "(unreachable)" means a directory from outside, which
 * only a leaked descriptor could have led to.
 */
static int enter_cwd(const char *cwd, bool *ret_again, struct err *e)
{
    char at[4096];

    if (chdir(cwd) < 0) {
        if (errno == EACCES && !*ret_again) {
            *ret_again = true;
            return 0;
        }
        return err_sys(e, "chdir to cwd (\"%s\") set in config.json failed", cwd);
    }
    *ret_again = false;
    if (syscall(SYS_getcwd, at, sizeof at) < 0)
        return errno == ERANGE ? 0 : err_sys(e, "current working directory");
    return at[0] == '/' ? 0
                        : err_set(e, -EPERM, "current working directory is outside of the container's root");
}

static int reset_signals(struct err *e)
{
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL);
    sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? err_sys(e, "signal mask") : 0;
}

static int become_user(struct init *y, struct err *e)
{
    const char *cwd = y->process->cwd && y->process->cwd[0] ? y->process->cwd : "/";
    bool again = false;

    (void)umask(y->process->umask == SPEC_NO_UMASK ? 0022 : y->process->umask);
    int r = enter_cwd(cwd, &again, e);
    if (r == 0)
        r = creds_apply(y->process, &y->known_caps, e);
    if (r == 0 && again)
        r = enter_cwd(cwd, &again, e);
    if (r == 0)
        r = program_find(y->process, &y->program, e);
    if (r < 0)
        return r;
    y->env = program_env(y->process);
    if (y->process->no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(e, "no_new_privs");
    /* Nothing of the shim's survives the exec: no directory, no socket, no listener. */
    if (syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        return err_sys(e, "close-on-exec for all descriptors");
    return 0;
}

/* Both programs, while the builder works anyway. They stay allocated: free() may call what is not allowed
 * later. */
static int write_filters(struct init *y, struct err *e)
{
    const struct plan *plan = y->plan;
    struct sock_filter *code = xcalloc(FILTER_MAX, sizeof *code);
    size_t n = 0;

    int r = filter_build(&(struct filter_options){.report_denials = plan->p.debug}, code, FILTER_MAX, &n, e);
    if (r < 0)
        return err_wrap(e, r, "system call filter");
    y->filter = (struct sock_fprog){.len = (unsigned short)n, .filter = code};
    n = 0;
    r = plan->p.spec->seccomp_json ? oci_seccomp_build(plan->p.spec->seccomp_json, &code, &n, e) : 0;
    y->oci_filter = (struct sock_fprog){.len = (unsigned short)n, .filter = code};
    return r;
}

/* The listener's number, or -errno. */
static int install_filter(struct init *y, struct err *e)
{
    int fd =
        sys_seccomp(SECCOMP_SET_MODE_FILTER,
                    SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &y->filter);

    if (fd == -EINVAL) /* before 5.19: a signal may interrupt a call that the sentry has begun */
        fd = sys_seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &y->filter);
    return fd < 0 ? err_set(e, fd, "install the system call filter: %s", strerror(-fd)) : fd;
}

static int final_caps(void *data)
{
    const struct init *y = data;

    return creds_final(y->process, y->known_caps);
}

static int run_start_hooks(struct init *y, struct err *e)
{
    const struct launch_params *p = &y->plan->p;
    const struct hook_state state = {
        .spec = p->spec, .id = p->id, .bundle = p->bundle, .status = "created", .pid = getpid()};

    return p->join ? 0 : hooks_run_inside(&state, final_caps, y, e);
}

/*
 * From here on only calls that the filter runs natively: read, write, capset, seccomp, execve, exit_group
 * (tests/unit/shim/test_launcher_filter.c holds the table to that).  The specification's own filter
 * comes last, when nothing but capset and execve is left, so that a profile need not allow what only
 * a launcher calls.  It can narrow, never widen: the strictest answer of all filters counts.
 */
static int wait_and_exec(struct init *y, int listener, struct err *e)
{
    struct plan *plan = y->plan;
    struct msg m = {.kind = MSG_READY, .value = listener, .value2 = y->master};

    trace_step(plan->trace, 'Y', "filter installed");
    int r = msg_write(y->sock, &m);
    if (r < 0)
        return err_set(e, r, "report: %s", strerror(-r));
    ssize_t n = read(y->sock, &m, sizeof m);
    if (n != (ssize_t)sizeof m || m.kind != MSG_GO)
        _exit(127); /* the shim has given up */
    r = run_start_hooks(y, e);
    if (r < 0)
        return r;
    if (y->oci_filter.len > 0) {
        r = sys_seccomp(SECCOMP_SET_MODE_FILTER, 0, &y->oci_filter);
        if (r < 0)
            return err_set(e, r, "linux.seccomp: install: %s", strerror(-r));
    }
    r = creds_final(y->process, y->known_caps);
    if (r < 0)
        return err_set(e, r, "process.capabilities: %s", strerror(-r));
    (void)execve(y->program, y->process->args.item, y->env);
    r = -errno;
    program_exec_error(y->program, r, e);
    return r;
}

static int report_failure(struct init *y, int r, const struct err *e)
{
    struct msg m = {.kind = MSG_FAILED, .r = r};

    (void)snprintf(m.text, sizeof m.text, "%s", err_text(e));
    (void)msg_write(y->sock, &m);
    return r;
}

int init_main(struct plan *plan, int sock, struct err *e)
{
    struct init y = {.plan = plan, .process = plan->p.process, .sock = sock, .tty = -1, .master = -1};

    trace_step(plan->trace, 'Y', "runs");
    int r = write_filters(&y, e);
    trace_step(plan->trace, 'Y', "filters written");
    if (r == 0)
        r = enter_root(&y, e);
    trace_step(plan->trace, 'Y', "root entered");
    if (r == 0)
        r = set_stdio(&y, e);
    if (r == 0)
        r = new_keyring(e);
    if (r == 0)
        r = label_apply(&plan->label, e);
    if (r == 0)
        r = set_personality(plan->p.spec, e);
    if (r == 0)
        r = reset_signals(e);
    if (r == 0)
        r = become_user(&y, e);
    trace_step(plan->trace, 'Y', "user");
    if (r < 0)
        return r;
    int listener = install_filter(&y, e);
    r = listener < 0 ? listener : wait_and_exec(&y, listener, e);
    (void)report_failure(&y, r, e);
    _exit(r == -ENOENT ? 127 : 126);
}
