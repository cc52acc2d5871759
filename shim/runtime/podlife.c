/* The pod behind the containers: made with the first one, gone with the last; the sentry's death; the state
 * file. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/map.h"
#include "shim/cgroup/cgroup.h"
#include "shim/launcher/pod.h"
#include "shim/oci/spec.h"
#include "shim/runtime/internal.h"
#include "shim/runtime/probes.h"
#include "shim/runtime/state.h"
#include "shim/sentry/sentry.h"

#define SENTRY_SUFFIX ".sentry"

/* Not inside the sentry's own call: the last container that goes frees the sentry. */
static void abort_creates(void *data)
{
    struct runtime *rt = data;
    struct err e = {0};
    size_t at = 0;
    void *value;

    rt->broken_source = NULL;
    err_set(&e, -EIO, "%s", rt->broken ? rt->broken : "the sentry died");
    while (map_next(rt->containers, &at, NULL, &value)) {
        struct container *c = value;
        if (c->init.state == PS_CREATING)
            create_abort(c, -EIO, err_text(&e));
    }
}

/* Fail closed: without the sentry no process of the pod may take another step. */
static void on_sentry_died(void *data, int status)
{
    struct runtime *rt = data;
    size_t at = 0;
    void *value;

    if (rt->broken)
        return;
    scoped_free char *how = WIFSIGNALED(status)
                                ? xasprintf("signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)))
                                : xasprintf("exit status %d", WEXITSTATUS(status));
    rt->broken = xasprintf("the sentry of this pod died (%s), so all its containers were killed", how);
    log_error("the sentry died, the pod is killed", "pod=%s how=%s", rt->pod_id, how);

    while (map_next(rt->containers, &at, NULL, &value)) {
        struct container *c = value;
        if (c->cg)
            (void)cgroup_kill(c->cg, SIGKILL, NULL);
        pause_thaw(c);
    }
    (void)loop_defer(rt->loop, abort_creates, rt, &rt->broken_source);
}

/* NULL without an audit directory. */
static char *pod_audit_path(const struct runtime *rt)
{
    return rt->audit_dir ? xasprintf("%s/%s-%s.jsonl", rt->audit_dir, rt->ns, rt->pod_id) : NULL;
}

/* A node without the directory loses the records, not the pod. */
static int open_audit(const struct runtime *rt)
{
    scoped_free char *path = pod_audit_path(rt);

    if (!path)
        return -1;
    if (mkdir(rt->audit_dir, 0700) < 0 && errno != EEXIST)
        log_warn("cannot make the audit directory", "path=%s error=%s", rt->audit_dir, strerror(errno));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        log_warn("no audit file", "path=%s error=%s", path, strerror(errno));
    return fd;
}

static int64_t annotation_number(const struct spec *s, const char *key)
{
    const char *text = spec_annotation(s, key);
    uint64_t n;

    return text && parse_u64(text, INT64_MAX, &n) == 0 ? (int64_t)n : 0;
}

static struct cgroup_pod_limits pod_limits(const struct spec *s)
{
    return (struct cgroup_pod_limits){
        .cpu_period_us = annotation_number(s, "io.kubernetes.cri.sandbox-cpu-period"),
        .cpu_quota_us = annotation_number(s, "io.kubernetes.cri.sandbox-cpu-quota"),
        .cpu_shares = annotation_number(s, "io.kubernetes.cri.sandbox-cpu-shares"),
        .memory_bytes = annotation_number(s, "io.kubernetes.cri.sandbox-memory"),
    };
}

static const struct spec *sandbox_spec(struct runtime *rt)
{
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value)) {
        const struct spec *s = ((struct container *)value)->spec;
        const char *type = s ? spec_container_type(s) : NULL;
        if (type && strcmp(type, "sandbox") == 0)
            return s;
    }
    return NULL;
}

/* 0 = unlimited, which is more than any number. */
static int64_t wider(int64_t a, int64_t b)
{
    return a <= 0 || b <= 0 ? 0 : MAX(a, b);
}

/*
 * What sysinfo and sched_getaffinity show is one pair of numbers for the pod: the widest limit of its
 * containers, or the pod's own where one of them has none.
 */
void pod_view_update(struct runtime *rt)
{
    const struct spec *sandbox = sandbox_spec(rt);
    int64_t cpu = -1, memory = -1;
    struct err e = {0};
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value)) {
        const struct container *c = value;
        if (!c->spec || !c->cg || c->spec == sandbox || c->init.exit_told)
            continue;
        int64_t own_cpu = cgroup_cpu_limit_milli(c->cg), own_memory = cgroup_memory_limit(c->cg);
        cpu = cpu < 0 ? own_cpu : wider(cpu, own_cpu);
        memory = memory < 0 ? own_memory : wider(memory, own_memory);
    }
    if (cpu < 0 || !rt->sentry || rt->broken)
        return;
    const struct cgroup_pod_limits pod = sandbox ? pod_limits(sandbox) : (struct cgroup_pod_limits){0};
    if (cpu == 0 && pod.cpu_period_us > 0)
        cpu = pod.cpu_quota_us * 1000 / pod.cpu_period_us;
    if (memory == 0)
        memory = pod.memory_bytes;
    if (cpu == rt->view_cpu && memory == rt->view_memory)
        return;
    if (sentry_set_limits(rt->sentry, cpu, memory, &e) < 0) {
        log_warn("the pod's view of its limits is old", "pod=%s error=%s", rt->pod_id, err_text(&e));
        return;
    }
    rt->view_cpu = cpu;
    rt->view_memory = memory;
}

static int start_sentry(struct runtime *rt, struct container *c, struct err *e)
{
    const struct cgroup_pod_limits limits = pod_limits(c->spec);
    const struct sentry_events ev = {.died = on_sentry_died, .data = rt};
    scoped_fd int audit = open_audit(rt);
    int64_t cpu = limits.cpu_period_us > 0 ? limits.cpu_quota_us * 1000 / limits.cpu_period_us : 0;

    int r = cgroup_create_sibling(c->cg, SENTRY_SUFFIX, &rt->sentry_cg, e);
    if (r < 0)
        return err_wrap(e, r, "cgroup of the sentry");
    free(rt->sentry_cg_of);
    rt->sentry_cg_of = xstrdup(c->cgroup_path);
    const struct sentry_params p = {.pod = rt->pod,
                                    .cgroup = rt->sentry_cg,
                                    .audit_fd = audit,
                                    .debug = rt->debug,
                                    .cpu_milli = cpu > 0 ? cpu : cgroup_cpu_limit_milli(c->cg),
                                    .memory_bytes = limits.memory_bytes > 0 ? limits.memory_bytes
                                                                            : cgroup_memory_limit(c->cg)};
    rt->view_cpu = p.cpu_milli;
    rt->view_memory = p.memory_bytes;
    r = sentry_start(rt->loop, &p, &ev, &rt->sentry, e);
    if (r < 0)
        return err_wrap(e, r, "start the sentry");
    r = egress_begin(rt, c->spec, e);
    if (r < 0)
        sentry_stop(take(rt->sentry));
    return r;
}

int pod_need(struct runtime *rt, struct container *c, struct err *e)
{
    if (rt->broken)
        return err_set(e, -EIO, "%s", rt->broken);
    if (!rt->pod_id) {
        const char *group = spec_group(c->spec);
        rt->pod_id = xstrdup(group && state_name_is_valid(group) ? group : c->id);
    }
    if (!rt->pod) {
        int r = pod_new(rt->pod_id, c->spec, rt->state_dir, &rt->pod, e);
        if (r < 0)
            return err_wrap(e, r, "make the pod");
        const struct cgroup_pod_limits limits = pod_limits(c->spec);
        const char *type = spec_container_type(c->spec);
        if (type && strcmp(type, "sandbox") == 0) {
            r = cgroup_apply_pod(c->cg, &limits, e);
            if (r < 0)
                return err_wrap(e, r, "limits of the pod");
        }
    }
    return rt->sentry ? 0 : start_sentry(rt, c, e);
}

static void remove_empty_audit(const struct runtime *rt)
{
    scoped_free char *path = rt->pod_id ? pod_audit_path(rt) : NULL;
    struct stat st;

    if (path && lstat(path, &st) == 0 && st.st_size == 0)
        (void)unlink(path);
}

void pod_unneeded(struct runtime *rt)
{
    if (!runtime_is_empty(rt))
        return;
    sentry_stop(take(rt->sentry));
    rt->quiet = QUIET_NO;
    probes_free(take(rt->probes));
    if (rt->sentry_cg)
        trash_add(rt, take(rt->sentry_cg), NULL);
    pod_free(take(rt->pod));
    remove_empty_audit(rt);
    free(take(rt->broken));
}

int container_note(struct container *c, struct err *e)
{
    struct runtime *rt = c->rt;
    scoped_free char *audit = pod_audit_path(rt);
    struct state s = {.pod = rt->pod_id,
                      .cgroup = c->cgroup_path,
                      .sentry_cgroup_of = rt->sentry_cg_of,
                      .socket = rt->socket_path,
                      .bundle = c->bundle,
                      .audit = audit,
                      .init = c->init.reaped ? (struct state_process){.pid = c->init.pid}
                                             : state_process_of(c->init.pid),
                      .shim = state_process_of(getpid())};
    if (rt->sentry)
        s.sentry = state_process_of(sentry_pid(rt->sentry));
    if (c->init.reaped) {
        s.has_exit = true;
        s.exit_status = c->init.exit.status;
        s.exit_at = c->init.exit.at;
    }
    return state_write(rt->state_dir, rt->ns, c->id, &s, e);
}
