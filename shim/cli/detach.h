#pragma once
/*
 * From `start` to the daemon: one fork, no exec (the program is in memory already, and loading it again
 * would only delay the first request).  What the daemon must not share with `start` is left behind here.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct detach {
    int listen_fd;           /* in: the listener.  In the daemon: its new number */
    int log_fd;              /* out, daemon only: the bundle's log FIFO, -1 = nobody listens */
    const char *shim_cgroup; /* NULL = stay where containerd is */
};

/*
 * In the parent: the daemon's pid, once it has everything it asked for.  In the daemon: 0; descriptors
 * 0 to 2 are /dev/null, the listener and the log are the only others, it leads its own session, reaps
 * orphans and is one more likely to be killed for memory than containerd; SIGTERM and SIGINT are blocked
 * until its loop reads them.  <0: there is no daemon.
 */
pid_t detach(struct detach *d, struct err *e);
