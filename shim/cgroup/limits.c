/* Update, the pod's own limits, and the limits that hold in effect. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/alloc.h"
#include "shim/cgroup/internal.h"

/* v1 says "no limit" by the largest number of whole pages. */
#define V1_UNLIMITED (INT64_C(1) << 62)

/* ---- update ------------------------------------------------------------------------------------------- */

static void read_current(const struct cgroup *cg, struct cg_current *now)
{
    *now = (struct cg_current){.memory_max = -1, .cpu_quota = "max", .cpu_period = "100000"};
    const struct cg_dir *d = cg_core(cg);
    uint64_t max = UINT64_MAX;
    if (cg_read_u64(d->dir, "memory.max", &max) == 0 && max != UINT64_MAX)
        now->memory_max = (int64_t)max;

    char text[64];
    if (cg_read(d->dir, "cpu.max", text, sizeof text) > 0 &&
        sscanf(text, "%23s %23s", now->cpu_quota, now->cpu_period) != 2)
        *now = (struct cg_current){.memory_max = now->memory_max, .cpu_quota = "max", .cpu_period = "100000"};
}

/* What checkBeforeUpdate asks for: no limit below the usage. On v2 the kernel would kill to get there. */
static int check_usage(const struct cgroup *cg, const struct spec_resources *res, struct err *e)
{
    const struct cg_dir *d = cg_part(cg, CG_MEMORY);
    uint64_t usage = 0;

    if (!res->memory_check_before_update.value || !res->memory_limit.has || res->memory_limit.value <= 0 ||
        !d)
        return 0;
    if (cg_read_u64(d->dir, d->hier->v2 ? "memory.current" : "memory.usage_in_bytes", &usage) < 0)
        return 0;
    if (usage > (uint64_t)res->memory_limit.value)
        return err_set(e, -EBUSY,
                       "linux.resources.memory.limit of %" PRId64 " is less than the %" PRIu64
                       " bytes that the container uses now",
                       res->memory_limit.value, usage);
    return 0;
}

int cgroup_update(struct cgroup *cg, const struct spec_resources *res, struct err *e)
{
    if (cg->n == 0)
        return err_set(e, -ENOENT, "the container's control group is gone");
    int r = check_usage(cg, res, e);
    if (r < 0)
        return r;

    __attribute__((cleanup(cg_plan_done_scoped))) struct cg_plan plan = {0};
    struct cg_current now;
    if (cg->mode == CGROUP_V2) {
        read_current(cg, &now);
        r = cg_plan_v2(res, &now, &plan, e);
    } else {
        r = cg_plan_v1(res, &plan, e);
    }
    if (r == 0)
        r = cg_apply(cg, &plan, true, e);
    /* systemd writes what it knows again after a daemon-reload. */
    return r == 0 && cg->unit ? cg_systemd_update(cg->unit, res, e) : r;
}

/* ---- the pod ------------------------------------------------------------------------------------------ */

/* The last component but one: the pod's own name when the engine gave the pod a group. */
static bool parent_is_pod(const char *path)
{
    const char *leaf = strrchr(path, '/');
    if (!leaf)
        return false;
    const char *start = leaf;
    while (start > path && start[-1] != '/')
        start--;
    size_t n = (size_t)(leaf - start);
    return (n > 3 && memcmp(start, "pod", 3) == 0) || memmem(start, n, "-pod", 4) != NULL;
}

static int parent_dir(const struct cg_dir *d)
{
    return openat(d->dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool made_by_us(int dir)
{
    char value[4];
    return fgetxattr(dir, "trusted.glovebox", value, sizeof value) >= 0;
}

static void pod_resources(const struct cgroup_pod_limits *l, struct spec_resources *res)
{
    *res = (struct spec_resources){
        .cpu_period = {l->cpu_period_us > 0, l->cpu_period_us},
        .cpu_quota = {l->cpu_quota_us > 0, l->cpu_quota_us},
        .cpu_shares = {l->cpu_shares > 0, l->cpu_shares},
        .memory_limit = {l->memory_bytes > 0, l->memory_bytes},
    };
}

int cgroup_apply_pod(const struct cgroup *cg, const struct cgroup_pod_limits *limits, struct err *e)
{
    if (cg->n == 0 || !parent_is_pod(cg->part[0].path))
        return 1;

    /* The same parts, one level up. */
    struct cgroup pod = {.mode = cg->mode, .n = cg->n, .oom_fd = -1, .oom_watched = -1};
    bool ours = true;
    for (size_t i = 0; i < cg->n; i++) {
        pod.part[i] = (struct cg_dir){
            .hier = cg->part[i].hier, .path = cg->part[i].path, .dir = parent_dir(&cg->part[i]), .tasks = -1};
        if (pod.part[i].hier->ctrl & (CG_CPU | CG_MEMORY))
            ours = ours && pod.part[i].dir >= 0 && made_by_us(pod.part[i].dir);
    }

    int r = 1;
    if (ours) {
        struct spec_resources res;
        pod_resources(limits, &res);
        r = cgroup_update(&pod, &res, e);
        if (r < 0)
            (void)err_wrap(e, r, "limits of the pod");
    }
    for (size_t i = 0; i < pod.n; i++)
        fd_close(pod.part[i].dir);
    return r;
}

/* ---- effective limits -----------------------------------------------------------------------------------
 */

/* Calls fn for the group and every group above it, up to the root of the mount. */
static void each_level(const struct cg_dir *d, void (*fn)(int dir, void *data), void *data)
{
    int levels = 1;
    for (const char *p = d->path; *p; p++)
        levels += *p == '/';

    int dir = openat(d->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < levels && dir >= 0; i++) {
        fn(dir, data);
        int up = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        fd_close(dir);
        dir = up;
    }
    if (dir >= 0)
        fn(dir, data);
    fd_close(dir);
}

static void least_memory(int dir, void *data)
{
    uint64_t *least = data, limit = 0;

    if (cg_read_u64(dir, "memory.max", &limit) == 0 || cg_read_u64(dir, "memory.limit_in_bytes", &limit) == 0)
        *least = MIN(*least, limit);
}

int64_t cgroup_memory_limit(const struct cgroup *cg)
{
    const struct cg_dir *d = cg_part(cg, CG_MEMORY);
    uint64_t least = UINT64_MAX;

    if (d)
        each_level(d, least_memory, &least);
    return least >= (uint64_t)V1_UNLIMITED ? 0 : (int64_t)least;
}

static void least_cpu(int dir, void *data)
{
    int64_t *least = data, quota = -1, period = 0;
    char text[64];

    if (cg_read(dir, "cpu.max", text, sizeof text) > 0)
        (void)sscanf(text, "%" SCNd64 " %" SCNd64, &quota, &period); /* "max ..." leaves quota at -1 */
    else if (cg_read_i64(dir, "cpu.cfs_quota_us", &quota) < 0 ||
             cg_read_i64(dir, "cpu.cfs_period_us", &period) < 0)
        return;
    if (quota > 0 && period > 0 && (*least == 0 || quota * 1000 / period < *least))
        *least = MAX(quota * 1000 / period, INT64_C(1));
}

/* How many CPUs a list such as "0-3,7" has. */
static int64_t count_cpus(const char *list)
{
    int64_t n = 0;

    for (const char *p = list; *p >= '0' && *p <= '9';) {
        char *end = NULL;
        long first = strtol(p, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        n += last >= first ? last - first + 1 : 0;
        p = *end == ',' ? end + 1 : end;
    }
    return n;
}

int64_t cgroup_cpu_limit_milli(const struct cgroup *cg)
{
    const struct cg_dir *cpu = cg_part(cg, CG_CPU), *set = cg_part(cg, CG_CPUSET);
    int64_t least = 0;
    char list[1024];

    if (cpu)
        each_level(cpu, least_cpu, &least);
    if (set && (cg_read(set->dir, "cpuset.cpus.effective", list, sizeof list) > 0 ||
                cg_read(set->dir, "cpuset.effective_cpus", list, sizeof list) > 0)) {
        int64_t cpus = count_cpus(list);
        bool narrow = cpus > 0 && cpus < sysconf(_SC_NPROCESSORS_ONLN);
        if (narrow && (least == 0 || cpus * 1000 < least))
            least = cpus * 1000;
    }
    return least;
}
