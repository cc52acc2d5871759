#include "shim/cgroup/stats.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "shim/cgroup/internal.h"

static bool read_into(const struct cg_dir *d, const char *file, char *buf)
{
    return d && cg_read(d->dir, file, buf, CG_STATS_BUF) >= 0;
}

/* ---- both versions ------------------------------------------------------------------------------------ */

static void read_pids(const struct cgroup *cg, struct cgroup_stats *out)
{
    const struct cg_dir *d = cg_part(cg, CG_PIDS);

    if (!d || cg_read_u64(d->dir, "pids.current", &out->pids.current) < 0)
        return;
    out->has_pids = true;
    (void)cg_read_u64(d->dir, "pids.max", &out->pids.limit);
    /* The message of v1 says "unlimited" by 0. */
    if (!d->hier->v2 && out->pids.limit == UINT64_MAX)
        out->pids.limit = 0;
}

/* Directory names such as "hugepages-2048kB"; cgroup files say "2MB". */
void cg_hugepage_sizes(void (*fn)(const char *size, void *data), void *data)
{
    static const char units[] = "KMGTPE";
    DIR *list = opendir("/sys/kernel/mm/hugepages");

    for (struct dirent *d = list ? readdir(list) : NULL; d; d = readdir(list)) {
        uint64_t kb = 0;
        if (sscanf(d->d_name, "hugepages-%" SCNu64 "kB", &kb) != 1)
            continue;
        size_t u = 0;
        while (kb >= 1024 && kb % 1024 == 0 && u + 2 < sizeof units) {
            kb /= 1024;
            u++;
        }
        char size[32];
        (void)snprintf(size, sizeof size, "%" PRIu64 "%cB", kb, units[u]);
        fn(size, data);
    }
    if (list)
        (void)closedir(list);
}

struct hugetlb_reader {
    const struct cg_dir *dir;
    struct cgroup_stats *out;
};

static void read_hugetlb_size(const char *size, void *data)
{
    struct hugetlb_reader *r = data;
    char file[64], events[128];

    if (r->out->n_hugetlb == CGROUP_HUGETLB_MAX)
        return;
    struct cgroup_hugetlb_stat *h = &r->out->hugetlb[r->out->n_hugetlb];
    bool v2 = r->dir->hier->v2;
    (void)snprintf(h->pagesize, sizeof h->pagesize, "%.15s", size);
    (void)snprintf(file, sizeof file, "hugetlb.%.15s.%s", size, v2 ? "current" : "usage_in_bytes");
    if (cg_read_u64(r->dir->dir, file, &h->usage) < 0)
        return;
    (void)snprintf(file, sizeof file, "hugetlb.%.15s.%s", size, v2 ? "max" : "max_usage_in_bytes");
    (void)cg_read_u64(r->dir->dir, file, &h->max);
    (void)snprintf(file, sizeof file, "hugetlb.%.15s.%s", size, v2 ? "events" : "failcnt");
    if (!v2)
        (void)cg_read_u64(r->dir->dir, file, &h->failcnt);
    else if (cg_read(r->dir->dir, file, events, sizeof events) > 0)
        (void)cg_keyed(events, "max", &h->failcnt);
    r->out->n_hugetlb++;
}

static void read_hugetlb(const struct cgroup *cg, struct cgroup_stats *out)
{
    struct hugetlb_reader r = {.dir = cg_part(cg, CG_HUGETLB), .out = out};
    if (r.dir)
        cg_hugepage_sizes(read_hugetlb_size, &r);
}

static void read_rdma(const struct cgroup *cg, struct cgroup_stats *out, char *buf)
{
    const struct cg_dir *d = cg_part(cg, CG_RDMA);

    if (read_into(d, "rdma.current", buf))
        cg_parse_rdma(buf, out, false);
    if (read_into(d, "rdma.max", buf))
        cg_parse_rdma(buf, out, true);
}

int cgroup_stats_read(const struct cgroup *cg, struct cgroup_stats *out, struct err *e)
{
    char buf[CG_STATS_BUF];

    memset(out, 0, sizeof *out);
    if (cg->n == 0)
        return err_set(e, -ENOENT, "the container's control group is gone");
    out->mode = cg->mode;
    read_pids(cg, out);
    if (cg->mode == CGROUP_V2)
        cg_stats_v2(cg, out, buf);
    else
        cg_stats_v1(cg, out, buf);
    read_hugetlb(cg, out);
    read_rdma(cg, out, buf);
    return 0;
}

void cgroup_stats_done(struct cgroup_stats *s)
{
    free(take(s->v1.per_cpu));
    for (size_t i = 0; i < BLKIO_KINDS; i++) {
        free(take(s->v1.blkio[i]));
        s->v1.n_blkio[i] = 0;
    }
    free(take(s->v2.io));
    s->v1.n_per_cpu = s->v2.n_io = 0;
}

/* ---- version 1 ------------------------------------------------------------------------------------------
 */

static void read_per_cpu(const char *text, struct cgroup_v1_stats *s)
{
    size_t cap = 0;

    for (const char *p = text; isdigit((unsigned char)*p);) {
        char *end = NULL;
        uint64_t value = strtoull(p, &end, 10);
        s->per_cpu = xgrow(s->per_cpu, s->n_per_cpu, &cap, sizeof *s->per_cpu);
        s->per_cpu[s->n_per_cpu++] = value;
        p = end + strspn(end, " ");
    }
}

static void read_cpu_v1(const struct cgroup *cg, struct cgroup_v1_stats *s, char *buf)
{
    static const struct cg_key throttling[] = {
        {"nr_periods", offsetof(struct cgroup_v1_stats, throttling_periods)},
        {"nr_throttled", offsetof(struct cgroup_v1_stats, throttled_periods)},
        {"throttled_time", offsetof(struct cgroup_v1_stats, throttled_time)},
    };
    const struct cg_dir *acct = cg_part(cg, CG_CPUACCT);

    if (acct && cg_read_u64(acct->dir, "cpuacct.usage", &s->cpu_total) == 0) {
        s->has_cpu = true;
        uint64_t user = 0, kernel = 0, tick = UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK);
        if (read_into(acct, "cpuacct.stat", buf) && cg_keyed(buf, "user", &user) &&
            cg_keyed(buf, "system", &kernel)) {
            s->cpu_user = user * tick;
            s->cpu_kernel = kernel * tick;
        }
        if (read_into(acct, "cpuacct.usage_percpu", buf))
            read_per_cpu(buf, s);
    }
    if (read_into(cg_part(cg, CG_CPU), "cpu.stat", buf)) {
        cg_parse_keyed(buf, throttling, ARRAY_LEN(throttling), s);
        s->has_throttling = true;
    }
}

static void read_memory_entry(const struct cg_dir *d, const char *name, struct cgroup_v1_memory_entry *m)
{
    static const struct cg_key files[] = {
        {"usage_in_bytes", offsetof(struct cgroup_v1_memory_entry, usage)},
        {"limit_in_bytes", offsetof(struct cgroup_v1_memory_entry, limit)},
        {"max_usage_in_bytes", offsetof(struct cgroup_v1_memory_entry, max)},
        {"failcnt", offsetof(struct cgroup_v1_memory_entry, failcnt)},
    };

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char file[64];
        (void)snprintf(file, sizeof file, "memory%s.%s", name, files[i].key);
        if (cg_read_u64(d->dir, file, (uint64_t *)(void *)((char *)m + files[i].offset)) < 0)
            return; /* the four exist together or not at all */
    }
    m->has = true;
}

static void read_memory_v1(const struct cgroup *cg, struct cgroup_stats *out, char *buf)
{
    const struct cg_dir *d = cg_part(cg, CG_MEMORY);
    struct cgroup_v1_stats *s = &out->v1;

    if (!read_into(d, "memory.stat", buf))
        return;
    cg_parse_memory_v1(buf, out);
    read_memory_entry(d, "", &s->usage);
    read_memory_entry(d, ".memsw", &s->swap);
    read_memory_entry(d, ".kmem", &s->kernel);
    read_memory_entry(d, ".kmem.tcp", &s->kernel_tcp);
    if (read_into(d, "memory.oom_control", buf)) {
        s->has_oom_control = true;
        (void)cg_keyed(buf, "oom_kill_disable", &s->oom_kill_disable);
        (void)cg_keyed(buf, "under_oom", &s->under_oom);
        (void)cg_keyed(buf, "oom_kill", &s->oom_kill);
    }
}

void cg_stats_v1(const struct cgroup *cg, struct cgroup_stats *out, char *buf)
{
    static const struct {
        enum cgroup_v1_blkio kind;
        const char *file[3]; /* the first that exists */
    } blkio[] = {
        {BLKIO_SERVICE_BYTES,
         {"blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes",
          "blkio.bfq.io_service_bytes_recursive"}},
        {BLKIO_SERVICED,
         {"blkio.throttle.io_serviced_recursive", "blkio.throttle.io_serviced",
          "blkio.bfq.io_serviced_recursive"}},
    };

    read_cpu_v1(cg, &out->v1, buf);
    read_memory_v1(cg, out, buf);
    for (size_t i = 0; i < ARRAY_LEN(blkio); i++)
        for (size_t k = 0; k < ARRAY_LEN(blkio[i].file); k++)
            if (read_into(cg_part(cg, CG_IO), blkio[i].file[k], buf)) {
                cg_parse_blkio_v1(buf, blkio[i].kind, out);
                break;
            }
}

/* ---- version 2 ------------------------------------------------------------------------------------------
 */

static void read_psi(const struct cg_dir *d, const char *file, struct cgroup_psi *psi, char *buf)
{
    if (read_into(d, file, buf)) /* EOPNOTSUPP when booted with psi=0 */
        cg_parse_psi(buf, psi);
}

static void read_memory_v2(const struct cg_dir *d, struct cgroup_stats *out, char *buf)
{
    static const struct cg_key files[] = {
        {"memory.current", offsetof(struct cgroup_v2_memory, usage)},
        {"memory.max", offsetof(struct cgroup_v2_memory, usage_limit)},
        {"memory.swap.current", offsetof(struct cgroup_v2_memory, swap_usage)},
        {"memory.swap.max", offsetof(struct cgroup_v2_memory, swap_limit)},
        {"memory.peak", offsetof(struct cgroup_v2_memory, max_usage)},           /* 5.19 */
        {"memory.swap.peak", offsetof(struct cgroup_v2_memory, swap_max_usage)}, /* 6.5 */
    };
    static const struct cg_key events[] = {
        {"low", offsetof(struct cgroup_v2_stats, events_low)},
        {"high", offsetof(struct cgroup_v2_stats, events_high)},
        {"max", offsetof(struct cgroup_v2_stats, events_max)},
        {"oom", offsetof(struct cgroup_v2_stats, events_oom)},
        {"oom_kill", offsetof(struct cgroup_v2_stats, events_oom_kill)},
        {"oom_group_kill", offsetof(struct cgroup_v2_stats, events_oom_group_kill)},
    };

    if (!read_into(d, "memory.stat", buf))
        return;
    cg_parse_memory_v2(buf, out);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        (void)cg_read_u64(d->dir, files[i].key,
                          (uint64_t *)(void *)((char *)&out->v2.memory + files[i].offset));
    read_psi(d, "memory.pressure", &out->v2.memory.psi, buf);
    if (read_into(d, "memory.events", buf)) {
        cg_parse_keyed(buf, events, ARRAY_LEN(events), &out->v2);
        out->v2.has_memory_events = true;
    }
}

void cg_stats_v2(const struct cgroup *cg, struct cgroup_stats *out, char *buf)
{
    static const struct cg_key cpu[] = {
        {"usage_usec", offsetof(struct cgroup_v2_stats, usage_usec)},
        {"user_usec", offsetof(struct cgroup_v2_stats, user_usec)},
        {"system_usec", offsetof(struct cgroup_v2_stats, system_usec)},
        {"nr_periods", offsetof(struct cgroup_v2_stats, nr_periods)},
        {"nr_throttled", offsetof(struct cgroup_v2_stats, nr_throttled)},
        {"throttled_usec", offsetof(struct cgroup_v2_stats, throttled_usec)},
        {"nr_bursts", offsetof(struct cgroup_v2_stats, nr_bursts)},
        {"burst_usec", offsetof(struct cgroup_v2_stats, burst_usec)},
    };
    const struct cg_dir *d = cg_core(cg);

    if (read_into(d, "cpu.stat", buf)) {
        cg_parse_keyed(buf, cpu, ARRAY_LEN(cpu), &out->v2);
        out->v2.has_cpu = true;
    }
    read_psi(d, "cpu.pressure", &out->v2.cpu_psi, buf);
    read_memory_v2(d, out, buf);
    if (read_into(d, "io.stat", buf))
        cg_parse_io_v2(buf, out);
    read_psi(d, "io.pressure", &out->v2.io_psi, buf);
}
