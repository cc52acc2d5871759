#pragma once
/*
 * Options of a mount, as words, sorted into what the kernel wants: attributes of the mount, recursive
 * attributes, propagation, flags of the file system, and data for it.  Pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mountopt {
    uint64_t set, clear;                          /* MOUNT_ATTR_* of the top mount */
    uint64_t rec_set, rec_clear;                  /* of it and everything below ("rro") */
    uint64_t propagation;                         /* MS_PRIVATE (default) or MS_SLAVE */
    bool bind, recursive;                         /* "bind", "rbind" */
    bool fs_ro, fs_sync, fs_dirsync, fs_lazytime; /* flags of the file system itself */
    bool tmpcopyup, loop;
    bool idmap;        /* "idmap", "ridmap", "uidmap=...": ids on disk are the container's */
    const char **data; /* n_data words that are none of the above; borrowed from the caller's words */
    size_t n_data;
};

/* field: for messages ("mounts[3] (/data)"). -EINVAL/-EPERM with e. Bidirectional propagation is refused. */
int mountopt_parse(const char *const *words, size_t n, const char *field, struct mountopt *ret,
                   struct err *e);
void mountopt_done(struct mountopt *o);
static inline void mountopt_done_scoped(struct mountopt *o)
{
    mountopt_done(o);
}
#define scoped_mountopt __attribute__((cleanup(mountopt_done_scoped)))
/* The i-th option that is understood and not refused (for `-info`); NULL after the last. */
const char *mountopt_known(size_t i);
/* Value of a "key=value" data word, NULL when absent. */
const char *mountopt_data(const struct mountopt *o, const char *key);
