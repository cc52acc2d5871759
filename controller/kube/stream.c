#include "controller/kube/stream.h"

#include <errno.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/strbuf.h"

/*
 * The list parser keeps the path only as far as it must: depth 1 is the list itself, depth 2 is
 * "metadata" or "items", an object or value at depth 3 inside items is an item, which is built on a
 * stack of open containers.
 */
enum place { IN_NOTHING, IN_LIST, IN_METADATA, IN_ITEMS, IN_ITEM, IN_SKIPPED, IN_MANAGED };

struct open {
    json_t *value; /* owned by its parent, but for the item itself */
    char *key;     /* in an object: the name of the member that comes next */
};

struct list_stream {
    yajl_handle yajl;
    stream_item_fn fn;
    void *data;
    enum place place;
    size_t skip_depth; /* containers open inside something we skip */
    char *key;         /* last name at list or metadata level */
    struct open stack[STREAM_DEPTH_MAX];
    size_t depth;
    size_t item_max, item_bytes;
    size_t since_item; /* bytes fed since the last item ended: bounds what yajl itself holds back */
    char *version, *next;
    int code;
    const char *why;
    bool done;
};

static int fail(struct list_stream *s, int code, const char *why)
{
    if (s->code == 0) {
        s->code = code;
        s->why = why;
    }
    return 0; /* yajl: stop */
}

static void set_key(char **key, const unsigned char *text, size_t n)
{
    free(*key);
    *key = xstrndup((const char *)text, n);
}

/* Hangs value (stolen) into the container on top of the stack. */
static int attach(struct list_stream *s, json_t *value)
{
    struct open *top = &s->stack[s->depth - 1];

    if (!value)
        return fail(s, -EINVAL, "a text is not UTF-8");
    if (json_is_array(top->value))
        json_array_append_new(top->value, value);
    else if (json_object_set_new(top->value, top->key ? top->key : "", value) < 0)
        return fail(s, -EINVAL, "a name is not UTF-8");
    return 1;
}

/* A scalar at the current place; value is stolen. */
static int scalar(struct list_stream *s, json_t *value)
{
    if (s->place == IN_ITEM)
        return attach(s, value);
    if (s->place == IN_MANAGED) {
        json_decref(value);
        return 1;
    }
    const char *text = json_string_value(value);
    if (s->place == IN_METADATA && text && s->key) {
        char **out = strcmp(s->key, "resourceVersion") == 0 ? &s->version
                     : strcmp(s->key, "continue") == 0      ? &s->next
                                                            : NULL;
        if (out) {
            free(*out);
            *out = xstrdup(text);
        }
    }
    json_decref(value);
    if (s->place == IN_NOTHING || s->place == IN_ITEMS)
        return fail(s, -EINVAL, s->place == IN_ITEMS ? "an item is not an object" : "not a list");
    return 1;
}

static int on_null(void *ctx)
{
    return scalar(ctx, json_null());
}

static int on_bool(void *ctx, int value)
{
    return scalar(ctx, json_boolean(value));
}

static int on_number(void *ctx, const char *text, size_t n)
{
    struct list_stream *s = ctx;
    json_error_t error;

    if (s->place != IN_ITEM)
        return scalar(s, json_null());
    s->item_bytes += n;
    /* jansson's own number parser, so that a listed object equals a watched one. */
    json_t *value = json_loadb(text, n, JSON_DECODE_ANY, &error);
    return value ? attach(s, value) : fail(s, -EINVAL, "a number is out of range");
}

static int charge(struct list_stream *s, size_t n)
{
    s->item_bytes += n;
    return s->item_bytes > s->item_max ? fail(s, -EFBIG, "an object is too large") : 1;
}

static int on_string(void *ctx, const unsigned char *text, size_t n)
{
    struct list_stream *s = ctx;

    if (s->place == IN_ITEM && !charge(s, n + 2))
        return 0;
    bool unread = s->place == IN_SKIPPED || s->place == IN_MANAGED;
    return scalar(s, unread ? json_null() : json_stringn((const char *)text, n));
}

static int on_key(void *ctx, const unsigned char *text, size_t n)
{
    struct list_stream *s = ctx;

    if (s->place == IN_ITEM) {
        if (memchr(text, 0, n))
            return fail(s, -EINVAL, "a name contains NUL");
        set_key(&s->stack[s->depth - 1].key, text, n);
        return charge(s, n + 3);
    }
    if (s->place == IN_LIST || s->place == IN_METADATA)
        set_key(&s->key, text, n);
    return 1;
}

static int push(struct list_stream *s, json_t *value)
{
    if (s->depth == STREAM_DEPTH_MAX) {
        json_decref(value);
        return fail(s, -EFBIG, "an object is nested too deeply");
    }
    if (s->depth > 0 && !attach(s, value))
        return 0;
    s->stack[s->depth++] = (struct open){.value = value};
    return charge(s, 2);
}

/* The value that comes next is metadata.managedFields of an item. */
static bool at_managed(const struct list_stream *s)
{
    return s->depth == 2 && s->stack[1].key && strcmp(s->stack[1].key, "managedFields") == 0 &&
           s->stack[0].key && strcmp(s->stack[0].key, "metadata") == 0;
}

static int open_in_item(struct list_stream *s, bool map)
{
    if (!at_managed(s))
        return push(s, map ? json_object() : json_array());
    s->place = IN_MANAGED;
    s->skip_depth = 1;
    return 1;
}

static int open_container(struct list_stream *s, bool map)
{
    bool at_list = s->place == IN_LIST && s->key;

    if (s->place == IN_ITEM)
        return open_in_item(s, map);
    if (s->place == IN_MANAGED) {
        s->skip_depth++;
        return 1;
    }
    if (s->place == IN_NOTHING && map && !s->done) {
        s->place = IN_LIST;
        return 1;
    }
    if (at_list && map && strcmp(s->key, "metadata") == 0) {
        s->place = IN_METADATA;
        return 1;
    }
    if (at_list && !map && strcmp(s->key, "items") == 0) {
        s->place = IN_ITEMS;
        return 1;
    }
    if (s->place == IN_ITEMS && map) {
        s->place = IN_ITEM;
        s->item_bytes = 0;
        return push(s, json_object());
    }
    if (s->place == IN_LIST && s->skip_depth == 0)
        s->place = IN_SKIPPED;
    else if (s->place != IN_SKIPPED)
        return fail(s, -EINVAL, s->place == IN_ITEMS ? "an item is not an object" : "not a list");
    s->skip_depth++;
    return 1;
}

static int close_item_level(struct list_stream *s)
{
    struct open *top = &s->stack[--s->depth];

    free(take(top->key));
    if (s->depth > 0)
        return 1;
    json_t *item = take(top->value);
    s->place = IN_ITEMS;
    s->since_item = 0;
    s->fn(s->data, item);
    json_decref(item);
    return 1;
}

static int close_container(struct list_stream *s)
{
    switch (s->place) {
    case IN_ITEM:
        return close_item_level(s);
    case IN_MANAGED:
        if (--s->skip_depth == 0)
            s->place = IN_ITEM;
        return 1;
    case IN_SKIPPED:
        if (--s->skip_depth == 0)
            s->place = IN_LIST;
        return 1;
    case IN_METADATA:
    case IN_ITEMS:
        s->place = IN_LIST;
        return 1;
    default:
        s->place = IN_NOTHING;
        s->done = true;
        return 1;
    }
}

static int on_map(void *ctx)
{
    return open_container(ctx, true);
}

static int on_array(void *ctx)
{
    return open_container(ctx, false);
}

static int on_end(void *ctx)
{
    return close_container(ctx);
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_bool,
    .yajl_number = on_number,
    .yajl_string = on_string,
    .yajl_start_map = on_map,
    .yajl_map_key = on_key,
    .yajl_end_map = on_end,
    .yajl_start_array = on_array,
    .yajl_end_array = on_end,
};

int list_stream_new(size_t item_max, stream_item_fn fn, void *data, struct list_stream **ret, struct err *e)
{
    struct list_stream *s = xcalloc(1, sizeof *s);

    s->fn = fn;
    s->data = data;
    s->item_max = item_max;
    s->yajl = yajl_alloc(&callbacks, NULL, s);
    if (!s->yajl) {
        free(s);
        return err_set(e, -ENOMEM, "yajl_alloc failed");
    }
    *ret = s;
    return 0;
}

void list_stream_free(struct list_stream *s)
{
    if (!s)
        return;
    if (s->depth > 0)
        json_decref(s->stack[0].value);
    for (size_t i = 0; i < s->depth; i++)
        free(s->stack[i].key);
    yajl_free(s->yajl);
    free(s->key);
    free(s->version);
    free(s->next);
    free(s);
}

static int report(struct list_stream *s, yajl_status status, struct err *e)
{
    if (s->code < 0)
        return err_set(e, s->code, "list: %s", s->why);
    if (status != yajl_status_ok)
        return s->code = err_set(e, -EINVAL, "list: not JSON");
    return 0;
}

int list_stream_feed(struct list_stream *s, const char *bytes, size_t n, struct err *e)
{
    if (s->code == 0 && s->since_item > s->item_max)
        fail(s, -EFBIG, "an object is too large");
    if (s->code < 0)
        return report(s, yajl_status_ok, e);
    s->since_item += n;
    return report(s, yajl_parse(s->yajl, (const unsigned char *)bytes, n), e);
}

int list_stream_end(struct list_stream *s, const char **ret_version, const char **ret_continue, struct err *e)
{
    int r = s->code < 0 ? report(s, yajl_status_ok, e) : report(s, yajl_complete_parse(s->yajl), e);

    if (r < 0)
        return r;
    if (!s->done || !s->version)
        return err_set(e, -EINVAL, "list: %s", s->done ? "no metadata.resourceVersion" : "cut off");
    *ret_version = s->version;
    *ret_continue = s->next ? s->next : "";
    return 0;
}

/* ---- watch ---- */

struct line_stream {
    watch_line_fn fn;
    void *data;
    watch_known_fn known;
    struct strbuf rest; /* the partial last line */
    struct strbuf bare; /* an object without what nobody reads */
    bool skipping;      /* inside a line that is too long */
    bool stopped;
    uint64_t dropped;
};

static const struct {
    const char *name;
    enum watch_type type;
} types[] = {
    {"ADDED", WATCH_ADDED},       {"MODIFIED", WATCH_MODIFIED}, {"DELETED", WATCH_DELETED},
    {"BOOKMARK", WATCH_BOOKMARK}, {"ERROR", WATCH_ERROR},
};

static enum watch_type type_of(struct slice name)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (slice_is(name, types[i].name))
            return types[i].type;
    return WATCH_NONE;
}

struct line_stream *line_stream_new(size_t line_max, watch_line_fn fn, void *data)
{
    struct line_stream *s = xcalloc(1, sizeof *s);

    s->fn = fn;
    s->data = data;
    strbuf_init(&s->rest, line_max);
    strbuf_init(&s->bare, line_max);
    return s;
}

void line_stream_free(struct line_stream *s)
{
    if (!s)
        return;
    strbuf_done(&s->rest);
    strbuf_done(&s->bare);
    free(s);
}

void line_stream_set_known(struct line_stream *s, watch_known_fn known)
{
    s->known = known;
}

#define BARE_KEPT (256u << 10) /* a larger buffer is not kept for the next line */

static json_t *parse_bare(struct line_stream *s, struct slice object, struct slice without)
{
    size_t before = without.at ? (size_t)(without.at - object.at) : object.len;

    strbuf_reset(&s->bare);
    strbuf_add(&s->bare, object.at, before);
    if (without.at)
        strbuf_add(&s->bare, without.at + without.len, object.len - before - without.len);
    json_t *v = json_loadb(s->bare.data, s->bare.len, JSON_ALLOW_NUL, NULL);
    if (s->bare.cap > BARE_KEPT) {
        size_t max = s->bare.max;
        strbuf_done(&s->bare);
        strbuf_init(&s->bare, max);
    }
    return v;
}

static void one_line(struct line_stream *s, const char *text, size_t n)
{
    struct slice type_text, object_text;
    struct scan scan;

    if (n == 0 || (n == 1 && *text == '\r'))
        return;
    bool event = n <= s->rest.max && scan_event(text, n, &type_text, &object_text);
    enum watch_type type = event ? type_of(type_text) : WATCH_NONE;
    if (type == WATCH_NONE) {
        s->dropped++;
        return;
    }
    bool scanned = scan_object(object_text.at, object_text.len, &scan);
    if (scanned && s->known && (type == WATCH_ADDED || type == WATCH_MODIFIED) && s->known(s->data, &scan))
        return;
    scoped(json_decref) json_t *object =
        parse_bare(s, object_text, scanned ? scan.managed : (struct slice){0});
    if (json_is_object(object))
        s->fn(s->data, type, object);
    else
        s->dropped++;
}

void line_stream_feed(struct line_stream *s, const char *bytes, size_t n)
{
    while (n > 0 && !s->stopped) {
        const char *end = memchr(bytes, '\n', n);
        size_t len = end ? (size_t)(end - bytes) : n;

        if (end && s->rest.len == 0 && !s->skipping) {
            one_line(s, bytes, len); /* the common case copies nothing */
        } else {
            strbuf_add(&s->rest, bytes, s->skipping ? 0 : len);
            if (s->rest.overflow && !s->skipping) {
                s->skipping = true;
                s->dropped++;
            }
            if (end && !s->skipping)
                one_line(s, s->rest.data, s->rest.len);
            if (end || s->skipping) {
                size_t max = s->rest.max;
                /* A large line would otherwise keep its memory for ever. */
                strbuf_done(&s->rest);
                strbuf_init(&s->rest, max);
            }
            if (end)
                s->skipping = false;
        }
        n -= end ? len + 1 : len;
        bytes += end ? len + 1 : len;
    }
}

void line_stream_stop(struct line_stream *s)
{
    s->stopped = true;
}

uint64_t line_stream_dropped(const struct line_stream *s)
{
    return s->dropped;
}
