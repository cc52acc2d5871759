/*
 * Process W.  Enters the container's control groups and namespaces and gives birth to the init (or exec
 * process) there.  Both are made with CLONE_PARENT, so both are children of the shim, not of the
 * launcher: the shim is who waits for the container.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/scoped.h"
#include "shim/launcher/plan.h"
#include "shim/launcher/pod.h"
#include "shim/launcher/proto.h"
#include "shim/launcher/sys.h"

/*
 * v1: "0" written by the process itself.  A pid, or cgroup.procs, makes the kernel take the
 * threadgroup lock for writing, which waits for an RCU grace period (5-15 ms).  v2: CLONE_INTO_CGROUP.
 */
static int join_cgroups(const struct cgroup *cg, struct err *e)
{
    if (!cg)
        return 0;
    struct cgroup_entry entry = cgroup_entry(cg);
    for (size_t i = 0; i < entry.n_v1_tasks; i++)
        if (write(entry.v1_tasks[i], "0", 1) < 0)
            return err_sys(e, "join cgroup");
    return 0;
}

static int enter_pod(const struct launch_params *p, struct err *e)
{
    const struct pod *pod = p->pod;
    const struct {
        int fd, flag;
        const char *what;
    } all[] = {
        {pod->user_ns, CLONE_NEWUSER, "user"},
        {pod->net_ns, CLONE_NEWNET, "network"},
        {pod->ipc_ns, CLONE_NEWIPC, "ipc"},
        {pod->uts_ns, CLONE_NEWUTS, "uts"},
        {p->shares_pid_ns ? pod->pid_ns : -1, CLONE_NEWPID, "pid"},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i].fd >= 0 && setns(all[i].fd, all[i].flag) < 0)
            return err_sys(e, "enter the pod's %s namespace", all[i].what);
    return 0;
}

/* One call with the pidfd: all namespaces or none, and no other process by reuse of the pid. */
static int enter_container(const struct launch_params *p, struct err *e)
{
    const int all = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                    CLONE_NEWCGROUP;

    if (setns(p->join_pidfd, all) == 0)
        return 0;
    return errno == ESRCH ? err_set(e, -ESRCH, "the container's init has exited")
                          : err_sys(e, "enter the container's namespaces");
}

/*
 * Ids after setns(user) are unmapped and the host's groups are kept: become root of the user namespace
 * in all of them.  Not dumpable: processes of the container may see us by /proc and must not be able to
 * read or write our memory or take our descriptors (ptrace_may_access asks for rights over the user
 * namespace of the memory, which is the host's).
 */
static int become_pod_root(struct err *e)
{
    int r = sys_setgroups(0, NULL);
    if (r == 0)
        r = sys_setresgid(0);
    if (r == 0)
        r = sys_setresuid(0);
    if (r < 0)
        return err_set(e, r, "become root of the pod: %s", strerror(-r));
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        return err_sys(e, "PR_SET_DUMPABLE");
    return 0;
}

static int report_birth(int sock, pid_t pid, int pidfd)
{
    struct msg m = {.kind = MSG_BORN, .value = pid};

    return msg_send(sock, &m, &pidfd, 1);
}

int joiner_main(struct plan *plan, int sock, struct err *e)
{
    const struct launch_params *p = &plan->p;
    bool exec = p->join > 0;
    int pidfd = -1;

    trace_step(plan->trace, 'W', "runs");
    int r = join_cgroups(p->cgroup, e);
    trace_step(plan->trace, 'W', "cgroups joined");
    if (r == 0)
        r = exec ? enter_container(p, e) : enter_pod(p, e);
    if (r == 0)
        r = become_pod_root(e);
    if (r < 0)
        return r;
    trace_step(plan->trace, 'W', "namespaces joined");

    uint64_t flags = CLONE_PARENT | (exec || p->shares_pid_ns ? 0 : CLONE_NEWPID);
    pid_t pid = sys_fork(flags, 0, -1, &pidfd);
    if (pid == 0) {
        r = init_main(plan, sock, e);
        (void)msg_fail(sock, r, e);
        _exit(127);
    }
    if (pid == -EAGAIN)
        return err_set(e, pid, "fork: %s (limit of processes reached)", strerror(-pid));
    if (pid < 0)
        return err_set(e, pid, "fork: %s", strerror(-pid));
    trace_step(plan->trace, 'W', "init born");
    r = report_birth(sock, pid, pidfd);
    return r < 0 ? err_set(e, r, "report the init: %s", strerror(-r)) : 0;
}
