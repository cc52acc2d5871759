#include "controller/kube/watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/random.h"
#include "base/strbuf.h"
#include "controller/kube/kube.h"
#include "controller/kube/object.h"
#include "controller/kube/stream.h"

#define PAGE_DEFAULT      500
#define URL_MAX           16384
#define ERROR_BODY_MAX    65536
#define BACKOFF_MIN_MS    250
#define BACKOFF_MAX_MS    30000
#define OPTIONAL_RETRY_MS 30000
#define PAGE_TIMEOUT_MS   60000
/* A bookmark comes about once a minute (kube-apiserver since 1.15), so longer silence means a dead peer. */
#define SILENCE_MAX_MS    150000
#define WATCH_SECONDS_MIN 300 /* the server ends the stream after so long, up to twice */
#define VERSION_MAX       64
/* Watches that end at once, without an event, are a fault even when the server calls them fine. */
#define SHORT_WATCH_MS 1000

enum state { WAITING, LISTING, WATCHING };

struct watch {
    struct kube *kube;
    const struct watch_spec *spec;
    enum state state;
    struct transfer *transfer;
    struct list_stream *list;
    struct line_stream *lines;
    struct strbuf error_body;
    struct source *timer;      /* WAITING: try again; WATCHING: silence */
    char version[VERSION_MAX]; /* "" = must list */
    char *next_page;
    uint64_t list_version, seen_version;
    bool synced, forget_version, fresh_token_tried;
    uint32_t failures;
    int64_t started_ms, heard_ms;
    uint64_t events_before; /* this stream */
    struct watch_stats stats;
    struct err error;
};

static void start(struct watch *w);
static void on_timer(void *data);

static void stop_transfer(struct watch *w)
{
    if (w->transfer)
        transfer_cancel(w->transfer);
    w->transfer = NULL;
    list_stream_free(take(w->list));
    line_stream_free(take(w->lines));
    strbuf_reset(&w->error_body);
}

static void wait_ms(struct watch *w, int64_t ms)
{
    stop_transfer(w);
    w->state = WAITING;
    source_arm(w->timer, ms);
}

static void back_off(struct watch *w, int64_t at_least_ms)
{
    int64_t ms = (int64_t)BACKOFF_MIN_MS << MIN(w->failures, 7u);

    w->failures++;
    w->stats.errors++;
    if (w->spec->trouble)
        w->spec->trouble(w->spec->data, w->failures, w->error.text);
    ms = MIN(ms, BACKOFF_MAX_MS);
    wait_ms(w, MAX(at_least_ms, random_around(ms)));
}

static void list_again(struct watch *w)
{
    w->version[0] = '\0';
    free(take(w->next_page));
}

static void set_version(struct watch *w, const char *version)
{
    uint64_t n;

    if (!version || strlen(version) >= sizeof w->version)
        return;
    (void)snprintf(w->version, sizeof w->version, "%s", version);
    if (parse_u64(version, UINT64_MAX, &n) == 0 && n > w->seen_version)
        w->seen_version = n;
}

static void on_item(void *data, json_t *item)
{
    struct watch *w = data;

    w->spec->object(w->spec->data, item);
}

/* An ERROR event: 410 means the version is too old, anything else is a passing fault. */
static void on_error_event(struct watch *w, const json_t *status)
{
    const char *message = obj_str(status, "message");
    int64_t code = obj_int(status, "code", 0);

    if (code == 410) {
        w->stats.expired++;
        list_again(w);
    }
    err_set(&w->error, kube_classify((int)code, NULL), "%s", message ? message : "watch error");
    line_stream_stop(w->lines); /* the server closes the stream after it */
}

static void on_event(void *data, enum watch_type type, json_t *object)
{
    struct watch *w = data;

    if (type == WATCH_ERROR) {
        on_error_event(w, object);
        return;
    }
    set_version(w, obj_version(object));
    if (type == WATCH_BOOKMARK) {
        w->stats.bookmarks++;
        return;
    }
    w->stats.events++;
    if (type == WATCH_DELETED)
        w->spec->deleted(w->spec->data, object);
    else
        w->spec->object(w->spec->data, object);
}

static bool copy_slice(struct slice s, char *out, size_t size)
{
    if (s.len >= size)
        return false;
    memcpy(out, s.at ? s.at : "", s.len);
    out[s.len] = '\0';
    return true;
}

static bool on_known(void *data, const struct scan *s)
{
    struct watch *w = data;
    char ns[64], name[256], uid[64], version[VERSION_MAX];
    uint64_t n = slice_number(s->version);

    if (n == 0 || !copy_slice(s->ns, ns, sizeof ns) || !copy_slice(s->name, name, sizeof name) ||
        !copy_slice(s->uid, uid, sizeof uid) || !copy_slice(s->version, version, sizeof version) ||
        !w->spec->known(w->spec->data, ns, name, uid, n))
        return false;
    set_version(w, version);
    w->stats.events++;
    return true;
}

static int on_body(void *data, const char *bytes, size_t n)
{
    struct watch *w = data;

    w->heard_ms = clock_mono_ms();
    kube_stats_rw(w->kube)->bytes_in += n;
    if (transfer_status(w->transfer) != 200) {
        strbuf_add(&w->error_body, bytes, n);
        return w->error_body.overflow ? -EFBIG : 0;
    }
    w->fresh_token_tried = false;
    if (w->list)
        return list_stream_feed(w->list, bytes, n, &w->error);
    line_stream_feed(w->lines, bytes, n);
    return 0;
}

/* An answer that is no list and no stream. */
static void on_refused(struct watch *w, int http, int64_t retry_ms)
{
    scoped(json_decref) json_t *status =
        json_loadb(w->error_body.data, w->error_body.len, JSON_ALLOW_NUL, NULL);
    const char *reason = obj_str(status, "reason"), *message = obj_str(status, "message");

    err_set(&w->error, kube_classify(http, reason), "HTTP status %d%s%.300s", http, message ? ": " : "",
            message ? message : "");
    if (http == 401 && !w->fresh_token_tried && kube_new_token(w->kube)) {
        w->fresh_token_tried = true;
        wait_ms(w, 0);
        return;
    }
    if (http == 404 && w->spec->optional) {
        if (w->state == WATCHING) /* it was there: its objects are gone with it */
            w->spec->list_begin(w->spec->data);
        w->spec->list_end(w->spec->data, UINT64_MAX, false);
        w->synced = true;
        list_again(w);
        wait_ms(w, random_around(OPTIONAL_RETRY_MS));
        return;
    }
    /* 504 with this reason text in its message: the version is newer than all the server knows. */
    bool future = http == 504 && message && strstr(message, "Too large resource version");
    if (http == 410 || http == 404 || http == 400 || future) {
        w->stats.expired += http == 410;
        list_again(w);
    }
    back_off(w, MIN(retry_ms, 60000));
}

static void next_page_or_watch(struct watch *w)
{
    const char *version, *next;
    int r = list_stream_end(w->list, &version, &next, &w->error);
    uint64_t n;

    if (r < 0) {
        list_again(w);
        back_off(w, 0);
        return;
    }
    w->stats.pages++;
    free(w->next_page);
    w->next_page = *next ? xstrdup(next) : NULL;
    if (parse_u64(version, UINT64_MAX, &n) < 0)
        n = 0;
    w->list_version = n;
    if (!w->next_page) {
        bool rewound = w->seen_version > n;
        w->seen_version = 0;
        set_version(w, version);
        w->stats.lists++;
        w->synced = true;
        w->failures = 0;
        w->spec->list_end(w->spec->data, n, rewound);
        if (rewound)
            list_again(w); /* objects of this list may have been taken for stale ones */
    }
    w->error = (struct err){0};
    stop_transfer(w);
    start(w);
}

static void watch_ended(struct watch *w, int code, const char *text)
{
    bool quick = clock_mono_ms() - w->started_ms < SHORT_WATCH_MS && w->stats.events == w->events_before;

    w->stats.dropped += line_stream_dropped(w->lines);
    if (w->error.code == 0 && code == 0 && !quick) {
        w->failures = 0;
        wait_ms(w, random_around(20));
        return;
    }
    if (w->error.code == 0)
        err_set(&w->error, code ? code : -EIO, "watch ended: %s", code ? text : "at once");
    if (!quick && code != 0)
        w->failures = 0; /* it worked before */
    if (!*w->version)
        wait_ms(w, random_around(BACKOFF_MIN_MS)); /* expired: list soon, but not all kinds in one moment */
    else
        back_off(w, 0);
}

static void on_done(void *data, int code, const char *text)
{
    struct watch *w = data;
    int http = transfer_status(w->transfer);
    int64_t retry_ms = transfer_retry_after_ms(w->transfer);

    w->transfer = NULL;
    source_arm(w->timer, -1);
    if (http != 0 && http != 200) {
        on_refused(w, http, retry_ms);
        return;
    }
    if (w->state == WATCHING) {
        watch_ended(w, code, text);
        return;
    }
    if (code == 0) {
        next_page_or_watch(w);
        return;
    }
    if (code == -ETIMEDOUT)
        http_distrust(kube_streams(w->kube));
    if (code != -ECANCELED) /* then the parser has said why */
        err_set(&w->error, code, "list: %s", text);
    list_again(w);
    back_off(w, 0);
}

static void add_selectors(struct watch *w, struct strbuf *url)
{
    if (w->spec->label_selector)
        kube_url_query(url, "labelSelector", w->spec->label_selector);
    if (w->spec->field_selector)
        kube_url_query(url, "fieldSelector", w->spec->field_selector);
}

static void add_number(struct strbuf *url, const char *key, int n)
{
    char text[16];

    (void)snprintf(text, sizeof text, "%d", n);
    kube_url_query(url, key, text);
}

static void send_request(struct watch *w, const char *url, int64_t timeout_ms)
{
    struct transfer_spec spec = {.method = "GET",
                                 .url = url,
                                 .headers = kube_headers(w->kube, NULL),
                                 .timeout_ms = timeout_ms,
                                 .body_fn = on_body,
                                 .done = on_done,
                                 .data = w};

    w->started_ms = clock_mono_ms();
    w->transfer = http_start(kube_streams(w->kube), spec);
}

static void start_list(struct watch *w)
{
    struct strbuf url;

    w->state = LISTING;
    if (list_stream_new(KUBE_OBJECT_MAX, on_item, w, &w->list, &w->error) < 0) {
        back_off(w, 0);
        return;
    }
    if (!w->next_page)
        w->spec->list_begin(w->spec->data);
    kube_stats_rw(w->kube)->lists++;
    strbuf_init(&url, URL_MAX);
    kube_url(w->kube, &url, w->spec->resource, w->spec->ns, NULL, NULL);
    add_number(&url, "limit", w->spec->page ? w->spec->page : PAGE_DEFAULT);
    if (w->next_page)
        kube_url_query(&url, "continue", w->next_page);
    add_selectors(w, &url);
    send_request(w, url.data, PAGE_TIMEOUT_MS);
    strbuf_done(&url);
}

static void start_watch(struct watch *w)
{
    struct strbuf url;

    w->state = WATCHING;
    w->lines = line_stream_new(KUBE_OBJECT_MAX, on_event, w);
    if (w->spec->known)
        line_stream_set_known(w->lines, on_known);
    w->stats.streams++;
    w->events_before = w->stats.events;
    kube_stats_rw(w->kube)->watches++;
    strbuf_init(&url, URL_MAX);
    kube_url(w->kube, &url, w->spec->resource, w->spec->ns, NULL, NULL);
    kube_url_query(&url, "watch", "true");
    kube_url_query(&url, "allowWatchBookmarks", "true");
    kube_url_query(&url, "resourceVersion", w->version);
    add_number(&url, "timeoutSeconds", WATCH_SECONDS_MIN + (int)(random_u32() % WATCH_SECONDS_MIN));
    add_selectors(w, &url);
    send_request(w, url.data, 0);
    strbuf_done(&url);
    w->heard_ms = clock_mono_ms();
    source_arm(w->timer, SILENCE_MAX_MS);
}

static void start(struct watch *w)
{
    w->error = (struct err){0};
    if (*w->version && !w->next_page)
        start_watch(w);
    else
        start_list(w);
}

static void on_timer(void *data)
{
    struct watch *w = data;

    if (w->state == WAITING) {
        start(w);
        return;
    }
    int64_t silent = clock_mono_ms() - w->heard_ms;
    if (silent < SILENCE_MAX_MS) {
        source_arm(w->timer, SILENCE_MAX_MS - silent);
        return;
    }
    err_set(&w->error, -ETIMEDOUT, "watch: nothing heard for %d s", SILENCE_MAX_MS / 1000);
    http_distrust(kube_streams(w->kube));
    back_off(w, 0);
}

int watch_new(struct kube *k, const struct watch_spec *spec, struct watch **ret, struct err *e)
{
    struct watch *w = xcalloc(1, sizeof *w);

    w->kube = k;
    w->spec = spec;
    w->heard_ms = clock_mono_ms();
    strbuf_init(&w->error_body, ERROR_BODY_MAX);
    int r = loop_add_timer(kube_loop(k), 0, on_timer, w, &w->timer);
    if (r < 0) {
        watch_free(w);
        return err_set(e, r, "timer of a watch");
    }
    *ret = w;
    return 0;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    stop_transfer(w);
    source_free(w->timer);
    strbuf_done(&w->error_body);
    free(w->next_page);
    free(w);
}

void watch_relist(struct watch *w)
{
    list_again(w);
    w->failures = 0;
    wait_ms(w, 0);
}

bool watch_is_synced(const struct watch *w)
{
    return w->synced;
}

int64_t watch_silent_ms(const struct watch *w)
{
    return clock_mono_ms() - w->heard_ms;
}

const struct watch_stats *watch_stats(const struct watch *w)
{
    return &w->stats;
}

const char *watch_last_error(const struct watch *w)
{
    return w->error.text;
}
