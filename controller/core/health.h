#pragma once
/*
 * The small HTTP/1.1 server of /healthz, /readyz and /metrics: GET and HEAD, one answer a connection.
 * Bounded against whoever can reach the port: 32 connections, 4 KiB of request, 5 s each.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct health;
struct strbuf;

struct health_route { /* static const; a closing row has path NULL */
    const char *path;
    const char *content_type; /* NULL: text/plain */
    /* Writes the body and returns the HTTP status. */
    int (*answer)(void *data, struct strbuf *out);
};

/* address: "host:port", "[v6]:port" or ":port" for every address.  Port 0 takes a free one. */
int health_new(struct loop *loop, const char *address, const struct health_route *routes, void *data,
               struct health **ret, struct err *e);
void health_free(struct health *h);
int health_port(const struct health *h);

SCOPED_DEFINE(struct health, health_free)
