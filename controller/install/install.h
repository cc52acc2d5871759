#pragma once
/*
 * `glovebox-controller install` and `uninstall`: put the runtime on a node and take it away.  They run in
 * a privileged init container with the node's root mounted, do only what is missing, and say at the end
 * in one line what they did or what the node's kernel lacks.
 */
int install_main(int argc, char **argv);
int uninstall_main(int argc, char **argv);
