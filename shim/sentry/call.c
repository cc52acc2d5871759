#include "shim/sentry/call.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/scoped.h"
#include "shim/filter/filter.h"
#include "shim/sentry/task.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD 0x80 /* O_EXCL; 6.9 */
#endif
#define ERESTARTSYS 512

int call_read(const struct call *call, uint64_t from, void *to, size_t n)
{
    struct iovec remote = {(void *)(uintptr_t)from, n};
    return call_read_vec(call, &remote, 1, to, n);
}

/* TOCTOU: this is the only place where the caller's memory is read. */
int call_read_vec(const struct call *call, const struct iovec *from, size_t n, void *to, size_t bytes)
{
    struct iovec local = {to, bytes};
    if (bytes == 0)
        return 0;
    ssize_t got = process_vm_readv((pid_t)call->u.n.pid, &local, 1, from, n, 0);
    return got == (ssize_t)bytes ? 0 : -EFAULT;
}

int call_write(const struct call *call, uint64_t to, const void *from, size_t n)
{
    struct iovec remote = {(void *)(uintptr_t)to, n};
    struct iovec local = {(void *)(uintptr_t)from, n};
    if (n == 0)
        return 0;
    return process_vm_writev((pid_t)call->u.n.pid, &local, 1, &remote, 1, 0) == (ssize_t)n ? 0 : -EFAULT;
}

bool call_valid(const struct call *call)
{
    uint64_t id = call->u.n.id;
    return ioctl(call->listener->fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/*
 * Handles, through which the caller's descriptor table can be read.  Since 6.9 a handle is the thread's
 * own.  Before, it is the process's, which has the same table: the filter lets no thread have its own.
 * A thread's number may by then belong to another process, so tgkill() without a signal asks first.
 */
static struct handle *find_handle(struct worker *w, pid_t tid)
{
    for (size_t i = 0; i < HANDLES_MAX; i++) {
        struct handle *h = &w->handles[i];
        if (h->pidfd >= 0 && h->tgid == 0 && h->tid == tid)
            return h;
        if (h->pidfd >= 0 && h->tgid != 0 && syscall(SYS_tgkill, h->tgid, tid, 0) == 0)
            return h;
    }
    return NULL;
}

static void drop_handle(struct handle *h)
{
    fd_close(h->pidfd);
    h->pidfd = -1;
}

static int open_handle(struct core *core, pid_t tid, struct handle *ret)
{
    *ret = (struct handle){.tid = tid};
    if (core->thread_pidfds) {
        ret->pidfd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
        return ret->pidfd < 0 ? -errno : 0;
    }
    ret->tgid = tid;
    ret->pidfd = (int)syscall(SYS_pidfd_open, tid, 0); /* works when it is the main thread */
    if (ret->pidfd >= 0)
        return 0;
    ret->tgid = task_process(core, tid);
    ret->pidfd = ret->tgid > 0 ? (int)syscall(SYS_pidfd_open, ret->tgid, 0) : -1;
    return ret->pidfd < 0 ? -ESRCH : 0;
}

static struct handle *get_handle(struct call *call)
{
    struct worker *w = call->worker;
    pid_t tid = (pid_t)call->u.n.pid;
    struct handle made, *h = find_handle(w, tid);

    if (h)
        return h;
    if (open_handle(call->core, tid, &made) < 0)
        return NULL;
    h = &w->handles[w->next_handle++ % HANDLES_MAX];
    drop_handle(h);
    *h = made;
    return h;
}

int call_take_fd(struct call *call, int fd)
{
    for (int tries = 0; tries < 2; tries++) {
        struct handle *h = get_handle(call);
        if (!h)
            return -EIO; /* gone, or the shim does not answer */
        int mine = (int)syscall(SYS_pidfd_getfd, h->pidfd, fd, 0);
        if (mine >= 0)
            return mine;
        if (errno != ESRCH)
            return -errno;
        drop_handle(h); /* of a thread that died: its number is another's now */
    }
    return -EBADF;
}

/* ENOENT: the caller is gone, or was interrupted before we had received it. Nobody waits for the answer then.
 */
static void send_answer(struct call *call, int64_t value, int error, uint32_t flags)
{
    struct seccomp_notif_resp answer = {.id = call->u.n.id, .val = value, .error = error, .flags = flags};
    call->answered = true;
    (void)ioctl(call->listener->fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

void call_return(struct call *call, int64_t value)
{
    send_answer(call, value, 0, 0);
}

void call_fail(struct call *call, int error)
{
    send_answer(call, 0, -error, 0);
}

void call_restart(struct call *call)
{
    send_answer(call, 0, -ERESTARTSYS, 0);
}

void call_continue(struct call *call)
{
    send_answer(call, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}

void call_give_fd(struct call *call, int fd, bool cloexec)
{
    struct seccomp_notif_addfd add = {
        .id = call->u.n.id,
        .srcfd = (uint32_t)fd,
        .flags =
            SECCOMP_ADDFD_FLAG_SEND, /* adds and answers in one step: nothing leaks into a caller that died */
        .newfd_flags = cloexec ? 02000000 : 0,
    };
    if (ioctl(call->listener->fd, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0)
        call_fail(call, errno); /* EMFILE and the like are the caller's answer */
    call->answered = true;
}

const char *call_name(const struct call *call)
{
    const struct rule *r = rule_for(call->u.n.data.nr);
    return r ? r->name : "unknown";
}

static void record(struct call *call, int error, const char *rule, const char *detail)
{
    uint64_t args[6];
    for (unsigned i = 0; i < 6; i++)
        args[i] = call_arg(call, i);
    audit_write(&call->core->audit, &(struct audit_record){
                                        .container = call->listener->name,
                                        .tid = (pid_t)call->u.n.pid,
                                        .call = call_name(call),
                                        .args = args,
                                        .detail = detail,
                                        .rule = rule,
                                        .error = error,
                                    });
}

void call_refuse(struct call *call, int error, const char *rule, const char *detail)
{
    record(call, error, rule, detail);
    if (error && (unsigned)call->u.n.data.nr < COUNTED_CALLS)
        call->core->counts->refused[call->u.n.data.nr]++;
    call_fail(call, error);
}

void call_note(struct call *call, const char *rule, const char *detail)
{
    record(call, 0, rule, detail);
}
