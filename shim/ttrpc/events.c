#include "shim/ttrpc/events.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "forward.pb-c.h"
#include "shim/ttrpc/client.h"

#define TIMEOUT_MS       5000
#define BACKOFF_FIRST_MS 20
#define BACKOFF_MAX_MS   1000
#define REFUSALS_MAX     5

static const char service[] = "containerd.services.events.ttrpc.v1.Events";
static const char method[] = "Forward";
static const char exit_type[] = "containerd.events.TaskExit";

struct events {
    struct loop *loop;
    char *address, *ns;
    struct list queue; /* the head may be in flight */
    size_t n;
    struct ttrpc_client *client;
    struct source *retry; /* armed while we wait before the next attempt */
    bool in_flight, waiting;
    int64_t backoff_ms;
    uint64_t dropped;
};

struct event {
    struct list node;
    bool is_exit;
    unsigned refused; /* times containerd itself said no */
    size_t len;
    uint8_t bytes[]; /* ForwardRequest */
};

static void send_next(struct events *ev);

static void event_free(struct events *ev, struct event *item)
{
    list_remove(&item->node);
    free(item);
    ev->n--;
}

static struct event *head(struct events *ev)
{
    return LIST_ENTRY(ev->queue.next, struct event, node);
}

/* ---- when it does not work ---- */

static void on_retry(void *data)
{
    struct events *ev = data;

    ev->waiting = false;
    send_next(ev);
}

static void wait_a_while(struct events *ev)
{
    if (ev->waiting)
        return;
    ev->waiting = true;
    source_arm(ev->retry, ev->backoff_ms);
    ev->backoff_ms = MIN(ev->backoff_ms * 2, BACKOFF_MAX_MS);
}

static void disconnect(struct events *ev)
{
    ttrpc_client_free(ev->client);
    ev->client = NULL;
}

static void on_closed(void *data)
{
    struct events *ev = data;

    /* containerd went away or restarts.  Dialled again when there is something to say. */
    disconnect(ev);
}

static void drop(struct events *ev, struct event *item, const char *why)
{
    log_warn("an event is dropped", "reason=%s", why);
    event_free(ev, item);
    ev->dropped++;
}

/* Codes that another attempt may change. */
static bool worth_a_retry(enum ttrpc_code code)
{
    return code == TTRPC_UNAVAILABLE || code == TTRPC_DEADLINE_EXCEEDED || code == TTRPC_CANCELED ||
           code == TTRPC_UNKNOWN || code == TTRPC_INTERNAL;
}

static void on_answer(void *data, enum ttrpc_code code, const char *text, const uint8_t *payload UNUSED,
                      size_t len UNUSED)
{
    struct events *ev = data;

    ev->in_flight = false;
    if (code == TTRPC_OK) {
        ev->backoff_ms = BACKOFF_FIRST_MS;
        event_free(ev, head(ev));
        send_next(ev);
        return;
    }
    log_debug("an event was not taken", "code=%d reason=%s", code, text);
    if (code == TTRPC_UNAVAILABLE || code == TTRPC_DEADLINE_EXCEEDED) {
        /* No answer is no refusal: containerd may be stopped for an hour and come back. */
        disconnect(ev);
    } else if (!worth_a_retry(code) || ++head(ev)->refused >= REFUSALS_MAX) {
        drop(ev, head(ev), text);
        send_next(ev);
        return;
    }
    wait_a_while(ev);
}

/* ---- sending ---- */

/*
 * One at a time: containerd runs the calls of one connection in parallel, so only the answer to one
 * event makes sure that the next one is seen after it.
 */
static void send_next(struct events *ev)
{
    if (ev->in_flight || ev->waiting || list_is_empty(&ev->queue))
        return;
    if (!ev->client) {
        if (ttrpc_client_connect(ev->loop, ev->address, &ev->client, NULL) < 0) {
            wait_a_while(ev);
            return;
        }
        ttrpc_client_on_closed(ev->client, on_closed, ev);
    }
    struct ttrpc_request q = {
        .service = service,
        .method = method,
        .ns = ev->ns,
        .payload = head(ev)->bytes,
        .len = head(ev)->len,
        .timeout_ms = TIMEOUT_MS,
    };
    ev->in_flight = true;
    ttrpc_client_call(ev->client, &q, on_answer, ev);
}

static struct event *event_new(const struct events *ev, const char *topic, const char *type,
                               const uint8_t *msg, size_t len)
{
    Google__Protobuf__Timestamp at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;
    Containerd__Services__Events__Ttrpc__V1__Envelope envelope =
        CONTAINERD__SERVICES__EVENTS__TTRPC__V1__ENVELOPE__INIT;
    Containerd__Services__Events__Ttrpc__V1__ForwardRequest request =
        CONTAINERD__SERVICES__EVENTS__TTRPC__V1__FORWARD_REQUEST__INIT;
    struct timespec now = clock_wall();

    at.seconds = now.tv_sec;
    at.nanos = (int32_t)now.tv_nsec;
    any.type_url = (char *)(uintptr_t)type;
    any.value.data = (uint8_t *)(uintptr_t)msg;
    any.value.len = len;
    envelope.timestamp = &at;
    envelope.namespace_ = ev->ns;
    envelope.topic = (char *)(uintptr_t)topic;
    envelope.event = &any;
    request.envelope = &envelope;

    size_t n = containerd__services__events__ttrpc__v1__forward_request__get_packed_size(&request);
    struct event *item = xcalloc(1, sizeof *item + n);
    item->len = containerd__services__events__ttrpc__v1__forward_request__pack(&request, item->bytes);
    item->is_exit = strcmp(type, exit_type) == 0;
    list_init(&item->node);
    return item;
}

/* Room for one more: the oldest that is no exit goes, else the oldest; never the one in flight. */
static void make_room(struct events *ev)
{
    struct event *victim = NULL;

    LIST_FOREACH(n, &ev->queue)
    {
        struct event *item = LIST_ENTRY(n, struct event, node);
        if (ev->in_flight && item == head(ev))
            continue;
        if (!victim)
            victim = item;
        if (item->is_exit)
            continue;
        victim = item;
        break;
    }
    if (victim)
        drop(ev, victim, "too many are waiting");
}

void events_publish(struct events *ev, const char *topic, const char *type, const uint8_t *msg, size_t len)
{
    if (!ev->address) {
        ev->dropped++;
        return;
    }
    if (ev->n >= EVENTS_QUEUE_MAX)
        make_room(ev);
    struct event *item = event_new(ev, topic, type, msg, len);
    list_append(&ev->queue, &item->node);
    ev->n++;
    send_next(ev);
}

bool events_idle(const struct events *ev)
{
    return list_is_empty(&ev->queue);
}

uint64_t events_dropped(const struct events *ev)
{
    return ev->dropped;
}

int events_new(struct loop *loop, const char *ttrpc_address, const char *ns, struct events **ret,
               struct err *e)
{
    scoped(events_free) struct events *ev = xcalloc(1, sizeof *ev);

    ev->loop = loop;
    ev->address = ttrpc_address && ttrpc_address[0] ? xstrdup(ttrpc_address) : NULL;
    ev->ns = xstrdup(ns);
    ev->backoff_ms = BACKOFF_FIRST_MS;
    list_init(&ev->queue);
    int r = loop_add_timer(loop, -1, on_retry, ev, &ev->retry);
    if (r < 0)
        return err_set(e, r, "timer for events");
    *ret = take(ev);
    return 0;
}

void events_free(struct events *ev)
{
    if (!ev)
        return;
    disconnect(ev);
    source_free(ev->retry);
    while (!list_is_empty(&ev->queue))
        event_free(ev, head(ev));
    free(ev->address);
    free(ev->ns);
    free(ev);
}
