#pragma once
/* The command line, in the syntax of Go's flag package: -x v, -x=v, --x v; flags come before the action. */
#include <stdbool.h>

#include "base/err.h"

struct cli_flags { /* strings point into argv; absent ones are "" */
    const char *ns, *id, *address, *publish_binary, *bundle, *socket, *debug_socket;
    bool debug, version, info, help;
    char *action; /* the first argument that is no flag, or NULL */
};

int cli_flags_parse(int argc, char **argv, struct cli_flags *ret, struct err *e);
/* containerd's rule for namespaces and ids; they become names of files. -EINVAL: e names the flag. */
int cli_check_name(const char *flag, const char *value, struct err *e);
