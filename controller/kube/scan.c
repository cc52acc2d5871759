#include "controller/kube/scan.h"

#include <string.h>

#include "base/macro.h"

struct cursor {
    const char *p, *end;
};

static void blank(struct cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

static bool eat(struct cursor *c, char ch)
{
    blank(c);
    if (c->p == c->end || *c->p != ch)
        return false;
    c->p++;
    return true;
}

/* A string; *ret is what is between the quotes, *plain whether it has no escapes. */
static bool string(struct cursor *c, struct slice *ret, bool *plain)
{
    if (!eat(c, '"'))
        return false;
    const char *start = c->p;
    *plain = true;
    for (;;) {
        const char *quote = memchr(c->p, '"', (size_t)(c->end - c->p));
        if (!quote)
            return false;
        const char *slash = memchr(c->p, '\\', (size_t)(quote - c->p));
        if (!slash) {
            *ret = (struct slice){.at = start, .len = (size_t)(quote - start)};
            c->p = quote + 1;
            return true;
        }
        *plain = false;
        if (c->end - slash < 2)
            return false;
        c->p = slash + 2;
    }
}

/* Past one value of any kind; strings and brackets are all that matters. */
static bool skip(struct cursor *c)
{
    size_t depth = 0;
    struct slice s;
    bool plain;

    blank(c);
    do {
        if (c->p == c->end)
            return false;
        switch (*c->p) {
        case '"':
            if (!string(c, &s, &plain))
                return false;
            break;
        case '{':
        case '[':
            depth++;
            c->p++;
            break;
        case '}':
        case ']':
            if (depth == 0)
                return false;
            depth--;
            c->p++;
            break;
        default:
            /* digits, words, commas, colons: at the top they end at the next mark */
            if (depth == 0) {
                while (c->p < c->end && !strchr(",}] \t\r\n", *c->p))
                    c->p++;
            } else {
                c->p++;
            }
        }
    } while (depth > 0);
    return true;
}

/*
 * One member: its name, and the cursor at its value.  1: the object has ended.  -1: not understood.
 * *first tells whether a comma must stand before it.
 */
static int member(struct cursor *c, bool *first, struct slice *ret_name)
{
    bool plain;

    if (eat(c, '}'))
        return 1;
    if (!*first && !eat(c, ','))
        return -1;
    *first = false;
    if (!string(c, ret_name, &plain) || !plain || !eat(c, ':'))
        return -1;
    blank(c);
    return 0;
}

bool slice_is(struct slice s, const char *text)
{
    return s.at && s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

unsigned long long slice_number(struct slice s)
{
    unsigned long long n = 0;

    if (s.len == 0 || s.len > 19)
        return 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.at[i] < '0' || s.at[i] > '9')
            return 0;
        n = n * 10 + (unsigned long long)(s.at[i] - '0');
    }
    return n;
}

static bool take_text(struct cursor *c, struct slice *out)
{
    bool plain;

    return !out->at && string(c, out, &plain) && plain;
}

/* From the quote of its name at `from` to the end of its value, and one comma. */
static bool take_managed(struct cursor *c, const char *from, const char *object_start, struct slice *out)
{
    if (out->at || !skip(c))
        return false;
    const char *to = c->p;
    struct cursor after = *c;

    if (eat(&after, ',')) {
        to = after.p;
    } else {
        while (from > object_start && from[-1] != ',' && from[-1] != '{')
            from--;
        if (from > object_start && from[-1] == ',')
            from--;
    }
    *out = (struct slice){.at = from, .len = (size_t)(to - from)};
    return true;
}

static bool metadata(struct cursor *c, struct scan *s)
{
    const char *start = c->p;
    struct slice name;
    bool first = true;
    int r;

    if (!eat(c, '{'))
        return false;
    while ((r = member(c, &first, &name)) == 0) {
        struct slice *text = slice_is(name, "name")              ? &s->name
                             : slice_is(name, "namespace")       ? &s->ns
                             : slice_is(name, "uid")             ? &s->uid
                             : slice_is(name, "resourceVersion") ? &s->version
                                                                 : NULL;
        bool ok = text                              ? take_text(c, text)
                  : slice_is(name, "managedFields") ? take_managed(c, name.at - 1, start, &s->managed)
                                                    : skip(c);
        if (!ok)
            return false;
    }
    return r == 1;
}

bool scan_object(const char *text, size_t len, struct scan *ret)
{
    struct cursor c = {text, text + len};
    struct scan s = {0};
    struct slice name;
    bool first = true, seen = false;
    int r;

    *ret = (struct scan){0};
    if (!eat(&c, '{'))
        return false;
    while ((r = member(&c, &first, &name)) == 0) {
        bool is_meta = slice_is(name, "metadata");
        if ((is_meta && seen) || !(is_meta ? metadata(&c, &s) : skip(&c)))
            return false;
        seen |= is_meta;
    }
    blank(&c);
    if (r != 1 || c.p != c.end)
        return false;
    *ret = s;
    return true;
}

bool scan_event(const char *text, size_t len, struct slice *ret_type, struct slice *ret_object)
{
    struct cursor c = {text, text + len};
    struct slice name, type = {0}, object = {0};
    bool first = true, plain;
    int r;

    if (!eat(&c, '{'))
        return false;
    while ((r = member(&c, &first, &name)) == 0) {
        const char *start = c.p;
        if (slice_is(name, "type")) {
            if (type.at || !string(&c, &type, &plain) || !plain)
                return false;
        } else if (!skip(&c)) {
            return false;
        } else if (slice_is(name, "object")) {
            if (object.at)
                return false;
            object = (struct slice){.at = start, .len = (size_t)(c.p - start)};
        }
    }
    blank(&c);
    if (r != 1 || c.p != c.end || !type.at || !object.at)
        return false;
    *ret_type = type;
    *ret_object = object;
    return true;
}
