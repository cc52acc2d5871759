/*
 * linux.resources -> what to write where, for both versions of cgroups.  Pure: no file is touched, so
 * the conversions are tested as tables.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "shim/cgroup/internal.h"

#define R     struct spec_resources
#define FIELD "linux.resources."

struct cg_step *cg_plan_add(struct cg_plan *p, unsigned ctrl, const char *file, const char *field)
{
    p->step = xgrow(p->step, p->n, &p->cap, sizeof *p->step);
    struct cg_step *s = &p->step[p->n++];
    *s = (struct cg_step){.ctrl = ctrl};
    (void)snprintf(s->file, sizeof s->file, "%s", file);
    (void)snprintf(s->field, sizeof s->field, FIELD "%s", field);
    return s;
}

void cg_plan_done(struct cg_plan *p)
{
    free(p->step);
    *p = (struct cg_plan){0};
}

/*
 * The curve that current runtimes use: it meets 2 -> 1, 1024 -> 100 (both defaults) and 262144 -> 10000.
 * The older straight line gave a container of default weight 39.
 */
uint64_t cg_weight_from_shares(uint64_t shares)
{
    if (shares <= 2)
        return 1;
    if (shares >= 262144)
        return 10000;
    double l = log2((double)shares);
    return (uint64_t)ceil(pow(10, (l * l + 125 * l) / 612 - 7.0 / 34));
}

uint64_t cg_io_weight(uint64_t w)
{
    return w < 10 ? 1 : 1 + (MIN(w, UINT64_C(1000)) - 10) * 9999 / 990;
}

/* ---- rows: one number, one file ------------------------------------------------------------------- */

struct row {
    const char *field;
    size_t offset;
    unsigned ctrl;
    const char *file, *alt_file;
    bool zero_is_unset; /* engines leave 0 in fields they did not mean to set */
    bool max_word;      /* -1 is written as "max" */
    int64_t least;      /* the kernel refuses less (but -1) */
    unsigned flags;
};
#define AT(m) offsetof(R, m)

static const struct row rows_v1[] = {
    {"memory.limit", AT(memory_limit), CG_MEMORY, "memory.limit_in_bytes", .zero_is_unset = true,
     .flags = CG_RETRY},
    {"memory.swap", AT(memory_swap), CG_MEMORY, "memory.memsw.limit_in_bytes", .zero_is_unset = true,
     .flags = CG_RETRY},
    {"memory.reservation", AT(memory_reservation), CG_MEMORY, "memory.soft_limit_in_bytes",
     .zero_is_unset = true},
    {"memory.swappiness", AT(memory_swappiness), CG_MEMORY, "memory.swappiness", .flags = 0},
    {"memory.disableOOMKiller", AT(memory_disable_oom_killer), CG_MEMORY, "memory.oom_control", .flags = 0},
    {"cpu.shares", AT(cpu_shares), CG_CPU, "cpu.shares", .zero_is_unset = true, .flags = CG_RETRY},
    {"cpu.period", AT(cpu_period), CG_CPU, "cpu.cfs_period_us", .zero_is_unset = true, .least = 1000,
     .flags = CG_RETRY},
    {"cpu.quota", AT(cpu_quota), CG_CPU, "cpu.cfs_quota_us", .zero_is_unset = true, .least = 1000,
     .flags = CG_RETRY},
    {"cpu.burst", AT(cpu_burst), CG_CPU, "cpu.cfs_burst_us", .flags = CG_RETRY},
    {"cpu.realtimePeriod", AT(cpu_rt_period), CG_CPU, "cpu.rt_period_us", .zero_is_unset = true,
     .flags = CG_RETRY},
    {"cpu.realtimeRuntime", AT(cpu_rt_runtime), CG_CPU, "cpu.rt_runtime_us", .zero_is_unset = true,
     .flags = CG_RETRY},
    {"cpu.idle", AT(cpu_idle), CG_CPU, "cpu.idle", .flags = 0},
    {"pids.limit", AT(pids_limit), CG_PIDS, "pids.max", .zero_is_unset = true, .max_word = true},
    {"blockIO.weight", AT(blkio_weight), CG_IO, "blkio.weight", "blkio.bfq.weight", .zero_is_unset = true},
    {"blockIO.leafWeight", AT(blkio_leaf_weight), CG_IO, "blkio.leaf_weight", .zero_is_unset = true},
    {"network.classID", AT(net_class_id), CG_NET_CLS, "net_cls.classid", .zero_is_unset = true},
};

static const struct row rows_v2[] = {
    {"memory.limit", AT(memory_limit), CG_MEMORY, "memory.max", .zero_is_unset = true, .max_word = true},
    {"memory.reservation", AT(memory_reservation), CG_MEMORY, "memory.low", .zero_is_unset = true,
     .max_word = true},
    {"cpu.idle", AT(cpu_idle), CG_CPU, "cpu.idle", .flags = 0},
    {"pids.limit", AT(pids_limit), CG_PIDS, "pids.max", .zero_is_unset = true, .max_word = true},
};

/* What version 2 has no file for; a limit that would silently not hold is refused. */
static const struct row rows_v1_only[] = {
    {"memory.disableOOMKiller", AT(memory_disable_oom_killer), .zero_is_unset = true},
    {"cpu.realtimePeriod", AT(cpu_rt_period), .zero_is_unset = true},
    {"cpu.realtimeRuntime", AT(cpu_rt_runtime), .zero_is_unset = true},
    {"blockIO.leafWeight", AT(blkio_leaf_weight), .zero_is_unset = true},
    {"network.classID", AT(net_class_id), .zero_is_unset = true},
};

static const struct spec_num *num_of(const R *res, const struct row *row)
{
    return (const struct spec_num *)(const void *)((const char *)res + row->offset);
}

static bool is_set(const R *res, const struct row *row)
{
    const struct spec_num *n = num_of(res, row);
    return n->has && (n->value != 0 || !row->zero_is_unset);
}

static int add_row(struct cg_plan *p, const R *res, const struct row *row, struct err *e)
{
    if (!is_set(res, row))
        return 0;
    int64_t value = num_of(res, row)->value;
    /* Every negative quota means "no limit". */
    if (value < 0)
        value = -1;
    if (row->least && value >= 0 && value < row->least)
        return err_set(e, -EINVAL,
                       FIELD "%s must be at least %" PRId64 ", the kernel's minimum, not %" PRId64,
                       row->field, row->least, value);

    struct cg_step *s = cg_plan_add(p, row->ctrl, row->file, row->field);
    s->flags = row->flags;
    s->alt_file = row->alt_file;
    if (value == -1 && row->max_word)
        (void)snprintf(s->value, sizeof s->value, "max");
    else
        (void)snprintf(s->value, sizeof s->value, "%" PRId64, value);
    (void)snprintf(s->alt_value, sizeof s->alt_value, "%" PRId64, value);
    return 0;
}

static int add_rows(struct cg_plan *p, const R *res, const struct row *row, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        int r = add_row(p, res, &row[i], e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- lists, the same on both versions but for the names ---------------------------------------------- */

static void add_cpuset(struct cg_plan *p, const R *res)
{
    if (res->cpuset_cpus)
        cg_plan_add(p, CG_CPUSET, "cpuset.cpus", "cpu.cpus")->text = res->cpuset_cpus;
    if (res->cpuset_mems)
        cg_plan_add(p, CG_CPUSET, "cpuset.mems", "cpu.mems")->text = res->cpuset_mems;
}

static void add_hugepages(struct cg_plan *p, const R *res, const char *what)
{
    for (size_t i = 0; i < res->n_hugepage; i++) {
        const struct spec_pair *h = &res->hugepage[i];
        char file[64];
        (void)snprintf(file, sizeof file, "hugetlb.%.16s.%s", h->key, what);
        (void)snprintf(cg_plan_add(p, CG_HUGETLB, file, "hugepageLimits")->value, 32, "%.31s", h->value);

        /* Reservations count apart since 5.7; without their limit a process could reserve all pages. */
        (void)snprintf(file, sizeof file, "hugetlb.%.16s.rsvd.%s", h->key, what);
        struct cg_step *s = cg_plan_add(p, CG_HUGETLB, file, "hugepageLimits");
        s->flags = CG_OPTIONAL;
        (void)snprintf(s->value, sizeof s->value, "%.31s", h->value);
    }
}

static void rdma_number(char *out, size_t size, const struct spec_num *n)
{
    if (n->has)
        (void)snprintf(out, size, "%" PRId64, n->value);
    else
        (void)snprintf(out, size, "max");
}

static void add_rdma(struct cg_plan *p, const R *res)
{
    for (size_t i = 0; i < res->n_rdma; i++) {
        char handles[24], objects[24];
        rdma_number(handles, sizeof handles, &res->rdma[i].hca_handles);
        rdma_number(objects, sizeof objects, &res->rdma[i].hca_objects);
        struct cg_step *s = cg_plan_add(p, CG_RDMA, "rdma.max", "rdma");
        s->flags = CG_PER_DEVICE;
        (void)snprintf(s->value, sizeof s->value, "%.63s hca_handle=%s hca_object=%s", res->rdma[i].device,
                       handles, objects);
    }
}

static const struct {
    const char *field, *v1, *v2;
} throttle[] = {
    {"blockIO.throttleReadBpsDevice", "blkio.throttle.read_bps_device", "rbps"},
    {"blockIO.throttleWriteBpsDevice", "blkio.throttle.write_bps_device", "wbps"},
    {"blockIO.throttleReadIOPSDevice", "blkio.throttle.read_iops_device", "riops"},
    {"blockIO.throttleWriteIOPSDevice", "blkio.throttle.write_iops_device", "wiops"},
};
_Static_assert(ARRAY_LEN(throttle) == ARRAY_LEN(((R *)NULL)->throttle), "a kind of throttling has no name");

static void add_throttle(struct cg_plan *p, const R *res, bool v2)
{
    for (size_t kind = 0; kind < ARRAY_LEN(throttle); kind++) {
        for (size_t i = 0; i < res->n_throttle[kind]; i++) {
            const struct spec_throttle *t = &res->throttle[kind][i];
            struct cg_step *s =
                cg_plan_add(p, CG_IO, v2 ? "io.max" : throttle[kind].v1, throttle[kind].field);
            s->flags = CG_PER_DEVICE;
            int n = snprintf(s->value, sizeof s->value, "%" PRId64 ":%" PRId64 " ", t->major, t->minor);
            if (v2 && t->rate == 0) /* 0 takes a limit away; version 2 spells it */
                (void)snprintf(s->value + n, sizeof s->value - (size_t)n, "%s=max", throttle[kind].v2);
            else
                (void)snprintf(s->value + n, sizeof s->value - (size_t)n, "%s%s%" PRIu64,
                               v2 ? throttle[kind].v2 : "", v2 ? "=" : "", t->rate);
        }
    }
}

static void add_device_weights(struct cg_plan *p, const R *res, bool v2)
{
    for (size_t i = 0; i < res->n_weight_devices; i++) {
        const struct spec_weight_device *d = &res->weight_devices[i];
        if (d->weight.has) {
            struct cg_step *s =
                cg_plan_add(p, CG_IO, v2 ? "io.bfq.weight" : "blkio.weight_device", "blockIO.weightDevice");
            s->flags = CG_PER_DEVICE;
            s->alt_file = v2 ? "io.weight" : "blkio.bfq.weight_device";
            (void)snprintf(s->value, sizeof s->value, "%" PRId64 ":%" PRId64 " %" PRId64, d->major, d->minor,
                           d->weight.value);
            (void)snprintf(s->alt_value, sizeof s->alt_value, "%" PRId64 ":%" PRId64 " %" PRIu64, d->major,
                           d->minor,
                           v2 ? cg_io_weight((uint64_t)d->weight.value) : (uint64_t)d->weight.value);
        }
        if (d->leaf_weight.has && !v2) {
            struct cg_step *s = cg_plan_add(p, CG_IO, "blkio.leaf_weight_device", "blockIO.weightDevice");
            s->flags = CG_PER_DEVICE;
            (void)snprintf(s->value, sizeof s->value, "%" PRId64 ":%" PRId64 " %" PRId64, d->major, d->minor,
                           d->leaf_weight.value);
        }
    }
}

/* ---- version 1 --------------------------------------------------------------------------------------- */

/* Limits that the kernel would take one by one but that contradict each other. */
static int check_memory(const R *res, struct err *e)
{
    const struct spec_num *limit = &res->memory_limit, *swap = &res->memory_swap;

    if (swap->has && swap->value > 0 && limit->has && limit->value > 0 && swap->value < limit->value)
        return err_set(e, -EINVAL,
                       FIELD "memory.swap (memory and swap together, %" PRId64
                             ") must not be less than memory.limit (%" PRId64 ")",
                       swap->value, limit->value);
    return 0;
}

int cg_plan_v1(const R *res, struct cg_plan *ret, struct err *e)
{
    if (res->n_unified > 0)
        return err_set(e, -EINVAL, FIELD "unified.%.64s needs a host with cgroup v2; this one has v1",
                       res->unified[0].key);
    int r = check_memory(res, e);
    if (r < 0)
        return r;

    add_cpuset(ret, res);
    r = add_rows(ret, res, rows_v1, ARRAY_LEN(rows_v1), e);
    if (r < 0)
        return r;
    /* Lifting the memory limit lifts the one for memory and swap, or nothing would have changed. */
    if (res->memory_limit.has && res->memory_limit.value == -1 &&
        !(res->memory_swap.has && res->memory_swap.value)) {
        struct cg_step *s = cg_plan_add(ret, CG_MEMORY, "memory.memsw.limit_in_bytes", "memory.limit");
        s->flags = CG_RETRY | CG_OPTIONAL;
        (void)snprintf(s->value, sizeof s->value, "-1");
    }
    add_device_weights(ret, res, false);
    add_throttle(ret, res, false);
    add_hugepages(ret, res, "limit_in_bytes");
    add_rdma(ret, res);
    for (size_t i = 0; i < res->n_net_priorities; i++)
        (void)snprintf(cg_plan_add(ret, CG_NET_PRIO, "net_prio.ifpriomap", "network.priorities")->value, 64,
                       "%.20s %.20s", res->net_priorities[i].key, res->net_priorities[i].value);
    return 0;
}

/* ---- version 2 --------------------------------------------------------------------------------------- */

/* memory.swap counts memory and swap together; memory.swap.max counts swap alone. */
static int add_swap_v2(struct cg_plan *p, const R *res, const struct cg_current *now, struct err *e)
{
    int64_t limit =
        res->memory_limit.has && res->memory_limit.value ? res->memory_limit.value : now->memory_max;
    int64_t swap = res->memory_swap.has ? res->memory_swap.value : 0;
    bool lifted = res->memory_limit.has && res->memory_limit.value == -1;

    if (swap == 0 && lifted)
        swap = -1;
    if (swap == 0)
        return 0;
    struct cg_step *s = cg_plan_add(p, CG_MEMORY, "memory.swap.max", "memory.swap");
    s->flags = lifted && !(res->memory_swap.has && res->memory_swap.value) ? CG_OPTIONAL : 0;
    if (swap == -1) {
        (void)snprintf(s->value, sizeof s->value, "max");
        s->flags |= CG_OPTIONAL; /* no swap accounting: there is no limit to lift */
        return 0;
    }
    if (limit <= 0)
        return err_set(e, -EINVAL,
                       FIELD "memory.swap needs memory.limit: it counts memory and swap together");
    if (swap < limit)
        return err_set(e, -EINVAL,
                       FIELD "memory.swap (memory and swap together, %" PRId64
                             ") must not be less than memory.limit (%" PRId64 ")",
                       swap, limit);
    (void)snprintf(s->value, sizeof s->value, "%" PRId64, swap - limit);
    return 0;
}

static int add_cpu_v2(struct cg_plan *p, const R *res, const struct cg_current *now, struct err *e)
{
    const struct spec_num *quota = &res->cpu_quota, *period = &res->cpu_period;

    if (res->cpu_shares.has && res->cpu_shares.value > 0) {
        struct cg_step *s = cg_plan_add(p, CG_CPU, "cpu.weight", "cpu.shares");
        s->flags = CG_RETRY; /* EINVAL while cpu.idle is 1 */
        (void)snprintf(s->value, sizeof s->value, "%" PRIu64,
                       cg_weight_from_shares((uint64_t)res->cpu_shares.value));
    }
    bool has_quota = quota->has && quota->value != 0, has_period = period->has && period->value > 0;
    if (has_quota && quota->value > 0 && quota->value < 1000)
        return err_set(e, -EINVAL,
                       FIELD "cpu.quota must be at least 1000, the kernel's minimum, not %" PRId64,
                       quota->value);
    if (has_period && period->value < 1000)
        return err_set(e, -EINVAL,
                       FIELD "cpu.period must be at least 1000, the kernel's minimum, not %" PRId64,
                       period->value);
    if (has_quota || has_period) {
        char q[24], t[24];
        (void)snprintf(q, sizeof q, "%s", now->cpu_quota);
        (void)snprintf(t, sizeof t, "%s", now->cpu_period);
        if (has_quota)
            (void)snprintf(q, sizeof q, quota->value > 0 ? "%" PRId64 : "max", quota->value);
        if (has_period)
            (void)snprintf(t, sizeof t, "%" PRId64, period->value);
        struct cg_step *s = cg_plan_add(p, CG_CPU, "cpu.max", has_quota ? "cpu.quota" : "cpu.period");
        s->flags = CG_RETRY;
        (void)snprintf(s->value, sizeof s->value, "%s %s", q, t);
    }
    if (res->cpu_burst.has) {
        struct cg_step *s = cg_plan_add(p, CG_CPU, "cpu.max.burst", "cpu.burst");
        s->flags = CG_RETRY;
        (void)snprintf(s->value, sizeof s->value, "%" PRId64, res->cpu_burst.value);
    }
    return 0;
}

static void add_io_v2(struct cg_plan *p, const R *res)
{
    if (res->blkio_weight.has && res->blkio_weight.value > 0) {
        struct cg_step *s = cg_plan_add(p, CG_IO, "io.bfq.weight", "blockIO.weight");
        (void)snprintf(s->value, sizeof s->value, "%" PRId64, res->blkio_weight.value);
        s->alt_file = "io.weight";
        (void)snprintf(s->alt_value, sizeof s->alt_value, "%" PRIu64,
                       cg_io_weight((uint64_t)res->blkio_weight.value));
    }
    add_device_weights(p, res, true);
    add_throttle(p, res, true);
}

static void add_unified(struct cg_plan *p, const R *res)
{
    for (size_t i = 0; i < res->n_unified; i++) {
        const struct spec_pair *u = &res->unified[i];
        char controller[32], field[96];
        (void)snprintf(controller, sizeof controller, "%.*s",
                       (int)MIN(strcspn(u->key, "."), sizeof controller - 1), u->key);
        (void)snprintf(field, sizeof field, "unified.%.70s", u->key);
        unsigned ctrl = cg_ctrl_bit(controller);
        struct cg_step *s = cg_plan_add(p, ctrl ? ctrl : CG_CORE, u->key, field);
        s->text = u->value;
        s->flags = CG_RETRY;
    }
}

int cg_plan_v2(const R *res, const struct cg_current *now, struct cg_plan *ret, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(rows_v1_only); i++)
        if (is_set(res, &rows_v1_only[i]))
            return err_set(e, -EINVAL, FIELD "%s needs a host with cgroup v1; this one has v2",
                           rows_v1_only[i].field);
    if (res->n_net_priorities > 0)
        return err_set(e, -EINVAL, FIELD "network.priorities needs a host with cgroup v1; this one has v2");
    for (size_t i = 0; i < res->n_unified; i++)
        if (strlen(res->unified[i].key) >= sizeof ret->step->file)
            return err_set(e, -EINVAL, FIELD "unified.%.64s is not a file of a control group",
                           res->unified[i].key);

    add_cpuset(ret, res);
    /* Raising memory.max before memory.swap.max or after it makes no difference: they are independent here.
     */
    int r = add_swap_v2(ret, res, now, e);
    if (r == 0)
        r = add_rows(ret, res, rows_v2, ARRAY_LEN(rows_v2), e);
    if (r == 0)
        r = add_cpu_v2(ret, res, now, e);
    if (r < 0)
        return r;
    add_io_v2(ret, res);
    add_hugepages(ret, res, "max");
    add_rdma(ret, res);
    add_unified(ret, res);
    return 0;
}
