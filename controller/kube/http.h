#pragma once
/*
 * HTTPS transfers on the loop: libcurl's multi interface, HTTP/2 with many transfers on a connection
 * where the server offers it, HTTP/1.1 with keep-alive where not.  Knows nothing of Kubernetes.
 *
 * The server's certificate is always checked, against the given CA only.
 */
#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct http;
struct transfer;
struct kube_config;

struct transfer_spec {
    const char *method;         /* static */
    const char *url;            /* copied */
    struct curl_slist *headers; /* taken */
    char *body;                 /* taken; NULL: none */
    size_t body_len;
    int64_t timeout_ms; /* whole transfer; 0: none */
    /*
     * Both may run inside libcurl: no new transfer is started before they return, and a negative value
     * from body ends the transfer with -ECANCELED.  body sees what came with any status.
     */
    int (*body_fn)(void *data, const char *bytes, size_t n);
    /* Last call, from the loop.  code 0 or -EIO, -ETIMEDOUT, -ECANCELED; text says why. */
    void (*done)(void *data, int code, const char *text);
    void *data;
};

enum http_mode {
    HTTP_MULTIPLEX, /* HTTP/2, many transfers in a connection, where the server has it */
    HTTP_ONE_EACH   /* HTTP/1.1, a connection for each transfer at a time, kept for the next */
};
int http_new(struct loop *loop, const struct kube_config *config, enum http_mode mode, struct http **ret,
             struct err *e);
void http_free(struct http *h); /* transfers that are left end without a call of done */

/* What URLs for this server begin with; the caller's. */
char *http_base_url(const struct kube_config *config);

struct transfer *http_start(struct http *h, struct transfer_spec spec);
/* No further callback.  Fine from inside any callback. */
void transfer_cancel(struct transfer *t);
int transfer_status(const struct transfer *t);             /* HTTP status, 0 before the answer */
int64_t transfer_retry_after_ms(const struct transfer *t); /* 0: the server did not say */

/* Connections opened since the start, and whether the last finished transfer used HTTP/2. */
uint64_t http_connections(const struct http *h);
bool http_is_http2(const struct http *h);
/* The next transfers open a new connection: the old one is suspect. */
void http_distrust(struct http *h);

SCOPED_DEFINE(struct http, http_free)
