#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

void *xcalloc(size_t n, size_t size)
{
    return must(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc_array(void *p, size_t n, size_t size)
{
    return must(reallocarray(p, n ? n : 1, size ? size : 1));
}

char *xstrdup(const char *s)
{
    return s ? must(strdup(s)) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
    return must(strndup(s, n));
}

char *xasprintf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    return s;
}

void *xmemdup(const void *p, size_t n)
{
    void *copy = xcalloc(1, n);

    if (n)
        memcpy(copy, p, n);
    return copy;
}

void *xgrow(void *items, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return items;
    *cap = *cap ? *cap * 2 : 8;
    return xrealloc_array(items, *cap, size);
}
