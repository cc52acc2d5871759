#pragma once
/*
 * The invocations that containerd makes (shim protocol: start, delete, -info, -v).  Each returns the
 * exit status of the program.  Only the answer goes to stdout; when one fails, one sentence goes to
 * stderr, which containerd shows to the user.
 */
#include "shim/cli/flags.h"

#define GLOVEBOX_NAME    "io.containerd.glovebox.v1"
#define GLOVEBOX_VERSION "0.1.0"

int cli_start(const struct cli_flags *f); /* also the daemon's main: then it returns when the daemon ends */
int cli_delete(const struct cli_flags *f);
int cli_info(void);
int cli_version(void);

/* "containerd-shim-glovebox-v1: what: text" to stderr; returns 1. */
int cli_fail(const char *what, const struct err *e);
