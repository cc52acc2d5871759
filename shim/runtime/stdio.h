#pragma once
/*
 * The standard streams of one process: pipes or a pty master on the container's side, FIFOs, files
 * or a logger on containerd's side, and the copiers between them.  The process never gets
 * containerd's FIFO or a file of the host itself, only pipes: a vanished reader cannot kill it, and it
 * holds nothing of the host that it could truncate or reopen.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct reaper;
struct stdio;

enum { STDIO_IN, STDIO_OUT, STDIO_ERR };

struct stdio_params {
    struct loop *loop;
    struct reaper *reaper;
    const char *ns, *id; /* for loggers; id: container or exec id */
    const char *uri[3];  /* NULL = "" */
    bool terminal;
    uid_t uid; /* owner of the pipes, so that the process may reopen /dev/stdout */
    gid_t gid;
    /* Once: the process may be started (r == 0), or a logger failed.  Called from the loop, only when
     * stdio_open gave 1. */
    void (*ready)(void *data, int r, const struct err *e);
    void *data;
};

/* Form only, for an exec that starts later.  -EINVAL: unknown scheme. */
int stdio_check(const char *const uri[3], struct err *e);
/* 0: ready.  1: params->ready will be called.  <0: failed, nothing stays. */
int stdio_open(const struct stdio_params *p, struct stdio **ret, struct err *e);
/* Closes all at once, undrained; NULL is fine. */
void stdio_free(struct stdio *io);

/* Descriptors 0, 1, 2 for the process; without a terminal only.  They stay io's... */
const int *stdio_child_fds(const struct stdio *io);
/* ...until the process has them: our copies must go, or the end of its output is never seen. */
void stdio_child_started(struct stdio *io);
/* The pty master (taken). */
int stdio_set_console(struct stdio *io, int master, struct err *e);
int stdio_resize(struct stdio *io, unsigned width, unsigned height, struct err *e); /* 0 without a terminal */
/* CloseIO: may come at any time and again. */
void stdio_close_stdin(struct stdio *io);
/* The process was reaped: stdin ends now, output goes on until its end. */
void stdio_process_exited(struct stdio *io);

/*
 * Before Delete answers: done is called once when all output is delivered, at the latest after
 * STDIO_DRAIN_MAX_MS, or STDIO_DRAIN_IDLE_MS without a byte moving (somebody else holds the pipe, or
 * the reader sleeps).  Called from the loop, never from inside.
 */
#define STDIO_DRAIN_MAX_MS  5000
#define STDIO_DRAIN_IDLE_MS 2000
void stdio_drain(struct stdio *io, void (*done)(void *data), void *data);
bool stdio_is_drained(const struct stdio *io);

SCOPED_DEFINE(struct stdio, stdio_free)
