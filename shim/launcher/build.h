#pragma once
/* The builder's parts: each adds something to the tree that stands on b->root. */
#include "shim/launcher/plan.h"

struct build {
    struct plan *plan;
    uint32_t base;     /* host id of container root */
    int shop;          /* the working directory, with empty directories n, v, o */
    const char *place; /* where the root is attached: n, or root.path for createContainer hooks */
    pid_t init;        /* host pid of the container's init */
    int root;          /* the attached root file system */
    int view;          /* the tmpfs of synthetic files, attached */
    int dev;           /* the container's /dev */
    int proc;          /* root of the mounted /proc, -1 = none */
    int pid_ns;
    bool has_sys;
    int late_ro[64]; /* mounts that become read-only when all stands */
    size_t n_late_ro;
    int console, tty; /* pty: master and slave; -1 = no terminal */
};

int build_root(struct build *b, struct err *e);
int build_view(struct build *b, struct err *e);
int build_dev(struct build *b, const struct entry *entry, struct err *e); /* entry NULL: the spec has none */
int build_devpts(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e);
int build_tmpfs(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e);
int build_mqueue(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e);
int build_bind(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e);
int build_sys(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e);
int build_cgroup(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e);
int build_proc(struct build *b, const struct spec_mount *m, const struct entry *entry, struct err *e);
int build_masks(struct build *b, struct err *e);    /* /proc coverage, maskedPaths, readonlyPaths */
int build_terminal(struct build *b, struct err *e); /* pty and /dev/console */

/* Makes the mount point (a directory, or a file) and attaches mount (not taken) on it. */
int build_attach(struct build *b, int mount, const char *destination, bool as_file, struct err *e);
/* The same for kernel file systems: every part of the path must be an ordinary directory. */
int build_attach_plain(struct build *b, int mount, const char *destination, struct err *e);
/* tmpfs-like options of the spec with ids shifted into the pod's range. Descriptor or -errno. */
int build_fresh(struct build *b, const char *type, const struct spec_mount *m, const struct entry *entry,
                uint64_t attr, struct err *e);
