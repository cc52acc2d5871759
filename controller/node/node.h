#pragma once
/* `glovebox-controller node`: the agent of one node.  Returns the exit status. */
int node_main(int argc, char **argv);
