#pragma once
/*
 * A notified call as its handler sees it: the caller's memory and descriptors, and the answer.  Every
 * call is answered exactly once; a handler that forgets is caught and answers EIO.
 *
 * Reading: one copy into private memory, then call_valid(), then nothing but the copy.  call_valid()
 * after the reads proves that the thread that was read was still the one that asked (thread numbers are
 * reused); it is needed before every step with an effect.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "shim/sentry/core.h"

static inline uint64_t call_arg(const struct call *call, unsigned i)
{
    return call->u.n.data.args[i];
}

/* Exactly n bytes: 0 or -EFAULT (also when the caller is gone: nobody will see it). */
int call_read(const struct call *call, uint64_t from, void *to, size_t n);
/* Several ranges at once, all of them. */
int call_read_vec(const struct call *call, const struct iovec *from, size_t n, void *to, size_t bytes);
int call_write(const struct call *call, uint64_t to, const void *from, size_t n);
bool call_valid(const struct call *call);
/* The caller's open file description: a descriptor of ours, or -errno (-EBADF as the kernel would say). */
int call_take_fd(struct call *call, int fd);

void call_return(struct call *call, int64_t value);
void call_fail(struct call *call, int error); /* positive errno */
void call_restart(struct call *call);         /* as if interrupted: the kernel restarts it or gives EINTR */
void call_continue(struct call *call);        /* only when the verdict does not depend on memory */
void call_give_fd(struct call *call, int fd, bool cloexec); /* fd becomes the call's result; stays ours */
/* Refused by a rule: errno to the caller, a line to the audit. */
void call_refuse(struct call *call, int error, const char *rule, const char *detail);
/* Let through, but on record (a policy in Audit mode). */
void call_note(struct call *call, const char *rule, const char *detail);
const char *call_name(const struct call *call);
