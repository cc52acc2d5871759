#pragma once
/* Inside controller/sandbox: what the reconcilers of all kinds share. */
#include "base/list.h"
#include "base/map.h"
#include "controller/core/engine.h"
#include "controller/sandbox/kinds.h"
#include "controller/sandbox/plan_front.h"
#include "controller/sandbox/sandboxes.h"

struct meters;

struct sandboxes {
    struct engine *engine;
    struct sandboxes_options opt;
    struct store *store[WATCH_COUNT]; /* NULL: not watched */
    struct controller *sandbox, *claim, *template, *pool, *front[FRONT_KINDS];
    struct map *reserved; /* uid of a member -> struct reservation */
    struct map *waiters;  /* "ns/pool" -> struct waiters */
    struct map *deferred; /* "ns/pool" -> int64_t *: since when its status waits */
    struct map *missing;  /* "kind/ns/name" -> struct absence */
    struct map *hashes;   /* uid of a template -> struct hash_of */
    struct meters *meters;
};

int64_t now_ms(void); /* wall clock */

/* Is this failure of a pass one to tell the user about (and not a matter of a moment)? */
const char *lasting_failure(const struct pass *p);
/* How long to leave off after a lasting failure. */
#define FAULT_HOLD_MS 30000

/* ---- lookup.c ---- */

const json_t *find_json(const struct store *s, const char *ns, const char *name); /* NULL: absent */
uint32_t template_hash_of(struct sandboxes *x, const struct template *t);
/* The members that this pool owns; the caller frees.  *ret_n their number. */
struct member *pool_members(struct sandboxes *x, const struct pool *p, uint32_t template_hash,
                            const char *claim_uid, size_t *ret_n);
/* Does this runtime class lead to our shim? */
bool class_is_ours(const struct sandboxes *x, const char *runtime_class);

/*
 * Whether the server, too, says that the object does not exist.  A watch may be behind the one that
 * brought the object which names it, and clients give up when they read "not found".  The first call
 * only adds the question to the pass (and a repetition); later ones know.
 */
bool surely_missing(struct sandboxes *x, struct pass *p, enum watched kind, const char *name);

/* ---- claims that wait for a member (waiters.c) ---- */

void waiter_add(struct sandboxes *x, const char *ns, const char *pool, const char *claim, int64_t created_ms);
void waiter_remove(struct sandboxes *x, const char *ns, const char *pool, const char *claim);
/* How many older claims wait for a member of this pool. */
size_t waiters_before(const struct sandboxes *x, const char *ns, const char *pool, const char *claim,
                      int64_t created_ms);
/* Lets the oldest look again. */
void waiter_wake(struct sandboxes *x, const char *ns, const char *pool);
void waiters_free(struct map *m);

/* A member is being taken by a claim: nobody else may, for RESERVATION_MS or until it changed hands. */
#define RESERVATION_MS 10000
void reserve(struct sandboxes *x, const char *member_uid, const char *claim_uid);
bool is_reserved(const struct sandboxes *x, const char *member_uid, const char *but_for_claim_uid);
void unreserve(struct sandboxes *x, const char *member_uid);
/* What a claim reserved and did not get (it lost a race and looks again); true if there was any. */
bool unreserve_all_of(struct sandboxes *x, const char *claim_uid, const char *but_member_uid);

/* ---- reconcilers: one file each ---- */

int reconcile_sandbox(struct pass *p, void *data, struct err *e);
int reconcile_claim(struct pass *p, void *data, struct err *e);
int reconcile_template(struct pass *p, void *data, struct err *e);
int reconcile_pool(struct pass *p, void *data, struct err *e);
int reconcile_front_sandbox(struct pass *p, void *data, struct err *e);
int reconcile_front_template(struct pass *p, void *data, struct err *e);
int reconcile_front_claim(struct pass *p, void *data, struct err *e);
int reconcile_front_pool(struct pass *p, void *data, struct err *e);

/* Which keys a change wakes (wiring.c). */
void wire_watches(struct sandboxes *x);

/* ---- metrics (meters.c) ---- */

struct meters *meters_new(struct metrics *m);
void meters_free(struct meters *m);
void meters_sandbox_changed(void *data, const struct change *c); /* data: struct meters */
void meters_claim_changed(void *data, const struct change *c);
