#pragma once
/*
 * Kubernetes Events, for people who run `kubectl describe`.
 *
 * The same event again within ten minutes raises the count of the first one instead of making another.
 * An object may have a burst of 20 events and then one every 30 seconds; the rest is counted and
 * dropped, and so is what waits behind 512 others.  Events never delay a write: they are low priority,
 * unacknowledged and lost at a restart.
 */
#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "controller/kube/api.h"

struct recorder;

int recorder_new(struct loop *loop, struct kube *k, const char *component, const char *instance,
                 struct recorder **ret, struct err *e);
void recorder_free(struct recorder *r);

/* The involvedObject of an event; a new reference. */
json_t *recorder_reference(const struct kube_resource *resource, const json_t *about);
void recorder_add(struct recorder *r, const json_t *reference, const char *type, const char *reason,
                  const char *note);

struct recorder_stats {
    uint64_t sent, merged, dropped, failed;
};
const struct recorder_stats *recorder_stats(const struct recorder *r);
