/*
 * A small controller for tests of the engine: every ConfigMap labelled probe=parent gets a child that
 * carries the parent's data and says so in the parent's annotation "probe/seen".  The child goes when
 * its parent goes, by the controller's own hand, so no garbage collector is needed.
 *
 *   engine_probe KUBECONFIG [lease NAME] [health ADDRESS] [quiet]
 *
 * Writes one JSON line of numbers to stdout on SIGUSR1 and at its end; logs to stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/random.h"
#include "base/strbuf.h"
#include "controller/core/engine.h"
#include "controller/core/health.h"
#include "controller/core/lease.h"
#include "controller/kube/kubeconfig.h"
#include "controller/kube/object.h"

static const struct kube_resource configmaps = {"", "v1", "configmaps", "ConfigMap", false};

static void by_parent(const json_t *o, struct index_values *v)
{
    index_add(v, obj_label(o, "parent"));
}

static const struct store_kind parents = {.resource = &configmaps, .label_selector = "probe=parent"};
static const struct store_kind children = {
    .resource = &configmaps, .label_selector = "probe=child", .index = {{"parent", by_parent}}};

struct probe {
    struct loop *loop;
    struct kube *kube;
    struct engine *engine;
    struct store *parents, *children;
    struct lease *lease;
    struct health *health;
    uint64_t passes, creates, patches, deletes;
    int64_t started_ms, synced_ms;
};

static json_t *child_of(const json_t *parent, const char *name)
{
    json_t *owners = json_array();

    json_array_append_new(owners, obj_owner_ref(parent, "v1", "ConfigMap"));
    json_t *body = json_pack("{s:s,s:s,s:{s:s,s:{s:s,s:s},s:o}}", "apiVersion", "v1", "kind", "ConfigMap",
                             "metadata", "name", name, "labels", "probe", "child", "parent", obj_name(parent),
                             "ownerReferences", owners);
    json_object_set(body, "data", json_object_get(parent, "data"));
    return body;
}

static void remove_child(struct pass *p, struct probe *probe, const struct object *child)
{
    probe->deletes++;
    pass_add(p, (struct action){.verb = KUBE_DELETE,
                                .resource = &configmaps,
                                .ns = object_ns(child),
                                .name = object_name(child),
                                .uid = object_uid(child),
                                .absent_ok = true});
}

static int reconcile(struct pass *p, void *data, struct err *e)
{
    struct probe *probe = data;
    struct key k = pass_key(p);
    const struct object *parent = store_get(probe->parents, k.ns, k.name);
    scoped_free char *child_name = xasprintf("%s-child", k.name);
    const struct object *child = store_get(probe->children, k.ns, child_name);

    (void)e;
    probe->passes++;
    if (!parent) {
        if (child)
            remove_child(p, probe, child);
        return 0;
    }
    const json_t *want = object_json(parent);
    if (child && !obj_is_controlled_by(object_json(child), object_uid(parent))) {
        remove_child(p, probe, child); /* of an earlier parent by the same name */
        pass_after(p, 0);
        return 0;
    }
    if (!child) {
        probe->creates++;
        pass_add(p, (struct action){.verb = KUBE_CREATE,
                                    .resource = &configmaps,
                                    .ns = k.ns,
                                    .body = child_of(want, child_name)});
    } else if (!json_equal(json_object_get(want, "data"), json_object_get(object_json(child), "data"))) {
        probe->patches++;
        pass_add(p, (struct action){.verb = KUBE_MERGE_PATCH,
                                    .resource = &configmaps,
                                    .ns = k.ns,
                                    .name = child_name,
                                    .body = json_pack("{s:O?}", "data", json_object_get(want, "data"))});
    }
    const char *value = obj_str(want, "data.value"), *seen = obj_annotation(want, "probe/seen");
    if (value && (!seen || strcmp(seen, value) != 0)) {
        probe->patches++;
        pass_add(p,
                 (struct action){.verb = KUBE_MERGE_PATCH,
                                 .resource = &configmaps,
                                 .ns = k.ns,
                                 .name = k.name,
                                 .body = json_pack("{s:{s:s,s:{s:s}}}", "metadata", "resourceVersion",
                                                   obj_version(want), "annotations", "probe/seen", value)});
        pass_event(p, &configmaps, want, "Normal", "Seen", "the value was copied to the child");
    }
    return 0;
}

static void parent_of_child(struct controller *c, const struct change *change, void *data)
{
    const struct object *o = change->now ? change->now : change->old;

    (void)data;
    controller_add(c, object_ns(o), obj_label(object_json(o), "parent"));
}

static long rss_kib(void)
{
    scoped_free char *text = NULL;
    const char *line;

    if (file_read(AT_FDCWD, "/proc/self/status", 65536, &text, NULL, NULL) < 0 ||
        !(line = strstr(text, "VmRSS:")))
        return -1;
    return strtol(line + 6, NULL, 10);
}

static void report(struct probe *probe)
{
    struct rusage u;
    const struct kube_stats *s = kube_stats(probe->kube);

    getrusage(RUSAGE_SELF, &u);
    json_t *o = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:b,s:I,s:I,s:I}", "parents",
        (json_int_t)store_count(probe->parents), "children", (json_int_t)store_count(probe->children),
        "passes", (json_int_t)probe->passes, "creates", (json_int_t)probe->creates, "patches",
        (json_int_t)probe->patches, "deletes", (json_int_t)probe->deletes, "lists", (json_int_t)s->lists,
        "watches", (json_int_t)s->watches, "bytes_in", (json_int_t)s->bytes_in, "rss_kib",
        (json_int_t)rss_kib(), "synced", engine_is_synced(probe->engine), "leading",
        probe->lease ? lease_is_leading(probe->lease) : 1, "synced_ms",
        (json_int_t)(probe->synced_ms ? probe->synced_ms - probe->started_ms : -1), "cpu_ms",
        (json_int_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
            (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000,
        "failed",
        (json_int_t)(s->failed[KUBE_CREATE] + s->failed[KUBE_MERGE_PATCH] + s->failed[KUBE_DELETE]));
    json_dumpf(o, stdout, JSON_COMPACT);
    (void)putchar('\n');
    (void)fflush(stdout);
    json_decref(o);
}

static void on_stopped(void *data)
{
    loop_quit(((struct probe *)data)->loop);
}

static void on_engine_stopped(void *data)
{
    struct probe *probe = data;

    if (probe->lease)
        lease_release(probe->lease, on_stopped, probe);
    else
        on_stopped(probe);
}

static void on_signal(void *data, int signal)
{
    struct probe *probe = data;

    if (signal == SIGUSR1)
        report(probe);
    else
        engine_stop(probe->engine, on_engine_stopped, probe);
}

static void on_lease(void *data, bool leading)
{
    struct probe *probe = data;

    log_info(leading ? "leading" : "not leading", NULL);
    engine_set_active(probe->engine, leading);
}

static void on_synced(void *data)
{
    struct probe *probe = data;

    probe->synced_ms = clock_mono_ms();
    log_info("synced", "ms=%lld", (long long)(probe->synced_ms - probe->started_ms));
}

static int on_healthz(void *data, struct strbuf *out)
{
    (void)data;
    strbuf_puts(out, "ok\n");
    return 200;
}

static int on_readyz(void *data, struct strbuf *out)
{
    bool ok = engine_is_healthy(((struct probe *)data)->engine);

    strbuf_puts(out, ok ? "ok\n" : "not synced\n");
    return ok ? 200 : 503;
}

static const struct health_route routes[] = {
    {"/healthz", NULL, on_healthz}, {"/readyz", NULL, on_readyz}, {0}};

static int set_up(struct probe *probe, int argc, char **argv, struct err *e)
{
    struct kube_config *config;
    struct engine_options o = {.synced = on_synced, .data = probe};
    struct controller_spec spec = {.name = "probe", .reconcile = reconcile, .data = probe};
    sigset_t set;
    int r = loop_new(&probe->loop, e);

    if (r < 0 || (r = kube_config_load(argv[1], NULL, &config, e)) < 0 ||
        (r = kube_new(probe->loop, config, &probe->kube, e)) < 0 ||
        (r = engine_new(probe->loop, probe->kube, &o, &probe->engine, e)) < 0)
        return r;
    probe->parents = engine_add_kind(probe->engine, &parents);
    probe->children = engine_add_kind(probe->engine, &children);
    struct controller *c = engine_add_controller(probe->engine, &spec);
    controller_watch(c, probe->parents, NULL, NULL);
    controller_watch(c, probe->children, parent_of_child, NULL);

    scoped_free char *identity = xasprintf("%d-%08x", (int)getpid(), random_u32());
    for (int i = 2; i < argc && r == 0; i++) {
        if (strcmp(argv[i], "lease") == 0 && i + 1 < argc) {
            struct lease_options l = {.ns = "default",
                                      .name = argv[++i],
                                      .identity = identity,
                                      .lease_ms = 4000,
                                      .renew_ms = 3000,
                                      .retry_ms = 500,
                                      .changed = on_lease,
                                      .data = probe};
            r = lease_new(probe->loop, probe->kube, &l, &probe->lease, e);
        } else if (strcmp(argv[i], "health") == 0 && i + 1 < argc) {
            r = health_new(probe->loop, argv[++i], routes, probe, &probe->health, e);
        }
    }
    if (r < 0)
        return r;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGUSR1);
    r = loop_add_signals(probe->loop, &set, on_signal, probe, NULL);
    if (r < 0)
        return err_set(e, r, "signals");
    probe->started_ms = clock_mono_ms();
    if (!probe->lease)
        engine_set_active(probe->engine, true);
    log_info("started", NULL);
    return engine_start(probe->engine, e);
}

int main(int argc, char **argv)
{
    struct probe probe = {0};
    struct err e = {0};

    if (argc < 2)
        return 2;
    log_init(2, argc > 2 && strcmp(argv[argc - 1], "debug") == 0 ? LOG_DEBUG : LOG_INFO);
    int r = set_up(&probe, argc, argv, &e);
    if (r == 0)
        r = loop_run(probe.loop, &e);
    if (r < 0)
        log_error("cannot go on", "why=%s", err_text(&e));
    else
        report(&probe);
    engine_free(probe.engine);
    lease_free(probe.lease);
    health_free(probe.health);
    kube_free(probe.kube);
    loop_free(probe.loop);
    return r < 0;
}
