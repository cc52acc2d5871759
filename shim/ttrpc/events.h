#pragma once
/*
 * Sends containerd its events, in order, over its ttrpc socket.  The caller never waits: events are
 * queued, and kept while containerd is away (the shim outlives its restarts).  The queue is bounded;
 * when it is full the oldest event that is not an exit goes first, because a lost exit is a container
 * that never ends for those who listen.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct events;

#define EVENTS_QUEUE_MAX 4096

/* ttrpc_address: a path, with or without unix://; NULL or "" = events go nowhere (counted as dropped). */
int events_new(struct loop *loop, const char *ttrpc_address, const char *ns, struct events **ret,
               struct err *e);
/* Copies.  type is the bare message name ("containerd.events.TaskExit"). */
void events_publish(struct events *ev, const char *topic, const char *type, const uint8_t *msg, size_t len);
bool events_idle(const struct events *ev); /* nothing is queued or on its way */
uint64_t events_dropped(const struct events *ev);
void events_free(struct events *ev); /* what is still queued is lost; NULL is fine */

SCOPED_DEFINE(struct events, events_free)
