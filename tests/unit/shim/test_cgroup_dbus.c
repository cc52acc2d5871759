#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/scoped.h"
#include "shim/cgroup/dbus.h"

static void expect_body(struct strbuf *b, const char *hex)
{
    uint8_t want[512];
    size_t n = unhex(hex, want, sizeof want);

    assert_int_equal(b->len, n);
    assert_memory_equal(b->data, want, n);
    strbuf_reset(b);
}

static void values_are_aligned_and_counted(void **state UNUSED)
{
    scoped_strbuf struct strbuf b;
    strbuf_init(&b, 4096);

    dbus_put_string(&b, "ab");
    dbus_put_u32(&b, 7);
    expect_body(&b, "02000000 616200 00 07000000");
    dbus_put_signature(&b, "a(sv)");
    dbus_put_u32(&b, 1);
    expect_body(&b, "05 6128737629 00 00 01000000");

    /* An empty array still pads to its elements, and does not count that. */
    size_t list = dbus_array_begin(&b, 8);
    dbus_array_end(&b, list, 8);
    expect_body(&b, "00000000 00000000");
    list = dbus_array_begin(&b, 8);
    dbus_prop_bool(&b, "D", true);
    dbus_prop_u64(&b, "M", 5);
    dbus_array_end(&b, list, 8);
    expect_body(&b, "28000000 00000000"                    /* 40 bytes after the padding */
                    "01000000 4400 016200 000000 01000000" /* "D" is b true */
                    "01000000 4d00 017400 00000000000000"
                    "0500000000000000");
}

static void a_list_of_processes_is_an_array_in_a_variant(void **state UNUSED)
{
    scoped_strbuf struct strbuf b;
    strbuf_init(&b, 4096);

    dbus_prop_pids(&b, "P", 0x1234);
    expect_body(&b, "01000000 5000 02617500 0000 04000000 34120000");
    dbus_prop_bytes(&b, "C", (const uint8_t[]){3, 1}, 2);
    expect_body(&b, "01000000 4300 02617900 0000 02000000 0301");
    dbus_prop_string(&b, "S", "x");
    expect_body(&b, "01000000 5300 017300 000000 01000000 7800");
}

/* An answer to call 3 with a string. */
static const char reply[] =
    "6c 02 01 01 08000000 01000000 0f000000 05 017500 03000000 08 016700 01 7300 00 03000000 2f6a3100";

static void a_message_is_read(void **state UNUSED)
{
    uint8_t data[256];
    size_t n = unhex(reply, data, sizeof data), size = 0, at = 0;
    struct dbus_in m;

    assert_int_equal(dbus_parse(data, n, &m, &size), 0);
    assert_int_equal(size, n);
    assert_int_equal(m.type, DBUS_RETURN);
    assert_int_equal(m.reply_to, 3);
    assert_string_equal(m.signature, "s");
    assert_string_equal(m.member, "");
    assert_string_equal(dbus_get_string(&m, &at), "/j1");
    assert_null(dbus_get_string(&m, &at)); /* that was all */
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(dbus_parse(data, cut, &m, &size), 1);
}

static void what_is_no_message_is_refused(void **state UNUSED)
{
    uint8_t good[256], data[256];
    size_t n = unhex(reply, good, sizeof good), size;
    const struct {
        size_t at;
        uint8_t value;
    } bad[] = {{0, 'B'}, {3, 2}, {7, 0x7f}, {15, 0x7f}, {17, 9}, {25, 200}};
    struct dbus_in m;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        memcpy(data, good, n);
        data[bad[i].at] = bad[i].value;
        assert_int_equal(dbus_parse(data, n, &m, &size), -EPROTO);
    }
}

/* A peer that says the given lines, then sends the message twice in small pieces. */
static void peer(int listener, const char *greeting, const uint8_t *message, size_t n)
{
    char line[256];
    int fd = accept(listener, NULL, NULL);
    (void)!read(fd, line, sizeof line);
    (void)fd_write_all(fd, greeting, strlen(greeting));
    for (size_t i = 0; i < 2 * n; i++)
        (void)fd_write_all(fd, message + i % n, 1);
    _exit(0);
}

static int talk(const char *greeting, int messages, struct err *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char dir[] = "/tmp/dbus.XXXXXX";
    uint8_t data[256];
    size_t n = unhex(reply, data, sizeof data);
    assert_non_null(mkdtemp(dir));
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s/s", dir);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(listener, 1), 0);
    pid_t pid = fork();
    if (pid == 0)
        peer(listener, greeting, data, n);
    fd_close(listener);

    struct dbus *d = NULL;
    int r = dbus_connect(to.sun_path, &d, e);
    for (int i = 0; r == 0 && i < messages; i++) {
        struct dbus_in m;
        r = dbus_receive(d, clock_mono_ms() + PATIENCE_MS, &m, e);
        if (r == 0)
            assert_int_equal(m.reply_to, 3);
    }
    dbus_free(d);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)unlink(to.sun_path);
    (void)rmdir(dir);
    return r;
}

static void a_peer_is_talked_to(void **state UNUSED)
{
    struct err e = {0};

    assert_int_equal(talk("OK 0123\r\n", 2, &e), 0);
    assert_int_equal(talk("OK 0123\r\n", 3, &e), -ECONNRESET); /* it ends after two */
    assert_int_equal(talk("REJECTED EXTERNAL\r\n", 0, &e), -EACCES);
    assert_string_equal(err_text(&e), "systemd refuses the connection");
    struct dbus *d = NULL;
    assert_int_equal(dbus_connect("/tmp/there-is-no-such-socket", &d, &e), -ENOENT);
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_aligned_and_counted),
        cmocka_unit_test(a_list_of_processes_is_an_array_in_a_variant),
        cmocka_unit_test(a_message_is_read),
        cmocka_unit_test(what_is_no_message_is_refused),
        cmocka_unit_test(a_peer_is_talked_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
