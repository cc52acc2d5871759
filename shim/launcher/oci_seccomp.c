#include "shim/launcher/oci_seccomp.h"

#include <errno.h>
#include <jansson.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/macro.h"
#include "base/scoped.h"
#include "shim/filter/filter.h"

#define CODE_MAX  4096 /* BPF_MAXINSNS */
#define NR_MAX    1024
#define ARGS      6
#define X32_FIRST 0x40000000U
#if defined __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#endif

SCOPED_DEFINE(json_t, json_decref)

enum compare { CMP_NE, CMP_LT, CMP_LE, CMP_EQ, CMP_GE, CMP_GT, CMP_MASKED_EQ };

struct condition {
    unsigned arg;
    enum compare op;
    uint64_t value, value2;
};
struct clause { /* conditions that must all hold */
    struct clause *next;
    uint32_t action;
    size_t n;
    struct condition c[ARGS];
};
struct verdict {
    bool set; /* an entry without conditions */
    uint32_t action;
    struct clause *clauses;
};
struct profile {
    uint32_t fallback;
    struct verdict nr[NR_MAX];
    long highest; /* number that the profile names */
    struct {
        const char *name;
        long nr;
    } names[NR_MAX];
    size_t n_names;
};

static void profile_free(struct profile *p)
{
    for (size_t i = 0; p && i < NR_MAX; i++)
        for (struct clause *c = p->nr[i].clauses; c;) {
            struct clause *next = c->next;
            free(c);
            c = next;
        }
    free(p);
}
SCOPED_DEFINE(struct profile, profile_free)

/* ---- names -------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

static void index_names(struct profile *p)
{
    for (long nr = 0; nr <= rule_max() && nr < NR_MAX; nr++) {
        const struct rule *rule = rule_for(nr);
        if (!rule)
            continue;
        p->names[p->n_names].name = rule->name;
        p->names[p->n_names++].nr = nr;
    }
    qsort(p->names, p->n_names, sizeof p->names[0], compare_names);
}

static long find_nr(const struct profile *p, const char *name)
{
    size_t lo = 0, hi = p->n_names;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(name, p->names[mid].name);
        if (c == 0)
            return p->names[mid].nr;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return -1;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static int read_action(const json_t *v, const json_t *errno_ret, const char *field, uint32_t *ret,
                       struct err *e)
{
    static const struct {
        const char *name;
        uint32_t action;
        bool has_data;
    } actions[] = {
        {"SCMP_ACT_ALLOW", SECCOMP_RET_ALLOW, false},
        {"SCMP_ACT_ERRNO", SECCOMP_RET_ERRNO, true},
        {"SCMP_ACT_KILL", SECCOMP_RET_KILL_THREAD, false},
        {"SCMP_ACT_KILL_THREAD", SECCOMP_RET_KILL_THREAD, false},
        {"SCMP_ACT_KILL_PROCESS", SECCOMP_RET_KILL_PROCESS, false},
        {"SCMP_ACT_TRAP", SECCOMP_RET_TRAP, false},
        {"SCMP_ACT_LOG", SECCOMP_RET_LOG, false},
        {"SCMP_ACT_TRACE", SECCOMP_RET_TRACE, true},
    };
    const char *name = json_string_value(v);

    if (!name)
        return err_set(e, -EINVAL, "linux.seccomp.%s is missing", field);
    if (strcmp(name, "SCMP_ACT_NOTIFY") == 0)
        return err_set(e, -EINVAL,
                       "linux.seccomp.%s: SCMP_ACT_NOTIFY conflicts with glovebox's own listener.", field);
    for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
        if (strcmp(actions[i].name, name) != 0)
            continue;
        json_int_t data = json_is_integer(errno_ret) ? json_integer_value(errno_ret) : EPERM;
        if (data < 0 || data > 4095)
            return err_set(e, -EINVAL, "linux.seccomp.%s: errnoRet %lld is not between 0 and 4095", field,
                           (long long)data);
        *ret = actions[i].action | (actions[i].has_data ? (uint32_t)data : 0);
        return 0;
    }
    return err_set(e, -EINVAL, "linux.seccomp.%s: unknown action \"%.40s\"", field, name);
}

static int read_condition(const json_t *v, struct condition *ret, struct err *e)
{
    static const char *const ops[] = {"SCMP_CMP_NE", "SCMP_CMP_LT", "SCMP_CMP_LE",       "SCMP_CMP_EQ",
                                      "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_MASKED_EQ"};
    const char *op = json_string_value(json_object_get(v, "op"));
    json_int_t index = json_integer_value(json_object_get(v, "index"));

    if (index < 0 || index >= ARGS)
        return err_set(e, -EINVAL, "linux.seccomp.syscalls: argument index %lld is not between 0 and 5",
                       (long long)index);
    ret->arg = (unsigned)index;
    ret->value = (uint64_t)json_integer_value(json_object_get(v, "value"));
    ret->value2 = (uint64_t)json_integer_value(json_object_get(v, "valueTwo"));
    for (size_t i = 0; op && i < ARRAY_LEN(ops); i++)
        if (strcmp(ops[i], op) == 0) {
            ret->op = (enum compare)i;
            return 0;
        }
    return err_set(e, -EINVAL, "linux.seccomp.syscalls: unknown operator \"%.40s\"", op ? op : "");
}

static void add_clause(struct verdict *v, uint32_t action, const struct condition *c, size_t n)
{
    struct clause *clause = xcalloc(1, sizeof *clause);
    struct clause **tail = &v->clauses;

    clause->action = action;
    clause->n = n;
    memcpy(clause->c, c, n * sizeof *c);
    while (*tail)
        tail = &(*tail)->next;
    *tail = clause;
}

static int read_args(const json_t *entry, struct condition c[], size_t max, size_t *ret_n, bool *ret_any,
                     struct err *e)
{
    const json_t *args = json_object_get(entry, "args");
    size_t n = json_array_size(args);
    unsigned seen = 0;

    if (n > max)
        return err_set(e, -E2BIG, "linux.seccomp.syscalls: more than %zu conditions in one entry", max);
    *ret_any = false;
    for (size_t i = 0; i < n; i++) {
        int r = read_condition(json_array_get(args, i), &c[i], e);
        if (r < 0)
            return r;
        *ret_any |= (seen >> c[i].arg) & 1; /* an argument twice: runc takes the conditions as alternatives */
        seen |= 1u << c[i].arg;
    }
    *ret_n = n;
    return 0;
}

static int read_entry(struct profile *p, const json_t *entry, struct err *e)
{
    struct condition c[32];
    size_t n = 0;
    bool any = false;
    uint32_t action = 0;
    const json_t *names = json_object_get(entry, "names");

    int r = read_action(json_object_get(entry, "action"), json_object_get(entry, "errnoRet"),
                        "syscalls.action", &action, e);
    if (r == 0)
        r = read_args(entry, c, ARRAY_LEN(c), &n, &any, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        long nr = name ? find_nr(p, name) : -1;
        if (nr < 0)
            continue;
        p->highest = MAX(p->highest, nr);
        struct verdict *v = &p->nr[nr];
        if (n == 0) {
            v->set = true;
            v->action = action;
        } else if (any) {
            for (size_t k = 0; k < n; k++)
                add_clause(v, action, &c[k], 1);
        } else {
            add_clause(v, action, c, n);
        }
    }
    return 0;
}

static int read_profile(struct profile *p, const json_t *root, struct err *e)
{
    const json_t *entries = json_object_get(root, "syscalls");

    if (json_object_get(root, "listenerPath"))
        return err_set(e, -EINVAL, "seccomp listenerPath conflicts with glovebox's own listener.");
    int r = read_action(json_object_get(root, "defaultAction"), json_object_get(root, "defaultErrnoRet"),
                        "defaultAction", &p->fallback, e);
    for (size_t i = 0; r == 0 && i < json_array_size(entries); i++)
        r = read_entry(p, json_array_get(entries, i), e);
    return r;
}

/* ---- writing ------------------------------------------------------------------------------------ */

struct writer {
    struct sock_filter *code;
    size_t n; /* may pass CODE_MAX: checked at the end */
};

static size_t emit(struct writer *w, unsigned code, uint32_t k, unsigned jt, unsigned jf)
{
    if (w->n < CODE_MAX)
        w->code[w->n] = (struct sock_filter){(uint16_t)code, (uint8_t)jt, (uint8_t)jf, k};
    return w->n++;
}

static void land(struct writer *w, size_t jump)
{
    if (jump < CODE_MAX)
        w->code[jump].k = (uint32_t)(w->n - jump - 1);
}

static void emit_return(struct writer *w, uint32_t action)
{
    emit(w, BPF_RET | BPF_K, action, 0, 0);
}

static void emit_half(struct writer *w, unsigned arg, bool high)
{
    emit(w, BPF_LD | BPF_W | BPF_ABS,
         (uint32_t)(offsetof(struct seccomp_data, args) + arg * 8 + (high ? 4 : 0)), 0, 0);
}

/*
 * One condition.  Falls through when it holds; otherwise it reaches the far jump whose place is
 * returned.  Layout: test of the upper half, test of the lower half, far jump.
 */
static size_t emit_condition(struct writer *w, const struct condition *c)
{
    uint64_t mask = c->op == CMP_MASKED_EQ ? c->value : UINT64_MAX;
    uint64_t value = c->op == CMP_MASKED_EQ ? c->value2 & mask : c->value;
    uint32_t hi = (uint32_t)(value >> 32), lo = (uint32_t)value;
    const unsigned jeq = BPF_JMP | BPF_JEQ | BPF_K, jgt = BPF_JMP | BPF_JGT | BPF_K,
                   jge = BPF_JMP | BPF_JGE | BPF_K;
    const unsigned and = BPF_ALU | BPF_AND | BPF_K, jump = BPF_JMP | BPF_JA;

    switch (c->op) {
    case CMP_MASKED_EQ: /* hi, and, jeq, lo, and, jeq, [fail] */
        emit_half(w, c->arg, true);
        emit(w, and, (uint32_t)(mask >> 32), 0, 0);
        emit(w, jeq, hi, 0, 3);
        emit_half(w, c->arg, false);
        emit(w, and, (uint32_t)mask, 0, 0);
        emit(w, jeq, lo, 1, 0);
        break;
    case CMP_EQ:
        emit_half(w, c->arg, true);
        emit(w, jeq, hi, 0, 2);
        emit_half(w, c->arg, false);
        emit(w, jeq, lo, 1, 0);
        break;
    case CMP_NE:
        emit_half(w, c->arg, true);
        emit(w, jeq, hi, 0, 3);
        emit_half(w, c->arg, false);
        emit(w, jeq, lo, 0, 1);
        break;
    case CMP_GT:
    case CMP_GE: /* hi, jgt, jeq, lo, compare, [fail] */
        emit_half(w, c->arg, true);
        emit(w, jgt, hi, 4, 0);
        emit(w, jeq, hi, 0, 2);
        emit_half(w, c->arg, false);
        emit(w, c->op == CMP_GT ? jgt : jge, lo, 1, 0);
        break;
    case CMP_LT:
    case CMP_LE: /* the opposites of GE and GT */
        emit_half(w, c->arg, true);
        emit(w, jgt, hi, 3, 0);
        emit(w, jeq, hi, 0, 3);
        emit_half(w, c->arg, false);
        emit(w, c->op == CMP_LT ? jge : jgt, lo, 0, 1);
        break;
    }
    return emit(w, jump, 0, 0, 0);
}

static void emit_verdict(struct writer *w, const struct verdict *v, uint32_t fallback)
{
    for (const struct clause *c = v->clauses; c; c = c->next) {
        size_t fail[ARGS];
        for (size_t i = 0; i < c->n; i++)
            fail[i] = emit_condition(w, &c->c[i]);
        emit_return(w, c->action);
        for (size_t i = 0; i < c->n; i++)
            land(w, fail[i]);
    }
    emit_return(w, v->set ? v->action : fallback);
}

/* Runs of numbers with one fate, then a binary search over them. */
struct run {
    uint32_t first;
    const struct verdict *v; /* with clauses; NULL: action */
    uint32_t action;
};

static void emit_search(struct writer *w, const struct run *runs, size_t n, uint32_t fallback)
{
    if (n == 1) {
        if (runs[0].v)
            emit_verdict(w, runs[0].v, fallback);
        else
            emit_return(w, runs[0].action);
        return;
    }
    size_t half = n / 2;
    emit(w, BPF_JMP | BPF_JGE | BPF_K, runs[half].first, 0, 1);
    size_t jump = emit(w, BPF_JMP | BPF_JA, 0, 0, 0);
    emit_search(w, runs, half, fallback);
    land(w, jump);
    emit_search(w, runs + half, n - half, fallback);
}

static uint32_t fate_beyond(const struct profile *p)
{
    uint32_t action = p->fallback & SECCOMP_RET_ACTION_FULL;

    return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG ? p->fallback
                                                                    : SECCOMP_RET_ERRNO | ENOSYS;
}

static size_t make_runs(const struct profile *p, struct run *runs)
{
    size_t n = 0;

    for (long nr = 0; nr <= p->highest; nr++) {
        const struct verdict *v = &p->nr[nr];
        struct run next = {
            .first = (uint32_t)nr, .v = v->clauses ? v : NULL, .action = v->set ? v->action : p->fallback};
        if (n == 0 || next.v || runs[n - 1].v || runs[n - 1].action != next.action)
            runs[n++] = next;
    }
    runs[n++] = (struct run){.first = (uint32_t)(p->highest + 1), .action = fate_beyond(p)};
    return n;
}

static void write_profile(const struct profile *p, struct writer *w)
{
    struct run *runs = xcalloc(NR_MAX + 2, sizeof *runs);

    /* Other architectures: the glovebox filter kills them whatever we say. */
    emit(w, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    emit(w, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    emit_return(w, p->fallback);
    emit(w, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    emit(w, BPF_JMP | BPF_JGE | BPF_K, X32_FIRST, 0, 1);
    emit_return(w, p->fallback);
    emit_search(w, runs, make_runs(p, runs), p->fallback);
    free(runs);
}

int oci_seccomp_build(const char *json, struct sock_filter **ret, size_t *ret_n, struct err *e)
{
    json_error_t where;
    scoped(json_decref) json_t *root = json_loads(json, JSON_DISABLE_EOF_CHECK, &where);
    if (!json_is_object(root))
        return err_set(e, -EINVAL, "linux.seccomp: %s", root ? "must be an object" : where.text);

    scoped(profile_free) struct profile *p = xcalloc(1, sizeof *p);
    p->highest = -1;
    index_names(p);
    int r = read_profile(p, root, e);
    if (r < 0)
        return r;
    if (p->fallback == SECCOMP_RET_ALLOW && p->highest < 0) {
        *ret = NULL;
        *ret_n = 0;
        return 0;
    }
    struct writer w = {.code = xcalloc(CODE_MAX, sizeof *w.code)};
    write_profile(p, &w);
    if (w.n > CODE_MAX) {
        free(w.code);
        return err_set(e, -E2BIG,
                       "linux.seccomp: the profile needs %zu filter instructions, the kernel takes %d", w.n,
                       CODE_MAX);
    }
    *ret = w.code;
    *ret_n = w.n;
    return 0;
}
