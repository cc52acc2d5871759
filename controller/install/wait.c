#include "controller/install/wait.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/scoped.h"
#include "controller/cli/flags.h"
#include "controller/kube/api.h"
#include "controller/kube/kubeconfig.h"
#include "controller/kube/object.h"

#define ASK_AGAIN_MS 1000

struct options {
    const char *daemonset, *ns, *kubeconfig;
    long timeout_ms;
};

#define O(member) offsetof(struct options, member)
static const struct flag flags[] = {
    {"daemonset", FLAG_STRING, O(daemonset), "its name"},
    {"namespace", FLAG_STRING, O(ns), "its namespace (our own)"},
    {"timeout", FLAG_DURATION_MS, O(timeout_ms), "give up after so long (5m)"},
    {"kubeconfig", FLAG_STRING, O(kubeconfig), "file that says where the API server is; not needed in a pod"},
    {NULL, FLAG_STRING, 0, NULL},
};

static const struct kube_resource daemonsets = {"apps", "v1", "daemonsets", "DaemonSet", false};

struct waiting {
    struct options opt;
    struct loop *loop;
    struct kube *kube;
    struct source *timer;
    int64_t until_ms;
    int code;
    char text[256];
};

static bool is_ready(const json_t *o)
{
    int64_t wanted = obj_int(o, "status.desiredNumberScheduled", -1),
            ready = obj_int(o, "status.numberReady", 0);

    return wanted >= 0 && ready >= wanted &&
           obj_int(o, "status.observedGeneration", 0) >= obj_int(o, "metadata.generation", 0);
}

static void on_answer(void *data, const struct kube_result *r)
{
    struct waiting *w = data;

    if (r->code == 0 && is_ready(r->object)) {
        loop_quit(w->loop);
        return;
    }
    if (clock_mono_ms() >= w->until_ms) {
        w->code = -ETIMEDOUT;
        (void)snprintf(w->text, sizeof w->text, "%s",
                       r->code < 0 ? r->message : "it is not ready on every node; see its pods' logs");
        loop_quit(w->loop);
        return;
    }
    source_arm(w->timer, ASK_AGAIN_MS);
}

static void ask(void *data)
{
    struct waiting *w = data;

    kube_call(w->kube,
              &(struct kube_request){.verb = KUBE_GET,
                                     .resource = &daemonsets,
                                     .ns = w->opt.ns ? w->opt.ns : kube_namespace(w->kube),
                                     .name = w->opt.daemonset},
              on_answer, w);
}

static int wait_for(struct waiting *w, struct err *e)
{
    struct kube_config *config;
    int r = loop_new(&w->loop, e);

    if (r == 0 && (r = kube_config_find(w->opt.kubeconfig, &config, e)) == 0 &&
        (r = kube_new(w->loop, config, &w->kube, e)) == 0 &&
        (r = loop_add_timer(w->loop, 0, ask, w, &w->timer)) == 0)
        r = loop_run(w->loop, e);
    kube_free(w->kube);
    loop_free(w->loop);
    return r < 0 ? r : w->code < 0 ? err_set(e, w->code, "DaemonSet %s: %s", w->opt.daemonset, w->text) : 0;
}

int wait_main(int argc, char **argv)
{
    struct waiting w = {.opt = {.timeout_ms = 300000}};
    struct err e = {0};
    int r = flags_parse(flags, argc, argv, &w.opt, &e);

    if (r == 1) {
        flags_print(flags, "glovebox-controller wait --daemonset NAME [flags]");
        return 0;
    }
    if (r == 0 && !w.opt.daemonset)
        r = err_set(&e, -EINVAL, "--daemonset is needed");
    log_init(STDERR_FILENO, LOG_INFO);
    (void)signal(SIGPIPE, SIG_IGN);
    w.until_ms = clock_mono_ms() + w.opt.timeout_ms;
    if (r == 0)
        r = wait_for(&w, &e);
    if (r < 0)
        (void)fprintf(stderr, "glovebox-controller wait: %s\n", err_text(&e));
    return r < 0;
}

int idle_main(int argc, char **argv)
{
    sigset_t set;
    int got;

    (void)argc;
    (void)argv;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return sigwait(&set, &got) != 0;
}
