#include "unit.h"

#include "controller/kube/window.h"

static void run(struct window *w, double own_ms, double way_ms, int servers, int calls)
{
    /* A server that works on `servers` calls at a time, each own_ms, at the end of a way. */
    for (int i = 0; i < calls; i++) {
        double n = (double)window_calls(w);
        double rounds = n > servers ? n / servers : 1;
        window_sample(w, way_ms + own_ms * rounds, window_calls(w));
    }
}

static void a_near_and_busy_server_gets_few(void **state)
{
    struct window w;

    (void)state;
    window_init(&w);
    window_sample(&w, 5, 1);
    run(&w, 5, 0, 2, 2000);
    assert_in_range(window_calls(&w), WINDOW_MIN, 12);
}

static void a_far_server_gets_many(void **state)
{
    struct window w;

    (void)state;
    window_init(&w);
    run(&w, 2, 170, 32, 4000);
    assert_in_range(window_calls(&w), 48, WINDOW_MAX);
}

static void it_does_not_grow_for_calls_that_are_not_there(void **state)
{
    struct window w;

    (void)state;
    window_init(&w);
    for (int i = 0; i < 1000; i++)
        window_sample(&w, 5, 1);
    assert_int_equal(window_calls(&w), 16);
}

static void it_recovers_when_the_server_does(void **state)
{
    struct window w;

    (void)state;
    window_init(&w);
    for (int i = 0; i < 500; i++)
        window_sample(&w, i % 2 ? 5 : 300, 16);
    assert_in_range(window_calls(&w), WINDOW_MIN, 8);
    assert_in_range(window_background(&w), WINDOW_MIN / 2, 4);
    run(&w, 5, 0, 64, 3000);
    assert_in_range(window_calls(&w), 48, WINDOW_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_near_and_busy_server_gets_few),
        cmocka_unit_test(a_far_server_gets_many),
        cmocka_unit_test(it_does_not_grow_for_calls_that_are_not_there),
        cmocka_unit_test(it_recovers_when_the_server_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
