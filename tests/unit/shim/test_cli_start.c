#include "tests/unit/shim/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/scoped.h"
#include "bootstrap.pb-c.h"
#include "runc.pb-c.h"
#include "shim/cli/cli.h"
#include "shim/cli/socket.h"
#include "shim/service/daemon.h"
#include "shim/ttrpc/client.h"

/*
 * `start` with a daemon that notes what it was given, in the file "seen" of its working directory, and
 * waits to be killed.  Takes the place of the real one at link time.
 */
int daemon_run(const struct daemon_params *p, struct err *e UNUSED)
{
    scoped_free char *text = xasprintf(
        "%d\nns=%s id=%s address=%s ttrpc=%s socket=%s bundle=%s fd=%d debug=%d\n", (int)getpid(), p->ns,
        p->id, p->address, p->ttrpc_address, p->socket_path, p->bundle, p->listen_fd, p->debug);
    if (file_replace(AT_FDCWD, "seen", text, 0600, NULL) < 0)
        _exit(3);
    log_info("daemon speaks", NULL);
    for (;;)
        pause();
}

struct bundle {
    char path[48];
    int back; /* the folder the test came from */
    char out[512], err[1024];
    int status;
    bool close_stdout, deaf; /* deaf: nobody reads stdout any more */
    const char *log_level;   /* GLOVEBOX_DEBUG */
    uint8_t in[512];
    size_t in_len;
};

static const char config[] = "{\"ociVersion\":\"1.0.2\",\"process\":{\"args\":[\"true\"],\"cwd\":\"/"
                             "\",\"user\":{\"uid\":0,\"gid\":0}},"
                             "\"root\":{\"path\":\"rootfs\"},\"linux\":{}%s}";

static void write_config(const char *annotations)
{
    scoped_free char *more = annotations ? xasprintf(",\"annotations\":{%s}", annotations) : xstrdup("");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    scoped_free char *text = xasprintf(config, more);
#pragma GCC diagnostic pop
    assert_int_equal(file_replace(AT_FDCWD, "config.json", text, 0600, NULL), 0);
}

static void use_socket_dir(struct bundle *b, const char *id, const char *shim_cgroup)
{
    uint8_t inner[128];
    scoped_free char *dir = xasprintf("%s/s", b->path);
    Containerd__Runc__V1__Options o = CONTAINERD__RUNC__V1__OPTIONS__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;
    Containerd__Runtime__Bootstrap__V1__Extension x = CONTAINERD__RUNTIME__BOOTSTRAP__V1__EXTENSION__INIT,
                                                  *xs[] = {&x};
    Containerd__Runtime__Bootstrap__V1__BootstrapParams p =
        CONTAINERD__RUNTIME__BOOTSTRAP__V1__BOOTSTRAP_PARAMS__INIT;

    o.shim_cgroup = (char *)(uintptr_t)(shim_cgroup ? shim_cgroup : "");
    any.type_url = (char *)(uintptr_t) "containerd.runc.v1.Options";
    any.value.data = inner;
    any.value.len = containerd__runc__v1__options__pack(&o, inner);
    x.value = &any;
    p.extensions = xs;
    p.n_extensions = 1;
    p.instance_id = (char *)(uintptr_t)id;
    p.namespace_ = (char *)(uintptr_t) "default";
    p.socket_dir = dir;
    b->in_len = containerd__runtime__bootstrap__v1__bootstrap_params__pack(&p, b->in);
}

static int setup(void **state)
{
    struct bundle *b = xcalloc(1, sizeof *b);

    (void)signal(SIGPIPE, SIG_IGN);
    (void)snprintf(b->path, sizeof b->path, "/tmp/glovebox-start-XXXXXX");
    assert_non_null(mkdtemp(b->path));
    b->back = open(".", O_PATH | O_CLOEXEC);
    assert_int_equal(chdir(b->path), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    write_config(NULL);
    use_socket_dir(b, "t1", NULL);
    *state = b;
    return 0;
}

static pid_t daemon_pid(void)
{
    scoped_free char *text = NULL;

    /* `start` may be back before the daemon has noted itself. */
    for (int i = 0; i < 1000 && file_read(AT_FDCWD, "seen", 4096, &text, NULL, NULL) < 0; i++)
        (void)usleep(2000);
    assert_non_null(text);
    return (pid_t)atoi(text);
}

static bool may_run; /* a start has succeeded since the last daemon ended */

static void end_daemon(void)
{
    for (int i = 0; may_run && i < 500 && access("seen", F_OK) != 0; i++)
        (void)usleep(2000); /* it is there, but has not noted itself yet */
    may_run = false;
    if (access("seen", F_OK) == 0) {
        pid_t pid = daemon_pid();
        if (kill(pid, SIGKILL) == 0)
            assert_int_equal(waitpid(pid, NULL, 0), pid);
        (void)unlink("seen");
    }
}

static void empty_dir(const char *path)
{
    DIR *d = opendir(path);

    for (struct dirent *de; d && (de = readdir(d));)
        if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
            (void)unlinkat(dirfd(d), de->d_name, 0);
    if (d)
        (void)closedir(d);
}

static int teardown(void **state)
{
    struct bundle *b = *state;

    end_daemon();
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process was left */
    empty_dir("s");
    empty_dir(".");
    (void)rmdir("s");
    assert_int_equal(fchdir(b->back), 0);
    fd_close(b->back);
    assert_int_equal(rmdir(b->path), 0);
    free(b);
    return 0;
}

/* ---- running it as containerd does ---- */

static void drain(int fd, char *out, size_t size)
{
    scoped_free char *text = NULL;

    assert_int_equal(fd_read_all(fd, size - 1, &text, NULL, NULL), 0);
    (void)snprintf(out, size, "%s", text);
    fd_close(fd);
}

static void start(struct bundle *b, const char *ns, const char *id)
{
    int in[2], out[2], err[2];
    char action[] = "start";
    struct cli_flags f = {.ns = ns,
                          .id = id,
                          .address = "/run/test.sock",
                          .publish_binary = "",
                          .bundle = "",
                          .socket = "",
                          .debug_socket = "",
                          .action = action};

    assert_int_equal(pipe(in) | pipe(out) | pipe(err), 0);
    if (b->deaf) {
        fd_close(out[0]);
        out[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setpgid(0, 0);
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        (void)dup2(err[1], 2);
        if (b->close_stdout)
            fd_close(1);
        fd_close_all((int[]){in[0], in[1], out[0], out[1], err[0], err[1]}, 6);
        (void)signal(SIGPIPE, SIG_DFL);
        if (b->log_level)
            (void)setenv("GLOVEBOX_DEBUG", b->log_level, 1);
        _exit(cli_start(&f));
    }
    fd_close_all((int[]){in[0], out[1], err[1]}, 3);
    int r = fd_write_all(in[1], b->in, b->in_len);
    assert_true(r == 0 || r == -EPIPE); /* it may have ended before it read that */
    fd_close(in[1]);
    /* To the end of file: a daemon that kept stdout or stderr would hang us here, as it would containerd. */
    drain(out[0], b->out, sizeof b->out);
    drain(err[0], b->err, sizeof b->err);
    assert_int_equal(waitpid(pid, &b->status, 0), pid);
    assert_true(WIFEXITED(b->status));
    b->status = WEXITSTATUS(b->status);
    may_run = may_run || b->status == 0;
}

static void expect_nothing_left(struct bundle *b)
{
    int n = 0;
    DIR *d = opendir("s");

    assert_int_not_equal(b->status, 0);
    assert_string_equal(b->out, "");
    for (struct dirent *de; d && (de = readdir(d));)
        n += de->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    assert_int_equal(n, 0);
    assert_int_equal(access("seen", F_OK), -1);
    struct stat st;
    assert_true(lstat("address", &st) < 0 || S_ISDIR(st.st_mode));
}

/* ---- the tests ---- */

static void start_prints_an_address_that_answers(void **state)
{
    struct bundle *b = *state;
    scoped_free char *address = NULL;

    start(b, "default", "t1");
    assert_string_equal(b->err, "");
    assert_int_equal(b->status, 0);
    scoped_fd int fd = ttrpc_dial(b->out, NULL);
    assert_true(fd >= 0);
    assert_int_equal(file_read(AT_FDCWD, "address", 256, &address, NULL, NULL), 0);
    assert_string_equal(address, b->out);
    scoped_free char *want = socket_path(NULL, "/run/test.sock", "default", "t1");
    assert_non_null(strstr(b->out, strrchr(want, '/')));

    (void)daemon_pid();
    scoped_free char *seen = NULL;
    assert_int_equal(file_read(AT_FDCWD, "seen", 4096, &seen, NULL, NULL), 0);
    scoped_free char *expected = xasprintf("ns=default id=t1 address=/run/test.sock "
                                           "ttrpc=/run/test.sock.ttrpc socket=%s bundle=%s fd=3 debug=0\n",
                                           b->out + strlen("unix://"), b->path);
    assert_string_equal(strchr(seen, '\n') + 1, expected);
}

static char *proc_link(pid_t pid, const char *name)
{
    char path[64], target[256];

    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    ssize_t n = readlink(path, target, sizeof target - 1);
    return n < 0 ? xstrdup("") : xstrndup(target, (size_t)n);
}

static unsigned count_fds(pid_t pid)
{
    scoped_free char *path = xasprintf("/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    unsigned n = 0;

    for (struct dirent *de; d && (de = readdir(d));)
        n += de->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    return n;
}

static void the_daemon_is_detached(void **state)
{
    struct bundle *b = *state;
    scoped_fd int leaked =
        open("/etc/passwd", O_RDONLY); /* not close-on-exec: as if containerd had leaked it */
    assert_int_equal(mkfifo("log", 0600), 0);
    scoped_fd int log = open("log", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    start(b, "default", "t1");
    assert_int_equal(b->status, 0);
    pid_t pid = daemon_pid();
    assert_int_equal(getsid(pid), pid);
    for (int fd = 0; fd < 3; fd++) {
        char name[32];
        (void)snprintf(name, sizeof name, "fd/%d", fd);
        scoped_free char *target = proc_link(pid, name);
        assert_string_equal(target, "/dev/null");
    }
    assert_int_equal(count_fds(pid), 5); /* three, the listener, the log */
    scoped_free char *listener = proc_link(pid, "fd/3");
    assert_int_equal(strncmp(listener, "socket:", 7), 0);
    scoped_free char *cwd = proc_link(pid, "cwd");
    assert_string_equal(cwd, b->path);
    char line[256] = "";
    for (int i = 0; i < 100 && read(log, line, sizeof line - 1) <= 0; i++)
        (void)usleep(5000);
    assert_non_null(strstr(line, "daemon speaks"));
}

static int read_number(const char *path)
{
    scoped_free char *text = NULL;

    assert_int_equal(file_read(AT_FDCWD, path, 64, &text, NULL, NULL), 0);
    return atoi(text);
}

static void the_daemon_dies_before_containerd_does_when_memory_is_short(void **state)
{
    struct bundle *b = *state;

    start(b, "default", "t1");
    scoped_free char *path = xasprintf("/proc/%d/oom_score_adj", (int)daemon_pid());
    assert_int_equal(read_number(path), MIN(read_number("/proc/self/oom_score_adj") + 1, 1000));
}

static void signals_are_as_the_daemon_needs_them(void **state)
{
    struct bundle *b = *state;
    sigset_t block, old;

    sigemptyset(&block);
    sigaddset(&block, SIGUSR2); /* what the caller has blocked is not inherited */
    assert_int_equal(sigprocmask(SIG_BLOCK, &block, &old), 0);
    start(b, "default", "t1");
    assert_int_equal(sigprocmask(SIG_SETMASK, &old, NULL), 0);
    scoped_free char *path = xasprintf("/proc/%d/status", (int)daemon_pid());
    scoped_free char *text = NULL;
    assert_int_equal(file_read(AT_FDCWD, path, 8192, &text, NULL, NULL), 0);
    /* The two that ask it to end wait for its loop. */
    unsigned long long blocked = strtoull(strstr(text, "SigBlk:\t") + 8, NULL, 16);
    assert_int_equal(blocked, 1ULL << (SIGTERM - 1) | 1ULL << (SIGINT - 1));
    unsigned long long ignored = strtoull(strstr(text, "SigIgn:\t") + 8, NULL, 16);
    assert_true(ignored & (1ULL << (SIGPIPE - 1)));
}

static void without_a_log_there_is_no_descriptor_for_it(void **state)
{
    struct bundle *b = *state;
    scoped_fd int file = open("log", O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* no FIFO */

    start(b, "default", "t1");
    assert_int_equal(b->status, 0);
    assert_int_equal(count_fds(daemon_pid()), 4);
    struct stat st;
    assert_int_equal(fstat(file, &st), 0);
    assert_int_equal(st.st_size, 0);
}

static void members_of_a_pod_join_its_daemon(void **state)
{
    struct bundle *b = *state;
    char first[512];
    static const char *const annotations[] = {
        "\"io.kubernetes.cri.sandbox-id\":\"t1\"",
        "\"io.kubernetes.cri.sandbox-id\":\"other\",\"io.containerd.runc.v2.group\":\"t1\"",
    };

    start(b, "default", "t1");
    memcpy(first, b->out, sizeof first);
    pid_t pid = daemon_pid();
    for (size_t i = 0; i < ARRAY_LEN(annotations); i++) {
        (void)unlink("address");
        write_config(annotations[i]);
        use_socket_dir(b, "t2", NULL);
        start(b, "default", "t2");
        assert_int_equal(b->status, 0);
        assert_string_equal(b->out, first);
        assert_int_equal(access("address", F_OK), 0);
        assert_int_equal(daemon_pid(), pid);
    }
}

static void a_killed_daemon_is_replaced(void **state)
{
    struct bundle *b = *state;
    char first[512];

    start(b, "default", "t1");
    memcpy(first, b->out, sizeof first);
    end_daemon();
    assert_int_equal(ttrpc_dial(first, NULL), -ECONNREFUSED);
    start(b, "default", "t1");
    assert_int_equal(b->status, 0);
    assert_string_equal(b->out, first);
    scoped_fd int fd = ttrpc_dial(first, NULL);
    assert_true(fd >= 0);
}

static void a_wish_to_debug_reaches_the_daemon(void **state)
{
    struct bundle *b = *state;
    static const struct {
        const char *value;
        bool debug;
    } cases[] = {{"1", true}, {"0", false}, {"", false}, {"yes", true}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        b->log_level = cases[i].value;
        start(b, "default", "t1");
        assert_int_equal(b->status, 0);
        (void)daemon_pid();
        scoped_free char *seen = NULL;
        assert_int_equal(file_read(AT_FDCWD, "seen", 4096, &seen, NULL, NULL), 0);
        assert_non_null(strstr(seen, cases[i].debug ? "debug=1" : "debug=0"));
        end_daemon();
    }
}

/* ---- failures leave nothing ---- */

static void a_broken_configuration_is_named(void **state)
{
    struct bundle *b = *state;
    static const char *const cases[] = {"", "{", "[]", "{\"process\": 3}", "\xff\xff"};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(file_replace(AT_FDCWD, "config.json", cases[i], 0600, NULL), 0);
        start(b, "default", "t1");
        expect_nothing_left(b);
        assert_non_null(strstr(b->err, "config.json"));
    }
    (void)unlink("config.json");
    start(b, "default", "t1");
    expect_nothing_left(b);
    assert_non_null(strstr(b->err, "config.json"));
}

static void bad_names_are_refused(void **state)
{
    struct bundle *b = *state;

    start(b, "", "t1");
    expect_nothing_left(b);
    assert_non_null(strstr(b->err, "-namespace"));
    start(b, "default", "../t1");
    expect_nothing_left(b);
    assert_non_null(strstr(b->err, "-id"));
    write_config("\"io.kubernetes.cri.sandbox-id\":\"../../etc\"");
    start(b, "default", "t1");
    expect_nothing_left(b);
    assert_non_null(strstr(b->err, "annotation"));
}

static void an_address_file_that_cannot_be_written_fails_the_start(void **state)
{
    struct bundle *b = *state;

    assert_int_equal(mkdir("address", 0700), 0);
    start(b, "default", "t1");
    expect_nothing_left(b);
    assert_non_null(strstr(b->err, "address"));
    assert_int_equal(rmdir("address"), 0);
}

static void a_cgroup_that_cannot_be_entered_fails_the_start(void **state)
{
    struct bundle *b = *state;

    use_socket_dir(b, "t1", "/a/../../b");
    start(b, "default", "t1");
    expect_nothing_left(b);
    assert_non_null(strstr(b->err, "shim_cgroup"));
}

static void an_answer_nobody_reads_fails_the_start(void **state)
{
    struct bundle *b = *state;

    for (int i = 0; i < 2; i++) {
        b->close_stdout = i == 0;
        b->deaf = i == 1;
        start(b, "default", "t1");
        /* The daemon may have noted itself before it was killed. */
        (void)unlink("seen");
        expect_nothing_left(b);
        assert_non_null(strstr(b->err, "print the address"));
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    }
}

static void options_nobody_understands_do_not_matter(void **state)
{
    struct bundle *b = *state;
    struct stat st;

    /* Then the socket is where it always is, and ours to remove. */
    memcpy(b->in, "\xff\xff\xff", 3);
    b->in_len = 3;
    start(b, "default", "t1");
    assert_string_equal(b->err, "");
    assert_int_equal(b->status, 0);
    assert_int_equal(strncmp(b->out, "unix:///run/containerd/s/", 25), 0);
    assert_int_equal(lstat(b->out + 7, &st), 0);
    (void)daemon_pid();
    end_daemon();
    socket_remove_stale(b->out);
    assert_int_equal(lstat(b->out + 7, &st), -1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(start_prints_an_address_that_answers),
        TEST(the_daemon_is_detached),
        TEST(the_daemon_dies_before_containerd_does_when_memory_is_short),
        TEST(signals_are_as_the_daemon_needs_them),
        TEST(without_a_log_there_is_no_descriptor_for_it),
        TEST(members_of_a_pod_join_its_daemon),
        TEST(a_killed_daemon_is_replaced),
        TEST(a_wish_to_debug_reaches_the_daemon),
        TEST(a_broken_configuration_is_named),
        TEST(bad_names_are_refused),
        TEST(an_address_file_that_cannot_be_written_fails_the_start),
        TEST(a_cgroup_that_cannot_be_entered_fails_the_start),
        TEST(an_answer_nobody_reads_fails_the_start),
        TEST(options_nobody_understands_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
