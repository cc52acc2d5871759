#include "shim/launcher/sysctl.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/macro.h"
#include "shim/launcher/sys.h"
#include "shim/oci/spec.h"

#define KEY_MAX 200

/* "net.ipv4.conf.eth0/1.forwarding" style: dots separate, a slash stands for a dot inside a name. */
static int write_key(int proc_sys, const struct spec_pair *p, struct err *e)
{
    char path[KEY_MAX + 1];

    if (strlen(p->key) > KEY_MAX || strstr(p->key, "..") || p->key[0] == '/' || p->key[0] == '.')
        return err_set(e, -EINVAL, "linux.sysctl: malformed name \"%.100s\"", p->key);
    (void)snprintf(path, sizeof path, "%s", p->key);
    for (char *c = path; *c; c++)
        *c = *c == '.' ? '/' : *c == '/' ? '.' : *c;
    int r = sys_write_text(proc_sys, path, p->value);
    return r < 0 ? err_set(e, r, "linux.sysctl: %s = \"%s\": %s", p->key, p->value, strerror(-r)) : 0;
}

static bool is_net(const struct spec_pair *p)
{
    return strncmp(p->key, "net.", 4) == 0;
}

int sysctl_apply_cni(int proc_sys, const struct spec *spec, struct err *e)
{
    /*
     * The sentry is root of the pod's user namespace only, so the kernel would refuse it ports below
     * 1024 and ping sockets there; it decides both itself.  Failure (a host with a read-only /proc/sys)
     * costs those two, nothing of the barrier.
     */
    (void)sys_write_text(proc_sys, "net/ipv4/ip_unprivileged_port_start", "0");
    (void)sys_write_text(proc_sys, "net/ipv4/ping_group_range", "0 2147483647");
    for (size_t i = 0; i < spec->n_sysctl; i++) {
        int r = is_net(&spec->sysctl[i]) ? write_key(proc_sys, &spec->sysctl[i], e) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

/* In the workload's network namespace ids are the pod's: a range of the host's makes no sense there (EINVAL),
 * and devices are missing. */
static bool is_forgivable(const struct spec_pair *p, int r)
{
    return is_net(p) && (r == -ENOENT || r == -EINVAL);
}

/*
 * Who may write depends on the kernel: the files of an ipc namespace belong to the host's root on 6.1
 * and to the root of the namespace's own user namespace on 6.18.  Try as both.
 */
int sysctl_apply_pod(int proc_sys, const struct spec *spec, const struct sysctl_ns *ns, struct err *e)
{
    bool *left = xcalloc(spec->n_sysctl + 1, sizeof *left);
    int r = 0;

    if (setns(ns->net, CLONE_NEWNET) < 0 || setns(ns->ipc, CLONE_NEWIPC) < 0 ||
        setns(ns->uts, CLONE_NEWUTS) < 0)
        return err_sys(e, "enter the pod's namespaces");
    for (int as_pod = 0; as_pod < 2; as_pod++) {
        if (as_pod && (setns(ns->user, CLONE_NEWUSER) < 0 || sys_setresgid(0) < 0 || sys_setresuid(0) < 0))
            return err_sys(e, "enter the pod's user namespace");
        for (size_t i = 0; i < spec->n_sysctl; i++) {
            if (as_pod && !left[i])
                continue;
            r = write_key(proc_sys, &spec->sysctl[i], e);
            left[i] = r == -EACCES || r == -EPERM;
            if (r < 0 && !is_forgivable(&spec->sysctl[i], r) && (as_pod || !left[i]))
                return r;
        }
    }
    return 0;
}
