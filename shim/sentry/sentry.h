#pragma once
/*
 * The sentry as the shim sees it: one process per pod that answers the containers' notified system
 * calls.  It is root of the pod's user namespace only, lives in the pod's CNI network namespace, in an
 * empty mount namespace, under its own seccomp filter.  It parses everything hostile; the shim talks
 * to it with small fixed messages over a SOCK_SEQPACKET pair and never reads workload bytes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct loop;
struct pod;
struct cgroup;
struct sentry;

struct sentry_params {
    const struct pod *pod;
    const struct cgroup *cgroup; /* the sentry's own leaf */
    int audit_fd;                /* denials as JSON lines, taken by dup; -1 = none */
    bool debug;                  /* one line per refused call: process, call, arguments, rule */
    int64_t cpu_milli, memory_bytes; /* the pod's limits for sysinfo and sched_getaffinity; 0 = the host's */
};
struct sentry_events {
    /* The sentry died (status as from waitpid) without being asked: the pod must be killed now. */
    void (*died)(void *data, int status);
    void *data;
};

/* Installs the socket guard (cgroup BPF), forks the process, waits until it runs under its filter. */
int sentry_start(struct loop *loop, const struct sentry_params *p, const struct sentry_events *ev, struct sentry **ret,
                 struct err *e);
void sentry_stop(struct sentry *s); /* kills, NULL is fine */
pid_t sentry_pid(const struct sentry *s);
bool sentry_reaped(struct sentry *s, pid_t pid, int status); /* from the reaper; true if it was the sentry */

/* Hand over a listener (taken, on failure too).  Returns after the sentry has confirmed that it serves it. */
int sentry_add_listener(struct sentry *s, int listener_fd, const char *container_id, struct err *e);
/*
 * Before a pause: stop receiving, answer everything in flight (a parked blocking call is answered so
 * that the kernel restarts it after the thaw, never with EINTR); done is called when nothing is in flight.
 */
int sentry_quiesce(struct sentry *s, void (*done)(void *data), void *data, struct err *e);
int sentry_unquiesce(struct sentry *s, struct err *e);
int sentry_set_limits(struct sentry *s, int64_t cpu_milli, int64_t memory_bytes, struct err *e);
