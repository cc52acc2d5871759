#pragma once
/* cgroup counters as the Any that Task.Stats answers with. */
#include <stddef.h>
#include <stdint.h>

struct cgroup_stats;

/* The message (the caller frees) and its bare type name. */
uint8_t *pack_stats(const struct cgroup_stats *s, const char **ret_type, size_t *ret_len);
