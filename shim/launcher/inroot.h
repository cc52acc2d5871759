#pragma once
/*
 * Paths inside a container's root, resolved by the kernel so that no link in an image or volume leads
 * out of it (openat2 RESOLVE_IN_ROOT|NO_MAGICLINKS).  Missing parts are made the way `mkdir -p` would,
 * following dangling links inside the root.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* O_PATH descriptor of an existing object, final link followed. -errno (ENOENT, ELOOP, ENOTDIR...). */
int inroot_open(int root, const char *path);
/*
 * Opens path, making missing directories with mode 0755 and, as_file, an empty last file.  What exists
 * is not changed.  The caller's fsuid must own the new objects.  Descriptor (O_PATH) or -errno with e.
 */
int inroot_make(int root, const char *path, bool as_file, struct err *e);
