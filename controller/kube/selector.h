#pragma once
/* Does an object belong to a watch?  Needed to put the answer to a write in the right caches. */
#include <jansson.h>
#include <stdbool.h>

/*
 * 1 yes, 0 no, -EINVAL: a form that is not understood here.  Labels: "a=b", "a==b", "a!=b", "a", "!a",
 * separated by commas.  Fields: "path=value" and "path!=value".  NULL selects everything.
 */
int selector_match_labels(const char *selector, const json_t *o);
int selector_match_fields(const char *selector, const json_t *o);
