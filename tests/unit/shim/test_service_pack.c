/* What the service puts on the wire, read back with the generated decoders; and the state file. */
#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "events.pb-c.h"
#include "metrics_v1.pb-c.h"
#include "metrics_v2.pb-c.h"
#include "shim/cgroup/stats.h"
#include "shim/runtime/runtime.h"
#include "shim/runtime/state.h"
#include "shim/service/pack.h"
#include "shim/service/service.h"
#include "shim/ttrpc/events.h"

static struct {
    char topic[64], type[64];
    uint8_t msg[4096];
    size_t len;
} sent;

void events_publish(struct events *ev UNUSED, const char *topic, const char *type, const uint8_t *msg,
                    size_t len)
{
    (void)snprintf(sent.topic, sizeof sent.topic, "%s", topic);
    (void)snprintf(sent.type, sizeof sent.type, "%s", type);
    assert_true(len <= sizeof sent.msg);
    memcpy(sent.msg, msg, len);
    sent.len = len;
}

static void every_event_has_its_topic_and_its_type(void **state UNUSED)
{
    static const char *const want[][2] = {
        [RT_CREATED] = {"/tasks/create", "containerd.events.TaskCreate"},
        [RT_STARTED] = {"/tasks/start", "containerd.events.TaskStart"},
        [RT_EXEC_ADDED] = {"/tasks/exec-added", "containerd.events.TaskExecAdded"},
        [RT_EXEC_STARTED] = {"/tasks/exec-started", "containerd.events.TaskExecStarted"},
        [RT_OOM] = {"/tasks/oom", "containerd.events.TaskOOM"},
        [RT_EXITED] = {"/tasks/exit", "containerd.events.TaskExit"},
        [RT_DELETED] = {"/tasks/delete", "containerd.events.TaskDelete"},
        [RT_PAUSED] = {"/tasks/paused", "containerd.events.TaskPaused"},
        [RT_RESUMED] = {"/tasks/resumed", "containerd.events.TaskResumed"},
    };
    const struct rt_create create = {.id = "c", .bundle = "/b", .uri = {"", "", ""}};
    const struct rt_event_info info = {
        .id = "c", .exec_id = "e", .process = {.pid = 7, .status = 9, .at = {100, 5}}, .create = &create};
    struct service s = {0};

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        service_publish(&s, (enum rt_event)i, &info);
        assert_string_equal(sent.topic, want[i][0]);
        assert_string_equal(sent.type, want[i][1]);
        assert_memory_equal(sent.msg,
                            "\x0a\x01"
                            "c",
                            3); /* field 1 of each is the container's id */
    }
}

static void an_exit_names_the_container_when_it_is_the_inits(void **state UNUSED)
{
    const struct rt_event_info infos[] = {
        {.id = "c", .process = {.pid = 7, .status = 137, .at = {100, 5}}},
        {.id = "c", .exec_id = "e", .process = {.pid = 8, .status = 1, .at = {101, 6}}}};
    struct service s = {0};

    for (size_t i = 0; i < ARRAY_LEN(infos); i++) {
        service_publish(&s, RT_EXITED, &infos[i]);
        Containerd__Events__TaskExit *m = containerd__events__task_exit__unpack(NULL, sent.len, sent.msg);
        assert_non_null(m);
        assert_string_equal(m->container_id, "c");
        assert_string_equal(m->id, i == 0 ? "c" : "e");
        assert_int_equal(m->pid, infos[i].process.pid);
        assert_int_equal(m->exit_status, infos[i].process.status);
        assert_int_equal(m->exited_at->seconds, 100 + i);
        containerd__events__task_exit__free_unpacked(m, NULL);
    }
}

static void a_create_carries_the_mounts_and_the_streams(void **state UNUSED)
{
    const char *const options[] = {"ro", "index=off"};
    const struct launch_mount mount = {
        .type = "overlay", .source = "overlay", .target = "", .options = options, .n_options = 2};
    const struct rt_create create = {.id = "c",
                                     .bundle = "/b",
                                     .rootfs = &mount,
                                     .n_rootfs = 1,
                                     .terminal = true,
                                     .uri = {"/i", "/o", ""}};
    const struct rt_event_info info = {.id = "c", .process = {.pid = 3}, .create = &create};
    struct service s = {0};

    service_publish(&s, RT_CREATED, &info);
    Containerd__Events__TaskCreate *m = containerd__events__task_create__unpack(NULL, sent.len, sent.msg);
    assert_non_null(m);
    assert_int_equal(m->n_rootfs, 1);
    assert_string_equal(m->rootfs[0]->options[1], "index=off");
    assert_string_equal(m->io->stdout, "/o");
    assert_true(m->io->terminal);
    assert_int_equal(m->pid, 3);
    containerd__events__task_create__free_unpacked(m, NULL);
}

static void version_1_counters_arrive_in_their_fields(void **state UNUSED)
{
    struct cgroup_v1_blkio_entry io = {.op = "Read", .major = 8, .minor = 1, .value = 77};
    uint64_t cpus[] = {1, 2, 3};
    struct cgroup_stats s = {.mode = CGROUP_V1, .has_pids = true, .pids = {5, 0}, .n_hugetlb = 1};
    const char *type;
    size_t len;

    s.v1.has_cpu = s.v1.has_memory = s.v1.has_blkio = s.v1.has_oom_control = true;
    s.v1.cpu_total = 1000;
    s.v1.per_cpu = cpus;
    s.v1.n_per_cpu = 3;
    s.v1.memory.total_inactive_file = 11;
    s.v1.usage =
        (struct cgroup_v1_memory_entry){.has = true, .limit = 100, .usage = 50, .max = 60, .failcnt = 1};
    s.v1.blkio[BLKIO_SERVICE_BYTES] = &io;
    s.v1.n_blkio[BLKIO_SERVICE_BYTES] = 1;
    s.v1.oom_kill = 2;
    scoped_free uint8_t *buf = pack_stats(&s, &type, &len);
    assert_string_equal(type, "io.containerd.cgroups.v1.Metrics");
    Io__Containerd__Cgroups__V1__Metrics *m = io__containerd__cgroups__v1__metrics__unpack(NULL, len, buf);
    assert_non_null(m);
    assert_int_equal(m->pids->current, 5);
    assert_int_equal(m->cpu->usage->total, 1000);
    assert_int_equal(m->cpu->usage->n_per_cpu, 3);
    assert_null(m->cpu->throttling); /* the file was not there */
    assert_int_equal(m->memory->total_inactive_file, 11);
    assert_int_equal(m->memory->usage->limit, 100);
    assert_null(m->memory->swap);
    assert_int_equal(m->blkio->io_service_bytes_recursive[0]->value, 77);
    assert_string_equal(m->blkio->io_service_bytes_recursive[0]->op, "Read");
    assert_int_equal(m->memory_oom_control->oom_kill, 2);
    assert_int_equal(m->n_hugetlb, 1);
    assert_null(m->rdma);
    io__containerd__cgroups__v1__metrics__free_unpacked(m, NULL);
}

static void version_2_counters_arrive_in_their_fields(void **state UNUSED)
{
    struct cgroup_v2_io_entry io = {.major = 8, .rbytes = 9, .wios = 4};
    struct cgroup_stats s = {.mode = CGROUP_V2, .has_pids = true, .pids = {5, UINT64_MAX}};
    const char *type;
    size_t len;

    s.v2.has_cpu = s.v2.has_memory = s.v2.has_io = s.v2.has_memory_events = true;
    s.v2.usage_usec = 12;
    s.v2.cpu_psi = (struct cgroup_psi){.has = true, .some = {.avg10 = 1.5, .total = 3}};
    s.v2.memory.usage = 50;
    s.v2.memory.usage_limit = UINT64_MAX;
    s.v2.io = &io;
    s.v2.n_io = 1;
    s.v2.events_oom_kill = 1;
    scoped_free uint8_t *buf = pack_stats(&s, &type, &len);
    assert_string_equal(type, "io.containerd.cgroups.v2.Metrics");
    Io__Containerd__Cgroups__V2__Metrics *m = io__containerd__cgroups__v2__metrics__unpack(NULL, len, buf);
    assert_non_null(m);
    assert_true(m->pids->limit == UINT64_MAX);
    assert_int_equal(m->cpu->usage_usec, 12);
    assert_true(m->cpu->psi->some->avg10 > 1.4 && m->cpu->psi->some->avg10 < 1.6);
    assert_null(m->memory->psi);
    assert_true(m->memory->usage_limit == UINT64_MAX);
    assert_int_equal(m->io->usage[0]->wios, 4);
    assert_int_equal(m->memory_events->oom_kill, 1);
    io__containerd__cgroups__v2__metrics__free_unpacked(m, NULL);
}

static void only_plain_names_may_become_part_of_a_path(void **state UNUSED)
{
    static const struct {
        const char *name;
        bool good;
    } rows[] = {{"a", true},
                {"a-b_c.d", true},
                {"A1", true},
                {"", false},
                {"..", false},
                {"a/b", false},
                {"a..b", false},
                {"-a", false},
                {"a-", false},
                {".a", false},
                {"a b", false},
                {"\xc3\xa4", false},
                {NULL, false},
                {"0123456789012345678901234567890123456789012345678901234567890123456789012345", true},
                {"01234567890123456789012345678901234567890123456789012345678901234567890123456", false}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(state_name_is_valid(rows[i].name), rows[i].good);
}

static void a_state_file_cut_anywhere_gives_no_wrong_number(void **state UNUSED)
{
    char dir[] = "/tmp/state.XXXXXX";
    char pod[] = "pod", cgroup[] = "/a/b", socket[] = "/s";
    const struct state s = {.pod = pod,
                            .cgroup = cgroup,
                            .socket = socket,
                            .init = {12345, 678901},
                            .sentry = {23456, 789012},
                            .has_exit = true,
                            .exit_status = 137,
                            .exit_at = {1700000000, 123456789}};

    assert_non_null(mkdtemp(dir));
    assert_int_equal(state_write(dir, "ns", "id", &s, NULL), 0);
    scoped_free char *path = xasprintf("%s/ns/id/state", dir);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (off_t n = st.st_size; n >= 0; n--) {
        scoped(state_free) struct state *got = NULL;
        assert_int_equal(truncate(path, n), 0);
        assert_int_equal(state_read(dir, "ns", "id", &got, NULL), 0);
        assert_true(got->init.pid == 0 || (got->init.pid == 12345 && got->init.start == 678901));
        assert_true(got->sentry.pid == 0 || (got->sentry.pid == 23456 && got->sentry.start == 789012));
        assert_true(!got->has_exit || (got->exit_status == 137 && got->exit_at.tv_nsec == 123456789));
        assert_true(!got->cgroup || strcmp(got->cgroup, "/a/b") == 0);
    }
    state_remove(dir, "ns", "id");
    assert_int_equal(rmdir(dir), 0);
}

static void a_process_is_known_by_its_start_and_not_by_its_number(void **state UNUSED)
{
    struct state_process self = state_process_of(getpid());

    assert_true(self.start > 0);
    scoped_fd int fd = state_process_open(&self);
    assert_true(fd >= 0);
    self.start++;
    assert_int_equal(state_process_open(&self), -ESRCH);
    self.start = 0;
    assert_int_equal(state_process_open(&self), -ESRCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_has_its_topic_and_its_type),
        cmocka_unit_test(an_exit_names_the_container_when_it_is_the_inits),
        cmocka_unit_test(a_create_carries_the_mounts_and_the_streams),
        cmocka_unit_test(version_1_counters_arrive_in_their_fields),
        cmocka_unit_test(version_2_counters_arrive_in_their_fields),
        cmocka_unit_test(only_plain_names_may_become_part_of_a_path),
        cmocka_unit_test(a_state_file_cut_anywhere_gives_no_wrong_number),
        cmocka_unit_test(a_process_is_known_by_its_start_and_not_by_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
