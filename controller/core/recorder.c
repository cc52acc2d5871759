#include "controller/core/recorder.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/map.h"
#include "base/random.h"
#include "controller/kube/object.h"

#define SAME_WINDOW_MS 600000
#define BURST          20
#define REFILL_MS      30000
#define PENDING_MAX    512
#define REMEMBER_MAX   4096
#define NOTE_MAX       1024 /* bytes; the API server refuses longer ones */

static const struct kube_resource events = {"", "v1", "events", "Event", false};

/* What was said lately, and how much one object may still say. */
struct said {
    struct list node; /* on recent, oldest first */
    char *key;
    char *ns, *name; /* of the Event object */
    uint64_t count;
    int64_t at_ms;
    struct kube_call *call; /* in flight */
    bool behind;            /* the count grew meanwhile */
    struct recorder *recorder;
};
struct budget {
    struct list node;
    char *uid;
    int64_t tokens_ms; /* tokens times REFILL_MS, so that it refills smoothly */
    int64_t at_ms;
};

struct recorder {
    struct kube *kube;
    const char *component, *instance;
    struct map *said, *budgets;
    struct list recent, recent_budgets;
    size_t pending;
    struct recorder_stats stats;
};

int recorder_new(struct loop *loop, struct kube *k, const char *component, const char *instance,
                 struct recorder **ret, struct err *e)
{
    struct recorder *r = xcalloc(1, sizeof *r);

    (void)loop;
    (void)e;
    r->kube = k;
    r->component = component;
    r->instance = instance;
    r->said = map_new();
    r->budgets = map_new();
    list_init(&r->recent);
    list_init(&r->recent_budgets);
    *ret = r;
    return 0;
}

static void said_free(struct said *s)
{
    if (s->call)
        kube_cancel(s->call);
    list_remove(&s->node);
    free(s->key);
    free(s->ns);
    free(s->name);
    free(s);
}

static void budget_free(struct budget *b)
{
    list_remove(&b->node);
    free(b->uid);
    free(b);
}

void recorder_free(struct recorder *r)
{
    if (!r)
        return;
    LIST_FOREACH(n, &r->recent)
    said_free(LIST_ENTRY(n, struct said, node));
    LIST_FOREACH(n, &r->recent_budgets)
    budget_free(LIST_ENTRY(n, struct budget, node));
    map_free(r->said);
    map_free(r->budgets);
    free(r);
}

json_t *recorder_reference(const struct kube_resource *resource, const json_t *about)
{
    scoped_free char *api = *resource->group ? xasprintf("%s/%s", resource->group, resource->version)
                                             : xstrdup(resource->version);

    return json_pack("{s:s,s:s,s:s?,s:s,s:s?,s:s?}", "apiVersion", api, "kind", resource->kind, "name",
                     obj_name(about), "namespace", obj_ns(about), "uid", obj_uid(about), "resourceVersion",
                     obj_version(about));
}

static bool may_say(struct recorder *r, const char *uid, int64_t now)
{
    struct budget *b = map_get(r->budgets, uid);

    if (!b) {
        b = xcalloc(1, sizeof *b);
        b->uid = xstrdup(uid);
        b->tokens_ms = BURST * REFILL_MS;
        list_append(&r->recent_budgets, &b->node);
        map_put(r->budgets, uid, b);
        if (map_count(r->budgets) > REMEMBER_MAX) {
            struct budget *oldest = LIST_ENTRY(r->recent_budgets.next, struct budget, node);
            map_remove(r->budgets, oldest->uid);
            budget_free(oldest);
        }
    } else {
        b->tokens_ms = MIN(b->tokens_ms + (now - b->at_ms), (int64_t)BURST * REFILL_MS);
    }
    b->at_ms = now;
    if (b->tokens_ms < REFILL_MS)
        return false;
    b->tokens_ms -= REFILL_MS;
    return true;
}

static void now_text(char out[OBJ_TIME_MAX])
{
    struct timespec t = clock_wall();

    obj_format_time((int64_t)t.tv_sec * 1000, out);
}

static void send_count(struct said *s);

static void forget(struct recorder *r, struct said *s)
{
    if (map_get(r->said, s->key) == s)
        map_remove(r->said, s->key);
    said_free(s);
}

static void on_sent(void *data, const struct kube_result *result)
{
    struct said *s = data;
    struct recorder *r = s->recorder;

    r->pending--;
    s->call = NULL;
    if (result->code < 0) {
        r->stats.failed++;
        forget(r, s); /* the next one makes a new Event */
        return;
    }
    r->stats.sent++;
    if (s->behind)
        send_count(s);
}

static void send(struct said *s, enum kube_verb verb, json_t *body)
{
    struct kube_request req = {.verb = verb,
                               .resource = &events,
                               .ns = s->ns,
                               .name = verb == KUBE_CREATE ? NULL : s->name,
                               .body = body,
                               .low_priority = true};

    s->behind = false;
    s->recorder->pending++;
    s->call = kube_call(s->recorder->kube, &req, on_sent, s);
    json_decref(body);
}

static void send_count(struct said *s)
{
    char now[OBJ_TIME_MAX];

    now_text(now);
    send(s, KUBE_MERGE_PATCH, json_pack("{s:I,s:s}", "count", (json_int_t)s->count, "lastTimestamp", now));
}

static void say_again(struct recorder *r, struct said *s, int64_t now)
{
    s->count++;
    s->at_ms = now;
    list_remove(&s->node);
    list_append(&r->recent, &s->node);
    r->stats.merged++;
    if (s->call)
        s->behind = true;
    else
        send_count(s);
}

/* Cuts at a character, not inside one. */
static char *cut(const char *note)
{
    size_t n = strnlen(note, NOTE_MAX + 1);

    if (n > NOTE_MAX)
        for (n = NOTE_MAX; n > 0 && ((unsigned char)note[n] & 0xc0) == 0x80;)
            n--;
    return xstrndup(note, n);
}

static void say_first(struct recorder *r, struct said *s, const json_t *ref, const char *type,
                      const char *reason, const char *note)
{
    const char *about = obj_str(ref, "name");
    scoped_free char *text = cut(note);
    char now[OBJ_TIME_MAX];

    now_text(now);
    struct timespec t = clock_wall();
    s->ns = xstrdup(*obj_str(ref, "namespace") ? obj_str(ref, "namespace") : "default");
    s->name = xasprintf("%.200s.%llx%04x", about,
                        (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec,
                        random_u32() & 0xffff);
    json_t *body =
        json_pack("{s:s,s:s,s:{s:s,s:s},s:O,s:s,s:s,s:s,s:s,s:s,s:i,s:{s:s,s:s},s:s,s:s}", "apiVersion", "v1",
                  "kind", "Event", "metadata", "name", s->name, "namespace", s->ns, "involvedObject", ref,
                  "type", type, "reason", reason, "message", text, "firstTimestamp", now, "lastTimestamp",
                  now, "count", 1, "source", "component", r->component, "host", r->instance,
                  "reportingComponent", r->component, "reportingInstance", r->instance);
    send(s, KUBE_CREATE, body);
}

static void forget_old(struct recorder *r, int64_t now)
{
    LIST_FOREACH(n, &r->recent)
    {
        struct said *s = LIST_ENTRY(n, struct said, node);
        if (now - s->at_ms < SAME_WINDOW_MS && map_count(r->said) <= REMEMBER_MAX)
            break;
        if (!s->call)
            forget(r, s);
    }
}

void recorder_add(struct recorder *r, const json_t *ref, const char *type, const char *reason,
                  const char *note)
{
    const char *uid = obj_str(ref, "uid"), *name = obj_str(ref, "name");
    int64_t now = clock_mono_ms();

    if (!uid || !name || !obj_str(ref, "namespace"))
        return;
    forget_old(r, now);
    if (r->pending >= PENDING_MAX || !may_say(r, uid, now)) {
        r->stats.dropped++;
        return;
    }
    scoped_free char *key = xasprintf("%s\x1f%s\x1f%s\x1f%s", uid, type, reason, note);
    struct said *s = map_get(r->said, key);
    if (s) {
        say_again(r, s, now);
        return;
    }
    s = xcalloc(1, sizeof *s);
    s->recorder = r;
    s->key = xstrdup(key);
    s->count = 1;
    s->at_ms = now;
    list_append(&r->recent, &s->node);
    map_put(r->said, key, s);
    say_first(r, s, ref, type, reason, note);
}

const struct recorder_stats *recorder_stats(const struct recorder *r)
{
    return &r->stats;
}
