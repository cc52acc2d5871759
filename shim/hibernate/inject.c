/*
 * System calls run in a stopped process, by its first stopped thread.  The process's own seccomp
 * filter is suspended for it (PTRACE_O_SUSPEND_SECCOMP, Linux 4.3, CONFIG_CHECKPOINT_RESTORE), because
 * the filter rightly refuses userfaultfd.
 */
#include <elf.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "shim/hibernate/stop.h"

#define MAPS_MAX     (64u << 20)
#define SYSCALL_STOP (SIGTRAP | 0x80)
#ifndef PTRACE_O_SUSPEND_SECCOMP
#define PTRACE_O_SUSPEND_SECCOMP (1 << 21)
#endif
#ifndef PTRACE_GETSIGMASK
#define PTRACE_GETSIGMASK 0x420a
#define PTRACE_SETSIGMASK 0x420b
#endif
#define SPINS 200

/* A `syscall` instruction in the vdso: program text is never patched. */
static int find_syscall_insn(struct stopped *p, struct err *e)
{
    char path[64];
    scoped_free char *maps = NULL;
    unsigned long start = 0, end = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/maps", p->pid);
    int r = file_read(-1, path, MAPS_MAX, &maps, NULL, e);
    if (r < 0)
        return r;
    char *line = strstr(maps, "[vdso]");
    while (line && line > maps && line[-1] != '\n')
        line--;
    if (!line || sscanf(line, "%lx-%lx", &start, &end) != 2 || end <= start || end - start > 65536)
        return err_set(e, -ENOTSUP, "process %d has no vdso", p->pid);

    scoped_free uint8_t *text = xcalloc(1, end - start);
    struct iovec local = {text, end - start}, remote = {(void *)start, end - start};
    ssize_t n = process_vm_readv(p->pid, &local, 1, &remote, 1, 0);
    for (ssize_t i = 0; i + 1 < n; i++)
        if (text[i] == 0x0f && text[i + 1] == 0x05) {
            p->syscall_insn = start + (uint64_t)i;
            return 0;
        }
    return err_set(e, -ENOTSUP, "process %d has no syscall instruction in its vdso", p->pid);
}

/* Never sleeps in waitpid: see stop_is_ending(). */
static pid_t wait_patiently(pid_t tid, int *status)
{
    for (unsigned round = 0;; round++) {
        pid_t r = waitpid(tid, status, __WALL | WNOHANG);
        if (r != 0 && !(r < 0 && errno == EINTR))
            return r;
        if (round < SPINS) { /* an injected call takes microseconds */
            (void)sched_yield();
            continue;
        }
        (void)usleep(50);
        if (round % 64 == 0 && stop_is_ending(tid)) {
            errno = ESRCH;
            return -1;
        }
    }
}

/* SIGTRAP means any event stop: that of a process that SIGSTOP has stopped carries SIGSTOP. */
static bool is_stop(int status, int want)
{
    return want == SYSCALL_STOP ? WSTOPSIG(status) == want : status >> 16 == PTRACE_EVENT_STOP;
}

static int wait_stop(pid_t tid, int want, struct err *e)
{
    int status;

    for (;;) {
        if (wait_patiently(tid, &status) < 0)
            return err_sys(e, "wait for thread %d", tid);
        if (WIFEXITED(status) || WIFSIGNALED(status))
            return err_set(e, -ESRCH, "thread %d ended during the pause", tid);
        if (WIFSTOPPED(status) && is_stop(status, want))
            return 0;
        if (ptrace(want == SYSCALL_STOP ? PTRACE_SYSCALL : PTRACE_CONT, tid, 0, 0) < 0)
            return err_sys(e, "continue thread %d", tid);
    }
}

int inject_begin(struct stopped *p, struct err *e)
{
    uint64_t all = ~0ULL;
    pid_t tid = p->threads[0].tid;
    int r = find_syscall_insn(p, e);

    if (r < 0)
        return r;
    if (ptrace(PTRACE_GETREGS, tid, 0, &p->saved) < 0 ||
        ptrace(PTRACE_GETSIGMASK, tid, sizeof p->saved_mask, &p->saved_mask) < 0)
        return err_sys(e, "read the registers of thread %d", tid);
    /* From here to inject_end the registers are not the program's: it must not survive us. */
    if (ptrace(PTRACE_SETOPTIONS, tid, 0,
               PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_SUSPEND_SECCOMP) < 0)
        return err_sys(e, "suspend seccomp of thread %d", tid);
    if (ptrace(PTRACE_SETSIGMASK, tid, sizeof all, &all) < 0)
        return err_sys(e, "block the signals of thread %d", tid);
    p->injecting = true;
    return 0;
}

int inject_call(struct stopped *p, long nr, const uint64_t args[6], long *ret, struct err *e)
{
    pid_t tid = p->threads[0].tid;
    struct user_regs_struct regs = p->saved;

    regs.rax = (unsigned long long)nr;
    regs.orig_rax = (unsigned long long)-1; /* not inside a call: nothing to restart */
    regs.rip = p->syscall_insn;
    regs.rdi = args[0];
    regs.rsi = args[1];
    regs.rdx = args[2];
    regs.r10 = args[3];
    regs.r8 = args[4];
    regs.r9 = args[5];
    if (ptrace(PTRACE_SETREGS, tid, 0, &regs) < 0)
        return err_sys(e, "set the registers of thread %d", tid);
    for (int stop = 0; stop < 2; stop++) { /* entry, exit */
        if (ptrace(PTRACE_SYSCALL, tid, 0, 0) < 0)
            return err_sys(e, "run a call in thread %d", tid);
        int r = wait_stop(tid, SYSCALL_STOP, e);
        if (r < 0)
            return r;
    }
    if (ptrace(PTRACE_GETREGS, tid, 0, &regs) < 0)
        return err_sys(e, "read the registers of thread %d", tid);
    *ret = (long)regs.rax;
    return 0;
}

/*
 * The registers must be put back in an event stop: in a syscall-exit stop the kernel has passed the
 * place where it turns -ERESTART* into a restart, and the program would see errno 512.
 */
int inject_end(struct stopped *p, struct err *e)
{
    pid_t tid = p->threads[0].tid;

    if (!p->injecting)
        return 0;
    if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0 || ptrace(PTRACE_CONT, tid, 0, 0) < 0)
        return err_sys(e, "stop thread %d", tid);
    int r = wait_stop(tid, SIGTRAP, e);
    if (r < 0)
        return r;
    if (ptrace(PTRACE_SETREGS, tid, 0, &p->saved) < 0 ||
        ptrace(PTRACE_SETSIGMASK, tid, sizeof p->saved_mask, &p->saved_mask) < 0 ||
        ptrace(PTRACE_SETOPTIONS, tid, 0, PTRACE_O_TRACESYSGOOD) < 0)
        return err_sys(e, "put the registers of thread %d back", tid);
    p->injecting = false;
    return 0;
}
