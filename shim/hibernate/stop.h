#pragma once
/*
 * Stops processes by ptrace, whole or not at all, and runs system calls in them.  Belongs to the pager
 * process: ptrace relations are per thread, and the pager has one.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "base/err.h"

struct stopped_thread {
    pid_t tid;
    bool stopped; /* otherwise the stop was asked for and is awaited */
};
struct stopped {
    pid_t pid;
    int pidfd;
    bool shares_mm; /* with another process of the set that is handled already (vfork, CLONE_VM) */
    struct stopped_thread *threads;
    size_t n, cap;
    /* Injection state of the thread `threads[0]`. */
    bool injecting;
    struct user_regs_struct saved;
    uint64_t saved_mask;
    uint64_t syscall_insn, scratch;
};
struct stop_set {
    struct stopped **items;
    size_t n, cap;
};

/*
 * Stops every thread of the processes in pids[] and of those that appear meanwhile: list() is called
 * again until it brings nothing new.  -ETIMEDOUT after deadline_ms (a vfork parent cannot be stopped
 * before its child execs or exits); then everything runs again as before.
 * A wait that the stop would end with EINTR although no signal came is made to restart.
 */
struct stop_calls {
    int (*list)(void *data, pid_t **ret, size_t *ret_n, struct err *e);
    /* Every thread found so far has been asked to stop, none was waited for yet: whoever holds threads in
     * the kernel (the sentry, with calls that wait for a peer) must let go of them now. */
    void (*asked)(void *data);
    void *data;
};
int stop_all(struct stop_set *set, const struct stop_calls *calls, int64_t deadline_ms, struct err *e);
void stop_detach(struct stop_set *set); /* lets go: frozen tasks stay frozen, others run on */
void stop_done(struct stop_set *set);

/*
 * The thread was killed and is on its way out.  For the first process of a pid namespace that way ends only
 * when all others of the namespace are reaped, those that we trace by us: waiting for it would be for ever.
 */
bool stop_is_ending(pid_t tid);

/* While injecting, the tracer's death kills the process: it would run on with wrong registers. */
int inject_begin(struct stopped *p, struct err *e);
/* *ret gets the kernel's answer, errors as -errno; the return value tells whether the injection worked. */
int inject_call(struct stopped *p, long nr, const uint64_t args[6], long *ret, struct err *e);
/* Puts registers and signal mask back, in a stop from which the interrupted call restarts by itself. */
int inject_end(struct stopped *p, struct err *e);
