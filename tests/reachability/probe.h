#pragma once
/*
 * Harmless probes of kernel entry points that known privilege escalations need.  Each row names the
 * call and the results that can only come from the kernel's own code for that entry (REACHED); every
 * other result means that a filter, an interposer or a missing feature answered.
 */
#include <stddef.h>

#define PROBE_REACHED_MAX 6
#define PROBE_OK          (-1) /* in `reached`: any success */

struct probe;
typedef long (*probe_fn)(const struct probe *p); /* the result, or -errno */

struct probe {
    const char *group, *name;
    probe_fn run;
    long arg[7];
    const char *text;
    int reached[PROBE_REACHED_MAX]; /* PROBE_OK or errno values, 0 ends */
    long key;                       /* the call that must have reached the kernel; 0 = what the runner says */
};

/* Runners that rows share. */
long run_syscall(const struct probe *p); /* arg[0] number, arg[1..6] arguments */
long run_socket(const struct probe *p);  /* arg: domain, type, protocol */
long run_setsockopt(
    const struct probe *p); /* arg: domain, type, level, name, length, first byte; text = value */
long run_getsockopt(const struct probe *p); /* arg: domain, type, level, name, length */
long run_open(const struct probe *p);       /* text = path, arg[0] flags */
long run_sock_ioctl(const struct probe *p); /* arg: request */
long run_pty_ioctl(const struct probe *p);  /* arg: request, value */

extern const struct probe probes_kernel[], probes_net[], probes_runtime[];
extern const size_t probes_kernel_n, probes_net_n, probes_runtime_n;
