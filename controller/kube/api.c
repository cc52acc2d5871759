#include "controller/kube/kube.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/strbuf.h"
#include "controller/kube/auth.h"
#include "controller/kube/json_alloc.h"
#include "controller/kube/kubeconfig.h"
#include "controller/kube/object.h"
#include "controller/kube/scan.h"
#include "controller/kube/window.h"

#define STUCK_MS           1000
#define URL_MAX            16384
#define BODY_MAX           KUBE_OBJECT_MAX
#define DEFAULT_TIMEOUT_MS 30000
#define FIELD_MANAGER      "glovebox-controller"

struct kube {
    struct loop *loop;
    struct kube_config *config;
    struct auth *auth;
    /*
     * Two sets of connections: whenever bytes come, libcurl looks at every transfer of that connection,
     * so a watch in the connection of the calls would cost each call something, and the other way round.
     */
    struct http *http, *streams;
    char *base;
    struct list waiting, waiting_behind, waiting_low, running;
    size_t n_waiting, n_running, n_background;
    struct window window;
    struct source *unstick; /* looks for stuck calls while others wait */
    bool unstick_armed;
    struct kube_stats stats;
};

struct kube_call {
    struct list node;
    struct kube *kube;
    struct transfer *transfer; /* NULL while waiting */
    enum kube_verb verb;
    bool low, background, retried;
    int64_t started_ns;
    char *url;
    char *body;
    size_t body_len;
    int64_t timeout_ms;
    kube_done_fn fn;
    void *data;
    struct strbuf answer;
};

/* How a verb looks in HTTP. */
static const struct {
    const char *method, *content_type;
} verbs[KUBE_VERBS] = {
    [KUBE_GET] = {"GET", NULL},
    [KUBE_CREATE] = {"POST", "application/json"},
    [KUBE_UPDATE] = {"PUT", "application/json"},
    [KUBE_MERGE_PATCH] = {"PATCH", "application/merge-patch+json"},
    [KUBE_JSON_PATCH] = {"PATCH", "application/json-patch+json"},
    [KUBE_STRATEGIC_PATCH] = {"PATCH", "application/strategic-merge-patch+json"},
    [KUBE_APPLY] = {"PATCH", "application/apply-patch+yaml"}, /* JSON is YAML */
    [KUBE_DELETE] = {"DELETE", "application/json"},
};

static const struct {
    int http;
    const char *reason; /* NULL: any */
    int code;
} classes[] = {
    {404, NULL, -ENOENT}, {409, "AlreadyExists", -EEXIST},
    {409, NULL, -ESTALE}, {410, NULL, -ESTALE},
    {401, NULL, -EACCES}, {403, NULL, -EACCES},
    {413, NULL, -EFBIG},  {429, NULL, -EAGAIN},
    {408, NULL, -EAGAIN},
};

int kube_classify(int http, const char *reason)
{
    if (http >= 200 && http < 300)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (classes[i].http == http &&
            (!classes[i].reason || (reason && strcmp(reason, classes[i].reason) == 0)))
            return classes[i].code;
    if (http >= 500)
        return -EAGAIN;
    return http >= 400 ? -EINVAL : -EIO; /* a redirect is no usable answer */
}

static void put_escaped(struct strbuf *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~", c))
            strbuf_putc(out, (char)c);
        else
            strbuf_printf(out, "%%%02X", c);
    }
}

void kube_url(const struct kube *k, struct strbuf *out, const struct kube_resource *r, const char *ns,
              const char *name, const char *sub)
{
    strbuf_puts(out, k->base);
    if (*r->group)
        strbuf_printf(out, "/apis/%s/%s", r->group, r->version);
    else
        strbuf_printf(out, "/api/%s", r->version);
    if (ns && *ns) {
        strbuf_puts(out, "/namespaces/");
        put_escaped(out, ns);
    }
    strbuf_printf(out, "/%s", r->plural);
    if (name) {
        strbuf_putc(out, '/');
        put_escaped(out, name);
    }
    if (sub)
        strbuf_printf(out, "/%s", sub);
}

void kube_url_query(struct strbuf *out, const char *key, const char *value)
{
    strbuf_printf(out, "%c%s=", strchr(out->data, '?') ? '&' : '?', key);
    put_escaped(out, value);
}

struct curl_slist *kube_headers(struct kube *k, const char *content_type)
{
    struct curl_slist *list = curl_slist_append(NULL, "Accept: application/json");
    const char *agent = k->config->user_agent ? k->config->user_agent : "glovebox-controller";
    scoped_free char *user_agent = xasprintf("User-Agent: %s", agent);
    const char *token = auth_header(k->auth);

    list = curl_slist_append(list, user_agent);
    list = curl_slist_append(list, "Expect:"); /* no 100-continue: it costs a round trip */
    if (token)
        list = curl_slist_append(list, token);
    if (content_type) {
        scoped_free char *type = xasprintf("Content-Type: %s", content_type);
        list = curl_slist_append(list, type);
    }
    return list;
}

bool kube_new_token(struct kube *k)
{
    return auth_refresh(k->auth);
}

struct http *kube_streams(struct kube *k)
{
    return k->streams;
}

struct loop *kube_loop(struct kube *k)
{
    return k->loop;
}

struct kube_stats *kube_stats_rw(struct kube *k)
{
    return &k->stats;
}

const struct kube_stats *kube_stats(const struct kube *k)
{
    return &k->stats;
}

size_t kube_in_flight(const struct kube *k)
{
    return k->n_waiting + k->n_running;
}

const char *kube_namespace(const struct kube *k)
{
    return k->config->ns;
}

static void call_free(struct kube_call *c)
{
    if (c->transfer)
        transfer_cancel(c->transfer);
    list_remove(&c->node);
    strbuf_done(&c->answer);
    free(c->url);
    free(c->body);
    free(c);
}

static int on_body(void *data, const char *bytes, size_t n)
{
    struct kube_call *c = data;

    c->kube->stats.bytes_in += n;
    strbuf_add(&c->answer, bytes, n);
    return c->answer.overflow ? -EFBIG : 0;
}

static void read_status(struct kube_result *r, const json_t *status)
{
    const char *reason = obj_str(status, "reason"), *message = obj_str(status, "message");
    int64_t retry = obj_int(status, "details.retryAfterSeconds", 0);

    r->reason = reason ? reason : "";
    if (message && *message)
        r->message = message;
    if (r->retry_after_ms == 0 && retry > 0 && retry < 3600)
        r->retry_after_ms = retry * 1000;
}

static void start_calls(struct kube *k);

/* Fills r from what came; *body becomes the parsed answer, the caller's. */
static void judge(struct kube_call *c, int code, const char *text, json_t **body, struct kube_result *r)
{
    if (c->answer.overflow) {
        *r = (struct kube_result){
            .code = -EFBIG, .http = r->http, .reason = "", .message = "the answer is too large"};
        return;
    }
    if (code < 0) {
        r->code = -EIO;
        r->message = *text ? text : "no answer";
        return;
    }
    size_t n = c->answer.len;
    struct scan scan;
    if (scan_object(c->answer.data, n, &scan) && scan.managed.at) {
        char *at = c->answer.data + (scan.managed.at - c->answer.data);
        memmove(at, at + scan.managed.len, (size_t)(c->answer.data + n - at) - scan.managed.len);
        n -= scan.managed.len;
    }
    *body = json_loadb(c->answer.data, n, JSON_ALLOW_NUL, NULL);
    if (*body && r->http >= 400)
        read_status(r, *body);
    r->code = kube_classify(r->http, r->reason);
    if (r->code == 0 && !*body) {
        r->code = -EIO;
        r->message = "the answer is not JSON";
    }
    if (r->code == 0)
        r->object = *body;
}

static void on_done(void *data, int code, const char *text)
{
    struct kube_call *c = data;
    struct kube *k = c->kube;
    char message[64];
    struct kube_result r = {.reason = "", .message = message, .http = transfer_status(c->transfer)};
    scoped(json_decref) json_t *body = NULL;

    /* Failures come back sooner or later than the work would take. */
    if (code == 0 && r.http < 400)
        window_sample(&k->window, (double)(clock_mono_ns() - c->started_ns) / 1e6, k->n_running);
    k->n_running--;
    k->n_background -= c->background;
    list_remove(&c->node);
    r.retry_after_ms = transfer_retry_after_ms(c->transfer);
    c->transfer = NULL; /* it frees itself after this call */
    if (r.http == 401 && !c->retried && auth_refresh(k->auth)) {
        c->retried = true;
        strbuf_reset(&c->answer);
        list_append(&k->waiting, &c->node);
        k->n_waiting++;
        start_calls(k);
        return;
    }
    if (code == -ETIMEDOUT)
        http_distrust(k->http);
    (void)snprintf(message, sizeof message, "HTTP status %d", r.http);
    judge(c, code, text, &body, &r);
    k->stats.calls[c->verb]++;
    if (r.code < 0)
        k->stats.failed[c->verb]++;
    c->fn(c->data, &r);
    call_free(c);
    start_calls(k);
}

static void start_call(struct kube *k, struct kube_call *c)
{
    struct transfer_spec spec = {
        .method = verbs[c->verb].method,
        .url = c->url,
        .headers = kube_headers(k, c->body ? verbs[c->verb].content_type : NULL),
        .body = c->body ? xmemdup(c->body, c->body_len + 1) : NULL, /* kept for a second try after 401 */
        .body_len = c->body_len,
        .timeout_ms = c->timeout_ms,
        .body_fn = on_body,
        .done = on_done,
        .data = c,
    };

    list_remove(&c->node);
    k->n_waiting--;
    list_append(&k->running, &c->node);
    k->n_running++;
    k->n_background += c->background;
    c->started_ns = clock_mono_ns();
    c->transfer = http_start(k->http, spec);
}

/*
 * Calls that take a second do not stand in the server's queue: they wait for something behind it (an
 * admission webhook, a lock).  They give their place to others, or a handful of them would hold up all.
 */
static size_t stuck_calls(const struct kube *k)
{
    int64_t old = clock_mono_ns() - (int64_t)STUCK_MS * 1000000;
    size_t n = 0;

    for (struct list *l = k->running.next; l != &k->running; l = l->next, n++)
        if (LIST_ENTRY(l, struct kube_call, node)->started_ns > old)
            break;
    return n;
}

static void start_calls(struct kube *k)
{
    size_t stuck = stuck_calls(k), behind = window_background(&k->window) + stuck / 2;
    size_t room = MIN(window_calls(&k->window) + stuck, WINDOW_MAX);

    while (k->n_running < room && !list_is_empty(&k->waiting))
        start_call(k, LIST_ENTRY(k->waiting.next, struct kube_call, node));
    while (k->n_running < room && k->n_background < behind && !list_is_empty(&k->waiting_behind))
        start_call(k, LIST_ENTRY(k->waiting_behind.next, struct kube_call, node));
    /* Events are worth a little of the connection, never a place that a write waits for. */
    while (k->n_running < MAX(room / 4, 2) && !list_is_empty(&k->waiting_low))
        start_call(k, LIST_ENTRY(k->waiting_low.next, struct kube_call, node));
    if (k->n_waiting > 0 && !k->unstick_armed) {
        k->unstick_armed = true;
        source_arm(k->unstick, STUCK_MS);
    }
}

static void on_unstick(void *data)
{
    struct kube *k = data;

    k->unstick_armed = false;
    start_calls(k);
}

static json_t *delete_options(const struct kube_request *req)
{
    json_t *o = json_pack("{s:s,s:s,s:s}", "kind", "DeleteOptions", "apiVersion", "v1", "propagationPolicy",
                          req->propagation ? req->propagation : "Background");

    if (req->uid)
        obj_set(o, "preconditions.uid", json_string(req->uid));
    if (req->version)
        obj_set(o, "preconditions.resourceVersion", json_string(req->version));
    if (req->grace_seconds > 0 || req->grace_seconds == KUBE_GRACE_NOW)
        obj_set(o, "gracePeriodSeconds", json_integer(req->grace_seconds > 0 ? req->grace_seconds : 0));
    return o;
}

static void fill_body(struct kube_call *c, const struct kube_request *req)
{
    scoped(json_decref) json_t *options = req->verb == KUBE_DELETE ? delete_options(req) : NULL;
    const json_t *body = options ? options : req->body;

    if (!body)
        return;
    c->body = json_dumps(body, JSON_COMPACT);
    c->body_len = c->body ? strlen(c->body) : 0;
}

static void fill_url(struct kube_call *c, const struct kube_request *req)
{
    struct strbuf url;

    strbuf_init(&url, URL_MAX);
    kube_url(c->kube, &url, req->resource, req->ns, req->name, req->subresource);
    if (req->verb != KUBE_GET && req->verb != KUBE_DELETE)
        kube_url_query(&url, "fieldManager", FIELD_MANAGER);
    if (req->verb == KUBE_APPLY)
        kube_url_query(&url, "force", "true");
    c->url = strbuf_detach(&url);
    strbuf_done(&url);
}

struct kube_call *kube_call(struct kube *k, const struct kube_request *req, kube_done_fn fn, void *data)
{
    struct kube_call *c = xcalloc(1, sizeof *c);

    c->kube = k;
    c->verb = req->verb;
    c->low = req->low_priority;
    c->background = req->background && !c->low;
    c->timeout_ms = req->timeout_ms > 0 ? req->timeout_ms : DEFAULT_TIMEOUT_MS;
    c->fn = fn;
    c->data = data;
    strbuf_init(&c->answer, BODY_MAX);
    fill_url(c, req);
    fill_body(c, req);
    list_append(c->low ? &k->waiting_low : c->background ? &k->waiting_behind : &k->waiting, &c->node);
    k->n_waiting++;
    start_calls(k);
    return c;
}

void kube_cancel(struct kube_call *c)
{
    struct kube *k = c->kube;

    if (c->transfer) {
        k->n_running--;
        k->n_background -= c->background;
    } else {
        k->n_waiting--;
    }
    call_free(c);
    start_calls(k);
}

int kube_new(struct loop *loop, struct kube_config *config, struct kube **ret, struct err *e)
{
    scoped(kube_free) struct kube *k = xcalloc(1, sizeof *k);

    json_alloc_use();
    k->loop = loop;
    k->config = config;
    k->base = http_base_url(config);
    list_init(&k->waiting);
    list_init(&k->waiting_behind);
    list_init(&k->waiting_low);
    window_init(&k->window);
    list_init(&k->running);
    int r = auth_new(config, &k->auth, e);
    if (r < 0)
        return r;
    r = http_new(loop, config, HTTP_MULTIPLEX, &k->http, e);
    if (r == 0)
        r = http_new(loop, config, HTTP_ONE_EACH, &k->streams, e);
    if (r == 0)
        r = loop_add_timer(loop, -1, on_unstick, k, &k->unstick);
    if (r < 0)
        return r;
    *ret = take(k);
    return 0;
}

void kube_free(struct kube *k)
{
    static const struct kube_result gone = {.code = -ECANCELED, .reason = "", .message = "shutting down"};

    if (!k)
        return;
    struct list *all[] = {&k->running, &k->waiting, &k->waiting_behind, &k->waiting_low};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        while (!list_is_empty(all[i])) {
            struct kube_call *c = LIST_ENTRY(all[i]->next, struct kube_call, node);
            list_remove(&c->node);
            c->fn(c->data, &gone);
            call_free(c);
        }
    source_free(k->unstick);
    http_free(k->http);
    http_free(k->streams);
    auth_free(k->auth);
    kube_config_free(k->config);
    free(k->base);
    free(k);
}
