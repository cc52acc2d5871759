#pragma once
/*
 * One container's control group in every hierarchy of the host: v2, or v1 controllers (a hybrid host
 * counts as v1 and its `unified` tree is joined as well).  Owns directory descriptors; the kernel
 * object lives until cgroup_remove().  Paths: "/a/b/c" (cgroupfs) and "slice:prefix:name" (systemd
 * style), made as plain directories with the names systemd would give them; when systemd runs on the
 * host its scope is created through D-Bus (org.freedesktop.systemd1 StartTransientUnit).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct cgroup;
struct spec_resources;
enum cgroup_mode { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };

enum cgroup_mode cgroup_host_mode(void); /* from /sys/fs/cgroup, read once */

/* Creates (or joins) the directories and applies res (may be NULL).  On failure nothing stays behind that was
 * made here. */
int cgroup_create(const char *cgroups_path, const struct spec_resources *res, struct cgroup **ret,
                  struct err *e);
/* Opens what exists, for a clean-up without a daemon; missing parts are fine. */
int cgroup_open(const char *cgroups_path, struct cgroup **ret, struct err *e);
/* A sibling leaf of cg named "<base of cg><suffix>", e.g. the sentry's. */
int cgroup_create_sibling(const struct cgroup *cg, const char *suffix, struct cgroup **ret, struct err *e);
/* The same sibling of the group at cgroups_path, which may be gone already; missing parts are fine. */
int cgroup_open_sibling(const char *cgroups_path, const char *suffix, struct cgroup **ret, struct err *e);
void cgroup_free(struct cgroup *cg);
/*
 * Pod limits from the CRI sandbox annotations, set on the parent of the sandbox's cgroup.  1: nothing was
 * done, because the parent is not the pod's alone, or because somebody else made it: a kubelet sets the
 * pod's limits itself, and knows what the annotations do not tell (overhead, containers without a limit).
 */
struct cgroup_pod_limits {
    int64_t cpu_period_us, cpu_quota_us, cpu_shares, memory_bytes; /* 0 = not given */
};
int cgroup_apply_pod(const struct cgroup *cg, const struct cgroup_pod_limits *limits, struct err *e);

/* Task.Update: only the fields that are present; on failure the old values are put back. */
int cgroup_update(struct cgroup *cg, const struct spec_resources *res, struct err *e);

/* How a process gets in.  v2: a directory for CLONE_INTO_CGROUP.  v1: one `tasks` file per hierarchy,
 * into which the process itself writes "0" (launcher.md: 0.1 ms instead of 10). Descriptors stay the
 * cgroup's. */
struct cgroup_entry {
    int v2_dir; /* also the unified tree of a hybrid host; -1 where there is none */
    const int *v1_tasks;
    size_t n_v1_tasks;
};
struct cgroup_entry cgroup_entry(const struct cgroup *cg);
/* Directories to show read-only under /sys/fs/cgroup: name ("" on v2, "memory" ...) and an O_PATH descriptor
 * of the cgroup's own directory. */
struct cgroup_view {
    const char *name;
    int dir;
    const char *alias[3]; /* v1 symlinks to it, "cpu" and "cpuacct" for "cpu,cpuacct"; NULL ends them */
};
size_t cgroup_views(const struct cgroup *cg, struct cgroup_view *out, size_t max);

/* Freezer.  cgroup_freeze starts it; cgroup_frozen tells: 1 frozen, 0 not yet, <0 error. */
int cgroup_freeze(struct cgroup *cg, bool frozen, struct err *e);
int cgroup_frozen(const struct cgroup *cg, struct err *e);
/* Signal every process; SIGKILL uses cgroup.kill on v2; a frozen v1 group is thawed after SIGKILL. */
int cgroup_kill(struct cgroup *cg, int signal, struct err *e);
int cgroup_pids(const struct cgroup *cg, pid_t **ret, size_t *ret_n, struct err *e);
bool cgroup_is_empty(const struct cgroup *cg);
/* rmdir everywhere, children first; -EBUSY while processes live. */
int cgroup_remove(struct cgroup *cg, struct err *e);
/* Asks the kernel to give back what it can: page cache, and with swap more.  Takes as long as the write-back
 * does. */
int cgroup_reclaim(const struct cgroup *cg, struct err *e);
/* Effective limits for the pod's view of itself; 0 = unlimited. cpus in thousandths. */
int64_t cgroup_memory_limit(const struct cgroup *cg);
int64_t cgroup_cpu_limit_milli(const struct cgroup *cg);

/* OOM: a descriptor for the loop (eventfd on v1, inotify on v2); cgroup_oom_count reads the real number of
 * kills. */
int cgroup_oom_fd(struct cgroup *cg, struct err *e); /* owned by cg; made at the first call */
void cgroup_oom_drain(struct cgroup *cg);
uint64_t cgroup_oom_count(const struct cgroup *cg);

/* Plain numbers for Task.Stats (shim-protocol.md 6.1); the service packs them. */
struct cgroup_stats;
int cgroup_stats_read(const struct cgroup *cg, struct cgroup_stats *out, struct err *e);
