#pragma once
/* Hash map from strings to pointers.  Keys are copied; values belong to the caller. */
#include <stddef.h>

#include "base/macro.h"

struct map;

struct map *map_new(void);
void map_free(struct map *m);                               /* NULL is fine; values are not freed */
void *map_get(const struct map *m, const char *key);        /* NULL: absent */
void *map_put(struct map *m, const char *key, void *value); /* value != NULL; returns the old value */
void *map_remove(struct map *m, const char *key);           /* returns the old value */
size_t map_count(const struct map *m);
/* Iterate: start with *cursor = 0; false at the end.  Only the current key may be removed meanwhile. */
int map_next(const struct map *m, size_t *cursor, const char **ret_key, void **ret_value);
