#include "shim/hibernate/stop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/scoped.h"

#define PF_EXITING     0x4 /* include/linux/sched.h; the flags of /proc/PID/stat */
#define ERESTARTNOHAND 514 /* kernel-internal: restart unless a handler runs */

/*
 * Calls that any stop ends with EINTR although no signal arrived (epoll_wait: every kernel; the others
 * by what stops them).  With ERESTARTNOHAND in place of EINTR the kernel restarts them when the thread
 * goes on, which is what it does for poll and futex by itself.
 */
static const long eintr_calls[] = {SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_rt_sigtimedwait,
                                   SYS_semop,      SYS_semtimedop,  SYS_recvfrom,     SYS_recvmsg};

static bool restarts(long nr)
{
    for (size_t i = 0; i < ARRAY_LEN(eintr_calls); i++)
        if (eintr_calls[i] == nr)
            return true;
    return false;
}

static void cure_eintr(pid_t tid)
{
    struct user_regs_struct regs;

    if (ptrace(PTRACE_GETREGS, tid, 0, &regs) < 0)
        return;
    if ((long)regs.rax != -EINTR || !restarts((long)regs.orig_rax))
        return;
    regs.rax = (unsigned long long)-ERESTARTNOHAND;
    (void)ptrace(PTRACE_SETREGS, tid, 0, &regs);
}

bool stop_is_ending(pid_t tid)
{
    uint64_t flags;

    return proc_stat_field(tid, 9, &flags) < 0 || (flags & PF_EXITING);
}

/* Waits until tid is in the stop that PTRACE_INTERRUPT asks for.  0, 1 = it is gone, -ETIMEDOUT. */
static int wait_event_stop(pid_t tid, int64_t until_ms)
{
    unsigned rounds = 0;

    for (;;) {
        int status;
        pid_t r = waitpid(tid, &status, __WALL | WNOHANG);
        if (r < 0) {
            if (errno == EINTR)
                continue;
            return 1;
        }
        if (r == 0) {
            if (clock_mono_ms() > until_ms)
                return -ETIMEDOUT;
            (void)usleep(50);
            if (++rounds % 64 == 0 && stop_is_ending(tid))
                return 1;
            continue;
        }
        if (WIFEXITED(status) || WIFSIGNALED(status))
            return 1;
        if (status >> 16 == PTRACE_EVENT_STOP)
            return 0;
        /* A signal was on its way: let it arrive, then stop again. */
        int signal = WSTOPSIG(status);
        if (ptrace(PTRACE_CONT, tid, 0, signal & 0x80 ? 0 : signal) < 0 ||
            ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0)
            return 1;
    }
}

static bool has_thread(const struct stopped *p, pid_t tid)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->threads[i].tid == tid)
            return true;
    return false;
}

/* Asks the threads of p that are new to stop.  Their number. */
static int ask_threads(struct stopped *p)
{
    char path[64];
    int found = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task", p->pid);
    DIR *d = opendir(path);
    if (!d)
        return 0;
    for (struct dirent *entry; (entry = readdir(d));) {
        uint64_t tid;
        if (parse_u64(entry->d_name, INT32_MAX, &tid) < 0 || has_thread(p, (pid_t)tid))
            continue;
        /* EPERM and ESRCH: a zombie, or gone. */
        if (ptrace(PTRACE_SEIZE, (pid_t)tid, 0, PTRACE_O_TRACESYSGOOD) < 0)
            continue;
        (void)ptrace(PTRACE_INTERRUPT, (pid_t)tid, 0, 0);
        p->threads = xgrow(p->threads, p->n, &p->cap, sizeof *p->threads);
        p->threads[p->n++] = (struct stopped_thread){.tid = (pid_t)tid};
        found++;
    }
    (void)closedir(d);
    return found;
}

static int await_threads(struct stopped *p, int64_t until_ms)
{
    for (size_t i = 0; i < p->n;) {
        struct stopped_thread *t = &p->threads[i];
        int r = t->stopped ? 0 : wait_event_stop(t->tid, until_ms);
        if (r < 0)
            return r;
        if (r == 1) { /* gone */
            *t = p->threads[--p->n];
            continue;
        }
        if (!t->stopped)
            cure_eintr(t->tid);
        t->stopped = true;
        i++;
    }
    return 0;
}

static struct stopped *set_get(struct stop_set *set, pid_t pid)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->items[i]->pid == pid)
            return set->items[i];

    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return NULL;
    struct stopped *p = xcalloc(1, sizeof *p);
    p->pid = pid;
    p->pidfd = pidfd;
    set->items = xgrow(set->items, set->n, &set->cap, sizeof *set->items);
    set->items[set->n++] = p;
    return p;
}

static int stop_round(struct stop_set *set, const struct stop_calls *calls, int64_t until_ms, struct err *e)
{
    scoped_free pid_t *pids = NULL;
    size_t n = 0;
    int found = 0;
    int r = calls->list(calls->data, &pids, &n, e);

    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        struct stopped *p = set_get(set, pids[i]);
        found += p ? ask_threads(p) : 0;
    }
    if (found && calls->asked)
        calls->asked(calls->data);
    for (size_t i = 0; i < set->n; i++)
        if (await_threads(set->items[i], until_ms) < 0)
            return err_set(e, -ETIMEDOUT, "process %d could not be stopped in time", set->items[i]->pid);
    return found;
}

static bool same_mm(pid_t a, pid_t b)
{
    return syscall(SYS_kcmp, a, b, KCMP_VM, 0, 0) == 0;
}

static void mark_shared(struct stop_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        for (size_t j = 0; j < i && !set->items[i]->shares_mm; j++)
            set->items[i]->shares_mm =
                !set->items[j]->shares_mm && same_mm(set->items[i]->pid, set->items[j]->pid);
}

int stop_all(struct stop_set *set, const struct stop_calls *calls, int64_t deadline_ms, struct err *e)
{
    int64_t until = clock_mono_ms() + deadline_ms;

    for (;;) {
        int r = stop_round(set, calls, until, e);
        if (r < 0) {
            stop_detach(set);
            return r;
        }
        if (r == 0)
            break;
    }
    mark_shared(set);
    return 0;
}

void stop_detach(struct stop_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        for (size_t t = 0; t < set->items[i]->n;
             t++) /* one that has not stopped yet goes free when the pager ends */
            (void)ptrace(PTRACE_DETACH, set->items[i]->threads[t].tid, 0, 0);
}

void stop_done(struct stop_set *set)
{
    for (size_t i = 0; i < set->n; i++) {
        fd_close(set->items[i]->pidfd);
        free(set->items[i]->threads);
        free(set->items[i]);
    }
    free(set->items);
    *set = (struct stop_set){0};
}
