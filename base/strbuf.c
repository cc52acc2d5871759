#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void strbuf_init(struct strbuf *s, size_t max)
{
    *s = (struct strbuf){.max = max, .cap = 64};
    s->data = xcalloc(1, s->cap);
}

void strbuf_done(struct strbuf *s)
{
    free(s->data);
    *s = (struct strbuf){0};
}

void strbuf_reset(struct strbuf *s)
{
    s->len = 0;
    s->overflow = false;
    s->data[0] = '\0';
}

char *strbuf_reserve(struct strbuf *s, size_t n)
{
    if (n > s->max - s->len || s->overflow) {
        s->overflow = true;
        return NULL;
    }
    if (s->len + n + 1 > s->cap) {
        size_t cap = MAX(s->cap * 2, s->len + n + 1);
        s->data = xrealloc_array(s->data, MIN(cap, s->max + 1), 1);
        s->cap = MIN(cap, s->max + 1);
    }
    return s->data + s->len;
}

void strbuf_add(struct strbuf *s, const void *data, size_t n)
{
    char *p = strbuf_reserve(s, n);
    if (!p)
        return;
    if (n)
        memcpy(p, data, n);
    s->len += n;
    s->data[s->len] = '\0';
}

void strbuf_puts(struct strbuf *s, const char *text)
{
    strbuf_add(s, text, strlen(text));
}

void strbuf_putc(struct strbuf *s, char c)
{
    strbuf_add(s, &c, 1);
}

void strbuf_printf(struct strbuf *s, const char *fmt, ...)
{
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        s->overflow = true; /* longer than INT_MAX */
    char *p = n < 0 ? NULL : strbuf_reserve(s, (size_t)n);
    if (p) {
        (void)vsnprintf(p, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

void strbuf_drop(struct strbuf *s, size_t n)
{
    n = MIN(n, s->len);
    memmove(s->data, s->data + n, s->len - n + 1);
    s->len -= n;
}

char *strbuf_detach(struct strbuf *s)
{
    char *data = s->data;
    size_t max = s->max;

    strbuf_init(s, max);
    return data;
}
