#pragma once
/*
 * The SandboxWarmPool: how many members, of which template, and which one a claim gets.  PURE, and fed
 * by digests, so that a pool of thousands costs no parsing.
 */
#include "controller/sandbox/build.h"
#include "controller/sandbox/plan.h"

/* What a pool and a picker need of one Sandbox; fixed size, made once per change (kinds.c). */
struct sandbox_digest {
    int64_t created_ms;
    int64_t unready_ms; /* since when it is not ready (creation, or the condition's time); 0: it is ready */
    uint32_t pool, template_ref, template, node; /* hashes; 0: none */
    uint8_t owner;                               /* enum owner_kind */
    bool ready;                                  /* Ready, or waiting paused */
    bool paused;
    bool has_ips, deleting, finished, unschedulable;
    bool faulty; /* the API server refuses something of it */
    char owner_uid[40];
};

struct member {
    const struct sandbox_digest *d;
    const char *name, *uid;
    uint64_t version;
    bool reserved; /* another claim is taking it right now */
    bool node_out; /* its node is gone, cordoned or does not answer */
    bool stale;
};

struct pool_world {
    int64_t now_ms;
    struct member *members; /* owned by this pool, in any order; the plan sorts them */
    size_t n;
    const struct template *template;
    bool template_missing;
    uint32_t template_hash;
    int64_t starts_max;  /* members that may be on their way at the same time */
    int64_t grace_ms;    /* a member that is not ready for so long is replaced */
    int64_t deferred_ms; /* since when the status waits to be written; 0: it does not */
    uint64_t seed;       /* for the names of new members */
    const char *fault;
    bool hold;
};

#define POOL_SETTLE_MS           500
#define UNSCHEDULABLE_RECHECK_MS 60000

/* *ret_deferred: the status differs and waits for POOL_SETTLE_MS. */
void pool_plan(const struct pool *p, const struct pool_world *w, struct plan *plan, bool *ret_deferred);

/*
 * The member for the next claim, or -1.  Ready ones only: of the wanted template before others, running
 * before paused, from the node that has most of them (so that nodes are used evenly), oldest first.
 * *ret_soon counts those that are on their way.
 */
int pool_pick(const struct member *members, size_t n, uint32_t template_hash, bool recreate,
              size_t *ret_soon);
json_t *member_body(const struct pool *p, const struct template *t, uint32_t template_hash, const char *name);
