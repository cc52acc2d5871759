/* The engine with a fake API: calls are answered by a table of objects here, in the order they come. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "controller/core/engine.h"
#include "controller/kube/object.h"
#include "controller/kube/watch.h"

/* ---- the fake: one kind, versions, one queue of calls ---- */

static const struct kube_resource things = {"g", "v1", "things", "Thing", false};
static const struct store_kind kind = {.resource = &things};

struct kube_call {
    struct list node;
    enum kube_verb verb;
    char *name, *uid;
    json_t *body;
    kube_done_fn fn;
    void *data;
};

static struct {
    struct loop *loop;
    const struct watch_spec *watch;
    json_t *world; /* name -> object */
    int version;
    struct list calls;
    int n_calls, max_in_flight, in_flight;
    int fail_next; /* HTTP status of the next write, 0: none */
    char log[4096];
} fake;

int __wrap_watch_new(struct kube *k, const struct watch_spec *spec, struct watch **ret, struct err *e);
void __wrap_watch_free(struct watch *w);
struct kube_call *__wrap_kube_call(struct kube *k, const struct kube_request *req, kube_done_fn fn,
                                   void *data);
void __wrap_kube_cancel(struct kube_call *c);

int __wrap_watch_new(struct kube *k, const struct watch_spec *spec, struct watch **ret, struct err *e)
{
    (void)k, (void)e;
    fake.watch = spec;
    *ret = NULL;
    return 0;
}

void __wrap_watch_free(struct watch *w)
{
    (void)w;
}

struct kube_call *__wrap_kube_call(struct kube *k, const struct kube_request *req, kube_done_fn fn,
                                   void *data)
{
    struct kube_call *c = xcalloc(1, sizeof *c);

    (void)k;
    assert_ptr_equal(req->resource, &things);
    *c = (struct kube_call){.verb = req->verb,
                            .name = xstrdup(req->name),
                            .uid = xstrdup(req->uid),
                            .body = json_deep_copy(req->body),
                            .fn = fn,
                            .data = data};
    list_append(&fake.calls, &c->node);
    fake.in_flight++;
    fake.max_in_flight = MAX(fake.max_in_flight, fake.in_flight);
    return c;
}

static void call_free(struct kube_call *c)
{
    list_remove(&c->node);
    json_decref(c->body);
    free(c->name);
    free(c->uid);
    free(c);
}

void __wrap_kube_cancel(struct kube_call *c)
{
    fake.in_flight--;
    call_free(c);
}

static void stamp(json_t *o)
{
    scoped_free char *v = xasprintf("%d", ++fake.version);

    obj_set(o, "metadata.resourceVersion", json_string(v));
}

/* The world's answer to one call; 0 or an HTTP status. */
static int act(struct kube_call *c, json_t **ret)
{
    static const char verb_letter[] = "?gCUPJSAD"; /* by enum kube_verb */
    const char *name = c->name ? c->name : obj_name(c->body);
    json_t *o = json_object_get(fake.world, name);
    size_t n = strlen(fake.log);

    (void)snprintf(fake.log + n, sizeof fake.log - n, "%c%s ", verb_letter[c->verb], name);
    if (fake.fail_next && c->verb != KUBE_GET) {
        int status = fake.fail_next;
        fake.fail_next = 0;
        return status;
    }
    if (c->verb == KUBE_CREATE && o)
        return 409;
    if (c->verb == KUBE_CREATE) {
        scoped_free char *uid = xasprintf("uid%d", fake.version);
        o = json_deep_copy(c->body);
        obj_set(o, "metadata.uid", json_string(uid));
        json_object_set_new(fake.world, name, o);
        stamp(o);
    } else if (!o) {
        return 404;
    } else if (c->verb == KUBE_MERGE_PATCH) {
        const char *pre = obj_version(c->body);
        if (pre && strcmp(pre, obj_version(o)) != 0)
            return 409;
        json_object_update_recursive(o, c->body);
        stamp(o);
    } else if (c->verb == KUBE_DELETE) {
        *ret = json_pack("{s:s,s:{s:O}}", "kind", "Status", "details", "uid", obj_at(o, "metadata.uid"));
        json_object_del(fake.world, name);
        return 0;
    }
    *ret = json_deep_copy(o);
    return 0;
}

/* Answers everything that is asked, and what is asked because of it. */
static void settle(void)
{
    for (int idle = 0; idle < 3;) {
        assert_int_equal(loop_step(fake.loop, 0, NULL), 0);
        if (list_is_empty(&fake.calls)) {
            idle++;
            continue;
        }
        idle = 0;
        struct kube_call *c = LIST_ENTRY(fake.calls.next, struct kube_call, node);
        json_t *o = NULL;
        int status = act(c, &o);
        struct kube_result r = {
            .http = status ? status : 200, .object = o, .reason = "", .message = status ? "refused" : ""};
        r.code = status == 0     ? 0
                 : status == 404 ? -ENOENT
                 : status == 409 ? (c->verb == KUBE_CREATE ? -EEXIST : -ESTALE)
                 : status == 422 ? -EINVAL
                                 : -EAGAIN;
        fake.in_flight--;
        fake.n_calls++;
        list_remove(&c->node);
        c->fn(c->data, &r);
        json_decref(o);
        call_free(c);
    }
}

/* ---- the controller under test: parent NAME wants NAME-child; "want" in a parent is copied to the child
 * ---- */

struct rig {
    struct engine *engine;
    struct controller *controller;
    struct store *store;
    int passes, terminal;
    char failure[64];
};

static json_t *object(const char *name, const char *want)
{
    return json_pack("{s:{s:s},s:{s:s}}", "metadata", "name", name, "spec", "want", want);
}

static int reconcile(struct pass *p, void *data, struct err *e)
{
    struct rig *r = data;
    struct key k = pass_key(p);
    const struct object *o = store_get(r->store, "", k.name);
    scoped_free char *child = xasprintf("%s-child", k.name);

    r->passes++;
    if (strstr(k.name, "-child"))
        return 0;
    if (r->terminal)
        return err_set(e, -EINVAL, "never");
    if (pass_failure(p))
        (void)snprintf(r->failure, sizeof r->failure, "%s", pass_failure(p)->text);
    const struct object *c = store_get(r->store, "", child);
    if (!o) {
        if (c)
            pass_add(p, (struct action){
                            .verb = KUBE_DELETE, .resource = &things, .name = child, .uid = object_uid(c)});
        return 0;
    }
    const char *want = obj_str(object_json(o), "spec.want");
    if (!c)
        pass_add(p, (struct action){.verb = KUBE_CREATE, .resource = &things, .body = object(child, want)});
    else if (strcmp(obj_str(object_json(c), "spec.want"), want) != 0)
        pass_add(p, (struct action){.verb = KUBE_MERGE_PATCH,
                                    .resource = &things,
                                    .name = child,
                                    .body = json_pack("{s:{s:s},s:{s:s}}", "metadata", "resourceVersion",
                                                      obj_version(object_json(c)), "spec", "want", want)});
    return 0;
}

static void map(struct controller *c, const struct change *change, void *data)
{
    const char *name = object_name(change->now ? change->now : change->old);
    const char *dash = strstr(name, "-child");
    scoped_free char *key = xstrndup(name, dash ? (size_t)(dash - name) : strlen(name));

    (void)data;
    controller_add(c, "", key);
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    struct engine_options o = {.component = "test"};
    struct controller_spec spec = {.name = "test", .reconcile = reconcile, .data = r};

    memset(&fake, 0, sizeof fake);
    list_init(&fake.calls);
    fake.world = json_object();
    if (!r || loop_new(&fake.loop, NULL) < 0 || engine_new(fake.loop, NULL, &o, &r->engine, NULL) < 0)
        return -1;
    r->store = engine_add_kind(r->engine, &kind);
    r->controller = engine_add_controller(r->engine, &spec);
    controller_watch(r->controller, r->store, map, NULL);
    engine_set_active(r->engine, true);
    if (engine_start(r->engine, NULL) < 0)
        return -1;
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;

    engine_free(r->engine);
    loop_free(fake.loop);
    json_decref(fake.world);
    free(r);
    return 0;
}

/* Something by others: into the world, and as a watch event. */
static void happen(const char *name, const char *want)
{
    json_t *o = json_object_get(fake.world, name);

    if (!o) {
        scoped_free char *uid = xasprintf("uid%d", fake.version);
        o = object(name, want);
        obj_set(o, "metadata.uid", json_string(uid));
        json_object_set_new(fake.world, name, o);
    }
    obj_set(o, "spec.want", json_string(want));
    stamp(o);
    scoped(json_decref) json_t *copy = json_deep_copy(o);
    fake.watch->object(fake.watch->data, copy);
}

static void vanish(const char *name)
{
    scoped(json_decref) json_t *copy = json_deep_copy(json_object_get(fake.world, name));

    json_object_del(fake.world, name);
    stamp(copy);
    fake.watch->deleted(fake.watch->data, copy);
}

static void sync_now(void)
{
    fake.watch->list_begin(fake.watch->data);
    fake.watch->list_end(fake.watch->data, (uint64_t)fake.version, false);
    settle();
}

static void nothing_runs_before_everything_is_listed(void **state)
{
    struct rig *r = *state;

    fake.watch->list_begin(fake.watch->data);
    happen("a", "1");
    settle();
    assert_int_equal(r->passes, 0);
    fake.watch->list_end(fake.watch->data, (uint64_t)fake.version, false);
    settle();
    assert_true(engine_is_synced(r->engine));
    assert_string_equal(fake.log, "Ca-child ");
}

static void one_change_costs_one_write_and_then_it_is_quiet(void **state)
{
    (void)state;
    sync_now();
    happen("a", "1");
    settle();
    happen("a", "2");
    settle();
    assert_string_equal(fake.log, "Ca-child Pa-child ");
    json_t *child = json_object_get(fake.world, "a-child");
    scoped(json_decref) json_t *echo = json_deep_copy(child);
    fake.watch->object(fake.watch->data, echo); /* our own write comes back by the watch */
    settle();
    assert_int_equal(fake.n_calls, 2);
    assert_string_equal(obj_str(child, "spec.want"), "2");
}

static void own_writes_are_seen_before_the_watch_tells_them(void **state)
{
    struct rig *r = *state;

    sync_now();
    happen("a", "1");
    settle();
    for (int i = 0; i < 5; i++) {
        controller_add(r->controller, "", "a"); /* duplicate and stale wake-ups */
        settle();
    }
    assert_string_equal(fake.log, "Ca-child ");
}

static void a_conflict_is_read_again_and_planned_again_at_once(void **state)
{
    (void)state;
    sync_now();
    happen("a", "1");
    settle();
    /* Somebody changes the child, and its event is late. */
    obj_set(json_object_get(fake.world, "a-child"), "spec.other", json_string("x"));
    stamp(json_object_get(fake.world, "a-child"));
    happen("a", "2");
    settle();
    assert_string_equal(fake.log, "Ca-child Pa-child ga-child Pa-child ");
    assert_string_equal(obj_str(json_object_get(fake.world, "a-child"), "spec.want"), "2");
    assert_string_equal(obj_str(json_object_get(fake.world, "a-child"), "spec.other"), "x");
}

static void an_object_that_exists_already_is_found_by_the_failed_create(void **state)
{
    (void)state;
    sync_now();
    json_t *o = object("a-child", "old");
    obj_set(o, "metadata.uid", json_string("x"));
    stamp(o);
    json_object_set_new(fake.world, "a-child", o);
    happen("a", "1");
    settle();
    assert_string_equal(fake.log, "Ca-child ga-child Pa-child ");
}

static void what_is_gone_at_the_server_leaves_the_cache(void **state)
{
    struct rig *r = *state;

    sync_now();
    happen("a", "1");
    settle();
    json_object_del(fake.world, "a-child"); /* and the event is late */
    happen("a", "2");
    settle();
    assert_string_equal(fake.log, "Ca-child Pa-child ga-child Ca-child ");
    assert_int_equal(store_count(r->store), 2);
}

static void a_rejection_reaches_the_plan_and_is_not_repeated_at_once(void **state)
{
    struct rig *r = *state;

    sync_now();
    fake.fail_next = 422;
    happen("a", "1");
    settle();
    /* The second, immediate pass knows why, and tries once more: here with success. */
    assert_string_equal(r->failure, "refused");
    assert_string_equal(fake.log, "Ca-child Ca-child ");
    vanish("a-child");
    fake.fail_next = 422;
    settle();
    assert_string_equal(fake.log, "Ca-child Ca-child Ca-child Ca-child ");
}

static void a_server_that_is_busy_is_left_alone_for_a_while(void **state)
{
    struct rig *r = *state;

    sync_now();
    fake.fail_next = 503;
    happen("a", "1");
    settle();
    assert_string_equal(fake.log, "Ca-child ");
    assert_int_equal(queue_waiting(controller_queue(r->controller)), 1);
    for (int i = 0; i < 100 && fake.n_calls < 2; i++) {
        assert_int_equal(loop_step(fake.loop, 10, NULL), 0);
        settle();
    }
    assert_string_equal(fake.log, "Ca-child Ca-child ");
    assert_int_equal(queue_waiting(controller_queue(r->controller)), 0);
}

static void a_terminal_error_waits_for_a_change(void **state)
{
    struct rig *r = *state;

    r->terminal = 1;
    sync_now();
    happen("a", "1");
    settle();
    int passes = r->passes;
    for (int i = 0; i < 10; i++)
        assert_int_equal(loop_step(fake.loop, 10, NULL), 0);
    assert_int_equal(r->passes, passes);
    r->terminal = 0;
    happen("a", "2");
    settle();
    assert_string_equal(fake.log, "Ca-child ");
}

static void what_we_deleted_does_not_come_back(void **state)
{
    struct rig *r = *state;

    sync_now();
    happen("a", "1");
    settle();
    scoped(json_decref) json_t *late = json_deep_copy(json_object_get(fake.world, "a-child"));
    vanish("a");
    settle();
    assert_string_equal(fake.log, "Ca-child Da-child ");
    obj_set(late, "metadata.resourceVersion", json_string("99999"));
    fake.watch->object(fake.watch->data, late);
    settle();
    assert_string_equal(fake.log, "Ca-child Da-child ");
    assert_int_equal(store_count(r->store), 0);
}

static void who_does_not_lead_does_not_write(void **state)
{
    struct rig *r = *state;

    sync_now();
    engine_set_active(r->engine, false);
    happen("a", "1");
    settle();
    assert_int_equal(fake.n_calls, 0);
    engine_set_active(r->engine, true);
    settle();
    assert_string_equal(fake.log, "Ca-child ");
}

static int many(struct pass *p, void *data, struct err *e)
{
    struct rig *r = data;

    (void)e;
    if (strcmp(pass_key(p).name, "a") != 0 || store_count(r->store) > 1)
        return 0;
    for (int i = 0; i < 10; i++) {
        scoped_free char *name = xasprintf("m%d", i);
        pass_add(p, (struct action){.verb = KUBE_CREATE,
                                    .resource = &things,
                                    .body = object(name, "x"),
                                    .with_previous = i != 5});
    }
    return 0;
}

/* Ten creates, a barrier before the sixth, at most three at once. */
static void actions_run_together_up_to_the_limit_and_wait_where_told(void **state)
{
    struct rig *r = *state;
    struct controller_spec spec = {.name = "many", .reconcile = many, .data = r, .parallel_max = 3};

    struct controller *c = engine_add_controller(r->engine, &spec);
    controller_watch(c, r->store, NULL, NULL);
    r->terminal = 1;
    sync_now();
    happen("a", "1");
    settle();
    assert_string_equal(fake.log, "Cm0 Cm1 Cm2 Cm3 Cm4 Cm5 Cm6 Cm7 Cm8 Cm9 ");
    assert_int_equal(fake.max_in_flight, 3);
}

static void after_a_failed_action_the_rest_is_dropped(void **state)
{
    struct rig *r = *state;
    struct controller_spec spec = {.name = "many", .reconcile = many, .data = r, .parallel_max = 1};

    struct controller *c = engine_add_controller(r->engine, &spec);
    controller_watch(c, r->store, NULL, NULL);
    r->terminal = 1;
    sync_now();
    fake.fail_next = 503;
    happen("a", "1");
    settle();
    assert_string_equal(fake.log, "Cm0 ");
}

static void on_stopped(void *data)
{
    *(bool *)data = true;
}

static void stopping_waits_for_the_writes_in_flight(void **state)
{
    struct rig *r = *state;
    bool stopped = false;

    sync_now();
    happen("a", "1");
    assert_int_equal(loop_step(fake.loop, 0, NULL), 0);
    assert_int_equal(fake.in_flight, 1);
    engine_stop(r->engine, on_stopped, &stopped);
    assert_int_equal(loop_step(fake.loop, 20, NULL), 0);
    assert_false(stopped);
    settle();
    assert_int_equal(loop_step(fake.loop, 20, NULL), 0);
    assert_true(stopped);
    assert_string_equal(fake.log, "Ca-child ");
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(nothing_runs_before_everything_is_listed),
        T(one_change_costs_one_write_and_then_it_is_quiet),
        T(own_writes_are_seen_before_the_watch_tells_them),
        T(a_conflict_is_read_again_and_planned_again_at_once),
        T(an_object_that_exists_already_is_found_by_the_failed_create),
        T(what_is_gone_at_the_server_leaves_the_cache),
        T(a_rejection_reaches_the_plan_and_is_not_repeated_at_once),
        T(a_server_that_is_busy_is_left_alone_for_a_while),
        T(a_terminal_error_waits_for_a_change),
        T(what_we_deleted_does_not_come_back),
        T(who_does_not_lead_does_not_write),
        T(actions_run_together_up_to_the_limit_and_wait_where_told),
        T(after_a_failed_action_the_rest_is_dropped),
        T(stopping_waits_for_the_writes_in_flight),
    };

    log_init(2, LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
