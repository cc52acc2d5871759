#pragma once
/*
 * The SandboxClaim: which sandbox it gets, what is changed on it for the claim, when it ends.  PURE.
 */
#include "controller/sandbox/build.h"
#include "controller/sandbox/plan.h"

struct claim_world {
    int64_t now_ms;
    const struct pool *pool; /* NULL: not in the cache; pool_missing: the server was asked, too */
    bool pool_missing;
    const struct template *template;
    bool template_missing;
    const struct sandbox *owned; /* sandboxes whose controller is this claim, oldest first */
    size_t n_owned;
    const struct sandbox *named;      /* the sandbox of the claim's own name, whoever's it is */
    const struct sandbox *noted;      /* the one an annotation on the claim names (a take-over) */
    const struct sandbox *member;     /* the pool member picked for this claim */
    bool member_soon;                 /* one is about to be ready, and no older claim waits for it */
    const char *const *label_domains; /* that claims may put on Pods; NULL-terminated */
    const char *fault;
    bool hold;
    bool events;
};

/* A claim waits so long for a member that is about to be ready, before it starts one of its own. */
#define MEMBER_WAIT_MS     2000
#define MISSING_RECHECK_MS 60000

void claim_plan(const struct claim *c, const struct claim_world *w, struct plan *plan);
/* Does this claim take a sandbox of the pool (true), or always start its own? */
bool claim_takes_member(const struct claim *c);
/* Needs a sandbox still: neither bound nor finished with. */
bool claim_is_waiting(const struct claim *c, const struct claim_world *w);

/* ---- inside ---- */

struct verdict {
    const char *reason; /* NULL: all is well */
    char text[400];
};
void claim_check_metadata(const struct claim *c, const struct template *t, const char *const *domains,
                          struct verdict *v);
/* The cold sandbox of this claim; NULL and *v when the template does not allow what the claim asks. */
json_t *claim_sandbox_body(const struct claim *c, const struct template *t, struct verdict *v);
json_t *claim_adopt_patch(const struct claim *c, const struct sandbox *member);
/* Claim-time labels and annotations that the bound sandbox lacks, as a merge patch, or NULL. */
json_t *claim_metadata_patch(const struct claim *c, const struct sandbox *s);
