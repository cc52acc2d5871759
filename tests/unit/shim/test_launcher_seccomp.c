#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "base/scoped.h"
#include "shim/filter/filter.h"
#include "shim/launcher/oci_seccomp.h"

#define ERRNO(n) (SECCOMP_RET_ERRNO | (n))

/* ---- a machine for the programs: the instructions that seccomp allows and our writer uses ----------- */

static uint32_t run(const struct sock_filter *code, size_t n, const struct seccomp_data *data)
{
    uint32_t a = 0;

    for (size_t pc = 0; pc < n; pc++) {
        const struct sock_filter *i = &code[pc];
        bool taken = false;
        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(i->k + 4 <= sizeof *data && i->k % 4 == 0);
            memcpy(&a, (const char *)data + i->k, 4);
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= i->k;
            continue;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_JMP | BPF_JA:
            pc += i->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            taken = a == i->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            taken = a > i->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            taken = a >= i->k;
            break;
        default:
            fail_msg("instruction %#x at %zu", i->code, pc);
        }
        pc += taken ? i->jt : i->jf;
    }
    fail_msg("the program has no end");
    return 0;
}

static uint32_t ask(const char *json, long nr, uint64_t arg0, uint64_t arg1)
{
    struct sock_filter *code = NULL;
    size_t n = 0;
    struct err e = {0};

    assert_int_equal(oci_seccomp_build(json, &code, &n, &e), 0);
    assert_true(n > 0);
    struct seccomp_data data = {.nr = (int)nr, .arch = AUDIT_ARCH_X86_64, .args = {arg0, arg1}};
    uint32_t r = run(code, n, &data);
    free(code);
    return r;
}

/* ---- profiles ----------------------------------------------------------------------------------- */

static const char list_json[] =
    "{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"defaultErrnoRet\":2,\"architectures\":[\"SCMP_ARCH_X86_64\"],"
    "\"syscalls\":["
    "{\"names\":[\"read\",\"write\",\"no_such_call\",\"openat\"],\"action\":\"SCMP_ACT_ALLOW\"},"
    "{\"names\":[\"mkdir\"],\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":28},"
    "{\"names\":[\"chdir\"],\"action\":\"SCMP_ACT_ERRNO\"},"
    "{\"names\":[\"ptrace\"],\"action\":\"SCMP_ACT_KILL\"},"
    "{\"names\":[\"kexec_load\"],\"action\":\"SCMP_ACT_KILL_PROCESS\"},"
    "{\"names\":[\"fchdir\"],\"action\":\"SCMP_ACT_TRAP\"},"
    "{\"names\":[\"chmod\"],\"action\":\"SCMP_ACT_LOG\"},"
    "{\"names\":[\"personality\"],\"action\":\"SCMP_ACT_ALLOW\",\"args\":[{\"index\":0,\"value\":0,\"op\":"
    "\"SCMP_CMP_EQ\"}]},"
    "{\"names\":[\"personality\"],\"action\":\"SCMP_ACT_ALLOW\",\"args\":[{\"index\":0,\"value\":8,\"op\":"
    "\"SCMP_CMP_EQ\"}]},"
    "{\"names\":[\"personality\"],\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":5},"
    "{\"names\":[\"clone\"],\"action\":\"SCMP_ACT_ALLOW\",\"args\":[{\"index\":0,\"value\":2114060288,"
    "\"valueTwo\":0,\"op\":\"SCMP_CMP_MASKED_EQ\"}]},"
    "{\"names\":[\"socket\"],\"action\":\"SCMP_ACT_ALLOW\",\"args\":[{\"index\":0,\"value\":1,\"op\":\"SCMP_"
    "CMP_EQ\"},{\"index\":1,\"value\":5,\"op\":\"SCMP_CMP_LE\"}]},"
    "{\"names\":[\"kill\"],\"action\":\"SCMP_ACT_ALLOW\",\"args\":[{\"index\":1,\"value\":9,\"op\":\"SCMP_"
    "CMP_EQ\"},{\"index\":1,\"value\":15,\"op\":\"SCMP_CMP_EQ\"}]}"
    "]}";

static void each_call_gets_its_action(void **state UNUSED)
{
    static const struct {
        long nr;
        uint64_t a, b;
        uint32_t want;
    } cases[] = {
        {SYS_read, 0, 0, SECCOMP_RET_ALLOW},
        {SYS_openat, 0, 0, SECCOMP_RET_ALLOW},
        {SYS_mkdir, 0, 0, ERRNO(28)},
        {SYS_chdir, 0, 0, ERRNO(EPERM)},
        {SYS_ptrace, 0, 0, SECCOMP_RET_KILL_THREAD},
        {SYS_kexec_load, 0, 0, SECCOMP_RET_KILL_PROCESS},
        {SYS_fchdir, 0, 0, SECCOMP_RET_TRAP},
        {SYS_chmod, 0, 0, SECCOMP_RET_LOG},
        {SYS_getpid, 0, 0, ERRNO(2)}, /* the default */
        {SYS_personality, 0, 0, SECCOMP_RET_ALLOW},
        {SYS_personality, 8, 0, SECCOMP_RET_ALLOW},
        {SYS_personality, 1, 0, ERRNO(5)},          /* no condition holds: the entry without one */
        {SYS_personality, 1ull << 32, 0, ERRNO(5)}, /* all 64 bits are compared */
        {SYS_clone, SIGCHLD, 0, SECCOMP_RET_ALLOW},
        {SYS_clone, CLONE_NEWUSER, 0, ERRNO(2)},
        {SYS_clone, CLONE_NEWNS | SIGCHLD, 0, ERRNO(2)},
        {SYS_socket, 1, 5, SECCOMP_RET_ALLOW},
        {SYS_socket, 1, 6, ERRNO(2)}, /* both conditions must hold */
        {SYS_socket, 2, 5, ERRNO(2)},
        {SYS_kill, 1, 9, SECCOMP_RET_ALLOW}, /* one argument twice: alternatives */
        {SYS_kill, 1, 15, SECCOMP_RET_ALLOW},
        {SYS_kill, 1, 1, ERRNO(2)},
        {SYS_openat + 1, 0, 0, ERRNO(ENOSYS)}, /* newer than anything the profile names */
        {5000, 0, 0, ERRNO(ENOSYS)},
        {0x40000000 + SYS_read, 0, 0, ERRNO(2)}, /* x32 */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (ask(list_json, cases[i].nr, cases[i].a, cases[i].b) != cases[i].want)
            fail_msg("case %zu: call %ld gives %#x", i, cases[i].nr,
                     ask(list_json, cases[i].nr, cases[i].a, cases[i].b));
}

static void another_architecture_gets_the_default(void **state UNUSED)
{
    struct sock_filter *code = NULL;
    size_t n = 0;

    assert_int_equal(oci_seccomp_build(list_json, &code, &n, NULL), 0);
    assert_int_equal(run(code, n, &(struct seccomp_data){.nr = SYS_read, .arch = AUDIT_ARCH_I386}), ERRNO(2));
    free(code);
}

static void a_profile_that_allows_everything_needs_no_filter(void **state UNUSED)
{
    struct sock_filter *code = NULL;
    size_t n = 1;

    assert_int_equal(oci_seccomp_build("{\"defaultAction\":\"SCMP_ACT_ALLOW\"}", &code, &n, NULL), 0);
    assert_int_equal(n, 0);
    assert_null(code);
    assert_int_equal(ask("{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[\"mkdir\"],"
                         "\"action\":\"SCMP_ACT_ERRNO\"}]}",
                         5000, 0, 0),
                     SECCOMP_RET_ALLOW); /* no ENOSYS where the default is to allow */
}

/* ---- comparisons, against C --------------------------------------------------------------------- */

static bool model(int op, uint64_t x, uint64_t v, uint64_t v2)
{
    switch (op) {
    case 0:
        return x != v;
    case 1:
        return x < v;
    case 2:
        return x <= v;
    case 3:
        return x == v;
    case 4:
        return x >= v;
    case 5:
        return x > v;
    default:
        return (x & v) == (v2 & v);
    }
}

static void every_comparison_is_exact_on_64_bits(void **state UNUSED)
{
    static const char *const ops[] = {"NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"};
    static const uint64_t edges[] = {
        0,           1,           2,           0x7fffffff,         0x80000000,         0xffffffff,
        0x100000000, 0x100000001, 0x1ffffffff, 0x7fffffffffffffff, 0x7ffffffffffffffe, 0x7fffffff00000000};
    static const uint64_t more[] = {0x8000000000000000, 0xffffffff00000000, 0xffffffffffffffff,
                                    0xfffffffeffffffff};

    for (size_t op = 0; op < ARRAY_LEN(ops); op++)
        for (size_t v = 0; v < ARRAY_LEN(edges); v++)
            for (size_t v2 = 0; v2 < (op == 6 ? ARRAY_LEN(edges) : 1); v2++) {
                char json[512];
                struct sock_filter *code = NULL;
                size_t n = 0;
                (void)snprintf(json, sizeof json,
                               "{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[{\"names\":[\"read\"],"
                               "\"action\":\"SCMP_ACT_ALLOW\",\"args\":"
                               "[{\"index\":5,\"value\":%llu,\"valueTwo\":%llu,\"op\":\"SCMP_CMP_%s\"}]}]}",
                               (unsigned long long)edges[v], (unsigned long long)edges[v2], ops[op]);
                assert_int_equal(oci_seccomp_build(json, &code, &n, NULL), 0);
                for (size_t x = 0; x < ARRAY_LEN(edges) + ARRAY_LEN(more); x++) {
                    uint64_t value = x < ARRAY_LEN(edges) ? edges[x] : more[x - ARRAY_LEN(edges)];
                    struct seccomp_data data = {
                        .nr = SYS_read, .arch = AUDIT_ARCH_X86_64, .args = {[5] = value}};
                    bool allowed = run(code, n, &data) == SECCOMP_RET_ALLOW;
                    if (allowed != model((int)op, value, edges[v], edges[v2]))
                        fail_msg("%#llx %s %#llx gives %d", (unsigned long long)value, ops[op],
                                 (unsigned long long)edges[v], allowed);
                }
                free(code);
            }
}

static void bad_profiles_are_refused_by_name(void **state UNUSED)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"{", "linux.seccomp:"},
        {"[]", "must be an object"},
        {"{}", "defaultAction is missing"},
        {"{\"defaultAction\":\"X\"}", "unknown action \"X\""},
        {"{\"defaultAction\":\"SCMP_ACT_NOTIFY\"}", "conflicts with glovebox's own listener"},
        {"{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"defaultErrnoRet\":5000}", "errnoRet 5000"},
        {"{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"listenerPath\":\"/x\"}",
         "seccomp listenerPath conflicts with glovebox's own listener."},
        {"{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[\"read\"]}]}",
         "syscalls.action is missing"},
        {"{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[\"read\"],\"action\":\"SCMP_ACT_"
         "LOG\",\"args\":[{\"index\":6,\"op\":\"SCMP_CMP_EQ\"}]}]}",
         "argument index 6"},
        {"{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[\"read\"],\"action\":\"SCMP_ACT_"
         "LOG\",\"args\":[{\"index\":0,\"op\":\"EQ\"}]}]}",
         "unknown operator \"EQ\""},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sock_filter *code = NULL;
        size_t n = 0;
        struct err e = {0};
        assert_true(oci_seccomp_build(cases[i].json, &code, &n, &e) < 0);
        if (!strstr(err_text(&e), cases[i].text))
            fail_msg("case %zu says: %s", i, err_text(&e));
    }
}

/* ---- what the init may still call under glovebox's own filter -------------------------------------- */

static void the_filter_runs_natively_what_an_init_calls_before_its_exec(void **state UNUSED)
{
    static const struct {
        long nr;
        uint64_t args[6];
    } calls[] = {
        {SYS_write, {5, 1, 1}},
        {SYS_read, {5, 1, 1}},
        {SYS_seccomp, {SECCOMP_SET_MODE_FILTER, 0, 4096}},
        {SYS_capset, {4096, 4096}},
        {SYS_execve, {4096, 4096, 4096}},
        {SYS_exit_group, {127}},
        /* startContainer hooks */
        {SYS_pipe2, {4096, 02000000}},
        {SYS_fcntl, {5, 3, 0}},
        {SYS_fcntl, {5, 4, 04000}},
        {SYS_clone, {SIGCHLD}},
        {SYS_dup2, {5, 0}},
        {SYS_wait4, {5, 4096, 1, 0}},
        {SYS_clock_nanosleep, {0, 0, 4096, 0}},
        {SYS_close, {5}},
        {SYS_kill, {5, SIGKILL}},
        {SYS_getpid, {0}},
    };

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        struct rule_verdict v = rule_judge(calls[i].nr, calls[i].args);
        if (v.how != RULE_NATIVE)
            fail_msg("call %ld (%zu) is %s", calls[i].nr, i, rule_how_name(v.how));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_gets_its_action),
        cmocka_unit_test(another_architecture_gets_the_default),
        cmocka_unit_test(a_profile_that_allows_everything_needs_no_filter),
        cmocka_unit_test(every_comparison_is_exact_on_64_bits),
        cmocka_unit_test(bad_profiles_are_refused_by_name),
        cmocka_unit_test(the_filter_runs_natively_what_an_init_calls_before_its_exec),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
