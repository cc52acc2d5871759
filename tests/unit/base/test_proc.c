#include "unit.h"

#include <errno.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/proc.h"

static void a_name_with_brackets_and_blanks_does_not_shift_the_places(void **state)
{
    (void)state;
    char old[16];
    uint64_t parent = 0, before = 0, after = 0;

    assert_int_equal(proc_stat_field(getpid(), 22, &before), 0);
    assert_true(before > 0);
    assert_int_equal(prctl(PR_GET_NAME, old), 0);
    assert_int_equal(prctl(PR_SET_NAME, ") R 1 (x) 7 8"), 0);
    assert_int_equal(proc_stat_field(getpid(), 4, &parent), 0);
    assert_int_equal(parent, (uint64_t)getppid());
    assert_int_equal(proc_stat_field(getpid(), 22, &after), 0);
    assert_int_equal(after, before);
    assert_int_equal(prctl(PR_SET_NAME, old), 0);
}

static void what_is_not_there_is_an_error_and_leaves_the_result(void **state)
{
    (void)state;
    uint64_t value = 5;

    assert_int_equal(proc_stat_field(-1, 4, &value), -ENOENT);
    assert_int_equal(proc_stat_field(getpid(), 3, &value), -EBADMSG); /* a letter */
    assert_int_equal(proc_stat_field(getpid(), 500, &value), -EBADMSG);
    assert_int_equal(value, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_with_brackets_and_blanks_does_not_shift_the_places),
        cmocka_unit_test(what_is_not_there_is_an_error_and_leaves_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
