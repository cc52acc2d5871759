#include "unit.h"

#include <stdlib.h>

#include "base/strbuf.h"

static void it_is_a_string_from_the_start(void **state)
{
    (void)state;
    scoped_strbuf struct strbuf s;

    strbuf_init(&s, 10);
    assert_string_equal(s.data, "");
    strbuf_puts(&s, "");
    strbuf_add(&s, NULL, 0);
    assert_int_equal(s.len, 0);
    assert_false(s.overflow);
}

static void appends_in_every_form_follow_each_other(void **state)
{
    (void)state;
    scoped_strbuf struct strbuf s;

    strbuf_init(&s, 1000);
    strbuf_puts(&s, "ab");
    strbuf_putc(&s, 'c');
    strbuf_add(&s, "d\0e", 3);
    strbuf_printf(&s, "%03d%s", 7, "f");
    assert_int_equal(s.len, 10);
    assert_memory_equal(s.data, "abcd\0e007f", 11);
}

static void the_cap_holds_to_the_byte(void **state)
{
    (void)state;
    static const size_t caps[] = {0, 1, 63, 64, 65, 127, 128, 1000};

    for (size_t i = 0; i < ARRAY_LEN(caps); i++) {
        scoped_strbuf struct strbuf s;
        strbuf_init(&s, caps[i]);
        for (size_t n = 0; n < caps[i]; n++)
            strbuf_putc(&s, 'x');
        assert_int_equal(s.len, caps[i]);
        assert_false(s.overflow);
        strbuf_putc(&s, 'y');
        assert_true(s.overflow);
        assert_int_equal(s.len, caps[i]);
        assert_int_equal(strlen(s.data), caps[i]);
    }
}

static void after_an_overflow_nothing_more_is_added_until_reset(void **state)
{
    (void)state;
    scoped_strbuf struct strbuf s;

    strbuf_init(&s, 4);
    strbuf_puts(&s, "abc");
    strbuf_printf(&s, "%s", "too long");
    strbuf_putc(&s, 'd'); /* would fit, but the text would have a hole */
    assert_string_equal(s.data, "abc");
    assert_true(s.overflow);
    strbuf_reset(&s);
    strbuf_puts(&s, "abcd");
    assert_string_equal(s.data, "abcd");
    assert_false(s.overflow);
}

static void a_length_near_size_max_does_not_wrap(void **state)
{
    (void)state;
    scoped_strbuf struct strbuf s;

    strbuf_init(&s, 100);
    strbuf_puts(&s, "abc");
    assert_null(strbuf_reserve(&s, SIZE_MAX));
    assert_true(s.overflow);
    assert_string_equal(s.data, "abc");
}

static void reserve_gives_room_for_the_terminator_too(void **state)
{
    (void)state;
    scoped_strbuf struct strbuf s;

    strbuf_init(&s, 200);
    char *p = strbuf_reserve(&s, 200);
    assert_non_null(p);
    memset(p, 'z', 200);
    p[200] = '\0';
    s.len = 200;
    assert_int_equal(strlen(s.data), 200);
}

static void drop_forgets_the_front(void **state)
{
    (void)state;
    scoped_strbuf struct strbuf s;

    strbuf_init(&s, 100);
    strbuf_puts(&s, "abcdef");
    strbuf_drop(&s, 2);
    assert_string_equal(s.data, "cdef");
    strbuf_drop(&s, 0);
    assert_string_equal(s.data, "cdef");
    strbuf_drop(&s, 99);
    assert_string_equal(s.data, "");
    assert_int_equal(s.len, 0);
}

static void detach_hands_the_text_over_and_starts_again(void **state)
{
    (void)state;
    scoped_strbuf struct strbuf s;

    strbuf_init(&s, 5);
    strbuf_puts(&s, "abc");
    char *text = strbuf_detach(&s);
    strbuf_puts(&s, "defgh");
    assert_string_equal(text, "abc");
    assert_string_equal(s.data, "defgh");
    strbuf_putc(&s, 'i');
    assert_true(s.overflow);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_a_string_from_the_start),
        cmocka_unit_test(appends_in_every_form_follow_each_other),
        cmocka_unit_test(the_cap_holds_to_the_byte),
        cmocka_unit_test(after_an_overflow_nothing_more_is_added_until_reset),
        cmocka_unit_test(a_length_near_size_max_does_not_wrap),
        cmocka_unit_test(reserve_gives_room_for_the_terminator_too),
        cmocka_unit_test(drop_forgets_the_front),
        cmocka_unit_test(detach_hands_the_text_over_and_starts_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
