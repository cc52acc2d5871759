#include "shim/launcher/label.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/sys.h"

static bool apparmor_is_on(void)
{
    char c = 'N';
    scoped_fd int fd = open("/sys/module/apparmor/parameters/enabled", O_RDONLY | O_CLOEXEC);

    return fd >= 0 && read(fd, &c, 1) == 1 && c == 'Y';
}

static bool selinux_is_on(void)
{
    return access("/sys/fs/selinux/enforce", F_OK) == 0;
}

int label_open(const struct spec *spec, const struct spec_process *p, struct label *ret, struct err *e)
{
    struct label l = {.host_proc = -1};
    const char *profile = p->apparmor_profile;

    if (profile && profile[0] && strcmp(profile, "unconfined") != 0) {
        if (!apparmor_is_on())
            return err_set(e, -EINVAL, "process.apparmorProfile \"%s\": this kernel has no AppArmor",
                           profile);
        l.apparmor = profile;
    }
    if (selinux_is_on()) {
        l.selinux = p->selinux_label && p->selinux_label[0] ? p->selinux_label : NULL;
        l.mount = spec->mount_label && spec->mount_label[0] ? spec->mount_label : NULL;
    }
    if (l.apparmor || l.selinux) {
        l.host_proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (l.host_proc < 0)
            return err_sys(e, "open /proc");
    }
    *ret = l;
    return 0;
}

int label_apply(const struct label *l, struct err *e)
{
    if (l->apparmor) {
        scoped_free char *text = xasprintf("exec %s", l->apparmor);
        int r = sys_write_text(l->host_proc, "thread-self/attr/apparmor/exec", text);
        if (r == -ENOENT) /* before 5.8: the common file */
            r = sys_write_text(l->host_proc, "thread-self/attr/exec", text);
        if (r < 0)
            return err_set(e, r, "process.apparmorProfile \"%s\": %s", l->apparmor, strerror(-r));
    }
    if (l->selinux) {
        int r = sys_write_text(l->host_proc, "thread-self/attr/exec", l->selinux);
        if (r < 0)
            return err_set(e, r, "process.selinuxLabel \"%s\": %s", l->selinux, strerror(-r));
    }
    return 0;
}
