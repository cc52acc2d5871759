#include "tests/unit/base/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

struct inner {
    char *name;
    int level;
};
struct thing {
    char *text;
    bool flag, has_count;
    int count;
    uint32_t small;
    int64_t wide;
    uint64_t big;
    struct inner one;
    struct inner *many;
    size_t n_many;
    struct json_strings words;
    struct json_pair *labels;
    size_t n_labels;
    int called;
    int preset;
};
#define T struct thing

static int call(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v, void *out,
                struct err *e)
{
    if (!json_is_string(v))
        return json_fail(at, e, -EINVAL, "must be pleasant");
    ++*(int *)out;
    return 0;
}

static void preset(void *out)
{
    ((T *)out)->preset = 9;
}

static const struct json_field inner_rows[] = {
    {.name = "name", .kind = JSON_AS_STRING, .required = true, .offset = offsetof(struct inner, name)},
    {.name = "level", .kind = JSON_AS_INT, .offset = offsetof(struct inner, level), .min = 1, .max = 3},
};
static const struct json_table inner_table = JSON_TABLE(inner_rows, struct inner);
static const struct json_field rows[] = {
    {.name = "text",
     .kind = JSON_AS_STRING,
     .empty_is_absent = true,
     .offset = offsetof(T, text),
     .limit = 8},
    {.name = "flag", .kind = JSON_AS_BOOL, .offset = offsetof(T, flag)},
    {.name = "count",
     .kind = JSON_AS_INT,
     .offset = offsetof(T, count),
     .offset_has = offsetof(T, has_count)},
    {.name = "small", .kind = JSON_AS_U32, .offset = offsetof(T, small)},
    {.name = "wide", .kind = JSON_AS_I64, .offset = offsetof(T, wide)},
    {.name = "big", .kind = JSON_AS_U64, .offset = offsetof(T, big)},
    {.name = "one", .kind = JSON_AS_OBJECT, .offset = offsetof(T, one), .table = &inner_table},
    {.name = "many",
     .kind = JSON_AS_ARRAY,
     .offset = offsetof(T, many),
     .offset_n = offsetof(T, n_many),
     .table = &inner_table,
     .limit = 3},
    {.name = "words", .kind = JSON_AS_STRINGS, .offset = offsetof(T, words), .limit = 3},
    {.name = "labels",
     .kind = JSON_AS_MAP,
     .offset = offsetof(T, labels),
     .offset_n = offsetof(T, n_labels),
     .limit = 2},
    {.name = "call", .kind = JSON_AS_CALL, .offset = offsetof(T, called), .fn = call},
};
static const struct json_table table = JSON_TABLE_INIT(rows, T, preset);

static int decode(const char *text, T *out, struct err *e)
{
    scoped(json_decref) json_t *v = NULL;
    memset(out, 0, sizeof *out);
    int r = json_parse(text, strlen(text), 4096, &v, e);
    return r < 0 ? r : json_decode(NULL, v, &table, out, e);
}

static void every_kind_is_decoded_and_freed(void **state UNUSED)
{
    T t;
    struct err e = {0};

    assert_int_equal(decode("{\"text\":\"a\\u00e9\",\"flag\":true,\"count\":-3,\"small\":4294967295,\"wide\":"
                            "-9223372036854775808,\"big\":18446744073709551615,"
                            "\"one\":{\"name\":\"n\",\"level\":2},\"many\":[{\"name\":\"a\"},{\"name\":\"b\","
                            "\"level\":1}],\"words\":[\"x\",\"\"],"
                            "\"labels\":{\"k\":\"v\"},\"call\":\"me\",\"other\":[{}]}",
                            &t, &e),
                     0);
    assert_string_equal(t.text, "a\xc3\xa9");
    assert_true(t.flag && t.has_count && t.count == -3 && t.small == UINT32_MAX && t.wide == INT64_MIN &&
                t.big == UINT64_MAX);
    assert_string_equal(t.one.name, "n");
    assert_int_equal(t.n_many, 2);
    assert_string_equal(t.many[1].name, "b");
    assert_int_equal(t.many[1].level, 1);
    assert_int_equal(t.words.n, 2);
    assert_null(t.words.item[2]);
    assert_string_equal(t.labels[0].key, "k");
    assert_int_equal(t.called, 1);
    assert_int_equal(t.preset, 9);
    json_free_members(&table, &t);
    assert_null(t.many);
    json_free_members(&table, &t); /* again is harmless */
}

static void absent_members_stay_zero(void **state UNUSED)
{
    T t;

    assert_int_equal(decode("{\"text\":\"\",\"count\":null,\"many\":null,\"call\":null}", &t, NULL), 0);
    assert_null(t.text);
    assert_false(t.has_count);
    assert_null(t.many);
    assert_int_equal(t.called, 0);
    json_free_members(&table, &t);
}

static void errors_name_the_whole_path(void **state UNUSED)
{
    static const struct {
        const char *text, *sentence;
        int code;
    } cases[] = {
        {"[]", "the document must be an object, not an array", -EINVAL},
        {"{\"text\":7}", "text must be a string, not a number", -EINVAL},
        {"{\"text\":18446744073709551615}", "text must be a string, not a number", -EINVAL},
        {"{\"text\":\"123456789\"}", "text is longer than 8 bytes", -E2BIG},
        {"{\"flag\":0}", "flag must be true or false, not a number", -EINVAL},
        {"{\"count\":2147483648}", "count must be between -2147483648 and 2147483647, not 2147483648",
         -EINVAL},
        {"{\"count\":9223372036854775808}", "count is too large: 9223372036854775808", -EINVAL},
        {"{\"count\":1.0}", "count must be a whole number, not a fraction", -EINVAL},
        {"{\"count\":1e3}", "count must be a whole number, not a fraction", -EINVAL},
        {"{\"small\":-1}", "small must be between 0 and 4294967295, not -1", -EINVAL},
        {"{\"big\":-1}", "big must be a whole number from 0 to 18446744073709551615, not a number", -EINVAL},
        {"{\"big\":18446744073709551616}",
         "big must be a whole number from 0 to 18446744073709551615, not a number", -EINVAL},
        {"{\"big\":\"5\"}", "big must be a whole number from 0 to 18446744073709551615, not a string",
         -EINVAL},
        {"{\"one\":{}}", "one.name is missing", -EINVAL},
        {"{\"one\":{\"name\":null}}", "one.name is missing", -EINVAL},
        {"{\"many\":[{\"name\":\"a\"},{\"name\":\"b\",\"level\":4}]}",
         "many[1].level must be between 1 and 3, not 4", -EINVAL},
        {"{\"many\":[7]}", "many[0] must be an object, not a number", -EINVAL},
        {"{\"many\":[null]}", "many[0] must be an object, not null", -EINVAL},
        {"{\"many\":[{},{},{},{}]}", "many has more than 3 elements", -E2BIG},
        {"{\"words\":[\"a\",[]]}", "words[1] must be a string, not an array", -EINVAL},
        {"{\"words\":[\"\",\"\",\"\",\"\"]}", "words has more than 3 elements", -E2BIG},
        {"{\"labels\":{\"a.b\":false}}", "labels.a.b must be a string, not a boolean", -EINVAL},
        {"{\"labels\":{\"a\":\"\",\"b\":\"\",\"c\":\"\"}}", "labels has more than 2 members", -E2BIG},
        {"{\"call\":1}", "call must be pleasant", -EINVAL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        T t;
        struct err e = {0};
        int r = decode(cases[i].text, &t, &e);
        json_free_members(&table, &t);
        if (r != cases[i].code)
            print_error("%s: %d %s\n", cases[i].text, r, err_text(&e));
        assert_int_equal(r, cases[i].code);
        assert_string_equal(err_text(&e), cases[i].sentence);
    }
}

static void a_member_named_twice_leaks_nothing(void **state UNUSED)
{
    T t = {0};
    json_error_t je;
    json_t *v = json_loads(
        "{\"many\":[{\"name\":\"a\"}],\"words\":[\"w\"],\"labels\":{\"k\":\"v\"},\"text\":\"t\"}", 0, &je);

    assert_int_equal(json_decode(NULL, v, &table, &t, NULL), 0);
    assert_int_equal(json_decode(NULL, v, &table, &t, NULL), 0); /* over what is there */
    assert_int_equal(t.n_many, 1);
    json_free_members(&table, &t);
    json_decref(v);
}

static void big_numbers_keep_every_digit(void **state UNUSED)
{
    static const struct {
        const char *text, *out;
    } cases[] = {
        {"[18446744073709551615,9223372036854775807,9223372036854775808,0]",
         "[-1,9223372036854775807,-9223372036854775808,0]"},
        {"{\"a 18446744073709551615\":\"x \\\" 18446744073709551615\",\"b\":{\"c\":[10000000000000000000]}}",
         "{\"a 18446744073709551615\":\"x \\\" 18446744073709551615\",\"b\":{\"c\":[-8446744073709551616]}}"},
        {"[true,false,null,-5]", "[true,false,null,-5]"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *v = NULL;
        assert_int_equal(json_parse(cases[i].text, strlen(cases[i].text), 4096, &v, NULL), 0);
        char *text = json_text(v);
        assert_string_equal(text, cases[i].out);
        free(text);
        json_decref(v);
    }
}

static void text_that_is_no_json_is_refused(void **state UNUSED)
{
    static const char *const cases[] = {"",
                                        "{",
                                        "[18446744073709551615",
                                        "{\"a\":18446744073709551615x}",
                                        "\"",
                                        "{\"a\":\"\\",
                                        "[-18446744073709551615]",
                                        "[00]",
                                        "[018446744073709551615]",
                                        "{\"a\":\"\\u0000\"}",
                                        "7",
                                        "[1]]"};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *v = NULL;
        struct err e = {0};
        int r = json_parse(cases[i], strlen(cases[i]), 4096, &v, &e);
        if (r >= 0)
            print_error("accepted: %s\n", cases[i]);
        assert_int_equal(r, -EINVAL);
        assert_null(v);
        assert_non_null(strstr(err_text(&e), "not valid JSON: line 1"));
    }
    json_t *v = NULL;
    assert_int_equal(json_parse("[1,2,3]", 7, 6, &v, NULL), -EFBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_decoded_and_freed),
        cmocka_unit_test(absent_members_stay_zero),
        cmocka_unit_test(errors_name_the_whole_path),
        cmocka_unit_test(a_member_named_twice_leaks_nothing),
        cmocka_unit_test(big_numbers_keep_every_digit),
        cmocka_unit_test(text_that_is_no_json_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
