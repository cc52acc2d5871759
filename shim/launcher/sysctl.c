#include "shim/launcher/sysctl.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "shim/launcher/sys.h"
#include "shim/oci/spec.h"

#define KEY_MAX 200

/* "net.ipv4.conf.eth0/1.forwarding" style: dots separate, a slash stands for a dot inside a name. */
static int write_key(const char *key, const char *value, struct err *e)
{
    char path[sizeof "/proc/sys/" + KEY_MAX];

    if (strlen(key) > KEY_MAX || strstr(key, "..") || key[0] == '/')
        return err_set(e, -EINVAL, "linux.sysctl: malformed name \"%s\"", key);
    (void)snprintf(path, sizeof path, "/proc/sys/%s", key);
    for (char *p = path + sizeof "/proc/sys/" - 1; *p; p++)
        *p = *p == '.' ? '/' : *p == '/' ? '.' : *p;
    int r = sys_write_text(AT_FDCWD, path, value);
    return r < 0 ? err_set(e, r, "linux.sysctl: %s = \"%s\": %s", key, value, strerror(-r)) : 0;
}

static bool is_net(const char *key)
{
    return strncmp(key, "net.", 4) == 0;
}

int sysctl_apply_cni(const struct spec *spec, struct err *e)
{
    /*
     * The sentry is root of the pod's user namespace only, so the kernel would refuse it ports below
     * 1024 and ping sockets there; it decides both itself.  Failure (a host with a read-only /proc/sys)
     * costs those two, nothing of the barrier.
     */
    (void)sys_write_text(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    (void)sys_write_text(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
    for (size_t i = 0; i < spec->n_sysctl; i++) {
        int r = is_net(spec->sysctl[i].key) ? write_key(spec->sysctl[i].key, spec->sysctl[i].value, e) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int sysctl_apply_pod(const struct spec *spec, int net_ns, int ipc_ns, int uts_ns, struct err *e)
{
    /* /proc/sys shows the namespaces of whoever opens the file; host root has all rights over the pod's. */
    if (setns(net_ns, CLONE_NEWNET) < 0 || setns(ipc_ns, CLONE_NEWIPC) < 0 || setns(uts_ns, CLONE_NEWUTS) < 0)
        return err_sys(e, "enter the pod's namespaces");
    for (size_t i = 0; i < spec->n_sysctl; i++) {
        int r = write_key(spec->sysctl[i].key, spec->sysctl[i].value, e);
        /* The CNI namespace took it already; the workload's has no interfaces and may lack the entry. */
        if (r < 0 && !(r == -ENOENT && is_net(spec->sysctl[i].key)))
            return r;
    }
    return 0;
}
