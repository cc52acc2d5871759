#include "controller/cli/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/random.h"
#include "base/strbuf.h"
#include "controller/cli/flags.h"
#include "controller/core/engine.h"
#include "controller/core/health.h"
#include "controller/core/lease.h"
#include "controller/core/metrics.h"
#include "controller/kube/kubeconfig.h"
#include "controller/sandbox/names.h"
#include "controller/sandbox/sandboxes.h"

struct options {
    const char *kubeconfig, *cluster_domain, *metrics_address, *health_address, *lease_namespace,
        *router_namespace;
    const char *label_domains, *label_domains_file, *runtime_handler, *log_level;
    bool extensions, front, leader_elect, pod_resources, evictable, no_claim_events, version;
    long starts_max, grace_ms, passes_max, writes_max;
};

#if defined(__x86_64__)
#define ARCH_NAME "amd64"
#elif defined(__aarch64__)
#define ARCH_NAME "arm64"
#else
#define ARCH_NAME "unknown"
#endif
#define O(member) offsetof(struct options, member)
static const struct flag flags[] = {
    {"kubeconfig", FLAG_STRING, O(kubeconfig), "file that says where the API server is; not needed in a pod"},
    {"extensions", FLAG_BOOL, O(extensions), "SandboxClaim, SandboxTemplate and SandboxWarmPool too (true)"},
    {"short-api", FLAG_BOOL, O(front), "sandbox.k8s.io/v1alpha1 too (true)"},
    {"cluster-domain", FLAG_STRING, O(cluster_domain), "of serviceFQDN (cluster.local)"},
    {"metrics-bind-address", FLAG_STRING, O(metrics_address), "where /metrics is served, 0: nowhere (:8080)"},
    {"health-probe-bind-address", FLAG_STRING, O(health_address),
     "where /healthz and /readyz are served (:8081)"},
    {"leader-elect", FLAG_BOOL, O(leader_elect), "work only while holding the Lease " LEASE_NAME " (true)"},
    {"leader-election-namespace", FLAG_STRING, O(lease_namespace), "of the Lease (our own)"},
    {"router-namespace", FLAG_STRING, O(router_namespace),
     "whence the router may connect (agent-sandbox-system)"},
    {"allowed-label-domains", FLAG_STRING, O(label_domains),
     "that claims may put on Pods, by comma (sandbox.users.io)"},
    {"allowed-label-domains-file", FLAG_STRING, O(label_domains_file),
     "the same from a file (/etc/sandbox-config/allowed-label-domains when it is there)"},
    {"runtime-handler", FLAG_STRING, O(runtime_handler),
     "of RuntimeClasses that can pause in place (" RUNTIME_HANDLER ")"},
    {"pod-level-resources", FLAG_BOOL, O(pod_resources),
     "the cluster takes spec.resources of Pods, 1.34 and later (true)"},
    {"enable-warm-pool-eviction", FLAG_BOOL, O(evictable),
     "let the cluster autoscaler move pool members (true)"},
    {"sandbox-warm-pool-max-batch-size", FLAG_INT, O(starts_max),
     "members of a pool on their way at once (300)"},
    {"sandbox-warm-pool-readiness-grace-period", FLAG_DURATION_MS, O(grace_ms),
     "for a member to get ready (5m)"},
    {"concurrent-passes", FLAG_INT, O(passes_max), "objects of one kind at work at once (64)"},
    {"disable-claim-events", FLAG_BOOL, O(no_claim_events),
     "no events for adopted and provisioned sandboxes (false)"},
    {"log-level", FLAG_STRING, O(log_level), "error, warn, info or debug (info)"},
    {"version", FLAG_BOOL, O(version), "print the version"},
    /* Flags of the field's controller that have no work here; manifests that carry them go on to work. */
    {"sandbox-concurrent-workers", FLAG_IGNORED, 0, NULL},
    {"sandbox-claim-concurrent-workers", FLAG_IGNORED, 0, NULL},
    {"sandbox-warm-pool-concurrent-workers", FLAG_IGNORED, 0, NULL},
    {"sandbox-template-concurrent-workers", FLAG_IGNORED, 0, NULL},
    {"sandbox-warm-pool-replenish-delay", FLAG_IGNORED, 0, NULL},
    {"sandbox-warm-pool-max-refill-rate", FLAG_IGNORED, 0, NULL},
    {"sandbox-warm-pool-unschedulable-recheck-interval", FLAG_IGNORED, 0, NULL},
    {"sandbox-write-behind-window", FLAG_IGNORED, 0, NULL},
    {"kube-api-qps", FLAG_IGNORED, 0, NULL},
    {"kube-api-burst", FLAG_IGNORED, 0, NULL},
    {"api-connections", FLAG_IGNORED, 0, NULL},
    {"separate-watch-connection", FLAG_IGNORED_BOOL, 0, NULL},
    {"cache-label-selectors", FLAG_IGNORED_BOOL, 0, NULL},
    {"disable-claim-observability-annotations", FLAG_IGNORED_BOOL, 0, NULL},
    {"enable-tracing", FLAG_IGNORED_BOOL, 0, NULL},
    {"enable-pprof", FLAG_IGNORED_BOOL, 0, NULL},
    {"enable-pprof-debug", FLAG_IGNORED_BOOL, 0, NULL},
    {"pprof-block-profile-rate", FLAG_IGNORED, 0, NULL},
    {"pprof-mutex-profile-fraction", FLAG_IGNORED, 0, NULL},
    {"zap-log-level", FLAG_IGNORED, 0, NULL},
    {"zap-encoder", FLAG_IGNORED, 0, NULL},
    {"zap-devel", FLAG_IGNORED_BOOL, 0, NULL},
    {"zap-stacktrace-level", FLAG_IGNORED, 0, NULL},
    {"zap-time-encoding", FLAG_IGNORED, 0, NULL},
    {NULL, FLAG_STRING, 0, NULL},
};

#define DOMAINS_MAX 64

struct manager {
    struct options opt;
    struct loop *loop;
    struct kube *kube;
    struct engine *engine;
    struct lease *lease;
    struct metrics *metrics;
    struct metric *api_calls, *api_failures, *memory, *leading;
    struct health *health, *metrics_server;
    struct sandboxes *sandboxes;
    char *domain_text;
    const char *domains[DOMAINS_MAX + 1];
    char *identity;
};

/* ---- options ---- */

static const struct options defaults = {
    .cluster_domain = "cluster.local",
    .metrics_address = ":8080",
    .health_address = ":8081",
    .router_namespace = "agent-sandbox-system",
    .runtime_handler = RUNTIME_HANDLER,
    .log_level = "info",
    .extensions = true,
    .front = true,
    .leader_elect = true,
    .pod_resources = true,
    .evictable = true,
    .starts_max = 300,
    .grace_ms = 300000,
    .passes_max = 64,
    .writes_max = 64,
};

static int log_level_of(const char *name, struct err *e)
{
    static const char *const names[] = {
        [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

    for (int i = 0; i < (int)ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return err_set(e, -EINVAL, "--log-level must be error, warn, info or debug, not \"%s\"", name);
}

/* The flag, else the file, else the field's default. */
static int read_domains(struct manager *m, struct err *e)
{
    static const char usual[] = "/etc/sandbox-config/allowed-label-domains";
    const char *file = m->opt.label_domains_file;
    size_t n = 0;

    if (m->opt.label_domains) {
        m->domain_text = xstrdup(m->opt.label_domains);
    } else if (file || access(usual, R_OK) == 0) {
        int r = file_read(AT_FDCWD, file ? file : usual, 65536, &m->domain_text, NULL, e);
        if (r < 0)
            return err_wrap(e, r, "--allowed-label-domains-file");
    } else {
        m->domain_text = xstrdup("sandbox.users.io");
    }
    for (char *save = NULL, *d = strtok_r(m->domain_text, ", \t\r\n", &save); d && n < DOMAINS_MAX;
         d = strtok_r(NULL, ", \t\r\n", &save))
        m->domains[n++] = d;
    return 0;
}

/* ---- health and metrics ---- */

static int on_healthz(void *data, struct strbuf *out)
{
    (void)data;
    strbuf_puts(out, "ok\n");
    return 200;
}

static int on_readyz(void *data, struct strbuf *out)
{
    bool ok = engine_is_healthy(((struct manager *)data)->engine);

    strbuf_puts(out, ok ? "ok\n" : "the caches are not filled, or the API server is silent\n");
    return ok ? 200 : 503;
}

static int on_metrics(void *data, struct strbuf *out)
{
    metrics_render(((struct manager *)data)->metrics, out);
    return 200;
}

static const struct health_route health_routes[] = {
    {"/healthz", NULL, on_healthz}, {"/readyz", NULL, on_readyz}, {0}};
static const struct health_route metrics_routes[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", on_metrics}, {0}};

static const struct metric_def own_metrics[] = {
    {.name = "glovebox_api_requests_total",
     .help = "Requests to the API server",
     .type = METRIC_GAUGE,
     .label = {"verb"}},
    {.name = "glovebox_api_failures_total",
     .help = "Requests that failed",
     .type = METRIC_GAUGE,
     .label = {"verb"}},
    {.name = "process_resident_memory_bytes", .help = "Resident memory", .type = METRIC_GAUGE},
    {.name = "glovebox_leader", .help = "1 while this replica does the work", .type = METRIC_GAUGE},
    {.name = "agent_sandbox_build_info",
     .help = "What runs here",
     .type = METRIC_GAUGE,
     .label = {"git_version", "git_commit", "build_date", "go_version", "compiler", "platform"}},
};

static double resident_bytes(void)
{
    scoped_free char *text = NULL;
    unsigned long pages = 0;

    if (file_read(AT_FDCWD, "/proc/self/statm", 4096, &text, NULL, NULL) < 0 ||
        sscanf(text, "%*u %lu", &pages) != 1)
        return 0;
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void on_collect(void *data)
{
    static const char *const verbs[KUBE_VERBS] = {
        [KUBE_GET] = "get",           [KUBE_CREATE] = "create",         [KUBE_UPDATE] = "update",
        [KUBE_MERGE_PATCH] = "patch", [KUBE_JSON_PATCH] = "json-patch", [KUBE_APPLY] = "apply",
        [KUBE_DELETE] = "delete"};
    struct manager *m = data;
    const struct kube_stats *s = kube_stats(m->kube);

    for (int i = 0; i < KUBE_VERBS; i++)
        if (verbs[i]) {
            metric_set(m->api_calls, (double)s->calls[i], &verbs[i]);
            metric_set(m->api_failures, (double)s->failed[i], &verbs[i]);
        }
    metric_set(m->memory, resident_bytes(), NULL);
    metric_set(m->leading, !m->lease || lease_is_leading(m->lease), NULL);
}

static void add_metrics(struct manager *m)
{
    m->metrics = metrics_new();
    m->api_calls = metrics_add(m->metrics, &own_metrics[0]);
    m->api_failures = metrics_add(m->metrics, &own_metrics[1]);
    m->memory = metrics_add(m->metrics, &own_metrics[2]);
    m->leading = metrics_add(m->metrics, &own_metrics[3]);
    metric_set(metrics_add(m->metrics, &own_metrics[4]), 1,
               (const char *const[]){GLOVEBOX_VERSION, "", "", "", "gcc " __VERSION__, "linux/" ARCH_NAME});
    metrics_collect(m->metrics, on_collect, m);
}

/* ---- life ---- */

static void on_released(void *data)
{
    loop_quit(((struct manager *)data)->loop);
}

static void on_engine_stopped(void *data)
{
    struct manager *m = data;

    if (m->lease)
        lease_release(m->lease, on_released, m);
    else
        on_released(m);
}

static void on_signal(void *data, int signal)
{
    struct manager *m = data;

    log_info("stopping", "signal=%s", sigabbrev_np(signal));
    engine_stop(m->engine, on_engine_stopped, m);
}

static void on_lease(void *data, bool leading)
{
    struct manager *m = data;

    log_info(leading ? "leading" : "not leading", "identity=%s", m->identity);
    engine_set_active(m->engine, leading);
}

static void on_synced(void *data)
{
    (void)data;
    log_info("caches are filled", NULL);
}

static int set_up_engine(struct manager *m, struct err *e)
{
    const struct options *o = &m->opt;
    struct kube_config *config;
    int r = kube_config_find(o->kubeconfig, &config, e);

    if (r == 0)
        r = kube_new(m->loop, config, &m->kube, e);
    if (r == 0)
        r = engine_new(
            m->loop, m->kube,
            &(struct engine_options){
                .component = FIELD_MANAGER, .instance = m->identity, .synced = on_synced, .data = m},
            &m->engine, e);
    if (r < 0)
        return r;
    return sandboxes_new(m->engine,
                         &(struct sandboxes_options){.cluster_domain = o->cluster_domain,
                                                     .router_namespace = o->router_namespace,
                                                     .label_domains = m->domains,
                                                     .runtime_handler = o->runtime_handler,
                                                     .extensions = o->extensions,
                                                     .front = o->front,
                                                     .pod_resources = o->pod_resources,
                                                     .claim_events = !o->no_claim_events,
                                                     .evictable = o->evictable,
                                                     .starts_max = MAX(o->starts_max, 1),
                                                     .readiness_grace_ms = o->grace_ms,
                                                     .passes_max = MAX(o->passes_max, 1)},
                         m->metrics, &m->sandboxes, e);
}

static int set_up_servers(struct manager *m, struct err *e)
{
    const struct options *o = &m->opt;
    int r = 0;

    if (strcmp(o->health_address, "0") != 0)
        r = health_new(m->loop, o->health_address, health_routes, m, &m->health, e);
    if (r == 0 && strcmp(o->metrics_address, "0") != 0)
        r = health_new(m->loop, o->metrics_address, metrics_routes, m, &m->metrics_server, e);
    return r;
}

static int set_up_lease(struct manager *m, struct err *e)
{
    const struct options *o = &m->opt;

    if (!o->leader_elect) {
        engine_set_active(m->engine, true);
        return 0;
    }
    return lease_new(
        m->loop, m->kube,
        &(struct lease_options){.ns = o->lease_namespace ? o->lease_namespace : kube_namespace(m->kube),
                                .name = LEASE_NAME,
                                .identity = m->identity,
                                .changed = on_lease,
                                .data = m},
        &m->lease, e);
}

static int set_up(struct manager *m, struct err *e)
{
    char host[256] = "";
    sigset_t set;
    int r = read_domains(m, e);

    if (r < 0 || (r = loop_new(&m->loop, e)) < 0)
        return r;
    (void)gethostname(host, sizeof host - 1);
    m->identity = xasprintf("%s_%08x", host, random_u32());
    add_metrics(m);
    if ((r = set_up_engine(m, e)) < 0 || (r = set_up_servers(m, e)) < 0)
        return r;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    r = loop_add_signals(m->loop, &set, on_signal, m, NULL);
    if (r < 0)
        return err_set(e, r, "cannot receive signals");
    r = engine_start(m->engine, e);
    return r < 0 ? r : set_up_lease(m, e);
}

static void tear_down(struct manager *m)
{
    engine_free(m->engine);
    sandboxes_free(m->sandboxes);
    lease_free(m->lease);
    health_free(m->health);
    health_free(m->metrics_server);
    metrics_free(m->metrics);
    kube_free(m->kube);
    loop_free(m->loop);
    free(m->identity);
    free(m->domain_text);
}

int manager_main(int argc, char **argv)
{
    struct manager m = {.opt = defaults};
    struct err e = {0};
    int r = flags_parse(flags, argc, argv, &m.opt, &e), level = r < 0 ? r : log_level_of(m.opt.log_level, &e);

    if (r == 1) {
        flags_print(flags,
                    "glovebox-controller manager [--kubeconfig FILE] [flags]\n"
                    "Runs the controllers of Sandbox, SandboxClaim, SandboxTemplate and SandboxWarmPool.");
        return 0;
    }
    if (level < 0) {
        (void)fprintf(stderr, "glovebox-controller manager: %s\n", err_text(&e));
        return 2;
    }
    if (m.opt.version) {
        (void)printf("glovebox-controller %s\n", GLOVEBOX_VERSION);
        return 0;
    }
    log_init(STDERR_FILENO, (enum log_level)level);
    (void)signal(SIGPIPE, SIG_IGN);
    r = set_up(&m, &e);
    if (r == 0) {
        log_info("started", "version=%s", GLOVEBOX_VERSION);
        r = loop_run(m.loop, &e);
    }
    if (r < 0)
        log_error("cannot go on", "why=%s", err_text(&e));
    tear_down(&m);
    return r < 0;
}
