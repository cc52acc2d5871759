#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/strbuf.h"
#include "shim/cgroup/internal.h"
#include "shim/cgroup/stats.h"

/* ---- paths ---- */

static void paths_are_expanded(void **state UNUSED)
{
    static const struct {
        const char *in, *out; /* out NULL: refused */
        bool relative;
    } cases[] = {
        {"/kubepods/burstable/poduid/id", "kubepods/burstable/poduid/id", false},
        {"/default//x/./y/", "default/x/y", false},
        {"default/x", "default/x", true},
        {"x", "x", true},
        {"/a/../b", NULL, false},
        {"..", NULL, false},
        {"/", NULL, false},
        {"", NULL, false},
        {NULL, NULL, false},
        {"/a\nb", NULL, false},
        {"/..a/b..", "..a/b..", false},
        {"kubepods-burstable-pod1_2.slice:cri-containerd:abc",
         "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope",
         false},
        {"system.slice:docker:x", "system.slice/docker-x.scope", false},
        {":p:x", "system.slice/p-x.scope", false},
        {"-.slice:p:x", "p-x.scope", false},
        {"a.slice::x", "a.slice/x.scope", false},
        {"a.slice:p:b.slice", "a.slice/b.slice", false},
        {"a.slice:p:", NULL, false},
        {"a:p:x", NULL, false},
        {".slice:p:x", NULL, false},
        {"-a.slice:p:x", NULL, false},
        {"a-.slice:p:x", NULL, false},
        {"a--b.slice:p:x", NULL, false},
        {"/a:b:c", "a:b:c", false},               /* a slash: not the systemd form */
        {"a.slice:b:c:d", "a.slice:b:c:d", true}, /* three colons: neither */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        scoped_free char *out = NULL;
        bool relative = false;
        struct err e = {0};
        int r = cg_path_expand(cases[i].in, &out, &relative, &e);
        if ((r == 0) != (cases[i].out != NULL))
            print_error("%s: %d %s\n", cases[i].in, r, r ? err_text(&e) : out);
        if (!cases[i].out) {
            assert_true(r < 0);
            assert_non_null(strstr(err_text(&e), "linux.cgroupsPath"));
            continue;
        }
        assert_int_equal(r, 0);
        assert_string_equal(out, cases[i].out);
        assert_int_equal(relative, cases[i].relative);
    }
}

static void endless_paths_are_refused(void **state UNUSED)
{
    scoped_free char *path = xcalloc(1, 8192);
    scoped_free char *out = NULL;
    bool relative;

    memset(path, 'x', 300);
    path[0] = '/';
    assert_int_equal(cg_path_expand(path, &out, &relative, NULL), -EINVAL);
    for (size_t i = 0; i < 8000; i += 2)
        memcpy(path + i, "/a", 2);
    assert_int_equal(cg_path_expand(path, &out, &relative, NULL), -ENAMETOOLONG);
    assert_null(out);
}

/* ---- the host ---- */

static const char v1_mounts[] =
    "24 1 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "25 24 0:21 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 - cgroup cgroup rw,cpu,cpuacct\n"
    "26 24 0:22 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "27 24 0:23 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
    "28 24 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "29 24 0:25 / /sys/fs/cgroup/elogind rw - cgroup cgroup rw,name=elogind\n"
    "30 24 0:22 / /mnt/memory rw - cgroup cgroup rw,memory\n"
    "broken line\n31 24";

static void hierarchies_are_found_in_mountinfo(void **state UNUSED)
{
    struct cg_host h;

    cg_host_parse(v1_mounts, &h);
    assert_int_equal(h.mode, CGROUP_V1);
    assert_int_equal(h.n, 4);
    assert_string_equal(h.hier[0].mount, "/sys/fs/cgroup/cpu,cpuacct");
    assert_int_equal(h.hier[0].ctrl, CG_CPU | CG_CPUACCT);
    assert_string_equal(h.hier[1].root, "/docker/x");
    assert_int_equal(h.hier[2].ctrl, CG_SYSTEMD);
    assert_true(h.hier[3].v2 && h.hier[3].ctrl == CG_CORE);

    cg_host_parse("30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n", &h);
    assert_int_equal(h.mode, CGROUP_V2);
    assert_int_equal(h.n, 1);
    cg_host_parse("", &h);
    assert_int_equal(h.mode, CGROUP_NONE);
}

static void our_own_group_is_found(void **state UNUSED)
{
    static const char proc[] = "9:name=systemd:/user.slice\n5:cpu,cpuacct:/a/b\n4:memory:/process\n0::/u\n";
    struct cg_host h;
    char path[64];

    cg_host_parse(v1_mounts, &h);
    assert_true(cg_own_path(proc, &h.hier[0], path, sizeof path));
    assert_string_equal(path, "/a/b");
    assert_true(cg_own_path(proc, &h.hier[2], path, sizeof path));
    assert_string_equal(path, "/user.slice");
    assert_true(cg_own_path(proc, &h.hier[3], path, sizeof path));
    assert_string_equal(path, "/u");
    assert_false(cg_own_path("1:pids:/x\n", &h.hier[0], path, sizeof path));
    assert_false(cg_own_path(proc, &h.hier[1], path, 4)); /* longer than the buffer */
}

static void controllers_have_two_names(void **state UNUSED)
{
    assert_string_equal(cg_ctrl_name(CG_IO, CGROUP_V1), "blkio");
    assert_string_equal(cg_ctrl_name(CG_IO, CGROUP_V2), "io");
    assert_string_equal(cg_ctrl_name(CG_MEMORY, CGROUP_V2), "memory");
    assert_int_equal(cg_ctrl_bit("io"), CG_IO);
    assert_int_equal(cg_ctrl_bit("blkio"), CG_IO);
    assert_int_equal(cg_ctrl_bit("rw"), 0);
}

/* ---- plans ---- */

static char *print_plan(const struct cg_plan *p)
{
    scoped_strbuf struct strbuf out;
    strbuf_init(&out, 65536);
    for (size_t i = 0; i < p->n; i++) {
        const struct cg_step *s = &p->step[i];
        strbuf_printf(&out, "%s=%s", s->file, s->text ? s->text : s->value);
        if (s->alt_file)
            strbuf_printf(&out, "|%s=%s", s->alt_file, s->alt_value);
        strbuf_puts(&out, ";");
    }
    return strbuf_detach(&out);
}

static void resources_become_writes(void **state UNUSED)
{
    static const struct {
        const char *json, *v1, *v2; /* "!": refused, then how the sentence begins */
    } cases[] = {
        {"{}", "", ""},
        {"{\"cpu\":{\"shares\":0,\"quota\":0,\"period\":0},\"memory\":{\"limit\":0,\"swap\":0},\"pids\":{"
         "\"limit\":0}}",
         "", ""},
        {"{\"cpu\":{\"shares\":1024}}", "cpu.shares=1024;", "cpu.weight=100;"},
        {"{\"cpu\":{\"quota\":50000,\"period\":100000}}", "cpu.cfs_period_us=100000;cpu.cfs_quota_us=50000;",
         "cpu.max=50000 100000;"},
        {"{\"cpu\":{\"quota\":-1}}", "cpu.cfs_quota_us=-1;", "cpu.max=max 200000;"},
        {"{\"cpu\":{\"quota\":-7}}", "cpu.cfs_quota_us=-1;", "cpu.max=max 200000;"},
        {"{\"cpu\":{\"period\":50000}}", "cpu.cfs_period_us=50000;", "cpu.max=77 50000;"},
        {"{\"cpu\":{\"quota\":999}}",
         "!linux.resources.cpu.quota must be at least 1000, the kernel's minimum, not 999",
         "!linux.resources.cpu.quota must be at least 1000, the kernel's minimum, not 999"},
        {"{\"cpu\":{\"period\":10}}", "!linux.resources.cpu.period must be at least 1000",
         "!linux.resources.cpu.period must be at least 1000"},
        {"{\"cpu\":{\"burst\":0,\"idle\":1}}", "cpu.cfs_burst_us=0;cpu.idle=1;",
         "cpu.idle=1;cpu.max.burst=0;"},
        {"{\"cpu\":{\"cpus\":\"0-1\",\"mems\":\"0\"}}", "cpuset.cpus=0-1;cpuset.mems=0;",
         "cpuset.cpus=0-1;cpuset.mems=0;"},
        {"{\"cpu\":{\"realtimeRuntime\":5}}", "cpu.rt_runtime_us=5;",
         "!linux.resources.cpu.realtimeRuntime needs a host with cgroup v1"},
        {"{\"memory\":{\"limit\":1000}}", "memory.limit_in_bytes=1000;", "memory.max=1000;"},
        {"{\"memory\":{\"limit\":1000,\"swap\":1500}}",
         "memory.limit_in_bytes=1000;memory.memsw.limit_in_bytes=1500;",
         "memory.swap.max=500;memory.max=1000;"},
        {"{\"memory\":{\"limit\":1000,\"swap\":1000}}",
         "memory.limit_in_bytes=1000;memory.memsw.limit_in_bytes=1000;",
         "memory.swap.max=0;memory.max=1000;"},
        {"{\"memory\":{\"limit\":1000,\"swap\":-1}}",
         "memory.limit_in_bytes=1000;memory.memsw.limit_in_bytes=-1;",
         "memory.swap.max=max;memory.max=1000;"},
        {"{\"memory\":{\"limit\":1000,\"swap\":999}}",
         "!linux.resources.memory.swap (memory and swap together, 999) must not be less",
         "!linux.resources.memory.swap (memory and swap together, 999) must not be less"},
        {"{\"memory\":{\"swap\":3000}}", "memory.memsw.limit_in_bytes=3000;",
         "memory.swap.max=1000;"}, /* memory.max is 2000 now */
        {"{\"memory\":{\"limit\":-1}}", "memory.limit_in_bytes=-1;memory.memsw.limit_in_bytes=-1;",
         "memory.swap.max=max;memory.max=max;"},
        {"{\"memory\":{\"limit\":-1,\"swap\":5}}", "memory.limit_in_bytes=-1;memory.memsw.limit_in_bytes=5;",
         "!linux.resources.memory.swap needs memory.limit"},
        {"{\"memory\":{\"reservation\":-1,\"swappiness\":0}}",
         "memory.soft_limit_in_bytes=-1;memory.swappiness=0;", "memory.low=max;"},
        {"{\"memory\":{\"disableOOMKiller\":true}}", "memory.oom_control=1;",
         "!linux.resources.memory.disableOOMKiller needs a host with cgroup v1"},
        {"{\"memory\":{\"disableOOMKiller\":false}}", "memory.oom_control=0;", ""},
        {"{\"pids\":{\"limit\":-1}}", "pids.max=max;", "pids.max=max;"},
        {"{\"pids\":{\"limit\":64}}", "pids.max=64;", "pids.max=64;"},
        {"{\"blockIO\":{\"weight\":500}}", "blkio.weight=500|blkio.bfq.weight=500;",
         "io.bfq.weight=500|io.weight=4950;"},
        {"{\"blockIO\":{\"weightDevice\":[{\"major\":8,\"minor\":1,\"weight\":10}]}}",
         "blkio.weight_device=8:1 10|blkio.bfq.weight_device=8:1 10;",
         "io.bfq.weight=8:1 10|io.weight=8:1 1;"},
        {"{\"blockIO\":{\"throttleReadBpsDevice\":[{\"major\":8,\"minor\":0,\"rate\":5}],"
         "\"throttleWriteIOPSDevice\":[{\"major\":8,\"minor\":0,\"rate\":0}]}}",
         "blkio.throttle.read_bps_device=8:0 5;blkio.throttle.write_iops_device=8:0 0;",
         "io.max=8:0 rbps=5;io.max=8:0 wiops=max;"},
        {"{\"hugepageLimits\":[{\"pageSize\":\"2MB\",\"limit\":7}]}",
         "hugetlb.2MB.limit_in_bytes=7;hugetlb.2MB.rsvd.limit_in_bytes=7;",
         "hugetlb.2MB.max=7;hugetlb.2MB.rsvd.max=7;"},
        {"{\"network\":{\"classID\":5,\"priorities\":[{\"name\":\"eth0\",\"priority\":3}]}}",
         "net_cls.classid=5;net_prio.ifpriomap=eth0 3;",
         "!linux.resources.network.classID needs a host with cgroup v1"},
        {"{\"network\":{\"priorities\":[{\"name\":\"eth0\",\"priority\":3}]}}", "net_prio.ifpriomap=eth0 3;",
         "!linux.resources.network.priorities needs a host with cgroup v1"},
        {"{\"rdma\":{\"m\":{\"hcaHandles\":2}}}", "rdma.max=m hca_handle=2 hca_object=max;",
         "rdma.max=m hca_handle=2 hca_object=max;"},
        {"{\"unified\":{\"memory.high\":\"1G\"}}",
         "!linux.resources.unified.memory.high needs a host with cgroup v2", "memory.high=1G;"},
    };
    const struct cg_current now = {.memory_max = 2000, .cpu_quota = "77", .cpu_period = "200000"};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (int version = 1; version <= 2; version++) {
            const char *want = version == 1 ? cases[i].v1 : cases[i].v2;
            struct spec_resources *res = NULL;
            struct cg_plan plan = {0};
            struct err e = {0};
            assert_int_equal(spec_resources_parse(cases[i].json, strlen(cases[i].json), &res, &e), 0);
            int r = version == 1 ? cg_plan_v1(res, &plan, &e) : cg_plan_v2(res, &now, &plan, &e);
            scoped_free char *got =
                r < 0 ? xasprintf("!%.*s", (int)strlen(want + (want[0] == '!')), err_text(&e))
                      : print_plan(&plan);
            if (strcmp(got, want) != 0)
                print_error("%s on v%d\n", cases[i].json, version);
            assert_string_equal(got, want);
            cg_plan_done(&plan);
            spec_resources_free(res);
        }
    }
}

static void steps_name_their_field(void **state UNUSED)
{
    static const char json[] =
        "{\"cpu\":{\"shares\":5},\"memory\":{\"limit\":1},\"unified\":{\"io.max\":\"x\",\"odd\":\"y\"}}";
    static const char *const fields[] = {"linux.resources.memory.limit", "linux.resources.cpu.shares",
                                         "linux.resources.unified.io.max", "linux.resources.unified.odd"};
    static const unsigned ctrl[] = {CG_MEMORY, CG_CPU, CG_IO, CG_CORE};
    const struct cg_current now = {.memory_max = -1, .cpu_quota = "max", .cpu_period = "100000"};
    struct spec_resources *res = NULL;
    struct cg_plan plan = {0};

    assert_int_equal(spec_resources_parse(json, strlen(json), &res, NULL), 0);
    assert_int_equal(cg_plan_v2(res, &now, &plan, NULL), 0);
    assert_int_equal(plan.n, ARRAY_LEN(fields));
    for (size_t i = 0; i < plan.n; i++) {
        assert_string_equal(plan.step[i].field, fields[i]);
        assert_int_equal(plan.step[i].ctrl, ctrl[i]);
    }
    cg_plan_done(&plan);
    spec_resources_free(res);
}

static void shares_become_weights(void **state UNUSED)
{
    static const uint64_t table[][2] = {
        {0, 1},      {1, 1},      {2, 1},          {3, 2},          {102, 17},          {512, 59},
        {1024, 100}, {2048, 174}, {262143, 10000}, {262144, 10000}, {UINT64_MAX, 10000}};
    uint64_t last = 0;

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_int_equal(cg_weight_from_shares(table[i][0]), table[i][1]);
    for (uint64_t s = 0; s < 300000;
         s += 7) { /* more shares never weigh less, and the kernel takes 1..10000 only */
        uint64_t w = cg_weight_from_shares(s);
        assert_true(w >= last && w >= 1 && w <= 10000);
        last = w;
    }
    assert_int_equal(cg_io_weight(10), 1);
    assert_int_equal(cg_io_weight(1000), 10000);
    assert_int_equal(cg_io_weight(0), 1);
}

/* ---- counters ---- */

static void memory_of_version_1_is_read(void **state UNUSED)
{
    static const char text[] = "cache 1\nrss 2\nrss_huge 3\nshmem 99\nmapped_file 4\npgpgin 5\npgmajfault "
                               "6\nhierarchical_memory_limit 9223372036854771712\n"
                               "hierarchical_memsw_limit 7\ntotal_cache 8\ntotal_rss 9\ntotal_inactive_file "
                               "10\ntotal_unevictable 18446744073709551615\nbroken\n";
    struct cgroup_stats s = {0};

    cg_parse_memory_v1(text, &s);
    assert_true(s.v1.has_memory);
    assert_true(s.v1.memory.cache == 1 && s.v1.memory.rss == 2 && s.v1.memory.mapped_file == 4 &&
                s.v1.memory.pg_pg_in == 5);
    assert_true(s.v1.memory.pg_maj_fault == 6 &&
                s.v1.memory.hierarchical_memory_limit == 9223372036854771712u &&
                s.v1.memory.hierarchical_swap_limit == 7);
    assert_true(s.v1.memory.total_cache == 8 && s.v1.memory.total_rss == 9 &&
                s.v1.memory.total_inactive_file == 10);
    assert_true(s.v1.memory.total_unevictable == UINT64_MAX && s.v1.memory.dirty == 0);
}

static void memory_of_version_2_is_read_in_any_order(void **state UNUSED)
{
    static const char text[] = "workingset_refault_file 7\nfile 2\nanon 1\nslab 3\npgfault "
                               "4\nthp_collapse_alloc 5\nworkingset_activate_anon 6";
    struct cgroup_stats s = {0};

    cg_parse_memory_v2(text, &s);
    assert_true(s.v2.memory.anon == 1 && s.v2.memory.file == 2 && s.v2.memory.slab == 3 &&
                s.v2.memory.pgfault == 4);
    assert_true(s.v2.memory.thp_collapse_alloc == 5 && s.v2.memory.workingset_activate_anon == 6 &&
                s.v2.memory.workingset_refault_file == 7);
}

static void block_devices_are_read(void **state UNUSED)
{
    struct cgroup_stats s = {0};

    cg_parse_blkio_v1("8:0 Read 1\n8:0 Write 2\n254:16 Discard 3\n8:16 77\nTotal 6\n", BLKIO_SERVICE_BYTES,
                      &s);
    assert_int_equal(s.v1.n_blkio[BLKIO_SERVICE_BYTES], 4);
    assert_string_equal(s.v1.blkio[BLKIO_SERVICE_BYTES][1].op, "Write");
    assert_true(s.v1.blkio[BLKIO_SERVICE_BYTES][2].major == 254 &&
                s.v1.blkio[BLKIO_SERVICE_BYTES][2].minor == 16 &&
                s.v1.blkio[BLKIO_SERVICE_BYTES][2].value == 3);
    assert_string_equal(s.v1.blkio[BLKIO_SERVICE_BYTES][3].op, "");
    assert_int_equal(s.v1.blkio[BLKIO_SERVICE_BYTES][3].value, 77);
    cg_parse_io_v2("254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n8:0 \n7:0 cost.usage=1\n", &s);
    assert_int_equal(s.v2.n_io, 1);
    assert_true(s.v2.io[0].major == 254 && s.v2.io[0].rbytes == 1 && s.v2.io[0].wios == 4);
    cgroup_stats_done(&s);
    cgroup_stats_done(&s); /* again is harmless */
}

static void pressure_and_rdma_are_read(void **state UNUSED)
{
    struct cgroup_stats s = {0};

    cg_parse_psi("some avg10=1.50 avg60=2.25 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.75 "
                 "total=456\n",
                 &s.v2.cpu_psi);
    assert_true(s.v2.cpu_psi.has && s.v2.cpu_psi.some.avg10 == 1.5 && s.v2.cpu_psi.some.avg60 == 2.25);
    assert_true(s.v2.cpu_psi.some.total == 123 && s.v2.cpu_psi.full.avg300 == 0.75 &&
                s.v2.cpu_psi.full.total == 456);
    cg_parse_psi("", &s.v2.io_psi);
    assert_false(s.v2.io_psi.has);
    cg_parse_rdma("mlx4_0 hca_handle=2 hca_object=max\nbroken\n", &s, true);
    assert_int_equal(s.n_rdma_limit, 1);
    assert_string_equal(s.rdma_limit[0].device, "mlx4_0");
    assert_true(s.rdma_limit[0].hca_handles == 2 && s.rdma_limit[0].hca_objects == UINT32_MAX);
}

static void keyed_lines_need_the_whole_key(void **state UNUSED)
{
    uint64_t v = 7;

    assert_false(cg_keyed("oom_kill_disable 1\n", "oom_kill", &v));
    assert_int_equal(v, 7);
    assert_true(cg_keyed("oom_kill_disable 0\nunder_oom 0\noom_kill 3", "oom_kill", &v));
    assert_int_equal(v, 3);
    assert_false(cg_keyed("", "x", &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_expanded),
        cmocka_unit_test(endless_paths_are_refused),
        cmocka_unit_test(hierarchies_are_found_in_mountinfo),
        cmocka_unit_test(our_own_group_is_found),
        cmocka_unit_test(controllers_have_two_names),
        cmocka_unit_test(resources_become_writes),
        cmocka_unit_test(steps_name_their_field),
        cmocka_unit_test(shares_become_weights),
        cmocka_unit_test(memory_of_version_1_is_read),
        cmocka_unit_test(memory_of_version_2_is_read_in_any_order),
        cmocka_unit_test(block_devices_are_read),
        cmocka_unit_test(pressure_and_rdma_are_read),
        cmocka_unit_test(keyed_lines_need_the_whole_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
