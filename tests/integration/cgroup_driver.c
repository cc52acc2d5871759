/*
 * shim/cgroup against the real kernel, on whichever version this machine has; root.  Prints one line per
 * case.  Everything is made below /gbxcg-<pid>, and that nothing of it is left is a case too.
 *
 *   cgroup_driver          all cases
 *   cgroup_driver systemd  scopes; only where systemd is process 1 and cgroups are version 2
 *   cgroup_driver bench    how long the steps take: median of 50, in ms
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/cgroup/cgroup.h"
#include "shim/cgroup/stats.h"
#include "shim/oci/spec.h"

static char top[64]; /* "/gbxcg-123" */
static int failures;
static bool v2;

/* A name is a sentence. */
static const char *title(const char *name)
{
    static char text[128];
    (void)snprintf(text, sizeof text, "%s", name);
    for (char *p = text; *p; p++)
        if (*p == '_')
            *p = ' ';
    return text;
}

/* Ends the case: where, and what was untrue. */
#define CHECK(cond)                                                                                          \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            printf("FAIL %s: line %d: %s (%s)\n", title(__func__), __LINE__, #cond, err_text(&e));           \
            failures++;                                                                                      \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)
#define OK printf("ok %s\n", title(__func__))
#define SKIP(why)                                                                                            \
    do {                                                                                                     \
        printf("skip %s: %s\n", title(__func__), why);                                                       \
        return;                                                                                              \
    } while (0)

/* A group that is killed and removed at the end of the scope. */
static void end_group(struct cgroup *cg)
{
    if (!cg)
        return;
    (void)cgroup_kill(cg, SIGKILL, NULL);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    /* Orphans are not ours to wait for; what is left of them would be in the next case's group. */
    for (int i = 0; cgroup_remove(cg, NULL) == -EBUSY && i < 1000; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    cgroup_free(cg);
}
SCOPED_DEFINE(struct cgroup, end_group)
SCOPED_DEFINE(struct spec_resources, spec_resources_free)

static struct cgroup *make(const char *below, const char *json, struct err *e)
{
    struct cgroup *cg = NULL;
    scoped(spec_resources_free) struct spec_resources *res = NULL;
    scoped_free char *path = xasprintf("%s/%s", top, below);

    if (json && spec_resources_parse(json, strlen(json), &res, e) < 0)
        return NULL;
    return cgroup_create(path, res, &cg, e) < 0 ? NULL : cg;
}

static int update(struct cgroup *cg, const char *json, struct err *e)
{
    scoped(spec_resources_free) struct spec_resources *res = NULL;
    int r = spec_resources_parse(json, strlen(json), &res, e);
    return r < 0 ? r : cgroup_update(cg, res, e);
}

/* Starts fn in the group the way the launcher does; returns when the process is a member everywhere. */
static pid_t start(const struct cgroup *cg, void (*fn)(void *), void *data)
{
    struct cgroup_entry entry = cgroup_entry(cg);
    int in[2];
    char byte;
    if (pipe2(in, O_CLOEXEC) < 0)
        return -1;
    struct clone_args args = {.exit_signal = SIGCHLD};
    if (entry.v2_dir >= 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)entry.v2_dir;
    }
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid != 0) {
        fd_close(in[1]);
        (void)!read(in[0], &byte, 1);
        fd_close(in[0]);
        return pid;
    }
    for (size_t i = 0; i < entry.n_v1_tasks; i++)
        if (write(entry.v1_tasks[i], "0", 1) != 1)
            _exit((perror("enter the group"), 99));
    fd_close(in[1]);
    fn(data);
    _exit(0);
}

static int status_of(pid_t pid)
{
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void sleep_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

static bool wait_until(bool (*fn)(struct cgroup *), struct cgroup *cg)
{
    for (int i = 0; i < 3000; i++) {
        if (fn(cg))
            return true;
        sleep_ms(1);
    }
    return false;
}

/* The file of one controller, "" when it does not exist. */
static const char *control(const char *controller, const char *below, const char *file)
{
    static char text[4096];
    char path[512];
    int fd = -1;
    ssize_t n = 0;

    (void)snprintf(path, sizeof path, "/sys/fs/cgroup/%s%s/%s/%s", v2 ? "" : controller, top, below, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    fd_close(fd);
    return text;
}

static size_t directories(const char *below)
{
    char pattern[256];
    glob_t g;

    (void)snprintf(pattern, sizeof pattern, v2 ? "/sys/fs/cgroup%s%s" : "/sys/fs/cgroup/*%s%s", top, below);
    size_t n = glob(pattern, 0, NULL, &g) == 0 ? g.gl_pathc : 0;
    globfree(&g);
    return n;
}

/* ---- programs that run inside ------------------------------------------------------------------------- */

static void do_pause(void *data UNUSED)
{
    for (;;)
        pause();
}

static void do_spin(void *data)
{
    volatile uint64_t *count = data;
    for (;;)
        ++*count;
}

static void do_fork_for_ever(void *data UNUSED)
{
    for (;;)
        if (fork() < 0)
            sched_yield();
}

static void do_eat(void *data)
{
    size_t bytes = *(size_t *)data;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        _exit(98);
    for (size_t i = 0; i < bytes; i += 4096)
        p[i] = 1;
}

static void do_eat_and_stay(void *data)
{
    do_eat(data);
    do_pause(NULL);
}

static void do_count_forks(void *data UNUSED)
{
    int n = 0;
    while (n < 100) {
        pid_t pid = fork();
        if (pid < 0)
            _exit(n);
        if (pid == 0)
            do_pause(NULL);
        n++;
    }
    _exit(n);
}

/* Exit status: how many lines of /proc/self/cgroup have our group. */
static void do_count_groups(void *data)
{
    char line[1024];
    int n = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, data) != NULL;
    _exit(n);
}

static void do_open(void *data)
{
    int fd = open(data, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    _exit(fd >= 0 ? 0 : errno);
}

/* ---- cases -------------------------------------------------------------------------------------------- */

static void a_new_group_exists_in_every_hierarchy_and_takes_processes(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a", NULL, &e);
    CHECK(cg);
    struct cgroup_view views[32];
    size_t n = cgroup_views(cg, views, 32), made = 0;
    for (size_t i = 0; i < n; i++)
        made += views[i].dir >= 0;
    CHECK(directories("/pod1/a") == made && made >= 1);
    int status = status_of(start(cg, do_count_groups, top));
    CHECK(WIFEXITED(status) && (size_t)WEXITSTATUS(status) == made);
    CHECK(cgroup_is_empty(cg));
    OK;
}

static void limits_are_written(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a",
                                               "{\"memory\":{\"limit\":67108864},\"cpu\":{\"shares\":512,"
                                               "\"quota\":50000,\"period\":100000},\"pids\":{\"limit\":32}}",
                                               &e);
    CHECK(cg);
    CHECK(strcmp(control("memory", "pod1/a", v2 ? "memory.max" : "memory.limit_in_bytes"), "67108864") == 0);
    CHECK(strcmp(control("cpu", "pod1/a", v2 ? "cpu.weight" : "cpu.shares"), v2 ? "59" : "512") == 0);
    CHECK(strcmp(control("cpu", "pod1/a", v2 ? "cpu.max" : "cpu.cfs_quota_us"),
                 v2 ? "50000 100000" : "50000") == 0);
    CHECK(strcmp(control("pids", "pod1/a", "pids.max"), "32") == 0);
    CHECK(cgroup_memory_limit(cg) == 67108864);
    CHECK(cgroup_cpu_limit_milli(cg) == 500);
    OK;
}

static void limits_of_the_groups_above_count(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *pod =
        make("pod1", "{\"memory\":{\"limit\":33554432},\"cpu\":{\"quota\":25000,\"period\":100000}}", &e);
    scoped(end_group) struct cgroup *cg =
        pod ? make("pod1/a", "{\"memory\":{\"limit\":67108864},\"cpu\":{\"quota\":20000,\"period\":40000}}",
                   &e)
            : NULL;
    if (!v2 && !cg &&
        strstr(err_text(&e),
               "cpu.quota")) /* v1 refuses a child above its parent: that is the kernel's own check */
        cg = make("pod1/a", "{\"memory\":{\"limit\":67108864}}", &e);
    CHECK(cg);
    CHECK(cgroup_memory_limit(cg) == 33554432);
    CHECK(cgroup_cpu_limit_milli(cg) == 250);
    OK;
}

static void a_group_without_limits_has_none(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a", "{}", &e);
    CHECK(cg);
    CHECK(cgroup_cpu_limit_milli(cg) == 0);
    OK;
}

static void an_update_changes_only_what_it_names(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a",
                                               "{\"memory\":{\"limit\":67108864},\"cpu\":{\"quota\":50000,"
                                               "\"period\":100000},\"pids\":{\"limit\":32}}",
                                               &e);
    CHECK(cg);
    CHECK(update(cg, "{\"memory\":{\"limit\":134217728},\"cpu\":{\"period\":200000}}", &e) == 0);
    CHECK(cgroup_memory_limit(cg) == 134217728);
    CHECK(cgroup_cpu_limit_milli(cg) == 250);
    CHECK(strcmp(control("pids", "pod1/a", "pids.max"), "32") == 0);
    CHECK(update(cg, "{\"cpu\":{\"quota\":-1},\"memory\":{\"limit\":-1}}", &e) == 0);
    CHECK(cgroup_cpu_limit_milli(cg) == 0);
    OK;
}

static void memory_and_swap_change_in_either_direction(void)
{
    static const char *const steps[] = {
        "{\"memory\":{\"limit\":67108864,\"swap\":67108864}}",
        "{\"memory\":{\"limit\":134217728,\"swap\":134217728}}",
        "{\"memory\":{\"limit\":33554432,\"swap\":33554432}}",
        "{\"memory\":{\"limit\":268435456,\"swap\":-1}}",
        "{\"memory\":{\"limit\":33554432,\"swap\":67108864}}",
    };
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a", steps[0], &e);
    if (!cg && (strstr(err_text(&e), "memsw") || strstr(err_text(&e), "swap.max")))
        SKIP("this kernel does not account for swap");
    CHECK(cg);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        CHECK(update(cg, steps[i], &e) == 0);
    CHECK(cgroup_memory_limit(cg) == 33554432);
    CHECK(strcmp(control("memory", "pod1/a", v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes"),
                 v2 ? "33554432" : "67108864") == 0);
    OK;
}

static void a_failed_update_puts_the_old_values_back(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a",
                                               "{\"memory\":{\"limit\":67108864},\"cpu\":{\"quota\":50000,"
                                               "\"period\":100000},\"pids\":{\"limit\":32}}",
                                               &e);
    CHECK(cg);
    scoped_free char *cpus = xstrdup(control("cpuset", "pod1/a", "cpuset.cpus"));
    CHECK(update(cg,
                 "{\"memory\":{\"limit\":134217728},\"cpu\":{\"quota\":10000,\"period\":2000000},\"pids\":{"
                 "\"limit\":7}}",
                 &e) < 0);
    CHECK(strstr(err_text(&e), "linux.resources.cpu."));
    CHECK(cgroup_memory_limit(cg) == 67108864 && cgroup_cpu_limit_milli(cg) == 500);
    CHECK(strcmp(control("pids", "pod1/a", "pids.max"), "32") == 0);
    CHECK(update(cg, "{\"pids\":{\"limit\":9},\"cpu\":{\"cpus\":\"0\",\"mems\":\"999\"}}", &e) < 0);
    CHECK(strstr(err_text(&e), "linux.resources.cpu.mems: the kernel refuses \"999\""));
    CHECK(strcmp(control("pids", "pod1/a", "pids.max"), "32") == 0);
    CHECK(strcmp(control("cpuset", "pod1/a", "cpuset.cpus"), cpus) == 0);
    OK;
}

static void a_limit_below_the_usage_is_refused_when_asked_to_check(void)
{
    struct err e = {0};
    size_t bytes = 24u << 20;
    scoped(end_group) struct cgroup *cg = make("pod1/a", "{}", &e);
    CHECK(cg);
    pid_t pid = start(cg, do_eat_and_stay, &bytes);
    struct cgroup_stats s = {0};
    for (int i = 0; i < 3000 && s.v1.usage.usage + s.v2.memory.usage < bytes; i++) {
        sleep_ms(1);
        CHECK(cgroup_stats_read(cg, &s, &e) == 0);
        cgroup_stats_done(&s);
    }
    CHECK(update(cg, "{\"memory\":{\"limit\":4194304,\"checkBeforeUpdate\":true}}", &e) == -EBUSY);
    CHECK(strstr(err_text(&e), "that the container uses now"));
    CHECK(kill(pid, 0) == 0);
    OK;
}

static void a_limit_without_a_controller_is_refused_by_name(void)
{
    struct err e = {0};
    const char *json = v2 ? "{\"unified\":{\"nothing.max\":\"1\"}}"
                          : "{\"hugepageLimits\":[{\"pageSize\":\"2MB\",\"limit\":0}]}";
    if (!v2 && access("/sys/fs/cgroup/hugetlb", F_OK) == 0)
        SKIP("this host has a hugetlb controller");
    scoped(end_group) struct cgroup *cg = make("pod1/a", json, &e);
    CHECK(!cg);
    CHECK(strstr(err_text(&e),
                 v2 ? "linux.resources.unified.nothing.max cannot be set: "
                    : "linux.resources.hugepageLimits cannot be set: this host has no hugetlb controller"));
    CHECK(directories("") == 0);
    OK;
}

static void freezing_stops_and_thawing_goes_on(void)
{
    struct err e = {0};
    volatile uint64_t *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    scoped(end_group) struct cgroup *cg = make("pod1/a", NULL, &e);
    CHECK(cg && count != MAP_FAILED);
    CHECK(start(cg, do_spin, (void *)(uintptr_t)count) > 0);
    while (*count < 1000)
        sleep_ms(1);
    CHECK(cgroup_freeze(cg, true, &e) == 0);
    int frozen = 0;
    for (int i = 0; i < 3000 && frozen == 0; i++) {
        frozen = cgroup_frozen(cg, &e);
        sleep_ms(1);
    }
    CHECK(frozen == 1);
    uint64_t before = *count;
    sleep_ms(50);
    CHECK(*count == before);
    CHECK(cgroup_freeze(cg, false, &e) == 0 && cgroup_frozen(cg, &e) == 0);
    sleep_ms(50);
    CHECK(*count > before);
    OK;
}

static void a_frozen_group_can_be_killed(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a", NULL, &e);
    CHECK(cg);
    pid_t pid = start(cg, do_pause, NULL);
    CHECK(pid > 0 && cgroup_freeze(cg, true, &e) == 0);
    sleep_ms(20); /* frozen or on the way: both must do */
    CHECK(cgroup_kill(cg, SIGKILL, &e) == 0);
    int status = status_of(pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(wait_until((bool (*)(struct cgroup *))(void (*)(void))cgroup_is_empty, cg));
    OK;
}

static void who_forks_all_the_time_is_killed_too(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a", "{\"pids\":{\"limit\":60}}", &e);
    CHECK(cg);
    CHECK(start(cg, do_fork_for_ever, NULL) > 0);
    size_t n = 0;
    for (int i = 0; i < 3000 && n < 50; i++) {
        pid_t *pids = NULL;
        CHECK(cgroup_pids(cg, &pids, &n, &e) == 0);
        free(pids);
        sleep_ms(1);
    }
    CHECK(n >= 50);
    CHECK(cgroup_kill(cg, SIGKILL, &e) == 0);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    CHECK(wait_until((bool (*)(struct cgroup *))(void (*)(void))cgroup_is_empty, cg));
    CHECK(cgroup_remove(cg, &e) == 0);
    OK;
}

static void other_signals_reach_everybody(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a", NULL, &e);
    CHECK(cg);
    pid_t pid[3];
    for (int i = 0; i < 3; i++)
        pid[i] = start(cg, do_pause, NULL);
    CHECK(cgroup_kill(cg, SIGTERM, &e) == 0);
    for (int i = 0; i < 3; i++) {
        int status = status_of(pid[i]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
    OK;
}

static void children_count_and_are_removed_first(void)
{
    struct err e = {0};
    struct cgroup *cg = make("pod1/a", NULL, &e), *child = cg ? make("pod1/a/b/c", NULL, &e) : NULL;
    CHECK(cg && child);
    pid_t pid = start(child, do_pause, NULL), *pids = NULL;
    size_t n = 0;
    CHECK(pid > 0);
    CHECK(cgroup_pids(cg, &pids, &n, &e) == 0 && n == 1 && pids[0] == pid);
    free(pids);
    CHECK(!cgroup_is_empty(cg));
    CHECK(cgroup_remove(cg, &e) == -EBUSY);
    CHECK(cgroup_kill(cg, SIGKILL, &e) == 0);
    CHECK(WIFSIGNALED(status_of(pid)));
    CHECK(cgroup_remove(cg, &e) == 0);
    CHECK(directories("") == 0);
    cgroup_free(cg);
    cgroup_free(child);
    OK;
}

static void parents_stay_while_a_neighbour_lives(void)
{
    struct err e = {0};
    struct cgroup *a = make("pod1/a", NULL, &e), *b = make("pod1/b", NULL, &e);
    CHECK(a && b);
    CHECK(cgroup_remove(a, &e) == 0 && directories("/pod1/a") == 0 && directories("/pod1/b") > 0);
    CHECK(cgroup_remove(a, &e) == 0); /* again is harmless */
    struct cgroup *again = NULL;
    scoped_free char *path = xasprintf("%s/pod1/b", top);
    CHECK(cgroup_open(path, &again, &e) == 0); /* what a clean-up without the daemon does */
    CHECK(cgroup_remove(again, &e) == 0 && directories("") == 0);
    cgroup_free(again);
    cgroup_free(a);
    cgroup_free(b);
    OK;
}

static void what_others_made_is_not_removed(void)
{
    struct err e = {0};
    char path[128];
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup/%s%s", v2 ? "" : "memory", top);
    CHECK(mkdir(path, 0755) == 0);
    struct cgroup *cg = make("pod1/a", NULL, &e);
    CHECK(cg && cgroup_remove(cg, &e) == 0);
    cgroup_free(cg);
    CHECK(directories("") == 1);
    CHECK(rmdir(path) == 0);
    OK;
}

static void opening_nothing_is_harmless(void)
{
    struct err e = {0};
    struct cgroup *cg = NULL;
    scoped_free char *path = xasprintf("%s/none", top);
    CHECK(cgroup_open(path, &cg, &e) == 0);
    CHECK(cgroup_is_empty(cg) && cgroup_kill(cg, SIGKILL, &e) == 0 && cgroup_remove(cg, &e) == 0);
    CHECK(cgroup_memory_limit(cg) == 0 && cgroup_oom_count(cg) == 0);
    struct cgroup_stats s;
    CHECK(cgroup_stats_read(cg, &s, &e) == -ENOENT);
    cgroup_stats_done(&s);
    CHECK(update(cg, "{\"cpu\":{\"shares\":5}}", &e) == -ENOENT);
    cgroup_free(cg);
    OK;
}

static void too_much_memory_is_an_event_and_a_count(void)
{
    struct err e = {0};
    size_t bytes = 64u << 20;
    scoped(end_group) struct cgroup *cg =
        make("pod1/a", "{\"memory\":{\"limit\":16777216,\"swap\":16777216}}", &e);
    if (!cg)
        cg = make("pod1/a", "{\"memory\":{\"limit\":16777216}}", &e);
    CHECK(cg);
    int fd = cgroup_oom_fd(cg, &e);
    CHECK(fd >= 0 && cgroup_oom_fd(cg, &e) == fd);
    CHECK(cgroup_oom_count(cg) == 0);
    int status = status_of(start(cg, do_eat, &bytes));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(cgroup_oom_count(cg) == 1); /* at once, without waiting for the event */
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, 3000) == 1);
    cgroup_oom_drain(cg);
    CHECK(poll(&p, 1, 0) == 0);
    OK;
}

static void the_end_of_a_group_is_no_oom(void)
{
    struct err e = {0};
    struct cgroup *cg = make("pod1/a", NULL, &e);
    CHECK(cg && cgroup_oom_fd(cg, &e) >= 0);
    CHECK(cgroup_remove(cg, &e) == 0);
    cgroup_oom_drain(cg);
    CHECK(cgroup_oom_count(cg) == 0);
    cgroup_free(cg);
    OK;
}

static void the_cpu_quota_bites(void)
{
    struct err e = {0};
    volatile uint64_t *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    scoped(end_group) struct cgroup *cg = make("pod1/a", "{\"cpu\":{\"quota\":20000,\"period\":100000}}", &e);
    CHECK(cg && start(cg, do_spin, (void *)(uintptr_t)count) > 0);
    sleep_ms(1500);
    struct cgroup_stats s;
    CHECK(cgroup_stats_read(cg, &s, &e) == 0);
    uint64_t used_ms = v2 ? s.v2.usage_usec / 1000 : s.v1.cpu_total / 1000000,
             throttled = v2 ? s.v2.nr_throttled : s.v1.throttled_periods;
    cgroup_stats_done(&s);
    CHECK(used_ms > 30 && used_ms < 450);
    CHECK(throttled > 0);
    OK;
}

static void the_pids_limit_bites(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a", "{\"pids\":{\"limit\":10}}", &e);
    CHECK(cg);
    int status = status_of(start(cg, do_count_forks, NULL));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    OK;
}

static void only_listed_devices_open(void)
{
    struct err e = {0};
    char node[] = "/dev/kmsg";
    int fd = open(node, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        SKIP("/dev/kmsg cannot be opened here anyway");
    fd_close(fd);
    scoped(end_group) struct cgroup *cg =
        make("pod1/a",
             "{\"devices\":[{\"allow\":false,\"access\":\"rwm\"},{\"allow\":true,\"type\":\"c\",\"major\":10,"
             "\"access\":\"rwm\"}]}",
             &e);
    CHECK(cg);
    int status = status_of(start(cg, do_open, node));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EPERM);
    status = status_of(start(cg, do_open, (char[]){"/dev/null"}));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    scoped(end_group) struct cgroup *wide =
        make("pod1/b",
             "{\"devices\":[{\"allow\":false,\"access\":\"rwm\"},{\"allow\":true,\"type\":\"c\",\"major\":1,"
             "\"minor\":11,\"access\":\"r\"}]}",
             &e);
    CHECK(wide);
    status = status_of(start(wide, do_open, node));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK;
}

static void counters_count(void)
{
    struct err e = {0};
    size_t bytes = 8u << 20;
    scoped(end_group) struct cgroup *cg =
        make("pod1/a", "{\"memory\":{\"limit\":67108864},\"pids\":{\"limit\":32}}", &e);
    CHECK(cg && start(cg, do_eat_and_stay, &bytes) > 0);
    struct cgroup_stats s = {0};
    /* The kernel adds up memory.stat late, after up to two seconds. */
    for (int i = 0; i < 3000 && s.v1.memory.total_rss + s.v2.memory.anon < bytes; i++) {
        sleep_ms(1);
        cgroup_stats_done(&s);
        CHECK(cgroup_stats_read(cg, &s, &e) == 0);
    }
    CHECK(s.has_pids && s.pids.current == 1 && s.pids.limit == 32);
    if (v2) {
        CHECK(s.v2.has_cpu && s.v2.usage_usec > 0 && s.v2.has_memory && s.v2.memory.usage >= bytes &&
              s.v2.memory.anon >= bytes);
        CHECK(s.v2.memory.usage_limit == 67108864 && s.v2.has_memory_events && s.v2.memory.pgfault > 0);
    } else {
        CHECK(s.v1.has_cpu && s.v1.cpu_total > 0 && s.v1.n_per_cpu > 0 && s.v1.has_memory &&
              s.v1.memory.total_rss >= bytes);
        CHECK(s.v1.usage.has && s.v1.usage.usage >= bytes && s.v1.usage.limit == 67108864 &&
              s.v1.memory.hierarchical_memory_limit == 67108864);
        CHECK(s.v1.has_oom_control && s.v1.has_throttling);
    }
    cgroup_stats_done(&s);
    OK;
}

static void the_pods_own_limits_hold_where_we_made_the_pod(void)
{
    const struct cgroup_pod_limits limits = {
        .cpu_period_us = 100000, .cpu_quota_us = 30000, .cpu_shares = 512, .memory_bytes = 50331648};
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a", NULL, &e);
    CHECK(cg);
    CHECK(cgroup_apply_pod(cg, &limits, &e) == 0);
    CHECK(cgroup_memory_limit(cg) == 50331648 && cgroup_cpu_limit_milli(cg) == 300);
    scoped(end_group) struct cgroup *shared = make("shared/a", NULL, &e);
    CHECK(shared && cgroup_apply_pod(shared, &limits, &e) == 1); /* all pods of the node may live in there */
    CHECK(cgroup_cpu_limit_milli(shared) == 0);
    OK;
}

static void a_sibling_stands_beside(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *cg = make("pod1/a", NULL, &e);
    CHECK(cg);
    struct cgroup *sibling = NULL;
    CHECK(cgroup_create_sibling(cg, "-sentry", &sibling, &e) == 0);
    CHECK(directories("/pod1/a-sentry") == directories("/pod1/a"));
    int status = status_of(start(sibling, do_count_groups, (char[]){"/pod1/a-sentry"}));
    CHECK(WIFEXITED(status) && (size_t)WEXITSTATUS(status) == directories("/pod1/a"));
    cgroup_free(sibling);
    CHECK(cgroup_remove(cg, &e) == 0);
    scoped_free char *path = xasprintf("%s/pod1/a", top);
    CHECK(cgroup_open_sibling(path, "-sentry", &sibling, &e) ==
          0); /* found without the one that it stood beside */
    CHECK(cgroup_remove(sibling, &e) == 0 && directories("") == 0);
    cgroup_free(sibling);
    OK;
}

static void systemd_names_become_directories(void)
{
    struct err e = {0};
    struct cgroup *cg = NULL;
    char path[128], pattern[256];
    (void)snprintf(path, sizeof path, "gbxcg%d-pod1.slice:cri-containerd:x", getpid());
    CHECK(cgroup_create(path, NULL, &cg, &e) == 0);
    (void)snprintf(pattern, sizeof pattern,
                   "/sys/fs/cgroup/%sgbxcg%d.slice/gbxcg%d-pod1.slice/cri-containerd-x.scope",
                   v2 ? "" : "memory/", getpid(), getpid());
    CHECK(access(pattern, F_OK) == 0);
    CHECK(cgroup_remove(cg, &e) == 0);
    CHECK(access(pattern, F_OK) < 0);
    cgroup_free(cg);
    OK;
}

static void a_relative_path_is_below_our_own(void)
{
    struct err e = {0};
    scoped(end_group) struct cgroup *outer = make("own", NULL, &e);
    CHECK(outer);
    pid_t pid = fork();
    if (pid == 0) {
        struct cgroup_entry entry = cgroup_entry(outer);
        for (size_t i = 0; i < entry.n_v1_tasks; i++)
            if (write(entry.v1_tasks[i], "0", 1) != 1)
                _exit(1);
        char procs[256];
        (void)snprintf(procs, sizeof procs, "/sys/fs/cgroup%s/own/cgroup.procs", top);
        if (v2 && file_write(AT_FDCWD, procs, "0", &e) < 0)
            _exit(2);
        struct cgroup *cg = NULL;
        int r = cgroup_create("relative/x", NULL, &cg, &e);
        if (r < 0)
            _exit(3);
        bool there = directories("/own/relative/x") > 0;
        _exit(cgroup_remove(cg, &e) == 0 && there ? 0 : 4);
    }
    int status = status_of(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK;
}

static void neighbours_come_and_go_at_the_same_time(void)
{
    struct err e = {0};
    pid_t pid[4];
    for (int i = 0; i < 4; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            char name[32];
            (void)snprintf(name, sizeof name, "pod1/n%d", i);
            for (int k = 0; k < (v2 ? 10 : 60); k++) {
                struct cgroup *cg = make(name, "{\"cpu\":{\"shares\":100}}", &e);
                if (!cg || cgroup_remove(cg, &e) < 0) {
                    fprintf(stderr, "%s\n", err_text(&e));
                    _exit(1);
                }
                cgroup_free(cg);
            }
            _exit(0);
        }
    }
    bool good = true;
    for (int i = 0; i < 4; i++)
        good = status_of(pid[i]) == 0 && good;
    CHECK(good);
    CHECK(directories("") == 0);
    OK;
}

static void nothing_is_left_behind(void)
{
    struct err e = {0};
    CHECK(directories("*") == 0);
    OK;
}

/* ---- on a host that systemd runs ----------------------------------------------------------------------- */

static int systemctl(const char *verb, const char *unit)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("systemctl", "systemctl", "-q", verb, unit, NULL);
        _exit(127);
    }
    int status = status_of(pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *scope_file(const char *file)
{
    static char text[256];
    char path[512];

    (void)snprintf(path, sizeof path, "/sys/fs/cgroup/gbxcg.slice/gbxcg-pod1.slice/cri-containerd-x.scope/%s",
                   file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    fd_close(fd);
    return text;
}

static struct cgroup *make_scope(const char *name, const char *json, struct err *e)
{
    struct cgroup *cg = NULL;
    scoped(spec_resources_free) struct spec_resources *res = NULL;
    scoped_free char *path = xasprintf("gbxcg-pod1.slice:cri-containerd:%s", name);

    if (spec_resources_parse(json, strlen(json), &res, e) < 0)
        return NULL;
    return cgroup_create(path, res, &cg, e) < 0 ? NULL : cg;
}

/* After the group's own end: systemd has seen it too. */
static void end_scope(struct cgroup *cg);
SCOPED_DEFINE(struct cgroup, end_scope)

#define SCOPE "cri-containerd-x.scope"
#define SCOPE_LIMITS                                                                                         \
    "{\"memory\":{\"limit\":67108864,\"swap\":67108864},\"cpu\":{\"shares\":512,\"quota\":25000,\"period\":" \
    "50000,\"cpus\":\"0\"},\"pids\":{\"limit\":32}}"

static bool is_empty(struct cgroup *cg)
{
    return cgroup_is_empty(cg);
}

static size_t count_pids(struct cgroup *cg)
{
    pid_t *pids = NULL;
    size_t n = 0;
    (void)cgroup_pids(cg, &pids, &n, NULL);
    free(pids);
    return n;
}

static bool holder_is_gone(struct cgroup *cg)
{
    return count_pids(cg) == 1;
}

static bool scope_is_gone(struct cgroup *cg UNUSED)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    return systemctl("is-active", SCOPE) != 0;
}

static void end_scope(struct cgroup *cg)
{
    if (!cg)
        return;
    end_group(cg);
    bool gone = false;
    for (int i = 0; i < 5 && !gone; i++) {
        gone = scope_is_gone(NULL);
        sleep_ms(gone ? 0 : 100);
    }
    if (!gone) {
        printf("FAIL a scope ends when its directory is removed: it is still there\n");
        failures++;
    }
}

static void a_path_in_the_systemd_form_becomes_a_scope(void)
{
    struct err e = {0};
    double before = 0;
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    before = (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
    scoped(end_scope) struct cgroup *cg = make_scope("x", SCOPE_LIMITS, &e);
    CHECK(cg);
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    printf("  made in %.0f ms\n", (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6 - before);
    CHECK(systemctl("is-active", SCOPE) == 0);
    CHECK(strcmp(scope_file("memory.max"), "67108864") == 0 &&
          strcmp(scope_file("cpu.max"), "25000 50000") == 0);
    CHECK(start(cg, do_pause, NULL) > 0);
    CHECK(wait_until(holder_is_gone, cg));
    CHECK(systemctl("is-active", SCOPE) == 0);
    OK;
}

static void limits_survive_a_daemon_reload(void)
{
    static const char *const files[] = {"memory.max", "memory.swap.max", "cpu.max",
                                        "cpu.weight", "cpuset.cpus",     "pids.max"};
    char old[6][64];
    struct err e = {0};
    scoped(end_scope) struct cgroup *cg = make_scope("x", SCOPE_LIMITS, &e);
    CHECK(cg && start(cg, do_pause, NULL) > 0);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 6; i++)
            (void)snprintf(old[i], sizeof old[i], "%.60s", scope_file(files[i]));
        CHECK(strcmp(old[0], round ? "134217728" : "67108864") == 0 && strcmp(old[1], "0") == 0 &&
              strcmp(old[3], "59") == 0 && strcmp(old[4], "0") == 0);
        CHECK(systemctl("daemon-reload", NULL) == 0);
        struct cgroup *other = make_scope("y", "{}", &e); /* makes systemd look at the slice again */
        CHECK(other && cgroup_kill(other, SIGKILL, &e) == 0);
        CHECK(wait_until(is_empty, other) && cgroup_remove(other, &e) == 0);
        cgroup_free(other);
        for (size_t i = 0; i < 6; i++)
            if (strcmp(old[i], scope_file(files[i])) != 0)
                (void)snprintf(e.text, sizeof e.text, "%s was %s, is %s", files[i], old[i],
                               scope_file(files[i]));
        CHECK(e.text[0] == '\0');
        CHECK(update(cg, "{\"memory\":{\"limit\":134217728,\"swap\":134217728},\"pids\":{\"limit\":77}}",
                     &e) == 0);
    }
    OK;
}

static void a_scope_ends_with_its_processes_and_leaves_nothing(void)
{
    struct err e = {0};
    size_t bytes = 128u << 20;
    struct cgroup *cg = make_scope("x", SCOPE_LIMITS, &e);
    CHECK(cg);
    int status = status_of(start(cg, do_eat, &bytes)); /* an OOM kill would leave a failed unit */
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && cgroup_oom_count(cg) == 1);
    (void)cgroup_kill(cg, SIGKILL, &e);
    CHECK(wait_until(scope_is_gone, cg));
    CHECK(systemctl("is-failed", SCOPE) != 0);
    CHECK(cgroup_remove(cg, &e) == 0);
    cgroup_free(cg);
    OK;
}

static void a_scope_that_nobody_entered_ends_when_killed(void)
{
    struct err e = {0};
    struct cgroup *cg = make_scope("x", "{}", &e);
    CHECK(cg);
    CHECK(cgroup_kill(cg, SIGKILL, &e) == 0);
    CHECK(wait_until(scope_is_gone, cg));
    CHECK(cgroup_remove(cg, &e) == 0);
    cgroup_free(cg);
    OK;
}

static void a_refusal_of_systemd_is_passed_on(void)
{
    struct err e = {0};
    scoped(end_scope) struct cgroup *cg = make_scope("x", "{}", &e);
    CHECK(cg && start(cg, do_pause, NULL) > 0);
    CHECK(!make_scope("x", "{}", &e));
    CHECK(strstr(err_text(&e), "linux.cgroupsPath: systemd: Unit " SCOPE));
    e.text[0] = '\0';
    CHECK(!make_scope("z", "{\"cpu\":{\"mems\":\"999\"}}", &e)); /* ours, after systemd's part is done */
    sleep_ms(300);
    CHECK(systemctl("is-active", "cri-containerd-z.scope") != 0);
    OK;
}

static void systemd_cases(void)
{
    a_path_in_the_systemd_form_becomes_a_scope();
    limits_survive_a_daemon_reload();
    a_scope_ends_with_its_processes_and_leaves_nothing();
    a_scope_that_nobody_entered_ends_when_killed();
    a_refusal_of_systemd_is_passed_on();
    (void)systemctl("stop", "gbxcg.slice");
}

/* ---- how long it takes --------------------------------------------------------------------------------- */

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int bench(void)
{
    enum { CREATE, STATS, UPDATE, REMOVE, STEPS, RUNS = 50 };
    static const char *const name[] = {"create with limits", "read counters", "update", "remove"};
    static double t[STEPS][RUNS];
    struct err e = {0};
    scoped(end_group) struct cgroup *keep = make("pod1/keep", NULL, &e); /* as in a pod: the parents exist */

    for (int i = 0; i < RUNS; i++) {
        double a = now_ms();
        struct cgroup *cg = make("pod1/a",
                                 "{\"memory\":{\"limit\":67108864},\"cpu\":{\"shares\":512,\"quota\":50000,"
                                 "\"period\":100000},\"pids\":{\"limit\":32},"
                                 "\"devices\":[{\"allow\":false,\"access\":\"rwm\"}]}",
                                 &e);
        double b = now_ms();
        struct cgroup_stats s;
        if (!cg || cgroup_stats_read(cg, &s, &e) < 0)
            return fprintf(stderr, "%s\n", err_text(&e)), 1;
        double c = now_ms();
        cgroup_stats_done(&s);
        if (update(cg, "{\"memory\":{\"limit\":134217728},\"cpu\":{\"quota\":20000}}", &e) < 0)
            return fprintf(stderr, "%s\n", err_text(&e)), 1;
        double d = now_ms();
        if (cgroup_remove(cg, &e) < 0)
            return fprintf(stderr, "%s\n", err_text(&e)), 1;
        t[CREATE][i] = b - a, t[STATS][i] = c - b, t[UPDATE][i] = d - c, t[REMOVE][i] = now_ms() - d;
        cgroup_free(cg);
    }
    for (int s = 0; s < STEPS; s++) {
        qsort(t[s], RUNS, sizeof t[s][0], compare);
        printf("%-20s median %.3f  least %.3f  most %.3f\n", name[s], t[s][RUNS / 2], t[s][0],
               t[s][RUNS - 1]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static void (*const cases[])(void) = {
        a_new_group_exists_in_every_hierarchy_and_takes_processes,
        limits_are_written,
        limits_of_the_groups_above_count,
        a_group_without_limits_has_none,
        an_update_changes_only_what_it_names,
        memory_and_swap_change_in_either_direction,
        a_failed_update_puts_the_old_values_back,
        a_limit_below_the_usage_is_refused_when_asked_to_check,
        a_limit_without_a_controller_is_refused_by_name,
        freezing_stops_and_thawing_goes_on,
        a_frozen_group_can_be_killed,
        who_forks_all_the_time_is_killed_too,
        other_signals_reach_everybody,
        children_count_and_are_removed_first,
        parents_stay_while_a_neighbour_lives,
        what_others_made_is_not_removed,
        opening_nothing_is_harmless,
        too_much_memory_is_an_event_and_a_count,
        the_end_of_a_group_is_no_oom,
        the_cpu_quota_bites,
        the_pids_limit_bites,
        only_listed_devices_open,
        counters_count,
        the_pods_own_limits_hold_where_we_made_the_pod,
        a_sibling_stands_beside,
        systemd_names_become_directories,
        a_relative_path_is_below_our_own,
        neighbours_come_and_go_at_the_same_time,
        nothing_is_left_behind,
    };

    setvbuf(stdout, NULL, _IOLBF, 0);
    (void)snprintf(top, sizeof top, "/gbxcg-%d", getpid());
    v2 = cgroup_host_mode() == CGROUP_V2;
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return bench();
    if (argc > 1 && strcmp(argv[1], "systemd") == 0) {
        systemd_cases();
        return failures > 0;
    }
    printf("cgroup v%d\n", v2 ? 2 : 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cases[i]();
    return failures > 0;
}
