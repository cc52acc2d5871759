/* Time is fake here: clock_mono_ns is replaced at link time (WRAP.test_loop in hack/test.mk). */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/loop.h"

static int64_t now_ms;

int64_t __wrap_clock_mono_ns(void);
int64_t __wrap_clock_mono_ns(void)
{
    return now_ms * 1000000;
}

struct probe {
    struct loop *loop;
    struct source *source, *other;
    int calls, order, fd;
    uint32_t events;
};
static int order;

static struct loop *loop(void)
{
    struct loop *l = NULL;

    now_ms = 1000;
    order = 0;
    assert_int_equal(loop_new(&l, NULL), 0);
    return l;
}
static void step(struct loop *l)
{
    assert_int_equal(loop_step(l, 0, NULL), 0);
}
static void count(void *data)
{
    struct probe *p = data;

    p->calls++;
    p->order = ++order;
}
static void count_fd(void *data, uint32_t events)
{
    count(data);
    ((struct probe *)data)->events = events;
}

static void a_readable_descriptor_is_reported_until_read(void **state)
{
    (void)state;
    struct loop *l = loop();
    struct probe p = {0};
    int fds[2];
    char c;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(loop_add_fd(l, fds[0], EPOLLIN, count_fd, &p, &p.source), 0);
    step(l);
    assert_int_equal(p.calls, 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    step(l);
    step(l);
    assert_int_equal(p.calls, 2);
    assert_int_equal(source_set_events(p.source, 0), 0);
    step(l);
    assert_int_equal(p.calls, 2);
    assert_int_equal(source_set_events(p.source, EPOLLIN), 0);
    assert_int_equal(read(fds[0], &c, 1), 1);
    step(l);
    assert_int_equal(p.calls, 2);
    fd_close(fds[1]);
    step(l);
    assert_true(p.events & EPOLLHUP);
    source_free(p.source);
    step(l);
    assert_int_equal(p.calls, 3);
    fd_close(fds[0]);
    loop_free(l);
}

static void a_file_that_cannot_be_watched_is_refused_and_leaves_no_source(void **state)
{
    (void)state;
    struct loop *l = loop();
    struct source *s = NULL;

    assert_int_equal(loop_add_fd(l, 250, EPOLLIN, count_fd, NULL, &s), -EBADF);
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    assert_int_equal(loop_add_fd(l, fd, EPOLLIN, count_fd, NULL, &s), -EPERM);
    assert_null(s);
    fd_close(fd);
    loop_free(l);
}

static void free_other(void *data, uint32_t events)
{
    struct probe *p = data;

    count_fd(data, events);
    source_free(p->other);
    p->other = NULL;
}

static void a_callback_may_free_another_source_of_the_same_round(void **state)
{
    (void)state;
    struct loop *l = loop();
    struct probe p[2] = {{0}};
    int fds[2][2];

    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe2(fds[i], O_CLOEXEC), 0);
        assert_int_equal(write(fds[i][1], "x", 1), 1);
        assert_int_equal(loop_add_fd(l, fds[i][0], EPOLLIN, free_other, &p[i], &p[i].source), 0);
    }
    p[0].other = p[1].source;
    p[1].other = p[0].source;
    step(l);
    assert_int_equal(p[0].calls + p[1].calls, 1); /* whichever came first silenced the other */
    for (int i = 0; i < 2; i++)
        fd_close_all(fds[i], 2);
    loop_free(l);
}

static void nested_step(void *data, uint32_t events)
{
    struct probe *p = data;

    count_fd(data, events);
    source_free(p->source);
    assert_int_equal(loop_step(p->loop, 0, NULL), 0);
    source_free(p->source); /* still known: a second free is harmless until the outer round ends */
}

static void a_round_inside_a_round_keeps_freed_sources_until_the_outer_one_ends(void **state)
{
    (void)state;
    struct loop *l = loop();
    struct probe p = {.loop = l};
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(loop_add_fd(l, fds[0], EPOLLIN, nested_step, &p, &p.source), 0);
    step(l);
    step(l);
    assert_int_equal(p.calls, 1);
    fd_close_all(fds, 2);
    loop_free(l);
}

static void timers_fire_once_in_order_of_time(void **state)
{
    (void)state;
    struct loop *l = loop();
    struct probe late = {0}, early = {0}, off = {0};

    assert_int_equal(loop_add_timer(l, 200, count, &late, &late.source), 0);
    assert_int_equal(loop_add_timer(l, 100, count, &early, NULL), 0);
    assert_int_equal(loop_add_timer(l, -1, count, &off, &off.source), 0);
    step(l);
    assert_int_equal(early.calls, 0);
    now_ms += 99;
    step(l);
    assert_int_equal(early.calls, 0);
    now_ms += 1000;
    step(l);
    assert_int_equal(early.order, 1);
    assert_int_equal(late.order, 2);
    step(l);
    assert_int_equal(early.calls + late.calls, 2);
    source_arm(late.source, 0);
    source_arm(off.source, INT64_MAX); /* no overflow: never, as far as anybody lives */
    step(l);
    assert_int_equal(late.calls, 2);
    assert_int_equal(off.calls, 0);
    source_arm(late.source, 10);
    source_arm(late.source, -1);
    now_ms += 100;
    step(l);
    assert_int_equal(late.calls, 2);
    loop_free(l);
}

static void arm_self(void *data)
{
    struct probe *p = data;

    count(data);
    source_arm(p->source, 0);
}

static void a_timer_that_arms_itself_for_now_does_not_keep_the_loop(void **state)
{
    (void)state;
    struct loop *l = loop();
    struct probe p = {0};

    assert_int_equal(loop_add_timer(l, 0, arm_self, &p, &p.source), 0);
    step(l);
    assert_int_equal(p.calls, 1);
    step(l);
    assert_int_equal(p.calls, 2);
    loop_free(l);
}

static void free_pair(void *data)
{
    struct probe *p = data;

    count(data);
    source_free(p->source);
    source_free(p->other);
}

static void a_timer_may_free_itself_and_another_that_is_due(void **state)
{
    (void)state;
    struct loop *l = loop();
    struct probe p = {0}, never = {0};

    assert_int_equal(loop_add_timer(l, 1, free_pair, &p, &p.source), 0);
    assert_int_equal(loop_add_timer(l, 2, count, &never, &p.other), 0);
    now_ms += 10;
    step(l);
    step(l);
    assert_int_equal(p.calls, 1);
    assert_int_equal(never.calls, 0);
    loop_free(l);
}

static void defer_again(void *data)
{
    struct probe *p = data;

    count(data);
    assert_int_equal(loop_defer(p->loop, defer_again, p, NULL), 0);
}

static void deferred_work_runs_once_and_what_it_defers_waits(void **state)
{
    (void)state;
    struct loop *l = loop();
    struct probe p = {.loop = l}, cancelled = {0};

    assert_int_equal(loop_defer(l, defer_again, &p, NULL), 0);
    assert_int_equal(loop_defer(l, count, &cancelled, &cancelled.source), 0);
    source_free(cancelled.source);
    assert_int_equal(loop_step(l, -1, NULL), 0); /* does not wait */
    assert_int_equal(p.calls, 1);
    assert_int_equal(cancelled.calls, 0);
    step(l);
    assert_int_equal(p.calls, 2);
    loop_free(l);
}

static void note_signal(void *data, int signal)
{
    struct probe *p = data;

    count(data);
    p->fd = signal;
}

static void signals_arrive_as_calls(void **state)
{
    (void)state;
    int lowest = dup(0);
    fd_close(lowest);
    struct loop *l = loop();
    struct probe p = {0};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    assert_int_equal(loop_add_signals(l, &set, note_signal, &p, &p.source), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    step(l);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.fd, SIGUSR1);
    step(l);
    assert_int_equal(p.calls, 1);
    loop_free(l);
    int next = dup(0); /* the lowest free number: the signalfd and the epoll descriptor are closed */
    assert_int_equal(next, lowest);
    fd_close(next);
}

static void quit(void *data)
{
    loop_quit(data);
}

static void run_ends_after_quit(void **state)
{
    (void)state;
    struct loop *l = loop();

    assert_int_equal(loop_add_timer(l, 0, quit, l, NULL), 0);
    assert_int_equal(loop_run(l, NULL), 0);
    loop_free(l);
    loop_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_readable_descriptor_is_reported_until_read),
        cmocka_unit_test(a_file_that_cannot_be_watched_is_refused_and_leaves_no_source),
        cmocka_unit_test(a_callback_may_free_another_source_of_the_same_round),
        cmocka_unit_test(a_round_inside_a_round_keeps_freed_sources_until_the_outer_one_ends),
        cmocka_unit_test(timers_fire_once_in_order_of_time),
        cmocka_unit_test(a_timer_that_arms_itself_for_now_does_not_keep_the_loop),
        cmocka_unit_test(a_timer_may_free_itself_and_another_that_is_due),
        cmocka_unit_test(deferred_work_runs_once_and_what_it_defers_waits),
        cmocka_unit_test(signals_arrive_as_calls),
        cmocka_unit_test(run_ends_after_quit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
