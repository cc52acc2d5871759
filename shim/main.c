/* containerd-shim-glovebox-v1: what containerd calls to run a pod's containers.  See shim/cli/cli.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "shim/cli/cli.h"

static const struct {
    const char *name;
    int (*run)(const struct cli_flags *f);
} actions[] = {
    {"start", cli_start},
    {"delete", cli_delete},
};

static int usage(FILE *to, int status)
{
    (void)fputs("usage: containerd-shim-glovebox-v1 -namespace NS -id ID -address SOCKET [-bundle DIR] "
                "[-debug] start|delete\n"
                "       containerd-shim-glovebox-v1 -info | -version\n"
                "containerd calls this program for runtime type " GLOVEBOX_NAME
                "; start runs in the bundle.\n",
                to);
    return status;
}

int main(int argc, char **argv)
{
    struct cli_flags f;
    struct err e = {0};

    if (cli_flags_parse(argc, argv, &f, &e) < 0) {
        (void)cli_fail("command line", &e);
        return usage(stderr, 2);
    }
    if (f.help)
        return usage(stdout, 0);
    if (f.version)
        return cli_version();
    if (f.info)
        return cli_info();
    for (size_t i = 0; f.action && i < ARRAY_LEN(actions); i++)
        if (strcmp(f.action, actions[i].name) == 0)
            return actions[i].run(&f);
    (void)err_set(&e, -EINVAL, f.action ? "unknown action \"%.100s\"" : "an action is missing%s",
                  f.action ? f.action : "");
    (void)cli_fail("command line", &e);
    return usage(stderr, 2);
}
