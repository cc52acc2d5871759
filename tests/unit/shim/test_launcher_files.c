#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/ids.h"
#include "shim/launcher/inroot.h"
#include "shim/launcher/program.h"
#include "shim/launcher/proto.h"
#include "shim/launcher/sys.h"
#include "shim/launcher/view.h"

static char dir[64];

static int setup(void **state UNUSED)
{
    (void)snprintf(dir, sizeof dir, "/tmp/gb-unit.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int unlink_one(const char *path, const struct stat *st UNUSED, int type UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

static int teardown(void **state UNUSED)
{
    return nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int open_dir(void)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static char *text_of(int at, const char *path)
{
    char *text = NULL;

    assert_int_equal(file_read(at, path, 1 << 20, &text, NULL, NULL), 0);
    return text;
}

/* ---- paths inside a root ------------------------------------------------------------------------ */

static void missing_parts_are_made_inside_the_root(void **state UNUSED)
{
    static const struct {
        const char *link, *target; /* made before */
        const char *path;
        bool as_file;
        const char *made; /* relative to the root: what path leads to */
    } cases[] = {
        {NULL, NULL, "/a/b/c", false, "a/b/c"},
        {NULL, NULL, "d/./e/../f", false, "d/f"},
        {NULL, NULL, "/g/file", true, "g/file"},
        {"abs", "/in/side", "/abs/x", false, "in/side/x"},
        {"rel", "../../../../out", "/rel/x", false, "out/x"},
        {"far", "/../../../../../../../../etc/gb-unit-never", "/far/x", false, "etc/gb-unit-never/x"},
        {"one", "two", "/one/x", false, "real/x"},
        {"last", "/made/by/link", "/last", true, "made/by/link"},
        {NULL, NULL, "/../../../up", false, "up"},
        {NULL, NULL, "//s//t//", false, "s/t"},
    };
    int root = open_dir();

    assert_int_equal(symlinkat("real", root, "two"), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = {0};
        struct stat a, b;
        if (cases[i].link)
            assert_int_equal(symlinkat(cases[i].target, root, cases[i].link), 0);
        int fd = inroot_make(root, cases[i].path, cases[i].as_file, &e);
        if (fd < 0)
            fail_msg("case %zu: %s", i, err_text(&e));
        assert_int_equal(fstat(fd, &a), 0);
        assert_int_equal(fstatat(root, cases[i].made, &b, 0), 0);
        assert_true(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
        assert_int_equal(S_ISREG(a.st_mode), cases[i].as_file);
        close(fd);
        fd = inroot_make(root, cases[i].path, cases[i].as_file, &e); /* it exists now */
        assert_true(fd >= 0);
        close(fd);
    }
    assert_int_equal(access("/etc/gb-unit-never", F_OK), -1);
    close(root);
}

static void loops_and_files_in_the_way_are_errors(void **state UNUSED)
{
    int root = open_dir();
    struct err e = {0};

    assert_int_equal(symlinkat("l2", root, "l1"), 0);
    assert_int_equal(symlinkat("l1", root, "l2"), 0);
    assert_int_equal(inroot_make(root, "/l1/x", false, &e), -ELOOP);
    assert_int_equal(symlinkat("d1/x", root, "d1"), 0); /* grows for ever */
    assert_true(inroot_make(root, "/d1/y", false, &e) < 0);
    close(openat(root, "plain", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    assert_int_equal(inroot_make(root, "/plain/x", false, &e), -ENOTDIR);
    assert_non_null(strstr(err_text(&e), "/plain/x"));
    assert_int_equal(inroot_open(root, "/nothing"), -ENOENT);
    char longest[600] = "/";
    memset(longest + 1, 'a', 400);
    assert_int_equal(inroot_make(root, longest, false, &e), -ENAMETOOLONG);
    close(root);
}

/* ---- id ranges ---------------------------------------------------------------------------------- */

static void ranges_are_distinct_and_come_back(void **state UNUSED)
{
    uint32_t base[40];
    int lock[40];
    struct err e = {0};
    char path[128];
    struct stat st;

    for (int i = 0; i < 40; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "pod-%d", i);
        assert_int_equal(ids_take(dir, id, &base[i], &lock[i], &e), 0);
        assert_true(base[i] >= IDS_FIRST && base[i] < IDS_END && base[i] % IDS_SIZE == 0);
        for (int k = 0; k < i; k++)
            assert_true(base[k] != base[i]);
    }
    (void)snprintf(path, sizeof path, "%s/ids/%u", dir, base[7]);
    scoped_free char *owner = text_of(AT_FDCWD, path);
    assert_string_equal(owner, "pod-7");
    /* the same pod again, while its range is held: another one */
    uint32_t other;
    int other_lock;
    assert_int_equal(ids_take(dir, "pod-7", &other, &other_lock, &e), 0);
    assert_true(other != base[7]);
    ids_give_back(other_lock);
    for (int i = 0; i < 40; i++)
        ids_give_back(lock[i]);
    (void)snprintf(path, sizeof path, "%s/ids", dir);
    assert_int_equal(stat(path, &st), -1); /* nothing is left */
}

static void a_killed_holder_is_released_and_a_living_one_is_not(void **state UNUSED)
{
    uint32_t base;
    int lock;
    struct err e = {0};
    char path[128];
    struct stat st;

    assert_int_equal(ids_take(dir, "dead", &base, &lock, &e), 0);
    (void)snprintf(path, sizeof path, "%s/ids/%u", dir, base);
    assert_int_equal(ids_release(dir, "dead", &e),
                     -EBUSY); /* locked: by a living shim of the same name, or by a child of a dead one */
    assert_int_equal(stat(path, &st), 0);
    close(lock); /* as the kernel does for a killed process */
    assert_int_equal(ids_release(dir, "other", &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(ids_release(dir, "dead", &e), 0);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(ids_release(dir, "dead", &e), 0); /* again is fine */
}

static void a_range_with_a_process_in_it_is_not_reused(void **state UNUSED)
{
    uint32_t base;
    int lock, pair[2];
    struct err e = {0};

    if (geteuid() != 0)
        skip(); /* needs root to take an id of the range */
    assert_int_equal(ids_take(dir, "alive", &base, &lock, &e), 0);
    close(lock);
    assert_int_equal(msg_pair(pair, &e), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        char c = setresuid(base + 1000, base + 1000, base + 1000) == 0 ? 'y' : 'n';
        if (write(pair[1], &c, 1) != 1 || read(pair[1], &c, 1) < 0)
            _exit(1);
        _exit(0);
    }
    char c = 0;
    assert_int_equal(read(pair[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    assert_int_equal(ids_release(dir, "alive", &e), -EBUSY);
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(ids_release(dir, "alive", &e), 0);
}

/* ---- messages ----------------------------------------------------------------------------------- */

static void last_words_arrive_although_a_message_went_unread(void **state UNUSED)
{
    int pair[2], fds[MSG_FDS_MAX];
    struct msg m = {.kind = MSG_PID_NS};
    struct err e = {0}, said = {0};

    assert_int_equal(msg_pair(pair, &e), 0);
    assert_int_equal(msg_send(pair[0], &m, NULL, 0),
                     0); /* never read: the close below resets the connection */
    (void)err_set(&said, -ENOTDIR, "no such place");
    (void)msg_fail(pair[1], -ENOTDIR, &said);
    close(pair[1]);
    assert_int_equal(msg_recv(pair[0], 1000, &m, fds, &e), -ENOTDIR);
    assert_string_equal(err_text(&e), "no such place");
    assert_int_equal(msg_recv(pair[0], 1000, &m, fds, &e), -EPIPE);
    close(pair[0]);
}

static void the_death_of_one_of_two_writers_is_noticed(void **state UNUSED)
{
    int pair[2], fds[MSG_FDS_MAX], pidfd = -1;
    struct msg m = {.kind = MSG_BORN};
    struct err e = {0};

    for (int sends = 0; sends < 2; sends++) {
        assert_int_equal(msg_pair(pair, &e), 0);
        pid_t pid = sys_fork(0, SIGCHLD, -1, &pidfd);
        if (pid == 0) {
            if (sends)
                (void)msg_send(pair[1], &m, NULL, 0);
            _exit(0);
        }
        assert_true(pid > 0); /* we keep the other end open too */
        assert_int_equal(msg_recv_from(pair[0], pidfd, 5000, &m, fds, &e), sends ? 0 : -EPIPE);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        close(pair[0]);
        close(pair[1]);
        close(pidfd);
    }
}

static void a_silent_helper_is_not_waited_for_for_ever(void **state UNUSED)
{
    int pair[2], fds[MSG_FDS_MAX];
    struct msg m;
    struct err e = {0};

    assert_int_equal(msg_pair(pair, &e), 0);
    assert_int_equal(msg_recv(pair[0], 20, &m, fds, &e), -ETIMEDOUT);
    close(pair[0]);
    close(pair[1]);
}

/* ---- synthetic files ---------------------------------------------------------------------------- */

static void limits_are_what_the_files_show(void **state UNUSED)
{
    struct view_facts f = {.cpus = 2,
                           .host_cpus = 64,
                           .memory_bytes = 512 << 20,
                           .host_memory_bytes = 1ll << 40,
                           .huge_page_bytes = 2 << 20,
                           .boot_time = 1000,
                           .cpuinfo = xstrdup("processor : 0\n\nprocessor : 1\n\n"),
                           .version = xstrdup("Linux version x\n")};
    int at = open_dir();
    struct err e = {0};
    const char *names[VIEW_FILES_MAX];

    assert_int_equal(view_proc_names(&f, names), 8);
    assert_int_equal(view_write_proc(at, &f, &e), 0);
    scoped_free char *mem = text_of(at, "meminfo");
    assert_non_null(strstr(mem, "MemTotal:         524288 kB\n"));
    assert_non_null(strstr(mem, "Hugepagesize:       2048 kB\n"));
    scoped_free char *stat_text = text_of(at, "stat");
    assert_non_null(strstr(stat_text, "\ncpu1 "));
    assert_null(strstr(stat_text, "\ncpu2 "));
    assert_non_null(strstr(stat_text, "\nbtime 1000\n"));
    const char *const groups[] = {"memory", "cpu"};
    assert_int_equal(mkdirat(at, "sys", 0755), 0);
    scoped_fd int sys = openat(at, "sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(view_write_sys(sys, &f, groups, 2, &e), 0);
    scoped_free char *online = text_of(sys, "devices/system/cpu/online");
    assert_string_equal(online, "0-1\n");
    scoped_free char *map = text_of(sys, "devices/system/node/node0/cpumap");
    assert_string_equal(map, "3\n");
    assert_int_equal(faccessat(sys, "fs/cgroup/memory", F_OK, 0), 0);
    assert_int_equal(faccessat(sys, "devices/system/cpu/cpu1/topology/core_id", F_OK, 0), 0);
    assert_int_equal(faccessat(sys, "devices/system/cpu/cpu2", F_OK, 0), -1);
    view_facts_done(&f);
    close(at);
}

static void without_limits_the_kernels_files_stay(void **state UNUSED)
{
    struct view_facts f;
    const char *names[VIEW_FILES_MAX];

    view_facts_read(0, 0, &f);
    size_t n = view_proc_names(&f, names);
    for (size_t i = 0; i < n; i++)
        assert_true(strcmp(names[i], "meminfo") != 0 && strcmp(names[i], "cpuinfo") != 0);
    view_facts_done(&f);
    view_facts_read(1000 * 1000000, 1ll << 60, &f); /* more than there is */
    assert_int_equal(f.cpus, 0);
    assert_int_equal(f.memory_bytes, 0);
    view_facts_done(&f);
}

static void an_update_rewrites_the_files_in_place(void **state UNUSED)
{
    int at = open_dir();
    struct err e = {0};
    struct stat before, after;

    assert_int_equal(launch_view_update(at, 0, 100 << 20, &e), 0);
    assert_int_equal(fstatat(at, "meminfo", &before, 0), 0);
    assert_int_equal(launch_view_update(at, 0, 200 << 20, &e), 0);
    assert_int_equal(fstatat(at, "meminfo", &after, 0), 0);
    assert_true(before.st_ino == after.st_ino); /* bind mounts show the new text */
    scoped_free char *mem = text_of(at, "meminfo");
    assert_non_null(strstr(mem, "MemTotal:         204800 kB\n"));
    close(at);
}

/* ---- program and environment -------------------------------------------------------------------- */

static struct spec_process process_with(char **args, size_t n_args, char **env, size_t n_env)
{
    return (struct spec_process){.args = {args, n_args}, .env = {env, n_env}};
}

static void programs_are_found_as_clients_expect(void **state UNUSED)
{
    char path[200], bad[128], folder[128], absent[128], expect[400];
    char *name[] = {(char[]){"prog"}, NULL};
    char *env[] = {path, NULL};
    struct err e = {0};
    char *found = NULL;

    (void)snprintf(path, sizeof path, "PATH=/nowhere::%s/d:%s", dir, dir);
    (void)snprintf(bad, sizeof bad, "%s/noexec", dir);
    (void)snprintf(folder, sizeof folder, "%s/d", dir);
    (void)snprintf(absent, sizeof absent, "%s/absent", dir);
    int at = open_dir();
    close(openat(at, "prog", O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
    close(openat(at, "noexec", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    assert_int_equal(mkdirat(at, "d", 0755), 0);
    assert_int_equal(mkdirat(at, "d/prog", 0755), 0); /* a directory of the name is passed over */
    close(at);
    struct spec_process p = process_with(name, 1, env, 1);
    assert_int_equal(program_find(&p, &found, &e), 0);
    (void)snprintf(expect, sizeof expect, "%s/prog", dir);
    assert_string_equal(found, expect);
    free(found);

    const struct {
        char *arg;
        int r;
        const char *format;
    } cases[] = {
        {(char[]){"nope"}, -ENOENT, "exec: \"%s\": executable file not found in $PATH"},
        {bad, -EACCES, "exec: \"%s\": permission denied"},
        {folder, -EISDIR, "exec: \"%s\": is a directory"},
        {absent, -ENOENT, "exec: \"%1$s\": stat %1$s: no such file or directory"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *args[] = {cases[i].arg, NULL};
        p = process_with(args, 1, env, 1);
        assert_int_equal(program_find(&p, &found, &e), cases[i].r);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(expect, sizeof expect, cases[i].format, cases[i].arg);
#pragma GCC diagnostic pop
        assert_string_equal(err_text(&e), expect);
    }
}

static void the_last_of_equal_variables_wins(void **state UNUSED)
{
    char *env[] = {(char[]){"A=1"},
                   (char[]){"B=x"},
                   (char[]){"A=2"},
                   (char[]){"AB=3"},
                   (char[]){"HOME=/h"},
                   (char[]){"odd"},
                   NULL};
    struct spec_process p = process_with(NULL, 0, env, 6);
    char **out = program_env(&p);
    static const char *const expect[] = {"B=x", "A=2", "AB=3", "HOME=/h", "odd"};

    for (size_t i = 0; i < ARRAY_LEN(expect); i++)
        assert_string_equal(out[i], expect[i]);
    assert_null(out[ARRAY_LEN(expect)]);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(missing_parts_are_made_inside_the_root, setup, teardown),
        cmocka_unit_test_setup_teardown(loops_and_files_in_the_way_are_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(ranges_are_distinct_and_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_killed_holder_is_released_and_a_living_one_is_not, setup, teardown),
        cmocka_unit_test_setup_teardown(a_range_with_a_process_in_it_is_not_reused, setup, teardown),
        cmocka_unit_test(last_words_arrive_although_a_message_went_unread),
        cmocka_unit_test(the_death_of_one_of_two_writers_is_noticed),
        cmocka_unit_test(a_silent_helper_is_not_waited_for_for_ever),
        cmocka_unit_test_setup_teardown(limits_are_what_the_files_show, setup, teardown),
        cmocka_unit_test(without_limits_the_kernels_files_stay),
        cmocka_unit_test_setup_teardown(an_update_rewrites_the_files_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(programs_are_found_as_clients_expect, setup, teardown),
        cmocka_unit_test(the_last_of_equal_variables_wins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
