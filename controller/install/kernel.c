#include "controller/install/kernel.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macro.h"
#include "base/scoped.h"

static void add(char *out, size_t size, const char *what)
{
    size_t n = strlen(out);

    (void)snprintf(out + n, size - n, "%s%s", n ? "; " : "", what);
}

/* Idmapped mounts of overlay layers need 5.19. */
static bool is_new_enough(const char *release)
{
    int major = 0, minor = 0;

    return sscanf(release, "%d.%d", &major, &minor) == 2 && (major > 5 || (major == 5 && minor >= 19));
}

static bool has_user_notification(void)
{
    struct seccomp_notif_sizes sizes;

    return syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) == 0;
}

static bool allows_user_namespaces(void)
{
    scoped_free char *text = NULL;

    return file_read(AT_FDCWD, "/proc/sys/user/max_user_namespaces", 64, &text, NULL, NULL) == 0 &&
           atol(text) > 0;
}

void kernel_missing(char *out, size_t size)
{
    struct utsname u;
    char text[200];

    out[0] = '\0';
    if (uname(&u) < 0 || !is_new_enough(u.release)) {
        (void)snprintf(text, sizeof text, "kernel %.60s is older than 5.19 (idmapped overlay mounts)",
                       u.release);
        add(out, size, text);
    }
    if (!has_user_notification())
        add(out, size, "no seccomp user notification (CONFIG_SECCOMP_FILTER)");
    if (access("/proc/self/ns/user", F_OK) != 0)
        add(out, size, "no user namespaces (CONFIG_USER_NS)");
    else if (!allows_user_namespaces())
        add(out, size, "user namespaces are switched off (sysctl user.max_user_namespaces)");
}
