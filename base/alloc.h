#pragma once
/*
 * Allocation that aborts on failure, for small or fixed sizes.  Whatever a peer, a guest, a file or
 * the API server sizes must go through a function that has a maximum (strbuf, fd_read_all).
 */
#include <stddef.h>

#include "base/macro.h"

void *xcalloc(size_t n, size_t size) MUST_CHECK;
void *xrealloc_array(void *p, size_t n, size_t size) MUST_CHECK;
char *xstrdup(const char *s) MUST_CHECK; /* NULL gives NULL */
char *xstrndup(const char *s, size_t n) MUST_CHECK;
char *xasprintf(const char *fmt, ...) PRINTF_LIKE(1, 2) MUST_CHECK;
void *xmemdup(const void *p, size_t n) MUST_CHECK;

/* Grow *items (n used, *cap allocated) so that one more of `size` bytes fits. */
void *xgrow(void *items, size_t n, size_t *cap, size_t size) MUST_CHECK;
