#pragma once
/*
 * One launch as the launcher and its helpers see it.  The launcher fills it, the helpers inherit it by
 * fork; descriptors have the same numbers in all of them.
 */
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "shim/cgroup/cgroup.h"
#include "shim/launcher/label.h"
#include "shim/launcher/launch.h"
#include "shim/launcher/mountopt.h"
#include "shim/launcher/source.h"
#include "shim/launcher/trace.h"
#include "shim/launcher/view.h"

#define PLAN_CGROUPS_MAX 32

enum entry_kind { ENTRY_BIND, ENTRY_TMPFS, ENTRY_PROC, ENTRY_SYS, ENTRY_DEVPTS, ENTRY_MQUEUE, ENTRY_CGROUP };

struct entry { /* of spec->mounts, same index */
    enum entry_kind kind;
    char field[160]; /* "mounts[2] (/data)", for messages */
    struct mountopt opt;
    struct volume volume; /* ENTRY_BIND */
};

struct plan {
    struct launch_params p;
    struct trace *trace;
    int shim_sock; /* to the shim; -1 in helpers */

    struct label label;
    struct root_source root;
    struct entry *entries; /* p.spec->n_mounts of them */
    struct view_facts facts;
    size_t n_cgroups;
    int cgroup_mount[PLAN_CGROUPS_MAX]; /* detached, read-only */
    struct cgroup_view cgroups[PLAN_CGROUPS_MAX];
};

/* Before the fork, in the shim: what can be found wrong without work. */
int plan_check(const struct launch_params *p, struct err *e);
/* In the launcher: entries, sources, facts. */
int plan_entries(struct plan *plan, struct err *e);
int plan_sources(struct plan *plan, struct err *e);

/* helpers; each returns only on failure or when its work is done, and the caller exits */
int builder_main(struct plan *plan, int sock, struct err *e);
int joiner_main(struct plan *plan, int sock, struct err *e);
int init_main(struct plan *plan, int sock, struct err *e);
