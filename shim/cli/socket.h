#pragma once
/*
 * The socket of a pod's shim.  Its name follows from containerd's address, the namespace and the group,
 * so that the `start` of every container of a pod meets the same one, and exactly one of them serves it.
 */
#include "base/err.h"

#define SOCKET_DIR "/run/containerd/s"

/* path.Join(address, ns, group) as Go has it, hashed; below dir (NULL = SOCKET_DIR). The caller frees. */
char *socket_path(const char *dir, const char *address, const char *ns, const char *group);
/*
 * 0: *ret_fd listens at path, mode 0600.  1: somebody serves it already.  A socket whose owner has died
 * is replaced.  Two that call at the same time never both get 0.
 */
int socket_claim(const char *path, int *ret_fd, struct err *e);
/* Unlinks the socket that an address ("unix://path") names if nobody serves it. */
void socket_remove_stale(const char *address);
