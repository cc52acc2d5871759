#include "shim/launcher/features.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "shim/launcher/sys.h"

/*
 * Each probe is a call with an argument that cannot succeed: a kernel that knows the call complains
 * about the argument, an older one answers ENOSYS.
 */
static bool has_user_notification(void)
{
    struct seccomp_notif_sizes sizes;
    uint32_t action = SECCOMP_RET_USER_NOTIF;

    return sys_seccomp(SECCOMP_GET_NOTIF_SIZES, 0, &sizes) == 0 &&
           sys_seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

static bool has_idmapped_mounts(void)
{
    return mount_setattr(-1, "", 0, NULL, 0) == 0 || errno != ENOSYS;
}

static bool has_mount_api(void)
{
    return (fsopen("", 0) >= 0 || errno != ENOSYS) && (open_tree(-1, "", 0) >= 0 || errno != ENOSYS);
}

static bool has_pidfd_getfd(void)
{
    return pidfd_getfd(-1, 0, 0) >= 0 || errno != ENOSYS;
}

static bool has_clone3(void)
{
    return syscall(SYS_clone3, NULL, 0) >= 0 || errno != ENOSYS;
}

static bool has_openat2(void)
{
    return syscall(SYS_openat2, -1, "", NULL, 0) >= 0 || errno != ENOSYS;
}

static bool has_close_range(void)
{
    return close_range(1, 0, 0) >= 0 || errno != ENOSYS; /* first > last: EINVAL */
}

int features_check(struct err *e)
{
    static const struct {
        const char *what;
        bool (*has)(void);
    } needed[] = {
        {"seccomp user notification (5.0)", has_user_notification},
        {"the mount API fsopen/open_tree (5.2)", has_mount_api},
        {"idmapped mounts (5.12; overlay on them 5.19)", has_idmapped_mounts},
        {"pidfd_getfd (5.6)", has_pidfd_getfd},
        {"clone3 (5.3)", has_clone3},
        {"openat2 (5.6)", has_openat2},
        {"close_range (5.9)", has_close_range},
    };
    struct utsname u = {0};

    for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
        if (needed[i].has())
            continue;
        (void)uname(&u);
        return err_set(e, -ENOSYS, "kernel %s lacks %s; glovebox does not run a pod without it", u.release,
                       needed[i].what);
    }
    return 0;
}
