#pragma once
/* Two small commands for the chart's clean-up before it is deleted. */
int wait_main(int argc, char **argv); /* until a DaemonSet is ready on every node that it wants */
int idle_main(int argc, char **argv); /* until SIGTERM or SIGINT */
