#include "shim/launcher/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/scoped.h"
#include "shim/launcher/sys.h"

/* sched_setattr(2); glibc has no declaration, and the kernel's header clashes with <sched.h>. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static const char *rlimit_name(int resource)
{
    static const char *const names[] = {
        [RLIMIT_CPU] = "RLIMIT_CPU",           [RLIMIT_FSIZE] = "RLIMIT_FSIZE",
        [RLIMIT_DATA] = "RLIMIT_DATA",         [RLIMIT_STACK] = "RLIMIT_STACK",
        [RLIMIT_CORE] = "RLIMIT_CORE",         [RLIMIT_RSS] = "RLIMIT_RSS",
        [RLIMIT_NPROC] = "RLIMIT_NPROC",       [RLIMIT_NOFILE] = "RLIMIT_NOFILE",
        [RLIMIT_MEMLOCK] = "RLIMIT_MEMLOCK",   [RLIMIT_AS] = "RLIMIT_AS",
        [RLIMIT_LOCKS] = "RLIMIT_LOCKS",       [RLIMIT_SIGPENDING] = "RLIMIT_SIGPENDING",
        [RLIMIT_MSGQUEUE] = "RLIMIT_MSGQUEUE", [RLIMIT_NICE] = "RLIMIT_NICE",
        [RLIMIT_RTPRIO] = "RLIMIT_RTPRIO",     [RLIMIT_RTTIME] = "RLIMIT_RTTIME",
    };

    return resource >= 0 && (size_t)resource < ARRAY_LEN(names) ? names[resource] : "rlimit";
}

static int set_rlimits(pid_t pid, const struct spec_process *p, struct err *e)
{
    for (size_t i = 0; i < p->n_rlimits; i++) {
        const struct spec_rlimit *l = &p->rlimits[i];
        struct rlimit64 want = {.rlim_cur = l->soft, .rlim_max = l->hard}, old = {0};
        if (prlimit64(pid, l->resource, &want, &old) == 0)
            continue;
        if (errno == EPERM)
            return err_set(e, -EPERM, "cannot raise %s from %llu to %llu: runtime lacks CAP_SYS_RESOURCE.",
                           rlimit_name(l->resource), (unsigned long long)old.rlim_max,
                           (unsigned long long)l->hard);
        return err_sys(e, "process.rlimits: %s", rlimit_name(l->resource));
    }
    return 0;
}

static int set_oom_score(pid_t pid, const struct spec_process *p, struct err *e)
{
    char path[64], text[16];

    if (!p->has_oom_score_adj)
        return 0;
    (void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    (void)snprintf(text, sizeof text, "%d", p->oom_score_adj);
    int r = sys_write_text(AT_FDCWD, path, text);
    /* Lowering it needs CAP_SYS_RESOURCE, which a shim in a container may lack: the score stays higher. */
    if (r == -EACCES || r == -EPERM)
        return 0;
    return r < 0 ? err_set(e, r, "process.oomScoreAdj %d: %s", p->oom_score_adj, strerror(-r)) : 0;
}

static int set_scheduler(pid_t pid, const struct spec_process *p, struct err *e)
{
    if (!p->has_scheduler)
        return 0;
    struct attributes attr = {.size = sizeof attr,
                              .policy = (uint32_t)p->sched_policy,
                              .nice = p->sched_nice,
                              .priority = (uint32_t)p->sched_priority};
    return syscall(SYS_sched_setattr, pid, &attr, 0) < 0 ? err_sys(e, "process.scheduler") : 0;
}

static int set_io_priority(pid_t pid, const struct spec_process *p, struct err *e)
{
    if (!p->has_io_priority)
        return 0;
    int value = IOPRIO_PRIO_VALUE(p->io_class, p->io_level);
    return syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, pid, value) < 0 ? err_sys(e, "process.ioPriority") : 0;
}

/* "0-3,7" */
static int parse_cpus(const char *text, cpu_set_t *ret)
{
    CPU_ZERO(ret);
    for (const char *p = text; *p;) {
        char *end;
        unsigned long a = strtoul(p, &end, 10), z = a;
        if (end == p)
            return -EINVAL;
        if (*end == '-') {
            p = end + 1;
            z = strtoul(p, &end, 10);
            if (end == p)
                return -EINVAL;
        }
        if (z < a || z >= CPU_SETSIZE || (*end && *end != ','))
            return -EINVAL;
        for (; a <= z; a++)
            CPU_SET(a, ret);
        p = *end ? end + 1 : end;
    }
    return 0;
}

/* Everything the cgroup allows, whatever the shim itself is bound to, unless the process asks for less. */
static int set_affinity(pid_t pid, const struct spec_process *p, struct err *e)
{
    const char *text = p->cpu_affinity_final ? p->cpu_affinity_final : p->cpu_affinity_initial;
    cpu_set_t set;

    memset(&set, 0xff, sizeof set);
    if (text && text[0] && parse_cpus(text, &set) < 0)
        return err_set(e, -EINVAL, "process.execCPUAffinity: malformed list \"%s\"", text);
    if (sched_setaffinity(pid, sizeof set, &set) < 0 && text && text[0])
        return err_sys(e, "process.execCPUAffinity \"%s\"", text);
    return 0;
}

int outside_apply(pid_t pid, const struct spec_process *p, struct err *e)
{
    int r = set_oom_score(pid, p, e);

    if (r == 0)
        r = set_rlimits(pid, p, e);
    if (r == 0)
        r = set_scheduler(pid, p, e);
    if (r == 0)
        r = set_io_priority(pid, p, e);
    return r < 0 ? r : set_affinity(pid, p, e);
}
