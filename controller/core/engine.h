#pragma once
/*
 * The engine: watches feed caches, changes become keys, a reconciler looks at one key and says which
 * writes are missing.
 *
 * One thread, one loop; a reconciler never waits.  It is level-triggered: it gets a key and not the
 * reason, reads the caches, decides (purely), and adds ACTIONS to the pass it was given.  After it
 * returned, the engine sends the actions in order and the key is not run again before they ended:
 *
 *   reconcile(pass) returns 0          the actions run
 *                      -errno          no action runs; the key comes back after its back-off
 *                      -EINVAL         as above but not before something changes (terminal error)
 *   every action succeeded             back-off is forgotten; pass_after() counts
 *   an action failed                   the following ones are dropped and the key comes back:
 *     -ESTALE, -EEXIST, -ENOENT        the object is read from the server into the cache first, then
 *                                      the key runs at once (with back-off from the second time on)
 *     -EAGAIN, -EIO                    after the back-off, or as long as the server asked
 *     -EINVAL, -EACCES, -EFBIG         at once the first time, so that the plan can report it
 *                                      (pass_failure), then after at least 30 s
 *
 * What the server answers to an action is put in the cache before the next action runs and before any
 * reconciler sees the cache again, with the same map functions as for a watch event, so a plan always
 * sees its own writes and never makes the same object twice.  A deleted object leaves the cache at
 * once and late watch events of it are ignored; one that waits for its finalizers or grace period
 * stays with its deletionTimestamp.
 *
 * Objects are created with names derived from their owner, or with generateName when a lost answer
 * may leave one object too many.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "controller/core/queue.h"
#include "controller/core/store.h"

struct loop;
struct engine;
struct controller;
struct pass;

struct engine_options {
    const char *component;      /* names us in events; NULL: "glovebox-controller" */
    const char *instance;       /* our pod or host; NULL: "" */
    void (*synced)(void *data); /* once, when every kind is listed */
    void *data;
};
int engine_new(struct loop *loop, struct kube *kube, const struct engine_options *o, struct engine **ret,
               struct err *e);
void engine_free(struct engine *x);

/* Watch a kind.  `kind` must stay; the store belongs to the engine.  Before engine_start. */
struct store *engine_add_kind(struct engine *x, const struct store_kind *kind);

typedef int (*reconcile_fn)(struct pass *p, void *data, struct err *e);
struct controller_spec {
    const char *name; /* for logs and metrics */
    reconcile_fn reconcile;
    void *data;
    size_t passes_max;   /* keys at work at once; 0: 32 */
    size_t parallel_max; /* actions of one pass in flight at once (with_previous); 0: 8 */
};
struct controller *engine_add_controller(struct engine *x, const struct controller_spec *spec);

/*
 * What a change of an object in `store` means for a controller: `map` adds keys.  NULL map: the
 * object's own key.  Called for every change by others and by ourselves, never when nothing changed.
 */
struct change {
    struct store *store;
    const struct object *old; /* NULL: added */
    const struct object *now; /* NULL: deleted */
};
typedef void (*map_fn)(struct controller *c, const struct change *change, void *data);
void controller_watch(struct controller *c, struct store *store, map_fn map, void *data);
void controller_add(struct controller *c, const char *ns, const char *name);
void controller_add_after(struct controller *c, const char *ns, const char *name, int64_t ms);
struct queue *controller_queue(struct controller *c);
/* A change hook without keys (gauges kept incrementally, ready lists). Runs before the map functions. */
void engine_on_change(struct engine *x, struct store *store, void (*fn)(void *data, const struct change *),
                      void *data);

/* Lists and watches begin; reconcilers run once everything is listed and engine_set_active(true). */
int engine_start(struct engine *x, struct err *e);
/* Leader or not.  When it becomes false no further action is sent, not even of passes under way. */
void engine_set_active(struct engine *x, bool active);
/* Stops watching and reconciling; `done` runs when the writes in flight have ended, at most 5 s later. */
void engine_stop(struct engine *x, void (*done)(void *data), void *data);
bool engine_is_synced(const struct engine *x);
/* Synced, and every watch heard from the server within the last 2 minutes. */
bool engine_is_healthy(const struct engine *x);
struct kube *engine_kube(struct engine *x);

/* ---- inside a reconciler ---- */

struct key pass_key(const struct pass *p);
/* Why the last run of this key failed, NULL if it did not: a rejected pod can become a condition. */
const struct failure *pass_failure(const struct pass *p);
/* Again in ms although all is well; the smallest wish counts. */
void pass_after(struct pass *p, int64_t ms);

/*
 * One write.  Add it with pass_add; strings and body are copied or taken before it returns.
 * resource must be one that is watched for its answer to reach a cache; others are just sent.
 */
struct action {
    enum kube_verb verb; /* KUBE_GET reads the object into the cache */
    const struct kube_resource *resource;
    const char *ns, *name, *subresource;
    json_t *body;                            /* stolen, also on failure */
    const char *uid, *version, *propagation; /* KUBE_DELETE */
    int64_t grace_seconds;                   /* as in kube_request */
    /* Runs together with the action before it, not after it (create ten pool members). */
    bool with_previous;
    /* Nobody waits for it (refill of a pool): what somebody waits for goes first. */
    bool background;
    /* KUBE_DELETE: -ENOENT is success.  KUBE_MERGE_PATCH, KUBE_APPLY of a status: the object went, fine. */
    bool absent_ok;
    /* Optional.  Return 0: go on as described above; 1: treat the failure as success. */
    int (*done)(void *data, const struct kube_result *result);
    void *data;
};
void pass_add(struct pass *p, struct action a);
size_t pass_actions(const struct pass *p);

/* An Event about an object, sent with low priority after the actions succeeded; aggregated and rate
 * limited.  type "Normal" or "Warning"; strings are copied. */
void pass_event(struct pass *p, const struct kube_resource *resource, const json_t *about, const char *type,
                const char *reason, const char *note);
