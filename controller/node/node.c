#include "controller/node/node.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/strbuf.h"
#include "controller/core/engine.h"
#include "controller/core/health.h"
#include "controller/core/metrics.h"
#include "controller/kube/kubeconfig.h"
#include "controller/node/agent.h"

#define PODS_FOLDER "/run/glovebox/pods"

struct node_options {
    const char *kubeconfig, *node, *folder, *metrics_address, *health_address, *log_level;
};

struct node {
    struct node_options opt;
    struct loop *loop;
    struct kube *kube;
    struct metrics *metrics;
    struct engine *engine;
    struct agent *agent;
    struct health *health, *metrics_server;
};

/* All take a value. */
static const struct {
    const char *name;
    size_t offset;
    const char *help;
} flags[] = {
    {"kubeconfig", offsetof(struct node_options, kubeconfig),
     "file that says where the API server is; not needed in a pod"},
    {"node", offsetof(struct node_options, node), "name of this node's Node object ($NODE_NAME)"},
    {"pods-folder", offsetof(struct node_options, folder), "where the shims' sockets are (" PODS_FOLDER ")"},
    {"metrics-bind-address", offsetof(struct node_options, metrics_address),
     "where /metrics is served (0: nowhere)"},
    {"health-probe-bind-address", offsetof(struct node_options, health_address),
     "where /healthz and /readyz are served (0: nowhere)"},
    {"log-level", offsetof(struct node_options, log_level), "error, warn, info or debug (info)"},
};

static void usage(FILE *to)
{
    (void)fputs("glovebox-controller node [--kubeconfig FILE] [--node NAME] [flags]\n"
                "Pauses and resumes the pods of one node.\n\n",
                to);
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        (void)fprintf(to, "  --%-26s %s\n", flags[i].name, flags[i].help);
}

/* "--name value" or "--name=value"; returns how many words it took, or -EINVAL. */
static int parse_one(int argc, char **argv, struct node_options *o, struct err *e)
{
    const char *word = argv[0] + (strncmp(argv[0], "--", 2) == 0 ? 2 : 0);
    size_t n = strcspn(word, "=");

    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        const char **out = (const char **)(void *)((char *)o + flags[i].offset);
        if (word == argv[0] || strlen(flags[i].name) != n || strncmp(word, flags[i].name, n) != 0)
            continue;
        if (word[n] == '=')
            *out = word + n + 1;
        else if (argc > 1)
            *out = argv[1];
        else
            return err_set(e, -EINVAL, "--%s needs a value", flags[i].name);
        return word[n] == '=' ? 1 : 2;
    }
    return err_set(e, -EINVAL, "unknown flag \"%s\"; --help tells the flags", argv[0]);
}

static int parse(int argc, char **argv, struct node_options *o, struct err *e)
{
    for (int i = 0, r; i < argc; i += r)
        if ((r = parse_one(argc - i, argv + i, o, e)) < 0)
            return r;
    if (!o->node)
        o->node = getenv("NODE_NAME");
    if (!o->node || !*o->node)
        return err_set(e, -EINVAL, "--node is missing (or NODE_NAME in the environment)");
    if (strpbrk(o->node, ",= "))
        return err_set(e, -EINVAL, "--node \"%s\" is no name of a node", o->node);
    return 0;
}

static int log_level_of(const char *name, struct err *e)
{
    static const char *const names[] = {
        [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

    for (int i = 0; name && i < (int)ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return name ? err_set(e, -EINVAL, "--log-level must be error, warn, info or debug, not \"%s\"", name)
                : LOG_INFO;
}

static int on_healthz(void *data, struct strbuf *out)
{
    (void)data;
    strbuf_puts(out, "ok\n");
    return 200;
}

static int on_readyz(void *data, struct strbuf *out)
{
    bool ok = engine_is_healthy(((struct node *)data)->engine);

    strbuf_puts(out, ok ? "ok\n" : "the pods of the node are not listed, or the API server is silent\n");
    return ok ? 200 : 503;
}

static int on_metrics(void *data, struct strbuf *out)
{
    metrics_render(((struct node *)data)->metrics, out);
    return 200;
}

static const struct health_route health_routes[] = {
    {"/healthz", NULL, on_healthz}, {"/readyz", NULL, on_readyz}, {0}};
static const struct health_route metrics_routes[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", on_metrics}, {0}};

static void on_stopped(void *data)
{
    loop_quit(((struct node *)data)->loop);
}

static void on_signal(void *data, int signal)
{
    struct node *n = data;

    log_info("stopping", "signal=%s", sigabbrev_np(signal));
    engine_stop(n->engine, on_stopped, n); /* paused pods stay as they are */
}

static int serve(struct node *n, struct err *e)
{
    const struct node_options *o = &n->opt;
    int r = 0;

    if (o->health_address && strcmp(o->health_address, "0") != 0)
        r = health_new(n->loop, o->health_address, health_routes, n, &n->health, e);
    if (r == 0 && o->metrics_address && strcmp(o->metrics_address, "0") != 0)
        r = health_new(n->loop, o->metrics_address, metrics_routes, n, &n->metrics_server, e);
    return r;
}

static int set_up(struct node *n, struct err *e)
{
    struct engine_options options = {.component = "glovebox-node", .instance = n->opt.node};
    struct kube_config *config;
    sigset_t set;
    int r = loop_new(&n->loop, e);

    if (r < 0 || (r = kube_config_find(n->opt.kubeconfig, &config, e)) < 0)
        return r;
    config->user_agent = xstrdup("glovebox-node");
    n->metrics = metrics_new();
    if ((r = kube_new(n->loop, config, &n->kube, e)) < 0 ||
        (r = engine_new(n->loop, n->kube, &options, &n->engine, e)) < 0 ||
        (r = agent_new(n->loop, n->engine, n->opt.node, n->opt.folder ? n->opt.folder : PODS_FOLDER,
                       n->metrics, &n->agent, e)) < 0 ||
        (r = serve(n, e)) < 0)
        return r;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    r = loop_add_signals(n->loop, &set, on_signal, n, NULL);
    if (r < 0)
        return err_set(e, r, "cannot receive signals");
    engine_set_active(n->engine, true); /* nobody else has this node's pods: no election */
    return engine_start(n->engine, e);
}

static void tear_down(struct node *n)
{
    agent_free(n->agent);
    engine_free(n->engine);
    health_free(n->health);
    health_free(n->metrics_server);
    metrics_free(n->metrics);
    kube_free(n->kube);
    loop_free(n->loop);
}

int node_main(int argc, char **argv)
{
    struct node n = {0};
    struct err e = {0};

    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        usage(stdout);
        return 0;
    }
    int r = parse(argc, argv, &n.opt, &e), level = r < 0 ? r : log_level_of(n.opt.log_level, &e);
    if (level < 0) {
        (void)fprintf(stderr, "glovebox-controller node: %s\n", err_text(&e));
        return 2;
    }
    log_init(STDERR_FILENO, (enum log_level)level);
    (void)signal(SIGPIPE, SIG_IGN);
    r = set_up(&n, &e);
    if (r == 0) {
        log_info("started", "node=%s", n.opt.node);
        r = loop_run(n.loop, &e);
    }
    if (r < 0)
        log_error("cannot go on", "why=%s", err_text(&e));
    tear_down(&n);
    return r < 0;
}
