#include "controller/core/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/random.h"
#include "controller/kube/object.h"

#define LEASE_MS   15000
#define RENEW_MS   10000
#define RETRY_MS   2000
#define RELEASE_MS 2000

static const struct kube_resource leases = {"coordination.k8s.io", "v1", "leases", "Lease", false};

/*
 *   timer -> GET -> ours, free or stale: PUT (or POST) -> leading, timer
 *                -> held by another: timer
 * Holding it, the PUT goes without a GET; a conflict brings back the GET.
 */
struct lease {
    struct loop *loop;
    struct kube *kube;
    struct lease_options opt;
    char *ns, *name, *identity, *holder;
    struct source *timer, *deadline;
    struct kube_call *call;
    json_t *record;   /* as read or written last; NULL: must be read */
    char *seen;       /* what identifies the record's state */
    int64_t seen_ms;  /* when we first saw that state, monotonic */
    int64_t asked_ms; /* when the call in flight was sent */
    bool leading, releasing, release_sent;
    void (*released)(void *data);
    void *released_data;
};

static void forget_record(struct lease *l)
{
    json_decref(l->record);
    l->record = NULL;
}

static void again(struct lease *l)
{
    source_arm(l->timer, random_around(l->opt.retry_ms));
}

static void set_leading(struct lease *l, bool leading)
{
    if (l->leading == leading)
        return;
    l->leading = leading;
    if (!leading)
        source_arm(l->deadline, -1);
    l->opt.changed(l->opt.data, leading);
}

static void end_release(struct lease *l)
{
    void (*fn)(void *) = l->released;

    l->released = NULL;
    source_arm(l->timer, -1);
    source_arm(l->deadline, -1);
    if (fn)
        fn(l->released_data); /* may free the lease */
}

/* Remembers the record and since when it has looked like this. */
static void note_record(struct lease *l, json_t *o)
{
    const char *holder = obj_str(o, "spec.holderIdentity"), *renewed = obj_str(o, "spec.renewTime");
    char *state = xasprintf("%s %s %s", holder ? holder : "", renewed ? renewed : "", obj_version(o));

    json_incref(o);
    forget_record(l);
    l->record = o;
    free(l->holder);
    l->holder = xstrdup(holder ? holder : "");
    if (!l->seen || strcmp(l->seen, state) != 0) {
        free(l->seen);
        l->seen = state;
        l->seen_ms = clock_mono_ms();
    } else {
        free(state);
    }
}

static bool may_take(const struct lease *l)
{
    /* The holder's own duration counts: it may have been configured longer than ours. */
    int64_t theirs = obj_int(l->record, "spec.leaseDurationSeconds", 0) * 1000;

    return !*l->holder || strcmp(l->holder, l->identity) == 0 ||
           clock_mono_ms() - l->seen_ms > MAX(theirs, l->opt.lease_ms);
}

static void write_record(struct lease *l, bool release);

static void on_written(void *data, const struct kube_result *r)
{
    struct lease *l = data;

    l->call = NULL;
    if (r->code == -ECANCELED)
        return;
    if (l->releasing && (l->release_sent || r->code < 0)) {
        end_release(l);
        return;
    }
    if (l->releasing) { /* that was a renewal; now the release */
        note_record(l, r->object);
        write_record(l, true);
        return;
    }
    if (r->code < 0) {
        log_debug("lease not written", "why=%s", r->message);
        forget_record(l);
        if (r->code == -ESTALE || r->code == -EEXIST)
            source_arm(l->timer, 0); /* somebody was faster, or our answer got lost: look */
        else
            again(l);
        return;
    }
    note_record(l, r->object);
    /* Counted from before the request: others may have seen the new record that early. */
    source_arm(l->deadline, l->opt.renew_ms - (clock_mono_ms() - l->asked_ms));
    again(l);
    set_leading(l, true);
}

static json_t *next_record(const struct lease *l, bool release)
{
    struct timespec t = clock_wall();
    char now[OBJ_TIME_MAX];
    bool ours = l->record && strcmp(l->holder, l->identity) == 0;
    json_t *o = l->record ? json_deep_copy(l->record)
                          : json_pack("{s:s,s:s,s:{s:s,s:s}}", "apiVersion", "coordination.k8s.io/v1", "kind",
                                      "Lease", "metadata", "name", l->name, "namespace", l->ns);

    obj_format_micro_time((int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000, now);
    json_object_del(json_object_get(o, "metadata"), "managedFields");
    obj_set(o, "spec.holderIdentity", json_string(release ? "" : l->identity));
    obj_set(o, "spec.leaseDurationSeconds", json_integer(release ? 1 : l->opt.lease_ms / 1000));
    obj_set(o, "spec.renewTime", json_string(now));
    if (!ours) {
        obj_set(o, "spec.acquireTime", json_string(now));
        obj_set(o, "spec.leaseTransitions",
                json_integer(l->record ? obj_int(l->record, "spec.leaseTransitions", 0) + 1 : 0));
    }
    return o;
}

static void write_record(struct lease *l, bool release)
{
    scoped(json_decref) json_t *body = next_record(l, release);
    struct kube_request req = {.verb = l->record ? KUBE_UPDATE : KUBE_CREATE,
                               .resource = &leases,
                               .ns = l->ns,
                               .name = l->record ? l->name : NULL,
                               .body = body,
                               .timeout_ms = l->opt.renew_ms / 2};

    l->release_sent = release;
    l->asked_ms = clock_mono_ms();
    l->call = kube_call(l->kube, &req, on_written, l);
}

static void on_read(void *data, const struct kube_result *r)
{
    struct lease *l = data;

    l->call = NULL;
    if (r->code == -ECANCELED)
        return;
    if (r->code == -ENOENT) {
        forget_record(l);
        write_record(l, false);
        return;
    }
    if (r->code < 0) {
        log_debug("lease not read", "why=%s", r->message);
        again(l);
        return;
    }
    note_record(l, r->object);
    if (strcmp(l->holder, l->identity) != 0)
        set_leading(l, false); /* taken from us: we were silent for too long */
    if (may_take(l))
        write_record(l, false);
    else
        again(l);
}

static void on_timer(void *data)
{
    struct lease *l = data;

    if (l->call)
        return;
    if (l->leading && l->record) {
        write_record(l, false);
        return;
    }
    struct kube_request req = {.verb = KUBE_GET,
                               .resource = &leases,
                               .ns = l->ns,
                               .name = l->name,
                               .timeout_ms = l->opt.renew_ms / 2};
    l->call = kube_call(l->kube, &req, on_read, l);
}

static void on_deadline(void *data)
{
    struct lease *l = data;

    if (l->releasing) {
        if (l->call)
            kube_cancel(take(l->call));
        end_release(l);
        return;
    }
    log_warn("lease lost: it could not be renewed in time", "name=%s", l->name);
    forget_record(l);
    set_leading(l, false);
}

int lease_new(struct loop *loop, struct kube *k, const struct lease_options *o, struct lease **ret,
              struct err *e)
{
    scoped(lease_free) struct lease *l = xcalloc(1, sizeof *l);

    l->loop = loop;
    l->kube = k;
    l->opt = *o;
    l->opt.lease_ms = o->lease_ms > 0 ? o->lease_ms : LEASE_MS;
    l->opt.renew_ms = o->renew_ms > 0 ? o->renew_ms : RENEW_MS;
    l->opt.retry_ms = o->retry_ms > 0 ? o->retry_ms : RETRY_MS;
    if (l->opt.retry_ms >= l->opt.renew_ms || l->opt.renew_ms >= l->opt.lease_ms || l->opt.lease_ms < 1000)
        return err_set(e, -EINVAL, "leader election: retry < renew < lease duration, and at least a second");
    l->ns = xstrdup(o->ns);
    l->name = xstrdup(o->name);
    l->identity = xstrdup(o->identity);
    l->holder = xstrdup("");
    int r = loop_add_timer(loop, 0, on_timer, l, &l->timer);
    if (r == 0)
        r = loop_add_timer(loop, -1, on_deadline, l, &l->deadline);
    if (r < 0)
        return err_set(e, r, "timer of the lease");
    *ret = take(l);
    return 0;
}

void lease_free(struct lease *l)
{
    if (!l)
        return;
    if (l->call)
        kube_cancel(l->call);
    source_free(l->timer);
    source_free(l->deadline);
    forget_record(l);
    free(l->ns);
    free(l->name);
    free(l->identity);
    free(l->holder);
    free(l->seen);
    free(l);
}

void lease_release(struct lease *l, void (*done)(void *data), void *data)
{
    bool held = l->leading && l->record;

    l->released = done;
    l->released_data = data;
    l->releasing = true;
    source_arm(l->timer, -1);
    if (held && !l->call) /* else after the renewal that is on its way */
        write_record(l, true);
    l->leading = false;
    source_arm(l->deadline, held ? RELEASE_MS : 0);
}

bool lease_is_leading(const struct lease *l)
{
    return l->leading;
}

const char *lease_holder(const struct lease *l)
{
    return l->holder;
}
