#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (!e)
        return code;

    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    e->code = code;
    return code;
}

int err_sys(struct err *e, const char *fmt, ...)
{
    int saved = errno ? errno : EIO;

    if (e) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
        size_t n = strlen(e->text);
        (void)snprintf(e->text + n, sizeof e->text - n, ": %s", strerror(saved));
        e->code = -saved;
    }
    errno = saved;
    return -saved;
}

int err_wrap(struct err *e, int code, const char *fmt, ...)
{
    if (!e)
        return code;

    char before[ERR_TEXT_MAX];
    memcpy(before, e->text, sizeof before);
    before[sizeof before - 1] = '\0';

    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    size_t n = strlen(e->text);
    if (before[0])
        (void)snprintf(e->text + n, sizeof e->text - n, ": %s", before);
    e->code = code;
    return code;
}

const char *err_text(const struct err *e)
{
    return e && e->text[0] ? e->text : "unknown error";
}
