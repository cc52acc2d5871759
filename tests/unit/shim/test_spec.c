#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/oci/names.h"
#include "shim/oci/spec.h"
#include "tests/unit/shim/spec_patch.h"

static struct spec *parse_with(const char *path, const char *value)
{
    scoped_free char *text = spec_with(path, value);
    struct spec *s = NULL;
    struct err e = {0};
    int r = spec_parse(text, strlen(text), &s, &e);
    if (r != 0)
        print_error("%s = %s: %s\n", path, value, err_text(&e));
    assert_int_equal(r, 0);
    return s;
}

/* ---- what is refused ---- */

static const struct {
    const char *path, *value, *sentence;
} bad[] = {
    {"ociVersion", NULL, "ociVersion is missing"},
    {"ociVersion", "\"2.0.0\"",
     "ociVersion must be a version 1.x of the runtime specification, not \"2.0.0\""},
    {"ociVersion", "1", "ociVersion must be a version 1.x of the runtime specification, not \"a number\""},
    {"root", NULL, "root is missing"},
    {"root.path", NULL, "root.path is missing"},
    {"root.path", "\"\"", "root.path must not be empty"},
    {"root.readonly", "\"yes\"", "root.readonly must be true or false, not a string"},
    {"hostname", "7", "hostname must be a string, not a number"},
    {"process", "[]", "process must be an object, not an array"},
    {"process.terminal", "1", "process.terminal must be true or false, not a number"},
    {"process.cwd", NULL, "process.cwd is missing"},
    {"process.cwd", "\"tmp\"", "process.cwd must be an absolute path, not \"tmp\""},
    {"process.args", NULL, "process.args must have at least one element, the program"},
    {"process.args", "[]", "process.args must have at least one element, the program"},
    {"process.args", "[\"\"]", "process.args must not begin with an empty string: it is the program"},
    {"process.args", "\"sh -c x\"", "process.args must be an array of strings, not a string"},
    {"process.args", "[\"sh\",null]", "process.args[1] must be a string, not null"},
    {"process.env", "{}", "process.env must be an array of strings, not an object"},
    {"process.user.uid", "-1", "process.user.uid must be between 0 and 4294967294, not -1"},
    {"process.user.uid", "4294967295", "process.user.uid must be between 0 and 4294967294, not 4294967295"},
    {"process.user.gid", "1.5", "process.user.gid must be a whole number, not a fraction"},
    {"process.user.umask", "65536", "process.user.umask must be between 0 and 4095, not 65536"},
    {"process.user.additionalGids", "[1,\"x\"]",
     "process.user.additionalGids[1] must be a whole number, not a string"},
    {"process.user.additionalGids", "7",
     "process.user.additionalGids must be an array of group ids, not a number"},
    {"process.capabilities", "[\"CAP_KILL\"]", "process.capabilities must be an object, not an array"},
    {"process.capabilities.bounding", "\"CAP_KILL\"",
     "process.capabilities.bounding must be an array of capability names, not a string"},
    {"process.capabilities.ambient", "[3]", "process.capabilities.ambient[0] must be a string, not a number"},
    {"process.rlimits", "{}", "process.rlimits must be an array, not an object"},
    {"process.rlimits", "[{\"soft\":1}]", "process.rlimits[0].type is missing"},
    {"process.rlimits", "[{\"type\":\"RLIMIT_BEER\"}]",
     "process.rlimits[0].type has the unknown value \"RLIMIT_BEER\""},
    {"process.rlimits", "[{\"type\":\"RLIMIT_CPU\",\"soft\":-1,\"hard\":1}]",
     "process.rlimits[0].soft must be a whole number from 0 to 18446744073709551615, not a number"},
    {"process.rlimits",
     "[{\"type\":\"RLIMIT_CPU\",\"soft\":1,\"hard\":1},{\"type\":\"RLIMIT_CPU\",\"soft\":1,\"hard\":1}]",
     "process.rlimits[1] sets RLIMIT_CPU a second time"},
    {"process.rlimits", "[{\"type\":\"RLIMIT_CPU\",\"soft\":2,\"hard\":1}]",
     "process.rlimits[0] has a soft limit above its hard limit"},
    {"process.oomScoreAdj", "1001", "process.oomScoreAdj must be between -1000 and 1000, not 1001"},
    {"process.consoleSize.height", "65536",
     "process.consoleSize.height must be between 0 and 65535, not 65536"},
    {"process.scheduler", "{}", "process.scheduler.policy is missing"},
    {"process.scheduler", "{\"policy\":\"SCHED_FAST\"}",
     "process.scheduler.policy has the unknown value \"SCHED_FAST\""},
    {"process.scheduler", "{\"policy\":\"SCHED_OTHER\",\"nice\":20}",
     "process.scheduler.nice must be between -20 and 19, not 20"},
    {"process.scheduler", "{\"policy\":\"SCHED_OTHER\",\"flags\":[\"X\"]}",
     "process.scheduler.flags[0] has the unknown value \"X\""},
    {"process.ioPriority", "{\"class\":\"IOPRIO_CLASS_RT\",\"priority\":8}",
     "process.ioPriority.priority must be between 0 and 7, not 8"},
    {"process.ioPriority", "{\"class\":\"best\"}", "process.ioPriority.class has the unknown value \"best\""},
    {"mounts", "{}", "mounts must be an array, not an object"},
    {"mounts.0.destination", NULL, "mounts[0].destination is missing"},
    {"mounts.0.options", "[\"ro\",1]", "mounts[0].options[1] must be a string, not a number"},
    {"mounts.0.uidMappings", "[{\"containerID\":0}]", "mounts[0].uidMappings[0].hostID is missing"},
    {"hooks.prestart", "[{\"args\":[\"x\"]}]", "hooks.prestart[0].path is missing"},
    {"hooks.poststop", "[{\"path\":\"bin/x\"}]",
     "hooks.poststop[0].path must be an absolute path, not \"bin/x\""},
    {"hooks.poststart", "[{\"path\":\"/x\",\"timeout\":0}]",
     "hooks.poststart[0].timeout must be between 1 and 2147483647, not 0"},
    {"annotations", "{\"a\":1}", "annotations.a must be a string, not a number"},
    {"linux.namespaces", "{}", "linux.namespaces must be an array, not an object"},
    {"linux.namespaces", "[{\"path\":\"/x\"}]", "linux.namespaces[0].type is missing"},
    {"linux.namespaces", "[{\"type\":\"net\"}]", "linux.namespaces[0].type has the unknown value \"net\""},
    {"linux.namespaces", "[{\"type\":\"pid\"},{\"type\":\"pid\"}]",
     "linux.namespaces[1] names the pid namespace a second time"},
    {"linux.namespaces", "[{\"type\":\"pid\",\"path\":\"proc/1\"}]",
     "linux.namespaces[0] has a path that is not absolute: \"proc/1\""},
    {"linux.uidMappings", "[{\"containerID\":0,\"hostID\":1,\"size\":0}]",
     "linux.uidMappings[0] is not a range of ids"},
    {"linux.gidMappings", "[{\"containerID\":1,\"hostID\":1,\"size\":4294967295}]",
     "linux.gidMappings[0] is not a range of ids"},
    {"linux.devices", "[{\"type\":\"x\",\"path\":\"/dev/x\"}]",
     "linux.devices[0].type must be \"c\", \"b\", \"u\" or \"p\""},
    {"linux.devices", "[{\"type\":\"c\",\"path\":\"null\"}]",
     "linux.devices[0].path must be an absolute path, not \"null\""},
    {"linux.timeOffsets.monotonic.nanosecs", "1000000000",
     "linux.timeOffsets.monotonic.nanosecs must be between 0 and 999999999, not 1000000000"},
    {"linux.seccomp", "\"strict\"", "linux.seccomp must be an object, not a string"},
    {"linux.sysctl", "{\"net.a\":1}", "linux.sysctl.net.a must be a string, not a number"},
    {"linux.maskedPaths", "[\"proc/kcore\"]",
     "linux.maskedPaths[0] must be an absolute path, not \"proc/kcore\""},
    {"linux.readonlyPaths", "\"x\"", "linux.readonlyPaths must be an array of strings, not a string"},
    {"linux.rootfsPropagation", "\"public\"",
     "linux.rootfsPropagation must be shared, slave, private or unbindable, or one of them with an r before "
     "it"},
    {"linux.personality", "{\"domain\":\"BSD\"}",
     "linux.personality.domain must be \"LINUX\" or \"LINUX32\""},
    {"linux.personality", "{\"domain\":\"LINUX\",\"flags\":[\"X\"]}",
     "linux.personality.flags must be empty: no flag is defined"},
    {"linux.resources", "7", "linux.resources must be an object, not a number"},
    {"linux.resources.cpu.quota", "\"50000\"",
     "linux.resources.cpu.quota must be a whole number, not a string"},
    {"linux.resources.cpu.shares", "-2",
     "linux.resources.cpu.shares must be between 0 and 9223372036854775807, not -2"},
    {"linux.resources.cpu.cpus", "3", "linux.resources.cpu.cpus must be a string, not a number"},
    {"linux.resources.memory.limit", "-2",
     "linux.resources.memory.limit must be between -1 and 9223372036854775807, not -2"},
    {"linux.resources.memory.limit", "true",
     "linux.resources.memory.limit must be a whole number, not a boolean"},
    {"linux.resources.memory.swappiness", "101",
     "linux.resources.memory.swappiness must be between 0 and 100, not 101"},
    {"linux.resources.memory.disableOOMKiller", "1",
     "linux.resources.memory.disableOOMKiller must be true or false, not a number"},
    {"linux.resources.memory.kernel", "\"x\"",
     "linux.resources.memory.kernel must be a whole number, not a string"},
    {"linux.resources.pids.limit", "{}", "linux.resources.pids.limit must be a whole number, not an object"},
    {"linux.resources.blockIO.weight", "1001",
     "linux.resources.blockIO.weight must be between 0 and 1000, not 1001"},
    {"linux.resources.blockIO.throttleReadBpsDevice", "[{\"major\":8}]",
     "linux.resources.blockIO.throttleReadBpsDevice[0].minor is missing"},
    {"linux.resources.hugepageLimits", "[{\"pageSize\":\"../x\",\"limit\":1}]",
     "linux.resources.hugepageLimits[0].pageSize must be a page size such as \"2MB\""},
    {"linux.resources.hugepageLimits", "[{\"pageSize\":\"2MB\"}]",
     "linux.resources.hugepageLimits[0].limit is missing"},
    {"linux.resources.network.priorities", "[{\"name\":\"a b\",\"priority\":1}]",
     "linux.resources.network.priorities[0].name must be the name of a network interface"},
    {"linux.resources.network.classID", "4294967296",
     "linux.resources.network.classID must be between 0 and 4294967295, not 4294967296"},
    {"linux.resources.rdma", "{\"a b\":{}}", "linux.resources.rdma.a b is not the name of an RDMA device"},
    {"linux.resources.rdma", "{\"mlx\":{\"hcaHandles\":-1}}",
     "linux.resources.rdma.mlx.hcaHandles must be between 0 and 4294967295, not -1"},
    {"linux.resources.devices", "[{\"allow\":true,\"type\":\"d\"}]",
     "linux.resources.devices[0].type must be \"a\", \"b\" or \"c\""},
    {"linux.resources.devices", "[{\"allow\":true,\"access\":\"rx\"}]",
     "linux.resources.devices[0].access must be made of the letters r, w and m"},
    {"linux.resources.devices", "[{\"allow\":true}]",
     "linux.resources.devices[0] has no access, which must be made of the letters r, w and m"},
    {"linux.resources.unified", "{\"../memory.max\":\"1\"}",
     "linux.resources.unified.../memory.max is not a file of a control group that may be set"},
    {"linux.resources.unified", "{\"cgroup.procs\":\"1\"}",
     "linux.resources.unified.cgroup.procs is not a file of a control group that may be set"},
    {"linux.resources.unified", "{\"memory.high\":1}",
     "linux.resources.unified.memory.high must be a string, not a number"},
};

static void a_wrong_field_is_refused_by_its_name(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        scoped_free char *text = spec_with(bad[i].path, bad[i].value);
        struct spec *s = NULL;
        struct err e = {0};
        int r = spec_parse(text, strlen(text), &s, &e);
        if (r >= 0 || strcmp(err_text(&e), bad[i].sentence) != 0)
            print_error("%s = %s\n  gives    %s\n  expected %s\n", bad[i].path, bad[i].value,
                        r < 0 ? err_text(&e) : "no error", bad[i].sentence);
        assert_true(r < 0);
        assert_null(s);
        assert_string_equal(err_text(&e), bad[i].sentence);
    }
}

static void text_that_is_no_configuration_is_refused(void **state UNUSED)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "null",
                                        "7",
                                        "\"x\"",
                                        "{}",
                                        "{\"ociVersion\":\"1.0\"",
                                        "{\"ociVersion\":\"\\u0000\"}",
                                        "\xff\xfe"};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct spec *s = NULL;
        struct err e = {0};
        assert_true(spec_parse(texts[i], strlen(texts[i]), &s, &e) < 0);
        assert_null(s);
        assert_true(e.text[0] != '\0');
    }
}

/* ---- what is understood ---- */

static void unknown_members_and_nulls_are_ignored(void **state UNUSED)
{
    static const char *const paths[] = {
        "vm",
        "windows",
        "process.future",
        "process.capabilities",
        "process.rlimits",
        "process.env",
        "linux.seccomp",
        "linux.resources",
        "linux.resources.cpu",
        "linux.resources.memory.limit",
        "linux.maskedPaths",
        "linux.devices",
        "mounts",
        "hooks",
        "annotations",
        "linux.timeOffsets",
        "linux.intelRdt",
        "process.apparmorProfile",
    };

    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        spec_free(parse_with(paths[i], "null"));
    spec_free(parse_with("linux.resources.cpu.future", "{\"a\":[1,2]}"));
    struct spec *s = parse_with("process.terminal", "null");
    assert_false(s->process.terminal);
    assert_int_equal(s->process.umask, SPEC_NO_UMASK);
    assert_false(s->process.has_oom_score_adj);
    assert_false(s->resources.memory_limit.has);
    assert_null(s->seccomp_json);
    spec_free(s);
}

static void the_process_is_read_whole(void **state UNUSED)
{
    struct spec *s =
        parse_with("process", "{\"terminal\":true,\"consoleSize\":{\"height\":24,\"width\":80},\"user\":{"
                              "\"uid\":1000,\"gid\":100,\"umask\":18,"
                              "\"additionalGids\":[5,6]},\"args\":[\"/bin/"
                              "sh\",\"-c\",\"\"],\"env\":[\"A=1\",\"A=2\"],\"cwd\":\"/w\","
                              "\"capabilities\":{\"bounding\":[\"CAP_KILL\",\"CAP_CHECKPOINT_RESTORE\",\"CAP_"
                              "FROM_THE_FUTURE\"],\"ambient\":[\"CAP_CHOWN\"]},"
                              "\"rlimits\":[{\"type\":\"RLIMIT_NOFILE\",\"soft\":1024,\"hard\":"
                              "18446744073709551615}],\"noNewPrivileges\":true,"
                              "\"oomScoreAdj\":-998,\"apparmorProfile\":\"p\",\"selinuxLabel\":\"l\","
                              "\"scheduler\":{\"policy\":\"SCHED_DEADLINE\","
                              "\"flags\":[\"SCHED_FLAG_RESET_ON_FORK\",\"SCHED_FLAG_DL_OVERRUN\"],"
                              "\"runtime\":10000000000000000000,\"deadline\":2,\"period\":3},"
                              "\"ioPriority\":{\"class\":\"IOPRIO_CLASS_IDLE\",\"priority\":7},"
                              "\"execCPUAffinity\":{\"initial\":\"0-1\",\"final\":\"1\"}}");
    const struct spec_process *p = &s->process;

    assert_true(s->has_process && p->terminal && p->no_new_privileges);
    assert_int_equal(p->console_height, 24);
    assert_int_equal(p->console_width, 80);
    assert_int_equal(p->uid, 1000);
    assert_int_equal(p->gid, 100);
    assert_int_equal(p->umask, 022);
    assert_int_equal(p->n_groups, 2);
    assert_int_equal(p->groups[1], 6);
    assert_int_equal(p->args.n, 3);
    assert_string_equal(p->args.item[2], "");
    assert_null(p->args.item[3]);
    assert_string_equal(p->env.item[1], "A=2");
    assert_string_equal(p->cwd, "/w");
    assert_true(p->caps[SPEC_CAP_BOUNDING] ==
                (UINT64_C(1) << CAP_KILL | UINT64_C(1) << CAP_CHECKPOINT_RESTORE));
    assert_true(p->caps[SPEC_CAP_AMBIENT] == UINT64_C(1) << CAP_CHOWN);
    assert_true(p->caps[SPEC_CAP_EFFECTIVE] == 0);
    assert_int_equal(p->n_rlimits, 1);
    assert_int_equal(p->rlimits[0].resource, RLIMIT_NOFILE);
    assert_true(p->rlimits[0].soft == 1024 && p->rlimits[0].hard == UINT64_MAX);
    assert_true(p->has_oom_score_adj);
    assert_int_equal(p->oom_score_adj, -998);
    assert_string_equal(p->apparmor_profile, "p");
    assert_string_equal(p->selinux_label, "l");
    assert_true(p->has_scheduler && p->has_io_priority);
    assert_int_equal(p->sched_policy, SCHED_DEADLINE);
    assert_true(p->sched_flags == 5 && p->sched_runtime == UINT64_C(10000000000000000000) &&
                p->sched_deadline == 2 && p->sched_period == 3);
    assert_int_equal(p->io_class, 3);
    assert_int_equal(p->io_level, 7);
    assert_string_equal(p->cpu_affinity_initial, "0-1");
    assert_string_equal(p->cpu_affinity_final, "1");
    spec_free(s);
}

static void the_linux_part_is_read_whole(void **state UNUSED)
{
    struct spec *s = parse_with(
        "linux",
        "{\"namespaces\":[{\"type\":\"pid\",\"path\":\"/proc/7/ns/pid\"},{\"type\":\"user\",\"path\":\"\"}],"
        "\"uidMappings\":[{\"containerID\":0,\"hostID\":4294901759,\"size\":65536}],\"gidMappings\":[],"
        "\"timeOffsets\":{\"boottime\":{\"secs\":-5,\"nanosecs\":6}},\"devices\":[{\"type\":\"c\",\"path\":"
        "\"/dev/null\",\"major\":1,"
        "\"minor\":3,\"uid\":8}],\"cgroupsPath\":\"a.slice:p:n\",\"sysctl\":{\"net.ipv4.ip_forward\":\"1\"},"
        "\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"listenerPath\":\"/"
        "x\",\"syscalls\":[{\"args\":[{\"value\":18446744073709551615}]}]},"
        "\"rootfsPropagation\":\"rslave\",\"mountLabel\":\"m\",\"maskedPaths\":[\"/proc/"
        "kcore\"],\"readonlyPaths\":[\"/proc/sys\",\"/x\"],"
        "\"personality\":{\"domain\":\"LINUX32\"},\"intelRdt\":{\"closID\":\"a\"},\"netDevices\":{},"
        "\"memoryPolicy\":{\"mode\":\"x\"}}");

    assert_true(s->ns[SPEC_NS_PID].present && s->ns[SPEC_NS_USER].present && !s->ns[SPEC_NS_NETWORK].present);
    assert_string_equal(s->ns[SPEC_NS_PID].path, "/proc/7/ns/pid");
    assert_null(s->ns[SPEC_NS_USER].path);
    assert_int_equal(s->n_uid_map, 1);
    assert_true(s->uid_map[0].host_id == 4294901759u && s->uid_map[0].size == 65536);
    assert_true(s->has_time_offsets && s->boottime.secs == -5 && s->boottime.nanosecs == 6 &&
                s->monotonic.secs == 0);
    assert_int_equal(s->n_devices, 1);
    assert_true(s->devices[0].type == 'c' && s->devices[0].major == 1 && s->devices[0].minor == 3 &&
                s->devices[0].uid == 8);
    assert_int_equal(s->devices[0].file_mode, 0666);
    assert_string_equal(s->cgroups_path, "a.slice:p:n");
    assert_int_equal(s->n_sysctl, 1);
    assert_string_equal(s->sysctl[0].value, "1");
    assert_true(s->has_seccomp_listener);
    assert_non_null(strstr(s->seccomp_json, "{\"value\":-1}"));
    assert_string_equal(s->rootfs_propagation, "rslave");
    assert_string_equal(s->mount_label, "m");
    assert_int_equal(s->masked_paths.n, 1);
    assert_string_equal(s->readonly_paths.item[1], "/x");
    assert_true(s->has_personality && s->has_intel_rdt && !s->has_net_devices && s->has_memory_policy);
    assert_string_equal(s->personality, "LINUX32");
    spec_free(s);
}

static void resources_are_read_whole(void **state UNUSED)
{
    static const char text[] =
        "{\"devices\":[{\"allow\":false},{\"allow\":true,\"type\":\"c\",\"major\":1,\"minor\":3,\"access\":"
        "\"rw\"}],"
        "\"memory\":{\"limit\":9223372036854775807,\"reservation\":-1,\"swap\":2,\"swappiness\":0,"
        "\"disableOOMKiller\":true,\"checkBeforeUpdate\":false,"
        "\"kernel\":1,\"kernelTCP\":2,\"useHierarchy\":true},\"cpu\":{\"shares\":2,\"quota\":-1,\"period\":"
        "100000,\"burst\":5,\"realtimeRuntime\":6,"
        "\"realtimePeriod\":7,\"idle\":1,\"cpus\":\"0-1\",\"mems\":\"0\"},\"pids\":{\"limit\":-1},"
        "\"blockIO\":{\"weight\":10,\"leafWeight\":20,\"weightDevice\":[{\"major\":8,\"minor\":0,\"weight\":"
        "30}],"
        "\"throttleWriteIOPSDevice\":[{\"major\":8,\"minor\":16,\"rate\":18446744073709551615}]},"
        "\"hugepageLimits\":[{\"pageSize\":\"2MB\",\"limit\":18446744073709551615}],\"network\":{\"classID\":"
        "1,\"priorities\":[{\"name\":\"eth0\",\"priority\":4}]},"
        "\"rdma\":{\"mlx\":{\"hcaHandles\":3}},\"unified\":{\"memory.high\":\"1G\",\"cgroup.max.depth\":"
        "\"3\"}}";
    struct spec_resources *r = NULL;
    struct err e = {0};

    /* A rule without access is the one thing wrong in it. */
    assert_int_equal(spec_resources_parse(text, strlen(text), &r, &e), -EINVAL);
    assert_string_equal(
        err_text(&e),
        "linux.resources.devices[0] has no access, which must be made of the letters r, w and m");
    scoped_free char *good = xasprintf("{\"devices\":[{\"access\":\"rwm\"}%s", strchr(text, '}') + 1);
    assert_int_equal(spec_resources_parse(good, strlen(good), &r, &e), 0);

    assert_int_equal(r->n_devices, 2);
    assert_true(r->devices[0].type == 'a' && r->devices[0].major == -1 && !r->devices[0].allow);
    assert_true(r->devices[1].type == 'c' && r->devices[1].minor == 3 && r->devices[1].allow);
    assert_true(r->memory_limit.has && r->memory_limit.value == INT64_MAX &&
                r->memory_reservation.value == -1);
    assert_true(r->memory_swap.value == 2 && r->memory_swappiness.has && r->memory_swappiness.value == 0);
    assert_true(r->memory_disable_oom_killer.value == 1 && r->memory_check_before_update.has &&
                r->memory_check_before_update.value == 0);
    assert_true(r->cpu_shares.value == 2 && r->cpu_quota.value == -1 && r->cpu_period.value == 100000 &&
                r->cpu_burst.value == 5);
    assert_true(r->cpu_rt_runtime.value == 6 && r->cpu_rt_period.value == 7 && r->cpu_idle.value == 1);
    assert_string_equal(r->cpuset_cpus, "0-1");
    assert_string_equal(r->cpuset_mems, "0");
    assert_true(r->pids_limit.value == -1 && r->blkio_weight.value == 10 && r->blkio_leaf_weight.value == 20);
    assert_true(r->n_weight_devices == 1 && r->weight_devices[0].weight.value == 30 &&
                !r->weight_devices[0].leaf_weight.has);
    assert_true(r->n_throttle[3] == 1 && r->throttle[3][0].rate == UINT64_MAX && r->n_throttle[0] == 0);
    assert_string_equal(r->hugepage[0].key, "2MB");
    assert_string_equal(r->hugepage[0].value, "18446744073709551615");
    assert_int_equal(r->net_class_id.value, 1);
    assert_string_equal(r->net_priorities[0].key, "eth0");
    assert_string_equal(r->net_priorities[0].value, "4");
    assert_true(r->n_rdma == 1 && r->rdma[0].hca_handles.value == 3 && !r->rdma[0].hca_objects.has);
    assert_int_equal(r->n_unified, 2);
    spec_resources_free(r);
}

static void an_exec_is_a_process_alone(void **state UNUSED)
{
    static const char text[] = "{\"args\":[\"ls\"],\"cwd\":\"/\",\"user\":{\"uid\":3}}",
                      wrong[] = "{\"args\":[\"ls\"],\"cwd\":7}";
    struct spec_process *p = NULL;
    struct err e = {0};

    assert_int_equal(spec_process_parse(text, strlen(text), &p, &e), 0);
    assert_string_equal(p->args.item[0], "ls");
    assert_int_equal(p->uid, 3);
    assert_int_equal(p->umask, SPEC_NO_UMASK);
    spec_process_free(p);
    p = NULL;
    assert_int_equal(spec_process_parse(wrong, strlen(wrong), &p, &e), -EINVAL);
    assert_string_equal(err_text(&e), "process.cwd must be a string, not a number");
    assert_int_equal(spec_process_parse("[", 1, &p, &e), -EINVAL);
    assert_null(p);
}

static void a_process_is_not_required(void **state UNUSED)
{
    struct spec *s = parse_with("process", NULL);
    assert_false(s->has_process);
    spec_free(s);
}

static void groups_and_types_come_from_annotations(void **state UNUSED)
{
    struct spec *s = parse_with(
        "annotations",
        "{\"io.kubernetes.cri.sandbox-id\":\"pod\",\"io.kubernetes.cri.container-type\":\"sandbox\"}");
    assert_string_equal(spec_group(s), "pod");
    assert_string_equal(spec_container_type(s), "sandbox");
    assert_null(spec_annotation(s, "other"));
    spec_free(s);
    s = parse_with("annotations",
                   "{\"io.kubernetes.cri.sandbox-id\":\"pod\",\"io.containerd.runc.v2.group\":\"mine\"}");
    assert_string_equal(spec_group(s), "mine");
    spec_free(s);
    s = parse_with("annotations", NULL);
    assert_null(spec_group(s));
    assert_null(spec_container_type(s));
    spec_free(s);
}

static void a_member_named_twice_counts_once(void **state UNUSED)
{
    static const char text[] =
        "{\"ociVersion\":\"1.0.0\",\"ociVersion\":\"1.1.0\",\"hostname\":\"a\",\"hostname\":\"b\",\"root\":{"
        "\"path\":\"x\"},"
        "\"mounts\":[{\"destination\":\"/a\"}],\"mounts\":[{\"destination\":\"rel\"}]}";
    struct spec *s = NULL;

    assert_int_equal(spec_parse(text, strlen(text), &s, NULL), 0);
    assert_string_equal(s->oci_version, "1.1.0");
    assert_string_equal(s->hostname, "b");
    assert_int_equal(s->n_mounts, 1);
    assert_string_equal(s->mounts[0].destination, "/rel");
    spec_free(s);
}

/* ---- limits ---- */

static void sizes_and_counts_are_limited(void **state UNUSED)
{
    struct err e = {0};
    struct spec *s = NULL;
    scoped_free char *huge = xcalloc(1, SPEC_MAX + 2);
    memset(huge, ' ', SPEC_MAX + 1);
    assert_int_equal(spec_parse(huge, SPEC_MAX + 1, &s, &e), -EFBIG);

    char *p = huge;
    p += sprintf(p, "{\"ociVersion\":\"1.0.0\",\"root\":{\"path\":\"x\"},\"mounts\":[");
    for (int i = 0; i < 4097; i++)
        p += sprintf(p, "%s{\"destination\":\"/m\"}", i ? "," : "");
    p += sprintf(p, "]}");
    assert_int_equal(spec_parse(huge, (size_t)(p - huge), &s, &e), -E2BIG);
    assert_string_equal(err_text(&e), "mounts has more than 4096 elements");

    p = huge + sprintf(huge, "{\"ociVersion\":\"1.0.0\",\"root\":{\"path\":\"");
    memset(p, 'x', 4096);
    (void)sprintf(p + 4096, "\"}}");
    assert_int_equal(spec_parse(huge, strlen(huge), &s, &e), -E2BIG);
    assert_string_equal(err_text(&e), "root.path is longer than 4095 bytes");

    memset(huge, '[', 100000);
    assert_int_equal(spec_parse(huge, 100000, &s, &e), -EINVAL);
    assert_null(s);
}

static void a_bundle_is_read_from_its_directory(void **state UNUSED)
{
    char dir[] = "/tmp/spec.XXXXXX";
    assert_non_null(mkdtemp(dir));
    scoped_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct spec *s = NULL;
    struct err e = {0};

    assert_int_equal(spec_load(fd, &s, &e), -ENOENT);
    assert_non_null(strstr(err_text(&e), "config.json"));
    assert_int_equal(file_replace(fd, "config.json", "{}", 0600, &e), 0);
    assert_int_equal(spec_load(fd, &s, &e), -EINVAL);
    assert_string_equal(err_text(&e), "config.json: ociVersion is missing");
    assert_int_equal(file_replace(fd, "config.json", spec_base, 0600, &e), 0);
    assert_int_equal(spec_load(fd, &s, &e), 0);
    assert_string_equal(s->hostname, "box");
    spec_free(s);
    assert_int_equal(unlinkat(fd, "config.json", 0), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void names_have_numbers_and_numbers_names(void **state UNUSED)
{
    for (int i = 0; i <= CAP_LAST_CAP; i++) {
        assert_non_null(oci_capability_name(i));
        assert_int_equal(oci_capability(oci_capability_name(i)), i);
    }
    assert_int_equal(oci_capability("SYS_ADMIN"), -1);
    assert_int_equal(oci_capability(""), -1);
    for (int i = 0; i < RLIMIT_NLIMITS; i++) {
        assert_non_null(oci_rlimit_name(i));
        assert_int_equal(oci_rlimit(oci_rlimit_name(i)), i);
    }
    assert_null(oci_rlimit_name(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_field_is_refused_by_its_name),
        cmocka_unit_test(text_that_is_no_configuration_is_refused),
        cmocka_unit_test(unknown_members_and_nulls_are_ignored),
        cmocka_unit_test(the_process_is_read_whole),
        cmocka_unit_test(the_linux_part_is_read_whole),
        cmocka_unit_test(resources_are_read_whole),
        cmocka_unit_test(an_exec_is_a_process_alone),
        cmocka_unit_test(a_process_is_not_required),
        cmocka_unit_test(groups_and_types_come_from_annotations),
        cmocka_unit_test(a_member_named_twice_counts_once),
        cmocka_unit_test(sizes_and_counts_are_limited),
        cmocka_unit_test(a_bundle_is_read_from_its_directory),
        cmocka_unit_test(names_have_numbers_and_numbers_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
