#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/macro.h"
#include "controller/kube/object.h"
#include "controller/kube/selector.h"

static const char pod_text[] =
    "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"namespace\":\"n\",\"uid\":\"u\","
    "\"resourceVersion\":\"41\",\"labels\":{\"x/"
    "y.z\":\"1\",\"b\":\"2\"},\"annotations\":{\"kubectl.kubernetes.io/"
    "last-applied-configuration\":\"{}\"},\"managedFields\":[{}],\"ownerReferences\":[{\"uid\":\"p\"},{"
    "\"uid\":\"q\","
    "\"controller\":true}]},\"spec\":{\"nodeName\":\"n1\",\"containers\":[{}]},\"status\":{\"phase\":"
    "\"Running\","
    "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"},{\"type\":\"Other\",\"status\":\"False\"}]}}";

static json_t *pod(void)
{
    json_t *o = json_loads(pod_text, 0, NULL);

    assert_non_null(o);
    return o;
}

static void accessors_read_what_is_there_and_nothing_else(void **state)
{
    scoped(json_decref) json_t *o = pod();

    (void)state;
    assert_string_equal(obj_name(o), "a");
    assert_string_equal(obj_ns(o), "n");
    assert_int_equal(obj_version_number(o), 41);
    assert_string_equal(obj_label(o, "x/y.z"), "1");
    assert_null(obj_label(o, "x/y"));
    assert_string_equal(obj_str(o, "status.phase"), "Running");
    assert_null(obj_str(o, "status.phase.more"));
    assert_null(obj_str(o, "status.conditions"));
    assert_null(obj_at(NULL, "a.b"));
    assert_true(obj_is_controlled_by(o, "q"));
    assert_false(obj_is_controlled_by(o, "p"));
    assert_true(obj_condition_is_true(o, "Ready"));
    assert_false(obj_condition_is_true(o, "Other"));
    assert_null(obj_condition(o, "None"));
    assert_false(obj_is_deleting(o));
    assert_string_equal(obj_ns(NULL), "");
}

static void versions_that_are_no_numbers_count_as_zero(void **state)
{
    static const char *const bad[] = {"", "x", "-1", "1x", "18446744073709551616"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        scoped(json_decref) json_t *o = json_pack("{s:{s:s}}", "metadata", "resourceVersion", bad[i]);
        assert_int_equal(obj_version_number(o), 0);
    }
}

static void pruning_keeps_the_named_paths_only(void **state)
{
    static const char *const keep[] = {"metadata", "spec.nodeName", "status.phase", NULL};
    scoped(json_decref) json_t *o = pod();

    (void)state;
    obj_prune(o, keep);
    scoped_free char *text = json_dumps(o, JSON_COMPACT);
    assert_null(strstr(text, "managedFields"));
    assert_null(strstr(text, "last-applied"));
    assert_null(strstr(text, "apiVersion"));
    assert_null(strstr(text, "containers"));
    assert_null(strstr(text, "conditions"));
    assert_string_equal(obj_str(o, "spec.nodeName"), "n1");
    assert_string_equal(obj_str(o, "status.phase"), "Running");
    assert_non_null(obj_at(o, "metadata.ownerReferences"));
}

static void setting_a_path_makes_the_objects_on_the_way(void **state)
{
    scoped(json_decref) json_t *o = json_object();

    (void)state;
    assert_int_equal(obj_set(o, "a.b.c", json_integer(1)), 0);
    assert_int_equal(obj_set(o, "a.b.d", json_true()), 0);
    assert_int_equal(obj_int(o, "a.b.c", 0), 1);
    assert_true(obj_bool(o, "a.b.d", false));
    assert_int_equal(obj_set(o, "", json_null()), -EINVAL);
}

static void times_are_read_in_every_form_that_the_api_writes(void **state)
{
    static const struct {
        const char *text;
        int r;
        int64_t ms;
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0, 0},
        {"2026-11-30T23:06:41Z", 0, 1796080001000},
        {"2026-11-30T23:06:41.123456789Z", 0, 1796080001123},
        {"2026-12-01T01:06:41+02:00", 0, 1796080001000},
        {"2026-11-30T18:06:41.5-05:00", 0, 1796080001500},
        {"2026-11-30t23:06:41z", 0, 1796080001000},
        {"", -EINVAL, 0},
        {"2026-11-30", -EINVAL, 0},
        {"2026-11-30T23:06:41", -EINVAL, 0},
        {"2026-11-30T23:06:41.Z", -EINVAL, 0},
        {"2026-13-30T23:06:41Z", -EINVAL, 0},
        {"2026-11-30T24:06:41Z", -EINVAL, 0},
        {"2026-11-30T23:06:41Zx", -EINVAL, 0},
        {"2026-11-30T23:06:41+2:00", -EINVAL, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t ms = -1;
        assert_int_equal(obj_parse_time(cases[i].text, &ms), cases[i].r);
        if (cases[i].r == 0)
            assert_int_equal(ms, cases[i].ms);
    }
    assert_int_equal(obj_parse_time(NULL, &(int64_t){0}), -EINVAL);
}

static void times_are_written_as_metav1_does(void **state)
{
    char text[OBJ_TIME_MAX];

    (void)state;
    obj_format_time(1796080001999, text);
    assert_string_equal(text, "2026-11-30T23:06:41Z");
    obj_format_micro_time(1796080001000042, text);
    assert_string_equal(text, "2026-11-30T23:06:41.000042Z");
}

static void selectors_choose_as_the_server_would(void **state)
{
    static const struct {
        const char *selector;
        int r;
    } labels[] = {
        {NULL, 1},
        {"", 1},
        {"b=2", 1},
        {"b==2", 1},
        {"b = 2, x/y.z = 1", 1},
        {"b=3", 0},
        {"b=2,x/y.z=2", 0},
        {"b", 1},
        {"c", 0},
        {"!c", 1},
        {"!b", 0},
        {"b!=3", 1},
        {"c!=3", 1},
        {"b!=2", 0},
        {"b in (2,3)", -EINVAL},
        {"b notin (2)", -EINVAL},
        {"b>1", -EINVAL},
        {",", -EINVAL},
    };
    scoped(json_decref) json_t *o = pod();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        if (selector_match_labels(labels[i].selector, o) != labels[i].r)
            fail_msg("%s: %d", labels[i].selector, selector_match_labels(labels[i].selector, o));
    assert_int_equal(selector_match_fields("spec.nodeName=n1", o), 1);
    assert_int_equal(selector_match_fields("spec.nodeName=n2", o), 0);
    assert_int_equal(selector_match_fields("spec.nodeName=n1,metadata.name!=a", o), 0);
    assert_int_equal(selector_match_fields("spec.schedulerName=", o), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accessors_read_what_is_there_and_nothing_else),
        cmocka_unit_test(versions_that_are_no_numbers_count_as_zero),
        cmocka_unit_test(pruning_keeps_the_named_paths_only),
        cmocka_unit_test(setting_a_path_makes_the_objects_on_the_way),
        cmocka_unit_test(times_are_read_in_every_form_that_the_api_writes),
        cmocka_unit_test(times_are_written_as_metav1_does),
        cmocka_unit_test(selectors_choose_as_the_server_would),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
