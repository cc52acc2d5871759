/* The life-cycle tables: what is allowed when, and where events lead. */
#include "shim/runtime/fsm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct rule {
    enum proc_state state;
    bool is_exec;
    enum proc_op op;
    int code;
    const char *text; /* NULL: any */
};

static const struct rule rules[] = {
    {PS_CREATED, false, OP_START, 0, NULL},
    {PS_RUNNING, false, OP_START, -EBADFD, "cannot start a running process"},
    {PS_STOPPED, false, OP_START, -EBADFD, "cannot start a stopped process"},
    {PS_CREATED, false, OP_DELETE, 0, NULL},
    {PS_RUNNING, false, OP_DELETE, -EBADFD, "cannot delete a running process"},
    {PS_PAUSED, false, OP_DELETE, -EBADFD, "cannot delete a paused process"},
    {PS_STOPPED, false, OP_DELETE, 0, NULL},
    {PS_DELETING, false, OP_DELETE, -ENOENT, NULL},
    {PS_STOPPED, false, OP_KILL, -ESRCH, "process already finished: not found"},
    {PS_DELETING, false, OP_KILL, -ESRCH, "process already finished: not found"},
    {PS_PAUSED, false, OP_KILL, 0, NULL},
    {PS_PAUSED, false, OP_EXEC, -EBADFD, "cannot exec in a paused state"},
    {PS_PAUSING, false, OP_EXEC, -EBADFD, "cannot exec in a paused state"},
    {PS_STOPPED, false, OP_EXEC, -EBADFD, "cannot exec in a stopped state"},
    {PS_CREATED, false, OP_EXEC, 0, NULL},
    {PS_CREATED, false, OP_PAUSE, -EBADFD, "cannot pause task in created state"},
    {PS_PAUSED, false, OP_PAUSE, -EBADFD, "cannot pause a paused container"},
    {PS_STOPPED, false, OP_PAUSE, -EBADFD, "cannot pause a stopped container"},
    {PS_RUNNING, false, OP_RESUME, -EBADFD, "cannot resume a running process"},
    {PS_PAUSED, false, OP_RESUME, 0, NULL},
    {PS_STOPPED, false, OP_UPDATE, -EBADFD, "cannot update a stopped container"},
    {PS_CREATED, false, OP_UPDATE, 0, NULL},
    {PS_PAUSED, false, OP_STATS, 0, NULL},
    {PS_STOPPED, false, OP_STATS, -ENOENT, "cgroup does not exist: not found"},
    {PS_STOPPED, false, OP_RESIZE, -EBADFD, "cannot resize a stopped process"},
    {PS_STOPPED, false, OP_CLOSE_IO, 0, NULL},
    {PS_STOPPED, false, OP_WAIT, 0, NULL},
    {PS_CREATED, false, OP_PIDS, 0, NULL},
    {PS_PAUSED, false, OP_PIDS, 0, NULL},
    {PS_CREATING, false, OP_STATE, -ENOENT, "container not created: not found"},
    {PS_CREATING, false, OP_WAIT, -ENOENT, NULL},
    {PS_CREATING, false, OP_DELETE, 0, NULL},
    {PS_CREATING, false, OP_KILL, 0, NULL},
    {PS_CREATED, true, OP_KILL, -EBUSY, "process not created: failed precondition"},
    {PS_CREATED, true, OP_START, 0, NULL},
    {PS_CREATED, true, OP_DELETE, 0, NULL},
    {PS_STARTING, true, OP_KILL, 0, NULL},
    {PS_RUNNING, true, OP_DELETE, -EBADFD, "cannot delete a running process"},
    {PS_STOPPED, true, OP_KILL, -ESRCH, "process already finished: not found"},
    {PS_NONE, false, OP_STATE, -ENOENT, NULL},
};

static void every_call_gets_the_verdict_of_its_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        const struct rule *r = &rules[i];
        struct err e = {0};
        int code = fsm_allows(r->state, r->is_exec, r->op, &e);
        if (code != r->code)
            print_error("row %zu: %s op %d\n", i, fsm_state_name(r->state), r->op);
        assert_int_equal(code, r->code);
        if (r->text)
            assert_string_equal(err_text(&e), r->text);
    }
}

static void state_and_wait_are_answered_in_every_state_that_the_world_can_see(void **state)
{
    (void)state;
    for (enum proc_state s = PS_CREATED; s < PS_STATES; s++) {
        assert_int_equal(fsm_allows(s, false, OP_STATE, NULL), 0);
        assert_int_equal(fsm_allows(s, false, OP_WAIT, NULL), 0);
        assert_int_equal(fsm_allows(s, false, OP_CLOSE_IO, NULL), 0);
    }
}

static void a_refusal_always_says_why(void **state)
{
    (void)state;
    for (enum proc_state s = PS_NONE; s < PS_STATES; s++)
        for (enum proc_op op = 0; op < PROC_OPS; op++)
            for (int exec = 0; exec < 2; exec++) {
                struct err e = {0};
                if (fsm_allows(s, exec, op, &e) < 0)
                    assert_true(strlen(err_text(&e)) > 10);
            }
}

struct step {
    enum proc_state from;
    enum proc_event event;
    enum proc_state to;
};
static const struct step steps[] = {
    {PS_CREATING, EV_LAUNCHED, PS_CREATED},
    {PS_CREATED, EV_START, PS_STARTING},
    {PS_STARTING, EV_STARTED, PS_RUNNING},
    {PS_STARTING, EV_REAPED, PS_NONE},
    {PS_STARTING, EV_START_FAILED, PS_STOPPED},
    {PS_RUNNING, EV_REAPED, PS_STOPPED},
    {PS_CREATED, EV_REAPED, PS_STOPPED},
    {PS_RUNNING, EV_PAUSE, PS_PAUSING},
    {PS_PAUSING, EV_FROZEN, PS_PAUSED},
    {PS_PAUSING, EV_THAWED, PS_RUNNING},
    {PS_PAUSED, EV_THAWED, PS_RUNNING},
    {PS_PAUSED, EV_REAPED, PS_STOPPED},
    {PS_STOPPED, EV_REAPED, PS_NONE},
    {PS_STOPPED, EV_DELETE, PS_DELETING},
    {PS_DELETING, EV_DELETE, PS_NONE},
    {PS_RUNNING, EV_DELETE, PS_NONE},
    {PS_CREATED, EV_PAUSE, PS_NONE},
    {PS_CREATED, EV_DELETE, PS_DELETING},
};

static void events_lead_where_the_diagram_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        assert_int_equal(fsm_next(steps[i].from, steps[i].event), steps[i].to);
}

static void an_exit_is_held_back_while_the_start_is_not_told(void **state)
{
    (void)state;
    assert_int_equal(fsm_next(PS_CREATING, EV_REAPED), PS_NONE);
    assert_int_equal(fsm_next(PS_STARTING, EV_REAPED), PS_NONE);
}

static void nothing_leaves_the_end_of_life(void **state)
{
    (void)state;
    for (enum proc_event ev = 0; ev < PROC_EVENTS; ev++)
        assert_int_equal(fsm_next(PS_DELETING, ev), PS_NONE);
}

static void an_exec_starts_only_beside_a_living_init(void **state)
{
    (void)state;
    assert_int_equal(fsm_allows_exec_start(PS_RUNNING, NULL), 0);
    assert_int_equal(fsm_allows_exec_start(PS_CREATED, NULL), 0);
    assert_int_equal(fsm_allows_exec_start(PS_PAUSED, NULL), -EBADFD);
    assert_int_equal(fsm_allows_exec_start(PS_STOPPED, NULL), -EBUSY);
    assert_int_equal(fsm_allows_exec_start(PS_NONE, NULL), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_gets_the_verdict_of_its_state),
        cmocka_unit_test(state_and_wait_are_answered_in_every_state_that_the_world_can_see),
        cmocka_unit_test(a_refusal_always_says_why),
        cmocka_unit_test(events_lead_where_the_diagram_says),
        cmocka_unit_test(an_exit_is_held_back_while_the_start_is_not_told),
        cmocka_unit_test(nothing_leaves_the_end_of_life),
        cmocka_unit_test(an_exec_starts_only_beside_a_living_init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
