#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/scoped.h"

static int folder = -1;
static char folder_name[] = "/tmp/test_fd.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder_name))
        return -1;
    folder = open(folder_name, O_DIRECTORY | O_CLOEXEC);
    return folder < 0 ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlinkat(folder, "f", 0);
    fd_close(folder);
    return rmdir(folder_name);
}

static int open_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void close_keeps_errno_and_takes_minus_one(void **state)
{
    (void)state;
    errno = ENOTTY;
    fd_close(-1);
    fd_close(250); /* not open */
    assert_int_equal(errno, ENOTTY);
    int fds[] = {dup(0), -1, dup(0)};
    fd_close_all(fds, 3);
    assert_int_equal(fds[0], -1);
    assert_int_equal(fds[2], -1);
}

static void read_all_takes_up_to_the_maximum_and_no_byte_more(void **state)
{
    (void)state;
    static const struct {
        size_t size, max;
        int result;
    } cases[] = {
        {0, 0, 0},           {1, 0, -EFBIG},           {0, 10, 0},           {10, 10, 0},
        {11, 10, -EFBIG},    {4096, 4096, 0},          {4097, 4096, -EFBIG}, {4095, 5000, 0},
        {100000, 100000, 0}, {100001, 100000, -EFBIG}, {5000, SIZE_MAX, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        scoped_fd int fd = openat(folder, "f", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        for (size_t n = 0; n < cases[i].size; n++)
            assert_int_equal(fd_write_all(fd, &"abcdefg"[n % 7], 1), 0);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        scoped_free char *text = NULL;
        size_t len = 99;
        struct err e = {0};
        assert_int_equal(fd_read_all(fd, cases[i].max, &text, &len, &e), cases[i].result);
        if (cases[i].result == 0) {
            assert_int_equal(len, cases[i].size);
            assert_int_equal(strlen(text), len);
        } else {
            assert_null(text);
            assert_true(e.text[0]);
        }
    }
}

static void read_exact_tells_an_end_before_from_an_end_in_the_middle(void **state)
{
    (void)state;
    int p[2];
    char buf[4];

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(fd_write_all(p[1], "abcdef", 6), 0);
    fd_close(p[1]);
    assert_int_equal(fd_read_exact(p[0], buf, 4), 0);
    assert_memory_equal(buf, "abcd", 4);
    assert_int_equal(fd_read_exact(p[0], buf, 4), -EPIPE);
    assert_int_equal(fd_read_exact(p[0], buf, 4), 1);
    assert_int_equal(fd_read_exact(p[0], buf, 0), 0);
    fd_close(p[0]);
    assert_int_equal(fd_read_exact(p[0], buf, 4), -EBADF);
}

static void write_all_survives_short_writes(void **state)
{
    (void)state;
    enum { SIZE = 1000000 };
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t reader = fork();
    if (reader == 0) {
        static char buf[777];
        size_t total = 0;
        ssize_t n;
        close(p[1]);
        while ((n = read(p[0], buf, sizeof buf)) > 0)
            total += (size_t)n;
        _exit(total == SIZE ? 0 : 1);
    }
    fd_close(p[0]);
    char *data = calloc(1, SIZE);
    assert_int_equal(fd_write_all(p[1], data, SIZE), 0);
    fd_close(p[1]);
    free(data);
    int status;
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(status, 0);
}

static void files_are_read_written_and_replaced(void **state)
{
    (void)state;
    struct err e = {0};
    scoped_free char *text = NULL;
    struct stat st;

    (void)unlinkat(folder, "f", 0);
    assert_int_equal(file_read(folder, "f", 100, &text, NULL, &e), -ENOENT);
    assert_non_null(strstr(e.text, "f: No such file"));
    assert_int_equal(file_write(folder, "f", "x", &e), -ENOENT); /* never makes one */
    assert_int_equal(file_replace(folder, "f", "first", 0640, &e), 0);
    assert_int_equal(file_replace(folder, "f", "second", 0600, &e), 0);
    assert_int_equal(file_write(folder, "f", "S", &e), 0);
    assert_int_equal(file_read(folder, "f", 100, &text, NULL, &e), 0);
    assert_string_equal(text, "Second");
    assert_int_equal(fstatat(folder, "f", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(file_replace(folder, "no/such/folder", "x", 0600, &e), -ENOENT);
    scoped_free char *none = NULL;
    assert_int_equal(file_read(folder, "f", 3, &none, NULL, &e), -EFBIG);
    assert_string_equal(e.text, "f: larger than 3 bytes");
}

static void a_message_carries_descriptors(void **state)
{
    (void)state;
    int s[2], got[4], n_before = open_fds();
    size_t n_fds = ARRAY_LEN(got), n = 0;
    char buf[16];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
    int give[] = {folder, 0};
    assert_int_equal(fd_send_msg(s[0], "hello", 5, give, 2), 0);
    assert_int_equal(fd_recv_msg(s[1], buf, sizeof buf, &n, got, &n_fds), 0);
    assert_int_equal(n, 5);
    assert_memory_equal(buf, "hello", 5);
    assert_int_equal(n_fds, 2);
    assert_int_equal(fcntl(got[0], F_GETFD), FD_CLOEXEC);
    fd_close_all(got, n_fds);
    fd_close(s[0]);
    n_fds = ARRAY_LEN(got);
    assert_int_equal(fd_recv_msg(s[1], buf, sizeof buf, &n, got, &n_fds), 1);
    fd_close(s[1]);
    assert_int_equal(open_fds(), n_before);
}

static void surplus_descriptors_and_cut_messages_leak_nothing(void **state)
{
    (void)state;
    int s[2], got[1] = {-1}, n_before = open_fds();
    int give[32];
    char buf[4];

    for (size_t i = 0; i < ARRAY_LEN(give); i++)
        give[i] = folder;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
    size_t n_fds = 1, n = 77;
    assert_int_equal(fd_send_msg(s[0], "x", 1, give, 2), 0);
    assert_int_equal(fd_recv_msg(s[1], buf, sizeof buf, &n, got, &n_fds), -EMSGSIZE);
    n_fds = 0;
    assert_int_equal(fd_send_msg(s[0], "x", 1, give, 32), 0);
    assert_int_equal(fd_recv_msg(s[1], buf, sizeof buf, &n, NULL, NULL), -EMSGSIZE);
    n_fds = 1;
    assert_int_equal(fd_send_msg(s[0], "too long", 8, give, 1), 0);
    assert_int_equal(fd_recv_msg(s[1], buf, sizeof buf, &n, got, &n_fds), -EMSGSIZE);
    assert_int_equal(fd_send_msg(s[0], "x", 1, give, 33), -E2BIG);
    assert_int_equal(n, 77); /* outputs untouched on failure */
    fd_close_all(s, 2);
    assert_int_equal(open_fds(), n_before);
}

static void sending_to_nobody_is_an_error_not_a_signal(void **state)
{
    (void)state;
    int s[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
    fd_close(s[1]);
    assert_int_equal(fd_send_msg(s[0], "x", 1, NULL, 0), -EPIPE);
    fd_close(s[0]);
}

static void flags_go_on_and_off(void **state)
{
    (void)state;
    scoped_fd int fd = dup(0);

    assert_int_equal(fd_set_cloexec(fd, true), 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fd_set_cloexec(fd, false), 0);
    assert_int_equal(fcntl(fd, F_GETFD), 0);
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(fd_set_nonblock(p[0], true), 0);
    assert_true(fcntl(p[0], F_GETFL) & O_NONBLOCK);
    assert_int_equal(fd_set_nonblock(p[0], false), 0);
    assert_false(fcntl(p[0], F_GETFL) & O_NONBLOCK);
    fd_close_all(p, 2);
    assert_int_equal(fd_set_nonblock(p[0], true), -EBADF);
}

static void numbers_are_whole_decimal_and_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t max;
        int result;
        uint64_t value;
    } cases[] = {
        {"0", 0, 0, 0},
        {"42", 100, 0, 42},
        {"18446744073709551615", UINT64_MAX, 0, UINT64_MAX},
        {"007", 10, 0, 7},
        {"18446744073709551616", UINT64_MAX, -ERANGE, 0},
        {"101", 100, -ERANGE, 0},
        {"", 100, -EINVAL, 0},
        {" 1", 100, -EINVAL, 0},
        {"+1", 100, -EINVAL, 0},
        {"-1", 100, -EINVAL, 0},
        {"1 ", 100, -EINVAL, 0},
        {"1x", 100, -EINVAL, 0},
        {"0x10", 100, -EINVAL, 0},
        {NULL, 100, -EINVAL, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t value = 12345;
        assert_int_equal(parse_u64(cases[i].text, cases[i].max, &value), cases[i].result);
        assert_int_equal(value, cases[i].result == 0 ? cases[i].value : 12345);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_keeps_errno_and_takes_minus_one),
        cmocka_unit_test(read_all_takes_up_to_the_maximum_and_no_byte_more),
        cmocka_unit_test(read_exact_tells_an_end_before_from_an_end_in_the_middle),
        cmocka_unit_test(write_all_survives_short_writes),
        cmocka_unit_test(files_are_read_written_and_replaced),
        cmocka_unit_test(a_message_carries_descriptors),
        cmocka_unit_test(surplus_descriptors_and_cut_messages_leak_nothing),
        cmocka_unit_test(sending_to_nobody_is_an_error_not_a_signal),
        cmocka_unit_test(flags_go_on_and_off),
        cmocka_unit_test(numbers_are_whole_decimal_and_bounded),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
