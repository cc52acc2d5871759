#pragma once
/*
 * Host names as policy sees them: one canonical form, used by every part, so that no two of them can
 * read the same bytes differently.  Anything odd is rejected, never repaired.
 */
#include <stdbool.h>
#include <stddef.h>

#define NAME_MAX_BYTES 254 /* 253 and the NUL */

/*
 * Lower case, without the final dot.  Allowed: letters, digits, '-', '_', labels of 1-63 bytes, 253 in
 * all (RFC 1035 3.1; '_' because SRV-style names are in use).  len counts, so that a NUL inside is seen.
 * 0, or -EINVAL.
 */
int name_canonical(const char *text, size_t len, char out[NAME_MAX_BYTES]);

enum name_pattern { NAME_EXACT, NAME_ONE_LABEL /* *.x */, NAME_ANY_DEPTH /* **.x */ };
/* Splits "*.x.y" and "**.x.y"; out gets the rest in canonical form.  0, or -EINVAL. */
int name_pattern_parse(const char *text, enum name_pattern *ret, char out[NAME_MAX_BYTES]);
/* The name behind the first label, or NULL. */
const char *name_parent(const char *name);
