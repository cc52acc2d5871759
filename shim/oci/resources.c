/* `linux.resources` of a configuration, and the same object alone as the argument of Update. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "shim/oci/tables.h"

#define R struct spec_resources

_Static_assert(sizeof(struct spec_pair) == sizeof(struct json_pair) &&
                   offsetof(struct spec_pair, value) == offsetof(struct json_pair, value),
               "spec_pair is decoded as json_pair");

/* ---- devices ------------------------------------------------------------------------------------ */

static int decode_rule_type(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                            void *out, struct err *e)
{
    const char *text = json_string_value(v);

    if (!text || (text[0] && (text[1] || !strchr("abc", text[0]))))
        return json_fail(at, e, -EINVAL, "must be \"a\", \"b\" or \"c\"");
    *(char *)out = text[0] ? text[0] : 'a';
    return 0;
}

static int decode_access(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                         void *out, struct err *e)
{
    const char *text = json_string_value(v);

    if (!text || !text[0] || strlen(text) > 3 || strspn(text, "rwm") != strlen(text))
        return json_fail(at, e, -EINVAL, "must be made of the letters r, w and m");
    free(*(char **)out);
    *(char **)out = xstrdup(text);
    return 0;
}

#define DEVICE_MAX (INT64_C(1) << 32)
static const struct json_field rule_rows[] = {
    ROW_BOOL("allow", struct spec_device_rule, allow),
    ROW_CALL("type", struct spec_device_rule, type, decode_rule_type),
    {.name = "major", .kind = JSON_AS_I64, AT(struct spec_device_rule, major), .min = -1, .max = DEVICE_MAX},
    {.name = "minor", .kind = JSON_AS_I64, AT(struct spec_device_rule, minor), .min = -1, .max = DEVICE_MAX},
    {.name = "access",
     .kind = JSON_AS_CALL,
     AT(struct spec_device_rule, access),
     .fn = decode_access,
     .done = spec_free_string},
};

static void init_rule(void *out)
{
    *(struct spec_device_rule *)out = (struct spec_device_rule){.type = 'a', .major = -1, .minor = -1};
}

static const struct json_table rule_table = JSON_TABLE_INIT(rule_rows, struct spec_device_rule, init_rule);

/* ---- memory, cpu, pids -------------------------------------------------------------------------- */

static int decode_flag(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                       void *out, struct err *e)
{
    if (!json_is_boolean(v))
        return json_fail(at, e, -EINVAL, "must be true or false, not %s", json_type_name(v));
    *(struct spec_num *)out = (struct spec_num){.has = true, .value = json_is_true(v)};
    return 0;
}

/* Kernel memory accounting is gone from the kernel (5.16, 6.0): the form is checked, the value unused. */
static int decode_unused_num(const struct json_at *at, const struct json_field *f, const json_t *v,
                             void *out UNUSED, struct err *e)
{
    int64_t n = 0;
    return json_int_in(at, f, v, &n, e);
}

static int decode_unused_flag(const struct json_at *at, const struct json_field *f, const json_t *v,
                              void *out UNUSED, struct err *e)
{
    struct spec_num n;
    return decode_flag(at, f, v, &n, e);
}

static const struct json_field memory_rows[] = {
    ROW_NUM("limit", R, memory_limit, -1, INT64_MAX),
    ROW_NUM("reservation", R, memory_reservation, -1, INT64_MAX),
    ROW_NUM("swap", R, memory_swap, -1, INT64_MAX),
    ROW_NUM("swappiness", R, memory_swappiness, 0, 100),
    ROW_CALL("disableOOMKiller", R, memory_disable_oom_killer, decode_flag),
    ROW_CALL("checkBeforeUpdate", R, memory_check_before_update, decode_flag),
    {.name = "kernel", .kind = JSON_AS_CALL, .fn = decode_unused_num},
    {.name = "kernelTCP", .kind = JSON_AS_CALL, .fn = decode_unused_num},
    {.name = "useHierarchy", .kind = JSON_AS_CALL, .fn = decode_unused_flag},
};
static const struct json_table memory_table = JSON_TABLE(memory_rows, R);

static const struct json_field cpu_rows[] = {
    ROW_NUM("shares", R, cpu_shares, 0, INT64_MAX),
    ROW_NUM("quota", R, cpu_quota, 0, 0),
    ROW_NUM("period", R, cpu_period, 0, INT64_MAX),
    ROW_NUM("burst", R, cpu_burst, 0, INT64_MAX),
    ROW_NUM("realtimeRuntime", R, cpu_rt_runtime, 0, 0),
    ROW_NUM("realtimePeriod", R, cpu_rt_period, 0, INT64_MAX),
    ROW_NUM("idle", R, cpu_idle, 0, 1),
    ROW_STRING("cpus", R, cpuset_cpus),
    ROW_STRING("mems", R, cpuset_mems),
};
static const struct json_table cpu_table = JSON_TABLE(cpu_rows, R);

static const struct json_field pids_rows[] = {ROW_NUM("limit", R, pids_limit, -1, INT64_MAX)};
static const struct json_table pids_table = JSON_TABLE(pids_rows, R);

/* ---- block I/O ---------------------------------------------------------------------------------- */

static const struct json_field weight_rows[] = {
    {.name = "major",
     .kind = JSON_AS_I64,
     .required = true,
     AT(struct spec_weight_device, major),
     .min = 0,
     .max = DEVICE_MAX},
    {.name = "minor",
     .kind = JSON_AS_I64,
     .required = true,
     AT(struct spec_weight_device, minor),
     .min = 0,
     .max = DEVICE_MAX},
    ROW_NUM("weight", struct spec_weight_device, weight, 0, 1000),
    ROW_NUM("leafWeight", struct spec_weight_device, leaf_weight, 0, 1000),
};
static const struct json_table weight_table = JSON_TABLE(weight_rows, struct spec_weight_device);

static const struct json_field throttle_rows[] = {
    {.name = "major",
     .kind = JSON_AS_I64,
     .required = true,
     AT(struct spec_throttle, major),
     .min = 0,
     .max = DEVICE_MAX},
    {.name = "minor",
     .kind = JSON_AS_I64,
     .required = true,
     AT(struct spec_throttle, minor),
     .min = 0,
     .max = DEVICE_MAX},
    {.name = "rate", .kind = JSON_AS_U64, AT(struct spec_throttle, rate)},
};
static const struct json_table throttle_table = JSON_TABLE(throttle_rows, struct spec_throttle);

#define ROW_THROTTLE(n, i) ROW_ARRAY(n, R, throttle[i], n_throttle[i], &throttle_table, 256)
static const struct json_field blkio_rows[] = {
    ROW_NUM("weight", R, blkio_weight, 0, 1000),
    ROW_NUM("leafWeight", R, blkio_leaf_weight, 0, 1000),
    ROW_ARRAY("weightDevice", R, weight_devices, n_weight_devices, &weight_table, 256),
    ROW_THROTTLE("throttleReadBpsDevice", 0),
    ROW_THROTTLE("throttleWriteBpsDevice", 1),
    ROW_THROTTLE("throttleReadIOPSDevice", 2),
    ROW_THROTTLE("throttleWriteIOPSDevice", 3),
};
static const struct json_table blkio_table = JSON_TABLE(blkio_rows, R);

/* ---- huge pages, network, rdma ------------------------------------------------------------------ */

/* A number kept as its decimal text, the way it goes into a cgroup file. */
static int decode_number_text(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                              void *out, struct err *e)
{
    uint64_t n = 0;

    if (json_get_u64(v, &n) < 0 || (f->max && n > (uint64_t)f->max))
        return json_fail(at, e, -EINVAL, "must be a whole number from 0 to %" PRIu64 ", not %s",
                         f->max ? (uint64_t)f->max : UINT64_MAX,
                         json_is_integer(v) ? "that one" : json_type_name(v));
    free(*(char **)out);
    *(char **)out = xasprintf("%" PRIu64, n);
    return 0;
}

/* "2MB", "1GB": the name goes into a file name, so nothing else may be in it. */
static int decode_page_size(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                            void *out, struct err *e)
{
    const char *text = json_string_value(v);
    size_t digits = text ? strspn(text, "0123456789") : 0;

    if (digits == 0 || digits > 9 || !strchr("KMGTP", text[digits] ? text[digits] : '?') ||
        strcmp(text + digits + 1, "B") != 0)
        return json_fail(at, e, -EINVAL, "must be a page size such as \"2MB\"");
    free(*(char **)out);
    *(char **)out = xstrdup(text);
    return 0;
}

static const struct json_field hugepage_rows[] = {
    {.name = "pageSize",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(struct spec_pair, key),
     .fn = decode_page_size,
     .done = spec_free_string},
    {.name = "limit",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(struct spec_pair, value),
     .fn = decode_number_text,
     .done = spec_free_string},
};
static const struct json_table hugepage_table = JSON_TABLE(hugepage_rows, struct spec_pair);

/* One line of net_prio.ifpriomap: a name that breaks out of its word would write another line. */
static int decode_interface(const struct json_at *at, const struct json_field *f UNUSED, const json_t *v,
                            void *out, struct err *e)
{
    const char *text = json_string_value(v);

    if (!text || !text[0] || strlen(text) > 15 || strpbrk(text, " \t\n/"))
        return json_fail(at, e, -EINVAL, "must be the name of a network interface");
    free(*(char **)out);
    *(char **)out = xstrdup(text);
    return 0;
}

static const struct json_field priority_rows[] = {
    {.name = "name",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(struct spec_pair, key),
     .fn = decode_interface,
     .done = spec_free_string},
    {.name = "priority",
     .kind = JSON_AS_CALL,
     .required = true,
     AT(struct spec_pair, value),
     .max = UINT32_MAX,
     .fn = decode_number_text,
     .done = spec_free_string},
};
static const struct json_table priority_table = JSON_TABLE(priority_rows, struct spec_pair);

static const struct json_field network_rows[] = {
    ROW_NUM("classID", R, net_class_id, 0, UINT32_MAX),
    ROW_ARRAY("priorities", R, net_priorities, n_net_priorities, &priority_table, 256),
};
static const struct json_table network_table = JSON_TABLE(network_rows, R);

static const struct json_field rdma_rows[] = {
    ROW_NUM("hcaHandles", struct spec_rdma, hca_handles, 0, UINT32_MAX),
    ROW_NUM("hcaObjects", struct spec_rdma, hca_objects, 0, UINT32_MAX),
};
static const struct json_table rdma_table = JSON_TABLE(rdma_rows, struct spec_rdma);

static void free_rdma(void *out)
{
    R *r = out;
    for (size_t i = 0; i < r->n_rdma; i++)
        free(r->rdma[i].device);
    free(r->rdma);
    r->rdma = NULL;
    r->n_rdma = 0;
}

static int decode_rdma(const struct json_at *at, const struct json_field *f, const json_t *v, void *out,
                       struct err *e)
{
    R *r = out;

    if (!json_is_object(v))
        return json_fail(at, e, -EINVAL, "must be an object, not %s", json_type_name(v));
    if (json_object_size(v) > f->limit)
        return json_fail(at, e, -E2BIG, "has more than %zu members", f->limit);
    free_rdma(r);
    r->rdma = xcalloc(json_object_size(v) + 1, sizeof *r->rdma);
    const char *key = NULL;
    json_t *item = NULL;
    json_object_foreach((json_t *)(uintptr_t)v, key, item)
    {
        struct json_at here = {.up = at, .key = key};
        struct spec_rdma *d = &r->rdma[r->n_rdma];
        if (!key[0] || strpbrk(key, " \t\n="))
            return json_fail(&here, e, -EINVAL, "is not the name of an RDMA device");
        int rc = json_decode(&here, item, &rdma_table, d, e);
        if (rc < 0)
            return rc;
        d->device = xstrdup(key);
        r->n_rdma++;
    }
    return 0;
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static const struct json_field resources_rows[] = {
    ROW_ARRAY("devices", R, devices, n_devices, &rule_table, 4096),
    ROW_FLAT("memory", &memory_table),
    ROW_FLAT("cpu", &cpu_table),
    ROW_FLAT("pids", &pids_table),
    ROW_FLAT("blockIO", &blkio_table),
    ROW_ARRAY("hugepageLimits", R, hugepage, n_hugepage, &hugepage_table, 64),
    ROW_FLAT("network", &network_table),
    {.name = "rdma", .kind = JSON_AS_CALL, .limit = 64, .fn = decode_rdma, .done = free_rdma},
    ROW_MAP("unified", R, unified, n_unified, 256),
};
const struct json_table spec_resources_table = JSON_TABLE(resources_rows, R);

/*
 * A key of `unified` is a file of the cgroup's own directory, never a path out of it.  Of the core
 * files only the two limits: membership, freezing and killing are the shim's.
 */
static bool is_cgroup_file(const char *name)
{
    if (!name[0] || strlen(name) >= 256 || strchr(name, '/') || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0)
        return false;
    return strncmp(name, "cgroup.", 7) != 0 || strncmp(name, "cgroup.max.", 11) == 0;
}

int spec_resources_verify(const struct json_at *at, const R *r, struct err *e)
{
    struct json_at unified = {.up = at, .key = "unified"};
    struct json_at devices = {.up = at, .key = "devices"};

    for (size_t i = 0; i < r->n_unified; i++) {
        struct json_at here = {.up = &unified, .key = r->unified[i].key};
        if (!is_cgroup_file(r->unified[i].key))
            return json_fail(&here, e, -EINVAL, "is not a file of a control group that may be set");
    }
    for (size_t i = 0; i < r->n_devices; i++) {
        struct json_at here = {.up = &devices, .index = i};
        if (!r->devices[i].access)
            return json_fail(&here, e, -EINVAL,
                             "has no access, which must be made of the letters r, w and m");
    }
    return 0;
}
