#pragma once
/* Shared by the files of shim/cgroup; nobody else includes it. */
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "base/scoped.h"
#include "shim/cgroup/cgroup.h"
#include "shim/oci/spec.h"

/* One bit per controller; the names are in host.c. */
enum cg_ctrl {
    CG_CPU = 1u << 0,
    CG_CPUACCT = 1u << 1,
    CG_CPUSET = 1u << 2,
    CG_MEMORY = 1u << 3,
    CG_DEVICES = 1u << 4,
    CG_FREEZER = 1u << 5,
    CG_IO = 1u << 6, /* v1: blkio */
    CG_PIDS = 1u << 7,
    CG_HUGETLB = 1u << 8,
    CG_NET_CLS = 1u << 9,
    CG_NET_PRIO = 1u << 10,
    CG_PERF_EVENT = 1u << 11,
    CG_RDMA = 1u << 12,
    CG_MISC = 1u << 13,
    CG_SYSTEMD = 1u << 14, /* the named v1 hierarchy */
    CG_CORE = 1u << 15     /* the v2 tree itself */
};
const char *cg_ctrl_name(enum cg_ctrl c, enum cgroup_mode mode); /* "memory", "blkio" or "io" */
unsigned cg_ctrl_bit(const char *name);                          /* 0: unknown */

#define CG_HIER_MAX 20
/* A mounted hierarchy. */
struct cg_hier {
    char mount[128]; /* "/sys/fs/cgroup/cpu,cpuacct" */
    char root[512];  /* what the mount shows of the hierarchy: "/" but inside of containers */
    unsigned ctrl;   /* v2: those the root offers */
    bool v2;
    int dir; /* the mount point; kept open for the life of the process */
};
struct cg_host {
    enum cgroup_mode mode;
    struct cg_hier hier[CG_HIER_MAX];
    size_t n;
};
const struct cg_host *cg_host(void); /* read at the first call */
/* Pure: the hierarchies named in the text of mountinfo, directories not opened. */
void cg_host_parse(const char *mountinfo, struct cg_host *out);
/* Pure: where /proc/self/cgroup says that a process is in a hierarchy; false: not in it. */
bool cg_own_path(const char *proc_cgroup, const struct cg_hier *h, char *ret, size_t size);

/* One directory of the cgroup. */
struct cg_dir {
    const struct cg_hier *hier;
    char *path; /* below the mount point, no slash at either end; "" never */
    int dir;    /* O_DIRECTORY */
    int tasks;  /* v1: O_WRONLY of `tasks`; v2 -1 */
    bool made;  /* the last component was made here, by cgroup_create() */
};
struct cgroup {
    enum cgroup_mode mode;
    struct cg_dir part[CG_HIER_MAX];
    size_t n;
    int v1_tasks[CG_HIER_MAX];
    size_t n_v1_tasks;
    char *unit;              /* the systemd scope that it is; NULL = plain directories */
    int oom_fd, oom_watched; /* v1: eventfd and memory.oom_control; v2: inotify */
};
/* The part with a controller; NULL: the host has no such hierarchy. */
const struct cg_dir *cg_part(const struct cgroup *cg, unsigned ctrl);
const struct cg_dir *cg_core(const struct cgroup *cg); /* the v2 tree, also of a hybrid host; may be NULL */

/* ---- files --------------------------------------------------------------------------------------- */

/* Length, or -errno; the text is terminated; a longer file is cut. */
ssize_t cg_read(int dir, const char *file, char *buf, size_t size);
int cg_read_u64(int dir, const char *file, uint64_t *ret); /* "max" is UINT64_MAX */
int cg_read_i64(int dir, const char *file, int64_t *ret);
int cg_write(int dir, const char *file, const char *text); /* 0 or -errno */
/* "key value" lines; false: no such key. */
bool cg_keyed(const char *text, const char *key, uint64_t *ret);

/* ---- paths ---------------------------------------------------------------------------------------- */

/*
 * Pure.  What cgroupsPath means as a path without slashes at its ends: "slice:prefix:name" is expanded
 * the systemd way.  *ret_relative: it did not begin with "/", so it belongs below the shim's own group.
 */
int cg_path_expand(const char *cgroups_path, char **ret, bool *ret_relative, struct err *e);
bool cg_path_is_systemd(const char *cgroups_path);

/* ---- what to write -------------------------------------------------------------------------------- */

enum {
    CG_RETRY = 1,     /* EINVAL may only mean that another value has to change first */
    CG_OPTIONAL = 2,  /* a missing file is no error */
    CG_PER_DEVICE = 4 /* the file holds one line per first word of the value */
};
struct cg_step {
    unsigned ctrl;
    char file[64], value[160];
    const char *text;     /* instead of value, when it is longer; borrowed from the resources */
    const char *alt_file; /* tried when file does not exist */
    char alt_value[48];
    char field[96]; /* "linux.resources.cpu.quota" */
    unsigned flags;
};
struct cg_plan {
    struct cg_step *step;
    size_t n, cap;
};
/* Values that a v2 file wants together with those that were given. */
struct cg_current {
    int64_t memory_max;                 /* -1 = unlimited */
    char cpu_quota[24], cpu_period[24]; /* "max", "100000" */
};
/* Pure: resources -> steps, in the order of writing. */
int cg_plan_v1(const struct spec_resources *res, struct cg_plan *ret, struct err *e);
int cg_plan_v2(const struct spec_resources *res, const struct cg_current *now, struct cg_plan *ret,
               struct err *e);
void cg_plan_done(struct cg_plan *p);
static inline void cg_plan_done_scoped(struct cg_plan *p)
{
    cg_plan_done(p);
}
struct cg_step *cg_plan_add(struct cg_plan *p, unsigned ctrl, const char *file, const char *field);
uint64_t cg_weight_from_shares(uint64_t shares); /* 2..262144 -> 1..10000 */
uint64_t cg_io_weight(uint64_t blkio_weight);    /* 10..1000 -> 1..10000 */

/* Does the steps. undo: on failure the old values are put back. */
int cg_apply(const struct cgroup *cg, const struct cg_plan *plan, bool undo, struct err *e);

/* ---- stats ---------------------------------------------------------------------------------------- */

struct cgroup_stats;
struct cgroup_psi;
struct cg_key {
    const char *key;
    size_t offset; /* of a uint64_t */
};
/* "key value" lines into the members of *out; unknown keys are skipped. */
void cg_parse_keyed(const char *text, const struct cg_key *keys, size_t n, void *out);
void cg_parse_psi(const char *text, struct cgroup_psi *out);
void cg_parse_memory_v1(const char *text, struct cgroup_stats *out);
void cg_parse_memory_v2(const char *text, struct cgroup_stats *out);
void cg_parse_blkio_v1(const char *text, int kind, struct cgroup_stats *out);
void cg_parse_io_v2(const char *text, struct cgroup_stats *out);
void cg_parse_rdma(const char *text, struct cgroup_stats *out, bool limit);
#define CG_STATS_BUF 32768 /* one file; a longer one loses its end */
void cg_stats_v1(const struct cgroup *cg, struct cgroup_stats *out, char *buf);
void cg_stats_v2(const struct cgroup *cg, struct cgroup_stats *out, char *buf);
/* Calls fn with "2MB", "1GB", ... for the huge page sizes of this machine. */
void cg_hugepage_sizes(void (*fn)(const char *size, void *data), void *data);

/* ---- systemd -------------------------------------------------------------------------------------- */

struct cg_scope {
    char *unit; /* the caller's */
    pid_t holder;
};
bool cg_systemd_runs(void); /* as process 1 of our own PID namespace, and it can be talked to */
/* Starts the scope of cgroups_path (systemd form), which expands to path; its directories exist afterwards.
 */
int cg_systemd_start(const char *cgroups_path, const char *path, const struct spec_resources *res,
                     struct cg_scope *ret, struct err *e);
void cg_systemd_abandon(const struct cg_scope *s); /* before the container is in it: the scope ends */
/* For an empty scope, before its directory goes: systemd does not notice an end that it cannot read about. */
int cg_systemd_stop(const char *unit, struct err *e);
int cg_systemd_update(const char *unit, const struct spec_resources *res, struct err *e);

/* ---- devices -------------------------------------------------------------------------------------- */

int cg_devices_v1(const struct cgroup *cg, const struct spec_resources *res, struct err *e);
int cg_devices_v2(const struct cgroup *cg, const struct spec_resources *res, struct err *e);

/* ---- directories ---------------------------------------------------------------------------------- */

/*
 * Makes (or finds) h->mount/path with its parents. 1: the last component was made, 0: it was there.
 * prepare (may be NULL) is called when the parents exist and path does not have to.
 */
typedef void cg_prepare(const struct cg_hier *h, const char *path);
int cg_mkdir(const struct cg_hier *h, const char *path, cg_prepare *prepare, struct err *e);
/* Removes dir/name with everything below; 0, -EBUSY while processes live; gone already is 0. */
int cg_rmdir(int dir, const char *name);
/* Removes parents of path that cg_mkdir() made and that are empty now. */
void cg_rmdir_parents(const struct cg_hier *h, const char *path);
/* Opens path below h, -errno. */
int cg_opendir(const struct cg_hier *h, const char *path);

/* ---- pids ----------------------------------------------------------------------------------------- */

struct cg_pids {
    pid_t *pid;
    size_t n, cap;
};
/* All processes at and below dir. */
int cg_pids_walk(int dir, struct cg_pids *ret, struct err *e);
