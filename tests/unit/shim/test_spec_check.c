#include "tests/unit/shim/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/oci/spec.h"
#include "tests/unit/shim/spec_patch.h"

#define SPECS                                                                                                \
    "tests/unit/shim/specs" /* what containerd 1.6.20 and 2.4.2 generate; ids and paths made neutral */

static int check_text(const char *text, size_t len, struct err *e)
{
    struct spec *s = NULL;
    int r = spec_parse(text, len, &s, e);
    if (r != 0)
        print_error("not parsed: %s\n", err_text(e));
    assert_int_equal(r, 0);
    r = spec_check(s, e);
    spec_free(s);
    return r;
}

#define NS(list) "[" list "]"
#define PID      "{\"type\":\"pid\"}"
#define NET      "{\"type\":\"network\"}"
#define IPC      "{\"type\":\"ipc\"}"
#define UTS      "{\"type\":\"uts\"}"
#define MNT      "{\"type\":\"mount\"}"

static const struct {
    const char *path, *value;
    int code;
    const char *sentence; /* how it begins */
} refused[] = {
    {"linux.namespaces", NS(PID "," IPC "," UTS "," MNT), -EPERM,
     "linux.namespaces has no network entry: a sandbox never uses the host's network; set hostNetwork: "
     "false"},
    {"linux.namespaces", NS(NET "," IPC "," UTS "," MNT), -EPERM,
     "linux.namespaces has no pid entry: a sandbox never sees the host's processes; set hostPID: false"},
    {"linux.namespaces", NS(PID "," NET "," UTS "," MNT), -EPERM,
     "linux.namespaces has no ipc entry: a sandbox never shares the host's IPC; set hostIPC: false"},
    {"linux.namespaces", NS(PID "," NET "," IPC "," MNT), -EPERM, "linux.namespaces has no uts entry: "},
    {"linux.namespaces", NS(PID "," NET "," IPC "," UTS), -EPERM, "linux.namespaces has no mount entry: "},
    {"linux", "{}", -EPERM, "linux.namespaces has no network entry: "},
    {"linux", NULL, -EPERM, "linux.namespaces has no network entry: "},
    {"linux.namespaces",
     NS(PID "," IPC "," UTS "," MNT ",{\"type\":\"network\",\"path\":\"/proc/self/ns/net\"}"), -EPERM,
     "linux.namespaces: the network path /proc/self/ns/net is the host's own: "},
    {"linux.namespaces",
     NS(NET "," IPC "," UTS "," MNT ",{\"type\":\"pid\",\"path\":\"/proc/thread-self/ns/pid\"}"), -EPERM,
     "linux.namespaces: the pid path /proc/thread-self/ns/pid is the host's own: "},
    {"linux.namespaces", NS(PID "," NET "," UTS "," MNT ",{\"type\":\"ipc\",\"path\":\"/proc/self/ns/ipc\"}"),
     -EPERM, "linux.namespaces: the ipc path /proc/self/ns/ipc is the host's own: "},
    {"linux.namespaces", NS(PID "," NET "," IPC "," MNT ",{\"type\":\"uts\",\"path\":\"/proc/self/ns/uts\"}"),
     -EPERM, "linux.namespaces: the uts path /proc/self/ns/uts is the host's own: "},
    {"linux.namespaces",
     NS(PID "," NET "," IPC "," UTS "," MNT ",{\"type\":\"user\",\"path\":\"/proc/self/ns/user\"}"), -EPERM,
     "linux.namespaces: the user path /proc/self/ns/user is the host's own: "},
    {"linux.namespaces",
     NS(PID "," NET "," IPC "," UTS ",{\"type\":\"mount\",\"path\":\"/proc/4194305/ns/mnt\"}"), -EPERM,
     "linux.namespaces: the mount entry must not have a path: "},
    {"linux.uidMappings", "[{\"containerID\":0,\"hostID\":1000,\"size\":1}]", -EINVAL,
     "linux.uidMappings needs a user entry in linux.namespaces"},
    {"linux.gidMappings", "[{\"containerID\":0,\"hostID\":1000,\"size\":1}]", -EINVAL,
     "linux.gidMappings needs a user entry in linux.namespaces"},
    {"linux.resources.devices", "[{\"allow\":true,\"access\":\"rwm\"}]", -EPERM,
     "linux.resources.devices[0] allows all devices of the host: glovebox runs no privileged containers; set "
     "privileged: false"},
    {"linux.resources.devices",
     "[{\"allow\":false,\"access\":\"rwm\"},{\"allow\":true,\"type\":\"b\",\"access\":\"r\"}]", -EPERM,
     "linux.resources.devices[1] allows all devices of the host: "},
    {"linux.devices",
     "[{\"type\":\"c\",\"path\":\"/dev/null\",\"major\":1,\"minor\":3},{\"type\":\"c\",\"path\":\"/dev/"
     "fuse\",\"major\":10,\"minor\":229}]",
     -EPERM, "linux.devices[1]: /dev/fuse (c 10:229) is a device of the host; a sandbox has null, zero, "},
    {"linux.devices", "[{\"type\":\"c\",\"path\":\"/dev/null\",\"major\":1,\"minor\":1}]", -EPERM,
     "linux.devices[0]: /dev/null (c 1:1) is a device of the host; "},
    {"linux.devices", "[{\"type\":\"b\",\"path\":\"/dev/sda\",\"major\":8,\"minor\":0}]", -EPERM,
     "linux.devices[0]: /dev/sda (b 8:0) is a device of the host; "},
    {"mounts.0",
     "{\"destination\":\"/m\",\"type\":\"bind\",\"source\":\"/m\",\"options\":[\"rbind\",\"rshared\"]}",
     -EPERM, "mounts[0].options: shared propagation of /m is refused: "},
    {"mounts.0", "{\"destination\":\"/m\",\"source\":\"/m\",\"options\":[\"bind\",\"shared\"]}", -EPERM,
     "mounts[0].options: shared propagation of /m is refused: "},
    {"mounts.0", "{\"destination\":\"/m\",\"type\":\"bind\"}", -EINVAL,
     "mounts[0].source is missing: a bind mount on /m needs one"},
    {"mounts.0", "{\"destination\":\"/m\",\"type\":\"ext4\",\"source\":\"/dev/sda\"}", -EPERM,
     "mounts[0].type: a sandbox cannot mount \"ext4\" on /m; "},
    {"mounts.0", "{\"destination\":\"/m\"}", -EPERM, "mounts[0].type: a sandbox cannot mount \"\" on /m; "},
    {"linux.rootfsPropagation", "\"rshared\"", -EPERM, "linux.rootfsPropagation must not be rshared: "},
    {"linux.sysctl", "{\"vm.swappiness\":\"1\"}", -EPERM,
     "linux.sysctl.vm.swappiness is not a setting of the sandbox's own namespaces: "},
    {"linux.sysctl", "{\"kernel.core_pattern\":\"|/x\"}", -EPERM,
     "linux.sysctl.kernel.core_pattern is not a setting of the sandbox's own namespaces: "},
    {"linux.sysctl", "{\"kernel.hostname\":\"x\"}", -EINVAL,
     "linux.sysctl.kernel.hostname: use hostname instead"},
    {"linux.sysctl", "{\"net.../kernel.core_pattern\":\"x\"}", -EPERM,
     "linux.sysctl.net.../kernel.core_pattern is not a setting"},
    {"linux.sysctl", "{\"net/../kernel/core_pattern\":\"x\"}", -EPERM,
     "linux.sysctl.net/../kernel/core_pattern is not a setting"},
    {"linux.sysctl", "{\"net.\":\"x\"}", -EPERM, "linux.sysctl.net. is not a setting"},
    {"linux.sysctl", "{\"kernel.semantics\":\"x\"}", -EPERM,
     "linux.sysctl.kernel.semantics is not a setting"},
    {"linux.sysctl", "{\"\":\"x\"}", -EPERM, "linux.sysctl. is not a setting"},
    {"linux.intelRdt", "{\"closID\":\"x\"}", -EPERM, "linux.intelRdt is not supported: "},
    {"linux.netDevices", "{\"eth1\":{}}", -EPERM, "linux.netDevices is not supported: "},
    {"linux.memoryPolicy", "{\"mode\":\"MPOL_BIND\"}", -EPERM, "linux.memoryPolicy is not supported: "},
    {"linux.timeOffsets", "{\"boottime\":{\"secs\":1}}", -EPERM, "linux.timeOffsets is not supported: "},
    {"linux.seccomp", "{\"defaultAction\":\"SCMP_ACT_NOTIFY\",\"listenerPath\":\"/run/x\"}", -EPERM,
     "linux.seccomp.listenerPath is not supported: "},
};

static void what_the_design_refuses_is_refused_by_name(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        scoped_free char *text = spec_with(refused[i].path, refused[i].value);
        struct err e = {0};
        int r = check_text(text, strlen(text), &e);
        if (r != refused[i].code ||
            strncmp(err_text(&e), refused[i].sentence, strlen(refused[i].sentence)) != 0)
            print_error("%s = %s\n  gives    %d %s\n  expected %d %s\n", refused[i].path, refused[i].value, r,
                        r ? err_text(&e) : "", refused[i].code, refused[i].sentence);
        assert_int_equal(r, refused[i].code);
        assert_int_equal(strncmp(err_text(&e), refused[i].sentence, strlen(refused[i].sentence)), 0);
    }
}

static void ordinary_settings_pass(void **state UNUSED)
{
    static const struct {
        const char *path, *value;
    } fine[] = {
        {NULL, NULL},
        {"linux.namespaces",
         NS(PID "," IPC "," UTS "," MNT ",{\"type\":\"network\",\"path\":\"/proc/4194305/ns/"
                "net\"},{\"type\":\"cgroup\"},{\"type\":\"user\"}")},
        {"linux.resources.devices",
         "[{\"allow\":false,\"access\":\"rwm\"},{\"allow\":true,\"type\":\"c\",\"access\":\"m\"},{\"allow\":"
         "true,\"type\":\"b\",\"access\":\"m\"},"
         "{\"allow\":true,\"type\":\"c\",\"major\":136,\"access\":\"rwm\"},{\"allow\":true,\"type\":\"c\","
         "\"major\":10,\"minor\":200,\"access\":\"rwm\"}]"},
        {"linux.devices",
         "[{\"type\":\"c\",\"path\":\"/dev/null\",\"major\":1,\"minor\":3},{\"type\":\"c\",\"path\":\"/dev/"
         "ptmx\",\"major\":5,\"minor\":2}]"},
        {"mounts.0", "{\"destination\":\"/m\",\"type\":\"bind\",\"source\":\"/"
                     "m\",\"options\":[\"rbind\",\"rslave\",\"ro\"]}"},
        {"mounts.0", "{\"destination\":\"/m\",\"type\":\"none\",\"source\":\"/m\",\"options\":[\"bind\"]}"},
        {"mounts.0", "{\"destination\":\"/m\",\"type\":\"cgroup2\",\"source\":\"cgroup\"}"},
        {"linux.rootfsPropagation", "\"rslave\""},
        {"linux.sysctl",
         "{\"net.ipv4.ip_unprivileged_port_start\":\"0\",\"net/ipv4/conf/eth0.1/"
         "forwarding\":\"1\",\"kernel.shm_rmid_forced\":\"1\","
         "\"kernel.sem\":\"1 2 3 4\",\"fs.mqueue.msg_max\":\"10\",\"kernel.domainname\":\"x\"}"},
        {"linux.timeOffsets", "{\"boottime\":{\"secs\":0}}"},
        {"linux.intelRdt", "{}"},
        {"linux.personality", "{\"domain\":\"LINUX\"}"},
        {"process.capabilities.bounding", "[\"CAP_SYS_ADMIN\",\"CAP_SYS_MODULE\",\"CAP_SYS_RAWIO\"]"},
    };

    for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
        scoped_free char *text = spec_with(fine[i].path, fine[i].value);
        struct err e = {0};
        int r = check_text(text, strlen(text), &e);
        if (r != 0)
            print_error("%s = %s gives %s\n", fine[i].path, fine[i].value, err_text(&e));
        assert_int_equal(r, 0);
    }
}

static void privilege_without_devices_is_recognised_by_all_signs_together(void **state UNUSED)
{
    static const char format[] = "{\"ociVersion\":\"1.0.2\",\"root\":{\"path\":\"r\"},\"process\":{\"cwd\":"
                                 "\"/\",\"args\":[\"sh\"],\"capabilities\":{\"bounding\":[%s]}},"
                                 "\"mounts\":[{\"destination\":\"/"
                                 "sys\",\"type\":\"sysfs\",\"source\":\"sysfs\",\"options\":[\"nosuid\"%s]}],"
                                 "\"linux\":{\"namespaces\":[" PID "," NET "," IPC "," UTS "," MNT "]%s%s}}";
    static const char all[] = "\"CAP_SYS_ADMIN\",\"CAP_SYS_MODULE\",\"CAP_SYS_RAWIO\"";
    const struct {
        const char *caps, *sysfs, *masked, *seccomp;
        int code;
    } cases[] = {
        {all, "", "", "", -EPERM},
        {"\"CAP_SYS_ADMIN\"", "", "", "", 0},
        {all, ",\"ro\"", "", "", 0},
        {all, "", ",\"maskedPaths\":[\"/proc/kcore\"]", "", 0},
        {all, "", "", ",\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\"}", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        scoped_free char *text =
            xasprintf(format, cases[i].caps, cases[i].sysfs, cases[i].masked, cases[i].seccomp);
        struct err e = {0};
        assert_int_equal(check_text(text, strlen(text), &e), cases[i].code);
        if (cases[i].code)
            assert_non_null(strstr(err_text(&e), "process.capabilities asks for everything"));
    }
}

static void the_hosts_root_is_never_mapped(void **state UNUSED)
{
    scoped_free char *text = xasprintf(
        "{\"ociVersion\":\"1.0.2\",\"root\":{\"path\":\"r\"},\"linux\":{\"namespaces\":[" PID "," NET "," IPC
        "," UTS "," MNT ",{\"type\":\"user\"}],\"uidMappings\":[{\"containerID\":0,\"hostID\":70000,\"size\":"
        "9}],\"gidMappings\":[{\"containerID\":0,\"hostID\":70000,"
        "\"size\":9},{\"containerID\":9,\"hostID\":0,\"size\":1}]}}");
    struct err e = {0};

    assert_int_equal(check_text(text, strlen(text), &e), -EPERM);
    assert_string_equal(
        err_text(&e),
        "linux.gidMappings[1].hostID is 0, the host's root: map the sandbox to a range of unused ids");
}

/* Files named refused-* and ctr-hostnet/ctr-privileged must be refused, all others must pass. */
static void what_engines_really_send_is_told_apart(void **state UNUSED)
{
    DIR *list = opendir(SPECS);
    size_t n = 0, n_refused = 0;
    assert_non_null(list);

    for (struct dirent *d = readdir(list); d; d = readdir(list)) {
        if (!strstr(d->d_name, ".json"))
            continue;
        scoped_free char *text = NULL;
        size_t len = 0;
        struct err e = {0};
        assert_int_equal(file_read(dirfd(list), d->d_name, SPEC_MAX, &text, &len, &e), 0);
        bool bad =
            strstr(d->d_name, "refused") || strstr(d->d_name, "hostnet") || strstr(d->d_name, "privileged");
        int r = check_text(text, len, &e);
        if (r != (bad ? -EPERM : 0))
            print_error("%s gives %d %s\n", d->d_name, r, r ? err_text(&e) : "");
        assert_int_equal(r, bad ? -EPERM : 0);
        n++;
        n_refused += bad;
    }
    (void)closedir(list);
    assert_true(n >= 20 && n_refused >= 8);
}

static void a_real_container_arrives_complete(void **state UNUSED)
{
    scoped_free char *text = NULL;
    size_t len = 0;
    struct spec *s = NULL;
    assert_int_equal(file_read(AT_FDCWD, SPECS "/container-2.4.json", SPEC_MAX, &text, &len, NULL), 0);
    assert_int_equal(spec_parse(text, len, &s, NULL), 0);

    assert_int_equal(s->process.uid, 1000);
    assert_true(s->process.no_new_privileges && s->process.has_oom_score_adj && s->root_readonly);
    assert_int_equal(s->process.oom_score_adj, 985);
    assert_true(s->process.caps[SPEC_CAP_BOUNDING] == 0);
    assert_true(s->resources.memory_limit.value == 104857600 && s->resources.cpu_quota.value == 50000);
    assert_string_equal(spec_container_type(s), "container");
    assert_int_equal(strlen(spec_group(s)), 64);
    assert_non_null(s->seccomp_json);
    assert_string_equal(s->ns[SPEC_NS_NETWORK].path, "/proc/4194305/ns/net");
    spec_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_design_refuses_is_refused_by_name),
        cmocka_unit_test(ordinary_settings_pass),
        cmocka_unit_test(privilege_without_devices_is_recognised_by_all_signs_together),
        cmocka_unit_test(the_hosts_root_is_never_mapped),
        cmocka_unit_test(what_engines_really_send_is_told_apart),
        cmocka_unit_test(a_real_container_arrives_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
