#pragma once
/* The inside of the engine: engine.c has the kinds and controllers, pass.c runs one key. */
#include "base/list.h"
#include "controller/core/engine.h"
#include "controller/core/store_feed.h"
#include "controller/kube/watch.h"

struct recorder;

struct hook {
    struct list node;
    void (*fn)(void *data, const struct change *change);
    void *data;
};

/* One watched kind. */
struct feed {
    struct list node; /* on engine.feeds */
    struct engine *engine;
    struct store *store;
    struct watch *watch;
    struct watch_spec spec;
    struct list hooks;
};

struct mapping {
    struct list node; /* on controller.mappings */
    struct store *store;
    map_fn map;
    void *data;
};

struct controller_stats {
    uint64_t passes, failures, actions;
    uint64_t reconcile_ns;    /* inside the reconcile function */
    uint64_t pass_bucket[12]; /* passes that took at most bound i, writes included; not cumulative */
    uint64_t pass_ns;
};

struct controller {
    struct list node; /* on engine.controllers */
    struct engine *engine;
    struct controller_spec spec;
    struct queue *queue;
    struct source *again; /* deferred: more keys are ready */
    struct list mappings;
    bool pumping;
    struct list passes; /* with actions in flight */
    size_t n_passes;
    struct controller_stats stats;
};

struct engine {
    struct loop *loop;
    struct kube *kube;
    struct engine_options opt;
    struct parsed_cache *parsed;
    struct recorder *recorder;
    struct list feeds, controllers;
    bool started, synced, active, stopping;
    struct pass *applying; /* whose answer is being put into the caches */
    size_t n_calls;
    void (*stopped)(void *data);
    void *stopped_data;
    struct source *stop_timer, *sync_check;
};

/* pass.c */
void controller_pump(struct controller *c); /* runs ready keys, a bounded number at once */
void pass_free_all(struct controller *c);
/* True: the key is the one whose own answer is being applied; it runs again anyway. */
bool pass_notes_own_key(struct controller *c, const char *ns, const char *name);

/* engine.c */
void engine_apply_answer(struct engine *x, const struct action *a, const struct kube_result *r);
void engine_call_ended(struct engine *x);
bool engine_may_write(const struct engine *x);
