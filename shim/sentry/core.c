#include "shim/sentry/core.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "shim/sentry/call.h"
#include "shim/sentry/calls.h"
#include "shim/sentry/message.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS /* 6.6 */
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS      SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif
#define STACK_BYTES  (64 * 1024)
#define PARK_LOOK_MS 50 /* how long a call is parked before, and between, looks at its caller's signals */

void core_init(struct core *c)
{
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->turn, NULL);
    pthread_cond_init(&c->answered, NULL);
    list_init(&c->parked);
    list_init(&c->questions);
    c->wake_leader = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->wake_main = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void core_wake(int eventfd)
{
    uint64_t one = 1;
    (void)!write(eventfd, &one, sizeof one);
}

static void drain(int eventfd)
{
    uint64_t n;
    (void)!read(eventfd, &n, sizeof n);
}

void core_ask(struct core *c, const struct message *m)
{
    struct iovec part = {(void *)(uintptr_t)m, sizeof *m};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    (void)sendmsg(c->control, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- listeners ---- */

static void listener_unref(struct core *c, struct listener *l)
{
    pthread_mutex_lock(&c->lock);
    bool last = --l->refs == 0;
    pthread_mutex_unlock(&c->lock);
    if (!last)
        return;
    fd_close(l->fd);
    free(l);
}

int core_add_listener(struct core *c, int fd, const char *name)
{
    uint64_t sync = SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP;
    struct listener *l = xcalloc(1, sizeof *l);

    l->fd = fd;
    l->refs = 1;
    (void)strncat(l->name, name, sizeof l->name - 1);
    /* Caller and leader take turns on one CPU: 4 us a call instead of 20 (6.6). */
    if (ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, sync) == 0)
        c->sync_wake_up = true;

    pthread_mutex_lock(&c->lock);
    bool full = c->n_listeners == LISTENERS_MAX;
    if (!full)
        c->listeners[c->n_listeners++] = l;
    pthread_mutex_unlock(&c->lock);
    if (full) {
        listener_unref(c, l);
        return -ENOSPC;
    }
    core_wake(c->wake_leader);
    return 0;
}

static void drop_listener(struct core *c, struct listener *l)
{
    bool found = false;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n_listeners && !found; i++) {
        if (c->listeners[i] != l)
            continue;
        c->listeners[i] = c->listeners[--c->n_listeners];
        found = true;
    }
    pthread_mutex_unlock(&c->lock);
    if (found)
        listener_unref(c, l);
}

/* ---- workers ---- */

static void *worker_run(void *data);

int core_start_worker(struct core *c)
{
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int r = pthread_create(&thread, &attr, worker_run, c);
    pthread_attr_destroy(&attr);
    if (r == 0)
        c->n_threads++;
    return -r;
}

bool worker_arm(struct worker *w, int64_t us)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    const struct timespec after = {us / 1000000, us % 1000000 * 1000};
    /* Again and again: the first one may come before the step that it is to interrupt has begun. */
    struct itimerspec at = {.it_value = after, .it_interval = after};

    event._sigev_un._tid = w->tid;
    if (!w->has_timer)
        w->has_timer = timer_create(CLOCK_MONOTONIC, &event, &w->timer) == 0;
    return w->has_timer && timer_settime(w->timer, 0, &at, NULL) == 0;
}

/* Waits for the lead. False: there are idle threads enough. */
static bool take_lead(struct core *c)
{
    bool ok = true;
    pthread_mutex_lock(&c->lock);
    c->n_idle++;
    while (ok && c->led) {
        if (c->n_idle > THREADS_IDLE_MAX)
            ok = false;
        else
            pthread_cond_wait(&c->turn, &c->lock);
    }
    c->n_idle--;
    if (ok)
        c->led = true;
    else
        c->n_threads--;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

int call_park(struct call *call)
{
    struct core *c = call->core;
    int r = 0;

    pthread_mutex_lock(&c->lock);
    /* Without a successor nobody would answer the pod's calls any more. */
    if (!call->parked && c->n_idle == 0)
        r = c->n_threads < THREADS_MAX ? core_start_worker(c) : -ENOBUFS;
    if (r == 0 && !call->parked) {
        call->parked = true;
        call->looked_ms = clock_mono_ms();
        list_append(&c->parked, &call->node);
        c->n_parked++;
        c->led = false;
        pthread_cond_signal(&c->turn);
    }
    pthread_mutex_unlock(&c->lock);
    if (r < 0)
        return -ENOBUFS;
    core_wake(c->wake_main); /* it looks after us from now on */
    return 0;
}

static void unpark(struct call *call)
{
    struct core *c = call->core;
    pthread_mutex_lock(&c->lock);
    list_remove(&call->node);
    c->n_parked--;
    bool waited_for = c->stopped && list_is_empty(&c->parked);
    pthread_mutex_unlock(&c->lock);
    if (waited_for)
        core_wake(c->wake_main);
}

bool call_interrupted(struct call *call, int socket)
{
    struct timeval timeout = {0};
    socklen_t len = sizeof timeout;

    switch (call->interrupt) {
    case INTERRUPT_DEAD:
        call->answered = true; /* nobody is there */
        return true;
    case INTERRUPT_RELEASE:
        call_restart(call);
        return true;
    case INTERRUPT_SIGNAL:
        /* As the kernel (sock_intr_errno): with a timeout on the socket the call is not restartable. */
        if (socket >= 0 && getsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, &len) == 0 &&
            (timeout.tv_sec || timeout.tv_usec))
            call_fail(call, EINTR);
        else
            call_restart(call);
        return true;
    default:
        return false; /* a stray signal */
    }
}

/* ---- the lead ---- */

/* 0 served, 1 the lead has passed to somebody else meanwhile */
static int serve(struct worker *w, struct listener *l)
{
    struct call call = {.core = w->core, .worker = w, .listener = l};

    list_init(&call.node);
    if (ioctl(l->fd, SECCOMP_IOCTL_NOTIF_RECV, &call.u.n) < 0)
        return 0; /* ENOENT: the caller died or was interrupted first */
    pthread_mutex_lock(&w->core->lock);
    l->refs++;
    pthread_mutex_unlock(&w->core->lock);

    calls_answer(&call);
    if (!call.answered)
        call_fail(&call, EIO);
    if (call.parked)
        unpark(&call);
    listener_unref(w->core, l);
    return call.parked;
}

struct watch { /* what the leader waits for */
    struct pollfd fds[LISTENERS_MAX + 1];
    struct listener *listeners[LISTENERS_MAX];
    size_t n;
};

/* False: no receiving now. */
static bool refresh(struct core *c, struct watch *watch)
{
    pthread_mutex_lock(&c->lock);
    watch->n = c->stopped ? 0 : c->n_listeners;
    for (size_t i = 0; i < watch->n; i++) {
        watch->listeners[i] = c->listeners[i];
        watch->fds[i] = (struct pollfd){.fd = c->listeners[i]->fd, .events = POLLIN};
    }
    bool tell = c->stopped && !c->quiet;
    c->quiet = c->stopped;
    pthread_mutex_unlock(&c->lock);
    watch->fds[watch->n] = (struct pollfd){.fd = c->wake_leader, .events = POLLIN};
    if (tell)
        core_wake(c->wake_main);
    return watch->n > 0;
}

/* One round over what is ready. 1: the lead has passed on. */
static int serve_ready(struct worker *w, struct watch *watch, bool *ret_stale)
{
    for (size_t i = 0; i < watch->n; i++) {
        short got = watch->fds[i].revents;
        if (got & POLLIN) {
            if (serve(w, watch->listeners[i]))
                return 1;
        } else if (got & (POLLHUP | POLLERR | POLLNVAL)) { /* its last task is gone */
            drop_listener(w->core, watch->listeners[i]);
            *ret_stale = true;
        }
    }
    return 0;
}

static void lead(struct worker *w, struct watch *watch)
{
    bool stale = true;
    for (;;) {
        if (stale)
            (void)refresh(w->core, watch);
        stale = false;
        int n = poll(watch->fds, watch->n + 1, -1);
        if (n < 0)
            continue; /* EINTR */
        if (watch->fds[watch->n].revents) {
            drain(w->core->wake_leader);
            stale = true;
            continue;
        }
        if (serve_ready(w, watch, &stale))
            return;
    }
}

static void *worker_run(void *data)
{
    struct worker w = {.core = data, .tid = (pid_t)syscall(SYS_gettid)};
    struct watch watch;

    for (size_t i = 0; i < HANDLES_MAX; i++)
        w.handles[i].pidfd = -1;
    while (take_lead(w.core))
        lead(&w, &watch);
    for (size_t i = 0; i < HANDLES_MAX; i++)
        fd_close(w.handles[i].pidfd);
    if (w.has_timer)
        (void)timer_delete(w.timer);
    return NULL;
}

/* ---- the main thread's part ---- */

void core_stop(struct core *c, bool stopped)
{
    pthread_mutex_lock(&c->lock);
    c->stopped = stopped;
    c->quiet = false;
    pthread_mutex_unlock(&c->lock);
    core_wake(c->wake_leader);
}

bool core_is_quiet(struct core *c)
{
    pthread_mutex_lock(&c->lock);
    bool quiet = c->stopped && (c->quiet || !c->led);
    pthread_mutex_unlock(&c->lock);
    return quiet;
}

bool core_is_empty(struct core *c)
{
    pthread_mutex_lock(&c->lock);
    bool empty = c->stopped && (c->quiet || !c->led) && list_is_empty(&c->parked);
    pthread_mutex_unlock(&c->lock);
    return empty;
}

/* Under the lock. The signal may come a moment before the thread blocks, so every tick sends it again. */
static void interrupt(struct call *call, enum interrupt why)
{
    if (call->interrupt == INTERRUPT_NONE)
        call->interrupt = why;
    (void)syscall(SYS_tgkill, call->core->pid, call->worker->tid, SIGUSR1);
}

void core_release_parked(struct core *c, const char *container)
{
    pthread_mutex_lock(&c->lock);
    LIST_FOREACH(node, &c->parked)
    {
        struct call *call = LIST_ENTRY(node, struct call, node);
        if (container[0] == '\0' || strcmp(call->listener->name, container) == 0)
            interrupt(call, INTERRUPT_RELEASE);
    }
    pthread_mutex_unlock(&c->lock);
}

void core_task_answer(struct core *c, uint64_t cookie, int tgid, bool pending)
{
    pthread_mutex_lock(&c->lock);
    LIST_FOREACH(node, &c->parked)
    {
        struct call *call = LIST_ENTRY(node, struct call, node);
        if (call->query != cookie)
            continue;
        call->query = 0;
        if (tgid > 0 && pending && call_valid(call))
            interrupt(call, INTERRUPT_SIGNAL);
    }
    pthread_mutex_unlock(&c->lock);
}

/*
 * Called for every message too, so each call keeps its own time.  Many parked calls are looked at less
 * often: the shim reads a file of procfs for each look.
 */
int core_tick(struct core *c)
{
    int64_t now = clock_mono_ms();

    pthread_mutex_lock(&c->lock);
    bool any = !list_is_empty(&c->parked);
    int64_t interval = PARK_LOOK_MS * (1 + (int64_t)c->n_parked / 16);
    LIST_FOREACH(node, &c->parked)
    {
        struct call *call = LIST_ENTRY(node, struct call, node);
        if (now - call->looked_ms < interval)
            continue;
        call->looked_ms = now;
        if (call->interrupt != INTERRUPT_NONE || !call_valid(call)) {
            interrupt(call, INTERRUPT_DEAD);
            continue;
        }
        call->query = ++c->last_cookie;
        core_ask(c, &(struct message){
                        .type = MESSAGE_TASK_QUERY, .value = (int32_t)call->u.n.pid, .cookie = call->query});
    }
    pthread_mutex_unlock(&c->lock);
    return any ? PARK_LOOK_MS : -1;
}
