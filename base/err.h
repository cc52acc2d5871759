#pragma once
/*
 * Errors: functions return 0 (done), a negative errno (failed: pass it on) or a positive value that
 * the header documents and only the direct caller handles.  The text for a human travels in a
 * caller-owned `struct err`, which may be NULL.  Every function here returns `code`, so reporting is
 * one line: return err_set(e, -EINVAL, "...").
 */
#include "base/macro.h"

#define ERR_TEXT_MAX 512

struct err {
    int code; /* negative errno, 0 = nothing set */
    char text[ERR_TEXT_MAX];
};

/* The message replaces whatever was there. */
int err_set(struct err *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* "what: strerror(errno)"; returns -errno (-EIO if errno is 0). */
int err_sys(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Puts "what: " before the text that is there. */
int err_wrap(struct err *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
const char *err_text(const struct err *e); /* never NULL */
