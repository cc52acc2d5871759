#pragma once
/*
 * The shim process of one pod: the ttrpc server with the Task service (v2 and v3) and the pod's own
 * Control service, one event loop, one thread.  Called by main after the process has detached.
 */
#include <stdbool.h>

#include "base/err.h"

struct daemon_params {
    const char *ns;            /* containerd namespace */
    const char *id;            /* of the container whose `start` made this process */
    const char *address;       /* containerd's gRPC socket */
    const char *ttrpc_address; /* where events go: a bare path; NULL or "" = address + ".ttrpc" */
    const char *socket_path;   /* of listen_fd; unlinked on every way out; NULL = not ours to unlink */
    const char *bundle;        /* absolute */
    int listen_fd;             /* taken, on failure too */
    bool debug;
};

/*
 * Serves until Shutdown with no container left, or SIGTERM/SIGINT.  Sets itself up as the reaper of
 * everything below it (child subreaper) and blocks the signals it reads through the loop.  0: ended in
 * order, the socket is unlinked and all events are flushed (bounded); <0: could not start to serve.
 */
int daemon_run(const struct daemon_params *p, struct err *e);
