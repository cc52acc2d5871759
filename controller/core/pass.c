#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/loop.h"
#include "controller/core/engine_priv.h"
#include "controller/core/recorder.h"
#include "controller/kube/object.h"

/* One round of the loop works so many keys or so long, then other events have their turn. */
#define ROUND_KEYS  64
#define ROUND_NS    8000000
#define ACTIONS_MAX 1024
#define HOPELESS_MS 30000

struct step {
    struct pass *pass;
    struct action action; /* strings and body are ours */
    struct kube_call *call;
    bool is_reread; /* a GET after a conflict: its own failure changes nothing */
};

struct note {
    struct list node;
    const struct kube_resource *resource;
    json_t *about;
    const char *type; /* "Normal" or "Warning" */
    char *reason, *text;
};

/* One run for one key: plan, then its actions, stage by stage. */
struct pass {
    struct list node; /* on controller.passes, while actions are left */
    struct controller *controller;
    struct key key; /* the queue's strings */
    struct step *step;
    size_t n, cap, next, in_flight;
    struct step reread;
    int64_t after_ms; /* -1: none */
    int64_t started_ns;
    int64_t retry_ms;
    int code; /* of the first action that failed */
    bool own_change, terminal;
    char text[ERR_TEXT_MAX];
    struct list notes;
};

/* ---- what a reconciler calls ---- */

struct key pass_key(const struct pass *p)
{
    return p->key;
}

const struct failure *pass_failure(const struct pass *p)
{
    return queue_failure(p->controller->queue, p->key);
}

void pass_after(struct pass *p, int64_t ms)
{
    ms = MAX(ms, 0);
    if (p->after_ms < 0 || ms < p->after_ms)
        p->after_ms = ms;
}

static void action_done(struct action *a)
{
    /* Ours since pass_add(), although the public struct calls them const. */
    const char *all[] = {a->ns, a->name, a->subresource, a->uid, a->version, a->propagation};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free((char *)(uintptr_t)all[i]);
    json_decref(a->body);
}

static struct action action_copy(struct action a)
{
    a.ns = xstrdup(a.ns);
    a.name = xstrdup(a.name);
    a.subresource = xstrdup(a.subresource);
    a.uid = xstrdup(a.uid);
    a.version = xstrdup(a.version);
    a.propagation = xstrdup(a.propagation);
    return a;
}

void pass_add(struct pass *p, struct action a)
{
    assert(a.verb != KUBE_NONE && a.resource);
    if (p->n == ACTIONS_MAX) { /* the rest comes with the next pass */
        json_decref(a.body);
        pass_after(p, 0);
        return;
    }
    p->step = xgrow(p->step, p->n, &p->cap, sizeof *p->step);
    p->step[p->n++] = (struct step){.pass = p, .action = action_copy(a)};
}

size_t pass_actions(const struct pass *p)
{
    return p->n;
}

void pass_event(struct pass *p, const struct kube_resource *resource, const json_t *about, const char *type,
                const char *reason, const char *note)
{
    struct note *n = xcalloc(1, sizeof *n);

    *n = (struct note){.resource = resource,
                       .about = recorder_reference(resource, about),
                       .type = strcmp(type, "Warning") == 0 ? "Warning" : "Normal",
                       .reason = xstrdup(reason),
                       .text = xstrdup(note)};
    list_append(&p->notes, &n->node);
}

bool pass_notes_own_key(struct controller *c, const char *ns, const char *name)
{
    struct pass *p = c->engine->applying;

    if (!p || p->controller != c || strcmp(p->key.name, name) != 0 || strcmp(p->key.ns, ns) != 0)
        return false;
    p->own_change = true;
    return true;
}

/* ---- the end of a pass ---- */

static void pass_free(struct pass *p)
{
    list_remove(&p->node);
    LIST_FOREACH(n, &p->notes)
    {
        struct note *note = LIST_ENTRY(n, struct note, node);
        json_decref(note->about);
        free(note->reason);
        free(note->text);
        free(note);
    }
    for (size_t i = 0; i < p->n; i++)
        action_done(&p->step[i].action);
    free(p->step);
    free(p);
}

static void send_notes(struct pass *p)
{
    LIST_FOREACH(n, &p->notes)
    {
        struct note *note = LIST_ENTRY(n, struct note, node);
        recorder_add(p->controller->engine->recorder, note->about, note->type, note->reason, note->text);
    }
}

static void count_pass(struct pass *p)
{
    static const int64_t bound_ms[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000};
    struct controller_stats *s = &p->controller->stats;
    int64_t ns = clock_mono_ns() - p->started_ns;
    size_t i = 0;

    while (i < ARRAY_LEN(bound_ms) && ns > bound_ms[i] * 1000000)
        i++;
    s->pass_bucket[i]++;
    s->pass_ns += (uint64_t)ns;
    s->passes++;
    s->failures += p->code < 0;
}

static void schedule_failed(struct pass *p)
{
    struct queue *q = p->controller->queue;
    bool first = queue_failures(q, p->key) == 0;
    bool conflict = p->code == -ESTALE || p->code == -EEXIST || p->code == -ENOENT;
    bool hopeless = p->code == -EINVAL || p->code == -EACCES || p->code == -EFBIG;

    queue_retry(q, p->key, hopeless && !first ? HOPELESS_MS : p->retry_ms);
    queue_set_failure(q, p->key, p->code, p->text);
    if (first && (conflict || hopeless))
        queue_add(q, p->key);
    /* A conflict is daily business, a lost connection concerns every key: worth a line when it lasts. */
    bool passing = conflict || p->code == -EIO || p->code == -EAGAIN;
    if (passing ? queue_failures(q, p->key) == 4 : first)
        log_warn("reconcile failed", "controller=%s namespace=%s name=%s code=%s why=%s",
                 p->controller->spec.name, p->key.ns, p->key.name, strerrorname_np(-p->code), p->text);
    else
        log_debug("reconcile failed", "controller=%s namespace=%s name=%s why=%s", p->controller->spec.name,
                  p->key.ns, p->key.name, p->text);
}

static void pass_end(struct pass *p)
{
    struct controller *c = p->controller;
    struct queue *q = c->queue;
    bool complete = p->code == 0 && p->next == p->n; /* else we stopped being the leader */

    count_pass(p);
    if (p->terminal) {
        log_info("reconcile refused", "controller=%s namespace=%s name=%s why=%s", c->spec.name, p->key.ns,
                 p->key.name, p->text);
        queue_forget(q, p->key);
    } else if (p->code < 0 && engine_may_write(c->engine)) {
        schedule_failed(p);
    } else if (complete) {
        queue_forget(q, p->key);
        if (p->own_change)
            queue_add(q, p->key);
        if (p->after_ms >= 0)
            queue_after(q, p->key, p->after_ms);
        send_notes(p);
    }
    queue_done(q, p->key);
    c->n_passes--;
    pass_free(p);
    controller_pump(c);
}

/* ---- actions ---- */

static void go_on(struct pass *p);

static void reread(struct pass *p, const struct step *failed);

static bool is_forgiven(const struct step *s, const struct kube_result *r, int verdict)
{
    return verdict == 1 || (s->action.absent_ok && r->code == -ENOENT);
}

static void on_answer(void *data, const struct kube_result *r)
{
    struct step *s = data;
    struct pass *p = s->pass;
    struct engine *x = p->controller->engine;

    s->call = NULL;
    p->in_flight--;
    p->controller->stats.actions++;
    int verdict = s->action.done ? s->action.done(s->action.data, r) : 0;
    x->applying = p;
    if (r->code == 0 || s->action.verb == KUBE_GET || s->action.verb == KUBE_DELETE)
        engine_apply_answer(x, &s->action, r);
    x->applying = NULL;
    bool failed = r->code < 0 && !is_forgiven(s, r, verdict) && !s->is_reread;
    if (failed && p->code == 0) {
        p->code = r->code;
        p->retry_ms = r->retry_after_ms;
        (void)snprintf(p->text, sizeof p->text, "%s", r->message);
        reread(p, s);
    }
    engine_call_ended(x);
    go_on(p);
}

static void launch(struct step *s)
{
    const struct action *a = &s->action;
    struct kube_request req = {.verb = a->verb,
                               .resource = a->resource,
                               .ns = a->ns,
                               .name = a->name,
                               .subresource = a->subresource,
                               .body = a->body,
                               .uid = a->uid,
                               .version = a->version,
                               .propagation = a->propagation,
                               .grace_seconds = a->grace_seconds,
                               .background = a->background};

    s->pass->in_flight++;
    s->pass->controller->engine->n_calls++;
    s->call = kube_call(s->pass->controller->engine->kube, &req, on_answer, s);
}

/* After a conflict the cache was behind: the object as it is now goes in, before the key runs again. */
static void reread(struct pass *p, const struct step *failed)
{
    const struct action *a = &failed->action;
    bool conflict =
        p->code == -ESTALE || p->code == -EEXIST || (p->code == -ENOENT && a->verb != KUBE_CREATE);
    const char *name = a->name ? a->name : obj_name(a->body);

    if (!conflict || !name || a->verb == KUBE_GET || !engine_may_write(p->controller->engine))
        return;
    p->reread =
        (struct step){.pass = p,
                      .is_reread = true,
                      .action = {.verb = KUBE_GET, .resource = a->resource, .ns = a->ns, .name = name}};
    launch(&p->reread);
}

/* Sends what may be sent now; ends the pass when nothing is left. */
static void go_on(struct pass *p)
{
    bool may = p->code == 0 && engine_may_write(p->controller->engine);

    while (may && p->next < p->n && p->in_flight < p->controller->spec.parallel_max) {
        if (p->in_flight > 0 && !p->step[p->next].action.with_previous)
            break;
        launch(&p->step[p->next++]);
    }
    if (p->in_flight == 0)
        pass_end(p);
}

static void run(struct controller *c, struct key k)
{
    struct pass *p = xcalloc(1, sizeof *p);
    struct err e = {0};

    *p = (struct pass){.controller = c, .key = k, .after_ms = -1, .started_ns = clock_mono_ns()};
    list_init(&p->notes);
    list_append(&c->passes, &p->node);
    c->n_passes++;
    p->code = c->spec.reconcile(p, c->spec.data, &e);
    c->stats.reconcile_ns += (uint64_t)(clock_mono_ns() - p->started_ns);
    parsed_trim(c->engine->parsed);
    if (p->code < 0) {
        (void)snprintf(p->text, sizeof p->text, "%s", err_text(&e));
        p->next = p->n; /* none of its actions runs */
        p->terminal = p->code == -EINVAL;
    }
    go_on(p);
}

static void on_again(void *data)
{
    struct controller *c = data;

    c->again = NULL;
    controller_pump(c);
}

void controller_pump(struct controller *c)
{
    if (c->pumping) /* pass_end of a pass without actions */
        return;
    c->pumping = true;
    int64_t until = clock_mono_ns() + ROUND_NS;
    struct key k;
    size_t n = 0;

    while (engine_may_write(c->engine) && c->n_passes < c->spec.passes_max) {
        if (n++ == ROUND_KEYS || clock_mono_ns() > until) {
            if (!c->again)
                loop_defer(c->engine->loop, on_again, c, &c->again);
            break;
        }
        if (!queue_take(c->queue, &k))
            break;
        run(c, k);
    }
    c->pumping = false;
}

void pass_free_all(struct controller *c)
{
    LIST_FOREACH(n, &c->passes)
    {
        struct pass *p = LIST_ENTRY(n, struct pass, node);
        for (size_t i = 0; i < p->n; i++)
            if (p->step[i].call)
                kube_cancel(p->step[i].call);
        if (p->reread.call)
            kube_cancel(p->reread.call);
        pass_free(p);
    }
}
