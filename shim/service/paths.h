#pragma once
/* Where the shim keeps what must outlive it. */
#define STATE_DIR "/run/glovebox"
#define PODS_DIR  "pods" /* below STATE_DIR: sockets by pod id */
#define AUDIT_DIR "/var/log/glovebox"

/* The caller frees. */
char *paths_pod_link(const char *state_dir, const char *pod_id);
