#pragma once
/* What the kernel tells of a process in /proc. */
#include <stdint.h>
#include <sys/types.h>

/*
 * A number of /proc/PID/stat by its place in proc_pid_stat(5), from 3 on (4: ppid): 0 with *ret, or -errno:
 * -ENOENT or -ESRCH when the process (or thread) is gone, -EBADMSG when there is no number at that place.
 */
int proc_stat_field(pid_t pid, unsigned place, uint64_t *ret);
