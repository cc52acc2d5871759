/* The audit lines of the sentry: valid JSON whatever the workload put in, bounded, and never blocking. */
#include "shim/sentry/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/sentry/task.h"
#include "tests/unit/shim/unit.h"

static const uint64_t args[6] = {1, 2, UINT64_MAX, 0, 0, 0};

static struct audit_record record(const char *container)
{
    return (struct audit_record){.container = container,
                                 .tid = 7,
                                 .call = "connect",
                                 .args = args,
                                 .detail = "1.2.3.4:80",
                                 .rule = "egress",
                                 .error = EACCES};
}

static void a_line_is_json_whatever_is_in_it(void **state)
{
    int p[2];
    char text[4096] = "";
    struct audit a;
    struct audit_record r = record("a\"b\\\n\x01\xff");
    (void)state;
    assert_int_equal(pipe(p), 0);
    audit_init(&a, p[1]);
    audit_write(&a, &r);
    assert_true(read(p[0], text, sizeof text - 1) > 0);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "error")), "EACCES");
    assert_string_equal(json_string_value(json_object_get(j, "detail")), "1.2.3.4:80");
    json_decref(j);
    close(p[0]);
    close(p[1]);
}

static void too_many_lines_are_counted_not_written(void **state)
{
    int p[2];
    struct audit a;
    struct audit_record r = record("c");
    (void)state;
    assert_int_equal(pipe(p), 0);
    audit_init(&a, p[1]);
    for (int i = 0; i < 5000; i++) /* the pipe is full, or the bucket is empty, long before: nothing blocks */
        audit_write(&a, &r);
    assert_true(a.lost > 1000);
    close(p[0]);
    close(p[1]);
}

static void a_pending_signal_is_seen_unless_it_is_blocked(void **state)
{
    static const struct {
        bool blocked, to_process, want;
    } cases[] = {{true, false, false}, {true, true, false}, {false, false, false}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool pending = true;
        sigset_t set, old;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        if (cases[i].blocked) {
            sigprocmask(SIG_BLOCK, &set, &old);
            (void)(cases[i].to_process ? kill(getpid(), SIGUSR2) : raise(SIGUSR2));
        }
        assert_int_equal(task_look_up((pid_t)syscall(SYS_gettid), &pending), getpid());
        assert_int_equal(pending, cases[i].want);
        if (cases[i].blocked) {
            struct timespec none = {0};
            assert_int_equal(sigtimedwait(&set, NULL, &none), SIGUSR2);
            sigprocmask(SIG_SETMASK, &old, NULL);
        }
    }
}

/* A stopped process keeps its signals pending: the only state in which they can be watched. */
static void a_signal_for_a_stopped_process_is_pending(void **state)
{
    bool pending = false;
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGUSR2, _exit);
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_int_equal(task_look_up(pid, &pending), pid);
    assert_false(pending);
    kill(pid, SIGUSR2);
    assert_int_equal(task_look_up(pid, &pending), pid);
    assert_true(pending);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    assert_true(task_look_up(pid, &pending) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_json_whatever_is_in_it),
        cmocka_unit_test(too_many_lines_are_counted_not_written),
        cmocka_unit_test(a_pending_signal_is_seen_unless_it_is_blocked),
        cmocka_unit_test(a_signal_for_a_stopped_process_is_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
