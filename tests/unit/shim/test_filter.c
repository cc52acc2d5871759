/* The filter program against the table: two readings of the same rows, a million random calls. */
#include "shim/filter/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/scoped.h"
#include "base/strbuf.h"
#include "tests/unit/shim/unit.h"

#define RANDOM_CALLS 1000000
#define GOLDEN       "docs/syscalls.md"

static struct sock_filter program[FILTER_MAX], debug_program[FILTER_MAX];
static size_t length, debug_length;

/* ---- a small cBPF machine, with the kernel's rule for what it can find out at install time ---- */

struct run_result {
    uint32_t action;
    bool
        constant; /* no argument was looked at: the kernel's bitmap holds it (seccomp_is_const_allow, 5.11) */
};

static bool jump_taken(const struct sock_filter *f, uint32_t a)
{
    switch (BPF_OP(f->code)) {
    case BPF_JEQ:
        return a == f->k;
    case BPF_JGE:
        return a >= f->k;
    case BPF_JGT:
        return a > f->k;
    case BPF_JSET:
        return (a & f->k) != 0;
    default:
        fail_msg("odd jump");
        return false;
    }
}

static struct run_result run(const struct sock_filter *p, size_t n, const struct seccomp_data *d)
{
    struct run_result r = {.constant = true};
    uint32_t a = 0;

    for (size_t pc = 0; pc < n; pc++) {
        const struct sock_filter *f = &p[pc];
        switch (f->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(f->k + sizeof a <= sizeof *d && f->k % sizeof a == 0);
            memcpy(&a, (const char *)d + f->k, sizeof a);
            if (f->k != offsetof(struct seccomp_data, nr) && f->k != offsetof(struct seccomp_data, arch))
                r.constant = false;
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= f->k;
            break;
        case BPF_JMP | BPF_JA:
            pc += f->k;
            break;
        case BPF_RET | BPF_K:
            r.action = f->k;
            return r;
        default:
            pc += jump_taken(f, a) ? f->jt : f->jf;
        }
    }
    fail_msg("the program has no end");
    return r;
}

static uint32_t expected(const struct rule_verdict *v, bool debug)
{
    if (v->how == RULE_NATIVE)
        return SECCOMP_RET_ALLOW;
    if (v->how != RULE_DENY || v->report || (debug && v->error))
        return SECCOMP_RET_USER_NOTIF;
    return SECCOMP_RET_ERRNO | (uint32_t)v->error;
}

static int build(void **state)
{
    struct err e = {0};
    (void)state;
    assert_int_equal(filter_build(NULL, program, FILTER_MAX, &length, &e), 0);
    struct filter_options o = {.report_denials = true};
    assert_int_equal(filter_build(&o, debug_program, FILTER_MAX, &debug_length, &e), 0);
    return 0;
}

/* ---- random calls, mostly near the edges ---- */

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* A value that some test of the row mentions, or one bit beside it. */
static uint64_t near_a_test(const struct rule *r, unsigned arg, uint64_t *s)
{
    for (int tries = 0; r && r->n_cases && tries < 8; tries++) {
        const struct rule_case *c = &r->cases[next_random(s) % r->n_cases];
        const struct rule_test *t = &c->tests[next_random(s) % RULE_TESTS_MAX];
        if (t->op == TEST_NONE || t->arg != arg)
            continue;
        uint64_t v = t->op == TEST_IN ? t->list[next_random(s) % t->n_list] : t->value;
        if (t->op == TEST_BITS)
            v &= next_random(s);
        if (next_random(s) % 4 == 0)
            v ^= 1ULL << (next_random(s) % 64);
        return v;
    }
    switch (next_random(s) % 4) {
    case 0:
        return 0;
    case 1:
        return 1ULL << (next_random(s) % 64);
    case 2:
        return next_random(s) & 0xff;
    default:
        return next_random(s);
    }
}

static void the_program_says_what_the_table_says(void **state)
{
    uint64_t seed = 0x9e3779b97f4a7c15;
    (void)state;
    for (int i = 0; i < RANDOM_CALLS; i++) {
        struct seccomp_data d = {.arch = AUDIT_ARCH_X86_64, .nr = (int)(next_random(&seed) % 480)};
        uint64_t args[6];
        for (unsigned a = 0; a < 6; a++)
            d.args[a] = args[a] = near_a_test(rule_for(d.nr), a, &seed);
        struct rule_verdict v = rule_judge(d.nr, args);
        if (run(program, length, &d).action != expected(&v, false) ||
            run(debug_program, debug_length, &d).action != expected(&v, true))
            fail_msg("nr %d args %llx %llx %llx %llx %llx %llx", d.nr, d.args[0], d.args[1], d.args[2],
                     d.args[3], d.args[4], d.args[5]);
    }
}

static void foreign_abis_are_killed_and_nonsense_is_unknown(void **state)
{
    static const struct {
        uint32_t arch, nr, action;
    } cases[] = {
        {AUDIT_ARCH_I386, 20, SECCOMP_RET_KILL_PROCESS},
        {AUDIT_ARCH_I386, 0, SECCOMP_RET_KILL_PROCESS},
        {AUDIT_ARCH_AARCH64, 64, SECCOMP_RET_KILL_PROCESS},
        {0, 0, SECCOMP_RET_KILL_PROCESS},
        {AUDIT_ARCH_X86_64, 0x40000000, SECCOMP_RET_KILL_PROCESS},
        {AUDIT_ARCH_X86_64, 0x40000000 | 39, SECCOMP_RET_KILL_PROCESS},
        {AUDIT_ARCH_X86_64, 0x7fffffff, SECCOMP_RET_KILL_PROCESS},
        {AUDIT_ARCH_X86_64, 0x3fffffff, SECCOMP_RET_ERRNO | ENOSYS},
        {AUDIT_ARCH_X86_64, 0xffffffff, SECCOMP_RET_ERRNO | ENOSYS},
        {AUDIT_ARCH_X86_64, 0x80000000, SECCOMP_RET_ERRNO | ENOSYS},
        {AUDIT_ARCH_X86_64, 472, SECCOMP_RET_ERRNO | ENOSYS},
        {AUDIT_ARCH_X86_64, 337, SECCOMP_RET_ERRNO | ENOSYS},
        {AUDIT_ARCH_X86_64, 423, SECCOMP_RET_ERRNO | ENOSYS},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct seccomp_data d = {.arch = cases[i].arch, .nr = (int)cases[i].nr};
        assert_int_equal(run(program, length, &d).action, cases[i].action);
    }
}

static void unconditional_rows_are_constant_for_the_kernel(void **state)
{
    (void)state;
    for (long nr = 0; nr <= rule_max(); nr++) {
        const struct rule *r = rule_for(nr);
        struct seccomp_data d = {.arch = AUDIT_ARCH_X86_64, .nr = (int)nr};
        if (r && r->n_cases == 0)
            assert_true(run(program, length, &d).constant);
    }
}

static void there_is_a_row_for_every_assigned_number(void **state)
{
    (void)state;
    assert_int_equal(rule_max(), 471);
    for (long nr = 0; nr <= rule_max(); nr++) {
        bool unassigned = nr >= 337 && nr <= 423;
        const struct rule *r = rule_for(nr);
        assert_true((r == NULL) == unassigned);
        if (r)
            assert_true(r->why && r->why[0] && r->name[0]);
    }
    assert_null(rule_for(-1));
    assert_null(rule_for(472));
    assert_null(rule_for(1L << 40));
}

static void nothing_continues_after_a_look_at_memory(void **state)
{
    (void)state;
    for (long nr = 0; nr <= rule_max(); nr++) {
        const struct rule *r = rule_for(nr);
        if (!r)
            continue;
        /* A sibling thread can rewrite the memory between our look and the kernel's. */
        if (r->flags & RULE_ARG_MEM)
            assert_true(r->how == RULE_BROKER || r->how == RULE_EMULATE);
        for (size_t i = 0; i < r->n_cases; i++)
            assert_int_not_equal(r->cases[i].how, RULE_AUDIT);
    }
}

static void conditions_allow_lists_only(void **state)
{
    (void)state;
    for (long nr = 0; nr <= rule_max(); nr++) {
        const struct rule *r = rule_for(nr);
        for (size_t i = 0; r && i < r->n_cases; i++) {
            const struct rule_case *c = &r->cases[i];
            unsigned n = 0;
            for (size_t j = 0; j < RULE_TESTS_MAX; j++) {
                const struct rule_test *t = &c->tests[j];
                n += t->op != TEST_NONE;
                if (c->how != RULE_DENY)
                    assert_int_not_equal(t->op, TEST_HAS); /* "all but these" */
                if (t->op == TEST_IN)
                    assert_true(t->n_list > 0 && t->n_list < 255 && !t->wide);
            }
            assert_true(n > 0);
        }
        if (r && r->n_cases && r->how == RULE_NATIVE)
            assert_true(r->error > 0);
    }
}

/* How the probes of real exploits' entry points come out. */
static void known_entry_points_are_closed(void **state)
{
    static const struct {
        int nr;
        uint64_t args[6];
        int error; /* -1: notified */
    } cases[] = {
        {SYS_ioctl, {0, 0x5412}, ENOTTY},
        {SYS_ioctl, {0, 0x100005412ULL}, ENOTTY},
        {SYS_ioctl, {0, 0x5423}, ENOTTY},
        {SYS_ioctl, {0, 0x541c}, ENOTTY},
        {SYS_ioctl, {0, 0x5760}, ENOTTY},
        {SYS_ioctl, {0, 0x8946}, ENOTTY},
        {SYS_clone, {0x10000000 | 17}, EPERM},
        {SYS_clone, {0x10000}, EPERM},
        {SYS_clone, {0x8000 | 17}, EPERM},
        {SYS_clone, {1ULL << 33}, EPERM},
        {SYS_clone3, {0}, ENOSYS},
        {SYS_unshare, {0x10000000}, EPERM},
        {SYS_unshare, {0x400}, EPERM},
        {SYS_setns, {0}, EPERM},
        {SYS_socket, {38, 5, 0}, EAFNOSUPPORT},
        {SYS_socket, {40, 1, 0}, EAFNOSUPPORT},
        {SYS_socket, {17, 3, 0}, EAFNOSUPPORT},
        {SYS_socket, {16, 3, 12}, EPROTONOSUPPORT},
        {SYS_socket, {16, 3, 0}, -1},
        {SYS_socket, {2, 1, 262}, EPROTONOSUPPORT},
        {SYS_socket, {2, 2, 136}, EPROTONOSUPPORT},
        {SYS_socket, {2, 3, 1}, EPERM},
        {SYS_socket, {2, 1 | 0x80800, 6}, -1},
        {SYS_setsockopt, {0, 6, 31}, ENOENT},
        {SYS_setsockopt, {0, 282, 1}, ENOPROTOOPT},
        {SYS_setsockopt, {0, 6, 23}, ENOPROTOOPT},
        {SYS_setsockopt, {0, 6, 30}, ENOPROTOOPT},
        {SYS_setsockopt, {0, 0, 64}, ENOPROTOOPT},
        {SYS_setsockopt, {0, 1, 26}, ENOPROTOOPT},
        {SYS_setsockopt, {0, 0, 35}, ENOPROTOOPT},
        {SYS_sendto, {0, 0, 0, 0x20000000, 1}, EOPNOTSUPP},
        {SYS_sendto, {0, 0, 0, 1, 0}, EOPNOTSUPP},
        {SYS_sendto, {0, 0, 0, 0x4000, 1ULL << 32}, -1},
        {SYS_sendmsg, {0, 0, 0x20000000}, EOPNOTSUPP},
        {SYS_recvfrom, {0, 0, 0, 1}, EINVAL},
        {SYS_futex, {0, 6 | 128}, ENOSYS},
        {SYS_futex, {0, 12}, ENOSYS},
        {SYS_timer_create, {2}, EINVAL},
        {SYS_timerfd_settime, {0, 3}, EINVAL},
        {SYS_pipe2, {0, 0200}, EINVAL},
        {SYS_mmap, {0, 0, 3, 0x122}, EINVAL},
        {SYS_mmap, {0, 0, 3, 0x40022}, ENOMEM},
        {SYS_mmap, {0, 0, 3, 0x22 | 1ULL << 40}, EINVAL},
        {SYS_madvise, {0, 0, 100}, EINVAL},
        {SYS_prctl, {35}, EINVAL},
        {SYS_prctl, {59}, EINVAL},
        {SYS_personality, {0x0440000}, EPERM},
        {SYS_splice, {0}, EINVAL},
        {SYS_io_uring_setup, {0}, ENOSYS},
        {SYS_bpf, {0}, -1},
        {SYS_ptrace, {0}, EPERM},
        {SYS_keyctl, {0}, ENOSYS},
        {SYS_userfaultfd, {0}, ENOSYS},
        {SYS_mount, {0}, EPERM},
        {SYS_seccomp, {1, 0x8}, EBUSY},
        {SYS_seccomp, {0x7fffffff}, EINVAL},
        {SYS_mknod, {0, 0020666}, EPERM},
        {SYS_mknod, {0, 0x10000 | 0060666}, EPERM},
        {SYS_close_range, {3, 9, 2}, EINVAL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct seccomp_data d = {.arch = AUDIT_ARCH_X86_64, .nr = cases[i].nr};
        for (int a = 0; a < 6; a++)
            d.args[a] = cases[i].args[a];
        uint32_t want =
            cases[i].error < 0 ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ERRNO | (uint32_t)cases[i].error;
        if (run(program, length, &d).action != want)
            fail_msg("case %zu: %s", i, rule_for(cases[i].nr)->name);
    }
}

static void a_program_that_does_not_fit_is_refused(void **state)
{
    struct sock_filter small[16];
    struct err e = {0};
    size_t n = 7;
    (void)state;
    assert_int_equal(filter_build(NULL, small, ARRAY_LEN(small), &n, &e), -E2BIG);
    assert_int_equal(n, 7);
}

static void the_kernel_takes_the_program(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct sock_fprog prog = {(unsigned short)length, program};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
            _exit(1);
        bool ok = syscall(SYS_setns, -1, 0) < 0 && errno == EPERM && syscall(SYS_getppid) > 0 &&
                  syscall(470) < 0 && errno == ENOSYS;
        _exit(ok ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- docs/syscalls.md is made from the table ---- */

static void describe(struct strbuf *out)
{
    strbuf_puts(
        out, "# System calls under glovebox\n\nMade from shim/filter/rules.tbl; `make docs/syscalls.md` "
             "writes it, "
             "the unit test test_filter compares it.\n\n"
             "native: the kernel runs it. broker: the sentry performs it on its own copy of the arguments. "
             "emulate: the sentry answers.\ndeny: refused with the errno (\"ok\" = success is pretended). "
             "\"arguments\": a listed set of flags or values, everything else gets the errno.\n"
             "Other numbers: ENOSYS. i386 and x32 calls kill the process.\n\n"
             "| nr | call | disposition | errno | why |\n|---|---|---|---|---|\n");
    for (long nr = 0; nr <= rule_max(); nr++) {
        const struct rule *r = rule_for(nr);
        if (!r)
            continue;
        const char *error = r->error ? strerrorname_np(r->error) : r->how == RULE_DENY ? "ok" : "";
        strbuf_printf(out, "| %ld | %s | %s%s%s | %s | %s |\n", nr, r->name, rule_how_name(r->how),
                      r->n_cases ? ", arguments" : "", r->flags & RULE_REPORT ? ", recorded" : "", error,
                      r->why);
    }
}

static void the_documentation_is_the_table(void **state)
{
    scoped_strbuf struct strbuf text;
    scoped_free char *have = NULL;
    (void)state;
    strbuf_init(&text, 1 << 20);
    describe(&text);
    if (getenv("GLOVEBOX_WRITE_DOCS")) {
        assert_int_equal(file_replace(AT_FDCWD, GOLDEN, text.data, 0644, NULL), 0);
        return;
    }
    assert_int_equal(file_read(AT_FDCWD, GOLDEN, 1 << 20, &have, NULL, NULL), 0);
    assert_string_equal(have, text.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_says_what_the_table_says),
        cmocka_unit_test(foreign_abis_are_killed_and_nonsense_is_unknown),
        cmocka_unit_test(unconditional_rows_are_constant_for_the_kernel),
        cmocka_unit_test(there_is_a_row_for_every_assigned_number),
        cmocka_unit_test(nothing_continues_after_a_look_at_memory),
        cmocka_unit_test(conditions_allow_lists_only),
        cmocka_unit_test(known_entry_points_are_closed),
        cmocka_unit_test(a_program_that_does_not_fit_is_refused),
        cmocka_unit_test(the_kernel_takes_the_program),
        cmocka_unit_test(the_documentation_is_the_table),
    };
    return cmocka_run_group_tests(tests, build, NULL);
}
