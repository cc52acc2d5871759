#include "unit.h"

#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/strbuf.h"

static int out[2];

static int open_pipe(void **state)
{
    (void)state;
    if (pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    log_init(out[1], LOG_DEBUG);
    return 0;
}

static int close_pipe(void **state)
{
    (void)state;
    log_init(2, LOG_INFO);
    fd_close_all(out, 2);
    return 0;
}

/* The one line that was written, parsed; the caller's. */
static json_t *line(void)
{
    char text[8192];
    ssize_t n = read(out[0], text, sizeof text - 1);

    assert_true(n > 0);
    text[n] = '\0';
    assert_ptr_equal(strchr(text, '\n'), text + n - 1); /* one line, ended */
    assert_true(n <= 4096);                             /* PIPE_BUF: two writers never mix */
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    return j;
}

static void expect(json_t *j, const char *key, const char *value)
{
    assert_non_null(json_object_get(j, key));
    assert_string_equal(json_string_value(json_object_get(j, key)), value);
}

static void a_line_is_one_json_object(void **state)
{
    (void)state;
    log_warn("something happened",
             "id=%s pid=%d size=%zu big=%llu hex=%#x part=%.2s ratio=%.1f sign=%+ld pct=%d%%", "abc", -5,
             (size_t)7, 18446744073709551615ULL, 255, "xyz", 1.5, 3L, 50);
    json_t *j = line();
    expect(j, "level", "warn");
    expect(j, "msg", "something happened");
    expect(j, "id", "abc");
    expect(j, "pid", "-5");
    expect(j, "size", "7");
    expect(j, "big", "18446744073709551615");
    expect(j, "hex", "0xff");
    expect(j, "part", "xy");
    expect(j, "ratio", "1.5");
    expect(j, "sign", "+3");
    expect(j, "pct", "50%");
    assert_int_equal(strlen(json_string_value(json_object_get(j, "ts"))), 30);
    json_decref(j);
}

static void no_fields_is_fine(void **state)
{
    (void)state;
    log_error("plain", NULL);
    json_t *j = line();
    assert_int_equal(json_object_size(j), 3);
    json_decref(j);
}

static void a_value_can_hold_any_byte_and_forges_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *read;
    } cases[] = {
        {"a \"quoted\" \\ value", "a \"quoted\" \\ value"},
        {"two\nlines\r\t", "two\nlines\r\t"},
        {"x\x1flevel=error msg=forged", "x\x1flevel=error msg=forged"},
        {"\",\"level\":\"error", "\",\"level\":\"error"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"cut\xc3", "cut\xef\xbf\xbd"},
        {"lone\xff\x80", "lone\xef\xbf\xbd\xef\xbf\xbd"},
        {"%s %n %d", "%s %n %d"},
        {"", ""},
        {"\xc0\xaf"
         "overlong",
         "\xef\xbf\xbd\xef\xbf\xbdoverlong"},
        {"\xed\xa0\x80"
         "surrogate",
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdsurrogate"},
        {"\xe0\x80\xaf"
         "overlong3",
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdoverlong3"},
        {"\xf4\x90\x80\x80"
         "beyond",
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
         "beyond"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        log_info("m", "value=%s after=%d", cases[i].raw, 1);
        json_t *j = line();
        expect(j, "value", cases[i].read);
        expect(j, "after", "1");
        expect(j, "level", "info");
        assert_int_equal(json_object_size(j), 5);
        json_decref(j);
    }
}

static void a_line_too_long_says_so_and_stays_valid(void **state)
{
    (void)state;
    char big[20000];

    memset(big, '"', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    log_info("m", "a=%s", big);
    json_t *j = line();
    assert_true(json_is_true(json_object_get(j, "truncated")));
    json_decref(j);
    log_context("pod", big);
    log_info("m", NULL);
    json_decref(line());
    log_context("pod", NULL);
}

static void context_is_in_every_line_until_cleared(void **state)
{
    (void)state;
    log_context("sandbox", "s1");
    log_context("container", "c1");
    log_context("sandbox", "s2");
    log_info("m", NULL);
    json_t *j = line();
    expect(j, "sandbox", "s2");
    expect(j, "container", "c1");
    json_decref(j);
    log_context("sandbox", NULL);
    log_context("container", NULL);
    log_context("never there", NULL);
    log_info("m", NULL);
    j = line();
    assert_int_equal(json_object_size(j), 3);
    json_decref(j);
}

static void a_fifth_context_is_ignored(void **state)
{
    (void)state;
    static const char *const keys[] = {"a", "b", "c", "d", "e"};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        log_context(keys[i], "x");
    log_info("m", NULL);
    json_t *j = line();
    assert_int_equal(json_object_size(j), 3 + 4);
    json_decref(j);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        log_context(keys[i], NULL);
}

static void levels_below_are_silent(void **state)
{
    (void)state;
    char c;

    log_init(out[1], LOG_WARN);
    log_info("m", NULL);
    log_debug("m", NULL);
    assert_int_equal(read(out[0], &c, 1), -1);
    log_error("m", NULL);
    json_decref(line());
}

static void a_full_pipe_drops_lines_and_counts_them(void **state)
{
    (void)state;
    uint64_t before = log_dropped();

    for (int i = 0; i < 2000; i++)
        log_info("a line that fills the pipe", "number=%d", i);
    assert_true(log_dropped() > before);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_pipe, close_pipe)
    const struct CMUnitTest tests[] = {
        T(a_line_is_one_json_object),
        T(no_fields_is_fine),
        T(a_value_can_hold_any_byte_and_forges_nothing),
        T(a_line_too_long_says_so_and_stays_valid),
        T(context_is_in_every_line_until_cleared),
        T(a_fifth_context_is_ignored),
        T(levels_below_are_silent),
        T(a_full_pipe_drops_lines_and_counts_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
