#include "shim/runtime/reaper.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/scoped.h"

struct reaper {
    struct loop *loop;
    struct source *signal;
    reaper_claim_fn claim;
    reaper_expect_fn expect;
    void *data;
    struct list watches;
    struct list early; /* exits that nobody has asked for yet, oldest first */
};

struct reaper_watch {
    struct list node;
    struct reaper *reaper;
    reaper_exit_fn fn;
    void *data;
    pid_t pid;
    struct reaper_exit exit; /* set when it came early */
    struct source *later;
};

struct early {
    struct list node;
    struct reaper_exit exit;
};

static unsigned status_of(int raw)
{
    return WIFSIGNALED(raw) ? 128u + (unsigned)WTERMSIG(raw) : (unsigned)WEXITSTATUS(raw);
}

static struct reaper_watch *find(struct reaper *r, pid_t pid)
{
    LIST_FOREACH(n, &r->watches)
    {
        struct reaper_watch *w = LIST_ENTRY(n, struct reaper_watch, node);
        if (w->pid == pid)
            return w;
    }
    return NULL;
}

static void forget_early(struct reaper *r)
{
    LIST_FOREACH(n, &r->early)
    {
        list_remove(n);
        free(LIST_ENTRY(n, struct early, node));
    }
}

static void fire(struct reaper_watch *w, const struct reaper_exit *ex)
{
    reaper_exit_fn fn = w->fn;
    void *data = w->data;

    reaper_watch_free(w);
    fn(data, ex);
}

static void dispatch(struct reaper *r, const struct reaper_exit *ex)
{
    struct reaper_watch *w = find(r, ex->pid);

    if (w) {
        fire(w, ex);
        return;
    }
    if (r->claim(r->data, ex->pid, ex->raw))
        return;
    if (!r->expect(r->data))
        return;

    struct early *e = xcalloc(1, sizeof *e);
    e->exit = *ex;
    list_append(&r->early, &e->node);
}

void reaper_collect(struct reaper *r)
{
    int raw;
    pid_t pid;

    /* SIGCHLD is not counted: one signal may stand for any number of exits. */
    while ((pid = waitpid(-1, &raw, WNOHANG | __WALL)) > 0) {
        struct reaper_exit ex = {.pid = pid, .raw = raw, .status = status_of(raw), .at = clock_wall()};
        dispatch(r, &ex);
    }
    if (!list_is_empty(&r->early) && !r->expect(r->data))
        forget_early(r);
}

static void on_sigchld(void *data, int signal UNUSED)
{
    reaper_collect(data);
}

int reaper_new(struct loop *loop, reaper_claim_fn claim, reaper_expect_fn expect, void *data,
               struct reaper **ret, struct err *e)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return err_sys(e, "become a child subreaper");

    scoped(reaper_free) struct reaper *r = xcalloc(1, sizeof *r);
    *r = (struct reaper){.loop = loop, .claim = claim, .expect = expect, .data = data};
    list_init(&r->watches);
    list_init(&r->early);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    int x = loop_add_signals(loop, &set, on_sigchld, r, &r->signal);
    if (x < 0)
        return err_set(e, x, "watch SIGCHLD");

    *ret = take(r);
    return 0;
}

void reaper_free(struct reaper *r)
{
    if (!r)
        return;
    LIST_FOREACH(n, &r->watches)
    reaper_watch_free(LIST_ENTRY(n, struct reaper_watch, node));
    forget_early(r);
    source_free(r->signal);
    free(r);
}

static void on_later(void *data)
{
    struct reaper_watch *w = data;
    struct reaper_exit ex = w->exit;

    w->later = NULL; /* a deferred source runs once and is gone */
    fire(w, &ex);
}

/*
 * Was the process behind pidfd reaped already?  Then waiting for it is ECHILD; a living process or a
 * zombie that SIGCHLD has still to bring gives 0, and an early exit of that number belongs to an
 * older process with the same pid.
 */
static bool was_reaped(int pidfd)
{
    siginfo_t info = {0};

    return waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 && errno == ECHILD;
}

static bool take_early(struct reaper *r, pid_t pid, struct reaper_exit *ret)
{
    bool found = false;

    LIST_FOREACH(n, &r->early)
    {
        struct early *e = LIST_ENTRY(n, struct early, node);
        if (e->exit.pid != pid)
            continue;
        *ret = e->exit; /* the newest wins */
        found = true;
        list_remove(n);
        free(e);
    }
    return found;
}

struct reaper_watch *reaper_add(struct reaper *r, pid_t pid, int pidfd, reaper_exit_fn fn, void *data)
{
    struct reaper_watch *w = xcalloc(1, sizeof *w);

    assert(pid > 0);
    *w = (struct reaper_watch){.reaper = r, .fn = fn, .data = data, .pid = pid};
    list_append(&r->watches, &w->node);

    bool early = take_early(r, pid, &w->exit);
    if (pidfd >= 0 && !was_reaped(pidfd))
        return w;
    if (!early) {
        if (pidfd < 0)
            return w;
        /* Reaped by someone else: nobody should, but a Wait must not hang for it. */
        log_error("a child was reaped behind the reaper's back", "pid=%d", pid);
        w->exit = (struct reaper_exit){.pid = pid, .raw = 255 << 8, .status = 255, .at = clock_wall()};
    }
    w->pid = -1; /* the number may belong to another process already */
    if (loop_defer(r->loop, on_later, w, &w->later) < 0)
        log_error("cannot defer an exit", NULL);
    return w;
}

void reaper_watch_free(struct reaper_watch *w)
{
    if (!w)
        return;
    source_free(w->later);
    list_remove(&w->node);
    free(w);
}

size_t reaper_remembered(const struct reaper *r)
{
    size_t n = 0;

    for (const struct list *l = r->early.next; l != &r->early; l = l->next)
        n++;
    return n;
}
