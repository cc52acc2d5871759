#pragma once
/* The caller's socket, as a descriptor of ours, judged by what it is and not by its number. */
#include "base/fd.h"
#include "shim/sentry/address.h"
#include "shim/sentry/call.h"

struct sock {
    int fd;
    int domain, type;
};
#define SOCK_NONE                                                                                            \
    {                                                                                                        \
        .fd = -1                                                                                             \
    }

/*
 * 0: *ret is an inet socket.  1: answered already: no socket; or AF_UNIX, which continues in the kernel.
 *
 * Continuing looks at the descriptor only.  Between our look and the kernel's another thread may put an
 * inet socket in its place; the socket guard then refuses what the kernel is about to do.
 */
int sock_take(struct call *call, int fd, struct sock *ret);
/* Reads and decides on an address. 0: perform with *ret (len 0: without address); 1: answered. The caller is
 * valid then. */
int sock_address(struct call *call, const struct sock *s, enum address_use use, uint64_t at, int64_t len,
                 struct address *ret);
/* The decision alone, for addresses that were read already. 0, or a positive errno, recorded. */
int sock_judge(struct call *call, const struct sock *s, enum address_use use, const struct address *a);
bool sock_is_nonblocking(const struct sock *s);
static inline void sock_done_scoped(struct sock *s)
{
    fd_close(s->fd);
}
