#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "controller/kube/object.h"
#include "controller/kube/stream.h"

/* What the callbacks saw, as text. */
struct seen {
    struct strbuf text;
    size_t n;
};

static void on_item(void *data, json_t *item)
{
    struct seen *s = data;
    scoped_free char *text = json_dumps(item, JSON_COMPACT);

    s->n++;
    strbuf_printf(&s->text, "%s;", text);
}

static void on_line(void *data, enum watch_type type, json_t *object)
{
    struct seen *s = data;

    s->n++;
    strbuf_printf(&s->text, "%d %s;", type, obj_name(object) ? obj_name(object) : "?");
}

static const char list_text[] =
    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"7\",\"continue\":\"next\",\"extra\":3},"
    "\"more\":{\"items\":[{\"no\":1}],\"metadata\":{\"resourceVersion\":\"bad\"}},\"items\":["
    "{\"a\":1,\"metadata\":{\"name\":\"x\"},\"items\":[1,[2,{\"b\":null}],true,-1.5,\"\\u00e9\\u0000\"]},{"
    "\"a\":{}},{}]}";
static const char list_items[] = "{\"a\":1,\"metadata\":{\"name\":\"x\"},\"items\":[1,[2,{\"b\":null}],true,-"
                                 "1.5,\"\xc3\xa9\\u0000\"]};{\"a\":{}};{};";

/* Feeds text in pieces of `step` bytes. */
static int feed(const char *text, size_t n, size_t step, struct seen *seen, const char **version,
                const char **next, struct list_stream **ret)
{
    int r = list_stream_new(1000, on_item, seen, ret, NULL);

    for (size_t i = 0; r == 0 && i < n; i += step)
        r = list_stream_feed(*ret, text + i, MIN(step, n - i), NULL);
    return r < 0 ? r : list_stream_end(*ret, version, next, NULL);
}

static void a_list_gives_its_items_however_it_is_cut(void **state)
{
    (void)state;
    for (size_t step = 1; step <= sizeof list_text; step++) {
        scoped(list_stream_free) struct list_stream *s = NULL;
        struct seen seen = {0};
        const char *version = NULL, *next = NULL;
        strbuf_init(&seen.text, 10000);
        assert_int_equal(feed(list_text, strlen(list_text), step, &seen, &version, &next, &s), 0);
        assert_string_equal(seen.text.data, list_items);
        assert_string_equal(version, "7");
        assert_string_equal(next, "next");
        strbuf_done(&seen.text);
    }
}

static void a_list_that_is_cut_off_anywhere_is_not_taken_for_whole(void **state)
{
    (void)state;
    for (size_t n = 0; n < strlen(list_text); n++) {
        scoped(list_stream_free) struct list_stream *s = NULL;
        struct seen seen = {0};
        const char *version = NULL, *next = NULL;
        strbuf_init(&seen.text, 10000);
        assert_true(feed(list_text, n, 100, &seen, &version, &next, &s) < 0);
        strbuf_done(&seen.text);
    }
}

static void what_is_no_list_is_refused(void **state)
{
    static const char *const bad[] = {
        "[]",
        "1",
        "null",
        "\"x\"",
        "{}",
        "{\"items\":[]}",
        "{\"items\":[1],\"metadata\":{\"resourceVersion\":\"1\"}}",
        "{\"items\":[[]],\"metadata\":{\"resourceVersion\":\"1\"}}",
        "{\"metadata\":{\"resourceVersion\":\"1\"}}x",
        "{\"metadata\":{\"resourceVersion\":\"1\"}}{}",
        "{\"items\":[{\"a\":99999999999999999999}]}",
        "{\"items\":[{\"a\":1e999}]}",
        "{\"items\":[{\"a\\u0000b\":1}]}",
        "{\"items\":[{\"a\":\"\xff\"}]}",
        "{\"items\":[{,}]}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        scoped(list_stream_free) struct list_stream *s = NULL;
        struct seen seen = {0};
        const char *version = NULL, *next = NULL;
        strbuf_init(&seen.text, 10000);
        if (feed(bad[i], strlen(bad[i]), 3, &seen, &version, &next, &s) >= 0)
            fail_msg("%s is taken", bad[i]);
        strbuf_done(&seen.text);
    }
}

static void an_item_above_the_limit_is_refused(void **state)
{
    static const char *const shape[] = {"{\"items\":[{\"a\":\"%s\"}]}", "{\"items\":[{\"%s\":1}]}",
                                        "{\"items\":[{\"a\":[%s]}]}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shape); i++) {
        char filler[1200];
        memset(filler, i == 2 ? '[' : 'x', sizeof filler - 1);
        filler[sizeof filler - 1] = '\0';
        struct strbuf text;
        strbuf_init(&text, 10000);
        const char *mark = strstr(shape[i], "%s");
        strbuf_add(&text, shape[i], (size_t)(mark - shape[i]));
        strbuf_puts(&text, filler);
        strbuf_puts(&text, mark + 2);
        for (size_t step = 1; step < 3000; step += 977) {
            scoped(list_stream_free) struct list_stream *s = NULL;
            struct seen seen = {0};
            const char *version = NULL, *next = NULL;
            strbuf_init(&seen.text, 10000);
            assert_int_equal(feed(text.data, text.len, step, &seen, &version, &next, &s), -EFBIG);
            strbuf_done(&seen.text);
        }
        strbuf_done(&text);
    }
}

#define LINE(type, name) "{\"type\":\"" type "\",\"object\":{\"metadata\":{\"name\":\"" name "\"}}}\n"

static void watch_lines_come_out_whole_however_they_are_cut(void **state)
{
    static const char text[] =
        LINE("ADDED", "a") LINE("MODIFIED", "b") "\n\r\n" LINE("DELETED", "c") LINE("BOOKMARK", "d")
            LINE("ERROR", "e") "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"cut";

    (void)state;
    for (size_t step = 1; step <= sizeof text; step++) {
        struct seen seen = {0};
        strbuf_init(&seen.text, 10000);
        scoped(line_stream_free) struct line_stream *s = line_stream_new(200, on_line, &seen);
        for (size_t i = 0; i < strlen(text); i += step)
            line_stream_feed(s, text + i, MIN(step, strlen(text) - i));
        assert_string_equal(seen.text.data, "1 a;2 b;3 c;4 d;5 e;");
        assert_int_equal(line_stream_dropped(s), 0);
        strbuf_done(&seen.text);
    }
}

static void bad_and_oversized_lines_are_dropped_and_the_next_is_read(void **state)
{
    static const char *const bad[] = {"x\n",
                                      "{}\n",
                                      "[]\n",
                                      LINE("OTHER", "a"),
                                      "{\"type\":\"ADDED\",\"object\":1}\n",
                                      "{\"type\":\"ADDED\"}\n",
                                      "\xff\n",
                                      "{\"type\":1,\"object\":{}}\n"};
    char big[1000];

    (void)state;
    memset(big, ' ', sizeof big);
    big[sizeof big - 1] = '\n';
    for (size_t step = 1; step < 2000; step += 61) {
        struct strbuf text;
        struct seen seen = {0};
        strbuf_init(&text, 100000);
        strbuf_init(&seen.text, 1000);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
            strbuf_puts(&text, bad[i]);
        strbuf_add(&text, big, sizeof big);
        strbuf_puts(&text, LINE("ADDED", "good"));
        scoped(line_stream_free) struct line_stream *s = line_stream_new(200, on_line, &seen);
        for (size_t i = 0; i < text.len; i += step)
            line_stream_feed(s, text.data + i, MIN(step, text.len - i));
        assert_string_equal(seen.text.data, "1 good;");
        assert_int_equal(line_stream_dropped(s), ARRAY_LEN(bad) + 1);
        strbuf_done(&seen.text);
        strbuf_done(&text);
    }
}

static struct line_stream *stopping;

static void on_line_stop(void *data, enum watch_type type, json_t *object)
{
    on_line(data, type, object);
    line_stream_stop(stopping);
}

static void a_stopped_stream_ignores_the_rest(void **state)
{
    struct seen seen = {0};

    (void)state;
    strbuf_init(&seen.text, 1000);
    stopping = line_stream_new(200, on_line_stop, &seen);
    line_stream_feed(stopping, LINE("ERROR", "a") LINE("ADDED", "b"),
                     strlen(LINE("ERROR", "a") LINE("ADDED", "b")));
    assert_string_equal(seen.text.data, "5 a;");
    line_stream_free(stopping);
    strbuf_done(&seen.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_gives_its_items_however_it_is_cut),
        cmocka_unit_test(a_list_that_is_cut_off_anywhere_is_not_taken_for_whole),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(an_item_above_the_limit_is_refused),
        cmocka_unit_test(watch_lines_come_out_whole_however_they_are_cut),
        cmocka_unit_test(bad_and_oversized_lines_are_dropped_and_the_next_is_read),
        cmocka_unit_test(a_stopped_stream_ignores_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
