#pragma once
/*
 * What a plan function answers: writes that are missing, the status as it should be, events, and when
 * to look again.  Plan functions are PURE: structs and a clock in, a plan out.  They decide
 * everything, so all policy is tested as tables; apply.c turns steps into API calls by a table.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

enum step_kind {
    STEP_NONE,
    STEP_POD_CREATE,
    STEP_POD_PATCH,
    STEP_POD_DELETE,
    STEP_SERVICE_CREATE,
    STEP_SERVICE_PATCH,
    STEP_SERVICE_DELETE,
    STEP_PVC_CREATE,
    STEP_PVC_PATCH,
    STEP_SANDBOX_CREATE,
    STEP_SANDBOX_PATCH,
    STEP_SANDBOX_STATUS,
    STEP_SANDBOX_DELETE,
    STEP_CLAIM_PATCH,
    STEP_CLAIM_STATUS,
    STEP_CLAIM_DELETE,
    STEP_TEMPLATE_CREATE,
    STEP_TEMPLATE_PATCH,
    STEP_POOL_CREATE,
    STEP_POOL_PATCH,
    STEP_POOL_STATUS,
    STEP_NETPOL_CREATE,
    STEP_NETPOL_UPDATE,
    STEP_NETPOL_DELETE,
    STEP_CLAIM_CREATE,
    STEP_TEMPLATE_DELETE,
    STEP_POOL_DELETE,
    STEP_FRONT_PATCH, /* the front object itself */
    STEP_FRONT_STATUS,
    STEP_KINDS
};

struct step {
    enum step_kind kind;
    char *name; /* of the object; NULL: the planned object's own */
    json_t *body;
    char *uid;               /* deletes: only this very object */
    char *version;           /* deletes: only this version of it */
    const char *propagation; /* deletes; NULL = in the background */
    bool background;         /* nobody waits for it */
    bool parallel;           /* at the same time as the step before */
};

struct note {
    const char *type; /* "Normal", "Warning" */
    const char *reason;
    char *text;
};

#define PLAN_STEPS_MAX 320
#define PLAN_NOTES_MAX 4

struct plan {
    struct step *steps;
    size_t n, cap;
    struct note notes[PLAN_NOTES_MAX];
    size_t n_notes;
    int64_t again_ms; /* look again in so many ms; 0: when something changes */
};

void plan_init(struct plan *p);
void plan_done(struct plan *p);
/* body is stolen; the new step may be completed by the caller.  Never NULL: beyond PLAN_STEPS_MAX a
 * step is forgotten (the next pass finds it missing) and a scratch one returned. */
struct step *plan_add(struct plan *p, enum step_kind kind, const char *name, json_t *body);
struct step *plan_delete(struct plan *p, enum step_kind kind, const char *name, const char *uid);
void plan_again(struct plan *p, int64_t ms); /* the earliest wish counts; <= 0 means at once (1 ms) */
void plan_note(struct plan *p, const char *type, const char *reason, const char *fmt, ...) PRINTF_LIKE(4, 5);
void plan_in_background(struct plan *p);                                 /* all steps so far */
void plan_drop_steps(struct plan *p);                                    /* and what would be told of them */
const struct step *plan_find(const struct plan *p, enum step_kind kind); /* the first, or NULL */

static inline void plan_done_scoped(struct plan *p)
{
    plan_done(p);
}
#define scoped_plan __attribute__((cleanup(plan_done_scoped)))

/* ---- conditions ---- */

struct conds {
    json_t *list;         /* the new array; owned until conds_take */
    const json_t *before; /* the status as it is now */
    int64_t now_ms, generation;
};

void conds_init(struct conds *c, const json_t *status, int64_t generation, int64_t now_ms);
/* lastTransitionTime is kept as long as the status does not change. */
void conds_set(struct conds *c, const char *type, const char *status, const char *reason, const char *fmt,
               ...) PRINTF_LIKE(5, 6);
void conds_keep(struct conds *c, const char *type); /* as it is, when it is */
json_t *conds_take(struct conds *c);                /* sorted by type */

/*
 * The merge patch {"status": ...} that turns `before` into `wanted` (stolen), or NULL when they are
 * the same.  Fields that are gone become null.
 */
json_t *status_patch(const json_t *before, json_t *wanted);
