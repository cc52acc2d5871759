#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/scoped.h"
#include "forward.pb-c.h"
#include "shim/ttrpc/events.h"
#include "shim/ttrpc/server.h"

#define SEEN_MAX 10000
#define EXIT     "containerd.events.TaskExit"
#define START    "containerd.events.TaskStart"

/* Stands in for containerd: notes what it is given; can be absent, slow, or refuse. */
struct fixture {
    struct loop *loop;
    struct ttrpc_server *server;
    struct events *events;
    char path[64], address[80];
    unsigned seen[SEEN_MAX]; /* numbers in the messages, in order of arrival */
    char last_topic[64], last_type[64], last_ns[64];
    size_t n_seen, n_refused;
    int refuse_code;     /* answer the next ones with this */
    size_t refuse_count; /* so many of them */
    bool silent;         /* do not answer at all */
    struct ttrpc_call *held[16];
    size_t n_held;
};

static void on_forward(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len)
{
    struct fixture *f = data;
    Containerd__Services__Events__Ttrpc__V1__ForwardRequest *m =
        containerd__services__events__ttrpc__v1__forward_request__unpack(NULL, len, payload);
    unsigned number;

    assert_non_null(m);
    assert_non_null(m->envelope);
    assert_non_null(m->envelope->event);
    assert_non_null(m->envelope->timestamp);
    assert_true(m->envelope->timestamp->seconds > 1600000000);
    assert_int_equal(m->envelope->event->value.len, sizeof number);
    memcpy(&number, m->envelope->event->value.data, sizeof number);
    (void)snprintf(f->last_topic, sizeof f->last_topic, "%s", m->envelope->topic);
    (void)snprintf(f->last_type, sizeof f->last_type, "%s", m->envelope->event->type_url);
    (void)snprintf(f->last_ns, sizeof f->last_ns, "%s", m->envelope->namespace_);
    containerd__services__events__ttrpc__v1__forward_request__free_unpacked(m, NULL);
    if (f->silent) {
        assert_true(f->n_held < ARRAY_LEN(f->held));
        f->held[f->n_held++] = call;
        return;
    }
    if (f->refuse_count > 0) {
        f->refuse_count--;
        f->n_refused++;
        ttrpc_reply_error(call, (enum ttrpc_code)f->refuse_code, "refused");
        return;
    }
    assert_true(f->n_seen < SEEN_MAX);
    f->seen[f->n_seen++] = number;
    ttrpc_reply(call, NULL, 0);
}

static const struct ttrpc_method methods[] = {
    {"containerd.services.events.ttrpc.v1.Events", "Forward", on_forward},
};

static void containerd_comes(struct fixture *f)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)unlink(f->path);
    memcpy(at.sun_path, f->path, strlen(f->path) + 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(ttrpc_server_new(f->loop, fd, methods, ARRAY_LEN(methods), f, &f->server, NULL), 0);
}

static void containerd_goes(struct fixture *f)
{
    ttrpc_server_free(take(f->server));
    (void)unlink(f->path);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);

    log_init(-1, LOG_ERROR);
    (void)snprintf(f->path, sizeof f->path, "/tmp/glovebox-events-%d.sock", (int)getpid());
    (void)snprintf(f->address, sizeof f->address, "unix://%s", f->path);
    assert_int_equal(loop_new(&f->loop, NULL), 0);
    assert_int_equal(events_new(f->loop, f->path, "k8s.io", &f->events, NULL), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    events_free(f->events);
    containerd_goes(f);
    for (size_t i = 0; i < f->n_held; i++)
        ttrpc_reply(f->held[i], NULL, 0);
    loop_free(f->loop);
    free(f);
    return 0;
}

static void publish(struct fixture *f, const char *type, unsigned number)
{
    events_publish(f->events, "/tasks/x", type, (const uint8_t *)&number, sizeof number);
}

static void expect_in_order(const struct fixture *f, unsigned from, size_t n)
{
    assert_int_equal(f->n_seen, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(f->seen[i], from + i);
}

static void events_arrive_in_order(void **state)
{
    struct fixture *f = *state;

    containerd_comes(f);
    for (unsigned i = 0; i < 500; i++)
        publish(f, i % 3 ? START : EXIT, i);
    assert_false(events_idle(f->events));
    STEP_UNTIL(f->loop, events_idle(f->events));
    expect_in_order(f, 0, 500);
    assert_string_equal(f->last_topic, "/tasks/x");
    assert_string_equal(f->last_type, START);
    assert_string_equal(f->last_ns, "k8s.io");
}

static void only_one_event_is_on_its_way(void **state)
{
    struct fixture *f = *state;

    containerd_comes(f);
    f->silent = true;
    publish(f, START, 1);
    publish(f, START, 2);
    STEP_UNTIL(f->loop, f->n_held == 1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(loop_step(f->loop, 2, NULL), 0);
    assert_int_equal(f->n_held, 1);
    f->silent = false;
    f->n_held = 0;
    ttrpc_reply(f->held[0], NULL, 0);
    STEP_UNTIL(f->loop, events_idle(f->events));
    assert_int_equal(f->n_seen, 1);
    assert_int_equal(f->seen[0], 2);
}

static void events_wait_while_containerd_is_away(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < 50; i++)
        publish(f, START, i);
    for (int i = 0; i < 20; i++)
        assert_int_equal(loop_step(f->loop, 5, NULL), 0);
    assert_false(events_idle(f->events));
    containerd_comes(f);
    STEP_UNTIL(f->loop, events_idle(f->events));
    expect_in_order(f, 0, 50);
    containerd_goes(f);
    publish(f, EXIT, 50);
    for (int i = 0; i < 20; i++)
        assert_int_equal(loop_step(f->loop, 5, NULL), 0);
    containerd_comes(f);
    STEP_UNTIL(f->loop, events_idle(f->events));
    expect_in_order(f, 0, 51);
    assert_int_equal(events_dropped(f->events), 0);
}

static void an_unanswered_event_is_sent_again_to_the_next_containerd(void **state)
{
    struct fixture *f = *state;

    containerd_comes(f);
    f->silent = true;
    publish(f, EXIT, 7);
    publish(f, EXIT, 8);
    STEP_UNTIL(f->loop, f->n_held == 1);
    containerd_goes(f);
    f->silent = false;
    containerd_comes(f);
    STEP_UNTIL(f->loop, events_idle(f->events));
    expect_in_order(f, 7, 2);
}

static void publishing_never_waits(void **state)
{
    struct fixture *f = *state;
    int64_t begin = clock_mono_ms();

    for (unsigned i = 0; i < 2000; i++)
        publish(f, EXIT, i);
    assert_true(clock_mono_ms() - begin < 1000);
    assert_false(events_idle(f->events));
}

static void waiting_for_containerd_costs_little(void **state)
{
    struct fixture *f = *state;
    unsigned rounds = 0;

    publish(f, EXIT, 1);
    for (int64_t end = clock_mono_ms() + 400; clock_mono_ms() < end; rounds++)
        assert_int_equal(loop_step(f->loop, 50, NULL), 0);
    assert_in_range(rounds, 5, 30); /* attempts after 20, 40, 80, 160 ms, not a busy loop */
}

static void a_full_queue_loses_the_oldest_that_is_no_exit(void **state)
{
    struct fixture *f = *state;

    publish(f, EXIT, 0);
    for (unsigned i = 1; i < EVENTS_QUEUE_MAX; i++)
        publish(f, START, i);
    assert_int_equal(events_dropped(f->events), 0);
    publish(f, EXIT, EVENTS_QUEUE_MAX);
    publish(f, START, EVENTS_QUEUE_MAX + 1);
    assert_int_equal(events_dropped(f->events), 2);
    containerd_comes(f);
    STEP_UNTIL(f->loop, events_idle(f->events));
    assert_int_equal(f->n_seen, EVENTS_QUEUE_MAX);
    assert_int_equal(f->seen[0], 0); /* the exit */
    assert_int_equal(f->seen[1], 3); /* 1 and 2 went */
    assert_int_equal(f->seen[EVENTS_QUEUE_MAX - 1], EVENTS_QUEUE_MAX + 1);
}

static void a_queue_full_of_exits_loses_its_oldest(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < EVENTS_QUEUE_MAX + 3; i++)
        publish(f, EXIT, i);
    assert_int_equal(events_dropped(f->events), 3);
    containerd_comes(f);
    STEP_UNTIL(f->loop, events_idle(f->events));
    expect_in_order(f, 3, EVENTS_QUEUE_MAX);
}

static void the_event_on_its_way_is_not_the_one_that_goes(void **state)
{
    struct fixture *f = *state;

    containerd_comes(f);
    f->silent = true;
    publish(f, START, 0);
    STEP_UNTIL(f->loop, f->n_held == 1);
    for (unsigned i = 1; i < EVENTS_QUEUE_MAX + 1; i++)
        publish(f, START, i);
    assert_int_equal(events_dropped(f->events), 1);
    f->silent = false;
    f->n_held = 0;
    ttrpc_reply(f->held[0], NULL, 0);
    STEP_UNTIL(f->loop, events_idle(f->events));
    assert_int_equal(f->n_seen, EVENTS_QUEUE_MAX - 1);
    assert_int_equal(f->seen[0], 2);
}

static void a_refused_event_does_not_hold_up_the_others(void **state)
{
    static const struct {
        int code;
        size_t count, attempts;
        bool lost;
    } cases[] = {
        {TTRPC_INVALID_ARGUMENT, 1, 1, true}, /* will never be accepted */
        {TTRPC_UNIMPLEMENTED, 1, 1, true},
        {TTRPC_UNKNOWN, 2, 2, false}, /* may work the next time */
        {TTRPC_INTERNAL, 5, 5, true}, /* but not for ever */
    };

    containerd_comes(*state);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture *f = *state;
        uint64_t dropped = events_dropped(f->events);
        f->refuse_code = cases[i].code;
        f->refuse_count = cases[i].count;
        f->n_refused = f->n_seen = 0;
        publish(f, START, 1);
        publish(f, START, 2);
        STEP_UNTIL(f->loop, events_idle(f->events));
        assert_int_equal(f->n_refused, cases[i].attempts);
        assert_int_equal(events_dropped(f->events) - dropped, cases[i].lost ? 1 : 0);
        expect_in_order(f, cases[i].lost ? 2 : 1, cases[i].lost ? 1 : 2);
    }
}

static void without_an_address_events_are_counted_as_dropped(void **state)
{
    struct fixture *f = *state;
    struct events *ev = NULL;
    unsigned number = 1;

    assert_int_equal(events_new(f->loop, "", "default", &ev, NULL), 0);
    events_publish(ev, "/tasks/x", EXIT, (const uint8_t *)&number, sizeof number);
    assert_true(events_idle(ev));
    assert_int_equal(events_dropped(ev), 1);
    events_free(ev);
}

static void an_address_may_have_a_scheme(void **state)
{
    struct fixture *f = *state;
    struct events *ev = NULL;
    unsigned number = 9;

    containerd_comes(f);
    assert_int_equal(events_new(f->loop, f->address, "default", &ev, NULL), 0);
    events_publish(ev, "/tasks/x", EXIT, (const uint8_t *)&number, sizeof number);
    STEP_UNTIL(f->loop, events_idle(ev));
    expect_in_order(f, 9, 1);
    events_free(ev);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(events_arrive_in_order),
        TEST(only_one_event_is_on_its_way),
        TEST(events_wait_while_containerd_is_away),
        TEST(an_unanswered_event_is_sent_again_to_the_next_containerd),
        TEST(publishing_never_waits),
        TEST(waiting_for_containerd_costs_little),
        TEST(a_full_queue_loses_the_oldest_that_is_no_exit),
        TEST(a_queue_full_of_exits_loses_its_oldest),
        TEST(the_event_on_its_way_is_not_the_one_that_goes),
        TEST(a_refused_event_does_not_hold_up_the_others),
        TEST(without_an_address_events_are_counted_as_dropped),
        TEST(an_address_may_have_a_scheme),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
