#pragma once
/* `glovebox-controller manager`: the cluster's controllers, one leader at a time.  Returns the exit status.
 */
int manager_main(int argc, char **argv);
#ifndef GLOVEBOX_VERSION
#define GLOVEBOX_VERSION "0.1.0"
#endif
