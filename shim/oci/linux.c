/* `linux` of a configuration: namespaces, id maps, devices, sysctl, seccomp, paths. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "shim/oci/names.h"
#include "shim/oci/tables.h"

#define S struct spec

/* ---- namespaces --------------------------------------------------------------------------------- */

static const struct oci_name ns_name[] = {
    {"pid", SPEC_NS_PID}, {"network", SPEC_NS_NETWORK}, {"mount", SPEC_NS_MOUNT},   {"ipc", SPEC_NS_IPC},
    {"uts", SPEC_NS_UTS}, {"user", SPEC_NS_USER},       {"cgroup", SPEC_NS_CGROUP}, {"time", SPEC_NS_TIME},
};
_Static_assert(ARRAY_LEN(ns_name) == SPEC_NS_KINDS, "a namespace kind has no name");

struct ns_entry {
    int kind;
    char *path;
};

static int decode_ns_type(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                          void *out, struct err *e)
{
    if (!json_is_string(v))
        return json_fail(at, e, -EINVAL, "must be a string, not %s", json_type_name(v));
    const struct oci_name *row = oci_name_find(ns_name, ARRAY_LEN(ns_name), json_string_value(v));
    if (!row)
        return json_fail(at, e, -EINVAL, "has the unknown value \"%.64s\"", json_string_value(v));
    *(int *)out = row->value;
    return 0;
}

static const struct json_field ns_rows[] = {
    {.name = "type", .kind = JSON_AS_CALL, .required = true, AT(struct ns_entry, kind), .fn = decode_ns_type},
    {.name = "path",
     .kind = JSON_AS_STRING,
     .empty_is_absent = true,
     AT(struct ns_entry, path),
     .limit = 4095},
};
static const struct json_table ns_table = JSON_TABLE(ns_rows, struct ns_entry);

static int decode_one_ns(const struct json_at *at, const json_t *v, struct spec_namespace *ns, struct err *e)
{
    struct ns_entry entry = {0};
    int r = json_decode(at, v, &ns_table, &entry, e);
    if (r == 0 && entry.path && entry.path[0] != '/')
        r = json_fail(at, e, -EINVAL, "has a path that is not absolute: \"%.128s\"", entry.path);
    if (r == 0 && ns[entry.kind].present)
        r = json_fail(at, e, -EINVAL, "names the %s namespace a second time", ns_name[entry.kind].name);
    if (r == 0)
        ns[entry.kind] = (struct spec_namespace){.present = true, .path = take(entry.path)};
    json_free_members(&ns_table, &entry);
    return r;
}

static void free_namespaces(void *out)
{
    struct spec_namespace *ns = out;
    for (size_t i = 0; i < SPEC_NS_KINDS; i++) {
        free(ns[i].path);
        ns[i] = (struct spec_namespace){0};
    }
}

static int decode_namespaces(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                             void *out, struct err *e)
{
    if (!json_is_array(v))
        return json_fail(at, e, -EINVAL, "must be an array, not %s", json_type_name(v));
    free_namespaces(out);
    for (size_t i = 0; i < json_array_size(v); i++) {
        struct json_at here = {.up = at, .index = i};
        int r = decode_one_ns(&here, json_array_get(v, i), out, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- id maps (also of mounts), time offsets ------------------------------------------------------ */

static const struct json_field map_rows[] = {
    {.name = "containerID", .kind = JSON_AS_U32, .required = true, AT(struct spec_id_map, container_id)},
    {.name = "hostID", .kind = JSON_AS_U32, .required = true, AT(struct spec_id_map, host_id)},
    {.name = "size", .kind = JSON_AS_U32, .required = true, AT(struct spec_id_map, size)},
};
const struct json_table spec_id_map_table = JSON_TABLE(map_rows, struct spec_id_map);

static const struct json_field offset_rows[] = {
    {.name = "secs", .kind = JSON_AS_I64, AT(struct spec_time_offset, secs)},
    {.name = "nanosecs", .kind = JSON_AS_U32, AT(struct spec_time_offset, nanosecs), .max = 999999999},
};
static const struct json_table offset_table = JSON_TABLE(offset_rows, struct spec_time_offset);
static const struct json_field offsets_rows[] = {
    ROW_OBJECT("monotonic", S, monotonic, &offset_table),
    ROW_OBJECT("boottime", S, boottime, &offset_table),
};
static const struct json_table offsets_table = JSON_TABLE(offsets_rows, S);

/* ---- devices ------------------------------------------------------------------------------------- */

static int decode_device_type(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                              void *out, struct err *e)
{
    const char *text = json_string_value(v);

    if (!text || !text[0] || text[1] || !strchr("cbup", text[0]))
        return json_fail(at, e, -EINVAL, "must be \"c\", \"b\", \"u\" or \"p\"");
    *(char *)out = text[0];
    return 0;
}

#define D struct spec_device
static const struct json_field device_rows[] = {
    {.name = "type", .kind = JSON_AS_CALL, .required = true, AT(D, type), .fn = decode_device_type},
    {.name = "path",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(D, path),
     .fn = spec_decode_absolute,
     .done = spec_free_string},
    {.name = "major", .kind = JSON_AS_I64, AT(D, major), .min = -1, .max = UINT32_MAX},
    {.name = "minor", .kind = JSON_AS_I64, AT(D, minor), .min = -1, .max = UINT32_MAX},
    {.name = "fileMode", .kind = JSON_AS_U32, AT(D, file_mode)},
    {.name = "uid", .kind = JSON_AS_U32, AT(D, uid), .max = UINT32_MAX - 1},
    {.name = "gid", .kind = JSON_AS_U32, AT(D, gid), .max = UINT32_MAX - 1},
};

static void init_device(void *out)
{
    ((D *)out)->file_mode = 0666;
}

static const struct json_table device_table = JSON_TABLE_INIT(device_rows, D, init_device);

/* ---- members kept as they are --------------------------------------------------------------------- */

/* Its meaning belongs to the filter; here it only has to be an object. */
static int decode_seccomp(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                          void *out, struct err *e)
{
    S *s = out;

    if (!json_is_object(v))
        return json_fail(at, e, -EINVAL, "must be an object, not %s", json_type_name(v));
    const json_t *listener = json_object_get(v, "listenerPath");
    s->has_seccomp_listener = listener && json_string_length(listener) > 0;
    free(s->seccomp_json);
    s->seccomp_json = json_text(v);
    return 0;
}

static void free_seccomp(void *out)
{
    free(take(((S *)out)->seccomp_json));
}

/* Present and not empty; what is inside is of no use, because spec_check() refuses it. */
static int decode_presence(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                           void *out, struct err *e)
{
    if (!json_is_object(v))
        return json_fail(at, e, -EINVAL, "must be an object, not %s", json_type_name(v));
    *(bool *)out = json_object_size(v) > 0;
    return 0;
}

static int decode_domain(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                         void *out, struct err *e)
{
    const char *text = json_string_value(v);

    if (!text || (strcmp(text, "LINUX") != 0 && strcmp(text, "LINUX32") != 0))
        return json_fail(at, e, -EINVAL, "must be \"LINUX\" or \"LINUX32\"");
    free(*(char **)out);
    *(char **)out = xstrdup(text);
    return 0;
}

/* The specification reserves flags: none is defined, so none can be honoured. */
static int decode_no_flags(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                           void *out UNUSED, struct err *e)
{
    if (!json_is_array(v))
        return json_fail(at, e, -EINVAL, "must be an array, not %s", json_type_name(v));
    return json_array_size(v) ? json_fail(at, e, -EINVAL, "must be empty: no flag is defined") : 0;
}

static const struct json_field personality_rows[] = {
    {.name = "domain",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(S, personality),
     .fn = decode_domain,
     .done = spec_free_string},
    {.name = "flags", .kind = JSON_AS_CALL, .fn = decode_no_flags},
};
static const struct json_table personality_table = JSON_TABLE(personality_rows, S);

static int decode_propagation(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                              void *out, struct err *e)
{
    static const struct oci_name word[] = {
        {"", 0},        {"shared", 1}, {"slave", 1},    {"private", 1},     {"unbindable", 1},
        {"rshared", 1}, {"rslave", 1}, {"rprivate", 1}, {"runbindable", 1},
    };
    const char *text = json_string_value(v);

    if (!text || !oci_name_find(word, ARRAY_LEN(word), text))
        return json_fail(at, e, -EINVAL,
                         "must be shared, slave, private or unbindable, or one of them with an r before it");
    free(*(char **)out);
    *(char **)out = text[0] ? xstrdup(text) : NULL;
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

static const struct json_field linux_rows[] = {
    {.name = "namespaces", .kind = JSON_AS_CALL, AT(S, ns), .fn = decode_namespaces, .done = free_namespaces},
    ROW_ARRAY("uidMappings", S, uid_map, n_uid_map, &spec_id_map_table, 340),
    ROW_ARRAY("gidMappings", S, gid_map, n_gid_map, &spec_id_map_table, 340),
    {.name = "timeOffsets",
     .kind = JSON_AS_OBJECT,
     .offset_has = offsetof(S, has_time_offsets),
     .table = &offsets_table},
    ROW_ARRAY("devices", S, devices, n_devices, &device_table, 4096),
    ROW_CALL("netDevices", S, has_net_devices, decode_presence),
    ROW_STRING("cgroupsPath", S, cgroups_path),
    ROW_OBJECT("resources", S, resources, &spec_resources_table),
    ROW_CALL("intelRdt", S, has_intel_rdt, decode_presence),
    ROW_CALL("memoryPolicy", S, has_memory_policy, decode_presence),
    ROW_MAP("sysctl", S, sysctl, n_sysctl, 1024),
    {.name = "seccomp", .kind = JSON_AS_CALL, .fn = decode_seccomp, .done = free_seccomp},
    {.name = "rootfsPropagation",
     .kind = JSON_AS_CALL,
     AT(S, rootfs_propagation),
     .fn = decode_propagation,
     .done = spec_free_string},
    ROW_STRING("mountLabel", S, mount_label),
    ROW_STRINGS("maskedPaths", S, masked_paths, 1024),
    ROW_STRINGS("readonlyPaths", S, readonly_paths, 1024),
    {.name = "personality",
     .kind = JSON_AS_OBJECT,
     .offset_has = offsetof(S, has_personality),
     .table = &personality_table},
};
const struct json_table spec_linux_table = JSON_TABLE(linux_rows, S);

static int verify_paths(const struct json_at *at, const char *key, const struct spec_strings *paths,
                        struct err *e)
{
    struct json_at list = {.up = at, .key = key};

    for (size_t i = 0; i < paths->n; i++) {
        struct json_at here = {.up = &list, .index = i};
        if (paths->item[i][0] != '/')
            return json_fail(&here, e, -EINVAL, "must be an absolute path, not \"%.128s\"", paths->item[i]);
    }
    return 0;
}

static int verify_map(const struct json_at *at, const char *key, const struct spec_id_map *map, size_t n,
                      struct err *e)
{
    struct json_at list = {.up = at, .key = key};

    for (size_t i = 0; i < n; i++) {
        struct json_at here = {.up = &list, .index = i};
        /* 2^32-1 is no id but "none" to the kernel. */
        if (map[i].size == 0 || (uint64_t)map[i].container_id + map[i].size > UINT32_MAX ||
            (uint64_t)map[i].host_id + map[i].size > UINT32_MAX)
            return json_fail(&here, e, -EINVAL, "is not a range of ids");
    }
    return 0;
}

int spec_linux_verify(const struct json_at *at, const S *s, struct err *e)
{
    struct json_at resources = {.up = at, .key = "resources"};
    int r = verify_paths(at, "maskedPaths", &s->masked_paths, e);
    if (r == 0)
        r = verify_paths(at, "readonlyPaths", &s->readonly_paths, e);
    if (r == 0)
        r = verify_map(at, "uidMappings", s->uid_map, s->n_uid_map, e);
    if (r == 0)
        r = verify_map(at, "gidMappings", s->gid_map, s->n_gid_map, e);
    return r < 0 ? r : spec_resources_verify(&resources, &s->resources, e);
}
