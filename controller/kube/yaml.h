#pragma once
/* One YAML document as jansson values: the only user of libyaml. */
#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

/*
 * Mappings, sequences and scalars; an unquoted null, ~ or empty scalar is null, unquoted true and false
 * are booleans, every other scalar stays a string.  Aliases, tags of other types, duplicate keys,
 * nesting beyond 32 and more than 100000 nodes are refused (-EINVAL).  *ret is the caller's.
 */
int yaml_parse(const char *text, size_t len, json_t **ret, struct err *e);
