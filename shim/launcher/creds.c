#include "shim/launcher/creds.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/sys.h"

#define CAPS_KNOWN 64
#define IDS        65536u

static int set_caps(uint64_t effective, uint64_t permitted, uint64_t inheritable)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    for (int i = 0; i < 2; i++)
        data[i] = (struct __user_cap_data_struct){.effective = (uint32_t)(effective >> (32 * i)),
                                                  .permitted = (uint32_t)(permitted >> (32 * i)),
                                                  .inheritable = (uint32_t)(inheritable >> (32 * i))};
    return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

/* What this kernel knows; a specification for a newer one may name more. */
static uint64_t known_caps(void)
{
    uint64_t known = 0;

    for (int i = 0; i < CAPS_KNOWN && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
        known |= 1ull << i;
    return known;
}

static int drop_bounding(uint64_t keep, struct err *e)
{
    for (int i = 0; i < CAPS_KNOWN; i++) {
        int has = prctl(PR_CAPBSET_READ, i, 0, 0, 0);
        if (has < 0)
            break; /* beyond the last capability */
        if (has && !(keep & (1ull << i)) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) < 0)
            return err_sys(e, "drop capability %d from the bounding set", i);
    }
    return 0;
}

static int set_ids(const struct spec_process *p, struct err *e)
{
    for (size_t i = 0; i < p->n_groups; i++)
        if (p->groups[i] >= IDS)
            return err_set(e, -EINVAL, "id %u is outside the pod's range 0-65535.", p->groups[i]);
    if (p->uid >= IDS || p->gid >= IDS)
        return err_set(e, -EINVAL, "id %u is outside the pod's range 0-65535.",
                       p->uid >= IDS ? p->uid : p->gid);
    int r = sys_setgroups(p->n_groups, p->groups);
    if (r < 0)
        return err_set(e, r, "process.user.additionalGids: %s", strerror(-r));
    r = sys_setresgid(p->gid);
    if (r < 0)
        return err_set(e, r, "process.user.gid %u: %s", p->gid, strerror(-r));
    /* Otherwise leaving uid 0 drops the permitted set. Every capset and execve clears the flag's effect. */
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
        return err_sys(e, "PR_SET_KEEPCAPS");
    r = sys_setresuid(p->uid);
    if (r < 0)
        return err_set(e, r, "process.user.uid %u: %s", p->uid, strerror(-r));
    return prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) < 0 ? err_sys(e, "PR_SET_KEEPCAPS") : 0;
}

static int raise_ambient(const struct spec_process *p, uint64_t known, struct err *e)
{
    uint64_t want =
        p->caps[SPEC_CAP_AMBIENT] & p->caps[SPEC_CAP_INHERITABLE] & p->caps[SPEC_CAP_PERMITTED] & known;

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return err_sys(e, "clear ambient capabilities");
    for (int i = 0; i < CAPS_KNOWN; i++)
        if (want & (1ull << i) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0) < 0)
            return err_sys(e, "raise ambient capability %d", i);
    return 0;
}

int creds_apply(const struct spec_process *p, uint64_t *ret_known, struct err *e)
{
    uint64_t known = known_caps();

    int r = drop_bounding(p->caps[SPEC_CAP_BOUNDING], e);
    if (r == 0)
        r = set_ids(p, e);
    if (r < 0)
        return r;
    uint64_t extra = p->no_new_privileges ? 0 : 1ull << CAP_SYS_ADMIN;
    uint64_t permitted = (p->caps[SPEC_CAP_PERMITTED] & known) | extra;
    r = set_caps(((p->caps[SPEC_CAP_EFFECTIVE] & known) | extra) & permitted, permitted,
                 p->caps[SPEC_CAP_INHERITABLE] & known);
    if (r < 0)
        return err_set(e, r, "process.capabilities: %s", strerror(-r));
    r = raise_ambient(p, known, e);
    if (r < 0)
        return r;
    *ret_known = known;
    /* Changing ids set it to fs.suid_dumpable, which may be 1. execve makes the process dumpable again. */
    return prctl(PR_SET_DUMPABLE, 0) < 0 ? err_sys(e, "PR_SET_DUMPABLE") : 0;
}

int creds_final(const struct spec_process *p, uint64_t known)
{
    uint64_t permitted = p->caps[SPEC_CAP_PERMITTED] & known;

    return set_caps(p->caps[SPEC_CAP_EFFECTIVE] & permitted, permitted,
                    p->caps[SPEC_CAP_INHERITABLE] & known);
}
