#pragma once
/*
 * The one place where children are waited for.  The shim is a child subreaper: container inits, exec
 * processes, the launcher's and loggers' helpers and orphans of containers that share the host's
 * process tree all arrive here.  The list of exits has no bound and no time limit; a process that
 * exits before anyone asked for its pid is remembered while somebody may still ask.
 */
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct reaper;
struct reaper_watch;

struct reaper_exit {
    pid_t pid;
    int raw;            /* as from waitpid */
    unsigned status;    /* 0-255, 128 + signal */
    struct timespec at; /* when it was reaped */
};
typedef void (*reaper_exit_fn)(void *data, const struct reaper_exit *exit);
/* Asked first for every pid: true = it was one of yours and is dealt with. */
typedef bool (*reaper_claim_fn)(void *data, pid_t pid, int raw);
/* May a pid that nobody knows yet be asked for later? Else its exit is forgotten at once. */
typedef bool (*reaper_expect_fn)(void *data);

/* Makes the process a subreaper and takes SIGCHLD (blocked, read through the loop). */
int reaper_new(struct loop *loop, reaper_claim_fn claim, reaper_expect_fn expect, void *data,
               struct reaper **ret, struct err *e);
void reaper_free(struct reaper *r); /* NULL is fine */

/*
 * Calls fn once, from the loop and never from inside this call, when pid has exited; at the next round if
 * it has been reaped already.  pidfd (stays the caller's) tells a recycled pid from the one that
 * exited.  pid must be a child that nobody watches yet.
 */
struct reaper_watch *reaper_add(struct reaper *r, pid_t pid, int pidfd, reaper_exit_fn fn, void *data);
void reaper_watch_free(struct reaper_watch *w); /* NULL is fine; after fn it is gone by itself */
size_t reaper_remembered(const struct reaper *r);
/* waitpid until nothing is left; the signal does the same. */
void reaper_collect(struct reaper *r);

SCOPED_DEFINE(struct reaper, reaper_free)
