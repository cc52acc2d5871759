#pragma once
/* Private part of space.c: what there is to move. */
#include "shim/hibernate/space.h"

/* Fills s->regions from /proc/PID/smaps. */
int regions_find(struct space *s, struct err *e);
/* Calls fn for every range of pages that hold something, in rising order. <0 from fn ends it. */
typedef int (*region_page_fn)(void *data, uint64_t start, uint64_t end);
int regions_scan(const struct space *s, region_page_fn fn, void *data, struct err *e);
