/* glovebox-controller: several programs in one file, chosen by the first word. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "controller/cli/manager.h"
#include "controller/install/install.h"
#include "controller/install/wait.h"
#include "controller/node/node.h"

static int version_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    (void)printf("glovebox-controller %s\n", GLOVEBOX_VERSION);
    return 0;
}

static const struct {
    const char *name, *help;
    int (*main)(int argc, char **argv);
} commands[] = {
    {"manager", "the controllers of the cluster (a Deployment)", manager_main},
    {"node", "the agent of one node (a DaemonSet)", node_main},
    {"install", "put the runtime on this node (an init container)", install_main},
    {"uninstall", "take it away again", uninstall_main},
    {"wait", "until a DaemonSet is ready on every node (a Job)", wait_main},
    {"idle", "do nothing until a signal comes", idle_main},
    {"version", "print the version", version_main},
};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "manager";

    /* In the field's manifests the controller has no sub-command, only flags. */
    if (argc > 1 && name[0] == '-' && strcmp(name, "-h") != 0 && strcmp(name, "--help") != 0)
        return manager_main(argc - 1, argv + 1);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].main(argc > 1 ? argc - 2 : 0, argv + (argc > 1 ? 2 : 1));
    bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    (void)fprintf(help ? stdout : stderr,
                  "usage: glovebox-controller COMMAND [flags]; COMMAND --help tells the flags\n\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        (void)fprintf(help ? stdout : stderr, "  %-10s %s\n", commands[i].name, commands[i].help);
    return help ? 0 : 2;
}
