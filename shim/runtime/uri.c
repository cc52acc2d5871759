#include "shim/runtime/uri.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"

#define URI_MAX      4096
#define URI_ARGS_MAX 256

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Percent escapes, and '+' for a space in a query.  An escaped NUL would cut the string: refused. */
static char *unescape(const char *text, size_t n, bool query)
{
    char *out = xcalloc(1, n + 1);
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] == '%' && i + 2 < n && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
            out[k] = (char)(hex(text[i + 1]) * 16 + hex(text[i + 2]));
            i += 2;
        } else {
            out[k] = query && text[i] == '+' ? ' ' : text[i];
        }
        if (out[k++] == '\0') {
            free(out);
            return NULL;
        }
    }
    return out;
}

static int add_arg(struct uri *u, const char *text, size_t n)
{
    if (u->n_args >= URI_ARGS_MAX)
        return -E2BIG;
    char *arg = unescape(text, n, true);
    if (!arg)
        return -EINVAL;
    u->args = xrealloc_array(u->args, u->n_args + 2, sizeof *u->args);
    u->args[u->n_args++] = arg;
    u->args[u->n_args] = NULL;
    return 0;
}

/* "k=v&k2&k3=": key, value, key, key; an empty value is left out. */
static int parse_query(struct uri *u, const char *q)
{
    while (*q) {
        size_t n = strcspn(q, "&");
        size_t key = strcspn(q, "=&");
        int r = key > 0 ? add_arg(u, q, key) : 0;
        if (r == 0 && key + 1 < n)
            r = add_arg(u, q + key + 1, n - key - 1);
        if (r < 0)
            return r;
        q += n + (q[n] == '&');
    }
    return 0;
}

static const struct scheme {
    const char *name;
    enum uri_kind kind;
    bool must_confirm;
} schemes[] = {
    {"fifo", URI_PATH, false},
    {"file", URI_FILE, false},
    {"binary", URI_LOGGER, false},
    {"binary-v2", URI_LOGGER, true},
};

static const struct scheme *find_scheme(const char *text, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
        if (strlen(schemes[i].name) == n && memcmp(schemes[i].name, text, n) == 0)
            return &schemes[i];
    return NULL;
}

int uri_parse(const char *text, const char *stream, struct uri **ret, struct err *e)
{
    scoped(uri_free) struct uri *u = xcalloc(1, sizeof *u);

    if (!text || !*text) {
        *ret = take(u);
        return 0;
    }
    if (strlen(text) > URI_MAX)
        return err_set(e, -EINVAL, "%s: the name is longer than %d bytes", stream, URI_MAX);

    const char *rest = strstr(text, "://");
    if (!rest) {
        u->kind = URI_PATH;
        u->path = xstrdup(text);
    } else {
        const struct scheme *s = find_scheme(text, (size_t)(rest - text));
        if (!s)
            return err_set(e, -EINVAL, "%s: unknown STDIO scheme %.*s", stream, (int)MIN(rest - text, 64),
                           text);
        rest += 3;
        size_t n = strcspn(rest, "?");
        u->kind = s->kind;
        u->must_confirm = s->must_confirm;
        u->path = unescape(rest, n, false);
        if (!u->path || (rest[n] && parse_query(u, rest + n + 1) < 0))
            return err_set(e, -EINVAL, "%s: the address is malformed", stream);
    }
    if (u->path[0] != '/')
        return err_set(e, -EINVAL, "%s: \"%.64s\" is not an absolute path", stream, u->path);

    *ret = take(u);
    return 0;
}

void uri_free(struct uri *u)
{
    if (!u)
        return;
    for (size_t i = 0; i < u->n_args; i++)
        free(u->args[i]);
    free(u->args);
    free(u->path);
    free(u);
}
