#include "unit.h"

#include "controller/kube/scan.h"

static void what_an_object_is_can_be_told_without_parsing(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        const char *name, *version, *managed;
    } cases[] = {
        {"{}", true, NULL, NULL, NULL},
        {" { \"metadata\" : { } } ", true, NULL, NULL, NULL},
        {"{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"12\"},\"x\":[1,{\"metadata\":{}}]}", true, "a",
         "12", NULL},
        {"{\"metadata\":{\"managedFields\":[{\"a\":\"]\\\"}\"}],\"name\":\"a\"}}", true, "a", NULL,
         "\"managedFields\":[{\"a\":\"]\\\"}\"}],"},
        {"{\"metadata\":{\"name\":\"a\" , \"managedFields\":[] }}", true, "a", NULL,
         ", \"managedFields\":[]"},
        {"{\"metadata\":{\"managedFields\":[]}}", true, NULL, NULL, "\"managedFields\":[]"},
        {"{\"spec\":{\"managedFields\":[]},\"metadata\":{\"labels\":{\"name\":\"no\"}}}", true, NULL, NULL,
         NULL},
        {"{\"metadata\":{\"name\":\"a\\u0062\"}}", false, NULL, NULL, NULL},
        {"{\"metadata\":{\"name\":\"a\",\"name\":\"b\"}}", false, NULL, NULL, NULL},
        {"{\"metadata\":{},\"metadata\":{}}", false, NULL, NULL, NULL},
        {"{\"meta\\u0064ata\":{}}", false, NULL, NULL, NULL},
        {"{\"metadata\":[]}", false, NULL, NULL, NULL},
        {"{\"metadata\":{\"name\":5}}", false, NULL, NULL, NULL},
        {"{\"metadata\":{}", false, NULL, NULL, NULL},
        {"{\"metadata\":{}}x", false, NULL, NULL, NULL},
        {"{\"a\":}", false, NULL, NULL, NULL},
        {"{\"a\":x}", true, NULL, NULL, NULL}, /* no validator: the parser refuses it */
        {"{\"a\"}", false, NULL, NULL, NULL},
        {"{\"a\":\"", false, NULL, NULL, NULL},
        {"{\"a\":\"\\", false, NULL, NULL, NULL},
        {"{\"a\":[", false, NULL, NULL, NULL},
        {"[]", false, NULL, NULL, NULL},
        {"", false, NULL, NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct scan s;
        if (scan_object(cases[i].text, strlen(cases[i].text), &s) != cases[i].ok)
            fail_msg("%s", cases[i].text);
        assert_int_equal(s.name.at != NULL, cases[i].name != NULL);
        assert_int_equal(s.managed.at != NULL, cases[i].managed != NULL);
        if (cases[i].name)
            assert_true(slice_is(s.name, cases[i].name));
        if (cases[i].version)
            assert_true(slice_is(s.version, cases[i].version));
        if (cases[i].managed && !slice_is(s.managed, cases[i].managed))
            fail_msg("%.*s", (int)s.managed.len, s.managed.at);
    }
}

static void an_event_is_taken_apart(void **state)
{
    static const char text[] = "{\"object\": {\"a\":\"}\"} ,\"type\":\"ADDED\", \"more\":[1]}\r";
    struct slice type, object;

    (void)state;
    assert_true(scan_event(text, strlen(text), &type, &object));
    assert_true(slice_is(type, "ADDED"));
    assert_true(slice_is(object, "{\"a\":\"}\"}"));
    assert_false(scan_event("{\"type\":\"A\"}", 12, &type, &object));
    assert_false(scan_event("{\"type\":1,\"object\":{}}", 22, &type, &object));
    /* Every beginning of it is no event. */
    for (size_t n = 0; n < strlen(text) - 1; n++)
        assert_false(scan_event(text, n, &type, &object));
}

static void versions_are_numbers_or_nothing(void **state)
{
    static const struct {
        const char *text;
        unsigned long long n;
    } cases[] = {{"0", 0},
                 {"12", 12},
                 {"", 0},
                 {"1a", 0},
                 {"-1", 0},
                 {"9999999999999999999", 9999999999999999999ull},
                 {"99999999999999999999", 0}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_true(slice_number((struct slice){cases[i].text, strlen(cases[i].text)}) == cases[i].n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_object_is_can_be_told_without_parsing),
        cmocka_unit_test(an_event_is_taken_apart),
        cmocka_unit_test(versions_are_numbers_or_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
