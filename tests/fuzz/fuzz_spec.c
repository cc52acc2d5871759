/*
 * Configurations as an engine, or somebody who can write a bundle, could send them, and the texts of
 * control files.  The first byte says who reads the rest; everything but config.json must be decided
 * without touching the system, so plans are made and thrown away.
 */
#include <assert.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/scoped.h"
#include "shim/cgroup/dbus.h"
#include "shim/cgroup/internal.h"
#include "shim/cgroup/stats.h"
#include "shim/oci/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A refusal has a sentence, and never one that breaks a log line. */
static void check_error(int r, const struct err *e)
{
    assert(r <= 0);
    if (r < 0)
        assert(e->text[0] != '\0');
}

static void plan(const struct spec_resources *res)
{
    const struct cg_current now = {.memory_max = 1 << 20, .cpu_quota = "max", .cpu_period = "100000"};
    struct cg_plan v1 = {0}, v2 = {0};
    struct err e = {0};

    check_error(cg_plan_v1(res, &v1, &e), &e);
    e = (struct err){0};
    check_error(cg_plan_v2(res, &now, &v2, &e), &e);
    for (size_t i = 0; i < v2.n; i++)
        assert(!strchr(v2.step[i].file, '/'));
    cg_plan_done(&v1);
    cg_plan_done(&v2);
}

static void path(const char *text)
{
    char *out = NULL;
    bool relative;
    struct err e = {0};
    int r = cg_path_expand(text, &out, &relative, &e);

    check_error(r, &e);
    if (r == 0) { /* below the mount point, whatever was given */
        assert(out[0] && out[0] != '/' && out[strlen(out) - 1] != '/');
        assert(strcmp(out, "..") != 0 && strncmp(out, "../", 3) != 0 && !strstr(out, "/../"));
        assert(strlen(out) < 3 || strcmp(out + strlen(out) - 3, "/..") != 0);
    }
    free(out);
}

static void config(const char *text, size_t size)
{
    struct spec *s = NULL;
    struct err e = {0};
    int r = spec_parse(text, size, &s, &e);

    check_error(r, &e);
    if (r < 0) {
        assert(!s);
        return;
    }
    assert(s->root_path && s->oci_version);
    assert(!s->has_process || (s->process.cwd[0] == '/' && s->process.args.n > 0));
    if (s->seccomp_json) { /* whoever reads it next can */
        json_t *again = json_loads(s->seccomp_json, 0, NULL);
        assert(again);
        json_decref(again);
    }
    e = (struct err){0};
    check_error(spec_check(s, &e), &e);
    plan(&s->resources);
    if (s->cgroups_path)
        path(s->cgroups_path);
    (void)spec_group(s);
    spec_free(s);
}

static void process(const char *text, size_t size)
{
    struct spec_process *p = NULL;
    struct err e = {0};
    check_error(spec_process_parse(text, size, &p, &e), &e);
    spec_process_free(p);
}

static void resources(const char *text, size_t size)
{
    struct spec_resources *res = NULL;
    struct err e = {0};
    int r = spec_resources_parse(text, size, &res, &e);
    check_error(r, &e);
    if (r == 0)
        plan(res);
    spec_resources_free(res);
}

static void counters(const char *text)
{
    struct cgroup_stats s = {0};
    struct cg_host host;
    uint64_t v;

    cg_parse_memory_v1(text, &s);
    cg_parse_memory_v2(text, &s);
    cg_parse_blkio_v1(text, BLKIO_SERVICED, &s);
    cg_parse_io_v2(text, &s);
    cg_parse_psi(text, &s.v2.io_psi);
    cg_parse_rdma(text, &s, true);
    (void)cg_keyed(text, "oom_kill", &v);
    cgroup_stats_done(&s);

    cg_host_parse(text, &host);
    for (size_t i = 0; i < host.n; i++) {
        char own[64];
        (void)cg_own_path(text, &host.hier[i], own, sizeof own);
    }
}

static void message(const uint8_t *data, size_t size)
{
    struct dbus_in m;
    size_t used = 0, at = 0;
    uint32_t number;

    if (dbus_parse(data, size, &m, &used) != 0)
        return;
    assert(used <= size && m.member && m.error_name && m.signature);
    (void)dbus_get_u32(&m, &at, &number);
    while (dbus_get_string(&m, &at))
        continue;
    assert(at <= m.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    log_init(-1, LOG_ERROR);
    if (size == 0)
        return 0;
    scoped_free char *text = xstrndup((const char *)data + 1, size - 1);

    switch (data[0]) {
    case 'P':
        process(text, strlen(text));
        break;
    case 'R':
        resources(text, strlen(text));
        break;
    case 'C':
        counters(text);
        break;
    case 'D':
        message(data + 1, size - 1);
        break;
    case 'G':
        path(text);
        break;
    default:
        config((const char *)data, size); /* a file of the corpus is a config.json as it is */
    }
    return 0;
}
