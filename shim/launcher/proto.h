#pragma once
/*
 * The fixed messages between the shim, the launcher and its helpers, over SOCK_SEQPACKET pairs, with
 * descriptors beside them.  Both ends are the same program, so the struct is the format; nothing that
 * untrusted code writes ever comes through here.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum msg_kind {
    MSG_NONE,
    MSG_FAILED, /* any -> launcher -> shim: r and text */
    MSG_BORN,   /* joiner -> launcher -> shim: value = pid of the init; fd: its pidfd */
    MSG_PID_NS, /* launcher -> builder: fd of the pid namespace for /proc */
    MSG_BUILT,  /* builder -> launcher: the tree stands; fds by `have` */
    MSG_ROOT,   /* launcher -> init: fds: mount namespace [, pty] */
    MSG_READY,  /* init -> launcher: value = descriptor number of the listener, value2 = pty master or -1 */
    MSG_DONE,   /* launcher -> shim: result; fds by `have` */
    MSG_GO,     /* shim -> init: exec now */
};
enum { HAVE_CONSOLE = 1, HAVE_TTY = 2, HAVE_VIEW = 4, HAVE_MNT = 8, HAVE_LISTENER = 16 }; /* in this order */

struct msg {
    uint32_t kind;
    int32_t r;
    int64_t value, value2;
    uint32_t have;
    char text[ERR_TEXT_MAX];
};
#define MSG_FDS_MAX 6

/* 0 or -errno; -EPIPE when the other side is gone. */
int msg_send(int sock, const struct msg *m, const int *fds, size_t n_fds);
/* The same without descriptors and with write(2) alone: a filtered process may have nothing else left. */
int msg_write(int sock, const struct msg *m);
/*
 * Waits at most timeout_ms (-1: for ever).  0, or -errno: -EPIPE the other side ended, -ETIMEDOUT.
 * A MSG_FAILED becomes its r with e filled.  fds[] are the caller's; unused ones are -1.
 */
int msg_recv(int sock, int timeout_ms, struct msg *m, int fds[MSG_FDS_MAX], struct err *e);
/*
 * The same, from a process that shares its end with others: when it has died (pidfd) without a message,
 * nothing more will come, though the socket stays open.
 */
int msg_recv_from(int sock, int pidfd, int timeout_ms, struct msg *m, int fds[MSG_FDS_MAX], struct err *e);
int msg_fail(int sock, int r, const struct err *e); /* returns r */
int msg_pair(int ret[2], struct err *e);            /* a SOCK_SEQPACKET pair */
