#include "unit.h"

#include <errno.h>

#include "base/err.h"

static void set_returns_the_code_and_keeps_the_text(void **state)
{
    (void)state;
    struct err e = {0};

    assert_int_equal(err_set(&e, -EINVAL, "field %s is %d", "a", 3), -EINVAL);
    assert_int_equal(e.code, -EINVAL);
    assert_string_equal(e.text, "field a is 3");
    assert_int_equal(err_set(&e, -ENOENT, "other"), -ENOENT);
    assert_string_equal(e.text, "other");
}

static void a_null_error_still_gives_the_code(void **state)
{
    (void)state;
    errno = EPERM;
    assert_int_equal(err_set(NULL, -EINVAL, "x"), -EINVAL);
    assert_int_equal(err_sys(NULL, "x"), -EPERM);
    assert_int_equal(err_wrap(NULL, -EBUSY, "x"), -EBUSY);
    assert_string_equal(err_text(NULL), "unknown error");
}

static void sys_appends_the_errno_and_keeps_it(void **state)
{
    (void)state;
    struct err e = {0};

    errno = ENOENT;
    assert_int_equal(err_sys(&e, "open %s", "/x"), -ENOENT);
    assert_string_equal(e.text, "open /x: No such file or directory");
    assert_int_equal(errno, ENOENT);
    errno = 0;
    assert_int_equal(err_sys(&e, "read"), -EIO);
}

static void wrap_puts_words_before(void **state)
{
    (void)state;
    struct err e = {0};

    (void)err_set(&e, -EINVAL, "inner");
    assert_int_equal(err_wrap(&e, -EIO, "outer %d", 1), -EIO);
    assert_string_equal(e.text, "outer 1: inner");
    assert_int_equal(e.code, -EIO);

    struct err none = {0};
    (void)err_wrap(&none, -EIO, "alone");
    assert_string_equal(none.text, "alone");
}

static void arguments_may_be_the_old_text(void **state)
{
    (void)state;
    struct err e = {0};

    (void)err_set(&e, -EINVAL, "inner");
    (void)err_set(&e, -EINVAL, "before %s after", e.text);
    assert_string_equal(e.text, "before inner after");
    errno = EBADF;
    (void)err_sys(&e, "<%s>", e.text);
    assert_string_equal(e.text, "<before inner after>: Bad file descriptor");
    (void)err_wrap(&e, -EINVAL, "%.3s", e.text);
    assert_string_equal(e.text, "<be: <before inner after>: Bad file descriptor");
}

static void long_texts_are_cut_and_terminated(void **state)
{
    (void)state;
    struct err e = {0};

    for (int i = 0; i < 100; i++)
        (void)err_wrap(&e, -EINVAL, "a rather long sentence, number %d", i);
    assert_true(strlen(e.text) < sizeof e.text);
    assert_memory_equal(e.text, "a rather long sentence, number 99: a rather", 43);
    memset(e.text, 'x', sizeof e.text); /* no NUL anywhere */
    (void)err_wrap(&e, -EINVAL, "w");
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_returns_the_code_and_keeps_the_text),
        cmocka_unit_test(a_null_error_still_gives_the_code),
        cmocka_unit_test(sys_appends_the_errno_and_keeps_it),
        cmocka_unit_test(wrap_puts_words_before),
        cmocka_unit_test(arguments_may_be_the_old_text),
        cmocka_unit_test(long_texts_are_cut_and_terminated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
