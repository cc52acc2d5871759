/* cgroupsPath -> a path below a hierarchy's mount point.  Pure. */
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/strbuf.h"
#include "shim/cgroup/internal.h"

#define PATH_LIMIT 4000

static bool ends_with(const char *s, size_t n, const char *tail)
{
    size_t t = strlen(tail);
    return n >= t && memcmp(s + n - t, tail, t) == 0;
}

bool cg_path_is_systemd(const char *p)
{
    const char *first = strchr(p, ':');
    const char *second = first ? strchr(first + 1, ':') : NULL;

    return second && !strchr(second + 1, ':') && !strchr(p, '/');
}

/* "a-b.slice" is inside of "a.slice": systemd keeps the tree in the names. */
static int expand_slice(struct strbuf *out, const char *slice, size_t n, struct err *e)
{
    const size_t stem = n - strlen(".slice");

    if (stem == 1 && slice[0] == '-')
        return 0; /* "-.slice" is the root */
    for (size_t i = 0; i <= stem; i++) {
        if (i < stem && slice[i] != '-')
            continue;
        if (i == 0 || slice[i - 1] == '-')
            return err_set(e, -EINVAL, "linux.cgroupsPath names no systemd slice: \"%.*s\"", (int)MIN(n, 128),
                           slice);
        strbuf_printf(out, "%s%.*s.slice", out->len ? "/" : "", (int)i, slice);
    }
    return 0;
}

/* For a path that cg_path_is_systemd(): it has its two colons. */
static int expand_systemd(const char *p, struct strbuf *out, struct err *e)
{
    static const char usual[] = "system.slice";
    size_t n_slice = strcspn(p, ":");
    const char *slice = n_slice ? p : usual, *prefix = p + n_slice + 1;
    size_t n_prefix = strcspn(prefix, ":");
    const char *name = prefix + n_prefix + 1;
    n_slice = n_slice ? n_slice : strlen(usual);

    if (!name[0] || strlen(name) > 200 || n_prefix > 40 || n_slice > 1000)
        return err_set(e, -EINVAL,
                       "linux.cgroupsPath must be \"slice:prefix:name\" with a name, not \"%.128s\"", p);
    if (!ends_with(slice, n_slice, ".slice") || n_slice == strlen(".slice"))
        return err_set(e, -EINVAL, "linux.cgroupsPath must name a slice that ends in .slice, not \"%.*s\"",
                       (int)n_slice, slice);
    int r = expand_slice(out, slice, n_slice, e);
    if (r < 0)
        return r;
    strbuf_puts(out, out->len ? "/" : "");
    if (ends_with(name, strlen(name), ".slice"))
        strbuf_puts(out, name);
    else
        strbuf_printf(out, "%.*s%s%s.scope", (int)n_prefix, prefix, n_prefix ? "-" : "", name);
    return 0;
}

/* Components without "" and "."; ".." would leave the place that the engine chose, however it is meant. */
static int expand_plain(const char *p, struct strbuf *out, struct err *e)
{
    for (const char *c = p; *c;) {
        size_t n = strcspn(c, "/");
        if (n == 2 && c[0] == '.' && c[1] == '.')
            return err_set(e, -EINVAL, "linux.cgroupsPath must not contain \"..\": \"%.256s\"", p);
        if (n > 255)
            return err_set(e, -EINVAL, "linux.cgroupsPath has a component of more than 255 bytes");
        if (n > 0 && !(n == 1 && c[0] == '.')) {
            strbuf_puts(out, out->len ? "/" : "");
            strbuf_add(out, c, n);
        }
        c += n + (c[n] == '/');
    }
    return 0;
}

int cg_path_expand(const char *p, char **ret, bool *ret_relative, struct err *e)
{
    if (!p || !p[0])
        return err_set(e, -EINVAL, "linux.cgroupsPath is missing");
    for (const char *c = p; *c; c++)
        if ((unsigned char)*c < 0x20)
            return err_set(e, -EINVAL, "linux.cgroupsPath has a control character in it");

    scoped_strbuf struct strbuf out;
    strbuf_init(&out, PATH_LIMIT);
    bool systemd = cg_path_is_systemd(p);
    int r = systemd ? expand_systemd(p, &out, e) : expand_plain(p, &out, e);
    if (r < 0)
        return r;
    if (out.overflow)
        return err_set(e, -ENAMETOOLONG, "linux.cgroupsPath is longer than %d bytes", PATH_LIMIT);
    if (out.len == 0)
        return err_set(e, -EINVAL, "linux.cgroupsPath is the root group: \"%.256s\"", p);
    *ret_relative = !systemd && p[0] != '/';
    *ret = strbuf_detach(&out);
    return 0;
}
