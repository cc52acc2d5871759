#include "unit.h"

#include "base/clock.h"

static void text_is_rfc_3339_in_utc(void **state)
{
    (void)state;
    static const struct {
        struct timespec t;
        const char *text;
    } cases[] = {
        {{0, 0}, "1970-01-01T00:00:00.000000000Z"},
        {{951782400, 1}, "2000-02-29T00:00:00.000000001Z"},
        {{1796081350, 387672000}, "2026-11-30T23:29:10.387672000Z"},
        {{-1, 999999999}, "1969-12-31T23:59:59.999999999Z"},
        {{253402300799, 0}, "9999-12-31T23:59:59.000000000Z"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[CLOCK_TEXT_MAX];
        clock_format(&cases[i].t, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void a_time_beyond_all_years_stays_inside_the_buffer(void **state)
{
    (void)state;
    char text[CLOCK_TEXT_MAX];

    clock_format(&(struct timespec){INT64_MAX, 999999999}, text);
    assert_true(strlen(text) < sizeof text);
}

static void monotonic_time_does_not_go_back(void **state)
{
    (void)state;
    int64_t last = clock_mono_ns();

    for (int i = 0; i < 10000; i++) {
        int64_t now = clock_mono_ns();
        assert_true(now >= last);
        last = now;
    }
    assert_true(clock_mono_ms() >= last / 1000000);
    assert_true(clock_wall().tv_sec > 1700000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_rfc_3339_in_utc),
        cmocka_unit_test(a_time_beyond_all_years_stays_inside_the_buffer),
        cmocka_unit_test(monotonic_time_does_not_go_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
