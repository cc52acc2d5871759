#include "shim/oci/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "shim/oci/tables.h"

#define S struct spec

SCOPED_DEFINE(struct spec, spec_free)
SCOPED_DEFINE(struct spec_process, spec_process_free)
SCOPED_DEFINE(struct spec_resources, spec_resources_free)

extern const struct json_table spec_id_map_table;

/* ---- callbacks used by several tables ------------------------------------------------------------ */

int spec_decode_num(const struct json_at *at, const struct json_field *f, const json_t *v, void *out,
                    struct err *e)
{
    struct spec_num n = {.has = true};
    int r = json_int_in(at, f, v, &n.value, e);
    if (r == 0)
        *(struct spec_num *)out = n;
    return r;
}

int spec_decode_absolute(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                         void *out, struct err *e)
{
    if (!json_is_string(v))
        return json_fail(at, e, -EINVAL, "must be a string, not %s", json_type_name(v));
    const char *text = json_string_value(v);
    if (text[0] != '/')
        return json_fail(at, e, -EINVAL, "must be an absolute path, not \"%.128s\"", text);
    if (json_string_length(v) > 4095)
        return json_fail(at, e, -E2BIG, "is longer than 4095 bytes");
    free(*(char **)out);
    *(char **)out = xstrdup(text);
    return 0;
}

void spec_free_string(void *out)
{
    free(take(*(char **)out));
}

/* ---- mounts, hooks, root -------------------------------------------------------------------------- */

/* Relative destinations are an old form; the specification reads them as below "/". */
static int decode_destination(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                              void *out, struct err *e)
{
    const char *text = json_string_value(v);

    if (!text || !text[0])
        return json_fail(at, e, -EINVAL, "must be a path");
    if (json_string_length(v) > 4095)
        return json_fail(at, e, -E2BIG, "is longer than 4095 bytes");
    free(*(char **)out);
    *(char **)out = text[0] == '/' ? xstrdup(text) : xasprintf("/%s", text);
    return 0;
}

#define M struct spec_mount
static const struct json_field mount_rows[] = {
    {.name = "destination",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(M, destination),
     .fn = decode_destination,
     .done = spec_free_string},
    ROW_STRING("type", M, type),
    ROW_STRING("source", M, source),
    ROW_STRINGS("options", M, options, 256),
    ROW_ARRAY("uidMappings", M, uid_map, n_uid_map, &spec_id_map_table, 340),
    ROW_ARRAY("gidMappings", M, gid_map, n_gid_map, &spec_id_map_table, 340),
};
static const struct json_table mount_table = JSON_TABLE(mount_rows, M);

static const struct json_field hook_rows[] = {
    {.name = "path",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(struct spec_hook, path),
     .fn = spec_decode_absolute,
     .done = spec_free_string},
    ROW_STRINGS("args", struct spec_hook, args, 4096),
    ROW_STRINGS("env", struct spec_hook, env, 4096),
    {.name = "timeout", .kind = JSON_AS_INT, AT(struct spec_hook, timeout_s), .min = 1, .max = INT32_MAX},
};
static const struct json_table hook_table = JSON_TABLE(hook_rows, struct spec_hook);

#define ROW_HOOK(title, kind) ROW_ARRAY(title, S, hooks[kind].item, hooks[kind].n, &hook_table, 256)
static const struct json_field hooks_rows[] = {
    ROW_HOOK("prestart", HOOK_PRESTART),
    ROW_HOOK("createRuntime", HOOK_CREATE_RUNTIME),
    ROW_HOOK("createContainer", HOOK_CREATE_CONTAINER),
    ROW_HOOK("startContainer", HOOK_START_CONTAINER),
    ROW_HOOK("poststart", HOOK_POSTSTART),
    ROW_HOOK("poststop", HOOK_POSTSTOP),
};
_Static_assert(ARRAY_LEN(hooks_rows) == HOOK_KINDS, "a kind of hook has no name");
static const struct json_table hooks_table = JSON_TABLE(hooks_rows, S);

static const struct json_field root_rows[] = {
    {.name = "path", .kind = JSON_AS_STRING, .required = true, AT(S, root_path), .limit = 4095},
    ROW_BOOL("readonly", S, root_readonly),
};
static const struct json_table root_table = JSON_TABLE(root_rows, S);

static int decode_version(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                          void *out, struct err *e)
{
    const char *text = json_string_value(v);

    if (!text || strncmp(text, "1.", 2) != 0 || strspn(text + 2, "0123456789") == 0)
        return json_fail(at, e, -EINVAL, "must be a version 1.x of the runtime specification, not \"%.32s\"",
                         text ? text : json_type_name(v));
    free(*(char **)out);
    *(char **)out = xstrdup(text);
    return 0;
}

static const struct json_field spec_rows[] = {
    {.name = "ociVersion",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(S, oci_version),
     .fn = decode_version,
     .done = spec_free_string},
    {.name = "process",
     .kind = JSON_AS_OBJECT,
     AT(S, process),
     .offset_has = offsetof(S, has_process),
     .table = &spec_process_table},
    {.name = "root", .kind = JSON_AS_OBJECT, .required = true, .table = &root_table},
    ROW_STRING("hostname", S, hostname),
    ROW_STRING("domainname", S, domainname),
    ROW_ARRAY("mounts", S, mounts, n_mounts, &mount_table, 4096),
    ROW_FLAT("hooks", &hooks_table),
    ROW_MAP("annotations", S, annotations, n_annotations, 4096),
    ROW_FLAT("linux", &spec_linux_table),
};
const struct json_table spec_table = JSON_TABLE(spec_rows, S);

/* ---- entry points --------------------------------------------------------------------------------- */

void spec_free(S *s)
{
    json_free_members(&spec_table, s);
    free(s);
}

void spec_process_free(struct spec_process *p)
{
    json_free_members(&spec_process_table, p);
    free(p);
}

void spec_resources_free(struct spec_resources *r)
{
    json_free_members(&spec_resources_table, r);
    free(r);
}

static int verify(const S *s, struct err *e)
{
    static const struct json_at process = {.key = "process"}, root = {.key = "root"},
                                path = {.up = &root, .key = "path"};
    static const struct json_at linux_at = {.key = "linux"};

    if (!s->root_path[0])
        return json_fail(&path, e, -EINVAL, "must not be empty");
    int r = s->has_process ? spec_process_verify(&process, &s->process, e) : 0;
    return r < 0 ? r : spec_linux_verify(&linux_at, s, e);
}

int spec_parse(const char *json, size_t len, S **ret, struct err *e)
{
    scoped(json_decref) json_t *root = NULL;
    int r = json_parse(json, len, SPEC_MAX, &root, e);
    if (r < 0)
        return r;

    scoped(spec_free) S *s = xcalloc(1, sizeof *s);
    s->process.umask = SPEC_NO_UMASK;
    r = json_decode(NULL, root, &spec_table, s, e);
    if (r == 0)
        r = verify(s, e);
    if (r < 0)
        return r;
    *ret = take(s);
    return 0;
}

int spec_load(int bundle_fd, S **ret, struct err *e)
{
    scoped_free char *text = NULL;
    size_t len = 0;
    int r = file_read(bundle_fd, "config.json", SPEC_MAX, &text, &len, e);
    if (r < 0)
        return r;
    r = spec_parse(text, len, ret, e);
    return r < 0 ? err_wrap(e, r, "config.json") : 0;
}

int spec_process_parse(const char *json, size_t len, struct spec_process **ret, struct err *e)
{
    static const struct json_at at = {.key = "process"};

    scoped(json_decref) json_t *root = NULL;
    int r = json_parse(json, len, SPEC_MAX, &root, e);
    if (r < 0)
        return err_wrap(e, r, "process");

    scoped(spec_process_free) struct spec_process *p = xcalloc(1, sizeof *p);
    r = json_decode(&at, root, &spec_process_table, p, e);
    if (r == 0)
        r = spec_process_verify(&at, p, e);
    if (r < 0)
        return r;
    *ret = take(p);
    return 0;
}

int spec_resources_parse(const char *json, size_t len, struct spec_resources **ret, struct err *e)
{
    static const struct json_at top = {.key = "linux"}, at = {.up = &top, .key = "resources"};

    scoped(json_decref) json_t *root = NULL;
    int r = json_parse(json, len, SPEC_MAX, &root, e);
    if (r < 0)
        return err_wrap(e, r, "linux.resources");

    scoped(spec_resources_free) struct spec_resources *res = xcalloc(1, sizeof *res);
    r = json_decode(&at, root, &spec_resources_table, res, e);
    if (r == 0)
        r = spec_resources_verify(&at, res, e);
    if (r < 0)
        return r;
    *ret = take(res);
    return 0;
}

const char *spec_annotation(const S *s, const char *key)
{
    for (size_t i = 0; i < s->n_annotations; i++)
        if (strcmp(s->annotations[i].key, key) == 0)
            return s->annotations[i].value;
    return NULL;
}

const char *spec_container_type(const S *s)
{
    return spec_annotation(s, "io.kubernetes.cri.container-type");
}

const char *spec_group(const S *s)
{
    const char *group = spec_annotation(s, "io.containerd.runc.v2.group");
    return group ? group : spec_annotation(s, "io.kubernetes.cri.sandbox-id");
}
