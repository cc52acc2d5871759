#pragma once
/* Command-line flags by a table: --name value, --name=value; booleans may stand alone. */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum flag_type { FLAG_STRING, FLAG_BOOL, FLAG_INT, FLAG_DURATION_MS, FLAG_IGNORED, FLAG_IGNORED_BOOL };

struct flag {
    const char *name; /* without the dashes; NULL ends the table */
    enum flag_type type;
    size_t offset;    /* in the struct: const char *, bool, long, long */
    const char *help; /* NULL: accepted for compatibility, not shown */
};

/* Strings point into argv.  -EINVAL: one sentence that names the flag.  1: --help was asked for. */
int flags_parse(const struct flag *flags, int argc, char **argv, void *out, struct err *e);
void flags_print(const struct flag *flags, const char *usage);
/* "1m30s", "250ms", "5m", "0"; -EINVAL. */
int duration_parse(const char *text, long *ret_ms);
