#include "controller/kube/http.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/loop.h"
#include "controller/kube/kubeconfig.h"

#define CONNECT_TIMEOUT_MS 10000
/* A peer that acknowledges nothing for so long is gone (TCP_USER_TIMEOUT, tcp(7)). */
#define DEAD_PEER_MS  20000
#define IDLE_POOL_MAX 64
#define READ_BYTES    (32 << 10) /* two TLS records */

/*
 * libcurl forbids multi calls from inside its callbacks, so transfers wait on `fresh` and leave over
 * `dying` from deferred calls.
 */
struct http {
    struct loop *loop;
    CURLM *multi;
    CURLSH *share;
    struct source *timer, *deferred;
    struct list fresh, running, dying, sockets;
    CURL *idle[IDLE_POOL_MAX];
    size_t n_idle;
    char *connect_to_text;
    struct curl_slist *connect_to;
    const struct kube_config *config;
    char error[CURL_ERROR_SIZE];
    uint64_t connections;
    enum http_mode mode;
    bool http2;
    int64_t distrust_ns; /* connections older than this are not used any more */
};

struct transfer {
    struct list node;
    struct http *http;
    CURL *easy;
    struct transfer_spec spec;
    char *url;
    bool cancelled;
    bool body_refused;
    char error[CURL_ERROR_SIZE];
};

struct socket_watch {
    struct list node;
    struct http *http;
    curl_socket_t fd;
    struct source *source;
};

static void transfer_free(struct transfer *t)
{
    struct http *h = t->http;

    list_remove(&t->node);
    if (t->easy) {
        curl_multi_remove_handle(h->multi, t->easy);
        /* Keeps the handle's buffers for the next transfer; the connections belong to the multi handle. */
        curl_easy_reset(t->easy);
        if (h->n_idle < IDLE_POOL_MAX)
            h->idle[h->n_idle++] = t->easy;
        else
            curl_easy_cleanup(t->easy);
    }
    curl_slist_free_all(t->spec.headers);
    free(t->spec.body);
    free(t->url);
    free(t);
}

static size_t on_body(char *bytes, size_t size, size_t n, void *data)
{
    struct transfer *t = data;

    if (t->cancelled)
        return CURL_WRITEFUNC_ERROR;
    if (t->spec.body_fn && t->spec.body_fn(t->spec.data, bytes, size * n) < 0) {
        t->body_refused = true;
        return CURL_WRITEFUNC_ERROR;
    }
    return size * n;
}

static int on_socket_made(void *data, curl_socket_t fd, curlsocktype purpose)
{
    struct http *h = data;
    unsigned int ms = DEAD_PEER_MS;

    (void)purpose;
    h->connections++;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    return CURL_SOCKOPT_OK;
}

static int take_result(struct transfer *t, CURLcode code, const char **ret_text)
{
    long version = 0;

    curl_easy_getinfo(t->easy, CURLINFO_HTTP_VERSION, &version);
    if (code == CURLE_OK) {
        t->http->http2 = version == CURL_HTTP_VERSION_2_0;
        *ret_text = "";
        return 0;
    }
    *ret_text = *t->error ? t->error : curl_easy_strerror(code);
    if (t->body_refused)
        return -ECANCELED;
    return code == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO;
}

static void drain(struct http *h)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(h->multi, &left))) {
        struct transfer *t = NULL;
        const char *text;
        if (m->msg != CURLMSG_DONE)
            continue;
        CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
        assert(t);
        int r = take_result(t, code, &text);
        if (!t->cancelled)
            t->spec.done(t->spec.data, r, text);
        transfer_free(t);
    }
}

static void begin(struct http *h, struct transfer *t);

/* Outside of libcurl again: take what its callbacks could not do. */
static void settle(struct http *h)
{
    drain(h);
    LIST_FOREACH(n, &h->dying)
    transfer_free(LIST_ENTRY(n, struct transfer, node));
    while (!list_is_empty(&h->fresh))
        begin(h, LIST_ENTRY(h->fresh.next, struct transfer, node));
}

static void on_deferred(void *data)
{
    struct http *h = data;

    h->deferred = NULL;
    settle(h);
}

static void defer(struct http *h)
{
    if (!h->deferred)
        loop_defer(h->loop, on_deferred, h, &h->deferred);
}

static void act(struct http *h, curl_socket_t fd, int what)
{
    int running;

    curl_multi_socket_action(h->multi, fd, what, &running);
    settle(h);
}

static void on_timer(void *data)
{
    act(data, CURL_SOCKET_TIMEOUT, 0);
}

static void on_fd(void *data, uint32_t events)
{
    struct socket_watch *s = data;
    int what = (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
               (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);

    act(s->http, s->fd, what);
}

static int on_socket_wish(CURL *easy, curl_socket_t fd, int what, void *data, void *socket_data)
{
    struct http *h = data;
    struct socket_watch *s = socket_data;

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s) {
            source_free(s->source);
            list_remove(&s->node);
            free(s);
        }
        return 0;
    }
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (s) {
        source_set_events(s->source, events);
        return 0;
    }
    s = xcalloc(1, sizeof *s);
    s->http = h;
    s->fd = fd;
    if (loop_add_fd(h->loop, fd, events, on_fd, s, &s->source) < 0) {
        free(s);
        return -1;
    }
    list_append(&h->sockets, &s->node);
    curl_multi_assign(h->multi, fd, s);
    return 0;
}

static int on_timer_wish(CURLM *multi, long ms, void *data)
{
    struct http *h = data;

    (void)multi;
    source_arm(h->timer, ms);
    return 0;
}

static void set_identity(CURL *easy, const struct kube_config *c)
{
    const struct {
        CURLoption option;
        const char *pem;
    } blobs[] = {{CURLOPT_CAINFO_BLOB, c->ca_pem},
                 {CURLOPT_SSLCERT_BLOB, c->cert_pem},
                 {CURLOPT_SSLKEY_BLOB, c->key_pem}};

    for (size_t i = 0; i < ARRAY_LEN(blobs); i++) {
        if (!blobs[i].pem)
            continue;
        struct curl_blob blob = {.data = (void *)(uintptr_t)blobs[i].pem, .len = strlen(blobs[i].pem)};
        curl_easy_setopt(easy, blobs[i].option, &blob); /* libcurl does not write to it; no CURL_BLOB_COPY */
    }
    /* Inline data wins over a file name, as in client-go. */
    if (c->ca_file && !c->ca_pem)
        curl_easy_setopt(easy, CURLOPT_CAINFO, c->ca_file);
    if (c->cert_file && !c->cert_pem)
        curl_easy_setopt(easy, CURLOPT_SSLCERT, c->cert_file);
    if (c->key_file && !c->key_pem)
        curl_easy_setopt(easy, CURLOPT_SSLKEY, c->key_file);
    curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
}

/* A new certificate authority is seen by every new connection, at most a minute late. */
static void set_connection(struct http *h, CURL *easy)
{
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, h->config->plain_http ? "http,https" : "https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L); /* a redirect could carry the token elsewhere */
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* nor may the environment */
    bool multiplex = h->mode == HTTP_MULTIPLEX;
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                     (long)(multiplex ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(easy, CURLOPT_PIPEWAIT, (long)multiplex);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)READ_BYTES);
    curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 60L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 20L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 5L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket_made);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, h);
    if (h->connect_to)
        curl_easy_setopt(easy, CURLOPT_CONNECT_TO, h->connect_to);
    if (h->distrust_ns) {
        /* Whole seconds are all that libcurl offers: within the first one only a fresh connection is safe. */
        int64_t age = (clock_mono_ns() - h->distrust_ns) / 1000000000;
        if (age < 1)
            curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
        else
            curl_easy_setopt(easy, CURLOPT_MAXLIFETIME_CONN, (long)age);
        if (age > 3600)
            h->distrust_ns = 0;
    }
    set_identity(easy, h->config);
}

static void begin(struct http *h, struct transfer *t)
{
    list_remove(&t->node);
    t->easy = h->n_idle ? h->idle[--h->n_idle] : curl_easy_init();
    if (!t->easy)
        abort(); /* as xcalloc: a small allocation failed */
    set_connection(h, t->easy);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(t->easy, CURLOPT_URL, t->url);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->spec.headers);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    if (t->spec.timeout_ms > 0)
        curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)t->spec.timeout_ms);
    if (t->spec.body) {
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->spec.body_len);
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->spec.body);
    }
    if (t->spec.body || strcmp(t->spec.method, "GET") != 0)
        curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, t->spec.method);
    list_append(&h->running, &t->node);
    curl_multi_add_handle(h->multi, t->easy);
}

struct transfer *http_start(struct http *h, struct transfer_spec spec)
{
    struct transfer *t = xcalloc(1, sizeof *t);

    t->http = h;
    t->spec = spec;
    t->url = xstrdup(spec.url);
    list_append(&h->fresh, &t->node);
    defer(h);
    return t;
}

void transfer_cancel(struct transfer *t)
{
    t->cancelled = true;
    list_remove(&t->node);
    list_append(&t->http->dying, &t->node);
    defer(t->http);
}

int transfer_status(const struct transfer *t)
{
    long status = 0;

    if (t->easy)
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

int64_t transfer_retry_after_ms(const struct transfer *t)
{
    curl_off_t s = 0;

    if (t->easy)
        curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &s);
    return (int64_t)s * 1000;
}

uint64_t http_connections(const struct http *h)
{
    return h->connections;
}

bool http_is_http2(const struct http *h)
{
    return h->http2;
}

void http_distrust(struct http *h)
{
    h->distrust_ns = clock_mono_ns();
}

/*
 * libcurl takes the name for SNI and the certificate check from the URL only, so with a
 * tls-server-name the URL carries that name and CURLOPT_CONNECT_TO the real address.
 */
static void set_connect_to(struct http *h, const struct kube_config *c)
{
    if (!c->tls_server_name)
        return;
    const char *from = strstr(c->server, "://");
    from = from ? from + 3 : c->server;
    scoped_free char *authority = xstrndup(from, strcspn(from, "/"));
    const char *after_v6 = strchr(authority, ']');
    bool port = strchr(after_v6 ? after_v6 : authority, ':') != NULL;
    h->connect_to_text = xasprintf("::%s%s", authority, port ? "" : ":443");
    h->connect_to = curl_slist_append(NULL, h->connect_to_text);
}

char *http_base_url(const struct kube_config *c)
{
    if (!c->tls_server_name)
        return xstrdup(c->server);
    const char *from = strstr(c->server, "://");
    from = from ? from + 3 : c->server;
    return xasprintf("https://%s%s", c->tls_server_name, from + strcspn(from, "/"));
}

int http_new(struct loop *loop, const struct kube_config *config, enum http_mode mode, struct http **ret,
             struct err *e)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(e, -EIO, "libcurl cannot start");
    scoped(http_free) struct http *h = xcalloc(1, sizeof *h);

    h->loop = loop;
    h->config = config;
    h->mode = mode;
    list_init(&h->fresh);
    list_init(&h->running);
    list_init(&h->dying);
    list_init(&h->sockets);
    h->multi = curl_multi_init();
    if (!h->multi)
        return err_set(e, -EIO, "libcurl cannot start");
    int r = loop_add_timer(loop, -1, on_timer, h, &h->timer);
    if (r < 0)
        return err_set(e, r, "timer for libcurl");
    set_connect_to(h, config);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket_wish);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timer_wish);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX);
    curl_multi_setopt(h->multi, CURLMOPT_MAX_CONCURRENT_STREAMS, 100L);
    curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, 16L);
    *ret = take(h);
    return 0;
}

void http_free(struct http *h)
{
    if (!h)
        return;
    struct list *all[] = {&h->fresh, &h->running, &h->dying};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        LIST_FOREACH(n, all[i])
    transfer_free(LIST_ENTRY(n, struct transfer, node));
    while (h->n_idle)
        curl_easy_cleanup(h->idle[--h->n_idle]);
    curl_multi_cleanup(h->multi);
    LIST_FOREACH(n, &h->sockets)
    {
        struct socket_watch *s = LIST_ENTRY(n, struct socket_watch, node);
        source_free(s->source);
        list_remove(n);
        free(s);
    }
    curl_slist_free_all(h->connect_to);
    free(h->connect_to_text);
    source_free(h->timer);
    source_free(h->deferred);
    free(h);
    curl_global_cleanup();
}
