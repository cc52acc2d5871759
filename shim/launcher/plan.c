#include "shim/launcher/plan.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/pod.h"
#include "shim/launcher/sys.h"
#include "shim/oci/spec.h"

/* ---- checks ------------------------------------------------------------------------------------- */

static bool same_file(const char *path, int fd)
{
    struct stat a, b;

    return fd >= 0 && stat(path, &a) == 0 && fstat(fd, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* A member's namespaces by path must be this pod's own: anything else would lead out of it. */
static int check_namespaces(const struct launch_params *p, struct err *e)
{
    const struct pod *pod = p->pod;
    const struct {
        enum spec_ns kind;
        const char *name;
        int fd, other;
    } rows[] = {
        {SPEC_NS_NETWORK, "network", pod->net_ns, pod->cni_net_ns},
        {SPEC_NS_IPC, "ipc", pod->ipc_ns, -1},
        {SPEC_NS_UTS, "uts", pod->uts_ns, -1},
        {SPEC_NS_USER, "user", pod->user_ns, -1},
        {SPEC_NS_PID, "pid", pod->pid_ns, -1},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *path = p->spec->ns[rows[i].kind].path;
        if (path && !same_file(path, rows[i].fd) && !same_file(path, rows[i].other))
            return err_set(e, -EPERM, "linux.namespaces: %s namespace %s is not this pod's", rows[i].name,
                           path);
    }
    if (p->spec->ns[SPEC_NS_MOUNT].path || p->spec->ns[SPEC_NS_CGROUP].path || p->spec->ns[SPEC_NS_TIME].path)
        return err_set(e, -EPERM,
                       "linux.namespaces: mount, cgroup and time namespaces cannot be given by path");
    return 0;
}

int plan_check(const struct launch_params *p, struct err *e)
{
    const struct spec_process *process = p->process;

    assert(p->pod && p->spec && process && p->id && p->bundle);
    if (process->args.n == 0)
        return err_set(e, -EINVAL, "process.args must not be empty");
    if (process->cwd && process->cwd[0] && process->cwd[0] != '/')
        return err_set(e, -EINVAL, "process.cwd must be an absolute path, not \"%s\"", process->cwd);
    if (p->join > 0)
        return p->join_pidfd < 0 ? err_set(e, -EINVAL, "exec without a pidfd of the container") : 0;
    if (p->shares_pid_ns && p->pod->pid_ns < 0)
        return err_set(e, -EINVAL, "linux.namespaces: the pod has no pid namespace to share yet");
    return check_namespaces(p, e);
}

/* ---- entries ------------------------------------------------------------------------------------ */

static int kind_of(const struct spec_mount *m, struct entry *entry, struct err *e)
{
    static const struct {
        const char *type;
        enum entry_kind kind;
    } types[] = {
        {"tmpfs", ENTRY_TMPFS},    {"proc", ENTRY_PROC},     {"sysfs", ENTRY_SYS},
        {"devpts", ENTRY_DEVPTS},  {"mqueue", ENTRY_MQUEUE}, {"cgroup", ENTRY_CGROUP},
        {"cgroup2", ENTRY_CGROUP},
    };
    const char *type = m->type ? m->type : "";

    if (volume_is_bind(m, &entry->opt)) {
        entry->kind = ENTRY_BIND;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(types[i].type, type) == 0) {
            entry->kind = types[i].kind;
            return 0;
        }
    return err_set(e, -EPERM, "%s: a mount of type \"%s\" is not available in a sandbox", entry->field, type);
}

static int check_destination(const struct spec_mount *m, const struct entry *entry, struct err *e)
{
    if (!m->destination || m->destination[0] != '/')
        return err_set(e, -EINVAL, "%s: destination must be an absolute path", entry->field);
    if (strcmp(m->destination, "/") == 0)
        return err_set(e, -EINVAL, "%s: destination must not be the root", entry->field);
    if (strcmp(m->destination, "/dev") == 0 && entry->kind != ENTRY_TMPFS)
        return err_set(e, -EPERM, "%s: /dev of a sandbox cannot be replaced by a %s", entry->field,
                       entry->kind == ENTRY_BIND ? "directory of the host" : "file system of this type");
    return 0;
}

int plan_entries(struct plan *plan, struct err *e)
{
    const struct spec *spec = plan->p.spec;

    plan->entries = xcalloc(spec->n_mounts + 1, sizeof *plan->entries);
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct spec_mount *m = &spec->mounts[i];
        struct entry *entry = &plan->entries[i];
        (void)snprintf(entry->field, sizeof entry->field, "mounts[%zu] (%.120s)", i,
                       m->destination ? m->destination : "");
        entry->volume.fd = -1;
        int r =
            mountopt_parse((const char *const *)m->options.item, m->options.n, entry->field, &entry->opt, e);
        if (r == 0)
            r = kind_of(m, entry, e);
        if (r == 0)
            r = check_destination(m, entry, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- sources ------------------------------------------------------------------------------------ */

static int clone_cgroups(struct plan *plan, struct err *e)
{
    const uint64_t quiet = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

    plan->n_cgroups = plan->p.cgroup ? cgroup_views(plan->p.cgroup, plan->cgroups, PLAN_CGROUPS_MAX) : 0;
    for (size_t i = 0; i < plan->n_cgroups; i++) {
        int fd = mount_clone(plan->cgroups[i].dir, "", false);
        int r = fd < 0 ? fd
                       : mount_change(fd, &(struct mount_change){
                                              .set = quiet, .propagation = MS_PRIVATE, .user_ns = -1});
        if (r < 0)
            return err_set(e, r, "view of cgroup %s: %s", plan->cgroups[i].name, strerror(-r));
        plan->cgroup_mount[i] = fd;
    }
    return 0;
}

int plan_sources(struct plan *plan, struct err *e)
{
    const struct spec *spec = plan->p.spec;
    const struct cgroup *cg = plan->p.cgroup;

    int r = root_source_open(&plan->p, &plan->root, e);
    trace_step(plan->trace, 'L', "layers cloned");
    for (size_t i = 0; r == 0 && i < spec->n_mounts; i++) {
        struct entry *entry = &plan->entries[i];
        if (entry->kind == ENTRY_BIND)
            r = volume_open(&plan->p, &spec->mounts[i], &entry->opt, entry->field, &entry->volume, e);
    }
    if (r == 0)
        r = clone_cgroups(plan, e);
    trace_step(plan->trace, 'L', "volumes cloned");
    if (r == 0)
        view_facts_read(cg ? cgroup_cpu_limit_milli(cg) : 0, cg ? cgroup_memory_limit(cg) : 0, &plan->facts);
    trace_step(plan->trace, 'L', "facts read");
    return r;
}
