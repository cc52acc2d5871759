#include "shim/oci/names.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/resource.h>

#include "base/macro.h"

const struct oci_name *oci_name_find(const struct oci_name *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static const char *name_of(const struct oci_name *table, size_t n, int value)
{
    for (size_t i = 0; i < n; i++)
        if (table[i].value == value)
            return table[i].name;
    return NULL;
}

#define CAP(x)                                                                                               \
    {                                                                                                        \
#x, x                                                                                                \
    }
static const struct oci_name caps[] = {
    CAP(CAP_CHOWN),
    CAP(CAP_DAC_OVERRIDE),
    CAP(CAP_DAC_READ_SEARCH),
    CAP(CAP_FOWNER),
    CAP(CAP_FSETID),
    CAP(CAP_KILL),
    CAP(CAP_SETGID),
    CAP(CAP_SETUID),
    CAP(CAP_SETPCAP),
    CAP(CAP_LINUX_IMMUTABLE),
    CAP(CAP_NET_BIND_SERVICE),
    CAP(CAP_NET_BROADCAST),
    CAP(CAP_NET_ADMIN),
    CAP(CAP_NET_RAW),
    CAP(CAP_IPC_LOCK),
    CAP(CAP_IPC_OWNER),
    CAP(CAP_SYS_MODULE),
    CAP(CAP_SYS_RAWIO),
    CAP(CAP_SYS_CHROOT),
    CAP(CAP_SYS_PTRACE),
    CAP(CAP_SYS_PACCT),
    CAP(CAP_SYS_ADMIN),
    CAP(CAP_SYS_BOOT),
    CAP(CAP_SYS_NICE),
    CAP(CAP_SYS_RESOURCE),
    CAP(CAP_SYS_TIME),
    CAP(CAP_SYS_TTY_CONFIG),
    CAP(CAP_MKNOD),
    CAP(CAP_LEASE),
    CAP(CAP_AUDIT_WRITE),
    CAP(CAP_AUDIT_CONTROL),
    CAP(CAP_SETFCAP),
    CAP(CAP_MAC_OVERRIDE),
    CAP(CAP_MAC_ADMIN),
    CAP(CAP_SYSLOG),
    CAP(CAP_WAKE_ALARM),
    CAP(CAP_BLOCK_SUSPEND),
    CAP(CAP_AUDIT_READ),
    CAP(CAP_PERFMON),
    CAP(CAP_BPF),
    CAP(CAP_CHECKPOINT_RESTORE),
};
_Static_assert(ARRAY_LEN(caps) == CAP_LAST_CAP + 1, "a capability of the kernel headers has no name here");

int oci_capability(const char *name)
{
    const struct oci_name *row = oci_name_find(caps, ARRAY_LEN(caps), name);
    return row ? row->value : -1;
}

const char *oci_capability_name(int number)
{
    return name_of(caps, ARRAY_LEN(caps), number);
}

#define LIMIT(x)                                                                                             \
    {                                                                                                        \
#x, x                                                                                                \
    }
static const struct oci_name rlimits[] = {
    LIMIT(RLIMIT_CPU),      LIMIT(RLIMIT_FSIZE), LIMIT(RLIMIT_DATA),   LIMIT(RLIMIT_STACK),
    LIMIT(RLIMIT_CORE),     LIMIT(RLIMIT_RSS),   LIMIT(RLIMIT_NPROC),  LIMIT(RLIMIT_NOFILE),
    LIMIT(RLIMIT_MEMLOCK),  LIMIT(RLIMIT_AS),    LIMIT(RLIMIT_LOCKS),  LIMIT(RLIMIT_SIGPENDING),
    LIMIT(RLIMIT_MSGQUEUE), LIMIT(RLIMIT_NICE),  LIMIT(RLIMIT_RTPRIO), LIMIT(RLIMIT_RTTIME),
};
_Static_assert(ARRAY_LEN(rlimits) == RLIMIT_NLIMITS, "a resource limit of the C library has no name here");

int oci_rlimit(const char *name)
{
    const struct oci_name *row = oci_name_find(rlimits, ARRAY_LEN(rlimits), name);
    return row ? row->value : -1;
}

const char *oci_rlimit_name(int resource)
{
    return name_of(rlimits, ARRAY_LEN(rlimits), resource);
}
