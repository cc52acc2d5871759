/*
 * A stand-in for kubelet, scheduler and node agent: every Pod with a sandbox's label becomes Running
 * and Ready at once, is paused and resumed when its annotation asks, and ends when it is deleted.  For
 * tests of the controller with thousands of pods; what it costs is not counted.
 *
 *   hollow KUBECONFIG [delay MS]        delay: before a pod is Ready
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "controller/core/engine.h"
#include "controller/kube/kubeconfig.h"
#include "controller/kube/object.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/names.h"

static const struct kube_resource pods = {"", "v1", "pods", "Pod", false};
static const char *const keep[] = {"metadata", "status", NULL};
static const struct store_kind hollow_kind = {
    .resource = &pods, .label_selector = LABEL_NAME_HASH, .keep = keep};

struct hollow {
    struct loop *loop;
    struct kube *kube;
    struct engine *engine;
    struct store *store;
    int64_t delay_ms;
};

static void now_text(char out[OBJ_TIME_MAX])
{
    struct timespec t = clock_wall();

    obj_format_time((int64_t)t.tv_sec * 1000, out);
}

static json_t *condition(const char *type, const char *status, const char *reason, const char *message)
{
    char now[OBJ_TIME_MAX];

    now_text(now);
    return json_pack("{ss ss ss* ss* ss}", "type", type, "status", status, "reason", reason, "message",
                     message, "lastTransitionTime", now);
}

static json_t *running(const json_t *pod)
{
    uint32_t h = hash_str(obj_uid(pod));

    json_t *conditions = json_pack(
        "[oooo]", condition("PodScheduled", "True", NULL, NULL), condition("Initialized", "True", NULL, NULL),
        condition("ContainersReady", "True", NULL, NULL), condition("Ready", "True", NULL, NULL));
    return json_pack("{s{ss so so s[{so}]}}", "status", "phase", "Running", "conditions", conditions, "podIP",
                     json_sprintf("10.%u.%u.%u", h >> 16 & 255, h >> 8 & 255, h & 255), "podIPs", "ip",
                     json_sprintf("10.%u.%u.%u", h >> 16 & 255, h >> 8 & 255, h & 255));
}

/* The pause condition, when the annotation asks for another one than there is. */
static json_t *pause_answer(const json_t *pod)
{
    const char *asked = obj_annotation(pod, ANN_POD_PAUSE);
    bool want = asked && strcmp(asked, PAUSE_TRUE) == 0, have = obj_condition_is_true(pod, COND_POD_PAUSED);

    if (want == have)
        return NULL;
    json_t *list = json_array(), *old = obj_at(pod, "status.conditions");
    for (size_t i = 0; i < json_array_size(old); i++) {
        const char *type = obj_str(json_array_get(old, i), "type");
        if (type && strcmp(type, COND_POD_PAUSED) != 0)
            json_array_append(list, json_array_get(old, i));
    }
    json_array_append_new(list, want ? condition(COND_POD_PAUSED, "True", POD_PAUSED,
                                                 "memory before 314572800 after 8388608 bytes, took 12 ms")
                                     : condition(COND_POD_PAUSED, "False", POD_RUNNING, "took 3 ms"));
    return json_pack("{s{so}}", "status", "conditions", list);
}

static int reconcile(struct pass *p, void *data, struct err *e)
{
    struct hollow *h = data;
    struct key k = pass_key(p);
    const struct object *o = store_get(h->store, k.ns, k.name);
    const json_t *pod = o ? object_json(o) : NULL;
    const char *phase = obj_str(pod, "status.phase");
    json_t *body = NULL;
    int64_t created;

    (void)e;
    if (!pod)
        return 0;
    struct action a = {.resource = &pods, .ns = k.ns, .name = k.name, .absent_ok = true};
    if (obj_is_deleting(pod)) {
        a.verb = KUBE_DELETE;
        a.uid = obj_uid(pod);
        a.grace_seconds = KUBE_GRACE_NOW;
        pass_add(p, a);
        return 0;
    }
    if (phase && strcmp(phase, "Pending") == 0) {
        struct timespec now = clock_wall();
        if (h->delay_ms && obj_parse_time(obj_str(pod, "metadata.creationTimestamp"), &created) == 0 &&
            (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 < created + h->delay_ms) {
            pass_after(p, created + h->delay_ms - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000));
            return 0;
        }
        body = running(pod);
    } else if (phase && strcmp(phase, "Running") == 0) {
        body = pause_answer(pod);
    }
    if (!body)
        return 0;
    a.verb = KUBE_MERGE_PATCH;
    a.subresource = "status";
    a.body = body;
    pass_add(p, a);
    return 0;
}

static void on_signal(void *data, int signal)
{
    (void)signal;
    loop_quit(((struct hollow *)data)->loop);
}

int main(int argc, char **argv)
{
    struct hollow h = {0};
    struct err e = {0};
    struct kube_config *config;
    sigset_t set;

    if (argc < 2)
        return 2;
    if (argc > 3 && strcmp(argv[2], "delay") == 0)
        h.delay_ms = strtol(argv[3], NULL, 10);
    log_init(2, LOG_WARN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    int r = loop_new(&h.loop, &e);
    if (r == 0)
        r = kube_config_load(argv[1], NULL, &config, &e);
    if (r == 0)
        config->user_agent = xstrdup("hollow"); /* so that its requests are not taken for the controller's */
    if (r < 0 || (r = kube_new(h.loop, config, &h.kube, &e)) < 0 ||
        (r = engine_new(h.loop, h.kube, &(struct engine_options){.component = "hollow"}, &h.engine, &e)) <
            0 ||
        (r = loop_add_signals(h.loop, &set, on_signal, &h, NULL)) < 0) {
        log_error("cannot go on", "why=%s", err_text(&e));
        return 1;
    }
    h.store = engine_add_kind(h.engine, &hollow_kind);
    struct controller *c = engine_add_controller(
        h.engine,
        &(struct controller_spec){.name = "hollow", .reconcile = reconcile, .data = &h, .passes_max = 64});
    controller_watch(c, h.store, NULL, NULL);
    engine_set_active(h.engine, true);
    r = engine_start(h.engine, &e);
    if (r == 0)
        r = loop_run(h.loop, &e);
    engine_free(h.engine);
    kube_free(h.kube);
    loop_free(h.loop);
    return r < 0;
}
