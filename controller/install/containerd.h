#pragma once
/*
 * The runtime's entry in containerd's configuration: as text, without touching a file.
 *
 * Our lines stand between two marker comments at the end of the file, or in a file of their own when the
 * configuration imports a folder of such files (containerd 2).  TOML lets a table be opened anywhere, so
 * nothing of the administrator's has to be understood or moved.
 */
#include <stdbool.h>

#include "base/err.h"

#define CONTAINERD_EMPTY "version = 2\n" /* what is left of a file that was made by us alone */

struct containerd_plan {
    char *config;  /* new text of config.toml; NULL: leave it as it is */
    char *drop_in; /* new text of the drop-in file; NULL: leave; "" (empty): remove */
};
void containerd_plan_done(struct containerd_plan *p);

/*
 * text: config.toml as it is, NULL when there is none.  drop_in: the drop-in file as it is, or NULL.
 * shim_path: NULL when the shim is on containerd's PATH.  -EINVAL: a configuration that we do not
 * understand, with one sentence; nothing is changed then.
 */
int containerd_add(const char *text, const char *drop_in, const char *handler, const char *shim_path,
                   struct containerd_plan *ret, struct err *e);
int containerd_remove(const char *text, const char *drop_in, struct containerd_plan *ret, struct err *e);
