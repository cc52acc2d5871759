#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop.h"
#include "controller/core/queue.h"

/* Time stands still unless a test moves it; the loop's own timers use it too. */
static int64_t now_ms = 1000;

int64_t __wrap_clock_mono_ns(void);
int64_t __wrap_clock_mono_ns(void)
{
    return now_ms * 1000000;
}

struct rig {
    struct loop *loop;
    struct queue *queue;
    int ready_calls;
};

static void on_ready(void *data)
{
    ((struct rig *)data)->ready_calls++;
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    struct queue_options o = {.backoff_min_ms = 100, .backoff_max_ms = 1000, .ready = on_ready, .data = r};

    if (!r || loop_new(&r->loop, NULL) < 0 || queue_new(r->loop, &o, &r->queue, NULL) < 0)
        return -1;
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;

    queue_free(r->queue);
    loop_free(r->loop);
    free(r);
    return 0;
}

static const struct key a = {"n", "a"}, b = {"n", "b"}, c = {"", "c"};

static void step(struct rig *r, int64_t ms)
{
    now_ms += ms;
    assert_int_equal(loop_step(r->loop, 0, NULL), 0);
}

static const char *next(struct rig *r)
{
    static char name[300];
    struct key k;

    if (!queue_take(r->queue, &k))
        return "";
    (void)snprintf(name, sizeof name, "%s", k.name);
    return name;
}

static void a_key_is_in_it_once_and_in_order(void **state)
{
    struct rig *r = *state;

    queue_add(r->queue, a);
    queue_add(r->queue, c);
    queue_add(r->queue, a);
    assert_int_equal(queue_length(r->queue), 2);
    step(r, 0);
    assert_int_equal(r->ready_calls, 1);
    assert_string_equal(next(r), "a");
    assert_string_equal(next(r), "c");
    assert_string_equal(next(r), "");
    assert_int_equal(queue_working(r->queue), 2);
}

static void a_key_that_is_worked_on_comes_back_after_it(void **state)
{
    struct rig *r = *state;

    queue_add(r->queue, a);
    assert_string_equal(next(r), "a");
    queue_add(r->queue, a);
    queue_add(r->queue, a);
    assert_string_equal(next(r), "");
    queue_done(r->queue, a);
    assert_string_equal(next(r), "a");
    queue_done(r->queue, a);
    assert_string_equal(next(r), "");
}

static void the_same_name_in_another_namespace_is_another_key(void **state)
{
    struct rig *r = *state;

    queue_add(r->queue, (struct key){"n", "x"});
    queue_add(r->queue, (struct key){"m", "x"});
    queue_add(r->queue, (struct key){"", "x"});
    assert_int_equal(queue_length(r->queue), 3);
}

static void the_earliest_of_several_delays_wins(void **state)
{
    struct rig *r = *state;

    queue_after(r->queue, a, 500);
    queue_after(r->queue, a, 100);
    queue_after(r->queue, a, 900);
    queue_after(r->queue, b, 300);
    assert_int_equal(queue_waiting(r->queue), 2);
    step(r, 99);
    assert_int_equal(queue_length(r->queue), 0);
    step(r, 1);
    assert_string_equal(next(r), "a");
    queue_done(r->queue, a);
    step(r, 1000);
    assert_string_equal(next(r), "b");
    assert_string_equal(next(r), "");
}

static void adding_a_delayed_key_makes_it_ready_at_once(void **state)
{
    struct rig *r = *state;

    queue_after(r->queue, a, 500);
    queue_add(r->queue, a);
    assert_int_equal(queue_waiting(r->queue), 0);
    assert_string_equal(next(r), "a");
    queue_done(r->queue, a);
    step(r, 1000);
    assert_string_equal(next(r), "");
}

/* The delays of successive failures lie in 3/4 to 5/4 of 100, 200, 400, 800, 1000, 1000 ms. */
static void failures_back_off_with_jitter_and_a_limit(void **state)
{
    static const int64_t around[] = {100, 200, 400, 800, 1000, 1000, 1000};
    struct rig *r = *state;

    queue_add(r->queue, a);
    for (size_t i = 0; i < ARRAY_LEN(around); i++) {
        int64_t waited = 0;
        assert_string_equal(next(r), "a");
        queue_retry(r->queue, a, 0);
        queue_done(r->queue, a);
        assert_int_equal(queue_failures(r->queue, a), i + 1);
        while (queue_length(r->queue) == 0) {
            step(r, 1);
            waited++;
        }
        assert_in_range(waited, around[i] * 3 / 4, around[i] * 5 / 4 + 1);
    }
    assert_string_equal(next(r), "a");
    queue_forget(r->queue, a);
    queue_done(r->queue, a);
    assert_int_equal(queue_failures(r->queue, a), 0);
}

static void a_retry_waits_as_long_as_the_server_asked(void **state)
{
    struct rig *r = *state;

    queue_add(r->queue, a);
    assert_string_equal(next(r), "a");
    queue_retry(r->queue, a, 5000);
    queue_done(r->queue, a);
    step(r, 4999);
    assert_string_equal(next(r), "");
    step(r, 1);
    assert_string_equal(next(r), "a");
}

static void the_reason_of_a_failure_is_kept_until_it_is_forgotten(void **state)
{
    struct rig *r = *state;

    queue_add(r->queue, a);
    assert_string_equal(next(r), "a");
    assert_null(queue_failure(r->queue, a));
    queue_retry(r->queue, a, 0);
    queue_set_failure(r->queue, a, -EINVAL, "no such image");
    assert_string_equal(queue_failure(r->queue, a)->text, "no such image");
    assert_int_equal(queue_failure(r->queue, a)->code, -EINVAL);
    queue_done(r->queue, a);
    queue_forget(r->queue, a);
    assert_null(queue_failure(r->queue, a));
}

static void names_that_no_object_can_have_are_ignored(void **state)
{
    struct rig *r = *state;
    char name[4096];

    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    queue_add(r->queue, (struct key){"n", name});
    queue_after(r->queue, (struct key){name, "a"}, 5);
    queue_retry(r->queue, (struct key){name, name}, 0);
    queue_forget(r->queue, (struct key){name, name});
    queue_add(r->queue, (struct key){"n", ""});
    assert_int_equal(queue_length(r->queue) + queue_waiting(r->queue), 0);
}

/* Against a plain model: random wishes, and at every moment the same keys are due. */
static void many_delays_come_out_in_time_order(void **state)
{
    enum { N = 200 };
    struct rig *r = *state;
    int64_t due[N];
    unsigned int seed = 7;

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < N; i++) {
            char name[16];
            (void)snprintf(name, sizeof name, "k%d", i);
            due[i] = now_ms + 1 + rand_r(&seed) % 1000;
            queue_after(r->queue, (struct key){"", name}, due[i] - now_ms);
        }
        for (int left = N; left > 0;) {
            step(r, 1 + rand_r(&seed) % 50);
            for (struct key k; queue_take(r->queue, &k); left--) {
                int i = atoi(k.name + 1);
                assert_true(due[i] <= now_ms);
                due[i] = INT64_MAX;
                queue_done(r->queue, k);
            }
            for (int i = 0; i < N; i++)
                assert_true(due[i] > now_ms);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_is_in_it_once_and_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_that_is_worked_on_comes_back_after_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_same_name_in_another_namespace_is_another_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_earliest_of_several_delays_wins, set_up, tear_down),
        cmocka_unit_test_setup_teardown(adding_a_delayed_key_makes_it_ready_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failures_back_off_with_jitter_and_a_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_retry_waits_as_long_as_the_server_asked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_reason_of_a_failure_is_kept_until_it_is_forgotten, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(names_that_no_object_can_have_are_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_delays_come_out_in_time_order, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
