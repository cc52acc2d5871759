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

#include "base/scoped.h"

struct egress_range;
struct loop;
struct pod;
struct cgroup;
struct sentry;

struct sentry_params {
    const struct pod *pod;
    const struct cgroup *cgroup;     /* the sentry's own leaf */
    int audit_fd;                    /* denials as JSON lines, taken by dup; -1 = none */
    bool debug;                      /* one line per refused call: process, call, arguments, rule */
    int64_t cpu_milli, memory_bytes; /* the pod's limits for sysinfo and sched_getaffinity; 0 = the host's */
    const struct egress_range
        *hard_deny; /* addresses that no pod of this node may reach (egress.h); used before return */
    size_t n_hard_deny;
};
struct sentry_events {
    /* The sentry died (status as from waitpid) without being asked: the pod must be killed now. */
    void (*died)(void *data, int status);
    void *data;
};

/* Installs the socket guard (cgroup BPF), forks the process, waits until it runs under its filter. */
int sentry_start(struct loop *loop, const struct sentry_params *p, const struct sentry_events *ev,
                 struct sentry **ret, struct err *e);
void sentry_stop(struct sentry *s); /* kills, NULL is fine */
pid_t sentry_pid(const struct sentry *s);
bool sentry_reaped(struct sentry *s, pid_t pid, int status); /* from the reaper; true if it was the sentry */

/* Hand over a listener (taken, on failure too).  Returns after the sentry has confirmed that it serves it. */
int sentry_add_listener(struct sentry *s, int listener_fd, const char *container_id, struct err *e);
/*
 * A pause has two steps, because a blocked call can be given back to the kernel for a restart only once
 * the freezer has been requested (until then it would reach the program as an odd error number):
 *
 *   sentry_quiesce()         stop receiving; done when nothing short is in flight
 *   cgroup_freeze(true)      its write has returned; calls of the pod that nobody receives freeze by
 * themselves sentry_release_parked()  blocked calls (a connect that waits) are answered so that the kernel
 * restarts them after the thaw, without EINTR; done when nothing at all is in flight cgroup_frozen() == 1
 *   ...
 *   cgroup_freeze(false), sentry_unquiesce()
 *
 * When a pause is given up half way: thaw, then sentry_unquiesce().  `done` is called from the loop.
 */
int sentry_quiesce(struct sentry *s, void (*done)(void *data), void *data, struct err *e);
/* The same for the blocked calls of one container, while others of the pod run on; the freezer tells when
 * they are gone. */
int sentry_release_container(struct sentry *s, const char *container_id, struct err *e);
int sentry_release_parked(struct sentry *s, void (*done)(void *data), void *data, struct err *e);
int sentry_unquiesce(struct sentry *s, struct err *e);
int sentry_set_limits(struct sentry *s, int64_t cpu_milli, int64_t memory_bytes, struct err *e);
/*
 * The pod's egress policy as JSON (shim/egress/policy.h); NULL: none any more.  -EINVAL: it is not one, and
 * the old policy stays in force.
 */
int sentry_set_policy(struct sentry *s, const char *json, size_t len, struct err *e);
int sentry_confirm_policy(struct sentry *s, struct err *e);
/*
 * Makes the sentry the pod's resolver: resolv_conf is the text of the pod's /etc/resolv.conf.  Its
 * nameservers' addresses are put on the pod's loopback, with the answerer behind them; the real ones are
 * asked from the network namespace of the shim.  Once per pod.
 */
int sentry_serve_dns(struct sentry *s, const struct pod *pod, const char *resolv_conf, struct err *e);
/*
 * How often calls were refused, since the start: only calls that come to the sentry; what the filter
 * refuses by itself nobody sees.  Fills at most `max`, returns how many there are.
 */
struct sentry_count {
    const char *call;
    uint64_t n;
};
size_t sentry_refused(const struct sentry *s, struct sentry_count *out, size_t max);
/* For `delete` after a killed shim: removes what sentry_start made on the host for this pod. */
int sentry_clean_up(const char *pod_id);

SCOPED_DEFINE(struct sentry, sentry_stop)
