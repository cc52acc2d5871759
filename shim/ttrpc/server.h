#pragma once
/*
 * ttrpc server: accepts connections, cuts frames, finds the method in a static table, and sends
 * answers in whatever order they come.  Reading never waits for writing: what the socket does not
 * take is queued.  Only peers with our own uid and gid are served.
 *
 * A bad request is answered with an error, and the connection stays; containerd takes a closed
 * connection for a dead shim.  One loop, not thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"
#include "shim/ttrpc/code.h"

struct loop;
struct ttrpc_server;
struct ttrpc_call;

/* The call must be answered exactly once, now or later.  payload is valid until the function returns; NULL
 * when len is 0. */
typedef void (*ttrpc_method_fn)(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len);
struct ttrpc_method {
    const char *service, *method;
    ttrpc_method_fn fn;
};

/* listen_fd is taken, on failure too.  The table must outlive the server; data goes to every method. */
int ttrpc_server_new(struct loop *loop, int listen_fd, const struct ttrpc_method *methods, size_t n,
                     void *data, struct ttrpc_server **ret, struct err *e);
/* Closes everything; parked calls are cancelled.  NULL is fine. */
void ttrpc_server_free(struct ttrpc_server *s);
/*
 * fn runs when the last connection has gone, and must not free the server.  Connections that asked for
 * nothing do not count: `start` and `delete` only look whether somebody is there.
 */
void ttrpc_server_on_alone(struct ttrpc_server *s, void (*fn)(void *data), void *data);
bool ttrpc_server_is_alone(const struct ttrpc_server *s); /* nobody is connected */
/* No more connections, the present ones are served on. */
void ttrpc_server_stop_accepting(struct ttrpc_server *s);

/* Each consumes the call; may come at any later time from the loop; harmless when the peer has gone. */
void ttrpc_reply(struct ttrpc_call *call, const uint8_t *payload, size_t len);
void ttrpc_reply_error(struct ttrpc_call *call, enum ttrpc_code code, const char *text);
/*
 * For parked calls (Wait): cancel runs when the connection closes before the reply; the call is freed
 * after it and must not be replied to.  Without it a call whose peer has gone waits for its reply,
 * which then goes nowhere.  fn NULL takes it back.
 */
void ttrpc_call_on_cancel(struct ttrpc_call *call, void (*fn)(void *data), void *data);

/* No reply bytes wait for a socket. */
bool ttrpc_server_idle(const struct ttrpc_server *s);

SCOPED_DEFINE(struct ttrpc_server, ttrpc_server_free)
