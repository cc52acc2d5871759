#include "shim/service/pack.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "metrics_v1.pb-c.h"
#include "metrics_v2.pb-c.h"
#include "shim/cgroup/stats.h"
#include "shim/service/service.h"

static char *text(const char *s)
{
    return (char *)(uintptr_t)s;
}

/* The plain structs have the protobuf's names, so a copy is a list of them. */
#define COPY(field) to->field = from->field

/* ------------------------------------------------------------------ v1 */

#define V1(name) Io__Containerd__Cgroups__V1__##name

static void v1_memory(const struct cgroup_v1_memory *from, V1(MemoryStat) * to)
{
    COPY(cache);
    COPY(rss);
    COPY(rss_huge);
    COPY(mapped_file);
    COPY(dirty);
    COPY(writeback);
    COPY(pg_pg_in);
    COPY(pg_pg_out);
    COPY(pg_fault);
    COPY(pg_maj_fault);
    COPY(inactive_anon);
    COPY(active_anon);
    COPY(inactive_file);
    COPY(active_file);
    COPY(unevictable);
    COPY(hierarchical_memory_limit);
    COPY(hierarchical_swap_limit);
    COPY(total_cache);
    COPY(total_rss);
    COPY(total_rss_huge);
    COPY(total_mapped_file);
    COPY(total_dirty);
    COPY(total_writeback);
    COPY(total_pg_pg_in);
    COPY(total_pg_pg_out);
    COPY(total_pg_fault);
    COPY(total_pg_maj_fault);
    COPY(total_inactive_anon);
    COPY(total_active_anon);
    COPY(total_inactive_file);
    COPY(total_active_file);
    COPY(total_unevictable);
}

static V1(MemoryEntry) * v1_entry(const struct cgroup_v1_memory_entry *from, V1(MemoryEntry) * to)
{
    if (!from->has)
        return NULL;
    io__containerd__cgroups__v1__memory_entry__init(to);
    COPY(limit);
    COPY(usage);
    COPY(max);
    COPY(failcnt);
    return to;
}

struct blkio_list {
    V1(BlkIOEntry) * item;
    V1(BlkIOEntry) * *list;
};

static void v1_blkio_list(const struct cgroup_v1_blkio_entry *from, size_t n, struct blkio_list *to)
{
    to->item = xcalloc(n + 1, sizeof *to->item);
    to->list = xcalloc(n + 1, sizeof *to->list);
    for (size_t i = 0; i < n; i++) {
        io__containerd__cgroups__v1__blk_ioentry__init(&to->item[i]);
        to->item[i].op = text(from[i].op);
        to->item[i].major = from[i].major;
        to->item[i].minor = from[i].minor;
        to->item[i].value = from[i].value;
        to->list[i] = &to->item[i];
    }
}

static void v1_blkio(const struct cgroup_v1_stats *s, struct blkio_list lists[BLKIO_KINDS],
                     V1(BlkIOStat) * to)
{
    io__containerd__cgroups__v1__blk_iostat__init(to);
    struct {
        size_t *n;
        V1(BlkIOEntry) * **list;
    } out[BLKIO_KINDS] = {
        [BLKIO_SERVICE_BYTES] = {&to->n_io_service_bytes_recursive, &to->io_service_bytes_recursive},
        [BLKIO_SERVICED] = {&to->n_io_serviced_recursive, &to->io_serviced_recursive},
        [BLKIO_QUEUED] = {&to->n_io_queued_recursive, &to->io_queued_recursive},
        [BLKIO_SERVICE_TIME] = {&to->n_io_service_time_recursive, &to->io_service_time_recursive},
        [BLKIO_WAIT_TIME] = {&to->n_io_wait_time_recursive, &to->io_wait_time_recursive},
        [BLKIO_MERGED] = {&to->n_io_merged_recursive, &to->io_merged_recursive},
        [BLKIO_TIME] = {&to->n_io_time_recursive, &to->io_time_recursive},
        [BLKIO_SECTORS] = {&to->n_sectors_recursive, &to->sectors_recursive},
    };
    for (int i = 0; i < BLKIO_KINDS; i++) {
        v1_blkio_list(s->blkio[i], s->n_blkio[i], &lists[i]);
        *out[i].n = s->n_blkio[i];
        *out[i].list = lists[i].list;
    }
}

struct v1_parts {
    V1(Metrics) m;
    V1(PidsStat) pids;
    V1(CPUStat) cpu;
    V1(CPUUsage) cpu_usage;
    V1(Throttle) throttle;
    V1(MemoryStat) memory;
    V1(MemoryEntry) entry[4];
    V1(BlkIOStat) blkio;
    struct blkio_list blkio_list[BLKIO_KINDS];
    V1(HugetlbStat) hugetlb[CGROUP_HUGETLB_MAX];
    V1(HugetlbStat) * hugetlb_list[CGROUP_HUGETLB_MAX];
    V1(RdmaStat) rdma;
    V1(RdmaEntry) rdma_entry[2 * CGROUP_RDMA_MAX];
    V1(RdmaEntry) * rdma_list[2 * CGROUP_RDMA_MAX];
    V1(MemoryOomControl) oom;
};

static void v1_cpu(const struct cgroup_v1_stats *s, struct v1_parts *p)
{
    io__containerd__cgroups__v1__cpustat__init(&p->cpu);
    io__containerd__cgroups__v1__cpuusage__init(&p->cpu_usage);
    p->cpu_usage.total = s->cpu_total;
    p->cpu_usage.kernel = s->cpu_kernel;
    p->cpu_usage.user = s->cpu_user;
    p->cpu_usage.per_cpu = s->per_cpu;
    p->cpu_usage.n_per_cpu = s->n_per_cpu;
    p->cpu.usage = &p->cpu_usage;
    if (s->has_throttling) {
        io__containerd__cgroups__v1__throttle__init(&p->throttle);
        p->throttle.periods = s->throttling_periods;
        p->throttle.throttled_periods = s->throttled_periods;
        p->throttle.throttled_time = s->throttled_time;
        p->cpu.throttling = &p->throttle;
    }
    p->m.cpu = &p->cpu;
}

static void v1_all_memory(const struct cgroup_v1_stats *s, struct v1_parts *p)
{
    io__containerd__cgroups__v1__memory_stat__init(&p->memory);
    v1_memory(&s->memory, &p->memory);
    p->memory.usage = v1_entry(&s->usage, &p->entry[0]);
    p->memory.swap = v1_entry(&s->swap, &p->entry[1]);
    p->memory.kernel = v1_entry(&s->kernel, &p->entry[2]);
    p->memory.kernel_tcp = v1_entry(&s->kernel_tcp, &p->entry[3]);
    p->m.memory = &p->memory;
}

static void v1_rdma(const struct cgroup_stats *s, struct v1_parts *p)
{
    io__containerd__cgroups__v1__rdma_stat__init(&p->rdma);
    for (size_t i = 0; i < s->n_rdma_current + s->n_rdma_limit; i++) {
        bool current = i < s->n_rdma_current;
        const struct cgroup_rdma_stat *from =
            current ? &s->rdma_current[i] : &s->rdma_limit[i - s->n_rdma_current];
        V1(RdmaEntry) *to = &p->rdma_entry[i];
        io__containerd__cgroups__v1__rdma_entry__init(to);
        to->device = text(from->device);
        COPY(hca_handles);
        COPY(hca_objects);
        p->rdma_list[i] = to;
    }
    p->rdma.current = p->rdma_list;
    p->rdma.n_current = s->n_rdma_current;
    p->rdma.limit = p->rdma_list + s->n_rdma_current;
    p->rdma.n_limit = s->n_rdma_limit;
    if (s->n_rdma_current + s->n_rdma_limit > 0)
        p->m.rdma = &p->rdma;
}

static void v1_hugetlb(const struct cgroup_stats *s, struct v1_parts *p)
{
    for (size_t i = 0; i < s->n_hugetlb; i++) {
        const struct cgroup_hugetlb_stat *from = &s->hugetlb[i];
        V1(HugetlbStat) *to = &p->hugetlb[i];
        io__containerd__cgroups__v1__hugetlb_stat__init(to);
        COPY(usage);
        COPY(max);
        COPY(failcnt);
        to->pagesize = text(from->pagesize);
        p->hugetlb_list[i] = to;
    }
    p->m.hugetlb = p->hugetlb_list;
    p->m.n_hugetlb = s->n_hugetlb;
}

static uint8_t *pack_v1(const struct cgroup_stats *s, size_t *ret_len)
{
    scoped_free struct v1_parts *p = xcalloc(1, sizeof *p);

    io__containerd__cgroups__v1__metrics__init(&p->m);
    if (s->has_pids) {
        io__containerd__cgroups__v1__pids_stat__init(&p->pids);
        p->pids.current = s->pids.current;
        p->pids.limit = s->pids.limit;
        p->m.pids = &p->pids;
    }
    if (s->v1.has_cpu)
        v1_cpu(&s->v1, p);
    if (s->v1.has_memory)
        v1_all_memory(&s->v1, p);
    if (s->v1.has_blkio) {
        v1_blkio(&s->v1, p->blkio_list, &p->blkio);
        p->m.blkio = &p->blkio;
    }
    if (s->v1.has_oom_control) {
        io__containerd__cgroups__v1__memory_oom_control__init(&p->oom);
        p->oom.oom_kill_disable = s->v1.oom_kill_disable;
        p->oom.under_oom = s->v1.under_oom;
        p->oom.oom_kill = s->v1.oom_kill;
        p->m.memory_oom_control = &p->oom;
    }
    v1_hugetlb(s, p);
    v1_rdma(s, p);
    uint8_t *buf = service_pack(&p->m.base, ret_len);
    for (int i = 0; i < BLKIO_KINDS; i++) {
        free(p->blkio_list[i].item);
        free(p->blkio_list[i].list);
    }
    return buf;
}

/* ------------------------------------------------------------------ v2 */

#define V2(name) Io__Containerd__Cgroups__V2__##name

struct psi_parts {
    V2(PSIStats) stats;
    V2(PSIData) some, full;
};

static void psi_data(const struct cgroup_psi_data *from, V2(PSIData) * to)
{
    io__containerd__cgroups__v2__psidata__init(to);
    COPY(avg10);
    COPY(avg60);
    COPY(avg300);
    COPY(total);
}

static V2(PSIStats) * v2_psi(const struct cgroup_psi *from, struct psi_parts *to)
{
    if (!from->has)
        return NULL;
    io__containerd__cgroups__v2__psistats__init(&to->stats);
    psi_data(&from->some, &to->some);
    psi_data(&from->full, &to->full);
    to->stats.some = &to->some;
    to->stats.full = &to->full;
    return &to->stats;
}

struct v2_parts {
    V2(Metrics) m;
    V2(PidsStat) pids;
    V2(CPUStat) cpu;
    V2(MemoryStat) memory;
    V2(MemoryEvents) events;
    V2(IOStat) io;
    V2(IOEntry) * io_entry;
    V2(IOEntry) * *io_list;
    struct psi_parts cpu_psi, memory_psi, io_psi;
    V2(HugeTlbStat) hugetlb[CGROUP_HUGETLB_MAX];
    V2(HugeTlbStat) * hugetlb_list[CGROUP_HUGETLB_MAX];
    V2(RdmaStat) rdma;
    V2(RdmaEntry) rdma_entry[2 * CGROUP_RDMA_MAX];
    V2(RdmaEntry) * rdma_list[2 * CGROUP_RDMA_MAX];
};

static void v2_cpu(const struct cgroup_v2_stats *from, struct v2_parts *p)
{
    V2(CPUStat) *to = &p->cpu;

    io__containerd__cgroups__v2__cpustat__init(to);
    COPY(usage_usec);
    COPY(user_usec);
    COPY(system_usec);
    COPY(nr_periods);
    COPY(nr_throttled);
    COPY(throttled_usec);
    COPY(nr_bursts);
    COPY(burst_usec);
    to->psi = v2_psi(&from->cpu_psi, &p->cpu_psi);
    p->m.cpu = to;
}

static void v2_memory(const struct cgroup_v2_memory *from, struct v2_parts *p)
{
    V2(MemoryStat) *to = &p->memory;

    io__containerd__cgroups__v2__memory_stat__init(to);
    COPY(anon);
    COPY(file);
    COPY(kernel_stack);
    COPY(slab);
    COPY(sock);
    COPY(shmem);
    COPY(file_mapped);
    COPY(file_dirty);
    COPY(file_writeback);
    COPY(anon_thp);
    COPY(inactive_anon);
    COPY(active_anon);
    COPY(inactive_file);
    COPY(active_file);
    COPY(unevictable);
    COPY(slab_reclaimable);
    COPY(slab_unreclaimable);
    COPY(pgfault);
    COPY(pgmajfault);
    COPY(workingset_refault);
    COPY(workingset_activate);
    COPY(workingset_nodereclaim);
    COPY(pgrefill);
    COPY(pgscan);
    COPY(pgsteal);
    COPY(pgactivate);
    COPY(pgdeactivate);
    COPY(pglazyfree);
    COPY(pglazyfreed);
    COPY(thp_fault_alloc);
    COPY(thp_collapse_alloc);
    COPY(usage);
    COPY(usage_limit);
    COPY(swap_usage);
    COPY(swap_limit);
    COPY(max_usage);
    COPY(swap_max_usage);
    COPY(workingset_refault_anon);
    COPY(workingset_refault_file);
    COPY(workingset_activate_anon);
    COPY(workingset_activate_file);
    to->psi = v2_psi(&from->psi, &p->memory_psi);
    p->m.memory = to;
}

static void v2_io(const struct cgroup_v2_stats *s, struct v2_parts *p)
{
    p->io_entry = xcalloc(s->n_io + 1, sizeof *p->io_entry);
    p->io_list = xcalloc(s->n_io + 1, sizeof *p->io_list);
    for (size_t i = 0; i < s->n_io; i++) {
        const struct cgroup_v2_io_entry *from = &s->io[i];
        V2(IOEntry) *to = &p->io_entry[i];
        io__containerd__cgroups__v2__ioentry__init(to);
        COPY(major);
        COPY(minor);
        COPY(rbytes);
        COPY(wbytes);
        COPY(rios);
        COPY(wios);
        p->io_list[i] = to;
    }
    io__containerd__cgroups__v2__iostat__init(&p->io);
    p->io.usage = p->io_list;
    p->io.n_usage = s->n_io;
    p->io.psi = v2_psi(&s->io_psi, &p->io_psi);
    p->m.io = &p->io;
}

static void v2_hugetlb_rdma(const struct cgroup_stats *s, struct v2_parts *p)
{
    for (size_t i = 0; i < s->n_hugetlb; i++) {
        V2(HugeTlbStat) *to = &p->hugetlb[i];
        io__containerd__cgroups__v2__huge_tlb_stat__init(to);
        to->current = s->hugetlb[i].usage;
        to->max = s->hugetlb[i].max;
        to->failcnt = s->hugetlb[i].failcnt;
        to->pagesize = text(s->hugetlb[i].pagesize);
        p->hugetlb_list[i] = to;
    }
    p->m.hugetlb = p->hugetlb_list;
    p->m.n_hugetlb = s->n_hugetlb;

    io__containerd__cgroups__v2__rdma_stat__init(&p->rdma);
    for (size_t i = 0; i < s->n_rdma_current + s->n_rdma_limit; i++) {
        bool current = i < s->n_rdma_current;
        const struct cgroup_rdma_stat *from =
            current ? &s->rdma_current[i] : &s->rdma_limit[i - s->n_rdma_current];
        V2(RdmaEntry) *to = &p->rdma_entry[i];
        io__containerd__cgroups__v2__rdma_entry__init(to);
        to->device = text(from->device);
        COPY(hca_handles);
        COPY(hca_objects);
        p->rdma_list[i] = to;
    }
    p->rdma.current = p->rdma_list;
    p->rdma.n_current = s->n_rdma_current;
    p->rdma.limit = p->rdma_list + s->n_rdma_current;
    p->rdma.n_limit = s->n_rdma_limit;
    if (s->n_rdma_current + s->n_rdma_limit > 0)
        p->m.rdma = &p->rdma;
}

static void v2_events(const struct cgroup_v2_stats *s, struct v2_parts *p)
{
    io__containerd__cgroups__v2__memory_events__init(&p->events);
    p->events.low = s->events_low;
    p->events.high = s->events_high;
    p->events.max = s->events_max;
    p->events.oom = s->events_oom;
    p->events.oom_kill = s->events_oom_kill;
    p->events.oom_group_kill = s->events_oom_group_kill;
    p->m.memory_events = &p->events;
}

static uint8_t *pack_v2(const struct cgroup_stats *s, size_t *ret_len)
{
    scoped_free struct v2_parts *p = xcalloc(1, sizeof *p);

    io__containerd__cgroups__v2__metrics__init(&p->m);
    if (s->has_pids) {
        io__containerd__cgroups__v2__pids_stat__init(&p->pids);
        p->pids.current = s->pids.current;
        p->pids.limit = s->pids.limit;
        p->m.pids = &p->pids;
    }
    if (s->v2.has_cpu)
        v2_cpu(&s->v2, p);
    if (s->v2.has_memory)
        v2_memory(&s->v2.memory, p);
    if (s->v2.has_io)
        v2_io(&s->v2, p);
    if (s->v2.has_memory_events)
        v2_events(&s->v2, p);
    v2_hugetlb_rdma(s, p);
    uint8_t *buf = service_pack(&p->m.base, ret_len);
    free(p->io_entry);
    free(p->io_list);
    return buf;
}

uint8_t *pack_stats(const struct cgroup_stats *s, const char **ret_type, size_t *ret_len)
{
    bool v2 = s->mode == CGROUP_V2;

    *ret_type = v2 ? "io.containerd.cgroups.v2.Metrics" : "io.containerd.cgroups.v1.Metrics";
    return v2 ? pack_v2(s, ret_len) : pack_v1(s, ret_len);
}
