/*
 * What glovebox refuses by design.  Every rule is one function and one sentence that names the field
 * and says what would be right; nothing is quietly weakened, because then a pod would run with less
 * than it asked for, or with more than the sandbox allows.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/macro.h"
#include "shim/oci/spec.h"

#define S struct spec

/* ---- namespaces ---------------------------------------------------------------------------------------- */

static const struct {
    enum spec_ns ns;
    const char *name, *file;
    bool required;
    const char *advice;
} ns_rules[] = {
    {SPEC_NS_NETWORK, "network", "net", true,
     "a sandbox never uses the host's network; set hostNetwork: false"},
    {SPEC_NS_PID, "pid", "pid", true, "a sandbox never sees the host's processes; set hostPID: false"},
    {SPEC_NS_IPC, "ipc", "ipc", true, "a sandbox never shares the host's IPC; set hostIPC: false"},
    {SPEC_NS_UTS, "uts", "uts", true, "a sandbox has a host name of its own; give it a uts namespace"},
    {SPEC_NS_MOUNT, "mount", "mnt", true, "a sandbox has mounts of its own; give it a mount namespace"},
    {SPEC_NS_USER, "user", "user", false,
     "a sandbox has a user namespace of its own; leave the entry out or give it id mappings"},
};

/* Is the file at path the namespace that we, or the host's init, live in? */
static bool is_host_namespace(const char *path, const char *file)
{
    static const char *const owner[] = {"self", "1"};
    struct stat given, host;

    if (stat(path, &given) < 0)
        return false; /* who joins it reports that it does not exist */
    for (size_t i = 0; i < ARRAY_LEN(owner); i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "/proc/%s/ns/%s", owner[i], file);
        if (stat(name, &host) == 0 && given.st_dev == host.st_dev && given.st_ino == host.st_ino)
            return true;
    }
    return false;
}

static int check_namespaces(const S *s, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(ns_rules); i++) {
        const struct spec_namespace *ns = &s->ns[ns_rules[i].ns];
        if (!ns->present && ns_rules[i].required)
            return err_set(e, -EPERM, "linux.namespaces has no %s entry: %s", ns_rules[i].name,
                           ns_rules[i].advice);
        if (ns->path && is_host_namespace(ns->path, ns_rules[i].file))
            return err_set(e, -EPERM, "linux.namespaces: the %s path %.128s is the host's own: %s",
                           ns_rules[i].name, ns->path, ns_rules[i].advice);
    }
    if (s->ns[SPEC_NS_MOUNT].path)
        return err_set(e, -EPERM,
                       "linux.namespaces: the mount entry must not have a path: every container of a sandbox "
                       "gets mounts of its own");
    return 0;
}

/* Mapped host ids become the container's; the host's root must not be among them. */
static int check_id_maps(const S *s, struct err *e)
{
    const struct {
        const char *name;
        const struct spec_id_map *map;
        size_t n;
    } maps[] = {{"uidMappings", s->uid_map, s->n_uid_map}, {"gidMappings", s->gid_map, s->n_gid_map}};

    if (s->n_uid_map + s->n_gid_map > 0 && !s->ns[SPEC_NS_USER].present)
        return err_set(e, -EINVAL, "linux.%s needs a user entry in linux.namespaces",
                       s->n_uid_map ? maps[0].name : maps[1].name);
    for (size_t i = 0; i < ARRAY_LEN(maps); i++)
        for (size_t k = 0; k < maps[i].n; k++)
            if (maps[i].map[k].host_id == 0)
                return err_set(
                    e, -EPERM,
                    "linux.%s[%zu].hostID is 0, the host's root: map the sandbox to a range of unused ids",
                    maps[i].name, k);
    return 0;
}

/* ---- privileges ---------------------------------------------------------------------------------------- */

static bool has_option(const struct spec_mount *m, const char *word)
{
    for (size_t i = 0; i < m->options.n; i++)
        if (strcmp(m->options.item[i], word) == 0)
            return true;
    return false;
}

static bool sysfs_is_writable(const S *s)
{
    for (size_t i = 0; i < s->n_mounts; i++)
        if (s->mounts[i].type && strcmp(s->mounts[i].type, "sysfs") == 0)
            return !has_option(&s->mounts[i], "ro");
    return false;
}

/* A rule that opens every device: engines send it for privileged containers and for nothing else. */
static bool allows_all(const struct spec_device_rule *r)
{
    bool any = r->type == 'a' || (r->major < 0 && r->minor < 0);
    return r->allow && any &&
           (strchr(r->access, 'r') || strchr(r->access, 'w')); /* "m" alone for all is ordinary */
}

/*
 * Privileged: every device open; or, where the engine leaves the devices out, all the other signs
 * together.  Each sign alone is ordinary: capabilities "ALL" count inside of the user namespace only,
 * and unmasked /proc is what procMount: Unmasked asks for.
 */
static int check_privileged(const S *s, struct err *e)
{
    /* Not all of them: an engine gives what it has itself, which may lack some. */
    static const uint64_t telling =
        UINT64_C(1) << CAP_SYS_ADMIN | UINT64_C(1) << CAP_SYS_MODULE | UINT64_C(1) << CAP_SYS_RAWIO;
    static const char advice[] = "glovebox runs no privileged containers; set privileged: false";

    for (size_t i = 0; i < s->resources.n_devices; i++)
        if (allows_all(&s->resources.devices[i]))
            return err_set(e, -EPERM, "linux.resources.devices[%zu] allows all devices of the host: %s", i,
                           advice);
    if (s->has_process && (s->process.caps[SPEC_CAP_BOUNDING] & telling) == telling &&
        s->masked_paths.n == 0 && s->readonly_paths.n == 0 && !s->seccomp_json && sysfs_is_writable(s))
        return err_set(
            e, -EPERM,
            "process.capabilities asks for everything, with a writable /sys and nothing masked: %s", advice);
    return 0;
}

static const struct {
    const char *path;
    int64_t major, minor;
} known_devices[] = {
    {"/dev/null", 1, 3},    {"/dev/zero", 1, 5}, {"/dev/full", 1, 7},    {"/dev/random", 1, 8},
    {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0},  {"/dev/console", 5, 1}, {"/dev/ptmx", 5, 2},
};

static int check_devices(const S *s, struct err *e)
{
    for (size_t i = 0; i < s->n_devices; i++) {
        const struct spec_device *d = &s->devices[i];
        bool known = false;
        for (size_t k = 0; k < ARRAY_LEN(known_devices) && !known; k++)
            known = (d->type == 'c' || d->type == 'u') && strcmp(d->path, known_devices[k].path) == 0 &&
                    d->major == known_devices[k].major && d->minor == known_devices[k].minor;
        if (!known)
            return err_set(e, -EPERM,
                           "linux.devices[%zu]: %.128s (%c %" PRId64 ":%" PRId64 ") is a device of the host; "
                           "a sandbox has null, zero, full, random, urandom, tty, console, ptmx and pts only",
                           i, d->path, d->type, d->major, d->minor);
    }
    return 0;
}

/* ---- mounts ---------------------------------------------------------------------------------------------
 */

static bool is_word(const char *const *words, size_t n, const char *s)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(words[i], s) == 0)
            return true;
    return false;
}

static int check_one_mount(const struct spec_mount *m, size_t i, struct err *e)
{
    static const char *const types[] = {"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2"};

    if (has_option(m, "shared") || has_option(m, "rshared"))
        return err_set(e, -EPERM,
                       "mounts[%zu].options: shared propagation of %.128s is refused: mounts of a sandbox "
                       "never reach the host; "
                       "use mountPropagation None or HostToContainer",
                       i, m->destination);
    bool bind = has_option(m, "bind") || has_option(m, "rbind") || (m->type && strcmp(m->type, "bind") == 0);
    if (bind && !m->source)
        return err_set(e, -EINVAL, "mounts[%zu].source is missing: a bind mount on %.128s needs one", i,
                       m->destination);
    if (!bind && !(m->type && is_word(types, ARRAY_LEN(types), m->type)))
        return err_set(e, -EPERM,
                       "mounts[%zu].type: a sandbox cannot mount \"%.32s\" on %.128s; bind a directory of "
                       "the host instead",
                       i, m->type ? m->type : "", m->destination);
    return 0;
}

static int check_mounts(const S *s, struct err *e)
{
    for (size_t i = 0; i < s->n_mounts; i++) {
        int r = check_one_mount(&s->mounts[i], i, e);
        if (r < 0)
            return r;
    }
    const char *p = s->rootfs_propagation;
    if (p && (strcmp(p, "shared") == 0 || strcmp(p, "rshared") == 0))
        return err_set(e, -EPERM,
                       "linux.rootfsPropagation must not be %s: mounts of a sandbox never reach the host; "
                       "use private or slave",
                       p);
    return 0;
}

/* ---- sysctl ----------------------------------------------------------------------------------------------
 */

/* Those that belong to a namespace which the sandbox has to itself; a name that ends in "." is a prefix. */
static const char *const own_sysctls[] = {
    "net.",
    "fs.mqueue.",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.domainname",
    "kernel.msg_next_id",
    "kernel.sem_next_id",
    "kernel.shm_next_id",
    "kernel.auto_msgmni",
};

/* The name becomes a path below /proc/sys: letters, digits and single separators, so it cannot leave it. */
static bool is_sysctl_name(const char *name)
{
    for (const char *p = name; *p; p++) {
        bool separator = *p == '.' || *p == '/';
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     *p == '_' || *p == '-' || *p == '@';
        if (!separator && !plain)
            return false;
        if (separator && (p == name || !p[1] || p[1] == '.' || p[1] == '/'))
            return false;
    }
    return name[0] && strlen(name) < 256;
}

static bool is_own_sysctl(const char *name)
{
    char dotted[256];

    if (!is_sysctl_name(name))
        return false;
    /* "net/ipv4/conf/eth0.1/..." and "net.ipv4..." both occur; the class is in the first words either way. */
    size_t n = strlen(name);
    for (size_t i = 0; i <= n; i++)
        dotted[i] = (char)(name[i] == '/' ? '.' : name[i]);
    for (size_t i = 0; i < ARRAY_LEN(own_sysctls); i++) {
        size_t len = strlen(own_sysctls[i]);
        bool prefix = own_sysctls[i][len - 1] == '.';
        if (prefix ? strncmp(dotted, own_sysctls[i], len) == 0 : strcmp(dotted, own_sysctls[i]) == 0)
            return true;
    }
    return false;
}

static int check_sysctls(const S *s, struct err *e)
{
    for (size_t i = 0; i < s->n_sysctl; i++) {
        if (strcmp(s->sysctl[i].key, "kernel.hostname") == 0)
            return err_set(e, -EINVAL, "linux.sysctl.kernel.hostname: use hostname instead");
        if (!is_own_sysctl(s->sysctl[i].key))
            return err_set(e, -EPERM,
                           "linux.sysctl.%.128s is not a setting of the sandbox's own namespaces: "
                           "only net.*, fs.mqueue.*, kernel.shm*, kernel.sem and kernel.msg* are",
                           s->sysctl[i].key);
    }
    return 0;
}

/* ---- the rest --------------------------------------------------------------------------------------------
 */

static bool is_zero(const struct spec_time_offset *t)
{
    return t->secs == 0 && t->nanosecs == 0;
}

static int check_unsupported(const S *s, struct err *e)
{
    const struct {
        bool asked;
        const char *sentence;
    } rules[] = {
        {s->has_intel_rdt, "linux.intelRdt is not supported: leave the RDT class out"},
        {s->has_net_devices, "linux.netDevices is not supported: a sandbox has no network interfaces of its "
                             "own; the network plugin sets up the pod's"},
        {s->has_memory_policy, "linux.memoryPolicy is not supported: use linux.resources.cpu.mems"},
        {s->has_time_offsets && !(is_zero(&s->monotonic) && is_zero(&s->boottime)),
         "linux.timeOffsets is not supported: the clocks of a sandbox are the host's"},
        {s->has_seccomp_listener,
         "linux.seccomp.listenerPath is not supported: glovebox itself is the listener of a sandbox"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (rules[i].asked)
            return err_set(e, -EPERM, "%s", rules[i].sentence);
    return 0;
}

int spec_check(const S *s, struct err *e)
{
    static int (*const checks[])(const S *, struct err *) = {
        check_namespaces, check_id_maps, check_privileged,  check_devices,
        check_mounts,     check_sysctls, check_unsupported,
    };

    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        int r = checks[i](s, e);
        if (r < 0)
            return r;
    }
    return 0;
}
