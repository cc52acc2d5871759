#pragma once
/*
 * The shims of this node, one per pod: which pod each one has, and what we may ask of it.
 *
 * A shim's socket has a second name /run/glovebox/pods/<sandbox id>.sock; a pod of the API is found by
 * the ids of its containers, which the shim tells.  Nothing in that folder is trusted to be alive: a
 * killed shim leaves its name behind.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct shims;
struct shim;

/* changed: something about this shim is new (it appeared, was asked, has other containers); NULL: a scan has
 * ended. */
int shims_new(struct loop *loop, const char *folder, void (*changed)(void *data, struct shim *s), void *data,
              struct shims **ret, struct err *e);
void shims_free(struct shims *x);

/* The shim that has one of these containers.  NULL: none that we know of. */
struct shim *shims_find(struct shims *x, const char *const *container_ids, size_t n);
/*
 * Every shim is asked again.  Returns the number of the scan that begins after this call (one that is
 * under way may have passed by already); when shims_scanned() has reached it, shims_find() is certain.
 */
uint64_t shims_scan(struct shims *x);
uint64_t shims_scanned(const struct shims *x);
size_t shims_count(const struct shims *x);

const char *shim_id(const struct shim *s);
bool shim_is_paused(const struct shim *s);
bool shim_has(const struct shim *s, const char *container_id);
bool shim_has_one_of(const struct shim *s, const char *text); /* text: container ids with blanks between */
const char *shim_broken(const struct shim *s);                /* "" = fine */

struct shim_result {
    int code; /* 0, or -errno: -ENOSYS the shim cannot do this, -EIO it is gone, ... */
    const char *text;
    uint64_t memory_before, memory_after;
    int64_t took_ms;
};
typedef void (*shim_fn)(void *data, const struct shim_result *r);
/* One call at a time for a shim (-EBUSY from shim_pause while another is on its way). */
int shim_pause(struct shim *s, int64_t timeout_ms, shim_fn fn, void *data);
int shim_resume(struct shim *s, int64_t timeout_ms, shim_fn fn, void *data);
/* The pod's egress policy as JSON, or (policy NULL) the word that the one it has still holds. Beside a pause;
 * -EBUSY as above. */
int shim_egress(struct shim *s, const char *policy, int64_t timeout_ms, shim_fn fn, void *data);
/* fn of the call in flight will not run. */
void shim_forget_call(struct shim *s);

/* Calls that the sentries of all pods have refused since we look, by name; ended pods included. */
int shims_next_refused(const struct shims *x, size_t *cursor, const char **ret_call, uint64_t *ret_n);

SCOPED_DEFINE(struct shims, shims_free)
