#include "controller/kube/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "base/macro.h"

#define PATH_PART_MAX 128

/* Copies the part of *path before the next dot to out and moves on.  False at the end or when too long. */
static bool next_part(const char **path, char *out)
{
    size_t n = strcspn(*path, ".");

    if (n == 0 || n >= PATH_PART_MAX)
        return false;
    memcpy(out, *path, n);
    out[n] = '\0';
    *path += n;
    if (**path == '.')
        (*path)++;
    return true;
}

json_t *obj_at(const json_t *o, const char *path)
{
    char part[PATH_PART_MAX];
    const json_t *at = o;

    while (at && next_part(&path, part))
        at = json_object_get(at, part);
    /* jansson has no const-correct getters; readers of the cache must not modify what they get. */
    return *path ? NULL : (json_t *)(uintptr_t)at;
}

const char *obj_str(const json_t *o, const char *path)
{
    return json_string_value(obj_at(o, path));
}

int64_t obj_int(const json_t *o, const char *path, int64_t when_absent)
{
    const json_t *v = obj_at(o, path);

    return json_is_integer(v) ? (int64_t)json_integer_value(v) : when_absent;
}

bool obj_bool(const json_t *o, const char *path, bool when_absent)
{
    const json_t *v = obj_at(o, path);

    return json_is_boolean(v) ? json_is_true(v) : when_absent;
}

static const char *meta(const json_t *o, const char *field)
{
    return json_string_value(json_object_get(json_object_get(o, "metadata"), field));
}

const char *obj_name(const json_t *o)
{
    return meta(o, "name");
}

const char *obj_ns(const json_t *o)
{
    const char *ns = meta(o, "namespace");

    return ns ? ns : "";
}

const char *obj_uid(const json_t *o)
{
    return meta(o, "uid");
}

const char *obj_version(const json_t *o)
{
    return meta(o, "resourceVersion");
}

uint64_t obj_version_number(const json_t *o)
{
    const char *text = obj_version(o);
    uint64_t n;

    if (!text || parse_u64(text, UINT64_MAX, &n) < 0)
        return 0;
    return n;
}

bool obj_is_deleting(const json_t *o)
{
    return meta(o, "deletionTimestamp") != NULL;
}

const char *obj_label(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(obj_at(o, "metadata.labels"), key));
}

const char *obj_annotation(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(obj_at(o, "metadata.annotations"), key));
}

json_t *obj_controller(const json_t *o)
{
    json_t *refs = obj_at(o, "metadata.ownerReferences"), *ref;
    size_t i;

    json_array_foreach(refs, i, ref) if (obj_bool(ref, "controller", false)) return ref;
    return NULL;
}

bool obj_is_controlled_by(const json_t *o, const char *uid)
{
    const char *owner = obj_str(obj_controller(o), "uid");

    return owner && uid && strcmp(owner, uid) == 0;
}

json_t *obj_condition(const json_t *o, const char *type)
{
    json_t *list = obj_at(o, "status.conditions"), *c;
    size_t i;

    json_array_foreach(list, i, c)
    {
        const char *t = json_string_value(json_object_get(c, "type"));
        if (t && strcmp(t, type) == 0)
            return c;
    }
    return NULL;
}

bool obj_condition_is_true(const json_t *o, const char *type)
{
    const char *status = obj_str(obj_condition(o, type), "status");

    return status && strcmp(status, "True") == 0;
}

json_t *obj_owner_ref(const json_t *owner, const char *api_version, const char *kind)
{
    const char *name = obj_name(owner), *uid = obj_uid(owner);

    return json_pack("{s:s,s:s,s:s,s:s,s:b,s:b}", "apiVersion", api_version, "kind", kind, "name",
                     name ? name : "", "uid", uid ? uid : "", "controller", 1, "blockOwnerDeletion", 1);
}

int obj_set(json_t *o, const char *path, json_t *value)
{
    char part[PATH_PART_MAX];

    while (next_part(&path, part)) {
        if (!*path)
            return json_object_set_new(o, part, value) < 0 ? -EINVAL : 0;
        json_t *next = json_object_get(o, part);
        if (!json_is_object(next)) {
            next = json_object();
            if (json_object_set_new(o, part, next) < 0)
                break;
        }
        o = next;
    }
    json_decref(value);
    return -EINVAL;
}

static bool keeps(const char *const *keep, const char *path, bool *ret_inside)
{
    size_t n = strlen(path);

    *ret_inside = false;
    for (; *keep; keep++) {
        if (strcmp(*keep, path) == 0)
            return true;
        if (strncmp(*keep, path, n) == 0 && (*keep)[n] == '.')
            *ret_inside = true;
    }
    return false;
}

/* Removes from o what no path of keep names, equals or continues; `path` is where o stands. */
static void prune_level(json_t *o, const char *const *keep, const char *path)
{
    const char *field;
    json_t *value;
    void *tmp;

    json_object_foreach_safe(o, tmp, field, value)
    {
        char at[PATH_PART_MAX * 2];
        bool inside;
        int n = snprintf(at, sizeof at, "%s%s%s", path, *path ? "." : "", field);
        if (n < 0 || (size_t)n >= sizeof at || strchr(field, '.')) {
            json_object_del(o, field);
            continue;
        }
        if (keeps(keep, at, &inside))
            continue;
        if (inside && json_is_object(value))
            prune_level(value, keep, at);
        else
            json_object_del(o, field);
    }
}

void obj_prune(json_t *o, const char *const *keep)
{
    json_t *m = json_object_get(o, "metadata");
    json_t *annotations = json_object_get(m, "annotations");

    json_object_del(o, "apiVersion");
    json_object_del(o, "kind");
    json_object_del(m, "managedFields");
    json_object_del(annotations, "kubectl.kubernetes.io/last-applied-configuration");
    if (annotations && json_object_size(annotations) == 0)
        json_object_del(m, "annotations");
    if (keep)
        prune_level(o, keep, "");
}

/* Reads exactly n digits. */
static bool digits(const char **s, int n, int *ret)
{
    int v = 0;

    for (int i = 0; i < n; i++, (*s)++) {
        if (**s < '0' || **s > '9')
            return false;
        v = v * 10 + (**s - '0');
    }
    *ret = v;
    return true;
}

static bool one_of(const char **s, const char *set)
{
    if (!**s || !strchr(set, **s))
        return false;
    (*s)++;
    return true;
}

/* ".123456789" to milliseconds; absent is 0. */
static bool fraction(const char **s, int *ret_ms)
{
    int scale = 100;

    *ret_ms = 0;
    if (**s != '.')
        return true;
    (*s)++;
    if (**s < '0' || **s > '9')
        return false;
    for (; **s >= '0' && **s <= '9'; (*s)++, scale /= 10)
        *ret_ms += (**s - '0') * scale;
    return true;
}

static bool zone(const char **s, int *ret_minutes)
{
    int h, m;

    *ret_minutes = 0;
    if (one_of(s, "Zz"))
        return true;
    int sign = **s == '-' ? -1 : 1;
    if (!one_of(s, "+-") || !digits(s, 2, &h) || !one_of(s, ":") || !digits(s, 2, &m) || h > 23 || m > 59)
        return false;
    *ret_minutes = sign * (h * 60 + m);
    return true;
}

int obj_parse_time(const char *text, int64_t *ret_ms)
{
    struct tm t = {0};
    int year, month, ms, minutes;
    const char *s = text;

    if (!text || !digits(&s, 4, &year) || !one_of(&s, "-") || !digits(&s, 2, &month) || !one_of(&s, "-") ||
        !digits(&s, 2, &t.tm_mday) || !one_of(&s, "Tt ") || !digits(&s, 2, &t.tm_hour) || !one_of(&s, ":") ||
        !digits(&s, 2, &t.tm_min) || !one_of(&s, ":") || !digits(&s, 2, &t.tm_sec) || !fraction(&s, &ms) ||
        !zone(&s, &minutes) || *s)
        return -EINVAL;
    if (month < 1 || month > 12 || t.tm_mday < 1 || t.tm_mday > 31 || t.tm_hour > 23 || t.tm_min > 59 ||
        t.tm_sec > 60)
        return -EINVAL;
    t.tm_year = year - 1900;
    t.tm_mon = month - 1;
    *ret_ms = ((int64_t)timegm(&t) - minutes * 60) * 1000 + ms;
    return 0;
}

void obj_format_time(int64_t ms, char out[OBJ_TIME_MAX])
{
    time_t s = (time_t)(ms / 1000);
    struct tm t;

    gmtime_r(&s, &t);
    strftime(out, OBJ_TIME_MAX, "%Y-%m-%dT%H:%M:%SZ", &t);
}

void obj_format_micro_time(int64_t us, char out[OBJ_TIME_MAX])
{
    time_t s = (time_t)(us / 1000000);
    struct tm t;

    gmtime_r(&s, &t);
    size_t n = strftime(out, OBJ_TIME_MAX, "%Y-%m-%dT%H:%M:%S", &t);
    (void)snprintf(out + n, OBJ_TIME_MAX - n, ".%06dZ", (int)(us % 1000000));
}
