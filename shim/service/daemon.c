#include "shim/service/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "shim/runtime/runtime.h"
#include "shim/service/paths.h"
#include "shim/service/service.h"
#include "shim/ttrpc/events.h"
#include "shim/ttrpc/server.h"

#define CLOSE_TICK_MS   5
#define ALONE_FIRST_MS  40
#define ALONE_LAST_MS   6000
#define NEVER_CALLED_MS 120000 /* containerd gives up dialling a new shim after 100 s */
#define CLOSE_MAX_MS    2500   /* containerd waits 3 s for Shutdown and then for the connection */

struct daemon {
    struct loop *loop;
    struct ttrpc_server *server;
    struct service service;
    const struct daemon_params *params;
    char *pod_link; /* /run/glovebox/pods/<pod>.sock, once the pod has a name */
    bool unlinked;
    struct source *close_timer, *alone_timer;
    int64_t alone_ms; /* until the next look */
    bool killed;      /* told to end by a signal: the containers are not deleted, only dead */
    int64_t close_deadline_ms;
};

/*
 * Replies and events on their way, cgroups that the kernel still holds: worth a moment, not more.
 * What is left then is found by the stateless clean-up, which containerd calls in any case.
 */
static void on_close_tick(void *data)
{
    struct daemon *d = data;
    bool over = d->killed ? runtime_all_ended(d->service.rt) : runtime_is_clean(d->service.rt);
    bool idle = ttrpc_server_idle(d->server) && events_idle(d->service.events) && over;

    if (!idle && clock_mono_ms() < d->close_deadline_ms) {
        source_arm(d->close_timer, CLOSE_TICK_MS);
        return;
    }
    if (!idle)
        log_warn("the shim ends with work undone", "replies=%d events=%d containers=%d",
                 !ttrpc_server_idle(d->server), !events_idle(d->service.events), !over);
    loop_quit(d->loop);
}

/*
 * Once, and before anything else ends: a new `start` that found the socket of a shim which is about to
 * go would join it; and a second unlink could hit the socket of our successor.
 */
static void unlink_sockets(struct daemon *d)
{
    if (d->unlinked)
        return;
    d->unlinked = true;
    if (d->params->socket_path)
        (void)unlink(d->params->socket_path);
    if (d->pod_link)
        (void)unlink(d->pod_link);
    (void)rmdir(STATE_DIR "/" PODS_DIR); /* only when empty */
}

static void begin_close(struct daemon *d)
{
    if (d->close_timer)
        return;
    unlink_sockets(d);
    d->service.closing = true;
    d->close_deadline_ms = clock_mono_ms() + CLOSE_MAX_MS;
    (void)loop_add_timer(d->loop, 0, on_close_tick, d, &d->close_timer);
}

static void on_shutdown(void *data)
{
    log_info("shutdown", NULL);
    begin_close(data);
}

/*
 * containerd was killed between `start` and the end of Create, or within Delete.  Its next life may
 * never call us (1.6 keeps a shim without a task for ever), so without a container and without a
 * connection we end by ourselves.  A Create or Delete of the lost caller may need a moment to unwind.
 */
static void on_alone_tick(void *data)
{
    struct daemon *d = data;

    if (!ttrpc_server_is_alone(d->server))
        return;
    if (runtime_is_empty(d->service.rt)) {
        log_info("no container and no caller is left, the shim ends", NULL);
        begin_close(d);
        return;
    }
    d->alone_ms *= 2;
    if (d->alone_ms <= ALONE_LAST_MS)
        source_arm(d->alone_timer, d->alone_ms);
}

static void on_alone(void *data)
{
    struct daemon *d = data;

    d->alone_ms = ALONE_FIRST_MS;
    source_arm(d->alone_timer, d->alone_ms);
}

static void on_signal(void *data, int signal)
{
    struct daemon *d = data;

    if (signal == SIGUSR1) {
        runtime_dump(d->service.rt);
        return;
    }
    /* Nobody would answer the containers' calls after us, so they end now and their exits are told. */
    log_warn("the shim was told to end, its containers are killed", "signal=%d", signal);
    runtime_kill_all(d->service.rt);
    d->killed = true;
    begin_close(d);
}

static bool make_dir(const char *path)
{
    return mkdir(path, 0711) == 0 || errno == EEXIST;
}

/* Again when another shim, ending, has just removed the empty directory. */
static bool name_socket(const char *socket, const char *name)
{
    (void)unlink(name); /* of a killed shim: the name is ours alone */
    for (int attempt = 0; attempt < 5; attempt++) {
        if (make_dir(STATE_DIR) && make_dir(STATE_DIR "/" PODS_DIR) &&
            /* A second name of the socket itself: who may see only this directory can still connect. */
            (linkat(AT_FDCWD, socket, AT_FDCWD, name, 0) == 0 ||
             (errno == EXDEV && symlink(socket, name) == 0)))
            return true;
        if (errno != ENOENT)
            return false;
    }
    return false;
}

/* So that the node agent finds the socket by the pod's name, which the hash in its path hides. */
static void on_created(void *data)
{
    struct daemon *d = data;
    const char *pod = runtime_pod_id(d->service.rt);

    if (d->pod_link || !pod || !d->params->socket_path)
        return;
    d->pod_link = paths_pod_link(STATE_DIR, pod);
    if (!name_socket(d->params->socket_path, d->pod_link))
        log_warn("the pod's socket has no name", "path=%s error=%s", d->pod_link, strerror(errno));
}

static int watch_signals(struct daemon *d, struct err *e)
{
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    int r = loop_add_signals(d->loop, &set, on_signal, d, NULL);
    return r < 0 ? err_set(e, r, "watch signals: %s", strerror(-r)) : 0;
}

static char *events_address(const struct daemon_params *p)
{
    if (p->ttrpc_address && *p->ttrpc_address)
        return xstrdup(p->ttrpc_address);
    return p->address && *p->address ? xasprintf("%s.ttrpc", p->address) : NULL;
}

static int setup(struct daemon *d, int listen_fd, struct err *e)
{
    const struct daemon_params *p = d->params;
    scoped_fd int fd = listen_fd;
    scoped_free char *events = events_address(p);

    int r = loop_new(&d->loop, e);
    if (r == 0)
        r = watch_signals(d, e);
    if (r == 0)
        r = events_new(d->loop, events, p->ns, &d->service.events, e);
    if (r < 0)
        return r;
    d->service.loop = d->loop;
    d->service.ns = p->ns;
    d->service.shutdown = on_shutdown;
    d->service.created = on_created;
    d->service.data = d;
    const struct rt_params rp = {.loop = d->loop,
                                 .ns = p->ns,
                                 .id = p->id,
                                 .state_dir = STATE_DIR,
                                 .audit_dir = AUDIT_DIR,
                                 .socket_path = p->socket_path,
                                 .debug = p->debug,
                                 .sink = {.publish = service_publish, .data = &d->service}};
    r = runtime_new(&rp, &d->service.rt, e);
    if (r < 0)
        return r;
    r = ttrpc_server_new(d->loop, take_fd(fd), service_methods, service_n_methods, &d->service, &d->server,
                         e);
    if (r < 0)
        return r;
    ttrpc_server_on_alone(d->server, on_alone, d);
    d->alone_ms = ALONE_LAST_MS;
    r = loop_add_timer(d->loop, NEVER_CALLED_MS, on_alone_tick, d, &d->alone_timer);
    return r < 0 ? err_set(e, r, "timer for a shim that nobody calls") : 0;
}

int daemon_run(const struct daemon_params *p, struct err *e)
{
    struct daemon d = {.params = p};

    int r = setup(&d, p->listen_fd, e);
    if (r == 0)
        r = loop_run(d.loop, e);
    unlink_sockets(&d);
    /* The runtime first: it answers who still waits, and those calls belong to the server. */
    runtime_free(d.service.rt);
    ttrpc_server_free(d.server);
    events_free(d.service.events);
    loop_free(d.loop);
    free(d.pod_link);
    return r;
}
