#pragma once
/*
 * The names of standard streams as containerd gives them: "" (null device), an absolute path or
 * fifo:// (usually a FIFO), file://, binary:// and binary-v2:// (a logger program).  Pure.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/scoped.h"

enum uri_kind { URI_NULL, URI_PATH, URI_FILE, URI_LOGGER };

struct uri {
    enum uri_kind kind;
    char *path; /* absolute; NULL for URI_NULL */
    char *
        *args; /* URI_LOGGER: keys and values of the query in order, without the program; n_args and a NULL */
    size_t n_args;
    bool must_confirm; /* binary-v2: end of file on the ready pipe without a byte is a failure */
};

/* -EINVAL: unknown scheme or a path that is not absolute; `stream` ("stdout") names it in the text. */
int uri_parse(const char *text, const char *stream, struct uri **ret, struct err *e);
void uri_free(struct uri *u);

SCOPED_DEFINE(struct uri, uri_free)
