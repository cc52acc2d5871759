#pragma once
/* A bounded memory of parsed objects: who uses one twice in a short time parses it once. */
#include <jansson.h>
#include <stddef.h>

struct parsed;
struct parsed_cache;

/* value is stolen.  *owner becomes NULL when the entry is forgotten. */
struct parsed *parsed_add(struct parsed_cache *c, json_t *value, struct parsed **owner);
/* The value, borrowed until parsed_trim; the entry is now the youngest. */
const json_t *parsed_use(struct parsed_cache *c, struct parsed *p);
void parsed_drop(struct parsed_cache *c, struct parsed *p); /* NULL is fine */
