#pragma once
/*
 * What a container sees of the machine: synthetic files for /proc and a small /sys, showing the pod's
 * limits.  One tmpfs holds all of it ("proc", "sys", "empty"); the builder binds from there, read-only,
 * and the shim keeps the proc directory to rewrite it when the limits change.
 */
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct view_facts {
    int cpus; /* shown; 0 = no limit: cpuinfo and stat stay the kernel's */
    int host_cpus;
    int64_t memory_bytes; /* 0 = no limit: meminfo stays the kernel's */
    int64_t host_memory_bytes, huge_page_bytes;
    int64_t boot_time;            /* seconds */
    char *cpuinfo;                /* stanzas of the first `cpus` processors */
    char *thp_enabled, *thp_size; /* of the host */
    char *version;
};
/* Reads the host's facts: to be called where the host's /proc and /sys are. */
void view_facts_read(int64_t cpu_milli, int64_t memory_bytes, struct view_facts *ret);
void view_facts_done(struct view_facts *f);

/* Names (in /proc) of the synthetic files that stand for these facts. n <= VIEW_FILES_MAX. */
#define VIEW_FILES_MAX 12
size_t view_proc_names(const struct view_facts *f, const char *out[VIEW_FILES_MAX]);
/* Writes the files of /proc into dir, in place if they exist (binds of them show the new text). */
int view_write_proc(int dir, const struct view_facts *f, struct err *e);
/* The /sys tree, with mount points below fs/cgroup for `cgroups`. */
int view_write_sys(int dir, const struct view_facts *f, const char *const *cgroups, size_t n_cgroups,
                   struct err *e);

/* For the shim, after an update of the limits: rewrites launch_result.proc_view_fd. */
int launch_view_update(int proc_view_fd, int64_t cpu_milli, int64_t memory_bytes, struct err *e);
