#include "shim/cli/cli.h"

#include <stdio.h>
#include <unistd.h>

int cli_version(void)
{
    int n = dprintf(STDOUT_FILENO, "containerd-shim-glovebox-v1:\n  Version: %s\n  Runtime type: %s\n",
                    GLOVEBOX_VERSION, GLOVEBOX_NAME);

    return n < 0;
}

int cli_fail(const char *what, const struct err *e)
{
    (void)dprintf(STDERR_FILENO, "containerd-shim-glovebox-v1: %s: %s\n", what, err_text(e));
    return 1;
}
