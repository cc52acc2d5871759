#pragma once
/*
 * ttrpc client on a unix socket: any number of calls at a time, each answered once, with a time limit.
 * One loop, not thread-safe; nothing here waits.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"
#include "shim/ttrpc/code.h"

struct loop;
struct ttrpc_client;

/* "unix:///path", "/path", or "@name" / "unix://@name" (abstract).  Returns a connected non-blocking socket
 * or -errno. */
int ttrpc_dial(const char *address, struct err *e);

/* fd is taken, on failure too. */
int ttrpc_client_new(struct loop *loop, int fd, struct ttrpc_client **ret, struct err *e);
int ttrpc_client_connect(struct loop *loop, const char *address, struct ttrpc_client **ret, struct err *e);
/* Calls in flight are forgotten: their done is not called.  NULL is fine; may be called from any callback. */
void ttrpc_client_free(struct ttrpc_client *c);
/* The connection has ended; all calls in flight have got TTRPC_UNAVAILABLE before.  New calls get it too. */
void ttrpc_client_on_closed(struct ttrpc_client *c, void (*fn)(void *data), void *data);

/* code TTRPC_OK: payload holds the answer (NULL when empty); otherwise text is the reason.  Valid during the
 * call. */
typedef void (*ttrpc_done_fn)(void *data, enum ttrpc_code code, const char *text, const uint8_t *payload,
                              size_t len);

struct ttrpc_request {
    const char *service, *method;
    const char *ns; /* containerd namespace for the metadata; NULL = none */
    const uint8_t *payload;
    size_t len;
    int64_t timeout_ms; /* 0 = none; also told to the server.  A late answer is ignored. */
};
/* payload is copied.  done is called once, from the loop, never from in here. */
void ttrpc_client_call(struct ttrpc_client *c, const struct ttrpc_request *q, ttrpc_done_fn done, void *data);

SCOPED_DEFINE(struct ttrpc_client, ttrpc_client_free)
