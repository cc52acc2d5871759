/* Containers of a pod from Create to Delete, with real processes behind a fake launcher. */
#include "tests/unit/shim/unit.h"

#include "base/strbuf.h"
#include "shim/runtime/runtime.h"
#include "shim/runtime/state.h"
#include "tests/unit/shim/fake_pod.h"

struct reply {
    int called, code;
    struct rt_reply r;
    char text[ERR_TEXT_MAX];
};
struct world {
    struct loop *loop;
    struct runtime *rt;
    char dir[64], *bundle, *state;
    struct strbuf events;
};
static struct world *w;

static void on_reply(void *data, int code, const struct rt_reply *r, const struct err *e)
{
    struct reply *to = data;

    to->called++;
    to->code = code;
    if (code == 0)
        to->r = *r;
    snprintf(to->text, sizeof to->text, "%s", code ? err_text(e) : "");
}

static void publish(void *data, enum rt_event event, const struct rt_event_info *i)
{
    static const char *const names[] = {"create", "start",  "exec-added", "exec-started", "oom",
                                        "exit",   "delete", "paused",     "resumed"};
    struct world *to = data;

    strbuf_printf(&to->events, "%s:%s", names[event], i->exec_id ? i->exec_id : i->id);
    if (event == RT_EXITED)
        strbuf_printf(&to->events, "=%u", i->process.status);
    strbuf_putc(&to->events, ' ');
}

static const char config[] =
    "{\"ociVersion\":\"1.0.2\",\"process\":{\"args\":[\"%s\"],\"cwd\":\"/\",\"user\":{\"uid\":0,\"gid\":0}},"
    "\"root\":{\"path\":\"rootfs\"},%s\"linux\":{\"namespaces\":[{\"type\":\"pid\"%s},{\"type\":\"mount\"},{"
    "\"type\":\"network\"},"
    "{\"type\":\"ipc\"},{\"type\":\"uts\"}]}}";

static void write_config(const char *command, const char *more, const char *pid_ns)
{
    char *path = xasprintf("%s/config.json", w->bundle);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fprintf(f, config, command, more, pid_ns);
    fclose(f);
    free(path);
}

static int setup(void **state UNUSED)
{
    (void)signal(SIGPIPE, SIG_IGN);
    memset(&fake, 0, sizeof fake);
    list_init(&fake.launches);
    w = xcalloc(1, sizeof *w);
    snprintf(w->dir, sizeof w->dir, "/tmp/runtime.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    w->bundle = xasprintf("%s/bundle", w->dir);
    w->state = xasprintf("%s/state", w->dir);
    assert_int_equal(mkdir(w->bundle, 0700), 0);
    strbuf_init(&w->events, 1 << 20);
    assert_int_equal(loop_new(&w->loop, NULL), 0);
    const struct rt_params p = {.loop = w->loop,
                                .ns = "test",
                                .id = "c1",
                                .state_dir = w->state,
                                .sink = {.publish = publish, .data = w}};
    assert_int_equal(runtime_new(&p, &w->rt, NULL), 0);
    return 0;
}

static int teardown(void **state UNUSED)
{
    runtime_free(w->rt);
    loop_free(w->loop);
    assert_int_equal(fake.pods, 0);
    assert_int_equal(fake.sentries, 0);
    assert_int_equal(fake.cgroups, 0);
    while (waitpid(-1, NULL, 0) > 0) /* the killed ones that nobody waited for any more */
        ;
    strbuf_done(&w->events);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", w->dir, (char *)NULL);
        _exit(1);
    }
    waitpid(pid, NULL, 0);
    free(w->bundle);
    free(w->state);
    free(w);
    return 0;
}

#define UNTIL(cond) STEP_UNTIL(w->loop, cond)

static void steps(int ms)
{
    for (int64_t end = clock_mono_ms() + ms; clock_mono_ms() < end;)
        assert_int_equal(loop_step(w->loop, 5, NULL), 0);
}

static void create_async(const char *id, const char *command, struct reply *r)
{
    const struct rt_create req = {.id = id, .bundle = w->bundle, .uri = {"", "", ""}, .checkpoint = ""};

    write_config(command, "", "");
    runtime_create(w->rt, &req, on_reply, r);
}

static struct reply create(const char *id, const char *command)
{
    struct reply r = {0};

    create_async(id, command, &r);
    UNTIL(r.called);
    return r;
}

typedef void (*call_fn)(struct runtime *, const char *, const char *, rt_done_fn, void *);
static struct reply call(call_fn fn, const char *id, const char *exec_id)
{
    struct reply r = {0};

    fn(w->rt, id, exec_id, on_reply, &r);
    UNTIL(r.called);
    return r;
}

static void wait_async(const char *id, const char *exec_id, struct reply *r)
{
    struct rt_waiter *waiter;

    assert_int_equal(runtime_wait(w->rt, id, exec_id, on_reply, r, &waiter, NULL), 0);
    assert_int_equal(r->called, 0);
}

static struct reply wait_for(const char *id, const char *exec_id)
{
    struct reply r = {0};

    wait_async(id, exec_id, &r);
    UNTIL(r.called);
    return r;
}

static enum proc_state state_of(const char *id, const char *exec_id)
{
    struct rt_state st;
    struct err e = {0};

    return runtime_state(w->rt, id, exec_id, &st, &e) == 0 ? st.state : PS_NONE;
}

static int kill_it(const char *id, const char *exec_id, int sig)
{
    struct err e = {0};

    return runtime_kill(w->rt, id, exec_id, sig, false, &e);
}

static int exec_add(const char *id, const char *exec_id, const char *command)
{
    char *json = xasprintf("{\"args\":[\"%s\"],\"cwd\":\"/\",\"user\":{\"uid\":0,\"gid\":0}}", command);
    const struct rt_exec x = {
        .id = id, .exec_id = exec_id, .uri = {"", "", ""}, .spec_json = json, .spec_len = strlen(json)};
    struct err e = {0};
    int r = runtime_exec(w->rt, &x, &e);

    free(json);
    return r;
}

static void clear_events(void)
{
    strbuf_reset(&w->events);
}

static void a_container_runs_from_create_to_delete(void **state UNUSED)
{
    struct reply r = create("c1", "exit 7");

    assert_int_equal(r.code, 0);
    assert_true(r.r.pid > 0);
    assert_int_equal(state_of("c1", NULL), PS_CREATED);
    struct reply waited = {0};
    wait_async("c1", NULL, &waited);
    struct reply started = call(runtime_start, "c1", "");
    assert_int_equal(started.code, 0);
    assert_int_equal(started.r.pid, r.r.pid);
    UNTIL(waited.called);
    assert_int_equal(waited.r.status, 7);
    assert_int_equal(waited.r.pid, r.r.pid);
    assert_int_equal(state_of("c1", NULL), PS_STOPPED);
    struct reply again = wait_for("c1", NULL); /* after the end: at once */
    assert_int_equal(again.r.status, 7);
    assert_int_equal(again.r.at.tv_nsec, waited.r.at.tv_nsec);
    struct reply deleted = call(runtime_delete, "c1", "");
    assert_int_equal(deleted.r.status, 7);
    assert_int_equal(deleted.r.pid, r.r.pid);
    assert_string_equal(w->events.data, "create:c1 start:c1 exit:c1=7 delete:c1 ");
    assert_int_equal(call(runtime_delete, "c1", "").code, -ENOENT);
    assert_true(runtime_is_empty(w->rt));
    UNTIL(runtime_is_clean(w->rt));
    assert_int_equal(access(w->state, F_OK) == 0 ? rmdir(w->state) : 0, 0); /* no state is left */
}

static void every_fast_exit_keeps_its_code_and_its_order(void **state UNUSED)
{
    for (int i = 0; i < 100; i++) {
        char command[32], want[128];
        snprintf(command, sizeof command, "exit %d", i);
        clear_events();
        assert_int_equal(create("c1", command).code, 0);
        assert_int_equal(call(runtime_start, "c1", NULL).code, 0);
        assert_int_equal(wait_for("c1", NULL).r.status, i);
        assert_int_equal(call(runtime_delete, "c1", NULL).code, 0);
        snprintf(want, sizeof want, "create:c1 start:c1 exit:c1=%d delete:c1 ", i);
        assert_string_equal(w->events.data, want);
    }
}

static void a_kill_gives_128_more_and_is_refused_afterwards(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    assert_int_equal(kill_it("c1", NULL, SIGKILL), 0);
    assert_int_equal(wait_for("c1", NULL).r.status, 137);
    assert_int_equal(kill_it("c1", NULL, SIGKILL), -ESRCH);
    assert_int_equal(kill_it("nobody", NULL, SIGKILL), -ENOENT);
}

static void a_bad_signal_is_refused(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    assert_int_equal(kill_it("c1", NULL, 1024), -EINVAL);
    assert_int_equal(kill_it("c1", NULL, -1), -EINVAL);
    assert_int_equal(kill_it("c1", NULL, 0), 0);
}

static void a_created_container_dies_of_sigterm_and_tells_its_exit(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    assert_int_equal(kill_it("c1", NULL, SIGTERM), 0);
    assert_int_equal(wait_for("c1", NULL).r.status, 137);
    assert_int_equal(call(runtime_start, "c1", NULL).code, -EBADFD);
    assert_string_equal(w->events.data, "create:c1 exit:c1=137 ");
}

static void delete_of_a_created_container_kills_it_first(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    assert_int_equal(call(runtime_delete, "c1", NULL).code, 0);
    assert_string_equal(w->events.data, "create:c1 exit:c1=137 delete:c1 ");
}

static void a_failed_exec_says_why_and_unblocks_wait_without_events(void **state UNUSED)
{
    struct reply waited = {0};

    create("c1", "nowhere");
    wait_async("c1", NULL, &waited);
    struct reply r = call(runtime_start, "c1", NULL);
    assert_int_equal(r.code, -EIO);
    assert_non_null(strstr(r.text, "executable file not found in $PATH"));
    assert_int_equal(waited.called, 1);
    assert_int_equal(waited.r.status, 127);
    assert_int_equal(state_of("c1", NULL), PS_STOPPED);
    assert_int_equal(call(runtime_delete, "c1", NULL).code, 0);
    assert_string_equal(w->events.data, "create:c1 delete:c1 ");
}

static void execs_have_a_life_of_their_own(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    assert_int_equal(exec_add("c1", "e1", "exit 3"), 0);
    assert_int_equal(exec_add("c1", "e1", "exit 3"), -EEXIST);
    assert_int_equal(exec_add("c1", "../e", "exit 3"), -EINVAL);
    assert_int_equal(kill_it("c1", "e1", SIGKILL), -EBUSY);
    struct reply waited = {0};
    wait_async("c1", "e1", &waited);
    assert_int_equal(call(runtime_start, "c1", "e1").code, 0);
    UNTIL(waited.called);
    assert_int_equal(waited.r.status, 3);
    assert_int_equal(call(runtime_delete, "c1", "e1").r.status, 3);
    assert_int_equal(call(runtime_delete, "c1", "e1").code, -ENOENT);
    assert_int_equal(exec_add("c1", "e1", "exit 4"), 0); /* the id is free again */
    assert_int_equal(call(runtime_delete, "c1", "e1").code, 0);
    assert_string_equal(w->events.data,
                        "create:c1 start:c1 exec-added:e1 exec-started:e1 exit:e1=3 exec-added:e1 ");
}

static void a_failed_exec_process_does_not_hurt_its_container(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    assert_int_equal(exec_add("c1", "e1", "nowhere"), 0);
    struct reply r = call(runtime_start, "c1", "e1");
    assert_int_equal(r.code, -EIO);
    assert_non_null(strstr(r.text, "not found in $PATH"));
    assert_int_equal(wait_for("c1", "e1").r.status, 127);
    assert_int_equal(call(runtime_delete, "c1", "e1").code, 0);
    assert_int_equal(state_of("c1", NULL), PS_RUNNING);
}

static void the_exit_of_the_init_is_told_last(void **state UNUSED)
{
    struct reply init = {0}, exec[20];
    char id[16];

    memset(exec, 0, sizeof exec);
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "e%d", i);
        exec_add("c1", id, "exec sleep 100");
        assert_int_equal(call(runtime_start, "c1", id).code, 0);
        wait_async("c1", id, &exec[i]);
    }
    wait_async("c1", NULL, &init);
    clear_events();
    kill_it("c1", NULL, SIGKILL); /* the sweep after it ends the execs */
    UNTIL(init.called);
    size_t exits = 0;
    for (const char *p = w->events.data; (p = strstr(p, "exit:")); p++)
        exits++;
    assert_int_equal(exits, 21);
    assert_string_equal(w->events.data + strlen(w->events.data) - 12, "exit:c1=137 ");
    for (int i = 0; i < 20; i++)
        assert_int_equal(exec[i].called, 1);
}

static void an_init_that_dies_while_execs_start_is_not_forgotten(void **state UNUSED)
{
    struct reply init = {0}, start = {0};

    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    exec_add("c1", "e1", "exec sleep 100");
    fake.hold_launch = true;
    runtime_start(w->rt, "c1", "e1", on_reply, &start);
    wait_async("c1", NULL, &init);
    kill_it("c1", NULL, SIGKILL);
    UNTIL(init.called);
    assert_int_equal(start.called, 1);
    assert_int_equal(start.code, -EBUSY);
    assert_int_equal(init.r.status, 137);
    assert_int_equal(call(runtime_start, "c1", "e1").code, -EBADFD);
    assert_int_equal(call(runtime_delete, "c1", NULL).code, 0);
    assert_null(strstr(w->events.data, "exit:e1"));
}

static void delete_of_a_created_container_with_a_starting_exec_ends_both(void **state UNUSED)
{
    struct reply start = {0};

    create("c1", "exec sleep 100");
    exec_add("c1", "e1", "exec sleep 100");
    fake.hold_launch = true;
    runtime_start(w->rt, "c1", "e1", on_reply, &start);
    assert_int_equal(call(runtime_delete, "c1", NULL).code, 0);
    assert_int_equal(start.called, 1);
    assert_true(start.code < 0);
    assert_true(runtime_is_empty(w->rt));
}

static void an_exec_killed_while_it_starts_dies_after_its_start(void **state UNUSED)
{
    struct reply start = {0};

    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    exec_add("c1", "e1", "exec sleep 100");
    fake.hold_launch = true;
    runtime_start(w->rt, "c1", "e1", on_reply, &start);
    assert_int_equal(kill_it("c1", "e1", SIGKILL), 0);
    fake.hold_launch = false;
    fake_deliver();
    assert_int_equal(wait_for("c1", "e1").r.status, 137);
    assert_int_equal(start.called, 1);
    assert_string_equal(w->events.data, "create:c1 start:c1 exec-added:e1 exec-started:e1 exit:e1=137 ");
}

static void an_abandoned_create_leaves_nothing(void **state UNUSED)
{
    struct reply r = {0};

    fake.hold_launch = true;
    create_async("c1", "exec sleep 100", &r);
    assert_int_equal(r.called, 0);
    assert_int_equal(state_of("c1", NULL), PS_NONE);
    runtime_abandon_create(w->rt, "c1");
    assert_int_equal(r.called, 1);
    assert_int_equal(r.code, -ECANCELED);
    assert_true(runtime_is_empty(w->rt));
    assert_int_equal(fake.pods, 0);
    assert_int_equal(fake.sentries, 0);
    UNTIL(runtime_is_clean(w->rt));
    assert_string_equal(w->events.data, "");
}

static void kill_and_delete_end_a_create_that_hangs(void **state UNUSED)
{
    struct reply r = {0};

    fake.hold_launch = true;
    create_async("c1", "exec sleep 100", &r);
    assert_int_equal(kill_it("c1", NULL, SIGKILL), 0);
    assert_int_equal(r.code, -ECANCELED);
    r = (struct reply){0};
    create_async("c1", "exec sleep 100", &r);
    assert_int_equal(call(runtime_delete, "c1", NULL).code, -ENOENT);
    assert_int_equal(r.code, -ECANCELED);
    assert_true(runtime_is_empty(w->rt));
}

static void every_failing_step_of_create_is_undone(void **state UNUSED)
{
    int *const faults[] = {&fake.fail_launch, &fake.fail_sentry, &fake.fail_listener};

    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        *faults[i] = -ENOENT;
        struct reply r = create("c1", "exec sleep 100");
        assert_int_equal(r.code, -EIO); /* not "no such container" */
        assert_non_null(strstr(r.text, "OCI runtime create failed: "));
        assert_non_null(strstr(r.text, "fake"));
        assert_true(runtime_is_empty(w->rt));
        assert_int_equal(fake.pods, 0);
        assert_int_equal(fake.sentries, 0);
        *faults[i] = 0;
    }
    assert_int_equal(create("c1", "true").code, 0);
}

static void bad_requests_are_refused_by_name(void **state UNUSED)
{
    static const struct {
        const char *id, *bundle, *checkpoint;
        int code;
        const char *text;
    } rows[] = {
        {"../x", "/tmp", "", -EINVAL, "id"},
        {"", "/tmp", "", -EINVAL, "id"},
        {"a", "relative", "", -EINVAL, "bundle"},
        {"a", "/nonexistent", "", -EIO, "/nonexistent"},
        {"a", "/tmp", "/ckpt", -ENOTSUP, "checkpoint"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct reply r = {0};
        const struct rt_create req = {.id = rows[i].id,
                                      .bundle = rows[i].bundle,
                                      .uri = {"", "", ""},
                                      .checkpoint = rows[i].checkpoint};
        runtime_create(w->rt, &req, on_reply, &r);
        assert_int_equal(r.called, 1);
        assert_int_equal(r.code, rows[i].code);
        assert_non_null(strstr(r.text, rows[i].text));
    }
    create("c1", "true");
    assert_int_equal(create("c1", "true").code, -EEXIST);
}

static struct reply pause_it(const char *id)
{
    struct reply r = {0};

    runtime_pause(w->rt, id, on_reply, &r);
    UNTIL(r.called);
    return r;
}

static int resume_it(const char *id)
{
    struct reply r = {0};

    runtime_resume(w->rt, id, on_reply, &r);
    assert_int_equal(r.called, 1);
    return r.code;
}

static void pause_and_resume_with_a_quiet_sentry(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    assert_int_equal(pause_it("c1").code, -EBADFD);
    call(runtime_start, "c1", NULL);
    assert_int_equal(resume_it("c1"), -EBADFD);
    fake.hold_quiet = true;
    struct reply r = {0};
    runtime_pause(w->rt, "c1", on_reply, &r);
    steps(20);
    assert_int_equal(r.called, 0);
    assert_int_equal(state_of("c1", NULL), PS_PAUSING);
    fake.quiet_done(fake.quiet_data);
    UNTIL(r.called);
    assert_int_equal(r.code, 0);
    assert_int_equal(state_of("c1", NULL), PS_PAUSED);
    assert_int_equal(fake.unquiesced, 0); /* nobody is left who could call it */
    assert_int_equal(exec_add("c1", "e1", "true"), -EBADFD);
    assert_int_equal(pause_it("c1").code, -EBADFD);
    assert_int_equal(call(runtime_delete, "c1", NULL).code, -EBADFD);
    assert_int_equal(resume_it("c1"), 0);
    assert_int_equal(fake.unquiesced, 1);
    assert_int_equal(state_of("c1", NULL), PS_RUNNING);
    assert_string_equal(w->events.data, "create:c1 start:c1 paused:c1 resumed:c1 ");
}

static void the_sentry_serves_on_when_another_container_runs(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    create("c2", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    call(runtime_start, "c2", NULL);
    assert_int_equal(pause_it("c1").code, 0);
    assert_int_equal(fake.quiesced, 1);
    assert_int_equal(fake.unquiesced, 1);
    assert_int_equal(pause_it("c2").code, 0);
    assert_int_equal(fake.quiesced, 2);
    assert_int_equal(fake.released, 2); /* each container's parked calls, when it is asked to stop */
    assert_int_equal(fake.unquiesced, 1);
    assert_int_equal(resume_it("c1"), 0);
    assert_int_equal(fake.unquiesced, 2);
    assert_int_equal(resume_it("c2"), 0);
    assert_int_equal(fake.unquiesced, 2);
}

static void the_whole_pod_pauses_in_one_quiet_period(void **state UNUSED)
{
    struct reply r = {0};

    runtime_pause_pod(w->rt, on_reply, &r);
    assert_int_equal(r.code, -EBUSY);
    create("c1", "exec sleep 100");
    create("c2", "exec sleep 100");
    create("c3", "exec sleep 100"); /* never started */
    call(runtime_start, "c1", NULL);
    call(runtime_start, "c2", NULL);
    r = (struct reply){0};
    runtime_pause_pod(w->rt, on_reply, &r);
    UNTIL(r.called);
    assert_int_equal(r.code, 0);
    assert_int_equal(fake.quiesced, 1);
    assert_int_equal(state_of("c1", NULL), PS_PAUSED);
    assert_int_equal(state_of("c2", NULL), PS_PAUSED);
    assert_int_equal(state_of("c3", NULL), PS_CREATED);
    r = (struct reply){0};
    runtime_pause_pod(w->rt, on_reply, &r); /* nothing to do is success */
    assert_int_equal(r.called, 1);
    assert_int_equal(r.code, 0);
    r = (struct reply){0};
    runtime_resume_pod(w->rt, on_reply, &r);
    assert_int_equal(r.code, 0);
    assert_int_equal(state_of("c1", NULL), PS_RUNNING);
    assert_int_equal(state_of("c2", NULL), PS_RUNNING);
}

static void a_failing_freeze_leaves_the_container_running(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    fake.fail_freeze = -EIO;
    struct reply r = pause_it("c1");
    assert_int_equal(r.code, -EIO);
    assert_non_null(strstr(r.text, "fake freeze"));
    assert_int_equal(state_of("c1", NULL), PS_RUNNING);
    assert_int_equal(fake.unquiesced, fake.quiesced);
    fake.fail_freeze = 0;
    assert_int_equal(pause_it("c1").code, 0);
}

static void sigkill_ends_a_paused_and_a_pausing_container(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    assert_int_equal(pause_it("c1").code, 0);
    assert_int_equal(kill_it("c1", NULL, SIGKILL), 0);
    assert_int_equal(wait_for("c1", NULL).r.status, 137);
    assert_int_equal(call(runtime_delete, "c1", NULL).code, 0);

    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    fake.hold_quiet = true;
    struct reply r = {0};
    runtime_pause(w->rt, "c1", on_reply, &r);
    assert_int_equal(kill_it("c1", NULL, SIGKILL), 0);
    assert_int_equal(r.called, 1);
    assert_true(r.code < 0);
    assert_int_equal(wait_for("c1", NULL).r.status, 137);
}

static void an_exec_of_a_paused_container_dies_of_sigkill(void **state UNUSED)
{
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    exec_add("c1", "e1", "exec sleep 100");
    call(runtime_start, "c1", "e1");
    exec_add("c1", "e2", "true");
    assert_int_equal(pause_it("c1").code, 0);
    assert_int_equal(call(runtime_start, "c1", "e2").code, -EBADFD);
    assert_int_equal(kill_it("c1", "e1", SIGKILL), 0);
    assert_int_equal(wait_for("c1", "e1").r.status, 137);
    assert_int_equal(state_of("c1", NULL), PS_PAUSED);
}

static void a_dead_sentry_kills_the_pod_and_is_named_afterwards(void **state UNUSED)
{
    struct reply creating = {0};

    create("c1", "exec sleep 100");
    create("c2", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    call(runtime_start, "c2", NULL);
    exec_add("c1", "e1", "true");
    fake.hold_launch = true;
    create_async("c3", "exec sleep 100", &creating);
    fake.sentry_events.died(fake.sentry_events.data, SIGSEGV);
    assert_int_equal(wait_for("c1", NULL).r.status, 137);
    assert_int_equal(wait_for("c2", NULL).r.status, 137);
    UNTIL(creating.called);
    assert_non_null(strstr(creating.text, "the sentry of this pod died (signal 11, Segmentation fault)"));
    struct reply r = call(runtime_start, "c1", "e1");
    assert_non_null(strstr(r.text, "the sentry of this pod died"));
    struct err e = {0};
    const struct rt_exec x = {
        .id = "c1", .exec_id = "e2", .uri = {"", "", ""}, .spec_json = "{}", .spec_len = 2};
    assert_true(runtime_exec(w->rt, &x, &e) < 0);
    assert_non_null(strstr(err_text(&e), "the sentry of this pod died"));
    assert_int_equal(call(runtime_delete, "c1", NULL).code, 0);
    assert_int_equal(call(runtime_delete, "c2", NULL).code, 0);
    assert_true(runtime_is_empty(w->rt));
}

static void a_memory_kill_is_told_before_the_exit_and_only_when_it_happened(void **state UNUSED)
{
    fake.ooms = 5; /* history of the cgroup */
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    fake.ooms = 6;
    kill_it("c1", NULL, SIGKILL);
    wait_for("c1", NULL);
    assert_string_equal(w->events.data, "create:c1 start:c1 oom:c1 exit:c1=137 ");
    clear_events();
    create("c2", "true");
    call(runtime_start, "c2", NULL);
    wait_for("c2", NULL);
    assert_string_equal(w->events.data, "create:c2 start:c2 exit:c2=0 ");
}

static void pids_of_a_living_container_are_never_none(void **state UNUSED)
{
    scoped_free struct rt_pid *pids = NULL;
    size_t n = 0;
    struct err e = {0};

    struct reply r = create("c1", "exec sleep 100");
    assert_int_equal(runtime_pids(w->rt, "c1", &pids, &n, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(pids[0].pid, r.r.pid);
    call(runtime_start, "c1", NULL);
    exec_add("c1", "e1", "exec sleep 100");
    call(runtime_start, "c1", "e1");
    free(take(pids));
    assert_int_equal(runtime_pids(w->rt, "c1", &pids, &n, &e), 0);
    assert_int_equal(n, 2);
    assert_null(pids[0].exec_id);
    assert_string_equal(pids[1].exec_id, "e1");
}

static void a_wait_can_be_taken_back(void **state UNUSED)
{
    struct rt_waiter *waiter;
    struct reply r = {0};

    create("c1", "true");
    assert_int_equal(runtime_wait(w->rt, "c1", NULL, on_reply, &r, &waiter, NULL), 0);
    runtime_wait_cancel(waiter);
    call(runtime_start, "c1", NULL);
    assert_int_equal(wait_for("c1", NULL).r.status, 0);
    assert_int_equal(runtime_wait(w->rt, "c1", NULL, on_reply, &r, &waiter, NULL), 0);
    runtime_wait_cancel(waiter);
    steps(20);
    assert_int_equal(r.called, 0);
}

static void hooks_run_around_the_life(void **state UNUSED)
{
    struct reply r = {0};
    const struct rt_create req = {.id = "c1", .bundle = w->bundle, .uri = {"", "", ""}};

    write_config(
        "true",
        "\"hooks\":{\"poststart\":[{\"path\":\"/bin/true\"}],\"poststop\":[{\"path\":\"/bin/true\"}]},", "");
    runtime_create(w->rt, &req, on_reply, &r);
    UNTIL(r.called);
    assert_int_equal(r.code, 0);
    assert_int_equal(call(runtime_start, "c1", NULL).code, 0);
    assert_int_equal(fake.hooks, 1);
    wait_for("c1", NULL);
    assert_int_equal(call(runtime_delete, "c1", NULL).code, 0);
    assert_int_equal(fake.hooks, 2);
}

static void the_state_file_tells_the_clean_up_what_there_is(void **state UNUSED)
{
    scoped(state_free) struct state *s = NULL;
    struct err e = {0};
    struct reply r = create("c1", "exit 9");

    assert_int_equal(state_read(w->state, "test", "c1", &s, &e), 0);
    assert_int_equal(s->init.pid, r.r.pid);
    assert_true(s->init.start > 0);
    assert_string_equal(s->cgroup, "/test/c1");
    assert_string_equal(s->pod, "c1");
    assert_int_equal(s->shim.pid, getpid());
    assert_false(s->has_exit);
    call(runtime_start, "c1", NULL);
    wait_for("c1", NULL);
    state_free(take(s));
    assert_int_equal(state_read(w->state, "test", "c1", &s, &e), 0);
    assert_true(s->has_exit);
    assert_int_equal(s->exit_status, 9);
    assert_int_equal(s->init.pid, r.r.pid);
    call(runtime_delete, "c1", NULL);
    UNTIL(runtime_is_clean(w->rt));
    state_free(take(s));
    assert_int_equal(state_read(w->state, "test", "c1", &s, &e), -ENOENT);
}

static void many_execs_end_while_the_init_is_killed(void **state UNUSED)
{
    enum { N = 200 };
    static struct reply start[N], init;
    char id[16];

    memset(start, 0, sizeof start);
    memset(&init, 0, sizeof init);
    create("c1", "exec sleep 100");
    call(runtime_start, "c1", NULL);
    wait_async("c1", NULL, &init);
    for (int i = 0; i < N; i++) {
        snprintf(id, sizeof id, "e%d", i);
        int r = exec_add("c1", id, "exit 0");
        if (r < 0) { /* the init is reaped */
            assert_int_equal(r, -EBADFD);
            assert_true(i > N / 2);
            break;
        }
        runtime_start(w->rt, "c1", id, on_reply, &start[i]);
        if (i == N / 2)
            kill_it("c1", NULL, SIGKILL);
        loop_step(w->loop, 0, NULL);
    }
    UNTIL(init.called);
    assert_int_equal(init.r.status, 137);
    /* Exactly one exit for each start, and the init's is the last word. */
    size_t starts = 0, exits = 0;
    for (const char *p = w->events.data; (p = strstr(p, "exec-started:")); p++)
        starts++;
    for (const char *p = w->events.data; (p = strstr(p, "exit:e")); p++)
        exits++;
    assert_int_equal(starts, exits);
    assert_string_equal(w->events.data + strlen(w->events.data) - 12, "exit:c1=137 ");
    assert_int_equal(call(runtime_delete, "c1", NULL).code, 0);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_container_runs_from_create_to_delete),
        T(every_fast_exit_keeps_its_code_and_its_order),
        T(a_kill_gives_128_more_and_is_refused_afterwards),
        T(a_bad_signal_is_refused),
        T(a_created_container_dies_of_sigterm_and_tells_its_exit),
        T(delete_of_a_created_container_kills_it_first),
        T(a_failed_exec_says_why_and_unblocks_wait_without_events),
        T(execs_have_a_life_of_their_own),
        T(a_failed_exec_process_does_not_hurt_its_container),
        T(the_exit_of_the_init_is_told_last),
        T(an_init_that_dies_while_execs_start_is_not_forgotten),
        T(delete_of_a_created_container_with_a_starting_exec_ends_both),
        T(an_exec_killed_while_it_starts_dies_after_its_start),
        T(an_abandoned_create_leaves_nothing),
        T(kill_and_delete_end_a_create_that_hangs),
        T(every_failing_step_of_create_is_undone),
        T(bad_requests_are_refused_by_name),
        T(pause_and_resume_with_a_quiet_sentry),
        T(the_sentry_serves_on_when_another_container_runs),
        T(the_whole_pod_pauses_in_one_quiet_period),
        T(a_failing_freeze_leaves_the_container_running),
        T(sigkill_ends_a_paused_and_a_pausing_container),
        T(an_exec_of_a_paused_container_dies_of_sigkill),
        T(a_dead_sentry_kills_the_pod_and_is_named_afterwards),
        T(a_memory_kill_is_told_before_the_exit_and_only_when_it_happened),
        T(pids_of_a_living_container_are_never_none),
        T(a_wait_can_be_taken_back),
        T(hooks_run_around_the_life),
        T(the_state_file_tells_the_clean_up_what_there_is),
        T(many_execs_end_while_the_init_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
