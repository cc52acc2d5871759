#pragma once
/*
 * Single-threaded event loop over epoll.  Descriptors are level-triggered.  A callback may free any
 * source, its own too: freed sources get no more callbacks, even in the same round.
 */
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/err.h"

struct loop;
struct source;
typedef void (*loop_fd_fn)(void *data, uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR */
typedef void (*loop_fn)(void *data);
typedef void (*loop_signal_fn)(void *data, int signal);

int loop_new(struct loop **ret, struct err *e);
void loop_free(struct loop *l); /* frees all its sources */

/* The descriptor stays the caller's and must outlive the source.  ret may be NULL. */
int loop_add_fd(struct loop *l, int fd, uint32_t events, loop_fd_fn fn, void *data, struct source **ret);
int source_set_events(struct source *s, uint32_t events); /* 0 = only EPOLLHUP and EPOLLERR */
/* One-shot timer, `ms` from now; source_arm restarts it, -1 disarms. */
int loop_add_timer(struct loop *l, int64_t ms, loop_fn fn, void *data, struct source **ret);
void source_arm(struct source *s, int64_t ms);
/* Blocks the signals in the calling thread and reads them from a signalfd. */
int loop_add_signals(struct loop *l, const sigset_t *set, loop_signal_fn fn, void *data, struct source **ret);
/* Runs once, after the current round of events. */
int loop_defer(struct loop *l, loop_fn fn, void *data, struct source **ret);
void source_free(struct source *s); /* NULL is fine */

int loop_run(struct loop *l, struct err *e); /* until loop_quit */
void loop_quit(struct loop *l);
/* One round, waiting at most timeout_ms (-1: for ever). */
int loop_step(struct loop *l, int timeout_ms, struct err *e);
