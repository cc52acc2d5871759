/*
 * Bytes as an API server (or whoever stands in between) could send them as LIST and WATCH answers.  The
 * first byte says which, the second in which pieces they arrive.  Whatever comes out goes through a
 * store, whose table, indexes and texts must stay in step.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "controller/core/store_feed.h"
#include "controller/kube/object.h"
#include "controller/kube/selector.h"
#include "controller/kube/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ITEM_MAX 4096

static void by_label(const json_t *o, struct index_values *v)
{
    json_t *labels = obj_at(o, "metadata.labels"), *value;
    const char *key;

    json_object_foreach(labels, key, value) index_add(v, json_string_value(value));
}

static void digest(const json_t *o, void *out)
{
    int64_t ms = 0;

    (void)obj_parse_time(obj_str(o, "metadata.creationTimestamp"), &ms);
    memcpy(out, &ms, sizeof ms);
}

static const struct kube_resource things = {"g", "v1", "things", "Thing", false};
static const char *const keep[] = {"metadata", "spec", "status.conditions", NULL};
static const char *const share[] = {"spec.template", "spec.a.b", NULL};
static const struct store_kind kind = {.resource = &things,
                                       .keep = keep,
                                       .share = share,
                                       .index = {{"label", by_label}},
                                       .digest_size = sizeof(int64_t),
                                       .digest = digest};

static void on_change(void *data, const struct change *c)
{
    (void)data;
    /* Both are readable while the change is told. */
    if (c->old)
        assert(obj_name(object_json(c->old)));
    if (c->now)
        assert(strcmp(obj_name(object_json(c->now)), object_name(c->now)) == 0);
}

static void on_object(void *data, json_t *o)
{
    (void)selector_match_labels("a=b,!c", o);
    (void)obj_condition_is_true(o, "Ready");
    (void)store_put(data, o);
}

static void on_event(void *data, enum watch_type type, json_t *o)
{
    if (type == WATCH_DELETED)
        store_gone(data, o);
    else if (type == WATCH_ADDED || type == WATCH_MODIFIED)
        on_object(data, o);
}

static void feed_list(struct store *s, const char *text, size_t n, size_t step)
{
    struct list_stream *l;
    const char *version, *next;
    struct err e = {0};
    int r = list_stream_new(ITEM_MAX, on_object, s, &l, NULL);

    assert(r == 0);
    store_list_begin(s);
    for (size_t i = 0; r == 0 && i < n; i += step)
        r = list_stream_feed(l, text + i, MIN(step, n - i), &e);
    if (r < 0)
        assert(*e.text);
    if (list_stream_end(l, &version, &next, NULL) == 0) {
        assert(r == 0 && version && next);
        store_list_end(s, strtoull(version, NULL, 10), false);
    }
    list_stream_free(l);
}

static void feed_watch(struct store *s, const char *text, size_t n, size_t step)
{
    struct line_stream *l = line_stream_new(ITEM_MAX, on_event, s);

    for (size_t i = 0; i < n; i += step)
        line_stream_feed(l, text + i, MIN(step, n - i));
    line_stream_free(l);
}

/* Every object reads back from its text, and is where table and index say. */
static void check(struct store *s, struct parsed_cache *cache)
{
    size_t n = 0;

    parsed_cache_empty(cache);
    for (const struct object *o = NULL; (o = store_next(s, o)); n++) {
        assert(store_get(s, object_ns(o), object_name(o)) == o);
        assert(strcmp(obj_uid(object_json(o)), object_uid(o)) == 0);
    }
    assert(n == store_count(s));
}

/* Cutting managedFields out of the text gives what parsing and deleting it gives. */
static void check_scan(const char *text, size_t n)
{
    json_t *full = json_loadb(text, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    struct scan s;

    if (full && scan_object(text, n, &s)) {
        char *bare = malloc(n + 1);
        size_t before = s.managed.at ? (size_t)(s.managed.at - text) : n;
        memcpy(bare, text, before);
        if (s.managed.at)
            memcpy(bare + before, s.managed.at + s.managed.len, n - before - s.managed.len);
        json_t *cut = json_loadb(bare, n - s.managed.len, JSON_ALLOW_NUL, NULL);
        json_object_del(json_object_get(full, "metadata"), "managedFields");
        assert(cut && json_equal(full, cut));
        if (s.name.at && obj_name(full))
            assert(slice_is(s.name, obj_name(full)));
        json_decref(cut);
        free(bare);
    }
    json_decref(full);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct parsed_cache *cache = parsed_cache_new(4);
    struct store *s = store_new(&kind, cache, on_change, NULL);
    size_t step = (size_t)data[1] + 1;

    (data[0] & 1 ? feed_list : feed_watch)(s, (const char *)data + 2, size - 2, step);
    check(s, cache);
    check_scan((const char *)data + 2, size - 2);
    store_free(s);
    parsed_cache_free(cache);
    return 0;
}
