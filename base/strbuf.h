#pragma once
/*
 * Growable string with a hard cap.  `data` is never NULL after strbuf_init and always terminated;
 * `len` excludes the NUL.  After an append that would pass the cap the buffer keeps what it had and
 * `overflow` stays set: check it once, at the end.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"

struct strbuf {
    char *data;
    size_t len, cap, max;
    bool overflow;
};

void strbuf_init(struct strbuf *s, size_t max);
void strbuf_done(struct strbuf *s);
void strbuf_reset(struct strbuf *s);
void strbuf_add(struct strbuf *s, const void *data, size_t n);
void strbuf_puts(struct strbuf *s, const char *text);
void strbuf_putc(struct strbuf *s, char c);
void strbuf_printf(struct strbuf *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Room for n more bytes to be written at data + len by the caller; NULL past the cap. */
char *strbuf_reserve(struct strbuf *s, size_t n);
void strbuf_drop(struct strbuf *s, size_t n); /* forget the first n bytes */
char *strbuf_detach(struct strbuf *s);        /* the caller frees; the buffer is empty again */
static inline void strbuf_done_scoped(struct strbuf *s)
{
    strbuf_done(s);
}
#define scoped_strbuf __attribute__((cleanup(strbuf_done_scoped)))
