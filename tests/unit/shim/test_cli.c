#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "bootstrap.pb-c.h"
#include "runc.pb-c.h"
#include "shim/cli/flags.h"
#include "shim/cli/options.h"
#include "shim/cli/sha256.h"
#include "shim/cli/shim_cgroup.h"
#include "shim/cli/socket.h"

/* ---- flags ---- */

static int parse(const char *line, struct cli_flags *f, struct err *e)
{
    static char buf[512];
    static char *argv[32];
    int argc = 0;
    char *rest = buf;

    (void)snprintf(buf, sizeof buf, "shim %s", line);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word)
            argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    argv[argc] = NULL;
    return cli_flags_parse(argc, argv, f, e);
}

static void flags_are_read_as_go_reads_them(void **state UNUSED)
{
    static const struct {
        const char *line, *ns, *id;
        bool debug;
        const char *action;
    } cases[] = {
        {"-namespace k8s.io -address /a -publish-binary /b -id t1 start", "k8s.io", "t1", false, "start"},
        {"--namespace k8s.io --id=t1 -debug delete", "k8s.io", "t1", true, "delete"},
        {"-id=t1 -namespace=x -debug=false start", "x", "t1", false, "start"},
        {"-debug=T -id t start", "", "t", true, "start"},
        {"-debug true", "", "", true, "true"}, /* the next word is no value of a switch */
        {"-id t1 start -id t2", "", "t1", false, "start"},
        {"-id t1 -- -debug", "", "t1", false, "-debug"},
        {"-id -debug start", "", "-debug", false, "start"},
        {"-id t1 -id t2 start", "", "t2", false, "start"},
        {"-id= start", "", "", false, "start"},
        {"- start", "", "", false, "-"},
        {"", "", "", false, NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cli_flags f;
        assert_int_equal(parse(cases[i].line, &f, NULL), 0);
        assert_string_equal(f.ns, cases[i].ns);
        assert_string_equal(f.id, cases[i].id);
        assert_int_equal(f.debug, cases[i].debug);
        if (cases[i].action)
            assert_string_equal(f.action, cases[i].action);
        else
            assert_null(f.action);
    }
}

static void every_flag_containerd_sends_is_known(void **state UNUSED)
{
    struct cli_flags f;

    assert_int_equal(
        parse("-namespace n -id i -address a -publish-binary p -bundle b -socket s -debug-socket d -debug "
              "-v -version -info -h start",
              &f, NULL),
        0);
    assert_string_equal(f.address, "a");
    assert_string_equal(f.publish_binary, "p");
    assert_string_equal(f.bundle, "b");
    assert_string_equal(f.socket, "s");
    assert_string_equal(f.debug_socket, "d");
    assert_true(f.debug && f.version && f.info && f.help);
}

static void wrong_flags_are_named(void **state UNUSED)
{
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"-nope start", "-nope"},
        {"-id", "needs an argument: -id"},
        {"---id x", "---id"},
        {"-=x", "-=x"},
        {"-debug=maybe start", "-debug"},
        {"-ID x", "-ID"},
        {"-namespac x", "-namespac"},
        {"-vv", "-vv"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cli_flags f;
        struct err e = {0};
        assert_int_equal(parse(cases[i].line, &f, &e), -EINVAL);
        assert_non_null(strstr(err_text(&e), cases[i].text));
    }
}

static void names_that_could_leave_their_folder_are_refused(void **state UNUSED)
{
    static const char *const good[] = {"a", "t1", "k8s.io", "a-b_c.d", "0"};
    static const char *const bad[] = {"",   ".",  "..", "a..b", "a/b", "/a",
                                      "-a", "a-", "_",  "a b",  "a\n", "\xc3\xa9"};
    char longest[78];

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_int_equal(cli_check_name("id", good[i], NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = {0};
        assert_int_equal(cli_check_name("id", bad[i], &e), -EINVAL);
        assert_non_null(strstr(err_text(&e), "-id"));
    }
    memset(longest, 'a', sizeof longest);
    longest[76] = '\0';
    assert_int_equal(cli_check_name("id", longest, NULL), 0);
    longest[76] = 'a';
    longest[77] = '\0';
    assert_int_equal(cli_check_name("id", longest, NULL), -EINVAL);
}

/* ---- names of sockets ---- */

static void the_hash_is_sha256(void **state UNUSED)
{
    static const struct {
        const char *text, *hex;
    } cases[] = {
        /* FIPS 180-4 examples, and lengths around the end of a block */
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    char hex[SHA256_HEX], block[65];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sha256_hex(cases[i].text, strlen(cases[i].text), hex);
        assert_string_equal(hex, cases[i].hex);
    }
    memset(block, 'a', sizeof block);
    sha256_hex(block, 55, hex);
    assert_string_equal(hex, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    sha256_hex(block, 56, hex);
    assert_string_equal(hex, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    sha256_hex(block, 64, hex);
    assert_string_equal(hex, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

static void expect_socket(const char *address, const char *ns, const char *group, const char *joined)
{
    char hex[SHA256_HEX];
    scoped_free char *got = socket_path(NULL, address, ns, group);

    sha256_hex(joined, strlen(joined), hex);
    assert_int_equal(strncmp(got, "/run/containerd/s/", 18), 0);
    assert_string_equal(got + 18, hex);
}

static void the_socket_has_the_name_the_reference_gives_it(void **state UNUSED)
{
    static const struct {
        const char *address, *ns, *group, *joined;
    } cases[] = {
        {"/run/containerd/containerd.sock", "default", "t1", "/run/containerd/containerd.sock/default/t1"},
        {"unix:///run/c.sock", "k8s.io", "g", "unix:/run/c.sock/k8s.io/g"},
        {"/a//b/./c/../d", "n", "g", "/a/b/d/n/g"},
        {"/../a", "n", "g", "/a/n/g"},
        {"../../a", "n", "g", "../../a/n/g"},
        {"a/../../b", "n", "g", "../b/n/g"},
        {"a/..", "n", "g", "n/g"},
        {"", "n", "g", "n/g"},
        {"/", "n", "g", "/n/g"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_socket(cases[i].address, cases[i].ns, cases[i].group, cases[i].joined);
    scoped_free char *elsewhere = socket_path("/tmp/s", "/a", "n", "g");
    assert_int_equal(strncmp(elsewhere, "/tmp/s/", 7), 0);
    assert_int_equal(strlen(elsewhere), 7 + 64);
}

/* ---- claiming sockets ---- */

struct dir {
    char path[40], socket[64];
};

static int setup(void **state)
{
    struct dir *d = xcalloc(1, sizeof *d);

    (void)snprintf(d->path, sizeof d->path, "/tmp/glovebox-cli-XXXXXX");
    assert_non_null(mkdtemp(d->path));
    (void)snprintf(d->socket, sizeof d->socket, "%s/s/sock", d->path);
    *state = d;
    return 0;
}

static int teardown(void **state)
{
    struct dir *d = *state;
    char command[80];

    (void)snprintf(command, sizeof command, "%s/s", d->path);
    (void)unlink(d->socket);
    (void)rmdir(command);
    assert_int_equal(rmdir(d->path), 0); /* nothing else was left */
    free(d);
    return 0;
}

static void the_first_claim_listens_and_the_second_joins(void **state)
{
    struct dir *d = *state;
    struct err e = {0};
    struct stat st;
    scoped_fd int fd = -1;
    int other = -1;

    assert_int_equal(socket_claim(d->socket, &fd, &e), 0);
    assert_true(fd >= 0);
    assert_int_equal(lstat(d->socket, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(socket_claim(d->socket, &other, &e), 1);
    assert_int_equal(other, -1);
}

static void a_dead_socket_is_replaced(void **state)
{
    struct dir *d = *state;
    scoped_fd int again = -1;
    int fd = -1;

    assert_int_equal(socket_claim(d->socket, &fd, NULL), 0);
    fd_close(fd); /* as kill -9 leaves it */
    assert_int_equal(socket_claim(d->socket, &again, NULL), 0);
    int joined = -1;
    assert_int_equal(socket_claim(d->socket, &joined, NULL), 1);
}

static void a_socket_that_cannot_be_made_is_an_error_that_names_it(void **state)
{
    struct dir *d = *state;
    struct err e = {0};
    int fd = -1;
    char path[200];

    (void)snprintf(path, sizeof path, "%s/%0120d", d->path, 0);
    assert_int_equal(socket_claim(path, &fd, &e), -ENAMETOOLONG);
    (void)snprintf(path, sizeof path, "/proc/nothing/here/sock");
    assert_true(socket_claim(path, &fd, &e) < 0);
    assert_non_null(strstr(err_text(&e), "/proc/nothing"));
    /* A directory in its place is not removed. */
    (void)snprintf(path, sizeof path, "%s/s", d->path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mkdir(d->socket, 0700), 0);
    assert_true(socket_claim(d->socket, &fd, &e) < 0);
    assert_int_equal(rmdir(d->socket), 0);
    assert_int_equal(fd, -1);
}

/* Many at once, over a dead socket: one listens, the others join it. */
static void exactly_one_of_many_claims_wins(void **state)
{
    struct dir *d = *state;
    enum { N = 24, ROUNDS = 20 };

    for (int round = 0; round < ROUNDS; round++) {
        int go[2], result[2], fd = -1, hold[2];
        assert_int_equal(pipe(go), 0);
        assert_int_equal(pipe(result), 0);
        assert_int_equal(pipe(hold), 0);
        if (round % 2 == 0) {
            assert_true(socket_claim(d->socket, &fd, NULL) == 0);
            fd_close(fd);
        } else {
            (void)unlink(d->socket);
        }
        for (int i = 0; i < N; i++) {
            pid_t pid = fork();
            assert_true(pid >= 0);
            if (pid == 0) {
                char c;
                close(go[1]);
                close(hold[1]);
                (void)read(go[0], &c, 1);
                int r = socket_claim(d->socket, &fd, NULL);
                c = (char)(r == 0 ? 'w' : r == 1 ? 'j' : 'e');
                (void)write(result[1], &c, 1);
                (void)read(hold[0], &c, 1); /* the winner lives on */
                _exit(0);
            }
        }
        fd_close_all((int[]){go[0], go[1], result[1], hold[0]}, 4);
        char got[N];
        assert_int_equal(fd_read_exact(result[0], got, N), 0);
        unsigned winners = 0, joined = 0;
        for (int i = 0; i < N; i++) {
            winners += got[i] == 'w';
            joined += got[i] == 'j';
        }
        assert_int_equal(winners, 1);
        assert_int_equal(joined, N - 1);
        fd_close_all((int[]){result[0], hold[1]}, 2);
        while (waitpid(-1, NULL, 0) > 0)
            ;
    }
}

static void only_a_dead_socket_is_removed(void **state)
{
    struct dir *d = *state;
    char address[100], file[64];
    struct stat st;
    int fd = -1;

    (void)snprintf(address, sizeof address, "unix://%s", d->socket);
    socket_remove_stale(address); /* absent: fine */
    assert_int_equal(socket_claim(d->socket, &fd, NULL), 0);
    socket_remove_stale(address);
    assert_int_equal(lstat(d->socket, &st), 0); /* served */
    fd_close(fd);
    socket_remove_stale(d->socket);
    assert_int_equal(lstat(d->socket, &st), 0); /* not in the form of an address */
    socket_remove_stale(address);
    assert_int_equal(lstat(d->socket, &st), -1);

    (void)snprintf(file, sizeof file, "%s/file", d->path);
    fd = open(file, O_CREAT | O_WRONLY, 0600);
    fd_close(fd);
    (void)snprintf(address, sizeof address, "unix://%s", file);
    socket_remove_stale(address); /* no socket */
    assert_int_equal(unlink(file), 0);
}

/* ---- options ---- */

static size_t pack_any(const char *type, const uint8_t *value, size_t len, uint8_t *out)
{
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;

    any.type_url = (char *)(uintptr_t)type;
    any.value.data = (uint8_t *)(uintptr_t)value;
    any.value.len = len;
    return google__protobuf__any__pack(&any, out);
}

static size_t pack_runc(const char *cgroup, uint8_t *out)
{
    Containerd__Runc__V1__Options o = CONTAINERD__RUNC__V1__OPTIONS__INIT;

    o.shim_cgroup = (char *)(uintptr_t)cgroup;
    o.systemd_cgroup = true;
    return containerd__runc__v1__options__pack(&o, out);
}

static void plain_options_are_an_any(void **state UNUSED)
{
    uint8_t inner[64], raw[256];
    size_t n = pack_runc("/shims", inner);
    static const char *const types[] = {"containerd.runc.v1.Options",
                                        "type.googleapis.com/containerd.runc.v1.Options"};

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct start_options o = {0};
        size_t len = pack_any(types[i], inner, n, raw);
        assert_int_equal(start_options_parse(raw, len, "t1", "default", &o, NULL), 0);
        assert_string_equal(o.shim_cgroup, "/shims");
        assert_null(o.socket_dir);
        assert_false(o.debug);
        start_options_done(&o);
    }
}

static void options_of_others_are_ignored(void **state UNUSED)
{
    static const char *const types[] = {"runtimeoptions.v1.Options", "io.containerd.runsc.v1.options", "",
                                        "containerd.runc.v1.CheckpointOptions"};
    uint8_t raw[256];

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct start_options o = {0};
        size_t len = pack_any(types[i], (const uint8_t *)"\xff\xff garbage", 10, raw);
        assert_int_equal(start_options_parse(raw, len, "t1", "default", &o, NULL), 0);
        assert_null(o.shim_cgroup);
        start_options_done(&o);
    }
    struct start_options none = {0};
    assert_int_equal(start_options_parse("", 0, "t1", "default", &none, NULL), 0);
}

static size_t pack_params(int32_t level, const char *socket_dir, uint8_t *out)
{
    uint8_t inner[64];
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;
    Containerd__Runtime__Bootstrap__V1__Extension x = CONTAINERD__RUNTIME__BOOTSTRAP__V1__EXTENSION__INIT,
                                                  *xs[] = {&x};
    Containerd__Runtime__Bootstrap__V1__BootstrapParams p =
        CONTAINERD__RUNTIME__BOOTSTRAP__V1__BOOTSTRAP_PARAMS__INIT;

    any.type_url = (char *)(uintptr_t) "containerd.runc.v1.Options";
    any.value.data = inner;
    any.value.len = pack_runc("/in/params", inner);
    x.value = &any;
    p.instance_id = (char *)(uintptr_t) "t1";
    p.namespace_ = (char *)(uintptr_t) "k8s.io";
    p.log_level = level;
    p.containerd_ttrpc_address = (char *)(uintptr_t) "/run/c.sock.ttrpc";
    p.socket_dir = (char *)(uintptr_t)(socket_dir ? socket_dir : "");
    p.extensions = xs;
    p.n_extensions = 1;
    return containerd__runtime__bootstrap__v1__bootstrap_params__pack(&p, out);
}

static void bootstrap_parameters_are_told_from_options(void **state UNUSED)
{
    static const struct {
        int32_t level;
        bool debug;
    } levels[] = {{-8, true}, {-4, true}, {0, false}, {4, false}, {12, false}};
    uint8_t raw[512];

    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        struct start_options o = {0};
        size_t n = pack_params(levels[i].level, "/run/x/s", raw);
        assert_int_equal(start_options_parse(raw, n, "t1", "k8s.io", &o, NULL), 0);
        assert_int_equal(o.debug, levels[i].debug);
        assert_string_equal(o.socket_dir, "/run/x/s");
        assert_string_equal(o.ttrpc_address, "/run/c.sock.ttrpc");
        assert_string_equal(o.shim_cgroup, "/in/params");
        start_options_done(&o);
    }
    /* Those of another container are an Any of a type nobody knows. */
    struct start_options o = {0};
    size_t n = pack_params(0, NULL, raw);
    assert_int_equal(start_options_parse(raw, n, "t2", "k8s.io", &o, NULL), 0);
    assert_null(o.shim_cgroup);
    assert_null(o.ttrpc_address);
}

static void unreadable_options_are_reported_and_harmless(void **state UNUSED)
{
    static const char *const cases[] = {"\xff\xff\xff",
                                        "\x0a\x7f"
                                        "x",
                                        "hello, this is no protobuf"};
    uint8_t raw[128];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct start_options o = {0};
        struct err e = {0};
        assert_int_equal(start_options_parse(cases[i], strlen(cases[i]), "t1", "n", &o, &e), -EBADMSG);
        assert_true(err_text(&e)[0]);
        start_options_done(&o);
    }
    struct start_options o = {0};
    size_t n = pack_any("containerd.runc.v1.Options", (const uint8_t *)"\x1a\x7f", 2, raw);
    assert_int_equal(start_options_parse(raw, n, "t1", "n", &o, NULL), -EBADMSG);
    start_options_done(&o);
}

/* ---- shim_cgroup ---- */

static void the_cgroup_is_entered_in_every_hierarchy(void **state)
{
    struct dir *d = *state;
    scoped_free char *info =
        xasprintf("24 1 0:22 / /proc rw - proc proc rw\n"
                  "36 32 0:29 / %s/cpu rw,nosuid shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
                  "37 32 0:30 / %s/unified rw - cgroup2 cgroup2 rw\n"
                  "38 32 0:31 /part %s/elsewhere rw - cgroup cgroup rw,memory\n"
                  "39 32 0:31 / %s/tmp rw - tmpfs cgroup rw\n"
                  "broken line\n",
                  d->path, d->path, d->path, d->path);
    static const char *const dirs[] = {"cpu",     "cpu/shims",     "cpu/shims/x",
                                       "unified", "unified/shims", "unified/shims/x"};

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        scoped_free char *path = xasprintf("%s/%s", d->path, dirs[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    /* On a real hierarchy the file is there; in a plain folder we put it there. */
    static const char *const roots[] = {"cpu", "unified"};
    for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
        scoped_free char *path = xasprintf("%s/%s/shims/x/cgroup.procs", d->path, roots[i]);
        fd_close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    struct err e = {0};
    assert_int_equal(shim_cgroup_enter_at(info, "/shims/x", &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
        scoped_free char *path = xasprintf("%s/%s/shims/x/cgroup.procs", d->path, roots[i]);
        scoped_free char *text = NULL;
        assert_int_equal(file_read(AT_FDCWD, path, 16, &text, NULL, NULL), 0);
        assert_string_equal(text, "0");
        assert_int_equal(unlink(path), 0);
    }
    for (size_t i = ARRAY_LEN(dirs); i-- > 0;) {
        scoped_free char *path = xasprintf("%s/%s", d->path, dirs[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(shim_cgroup_enter_at(info, "/", &e), -EINVAL);
    assert_int_equal(shim_cgroup_enter_at(info, "/a/../../b", &e), -EINVAL);
    assert_int_equal(
        shim_cgroup_enter_at("36 32 0:29 / /nonexistent/cpu rw - cgroup cgroup rw,cpu\n", "/x", &e), -ENOENT);
    assert_non_null(strstr(err_text(&e), "shim_cgroup"));
}

#define TEST_IN_DIR(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_are_read_as_go_reads_them),
        cmocka_unit_test(every_flag_containerd_sends_is_known),
        cmocka_unit_test(wrong_flags_are_named),
        cmocka_unit_test(names_that_could_leave_their_folder_are_refused),
        cmocka_unit_test(the_hash_is_sha256),
        cmocka_unit_test(the_socket_has_the_name_the_reference_gives_it),
        TEST_IN_DIR(the_first_claim_listens_and_the_second_joins),
        TEST_IN_DIR(a_dead_socket_is_replaced),
        TEST_IN_DIR(a_socket_that_cannot_be_made_is_an_error_that_names_it),
        TEST_IN_DIR(exactly_one_of_many_claims_wins),
        TEST_IN_DIR(only_a_dead_socket_is_removed),
        cmocka_unit_test(plain_options_are_an_any),
        cmocka_unit_test(options_of_others_are_ignored),
        cmocka_unit_test(bootstrap_parameters_are_told_from_options),
        cmocka_unit_test(unreadable_options_are_reported_and_harmless),
        TEST_IN_DIR(the_cgroup_is_entered_in_every_hierarchy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
