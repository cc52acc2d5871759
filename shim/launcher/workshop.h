#pragma once
/*
 * Where a builder works: a directory with the empty directories n (new root), v (views) and o (layers
 * of an overlay on old kernels), in a mount namespace of its own.
 */
#include "base/err.h"

/* A mount namespace with nothing but the workshop as its root; for the pod, once. Changes the caller's. */
int workshop_make_empty(struct err *e);
/* From it a builder starts in 0.03 ms; its working directory is the workshop. */
int workshop_enter(int empty_mnt_ns, struct err *e);
/* Slower: a private copy of the host's mounts, for hooks that must find the host's programs. */
int workshop_enter_beside_host(struct err *e);
