#pragma once
/*
 * What a control group has used and may use, as plain numbers: the fields of containerd's
 * io.containerd.cgroups.v1.Metrics and v2.Metrics under their protobuf names, in their order.
 * `mode` tells which half is filled.  A group of numbers whose files do not exist on this host has
 * its has_ flag clear and is left out of the message.  UINT64_MAX = "max" on v2; v1 limits are as the
 * kernel prints them.  Network counters are not the cgroup's; the service adds them.
 */
#include "shim/cgroup/cgroup.h"

struct cgroup_pids_stat {
    uint64_t current, limit; /* limit: v1 0 = unlimited, v2 UINT64_MAX = unlimited */
};
struct cgroup_hugetlb_stat {
    char pagesize[16];            /* "2MB" */
    uint64_t usage, max, failcnt; /* max: v1 the high-water mark, v2 the limit */
};
struct cgroup_rdma_stat {
    char device[32];
    uint32_t hca_handles, hca_objects;
};
#define CGROUP_HUGETLB_MAX 8
#define CGROUP_RDMA_MAX    8

struct cgroup_v1_memory {
    uint64_t cache, rss, rss_huge, mapped_file, dirty, writeback, pg_pg_in, pg_pg_out, pg_fault, pg_maj_fault;
    uint64_t inactive_anon, active_anon, inactive_file, active_file, unevictable;
    uint64_t hierarchical_memory_limit, hierarchical_swap_limit;
    uint64_t total_cache, total_rss, total_rss_huge, total_mapped_file, total_dirty, total_writeback;
    uint64_t total_pg_pg_in, total_pg_pg_out, total_pg_fault, total_pg_maj_fault;
    uint64_t total_inactive_anon, total_active_anon, total_inactive_file, total_active_file,
        total_unevictable;
};
struct cgroup_v1_memory_entry {
    bool has;
    uint64_t limit, usage, max, failcnt;
};
struct cgroup_v1_blkio_entry {
    char op[12]; /* "Read", "Write", "Sync", ..., "" where the file has no operation */
    uint64_t major, minor, value;
};
/* In the order of the message BlkIOStat. */
enum cgroup_v1_blkio {
    BLKIO_SERVICE_BYTES,
    BLKIO_SERVICED,
    BLKIO_QUEUED,
    BLKIO_SERVICE_TIME,
    BLKIO_WAIT_TIME,
    BLKIO_MERGED,
    BLKIO_TIME,
    BLKIO_SECTORS,
    BLKIO_KINDS
};
struct cgroup_v1_stats {
    bool has_cpu, has_throttling, has_memory, has_blkio, has_oom_control;
    uint64_t cpu_total, cpu_kernel, cpu_user; /* ns */
    uint64_t *per_cpu;                        /* ns, n_per_cpu of them */
    size_t n_per_cpu;
    uint64_t throttling_periods, throttled_periods, throttled_time; /* time in ns */
    struct cgroup_v1_memory memory;
    struct cgroup_v1_memory_entry usage, swap, kernel, kernel_tcp; /* swap = memory.memsw */
    struct cgroup_v1_blkio_entry *blkio[BLKIO_KINDS];
    size_t n_blkio[BLKIO_KINDS];
    uint64_t oom_kill_disable, under_oom, oom_kill;
};

struct cgroup_psi_data {
    double avg10, avg60, avg300;
    uint64_t total; /* us */
};
struct cgroup_psi {
    bool has;
    struct cgroup_psi_data some, full;
};
struct cgroup_v2_memory {
    uint64_t anon, file, kernel_stack, slab, sock, shmem, file_mapped, file_dirty, file_writeback, anon_thp;
    uint64_t inactive_anon, active_anon, inactive_file, active_file, unevictable;
    uint64_t slab_reclaimable, slab_unreclaimable, pgfault, pgmajfault;
    uint64_t workingset_refault, workingset_activate, workingset_nodereclaim;
    uint64_t pgrefill, pgscan, pgsteal, pgactivate, pgdeactivate, pglazyfree, pglazyfreed;
    uint64_t thp_fault_alloc, thp_collapse_alloc;
    uint64_t usage, usage_limit, swap_usage, swap_limit, max_usage, swap_max_usage;
    struct cgroup_psi psi;
    uint64_t workingset_refault_anon, workingset_refault_file, workingset_activate_anon,
        workingset_activate_file;
};
struct cgroup_v2_io_entry {
    uint64_t major, minor, rbytes, wbytes, rios, wios;
};
struct cgroup_v2_stats {
    bool has_cpu, has_memory, has_io, has_memory_events;
    uint64_t usage_usec, user_usec, system_usec, nr_periods, nr_throttled, throttled_usec, nr_bursts,
        burst_usec;
    struct cgroup_psi cpu_psi;
    struct cgroup_v2_memory memory;
    struct cgroup_v2_io_entry *io;
    size_t n_io;
    struct cgroup_psi io_psi;
    uint64_t events_low, events_high, events_max, events_oom, events_oom_kill, events_oom_group_kill;
};

struct cgroup_stats {
    enum cgroup_mode mode;
    bool has_pids;
    struct cgroup_pids_stat pids;
    struct cgroup_hugetlb_stat hugetlb[CGROUP_HUGETLB_MAX];
    size_t n_hugetlb;
    struct cgroup_rdma_stat rdma_current[CGROUP_RDMA_MAX], rdma_limit[CGROUP_RDMA_MAX];
    size_t n_rdma_current, n_rdma_limit;
    struct cgroup_v1_stats v1;
    struct cgroup_v2_stats v2;
};

/* cgroup_stats_read() zeroes *out first; release with this, also after a failure. */
void cgroup_stats_done(struct cgroup_stats *s);
