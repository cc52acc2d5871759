#pragma once
/*
 * Copies one byte stream in the loop: container pipe or pty master -> FIFO, file or logger; stdin
 * FIFO -> container pipe or pty master.  Each stream stands alone: a reader that is slow, stopped or
 * gone holds up nothing but its own stream.
 *
 * Output FIFOs are opened O_WRONLY without waiting, again and again while there is no reader (ENXIO),
 * and only then O_RDONLY to keep them alive while containerd restarts.  The other order would let a
 * short-lived process write and end before the client has opened: its output would be lost.
 *
 * Plain read and write, not splice(2): the bytes come from hostile processes, and splice would hand
 * their pages (vmsplice'd ones stay writable by them) to containerd.  docs/adr tells the price.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct stream;
typedef void (*stream_done_fn)(void *data);

enum stream_source {
    STREAM_PIPE, /* ends at end of file */
    STREAM_TTY, /* a pty master: EIO while nobody holds the slave, which is the end only after stream_exited()
                 */
};

struct stream_params {
    struct loop *loop;
    int src, dst; /* taken, on failure too; dst -1: open fifo_path */
    enum stream_source source;
    const char *fifo_path;  /* output FIFO, or any other file that is opened for writing */
    int src_keep;           /* taken: the write end that keeps a stdin FIFO from ending, -1 = none */
    bool quit_on_dst_error; /* input: end when the reader is gone; output goes on and throws away */
    stream_done_fn done;    /* once, from the loop; everything is closed then */
    void *data;
};

/* fifo_path that cannot be opened at all (missing, no permission) is an error here and now. */
int stream_new(const struct stream_params *p, struct stream **ret, struct err *e);
void stream_free(struct stream *s); /* closes without draining; NULL is fine; done is not called */

/* CloseIO: drops the keep-alive, so that the end comes when all other writers have closed too. */
void stream_close_keep(struct stream *s);
/* The process has ended: a terminal's EIO is the end from now on. */
void stream_exited(struct stream *s);
bool stream_is_done(const struct stream *s);
/* Done, or nobody has ever opened the FIFO and there is nothing to be told: no reason to wait for it. */
bool stream_is_empty(const struct stream *s);
uint64_t stream_moved(const struct stream *s); /* bytes written or thrown away so far */

SCOPED_DEFINE(struct stream, stream_free)
