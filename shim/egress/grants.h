#pragma once
/*
 * Which names the pod's resolver has answered with an address, each with an end.  Bounded: when it is
 * full, the grant that ends first goes.  Not thread-safe: the owner locks.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRANTS_MAX 65536

struct ip {         /* v4 in bytes 0-3, the rest zero */
    uint8_t family; /* AF_INET, AF_INET6 */
    uint8_t bytes[16];
};
struct grants;

struct grants *grants_new(size_t max);
void grants_free(struct grants *g);
/* name must be canonical; a later end replaces an earlier one. */
void grants_add(struct grants *g, const struct ip *ip, const char *name, int64_t until_ms);
/* Calls fn for every name that still holds, until it returns true. */
typedef bool (*grants_fn)(void *data, const char *name);
bool grants_each(const struct grants *g, const struct ip *ip, int64_t now_ms, grants_fn fn, void *data);
size_t grants_count(const struct grants *g);
