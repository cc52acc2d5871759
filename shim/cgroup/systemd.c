/*
 * Scopes on a host that systemd runs.
 *
 * systemd owns the tree there.  A directory that it did not make works until it next looks at the slice
 * above (any unit started in it, daemon-reload): it then takes away every controller that no unit of its
 * own asks for, and with it the limits.  So a path in the systemd form becomes a scope of its own, made by
 * StartTransientUnit with Delegate, and the limits are told to systemd as well, because it writes those
 * that it knows again after a daemon-reload.
 *
 * A scope must have a process from the beginning and ends with its last one; the container's comes a few
 * milliseconds later.  Until then a holder of ours sits in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "shim/cgroup/dbus.h"
#include "shim/cgroup/internal.h"

#define SOCKET    "/run/systemd/private"
#define NAME      "org.freedesktop.systemd1"
#define OBJECT    "/org/freedesktop/systemd1"
#define MANAGER   NAME ".Manager"
#define ANSWER_MS 15000
#define HOLD_MS   60000
#define BODY_MAX  65536

SCOPED_DEFINE(struct dbus, dbus_free)

bool cg_systemd_runs(void)
{
    struct stat own, init;

    /* The process number that we send must mean the same to process 1. */
    return access("/run/systemd/system", F_OK) == 0 && access(SOCKET, W_OK) == 0 &&
           stat("/proc/self/ns/pid", &own) == 0 && stat("/proc/1/ns/pid", &init) == 0 &&
           own.st_ino == init.st_ino;
}

/* ---- properties -------------------------------------------------------------------------------------------
 */

static void prop_limit(struct strbuf *b, const char *name, const struct spec_num *n)
{
    if (n->has && n->value != 0)
        dbus_prop_u64(b, name, n->value < 0 ? UINT64_MAX : (uint64_t)n->value);
}

/* "0-3,8" as one bit for each, the first in the lowest bit of the first byte. */
static void prop_set(struct strbuf *b, const char *name, const char *list)
{
    uint8_t bits[1024] = {0};
    size_t n = 0;

    for (const char *p = list; p && *p >= '0' && *p <= '9';) {
        char *end = NULL;
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < 8 * sizeof bits; i++) {
            bits[i / 8] |= (uint8_t)(1u << i % 8);
            n = MAX(n, i / 8 + 1);
        }
        p = *end == ',' ? end + 1 : "";
    }
    if (n > 0)
        dbus_prop_bytes(b, name, bits, n);
}

/* systemd counts in steps of 10 ms of each second; upwards, so that it never allows less than was asked for.
 */
static void prop_quota(struct strbuf *b, const struct spec_resources *res)
{
    if (!res->cpu_quota.has || res->cpu_quota.value == 0)
        return;
    uint64_t per_second = UINT64_MAX;
    if (res->cpu_quota.value > 0) {
        uint64_t period =
            res->cpu_period.has && res->cpu_period.value > 0 ? (uint64_t)res->cpu_period.value : 100000;
        per_second = (uint64_t)res->cpu_quota.value * 1000000 / period;
        per_second = (per_second + 9999) / 10000 * 10000;
    }
    dbus_prop_u64(b, "CPUQuotaPerSecUSec", per_second);
    prop_limit(b, "CPUQuotaPeriodUSec", &res->cpu_period);
}

static void put_resources(struct strbuf *b, const struct spec_resources *res, enum cgroup_mode mode)
{
    prop_quota(b, res);
    prop_limit(b, "TasksMax", &res->pids_limit);
    if (mode != CGROUP_V2) {
        prop_limit(b, "MemoryLimit", &res->memory_limit);
        prop_limit(b, "CPUShares", &res->cpu_shares);
        prop_limit(b, "BlockIOWeight", &res->blkio_weight);
        return;
    }
    prop_limit(b, "MemoryMax", &res->memory_limit);
    prop_limit(b, "MemoryLow", &res->memory_reservation);
    if (res->memory_swap.has && res->memory_swap.value > 0 && res->memory_limit.has &&
        res->memory_limit.value > 0)
        dbus_prop_u64(b, "MemorySwapMax", (uint64_t)(res->memory_swap.value - res->memory_limit.value));
    else if (res->memory_swap.has && res->memory_swap.value < 0)
        dbus_prop_u64(b, "MemorySwapMax", UINT64_MAX);
    if (res->cpu_shares.has && res->cpu_shares.value > 0)
        dbus_prop_u64(b, "CPUWeight", cg_weight_from_shares((uint64_t)res->cpu_shares.value));
    if (res->blkio_weight.has && res->blkio_weight.value > 0)
        dbus_prop_u64(b, "IOWeight", cg_io_weight((uint64_t)res->blkio_weight.value));
    prop_set(b, "AllowedCPUs", res->cpuset_cpus);
    prop_set(b, "AllowedMemoryNodes", res->cpuset_mems);
}

/* ---- calls
 * ------------------------------------------------------------------------------------------------- */

/* 1: the error that the caller can do something about. */
static int answer_error(const struct dbus_in *m, const char *benign, struct err *e)
{
    size_t at = 0;
    const char *text = m->signature[0] == 's' ? dbus_get_string(m, &at) : NULL;

    if (benign && strcmp(m->error_name, benign) == 0)
        return 1;
    return err_set(e, -EIO, "systemd: %s", text ? text : m->error_name);
}

/* JobRemoved(id, job, unit, result): 1 while it is not about our unit. */
static int job_result(const struct dbus_in *m, const char *unit, struct err *e)
{
    size_t at = 0;
    uint32_t id;

    if (m->type != DBUS_SIGNAL || strcmp(m->member, "JobRemoved") != 0 || strcmp(m->signature, "uoss") != 0)
        return 1;
    bool good = dbus_get_u32(m, &at, &id) && dbus_get_string(m, &at);
    const char *name = good ? dbus_get_string(m, &at) : NULL, *result = name ? dbus_get_string(m, &at) : NULL;
    if (!result || strcmp(name, unit) != 0)
        return 1;
    return strcmp(result, "done") == 0 ? 0 : err_set(e, -EIO, "systemd could not start %s: %s", unit, result);
}

/* Waits for the answer to `serial`, and with `unit` for the end of the job as well, in whatever order they
 * come. */
static int await(struct dbus *d, uint32_t serial, const char *unit, const char *benign, struct err *e)
{
    int64_t deadline = clock_mono_ms() + ANSWER_MS;
    bool answered = false, finished = !unit;

    while (!answered || !finished) {
        struct dbus_in m;
        int r = dbus_receive(d, deadline, &m, e);
        if (r < 0)
            return r;
        if (m.type == DBUS_ERROR && m.reply_to == serial)
            return answer_error(&m, benign, e);
        answered = answered || (m.type == DBUS_RETURN && m.reply_to == serial);
        r = finished ? 1 : job_result(&m, unit, e);
        if (r < 0)
            return r;
        finished = finished || r == 0;
    }
    return 0;
}

static int call(struct dbus *d, const char *member, const char *signature, const struct strbuf *body,
                const char *unit, const char *benign, struct err *e)
{
    const struct dbus_call c = {.destination = NAME,
                                .path = OBJECT,
                                .interface = MANAGER,
                                .member = member,
                                .signature = signature,
                                .body = body};
    uint32_t serial = 0;
    int r = dbus_send(d, &c, &serial, e);
    return r < 0 ? r : await(d, serial, unit, benign, e);
}

/* Forgets a scope of the same name that failed and was kept for its status. */
static void reset_failed(struct dbus *d, const char *unit)
{
    scoped_strbuf struct strbuf body;
    strbuf_init(&body, BODY_MAX);
    dbus_put_string(&body, unit);
    (void)call(d, "ResetFailedUnit", "s", &body, NULL, NULL, NULL);
}

static void put_scope(struct strbuf *b, const char *slice, const char *unit, pid_t holder,
                      const struct spec_resources *res, enum cgroup_mode mode)
{
    static const char *const yes[] = {"Delegate", "CPUAccounting", "MemoryAccounting", "TasksAccounting"};

    dbus_put_string(b, unit);
    dbus_put_string(b, "fail");
    size_t list = dbus_array_begin(b, 8);
    dbus_prop_string(b, "Description", "glovebox container");
    dbus_prop_string(b, "Slice", slice);
    dbus_prop_string(b, "CollectMode",
                     "inactive-or-failed"); /* an OOM kill must leave no failed unit behind */
    dbus_prop_bool(b, "DefaultDependencies", false);
    for (size_t i = 0; i < ARRAY_LEN(yes); i++)
        dbus_prop_bool(b, yes[i], true);
    dbus_prop_bool(b, mode == CGROUP_V2 ? "IOAccounting" : "BlockIOAccounting", true);
    dbus_prop_pids(b, "PIDs", (uint32_t)holder);
    if (res)
        put_resources(b, res, mode);
    dbus_array_end(b, list, 8);
    size_t aux = dbus_array_begin(b, 8);
    dbus_array_end(b, aux, 8);
}

/* ---- the holder
 * -------------------------------------------------------------------------------------------- */

static const struct cg_hier *managed(void)
{
    const struct cg_host *host = cg_host();
    unsigned want = host->mode == CGROUP_V2 ? CG_CORE : CG_SYSTEMD;

    for (size_t i = 0; i < host->n; i++)
        if (host->hier[i].ctrl & want)
            return &host->hier[i];
    return NULL;
}

/* Where the process is in the tree that systemd keeps. */
static bool place_of(const char *proc_file, char *ret, size_t size)
{
    char text[4096];
    const struct cg_hier *h = managed();

    return h && cg_read(AT_FDCWD, proc_file, text, sizeof text) > 0 && cg_own_path(text, h, ret, size);
}

static bool has_company(const char *unit)
{
    char place[1024], path[1280], procs[256];

    if (!place_of("/proc/self/cgroup", place, sizeof place) || !strstr(place, unit))
        return false; /* not moved yet */
    (void)snprintf(path, sizeof path, "%s%s/cgroup.procs", managed()->mount, place);
    if (cg_read(AT_FDCWD, path, procs, sizeof procs) <= 0)
        return false;
    const char *second = strchr(procs, '\n');
    return second && second[1];
}

/* Sleeps in the scope until somebody else is in it too; ends with the shim, or when the container never
 * comes. */
static _Noreturn void hold(pid_t parent, const char *unit)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NAME, "glovebox-hold");
    (void)syscall(SYS_close_range, 0u, ~0u, 0u);
    for (long ms = 0, step = 1; getppid() == parent && ms < HOLD_MS && !has_company(unit);
         ms += step, step = MIN(step * 2, 20L)) {
        struct timespec t = {.tv_nsec = step * 1000000};
        (void)nanosleep(&t, NULL);
    }
    _exit(0);
}

static pid_t start_holder(const char *unit, struct err *e)
{
    (void)managed(); /* read before the fork, not after it */
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        hold(parent, unit);
    return pid < 0 ? err_sys(e, "fork") : pid;
}

/* ---- entry points
 * ------------------------------------------------------------------------------------------ */

static int start_scope(struct dbus *d, const char *slice, const char *unit, pid_t holder,
                       const struct spec_resources *res, struct err *e)
{
    scoped_strbuf struct strbuf body;
    strbuf_init(&body, BODY_MAX);
    put_scope(&body, slice, unit, holder, res, cgroup_host_mode());
    int r = call(d, "StartTransientUnit", "ssa(sv)a(sa(sv))", &body, unit, NAME ".UnitExists", e);
    if (r == 1) {
        reset_failed(d, unit);
        r = call(d, "StartTransientUnit", "ssa(sv)a(sa(sv))", &body, unit, NULL, e);
    }
    return r;
}

int cg_systemd_start(const char *cgroups_path, const char *path, const struct spec_resources *res,
                     struct cg_scope *ret, struct err *e)
{
    const char *unit = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    scoped_free char *slice =
        cgroups_path[0] == ':' ? xstrdup("system.slice") : xstrndup(cgroups_path, strcspn(cgroups_path, ":"));
    scoped(dbus_free) struct dbus *d = NULL;
    int r = dbus_connect(SOCKET, &d, e);
    if (r < 0)
        return r;
    pid_t holder = start_holder(unit, e);
    if (holder < 0)
        return holder;

    char proc_file[64], place[1024];
    (void)snprintf(proc_file, sizeof proc_file, "/proc/%d/cgroup", (int)holder);
    r = start_scope(d, slice, unit, holder, res, e);
    if (r == 0 && place_of(proc_file, place, sizeof place) && strcmp(place + 1, path) != 0)
        r = err_set(e, -EXDEV, "systemd put the scope %s at %.256s, not at /%.256s", unit, place, path);
    if (r < 0) {
        (void)kill(holder, SIGKILL); /* our child, so the number is still its */
        return err_wrap(e, r, "linux.cgroupsPath");
    }
    *ret = (struct cg_scope){.unit = xstrdup(unit), .holder = holder};
    return 0;
}

void cg_systemd_abandon(const struct cg_scope *s)
{
    if (s->holder > 0)
        (void)kill(s->holder, SIGKILL);
}

int cg_systemd_stop(const char *unit, struct err *e)
{
    scoped(dbus_free) struct dbus *d = NULL;
    scoped_strbuf struct strbuf body;
    strbuf_init(&body, BODY_MAX);
    dbus_put_string(&body, unit);
    dbus_put_string(&body, "replace");

    int r = dbus_connect(SOCKET, &d, e);
    if (r == 0)
        r = call(d, "StopUnit", "ss", &body, NULL, NAME ".NoSuchUnit", e);
    return r < 0 ? err_wrap(e, r, "stop %s", unit) : 0;
}

int cg_systemd_update(const char *unit, const struct spec_resources *res, struct err *e)
{
    scoped(dbus_free) struct dbus *d = NULL;
    scoped_strbuf struct strbuf body;
    strbuf_init(&body, BODY_MAX);
    dbus_put_string(&body, unit);
    dbus_put_u32(&body, true); /* until the next boot */
    size_t list = dbus_array_begin(&body, 8);
    size_t empty = body.len;
    put_resources(&body, res, cgroup_host_mode());
    dbus_array_end(&body, list, 8);
    if (body.len == empty)
        return 0;

    int r = dbus_connect(SOCKET, &d, e);
    if (r == 0)
        r = call(d, "SetUnitProperties", "sba(sv)", &body, NULL, NULL, e);
    return r < 0 ? err_wrap(e, r, "tell systemd the limits of %s", unit) : 0;
}
