#pragma once
/*
 * What a container's tree is made from, taken out of the host's mount namespace by the launcher: clones
 * of the snapshot's layers and of every volume, already idmapped to the pod and attached nowhere.  A
 * builder gets them by fork and attaches them in a namespace in which the host's paths do not exist.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "shim/launcher/mountopt.h"

struct launch_params;
struct spec_mount;

struct layer_dir {
    int tree;   /* index into root_source.trees */
    char *path; /* below it, "." = the tree itself */
};
struct root_source {
    int mount; /* a whole root file system, or -1: an overlay of what follows */
    bool read_only;
    int *trees;
    size_t n_trees;
    struct layer_dir *lower; /* topmost first */
    size_t n_lower;
    struct layer_dir upper, work; /* path NULL = none */
    const char **options;         /* other words: "index=off"; borrowed from the launch's rootfs mounts */
    size_t n_options;
};
int root_source_open(const struct launch_params *p, struct root_source *ret, struct err *e);

/* The overlay that options (lowerdir, upperdir, workdir, others) describe. */
int overlay_source_open(const struct launch_params *p, const struct mountopt *o, struct root_source *ret,
                        struct err *e);

struct submount {
    char *path; /* relative to the volume */
    int fd;
};
struct volume {
    int fd; /* detached, idmapped mount; -1 = none, or see overlay */
    bool is_dir;
    struct submount *sub; /* only where one recursive clone could not be idmapped */
    size_t n_sub;
    struct root_source *overlay; /* fd == -1: built again from its layers, read-only (image volumes) */
    char *below;                 /* of it, "." = all */
};
/* field: "mounts[2] (/data)". opt: of the entry. */
int volume_open(const struct launch_params *p, const struct spec_mount *m, const struct mountopt *opt,
                const char *field, struct volume *ret, struct err *e);
/* Is the entry a bind mount? */
bool volume_is_bind(const struct spec_mount *m, const struct mountopt *opt);
