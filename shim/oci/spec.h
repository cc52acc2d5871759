#pragma once
/*
 * An OCI runtime configuration (config.json, runtime-spec 1.x) as plain data.  Strings and arrays
 * belong to the struct spec; absent strings are NULL, absent numbers have a has_ flag.  Parsing
 * checks form only; what glovebox refuses by design is decided by spec_check().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "shim/oci/resources.h"

#define SPEC_MAX (8u << 20) /* bytes of config.json */

struct spec_strings {
    char **item; /* n strings and a closing NULL */
    size_t n;
};
enum {
    SPEC_CAP_BOUNDING,
    SPEC_CAP_EFFECTIVE,
    SPEC_CAP_INHERITABLE,
    SPEC_CAP_PERMITTED,
    SPEC_CAP_AMBIENT,
    SPEC_CAP_SETS
};

struct spec_rlimit {
    int resource; /* RLIMIT_* */
    uint64_t soft, hard;
};
/* Also the form of an exec (Task.Exec spec, containerd's JSON Process). */
struct spec_process {
    bool terminal;
    unsigned console_height, console_width;
    uint32_t uid, gid, umask; /* umask: SPEC_NO_UMASK when absent */
    uint32_t *groups;
    size_t n_groups;
    struct spec_strings args, env;
    char *cwd;
    uint64_t caps[SPEC_CAP_SETS]; /* bit n = capability n */
    struct spec_rlimit *rlimits;
    size_t n_rlimits;
    bool no_new_privileges;
    bool has_oom_score_adj;
    int oom_score_adj;
    char *apparmor_profile, *selinux_label;
    bool has_scheduler, has_io_priority;
    int sched_policy, sched_nice, sched_priority;         /* SCHED_* */
    uint64_t sched_flags;                                 /* SCHED_FLAG_* */
    uint64_t sched_runtime, sched_deadline, sched_period; /* ns, for SCHED_DEADLINE */
    int io_class, io_level;                               /* IOPRIO_CLASS_* 1..3, 0..7 */
    char *cpu_affinity_initial, *cpu_affinity_final;      /* execCPUAffinity lists, "0-3,7" */
};
#define SPEC_NO_UMASK UINT32_MAX

struct spec_id_map {
    uint32_t container_id, host_id, size;
};
struct spec_mount {
    char *destination, *type, *source;
    struct spec_strings options;
    struct spec_id_map *uid_map, *gid_map;
    size_t n_uid_map, n_gid_map;
};
struct spec_hook {
    char *path;
    struct spec_strings args, env;
    int timeout_s; /* 0 = none */
};
enum spec_hook_kind {
    HOOK_PRESTART,
    HOOK_CREATE_RUNTIME,
    HOOK_CREATE_CONTAINER,
    HOOK_START_CONTAINER,
    HOOK_POSTSTART,
    HOOK_POSTSTOP,
    HOOK_KINDS
};
struct spec_hooks {
    struct spec_hook *item;
    size_t n;
};
enum spec_ns {
    SPEC_NS_PID,
    SPEC_NS_NETWORK,
    SPEC_NS_MOUNT,
    SPEC_NS_IPC,
    SPEC_NS_UTS,
    SPEC_NS_USER,
    SPEC_NS_CGROUP,
    SPEC_NS_TIME,
    SPEC_NS_KINDS
};
struct spec_namespace {
    bool present;
    char *path; /* NULL = a new one */
};
struct spec_device {
    char type; /* 'c' 'b' 'u' 'p' */
    char *path;
    int64_t major, minor;
    uint32_t file_mode, uid, gid;
};

struct spec_time_offset {
    int64_t secs;
    uint32_t nanosecs;
};

struct spec {
    char *oci_version;
    bool has_process;
    struct spec_process process;
    char *root_path;
    bool root_readonly;
    char *hostname, *domainname;
    struct spec_mount *mounts;
    size_t n_mounts;
    struct spec_hooks hooks[HOOK_KINDS];
    struct spec_pair *annotations;
    size_t n_annotations;
    struct spec_namespace ns[SPEC_NS_KINDS];
    struct spec_id_map *uid_map, *gid_map;
    size_t n_uid_map, n_gid_map;
    struct spec_device *devices;
    size_t n_devices;
    char *cgroups_path;
    struct spec_resources resources;
    struct spec_pair *sysctl;
    size_t n_sysctl;
    char *seccomp_json; /* linux.seccomp as text, NULL when absent; numbers above 2^63-1 as the same 64 bits,
                           signed */
    bool has_seccomp_listener; /* linux.seccomp.listenerPath */
    char *rootfs_propagation, *mount_label;
    struct spec_strings masked_paths, readonly_paths;
    bool has_personality, has_intel_rdt, has_net_devices, has_memory_policy, has_time_offsets;
    char *personality; /* "LINUX" or "LINUX32" */
    struct spec_time_offset monotonic, boottime;
};

/* Read <bundle>/config.json.  On success *ret is the caller's; on failure untouched, and e names the field.
 */
int spec_load(int bundle_fd, struct spec **ret, struct err *e);
int spec_parse(const char *json, size_t len, struct spec **ret, struct err *e);
void spec_free(struct spec *s);
int spec_process_parse(const char *json, size_t len, struct spec_process **ret, struct err *e);
void spec_process_free(struct spec_process *p);

/*
 * What glovebox refuses by design, one sentence that names the field: host network, host pid, host
 * ipc, host uts namespaces, devices beyond the list, all capabilities with host devices (privileged),
 * Bidirectional propagation, unknown sysctls, intelRdt, netDevices.  -EPERM for policy, -EINVAL for nonsense.
 */
int spec_check(const struct spec *s, struct err *e);

const char *spec_annotation(const struct spec *s, const char *key); /* NULL = absent */
/* "sandbox", "container" (io.kubernetes.cri.container-type), or NULL outside of CRI. */
const char *spec_container_type(const struct spec *s);
/* The group of one shim: io.containerd.runc.v2.group, io.kubernetes.cri.sandbox-id, or NULL. */
const char *spec_group(const struct spec *s);
