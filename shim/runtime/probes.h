#pragma once
/*
 * Answers the kubelet's probes of a paused pod, so that a pause does not look like a hang and end in a
 * restart.  (Probes by exec need nothing: exec is refused with an error, and the kubelet throws away a
 * probe that ended in an error.  So a paused pod keeps the readiness that it had.)
 *
 * New TCP connections to the pod that come from an address of this node are led to a listener of ours
 * (probe_steer.h); everyone else's wait in the workload's own queue until Resume.  What is answered:
 *   a TCP probe    the connection
 *   HTTP           200 if the client says that it is kube-probe, 503 "the sandbox is paused" if not
 *   gRPC           SERVING, to a health check (the first call of the connection)
 *   HTTPS          nothing: there is no key; such a probe fails
 * Nothing is read but a bounded beginning, which decides between these answers.  The bytes come from the
 * node's own processes, never from the workload: that is frozen, and its address is not the node's.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct probes;

/* net_ns stays the caller's.  Linux 5.9 and CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN. */
int probes_new(struct loop *loop, int net_ns, struct probes **ret, struct err *e);
void probes_free(struct probes *p); /* the workload's own sockets are reached again; NULL is fine */

/*
 * The next answer to what came so far, or NULL with *done set (close) or not (more must come).  greeted: an
 * answer without *done has been sent; ask again after one.
 */
const char *probes_answer(const unsigned char *got, size_t n, bool greeted, size_t *ret_len, bool *done);

SCOPED_DEFINE(struct probes, probes_free)
