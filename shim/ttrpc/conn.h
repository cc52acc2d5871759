#pragma once
/*
 * One ttrpc connection: cuts what it reads into frames and queues what the socket does not take yet,
 * so that reading never waits for writing (both ends filling each other's buffers would be a standstill).
 * Server and client are both built on it.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/scoped.h"
#include "shim/ttrpc/frame.h"

struct loop;
struct ttrpc_conn;

struct ttrpc_conn_events {
    /* A whole frame; payload is valid until the function returns.  payload is NULL when the frame was
     * longer than the limit: its bytes are skipped. */
    void (*frame)(void *data, const struct ttrpc_frame *f, const uint8_t *payload);
    /* The peer will send no more, but may still read what is due (it did shutdown(2), not close). */
    void (*half_closed)(void *data);
    /* The queue has become empty; may be NULL. */
    void (*drained)(void *data);
    /* The connection is of no more use: peer gone, broken, or too far behind with reading. Last call. */
    void (*closed)(void *data);
    void *data;
};

/* fd is taken, on failure too, and made non-blocking. */
int ttrpc_conn_new(struct loop *loop, int fd, const struct ttrpc_conn_events *ev, struct ttrpc_conn **ret,
                   struct err *e);
/* No callback comes after this; may be called from one.  Unsent bytes are lost.  NULL is fine. */
void ttrpc_conn_free(struct ttrpc_conn *c);
/* Sends or queues header and payload; f->len is the payload's. A broken peer is reported by closed(), later.
 */
void ttrpc_conn_send(struct ttrpc_conn *c, const struct ttrpc_frame *f, const uint8_t *payload);
bool ttrpc_conn_idle(const struct ttrpc_conn *c); /* nothing is queued */

SCOPED_DEFINE(struct ttrpc_conn, ttrpc_conn_free)
