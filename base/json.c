#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/strbuf.h"

/*
 * jansson keeps whole numbers in 63 bits and refuses larger ones.  They are turned into strings that
 * begin with this Unicode noncharacter before the text is parsed; no honest document contains it, and
 * one that does is refused at the field, because such a string counts as a number everywhere.
 */
#define BIG_MARK     "\xef\xb7\x90" /* U+FDD0 */
#define BIG_MARK_LEN 3

/* Copies one string token, quotes included; returns its length. */
static size_t skip_string(const char *p, const char *end)
{
    const char *q = p + 1;
    while (q < end && *q != '"')
        q += *q == '\\' && q + 1 < end ? 2 : 1;
    return (size_t)(MIN(q + 1, end) - p);
}

static bool is_big(const char *digits, size_t n)
{
    static const char max[] = "9223372036854775807";

    /* A leading zero is no number; jansson says so. */
    return digits[0] != '0' && (n > 19 || (n == 19 && memcmp(digits, max, 19) > 0));
}

/* text with every whole number above INT64_MAX as a marked string; false: there is none. */
static bool mark_big_numbers(const char *text, size_t len, struct strbuf *out)
{
    const char *end = text + len, *copied = text;

    for (const char *p = text; p < end;) {
        if (*p == '"') {
            p += skip_string(p, end);
            continue;
        }
        if (*p < '0' || *p > '9') {
            /* A sign or a fraction makes it a token that jansson handles (or refuses) itself. */
            bool sign = *p == '-' || *p == '+' || *p == '.';
            p++;
            while (sign && p < end && *p >= '0' && *p <= '9')
                p++;
            continue;
        }
        const char *q = p;
        while (q < end && *q >= '0' && *q <= '9')
            q++;
        bool whole = q == end || (*q != '.' && *q != 'e' && *q != 'E');
        if (whole && is_big(p, (size_t)(q - p))) {
            strbuf_add(out, copied, (size_t)(p - copied));
            strbuf_puts(out, "\"" BIG_MARK);
            strbuf_add(out, p, (size_t)(q - p));
            strbuf_puts(out, "\"");
            copied = q;
        }
        p = q;
    }
    if (copied == text)
        return false;
    strbuf_add(out, copied, (size_t)(end - copied));
    return true;
}

int json_parse(const char *text, size_t len, size_t max, json_t **ret, struct err *e)
{
    if (len > max)
        return err_set(e, -EFBIG, "JSON text of %zu bytes is larger than %zu", len, max);

    scoped_strbuf struct strbuf marked;
    strbuf_init(&marked, 2 * max + 64);
    if (mark_big_numbers(text, len, &marked)) {
        if (marked.overflow)
            return err_set(e, -EFBIG, "JSON text has too many large numbers");
        text = marked.data;
        len = marked.len;
    }

    json_error_t je;
    json_t *v = json_loadb(text, len, 0, &je);
    if (!v)
        return err_set(e, -EINVAL, "not valid JSON: line %d column %d: %s", je.line, je.column, je.text);
    *ret = v;
    return 0;
}

static bool is_marked(const json_t *v)
{
    return json_is_string(v) && strncmp(json_string_value(v), BIG_MARK, BIG_MARK_LEN) == 0;
}

int json_get_u64(const json_t *v, uint64_t *ret)
{
    if (is_marked(v))
        return parse_u64(json_string_value(v) + BIG_MARK_LEN, UINT64_MAX, ret) < 0 ? -EINVAL : 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return -EINVAL;
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

/* A copy of v with marked numbers as the same 64 bits, signed. */
static json_t *unmark(const json_t *v)
{
    uint64_t u = 0;

    if (is_marked(v))
        return json_get_u64(v, &u) < 0 ? json_null() : json_integer((json_int_t)u);
    if (json_is_array(v)) {
        json_t *copy = json_array();
        size_t i = 0;
        json_t *item = NULL;
        json_array_foreach((json_t *)(uintptr_t)v, i, item) json_array_append_new(copy, unmark(item));
        return copy;
    }
    if (json_is_object(v)) {
        json_t *copy = json_object();
        const char *key = NULL;
        json_t *item = NULL;
        json_object_foreach((json_t *)(uintptr_t)v, key, item) json_object_set_new(copy, key, unmark(item));
        return copy;
    }
    return json_incref((json_t *)(uintptr_t)v);
}

char *json_text(const json_t *v)
{
    scoped(json_decref) json_t *plain = unmark(v);
    return json_dumps(plain, JSON_COMPACT | JSON_ENCODE_ANY);
}

const char *json_type_name(const json_t *v)
{
    static const char *const name[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a fraction", [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",  [JSON_NULL] = "null",
    };

    return is_marked(v) ? "a number" : name[json_typeof(v)];
}

static void print_path(struct strbuf *out, const struct json_at *at)
{
    if (!at)
        return;
    print_path(out, at->up);
    if (!at->key)
        strbuf_printf(out, "[%zu]", at->index);
    else if (at->key[0])
        strbuf_printf(out, "%s%.64s", out->len ? "." : "", at->key);
}

int json_fail(const struct json_at *at, struct err *e, int code, const char *fmt, ...)
{
    char text[ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);

    scoped_strbuf struct strbuf path;
    strbuf_init(&path, 256);
    print_path(&path, at);
    return err_set(e, code, "%s %s", path.len ? path.data : "the document", text);
}

static int not_a(const struct json_at *at, const json_t *v, const char *want, struct err *e)
{
    return json_fail(at, e, -EINVAL, "must be %s, not %s", want, json_type_name(v));
}

int json_int_in(const struct json_at *at, const struct json_field *f, const json_t *v, int64_t *ret,
                struct err *e)
{
    if (is_marked(v))
        return json_fail(at, e, -EINVAL, "is too large: %s", json_string_value(v) + BIG_MARK_LEN);
    if (!json_is_integer(v))
        return not_a(at, v, "a whole number", e);
    int64_t n = json_integer_value(v);
    if ((f->min || f->max) && (n < f->min || n > f->max))
        return json_fail(at, e, -EINVAL, "must be between %" PRId64 " and %" PRId64 ", not %" PRId64, f->min,
                         f->max, n);
    *ret = n;
    return 0;
}

static int take_string(const struct json_at *at, const json_t *v, size_t limit, char **ret, struct err *e)
{
    if (!json_is_string(v) || is_marked(v))
        return not_a(at, v, "a string", e);
    size_t n = json_string_length(v), most = limit ? limit : JSON_LIMIT_STRING;
    if (n > most)
        return json_fail(at, e, -E2BIG, "is longer than %zu bytes", most);
    *ret = xstrndup(json_string_value(v), n);
    return 0;
}

int json_strings_decode(const struct json_at *at, const json_t *v, size_t limit, struct json_strings *ret,
                        struct err *e)
{
    if (!json_is_array(v))
        return not_a(at, v, "an array of strings", e);
    size_t n = json_array_size(v), most = limit ? limit : JSON_LIMIT_ARRAY;
    if (n > most)
        return json_fail(at, e, -E2BIG, "has more than %zu elements", most);

    json_strings_done(ret); /* only a document that names a member twice gets here with one */
    ret->item = xcalloc(n + 1, sizeof *ret->item);
    for (; ret->n < n; ret->n++) {
        struct json_at here = {.up = at, .index = ret->n};
        /* One argument may be as long as the kernel takes: MAX_ARG_STRLEN, 32 pages. */
        int r = take_string(&here, json_array_get(v, ret->n), 131072, &ret->item[ret->n], e);
        if (r < 0)
            return r;
    }
    return 0;
}

void json_strings_done(struct json_strings *s)
{
    for (size_t i = 0; s->item && i < s->n; i++)
        free(s->item[i]);
    free(s->item);
    *s = (struct json_strings){0};
}

/* ---- one function per kind -------------------------------------------------------------------- */

struct slot {
    const struct json_at *at;
    const struct json_field *f;
    char *base; /* the struct */
    void *out;  /* the member */
};

static int as_string(const struct slot *s, const json_t *v, struct err *e)
{
    char *text = NULL;
    int r = take_string(s->at, v, s->f->limit, &text, e);
    if (r < 0)
        return r;
    char **out = s->out;
    free(*out);
    *out = text;
    if (!text[0] && s->f->empty_is_absent) {
        free(text);
        *out = NULL;
    }
    return 0;
}

static int as_bool(const struct slot *s, const json_t *v, struct err *e)
{
    if (!json_is_boolean(v))
        return not_a(s->at, v, "true or false", e);
    *(bool *)s->out = json_is_true(v);
    return 0;
}

static int as_int(const struct slot *s, const json_t *v, struct err *e)
{
    static const struct json_field whole = {.min = INT32_MIN, .max = INT32_MAX};
    int64_t n = 0;
    int r = json_int_in(s->at, s->f->min || s->f->max ? s->f : &whole, v, &n, e);
    if (r == 0)
        *(int *)s->out = (int)n;
    return r;
}

static int as_u32(const struct slot *s, const json_t *v, struct err *e)
{
    const struct json_field whole = {.max = s->f->max ? s->f->max : UINT32_MAX};
    int64_t n = 0;
    int r = json_int_in(s->at, &whole, v, &n, e);
    if (r == 0)
        *(uint32_t *)s->out = (uint32_t)n;
    return r;
}

static int as_i64(const struct slot *s, const json_t *v, struct err *e)
{
    return json_int_in(s->at, s->f, v, s->out, e);
}

static int as_u64(const struct slot *s, const json_t *v, struct err *e)
{
    if (json_get_u64(v, s->out) < 0)
        return not_a(s->at, v, "a whole number from 0 to 18446744073709551615", e);
    return 0;
}

static int as_object(const struct slot *s, const json_t *v, struct err *e)
{
    return json_decode(s->at, v, s->f->table, s->out, e);
}

static size_t *count_of(const struct json_field *f, char *base)
{
    return (size_t *)(void *)(base + f->offset_n);
}

/* The member is a pointer to some struct: its own type is not known here, so it is copied as bytes. */
static char *get_pointer(const struct json_field *f, const char *base)
{
    char *p = NULL;
    memcpy(&p, base + f->offset, sizeof p);
    return p;
}

static void set_pointer(const struct json_field *f, char *base, void *p)
{
    memcpy(base + f->offset, &p, sizeof p);
}

static void free_array(const struct json_field *f, char *base)
{
    char *items = get_pointer(f, base);
    size_t *n = count_of(f, base);

    for (size_t i = 0; i < *n; i++)
        json_free_members(f->table, items + i * f->table->size);
    free(items);
    set_pointer(f, base, NULL);
    *n = 0;
}

static int as_array(const struct slot *s, const json_t *v, struct err *e)
{
    if (!json_is_array(v))
        return not_a(s->at, v, "an array", e);
    size_t n = json_array_size(v), most = s->f->limit ? s->f->limit : JSON_LIMIT_ARRAY;
    if (n > most)
        return json_fail(s->at, e, -E2BIG, "has more than %zu elements", most);

    free_array(s->f, s->base);
    char *items = xcalloc(n ? n : 1, s->f->table->size);
    set_pointer(s->f, s->base, items);
    *count_of(s->f, s->base) = n; /* zeroed elements can be freed as well */
    for (size_t i = 0; i < n; i++) {
        struct json_at here = {.up = s->at, .index = i};
        int r = json_decode(&here, json_array_get(v, i), s->f->table, items + i * s->f->table->size, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int as_strings(const struct slot *s, const json_t *v, struct err *e)
{
    return json_strings_decode(s->at, v, s->f->limit, s->out, e);
}

static void free_map(const struct json_field *f, char *base)
{
    struct json_pair *items = (struct json_pair *)(void *)get_pointer(f, base);
    size_t *n = count_of(f, base);

    for (size_t i = 0; i < *n; i++) {
        free(items[i].key);
        free(items[i].value);
    }
    free(items);
    set_pointer(f, base, NULL);
    *n = 0;
}

static int as_map(const struct slot *s, const json_t *v, struct err *e)
{
    if (!json_is_object(v))
        return not_a(s->at, v, "an object of strings", e);
    size_t n = json_object_size(v), most = s->f->limit ? s->f->limit : JSON_LIMIT_ARRAY;
    if (n > most)
        return json_fail(s->at, e, -E2BIG, "has more than %zu members", most);

    free_map(s->f, s->base);
    struct json_pair *items = xcalloc(n ? n : 1, sizeof *items);
    set_pointer(s->f, s->base, items);
    size_t *used = count_of(s->f, s->base);
    const char *key = NULL;
    json_t *item = NULL;
    json_object_foreach((json_t *)(uintptr_t)v, key, item)
    {
        struct json_at here = {.up = s->at, .key = key};
        char *value = NULL;
        int r = take_string(&here, item, 1u << 20, &value, e);
        if (r < 0)
            return r;
        items[(*used)++] = (struct json_pair){.key = xstrdup(key), .value = value};
    }
    return 0;
}

static int as_call(const struct slot *s, const json_t *v, struct err *e)
{
    return s->f->fn(s->at, s->f, v, s->out, e);
}

static int (*const decode_kind[])(const struct slot *, const json_t *, struct err *) = {
    [JSON_AS_STRING] = as_string, [JSON_AS_BOOL] = as_bool,   [JSON_AS_INT] = as_int,
    [JSON_AS_U32] = as_u32,       [JSON_AS_I64] = as_i64,     [JSON_AS_U64] = as_u64,
    [JSON_AS_OBJECT] = as_object, [JSON_AS_ARRAY] = as_array, [JSON_AS_STRINGS] = as_strings,
    [JSON_AS_MAP] = as_map,       [JSON_AS_CALL] = as_call,
};

static int decode_field(const struct json_at *at, const json_t *object, const struct json_field *f,
                        char *base, struct err *e)
{
    struct json_at here = {.up = at, .key = f->name};
    const json_t *v = json_object_get(object, f->name);
    if (!v || json_is_null(v))
        return f->required ? json_fail(&here, e, -EINVAL, "is missing") : 0;

    struct slot s = {.at = &here, .f = f, .base = base, .out = base + f->offset};
    int r = decode_kind[f->kind](&s, v, e);
    if (r < 0)
        return r;
    if (f->offset_has)
        *(bool *)(base + f->offset_has) = true;
    return 0;
}

int json_decode(const struct json_at *at, const json_t *object, const struct json_table *t, void *out,
                struct err *e)
{
    if (!json_is_object(object))
        return not_a(at, object, "an object", e);
    if (t->init)
        t->init(out);
    for (size_t i = 0; i < t->n; i++) {
        int r = decode_field(at, object, &t->field[i], out, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static void free_field(const struct json_field *f, char *base)
{
    void *out = base + f->offset;

    if (f->kind == JSON_AS_STRING)
        free(take(*(char **)out));
    else if (f->kind == JSON_AS_OBJECT)
        json_free_members(f->table, out);
    else if (f->kind == JSON_AS_ARRAY)
        free_array(f, base);
    else if (f->kind == JSON_AS_MAP)
        free_map(f, base);
    else if (f->kind == JSON_AS_STRINGS)
        json_strings_done(out);
    else if (f->kind == JSON_AS_CALL && f->done)
        f->done(out);
}

void json_free_members(const struct json_table *t, void *out)
{
    for (size_t i = 0; out && i < t->n; i++)
        free_field(&t->field[i], out);
}
