#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The arguments may point into e->text, so the new text is made elsewhere first. */
static void replace(struct err *e, int code, const char *fmt, va_list ap, const char *after)
{
    char text[ERR_TEXT_MAX];

    (void)vsnprintf(text, sizeof text, fmt, ap);
    size_t n = strlen(text);
    if (after)
        (void)snprintf(text + n, sizeof text - n, ": %s", after);
    memcpy(e->text, text, strlen(text) + 1);
    e->code = code;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return code;
    va_start(ap, fmt);
    replace(e, code, fmt, ap, NULL);
    va_end(ap);
    return code;
}

int err_sys(struct err *e, const char *fmt, ...)
{
    int saved = errno ? errno : EIO;
    va_list ap;

    if (e) {
        va_start(ap, fmt);
        replace(e, -saved, fmt, ap, strerror(saved));
        va_end(ap);
    }
    errno = saved;
    return -saved;
}

int err_wrap(struct err *e, int code, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return code;
    e->text[sizeof e->text - 1] = '\0';
    va_start(ap, fmt);
    replace(e, code, fmt, ap, e->text[0] ? e->text : NULL);
    va_end(ap);
    return code;
}

const char *err_text(const struct err *e)
{
    return e && e->text[0] ? e->text : "unknown error";
}
