#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "controller/core/metrics.h"
#include "controller/kube/object.h"
#include "controller/sandbox/context.h"
#include "controller/sandbox/model.h"
#include "controller/sandbox/names.h"
#include "controller/sandbox/plan_sandbox.h"

/* Kept from change to change, so that a scrape costs the same with ten sandboxes and with ten thousand. */

static const double claim_buckets[] = {10,   25,   50,   100,  250,   500,   750,   1000,   1250,
                                       1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000};
static const double creation_buckets[] = {10,    50,    100,   250,    500,    1000,   2500,  5000,
                                          10000, 30000, 60000, 120000, 240000, 300000, 600000};
static const double pause_buckets[] = {5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000};

enum meter {
    SANDBOXES,
    CREATION,
    CLAIMS,
    CLAIM_LATENCY,
    CLIENT_LATENCY,
    PAUSES,
    PAUSE_LATENCY,
    FREED,
    METERS
};

static const struct metric_def defs[METERS] = {
    [SANDBOXES] = {"agent_sandboxes",
                   "Sandboxes that exist",
                   METRIC_GAUGE,
                   {"namespace", "ready_condition", "expired", "launch_type", "sandbox_template", "owned_by",
                    "created_by"},
                   .drop_zero = true},
    [CREATION] = {"agent_sandbox_creation_latency_ms",
                  "From the creation of a Sandbox to its first Ready",
                  METRIC_HISTOGRAM,
                  {"namespace", "launch_type", "sandbox_template"},
                  creation_buckets,
                  ARRAY_LEN(creation_buckets)},
    [CLAIMS] = {"agent_sandbox_claim_creation_total",
                "Claims that got their sandbox",
                METRIC_COUNTER,
                {"namespace", "sandbox_template", "launch_type", "warmpool_name", "pod_condition",
                 "created_by"}},
    [CLAIM_LATENCY] = {"agent_sandbox_claim_controller_startup_latency_ms",
                       "From the first sight of a claim to its Ready",
                       METRIC_HISTOGRAM,
                       {"launch_type", "sandbox_template"},
                       claim_buckets,
                       ARRAY_LEN(claim_buckets)},
    [CLIENT_LATENCY] = {"agent_sandbox_client_claim_startup_latency_ms",
                        "From the client's request to the claim's Ready",
                        METRIC_HISTOGRAM,
                        {"launch_type", "sandbox_template"},
                        claim_buckets,
                        ARRAY_LEN(claim_buckets)},
    [PAUSES] = {"glovebox_sandbox_pauses_total",
                "Changes between paused and running",
                METRIC_COUNTER,
                {"namespace", "direction"}},
    [PAUSE_LATENCY] = {"glovebox_sandbox_pause_latency_ms",
                       "From the request on the Pod to its end",
                       METRIC_HISTOGRAM,
                       {"direction"},
                       pause_buckets,
                       ARRAY_LEN(pause_buckets)},
    [FREED] = {"glovebox_sandbox_memory_freed_bytes_total",
               "Memory that pauses in place gave back",
               METRIC_COUNTER,
               {"namespace"}},
};

struct sighting {
    int64_t first_ms;
};

struct meters {
    struct metric *m[METERS];
    struct map *claims; /* uid of a claim that is not Ready yet -> struct sighting */
};

struct meters *meters_new(struct metrics *all)
{
    struct meters *x = xcalloc(1, sizeof *x);

    for (int i = 0; i < METERS; i++)
        x->m[i] = metrics_add(all, &defs[i]);
    x->claims = map_new();
    return x;
}

void meters_free(struct meters *x)
{
    size_t cursor = 0;
    const char *key;
    void *value;

    if (!x)
        return;
    while (map_next(x->claims, &cursor, &key, &value))
        free(value);
    map_free(x->claims);
    free(x);
}

static const char *or_empty(const char *s)
{
    return s ? s : "";
}

static const char *known_creator(const char *by)
{
    static const char *const known[] = {"go-client", "python-client", CREATED_BY_US};

    for (size_t i = 0; by && i < ARRAY_LEN(known); i++)
        if (strcmp(by, known[i]) == 0)
            return known[i];
    return CREATED_UNKNOWN;
}

static void count_sandbox(struct meters *x, const struct object *o, double by)
{
    static const char *const owners[] = {[OWNER_NONE] = "None",
                                         [OWNER_CLAIM] = "SandboxClaim",
                                         [OWNER_POOL] = "SandboxWarmPool",
                                         [OWNER_FRONT] = "None"};
    const json_t *json = object_json(o), *ready = obj_condition(json, COND_READY);
    const char *status = condition_str(ready, "status");
    const char *labels[] = {obj_ns(json),
                            *status ? status : "Unknown",
                            strcmp(condition_str(ready, "reason"), R_SANDBOX_EXPIRED) == 0 ? "true" : "false",
                            or_empty(obj_label(json, LABEL_LAUNCH_TYPE)),
                            or_empty(obj_annotation(json, ANN_TEMPLATE_REF)),
                            owners[((const struct sandbox_digest *)object_digest(o))->owner],
                            known_creator(obj_label(json, LABEL_CREATED_BY))};

    metric_inc(x->m[SANDBOXES], by, labels);
}

static void observe_creation(struct meters *x, const json_t *old, const json_t *now)
{
    const json_t *ready = obj_condition(now, COND_READY);
    const char *labels[] = {obj_ns(now), or_empty(obj_label(now, LABEL_LAUNCH_TYPE)),
                            or_empty(obj_annotation(now, ANN_TEMPLATE_REF))};
    int64_t created = 0;

    /* The first Ready after birth; later ones are recoveries. */
    if (!condition_is(ready, "True") || obj_condition_is_true(old, COND_READY) ||
        obj_condition(old, COND_READY) ||
        obj_parse_time(or_empty(obj_str(now, "metadata.creationTimestamp")), &created) < 0)
        return;
    metric_observe(x->m[CREATION], (double)MAX(now_ms() - created, 0), labels);
}

static void observe_pause(struct meters *x, const json_t *old, const json_t *now)
{
    const json_t *was = obj_condition(old, COND_PAUSED), *is = obj_condition(now, COND_PAUSED);
    bool paused = condition_is(is, "True");

    if (!was || condition_is(was, "True") == paused || !obj_condition(old, COND_READY))
        return;
    metric_inc(x->m[PAUSES], 1, (const char *const[]){obj_ns(now), paused ? "pause" : "resume"});
    if (paused)
        metric_inc(x->m[FREED],
                   (double)MAX(obj_int(now, "status.memory.beforePause", 0) -
                                   obj_int(now, "status.memory.afterPause", 0),
                               0),
                   (const char *const[]){obj_ns(now)});
}

void meters_sandbox_changed(void *data, const struct change *c)
{
    struct meters *x = data;

    if (c->old)
        count_sandbox(x, c->old, -1);
    if (c->now)
        count_sandbox(x, c->now, 1);
    if (c->old && c->now) {
        observe_creation(x, object_json(c->old), object_json(c->now));
        observe_pause(x, object_json(c->old), object_json(c->now));
    }
}

static void observe_claim(struct meters *x, const json_t *claim, const struct sighting *seen)
{
    const char *sandbox = obj_str(claim, "status.sandbox.name"),
               *asked = obj_annotation(claim, ANN_CLIENT_REQUESTED);
    const char *launch = sandbox && strcmp(sandbox, obj_name(claim)) == 0 ? LAUNCH_COLD : LAUNCH_WARM;
    const char *pool = or_empty(obj_str(claim, "spec.warmPoolRef.name"));
    const char *latency[] = {launch, ""};
    int64_t asked_ms;

    metric_inc(x->m[CLAIMS], 1,
               (const char *const[]){obj_ns(claim), "", launch, pool, "ready",
                                     known_creator(obj_label(claim, LABEL_CREATED_BY))});
    metric_observe(x->m[CLAIM_LATENCY], (double)(now_ms() - seen->first_ms), latency);
    if (asked && obj_parse_time(asked, &asked_ms) == 0 && now_ms() >= asked_ms)
        metric_observe(x->m[CLIENT_LATENCY], (double)(now_ms() - asked_ms), latency);
}

void meters_claim_changed(void *data, const struct change *c)
{
    struct meters *x = data;
    const struct object *o = c->now ? c->now : c->old;
    struct sighting *seen = map_get(x->claims, object_uid(o));
    bool ready = c->now && obj_condition_is_true(object_json(c->now), COND_READY);

    /* Claims that were Ready when we started are not ours to measure. */
    if (!c->old && !ready && !seen) {
        seen = xcalloc(1, sizeof *seen);
        seen->first_ms = now_ms();
        (void)map_put(x->claims, object_uid(o), seen);
    } else if (seen && (ready || !c->now)) {
        if (ready)
            observe_claim(x, object_json(c->now), seen);
        free(map_remove(x->claims, object_uid(o)));
    }
}
