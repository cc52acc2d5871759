/*
 * Table -> cBPF.  A binary search on the number, with the rows' decision lists as its leaves.
 *
 * Rows with one verdict touch nothing but the number, so the kernel (>= 5.11) finds out at install
 * time that they are constant and never runs the program for them.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>

#include "shim/filter/filter.h"

#define X32_FIRST      0x40000000U /* __X32_SYSCALL_BIT */
#define X32_LAST       0x7fffffffU
#define CASE_JUMPS_MAX (RULE_TESTS_MAX * 2)

struct leaf { /* a run of numbers with the same fate */
    uint32_t first;
    const struct rule *rule; /* with cases; NULL: `action` for all of them */
    uint32_t action;
};

struct writer {
    struct sock_filter *out;
    size_t n, max;
    const struct rule *rows;
    size_t n_rows;
    bool strict; /* what is not allowed kills: a program that knows its calls */
    bool report_denials;
};

static size_t put(struct writer *w, struct sock_filter insn)
{
    if (w->n < w->max)
        w->out[w->n] = insn;
    return w->n++; /* keeps counting: the caller compares with max once, at the end */
}

static void put_load(struct writer *w, size_t offset)
{
    put(w, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void put_return(struct writer *w, uint32_t action)
{
    put(w, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static void put_jump(struct writer *w, unsigned op, uint32_t k, unsigned yes, unsigned no)
{
    put(w, (struct sock_filter)BPF_JUMP((unsigned short)(BPF_JMP | op | BPF_K), k, (unsigned char)yes,
                                        (unsigned char)no));
}

/* An unconditional jump, whose distance land() fills in: it has 32 bits, conditional ones have 8. */
static size_t put_far_jump(struct writer *w)
{
    return put(w, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 0));
}

static void land(struct writer *w, size_t jump)
{
    if (jump < w->max)
        w->out[jump].k = (uint32_t)(w->n - jump - 1);
}

static uint32_t action_of(const struct writer *w, enum rule_how how, int error, bool report)
{
    switch (how) {
    case RULE_NATIVE:
        return SECCOMP_RET_ALLOW;
    case RULE_BROKER:
    case RULE_EMULATE:
    case RULE_AUDIT:
        return SECCOMP_RET_USER_NOTIF;
    default:
        if (w->strict && error == 0)
            return SECCOMP_RET_KILL_PROCESS;
        if (report || (w->report_denials && error != 0))
            return SECCOMP_RET_USER_NOTIF;
        return SECCOMP_RET_ERRNO | ((uint32_t)error & SECCOMP_RET_DATA);
    }
}

static size_t arg_offset(const struct rule_test *t, bool high)
{
    return offsetof(struct seccomp_data, args) + t->arg * sizeof(uint64_t) + (high ? sizeof(uint32_t) : 0);
}

/* The upper half first, so that the low half is what the accumulator holds afterwards. */
static void put_wide_test(struct writer *w, const struct rule_test *t, size_t *fail, size_t *n_fail)
{
    put_load(w, arg_offset(t, true));
    if (t->op == TEST_BITS)
        put_jump(w, BPF_JSET, ~(uint32_t)(t->value >> 32), 0, 1);
    else
        put_jump(w, BPF_JEQ, (uint32_t)(t->value >> 32), 1, 0);
    fail[(*n_fail)++] = put_far_jump(w);
}

static void put_list(struct writer *w, const struct rule_test *t)
{
    if (t->mask != ~0U)
        put(w, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, t->mask));
    for (size_t i = 0; i < t->n_list; i++) /* a hit jumps over the rest and over the failure jump */
        put_jump(w, BPF_JEQ, t->list[i], (unsigned)(t->n_list - i), 0);
}

static void put_test(struct writer *w, const struct rule_test *t, size_t *fail, size_t *n_fail)
{
    if (t->op == TEST_NONE)
        return;
    if (t->wide)
        put_wide_test(w, t, fail, n_fail);
    put_load(w, arg_offset(t, false));
    if (t->op == TEST_BITS)
        put_jump(w, BPF_JSET, ~(uint32_t)t->value, 0, 1);
    else if (t->op == TEST_IS)
        put_jump(w, BPF_JEQ, (uint32_t)t->value, 1, 0);
    else if (t->op == TEST_GIVEN)
        put_jump(w, BPF_JEQ, 0, 0, 1);
    else if (t->op == TEST_HAS)
        put_jump(w, BPF_JSET, (uint32_t)t->value, 1, 0);
    else
        put_list(w, t);
    fail[(*n_fail)++] = put_far_jump(w);
}

static void put_cases(struct writer *w, const struct rule *r)
{
    bool report = r->flags & RULE_REPORT;
    for (size_t i = 0; i < r->n_cases; i++) {
        const struct rule_case *c = &r->cases[i];
        size_t fail[CASE_JUMPS_MAX];
        size_t n_fail = 0;
        for (size_t j = 0; j < RULE_TESTS_MAX; j++)
            put_test(w, &c->tests[j], fail, &n_fail);
        put_return(w, action_of(w, c->how, c->error, report));
        for (size_t j = 0; j < n_fail; j++)
            land(w, fail[j]);
    }
    put_return(w, action_of(w, RULE_DENY, r->error, report));
}

/* leaves[lo..hi) with the number in the accumulator */
static void put_search(struct writer *w, const struct leaf *leaves, size_t lo, size_t hi)
{
    if (hi - lo == 1) {
        if (leaves[lo].rule)
            put_cases(w, leaves[lo].rule);
        else
            put_return(w, leaves[lo].action);
        return;
    }
    size_t mid = lo + (hi - lo) / 2;
    put_jump(w, BPF_JGE, leaves[mid].first, 0, 1);
    size_t upper = put_far_jump(w);
    put_search(w, leaves, lo, mid);
    land(w, upper);
    put_search(w, leaves, mid, hi);
}

#define LEAVES_MAX 1024
static size_t make_leaves(const struct writer *w, struct leaf *leaves)
{
    size_t n = 0;
    for (size_t nr = 0; nr <= w->n_rows; nr++) { /* one past the end: every number that is not known */
        const struct rule *r = nr < w->n_rows && w->rows[nr].how != RULE_NONE ? &w->rows[nr] : NULL;
        struct leaf next = {.first = (uint32_t)nr};
        if (r && r->n_cases > 0)
            next.rule = r;
        else if (r)
            next.action = action_of(w, r->how, r->error, r->flags & RULE_REPORT);
        else
            next.action = action_of(w, RULE_DENY, w->strict ? 0 : ENOSYS, false);
        if (n > 0 && !next.rule && !leaves[n - 1].rule && leaves[n - 1].action == next.action)
            continue;
        if (n < LEAVES_MAX)
            leaves[n++] = next;
    }
    return n;
}

static int write_program(struct writer *w, size_t *ret_n, struct err *e)
{
    struct leaf leaves[LEAVES_MAX];
    size_t n_leaves = make_leaves(w, leaves);

    /* int 0x80 and x32 reach the same kernel under other numbers: nothing honest uses them here.  -1 and the
     * like are no ABI, only nonsense, and fall through to "unknown". */
    put_load(w, offsetof(struct seccomp_data, arch));
    put_jump(w, BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0);
    put_return(w, SECCOMP_RET_KILL_PROCESS);
    put_load(w, offsetof(struct seccomp_data, nr));
    put_jump(w, BPF_JGE, X32_FIRST, 0, 2);
    put_jump(w, BPF_JGT, X32_LAST, 1, 0);
    put_return(w, SECCOMP_RET_KILL_PROCESS);
    put_search(w, leaves, 0, n_leaves);

    if (w->n > w->max)
        return err_set(e, -E2BIG, "the system call filter needs %zu instructions, more than %zu", w->n,
                       w->max);
    *ret_n = w->n;
    return 0;
}

int filter_build(const struct filter_options *o, struct sock_filter *out, size_t max, size_t *ret_n,
                 struct err *e)
{
    struct writer w = {
        .out = out,
        .max = MIN(max, (size_t)FILTER_MAX),
        .rows = rule_for(0),
        .n_rows = (size_t)rule_max() + 1,
        .report_denials = o && o->report_denials,
    };
    return write_program(&w, ret_n, e);
}

int filter_build_strict(const struct rule *rows, size_t n_rows, struct sock_filter *out, size_t max,
                        size_t *ret_n, struct err *e)
{
    struct writer w = {
        .out = out, .max = MIN(max, (size_t)FILTER_MAX), .rows = rows, .n_rows = n_rows, .strict = true};
    return write_program(&w, ret_n, e);
}
