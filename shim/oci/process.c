/* `process` of a configuration, and the same object alone as the spec of an exec. */
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "shim/oci/names.h"
#include "shim/oci/tables.h"

#define P struct spec_process

_Static_assert(sizeof(struct spec_strings) == sizeof(struct json_strings) &&
                   offsetof(struct spec_strings, n) == offsetof(struct json_strings, n),
               "spec_strings is decoded as json_strings");

/* The value of a name, or an error that names it. */
static int decode_name(const struct json_at *at, const json_t *v, const struct oci_name *table, size_t n,
                       int *ret, struct err *e)
{
    if (!json_is_string(v))
        return json_fail(at, e, -EINVAL, "must be a string, not %s", json_type_name(v));
    const struct oci_name *row = oci_name_find(table, n, json_string_value(v));
    if (!row)
        return json_fail(at, e, -EINVAL, "has the unknown value \"%.64s\"", json_string_value(v));
    *ret = row->value;
    return 0;
}

/* ---- user --------------------------------------------------------------------------------------- */

static int decode_groups(const struct json_at *at, const struct json_field *f, const json_t *v, void *out,
                         struct err *e)
{
    P *p = out;

    if (!json_is_array(v))
        return json_fail(at, e, -EINVAL, "must be an array of group ids, not %s", json_type_name(v));
    size_t n = json_array_size(v);
    if (n > f->limit)
        return json_fail(at, e, -E2BIG, "has more than %zu elements", f->limit);
    free(p->groups);
    p->n_groups = 0;
    p->groups = xcalloc(n ? n : 1, sizeof *p->groups);
    for (; p->n_groups < n; p->n_groups++) {
        struct json_at here = {.up = at, .index = p->n_groups};
        const struct json_field id = {.max = UINT32_MAX - 1};
        int64_t gid = 0;
        int r = json_int_in(&here, &id, json_array_get(v, p->n_groups), &gid, e);
        if (r < 0)
            return r;
        p->groups[p->n_groups] = (uint32_t)gid;
    }
    return 0;
}

static void free_groups(void *out)
{
    P *p = out;
    free(p->groups);
    p->groups = NULL;
    p->n_groups = 0;
}

/* (uid_t)-1 means "leave it" to setresuid(2): as an id it would silently keep the runtime's. */
static const struct json_field user_rows[] = {
    {.name = "uid", .kind = JSON_AS_U32, AT(P, uid), .max = UINT32_MAX - 1},
    {.name = "gid", .kind = JSON_AS_U32, AT(P, gid), .max = UINT32_MAX - 1},
    {.name = "umask", .kind = JSON_AS_U32, AT(P, umask), .max = 07777},
    {.name = "additionalGids",
     .kind = JSON_AS_CALL,
     .limit = 65536,
     .fn = decode_groups,
     .done = free_groups},
};
static const struct json_table user_table = JSON_TABLE(user_rows, P);

/* ---- capabilities ------------------------------------------------------------------------------- */

static int decode_caps(const struct json_at *at, const struct json_field *f, const json_t *v, void *out,
                       struct err *e)
{
    uint64_t set = 0;

    if (!json_is_array(v))
        return json_fail(at, e, -EINVAL, "must be an array of capability names, not %s", json_type_name(v));
    if (json_array_size(v) > f->limit)
        return json_fail(at, e, -E2BIG, "has more than %zu elements", f->limit);
    for (size_t i = 0; i < json_array_size(v); i++) {
        struct json_at here = {.up = at, .index = i};
        const char *name = json_string_value(json_array_get(v, i));
        if (!name)
            return json_fail(&here, e, -EINVAL, "must be a string, not %s",
                             json_type_name(json_array_get(v, i)));
        int cap = oci_capability(name);
        if (cap < 0) /* a newer engine may know more than we do; less privilege is the safe reading */
            log_debug("unknown capability ignored", "name=%s", name);
        else
            set |= UINT64_C(1) << cap;
    }
    *(uint64_t *)out = set;
    return 0;
}

#define ROW_CAPS(n, i)                                                                                       \
    {                                                                                                        \
        .name = n, .kind = JSON_AS_CALL, AT(P, caps[i]), .limit = 256, .fn = decode_caps                     \
    }
static const struct json_field caps_rows[] = {
    ROW_CAPS("bounding", SPEC_CAP_BOUNDING),       ROW_CAPS("effective", SPEC_CAP_EFFECTIVE),
    ROW_CAPS("inheritable", SPEC_CAP_INHERITABLE), ROW_CAPS("permitted", SPEC_CAP_PERMITTED),
    ROW_CAPS("ambient", SPEC_CAP_AMBIENT),
};
static const struct json_table caps_table = JSON_TABLE(caps_rows, P);

/* ---- rlimits ------------------------------------------------------------------------------------ */

static int decode_rlimit_type(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                              void *out, struct err *e)
{
    if (!json_is_string(v))
        return json_fail(at, e, -EINVAL, "must be a string, not %s", json_type_name(v));
    int resource = oci_rlimit(json_string_value(v));
    if (resource < 0)
        return json_fail(at, e, -EINVAL, "has the unknown value \"%.64s\"", json_string_value(v));
    *(int *)out = resource;
    return 0;
}

static const struct json_field rlimit_rows[] = {
    {.name = "type",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(struct spec_rlimit, resource),
     .fn = decode_rlimit_type},
    {.name = "soft", .kind = JSON_AS_U64, AT(struct spec_rlimit, soft)},
    {.name = "hard", .kind = JSON_AS_U64, AT(struct spec_rlimit, hard)},
};
static const struct json_table rlimit_table = JSON_TABLE(rlimit_rows, struct spec_rlimit);

static int verify_rlimits(const struct json_at *at, const P *p, struct err *e)
{
    struct json_at list = {.up = at, .key = "rlimits"};
    uint32_t seen = 0;

    for (size_t i = 0; i < p->n_rlimits; i++) {
        const struct spec_rlimit *l = &p->rlimits[i];
        struct json_at here = {.up = &list, .index = i};
        if (seen & 1u << l->resource)
            return json_fail(&here, e, -EINVAL, "sets %s a second time", oci_rlimit_name(l->resource));
        seen |= 1u << l->resource;
        if (l->soft > l->hard)
            return json_fail(&here, e, -EINVAL, "has a soft limit above its hard limit");
    }
    return 0;
}

/* ---- scheduling --------------------------------------------------------------------------------- */

static int decode_policy(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                         void *out, struct err *e)
{
    static const struct oci_name policy[] = {
        {"SCHED_OTHER", SCHED_OTHER},       {"SCHED_FIFO", SCHED_FIFO}, {"SCHED_RR", SCHED_RR},
        {"SCHED_BATCH", SCHED_BATCH},       {"SCHED_ISO", 4},           {"SCHED_IDLE", SCHED_IDLE},
        {"SCHED_DEADLINE", SCHED_DEADLINE},
    };

    return decode_name(at, v, policy, ARRAY_LEN(policy), out, e);
}

static int decode_sched_flags(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                              void *out, struct err *e)
{
    static const struct oci_name flag[] = {
        {"SCHED_FLAG_RESET_ON_FORK", 0x01},  {"SCHED_FLAG_RECLAIM", 0x02},
        {"SCHED_FLAG_DL_OVERRUN", 0x04},     {"SCHED_FLAG_KEEP_POLICY", 0x08},
        {"SCHED_FLAG_KEEP_PARAMS", 0x10},    {"SCHED_FLAG_UTIL_CLAMP_MIN", 0x20},
        {"SCHED_FLAG_UTIL_CLAMP_MAX", 0x40},
    };
    uint64_t set = 0;

    if (!json_is_array(v))
        return json_fail(at, e, -EINVAL, "must be an array of flag names, not %s", json_type_name(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        struct json_at here = {.up = at, .index = i};
        int bit = 0;
        int r = decode_name(&here, json_array_get(v, i), flag, ARRAY_LEN(flag), &bit, e);
        if (r < 0)
            return r;
        set |= (unsigned)bit;
    }
    *(uint64_t *)out = set;
    return 0;
}

static const struct json_field sched_rows[] = {
    {.name = "policy", .kind = JSON_AS_CALL, .required = true, AT(P, sched_policy), .fn = decode_policy},
    {.name = "nice", .kind = JSON_AS_INT, AT(P, sched_nice), .min = -20, .max = 19},
    {.name = "priority", .kind = JSON_AS_INT, AT(P, sched_priority), .min = 0, .max = 99},
    ROW_CALL("flags", P, sched_flags, decode_sched_flags),
    {.name = "runtime", .kind = JSON_AS_U64, AT(P, sched_runtime)},
    {.name = "deadline", .kind = JSON_AS_U64, AT(P, sched_deadline)},
    {.name = "period", .kind = JSON_AS_U64, AT(P, sched_period)},
};
static const struct json_table sched_table = JSON_TABLE(sched_rows, P);

static int decode_io_class(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                           void *out, struct err *e)
{
    static const struct oci_name class[] = {
        {"IOPRIO_CLASS_RT", 1}, {"IOPRIO_CLASS_BE", 2}, {"IOPRIO_CLASS_IDLE", 3}};

    return decode_name(at, v, class, ARRAY_LEN(class), out, e);
}

static const struct json_field io_rows[] = {
    {.name = "class", .kind = JSON_AS_CALL, .required = true, AT(P, io_class), .fn = decode_io_class},
    {.name = "priority", .kind = JSON_AS_INT, AT(P, io_level), .min = 0, .max = 7},
};
static const struct json_table io_table = JSON_TABLE(io_rows, P);

/* ---- the process -------------------------------------------------------------------------------- */

static const struct json_field console_rows[] = {
    {.name = "height", .kind = JSON_AS_U32, AT(P, console_height), .max = 65535},
    {.name = "width", .kind = JSON_AS_U32, AT(P, console_width), .max = 65535},
};
static const struct json_table console_table = JSON_TABLE(console_rows, P);

static const struct json_field affinity_rows[] = {
    ROW_STRING("initial", P, cpu_affinity_initial),
    ROW_STRING("final", P, cpu_affinity_final),
};
static const struct json_table affinity_table = JSON_TABLE(affinity_rows, P);

static const struct json_field process_rows[] = {
    ROW_BOOL("terminal", P, terminal),
    ROW_FLAT("consoleSize", &console_table),
    ROW_FLAT("user", &user_table),
    ROW_STRINGS("args", P, args, 65536),
    ROW_STRINGS("env", P, env, 65536),
    {.name = "cwd",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(P, cwd),
     .fn = spec_decode_absolute,
     .done = spec_free_string},
    ROW_FLAT("capabilities", &caps_table),
    ROW_ARRAY("rlimits", P, rlimits, n_rlimits, &rlimit_table, 64),
    ROW_BOOL("noNewPrivileges", P, no_new_privileges),
    {.name = "oomScoreAdj",
     .kind = JSON_AS_INT,
     AT(P, oom_score_adj),
     .offset_has = offsetof(P, has_oom_score_adj),
     .min = -1000,
     .max = 1000},
    ROW_STRING("apparmorProfile", P, apparmor_profile),
    ROW_STRING("selinuxLabel", P, selinux_label),
    {.name = "scheduler",
     .kind = JSON_AS_OBJECT,
     .offset_has = offsetof(P, has_scheduler),
     .table = &sched_table},
    {.name = "ioPriority",
     .kind = JSON_AS_OBJECT,
     .offset_has = offsetof(P, has_io_priority),
     .table = &io_table},
    ROW_FLAT("execCPUAffinity", &affinity_table),
};

static void init_process(void *out)
{
    ((P *)out)->umask = SPEC_NO_UMASK;
}

const struct json_table spec_process_table = JSON_TABLE_INIT(process_rows, P, init_process);

int spec_process_verify(const struct json_at *at, const P *p, struct err *e)
{
    struct json_at args = {.up = at, .key = "args"};

    if (p->args.n == 0)
        return json_fail(&args, e, -EINVAL, "must have at least one element, the program");
    if (!p->args.item[0][0])
        return json_fail(&args, e, -EINVAL, "must not begin with an empty string: it is the program");
    return verify_rlimits(at, p, e);
}
