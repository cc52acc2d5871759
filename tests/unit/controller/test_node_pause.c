#include "unit.h"

#include "base/json.h"
#include "controller/node/pause.h"
#include "controller/sandbox/names.h"

static void every_case_has_its_step(void **state)
{
    static const struct {
        const char *what;
        struct pod_facts pod;
        struct shim_facts shim;
        enum pause_step step;
    } cases[] = {
#define RUNNING    .running = true, .n_ids = 1
#define NO_COND    .status = "", .reason = "", .message = ""
#define COND(s, r) .status = (s), .reason = (r), .message = "m"
        {"nobody asked", {RUNNING, .ready = true, NO_COND}, {.found = true}, PAUSE_NOTHING},
        {"nobody asked, no shim", {RUNNING, .ready = true, NO_COND}, {0}, PAUSE_NOTHING},
        {"not running yet", {.wanted = true, NO_COND}, {.found = true}, PAUSE_NOTHING},
        {"no containers yet", {.wanted = true, .running = true, .ready = true, NO_COND}, {0}, PAUSE_NOTHING},
        {"running but not ready", {.wanted = true, RUNNING, NO_COND}, {.found = true}, PAUSE_NOTHING},
        {"asked and ready", {.wanted = true, RUNNING, .ready = true, NO_COND}, {.found = true}, PAUSE_DO},
        {"asked, shim unknown", {.wanted = true, RUNNING, .ready = true, NO_COND}, {0}, PAUSE_SCAN},
        {"asked, shim not there",
         {.wanted = true, RUNNING, .ready = true, NO_COND},
         {.searched = true},
         PAUSE_REPORT},
        {"refused already",
         {.wanted = true, RUNNING, .ready = true, COND("False", POD_PAUSE_REFUSED)},
         {.searched = true},
         PAUSE_NOTHING},
        {"refused, but now there is a shim",
         {.wanted = true, RUNNING, .ready = true, COND("False", POD_PAUSE_REFUSED)},
         {.found = true},
         PAUSE_DO},
        {"call in flight",
         {.wanted = true, RUNNING, .ready = true, NO_COND},
         {.found = true, .busy = true},
         PAUSE_NOTHING},
        {"result to write",
         {.wanted = true, RUNNING, .ready = true, NO_COND},
         {.found = true, .paused = true, .have_result = true},
         PAUSE_REPORT},
        {"paused and said so",
         {.wanted = true, RUNNING, COND("True", POD_PAUSED)},
         {.found = true, .paused = true},
         PAUSE_NOTHING},
        {"paused, agent died before it said so",
         {.wanted = true, RUNNING, NO_COND},
         {.found = true, .paused = true},
         PAUSE_DO},
        {"said so, but thawed by another, ready",
         {.wanted = true, RUNNING, .ready = true, COND("True", POD_PAUSED)},
         {.found = true},
         PAUSE_DO},
        {"said so, but containers are new and not ready",
         {.wanted = true, RUNNING, COND("True", POD_PAUSED)},
         {.found = true},
         PAUSE_NOTHING},
        {"pause failed half-way, not ready any more",
         {.wanted = true, RUNNING, COND("False", POD_PAUSE_FAILED)},
         {.found = true},
         PAUSE_DO},
        {"to be resumed", {RUNNING, COND("True", POD_PAUSED)}, {.found = true, .paused = true}, PAUSE_UNDO},
        {"to be resumed, resume failed",
         {RUNNING, COND("True", POD_RESUME_FAILED)},
         {.found = true, .paused = true},
         PAUSE_UNDO},
        {"wish withdrawn, agent died in between",
         {RUNNING, NO_COND},
         {.found = true, .paused = true},
         PAUSE_UNDO},
        {"wish withdrawn after half a pause",
         {RUNNING, COND("False", POD_PAUSE_FAILED)},
         {.found = true},
         PAUSE_UNDO},
        {"runs and said so",
         {RUNNING, .ready = true, COND("False", POD_RUNNING)},
         {.found = true},
         PAUSE_NOTHING},
        {"says paused, shim unknown", {RUNNING, COND("True", POD_PAUSED)}, {0}, PAUSE_SCAN},
        {"says paused, no such shim", {RUNNING, COND("True", POD_PAUSED)}, {.searched = true}, PAUSE_REPORT},
        {"refused and not wanted",
         {RUNNING, COND("False", POD_PAUSE_REFUSED)},
         {.searched = true},
         PAUSE_NOTHING},
        {"being deleted while paused",
         {RUNNING, .deleting = true, COND("True", POD_PAUSED)},
         {.found = true, .paused = true},
         PAUSE_NOTHING},
        {"being deleted, a result is left",
         {.wanted = true, RUNNING, .deleting = true, NO_COND},
         {.found = true, .have_result = true},
         PAUSE_NOTHING},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (pause_decide(&cases[i].pod, &cases[i].shim) != cases[i].step)
            fail_msg("%s: step %d, expected %d", cases[i].what, pause_decide(&cases[i].pod, &cases[i].shim),
                     cases[i].step);
}

static void a_pod_is_read_with_the_ids_of_its_containers(void **state)
{
    scoped(json_decref) json_t *pod = json_loads(
        "{\"metadata\":{\"annotations\":{\"glovebox.dev/pause\":\"true\"}},\"status\":{\"phase\":\"Running\","
        "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"},{\"type\":\"glovebox.dev/"
        "Paused\",\"status\":\"True\","
        "\"reason\":\"Paused\",\"message\":\"m\"}],\"containerStatuses\":[{\"containerID\":\"containerd://"
        "abc\"},{},"
        "{\"containerID\":\"cri-o://"
        "x\"},{\"containerID\":5}],\"initContainerStatuses\":[{\"containerID\":\"containerd://i\"}]}}",
        0, NULL);
    struct pod_facts f;

    (void)state;
    pod_facts_read(pod, &f);
    assert_true(f.wanted && f.running && f.ready && !f.deleting);
    assert_string_equal(f.reason, "Paused");
    assert_int_equal(f.n_ids, 2);
    assert_string_equal(f.ids[0], "abc");
    assert_string_equal(f.ids[1], "i");

    scoped(json_decref) json_t *empty = json_object();
    pod_facts_read(empty, &f);
    assert_true(!f.wanted && !f.running && f.n_ids == 0);
    assert_string_equal(f.status, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_has_its_step),
        cmocka_unit_test(a_pod_is_read_with_the_ids_of_its_containers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
