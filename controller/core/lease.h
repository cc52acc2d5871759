#pragma once
/*
 * Leader election on a coordination.k8s.io Lease.
 *
 * The holder renews every `retry_ms`; it stops leading when it could not renew for `renew_ms`, which is
 * before others may take the lease (`lease_ms` without a change).  Others judge by how long THEY have
 * seen the record unchanged on their own monotonic clock, never by the times in it, so wall clocks may
 * jump or differ.  Every write carries the resourceVersion that was read: of two that try, one wins.
 */
#include <stdbool.h>
#include <stdint.h>

#include "controller/kube/api.h"

struct lease;

struct lease_options {
    const char *ns, *name;
    const char *identity;                 /* unique: pod name or host name, plus something random */
    int64_t lease_ms, renew_ms, retry_ms; /* 0: 15000, 10000, 2000 */
    /* true: we lead.  false: not any more, and the caller must stop writing at once. */
    void (*changed)(void *data, bool leading);
    void *data;
};

/* Strings are copied.  Starts at once. */
int lease_new(struct loop *loop, struct kube *k, const struct lease_options *o, struct lease **ret,
              struct err *e);
void lease_free(struct lease *l); /* does not release */
/* Gives the lease back so that another takes it at once, then calls done; at most 2 s. */
void lease_release(struct lease *l, void (*done)(void *data), void *data);

bool lease_is_leading(const struct lease *l);
const char *lease_holder(const struct lease *l); /* last seen; "" = nobody */

SCOPED_DEFINE(struct lease, lease_free)
