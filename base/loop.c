#include "base/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"

#define TIMER_MS_MAX (INT64_C(1000) * 3600 * 24 * 365 * 100)

/*
 * Every source is on one of the loop's lists.  source_free() moves it to `dead`, where it stays until
 * the round ends, because the epoll_event array of the round may still point to it.
 */
enum kind { KIND_FD, KIND_SIGNAL, KIND_TIMER, KIND_DEFER };

struct source {
    struct list node;
    struct loop *loop;
    enum kind kind;
    bool dead;
    int fd;         /* KIND_SIGNAL owns it */
    int64_t due_ns; /* KIND_TIMER: -1 = not armed */
    uint64_t armed; /* KIND_TIMER: the round of the loop in which it was */
    void *data;
    union {
        loop_fd_fn on_fd;
        loop_fn on_time;
        loop_signal_fn on_signal;
    };
};

struct loop {
    int epoll;
    bool quit;
    unsigned depth; /* of loop_step: a callback may run rounds of its own */
    uint64_t round;
    struct list fds, timers, deferred, dead;
};

int loop_new(struct loop **ret, struct err *e)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "epoll_create1");

    struct loop *l = xcalloc(1, sizeof *l);
    l->epoll = fd;
    list_init(&l->fds);
    list_init(&l->timers);
    list_init(&l->deferred);
    list_init(&l->dead);
    *ret = l;
    return 0;
}

static void bury(struct loop *l)
{
    LIST_FOREACH(n, &l->dead)
    {
        list_remove(n);
        free(LIST_ENTRY(n, struct source, node));
    }
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    struct list *all[] = {&l->fds, &l->timers, &l->deferred};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        LIST_FOREACH(n, all[i])
    source_free(LIST_ENTRY(n, struct source, node));
    bury(l);
    fd_close(l->epoll);
    free(l);
}

static struct source *source_new(struct loop *l, enum kind kind, struct list *on, void *data)
{
    struct source *s = xcalloc(1, sizeof *s);

    *s = (struct source){.loop = l, .kind = kind, .fd = -1, .due_ns = -1, .data = data};
    list_append(on, &s->node);
    return s;
}

static void give(struct source *s, struct source **ret)
{
    if (ret)
        *ret = s;
}

static int watch(struct source *s, int fd, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = s};

    if (epoll_ctl(s->loop->epoll, EPOLL_CTL_ADD, fd, &ev) < 0) {
        int r = -errno;
        list_remove(&s->node);
        free(s);
        return r;
    }
    s->fd = fd;
    return 0;
}

int loop_add_fd(struct loop *l, int fd, uint32_t events, loop_fd_fn fn, void *data, struct source **ret)
{
    struct source *s = source_new(l, KIND_FD, &l->fds, data);

    s->on_fd = fn;
    int r = watch(s, fd, events);
    if (r < 0)
        return r;
    give(s, ret);
    return 0;
}

int source_set_events(struct source *s, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = s};

    assert(s->kind == KIND_FD);
    return epoll_ctl(s->loop->epoll, EPOLL_CTL_MOD, s->fd, &ev) < 0 ? -errno : 0;
}

int loop_add_timer(struct loop *l, int64_t ms, loop_fn fn, void *data, struct source **ret)
{
    struct source *s = source_new(l, KIND_TIMER, &l->timers, data);

    s->on_time = fn;
    source_arm(s, ms);
    give(s, ret);
    return 0;
}

void source_arm(struct source *s, int64_t ms)
{
    assert(s->kind == KIND_TIMER);
    s->due_ns = ms < 0 ? -1 : clock_mono_ns() + MIN(ms, TIMER_MS_MAX) * 1000000;
    s->armed = s->loop->round;
}

int loop_add_signals(struct loop *l, const sigset_t *set, loop_signal_fn fn, void *data, struct source **ret)
{
    if (sigprocmask(SIG_BLOCK, set, NULL) < 0)
        return -errno;
    int fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return -errno;

    struct source *s = source_new(l, KIND_SIGNAL, &l->fds, data);
    s->on_signal = fn;
    int r = watch(s, fd, EPOLLIN);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    give(s, ret);
    return 0;
}

int loop_defer(struct loop *l, loop_fn fn, void *data, struct source **ret)
{
    struct source *s = source_new(l, KIND_DEFER, &l->deferred, data);

    s->on_time = fn;
    give(s, ret);
    return 0;
}

void source_free(struct source *s)
{
    if (!s || s->dead)
        return;
    s->dead = true;
    if (s->fd >= 0)
        (void)epoll_ctl(s->loop->epoll, EPOLL_CTL_DEL, s->fd, NULL);
    if (s->kind == KIND_SIGNAL)
        fd_close(s->fd);
    list_remove(&s->node);
    list_append(&s->loop->dead, &s->node);
}

/* Milliseconds until the first timer is due, rounded up, at most limit (-1 = none). */
static int next_timeout(const struct loop *l, int limit)
{
    int64_t first = -1;

    if (!list_is_empty(&l->deferred))
        return 0;
    LIST_FOREACH(n, &l->timers)
    {
        int64_t due = LIST_ENTRY(n, struct source, node)->due_ns;
        if (due >= 0 && (first < 0 || due < first))
            first = due;
    }
    if (first < 0)
        return limit;
    int64_t wait = (first - clock_mono_ns() + 999999) / 1000000;
    wait = MAX(wait, 0);
    if (limit >= 0 && wait > limit)
        wait = limit;
    return (int)MIN(wait, 1000 * 3600);
}

static void run_timers(struct loop *l)
{
    int64_t now = clock_mono_ns();
    uint64_t round = ++l->round;

    /*
     * A callback may free or arm other timers, so the search starts again after each call.  What it
     * arms waits for the next round, or a timer that arms itself for now would keep everything else out.
     */
    for (;;) {
        struct source *hit = NULL;
        LIST_FOREACH(n, &l->timers)
        {
            struct source *s = LIST_ENTRY(n, struct source, node);
            if (s->due_ns >= 0 && s->due_ns <= now && s->armed < round && (!hit || s->due_ns < hit->due_ns))
                hit = s;
        }
        if (!hit)
            return;
        hit->due_ns = -1;
        hit->on_time(hit->data);
    }
}

static void run_deferred(struct loop *l)
{
    struct list round;

    if (list_is_empty(&l->deferred))
        return;
    list_init(&round); /* what the callbacks defer waits for the next round */
    while (!list_is_empty(&l->deferred)) {
        struct list *n = l->deferred.next;
        list_remove(n);
        list_append(&round, n);
    }
    while (!list_is_empty(&round)) {
        struct source *s = LIST_ENTRY(round.next, struct source, node);
        loop_fn fn = s->on_time;
        void *data = s->data;
        source_free(s);
        fn(data);
    }
}

static void read_signals(struct source *s)
{
    struct signalfd_siginfo info;

    while (!s->dead && read(s->fd, &info, sizeof info) == (ssize_t)sizeof info)
        s->on_signal(s->data, (int)info.ssi_signo);
}

int loop_step(struct loop *l, int timeout_ms, struct err *e)
{
    struct epoll_event events[32];
    int n = epoll_wait(l->epoll, events, ARRAY_LEN(events), next_timeout(l, timeout_ms));

    if (n < 0 && errno != EINTR)
        return err_sys(e, "epoll_wait");
    l->depth++;
    for (int i = 0; i < n; i++) {
        struct source *s = events[i].data.ptr;
        if (s->dead)
            continue;
        if (s->kind == KIND_SIGNAL)
            read_signals(s);
        else
            s->on_fd(s->data, events[i].events);
    }
    run_timers(l);
    run_deferred(l);
    if (--l->depth == 0) /* an outer round may still hold pointers to them */
        bury(l);
    return 0;
}

int loop_run(struct loop *l, struct err *e)
{
    while (!l->quit) {
        int r = loop_step(l, -1, e);
        if (r < 0)
            return r;
    }
    return 0;
}

void loop_quit(struct loop *l)
{
    l->quit = true;
}
