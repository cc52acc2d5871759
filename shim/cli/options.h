#pragma once
/*
 * What containerd writes to the stdin of `start`: up to 2.2 the runtime options (an Any, or nothing),
 * from 2.3 on BootstrapParams with the options as extensions.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"

struct start_options {
    bool debug;          /* containerd logs at debug level */
    char *shim_cgroup;   /* a cgroup the shim itself is to live in; these are NULL when not given */
    char *socket_dir;    /* in place of /run/containerd/s */
    char *ttrpc_address; /* where events go */
};

/*
 * Both forms begin with a string and a bytes field: it is BootstrapParams if and only if they hold the
 * id and the namespace of the command line.  Options of other runtimes are ignored: containerd sends
 * them to any shim.  <0: not readable; *ret then holds what could be read, which is enough to go on.
 */
int start_options_parse(const void *data, size_t len, const char *id, const char *ns,
                        struct start_options *ret, struct err *e);
void start_options_done(struct start_options *o);
static inline void start_options_done_scoped(struct start_options *o)
{
    start_options_done(o);
}
