#pragma once
/*
 * Reading and building Kubernetes objects held as jansson values.  Accessors never fail: what is
 * absent or of another type gives NULL, 0 or false.  Returned strings belong to the object.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Walks a dotted path of plain field names: obj_at(pod, "status.conditions"). */
json_t *obj_at(const json_t *o, const char *path);
const char *obj_str(const json_t *o, const char *path);
int64_t obj_int(const json_t *o, const char *path, int64_t when_absent);
bool obj_bool(const json_t *o, const char *path, bool when_absent);

const char *obj_name(const json_t *o);
const char *obj_ns(const json_t *o); /* "" for cluster-scoped objects */
const char *obj_uid(const json_t *o);
const char *obj_version(const json_t *o); /* metadata.resourceVersion as it came */
/* Versions are decimal and ordered (promised since Kubernetes 1.35, true since etcd 3); 0 = not a number. */
uint64_t obj_version_number(const json_t *o);
bool obj_is_deleting(const json_t *o);
/* Keys of labels and annotations contain dots, so they have accessors of their own. */
const char *obj_label(const json_t *o, const char *key);
const char *obj_annotation(const json_t *o, const char *key);
/* The owner reference with controller: true, or NULL. */
json_t *obj_controller(const json_t *o);
bool obj_is_controlled_by(const json_t *o, const char *uid);
/* The element of status.conditions with this type, or NULL. */
json_t *obj_condition(const json_t *o, const char *type);
bool obj_condition_is_true(const json_t *o, const char *type);

/* New references; the caller owns them. */
json_t *obj_owner_ref(const json_t *owner, const char *api_version, const char *kind);

/* Puts value (stolen) at a dotted path, making the objects on the way. */
int obj_set(json_t *o, const char *path, json_t *value);

/*
 * What every object in memory loses: managedFields and kubectl's copy of the object in an
 * annotation.  keep: NULL, or a NULL-terminated list of dotted paths; everything else goes
 * ("metadata" keeps all of metadata).  apiVersion and kind go always: the kind is known.
 */
void obj_prune(json_t *o, const char *const *keep);

/* RFC 3339 "2006-01-02T15:04:05[.fraction]Z" (or +hh:mm) to milliseconds since 1970; -EINVAL. */
int obj_parse_time(const char *text, int64_t *ret_ms);
#define OBJ_TIME_MAX 40
void obj_format_time(int64_t ms, char out[OBJ_TIME_MAX]);       /* whole seconds, as metav1.Time */
void obj_format_micro_time(int64_t us, char out[OBJ_TIME_MAX]); /* six digits, as metav1.MicroTime */
