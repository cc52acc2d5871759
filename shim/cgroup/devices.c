/*
 * Which devices the processes may open: devices.allow on v1, a BPF program on v2.
 *
 * A second lock only.  The container cannot make device nodes (it is no root of the initial user
 * namespace), and every mount but its small /dev is NODEV, so where this cannot be set up nothing
 * opens that was closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "shim/cgroup/internal.h"

/* What /dev of every container has, whether the engine lists it or not. */
static const struct spec_device_rule usual[] = {
    {.allow = true, .type = 'c', .major = 1, .minor = 3},    /* null */
    {.allow = true, .type = 'c', .major = 1, .minor = 5},    /* zero */
    {.allow = true, .type = 'c', .major = 1, .minor = 7},    /* full */
    {.allow = true, .type = 'c', .major = 1, .minor = 8},    /* random */
    {.allow = true, .type = 'c', .major = 1, .minor = 9},    /* urandom */
    {.allow = true, .type = 'c', .major = 5, .minor = 0},    /* tty */
    {.allow = true, .type = 'c', .major = 5, .minor = 1},    /* console */
    {.allow = true, .type = 'c', .major = 5, .minor = 2},    /* ptmx */
    {.allow = true, .type = 'c', .major = 136, .minor = -1}, /* pts */
};

static const char *access_of(const struct spec_device_rule *r)
{
    return r->access ? r->access : "rwm";
}

/* ---- version 1 ------------------------------------------------------------------------------------------
 */

static void device_number(char out[24], int64_t n)
{
    if (n < 0)
        (void)snprintf(out, 24, "*");
    else
        (void)snprintf(out, 24, "%" PRId64, n);
}

static int write_rule(const int fd[2], const struct spec_device_rule *r)
{
    char line[80], major[24], minor[24];

    device_number(major, r->major);
    device_number(minor, r->minor);
    if (r->type == 'a')
        (void)snprintf(line, sizeof line,
                       "a"); /* the kernel drops all exceptions, whatever follows the letter */
    else
        (void)snprintf(line, sizeof line, "%c %s:%s %s", r->type, major, minor, access_of(r));
    if (write(fd[r->allow], line, strlen(line)) >= 0)
        return 0;
    /* EPERM: the parent group does not have it either; less than asked for is no risk. */
    return errno == EPERM && r->allow ? 0 : -errno;
}

static int write_rules(const int fd[2], const struct spec_device_rule *rules, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int r = write_rule(fd, &rules[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

int cg_devices_v1(const struct cgroup *cg, const struct spec_resources *res, struct err *e)
{
    static const struct spec_device_rule deny_all = {.type = 'a'};
    const struct cg_dir *d = cg_part(cg, CG_DEVICES);
    if (!d)
        return 0;

    scoped_fd int deny = openat(d->dir, "devices.deny", O_WRONLY | O_CLOEXEC);
    scoped_fd int allow = openat(d->dir, "devices.allow", O_WRONLY | O_CLOEXEC);
    if (deny < 0 || allow < 0)
        return err_sys(e, "linux.resources.devices: open devices.allow");
    const int fd[2] = {deny, allow};
    int r = write_rules(fd, &deny_all, 1);
    if (r == 0)
        r = write_rules(fd, res->devices, res->n_devices);
    if (r == 0)
        r = write_rules(fd, usual, ARRAY_LEN(usual));
    return r < 0 ? err_set(e, r, "linux.resources.devices: %s", strerror(-r)) : 0;
}

/* ---- version 2 ------------------------------------------------------------------------------------------
 */

#define INSN(c, d, s, o, i)                                                                                  \
    ((struct bpf_insn){.code = (c), .dst_reg = (d), .src_reg = (s), .off = (short)(o), .imm = (int)(i)})
#define LOAD(d, o)        INSN(BPF_LDX | BPF_W | BPF_MEM, d, 1, o, 0)
#define ALU(op, d, i)     INSN(BPF_ALU | (op) | BPF_K, d, 0, 0, i)
#define MOVE(d, s)        INSN(BPF_ALU | BPF_MOV | BPF_X, d, s, 0, 0)
#define JUMP(op, d, i, o) INSN(BPF_JMP | (op) | BPF_K, d, 0, o, i)
#define EXIT              INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
enum { TYPE = 2, ACCESS = 3, MAJOR = 4, MINOR = 5, SCRATCH = 6 };

struct program {
    struct bpf_insn *insn;
    size_t n, cap;
};

static void emit(struct program *p, struct bpf_insn insn)
{
    p->insn = xgrow(p->insn, p->n, &p->cap, sizeof insn);
    p->insn[p->n++] = insn;
}

static unsigned access_bits(const char *access)
{
    return (strchr(access, 'r') ? BPF_DEVCG_ACC_READ : 0u) |
           (strchr(access, 'w') ? BPF_DEVCG_ACC_WRITE : 0u) |
           (strchr(access, 'm') ? BPF_DEVCG_ACC_MKNOD : 0u);
}

/* One rule: every test that fails jumps behind it. */
static void emit_rule(struct program *p, const struct spec_device_rule *r)
{
    size_t jump[5], n = 0;

    if (r->type != 'a') {
        jump[n++] = p->n;
        emit(p, JUMP(BPF_JNE, TYPE, r->type == 'b' ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR, 0));
    }
    emit(p, MOVE(SCRATCH, ACCESS));
    emit(p, ALU(BPF_AND, SCRATCH, access_bits(access_of(r))));
    jump[n++] = p->n;
    if (r->allow) /* all that is asked for must be allowed; one forbidden letter is enough to deny */
        emit(p, INSN(BPF_JMP | BPF_JNE | BPF_X, SCRATCH, ACCESS, 0, 0));
    else
        emit(p, JUMP(BPF_JEQ, SCRATCH, 0, 0));
    if (r->type != 'a' && r->major >= 0) {
        jump[n++] = p->n;
        emit(p, JUMP(BPF_JNE, MAJOR, r->major, 0));
    }
    if (r->type != 'a' && r->minor >= 0) {
        jump[n++] = p->n;
        emit(p, JUMP(BPF_JNE, MINOR, r->minor, 0));
    }
    emit(p, ALU(BPF_MOV, 0, r->allow));
    emit(p, EXIT);
    for (size_t i = 0; i < n; i++)
        p->insn[jump[i]].off = (short)(p->n - jump[i] - 1);
}

/* The last rule that matches decides, so they are tried from the end; nothing matches: no. */
static void build(struct program *p, const struct spec_resources *res)
{
    emit(p, LOAD(TYPE, offsetof(struct bpf_cgroup_dev_ctx, access_type)));
    emit(p, MOVE(ACCESS, TYPE));
    emit(p, ALU(BPF_AND, TYPE, 0xffff));
    emit(p, ALU(BPF_RSH, ACCESS, 16));
    emit(p, LOAD(MAJOR, offsetof(struct bpf_cgroup_dev_ctx, major)));
    emit(p, LOAD(MINOR, offsetof(struct bpf_cgroup_dev_ctx, minor)));
    for (size_t i = 0; i < ARRAY_LEN(usual); i++)
        emit_rule(p, &usual[i]);
    for (size_t i = res->n_devices; i-- > 0;)
        emit_rule(p, &res->devices[i]);
    emit(p, ALU(BPF_MOV, 0, 0));
    emit(p, EXIT);
}

static int bpf(int cmd, union bpf_attr *attr)
{
    int r = (int)syscall(SYS_bpf, cmd, attr, sizeof *attr);
    return r < 0 ? -errno : r;
}

static int load_and_attach(const struct program *p, int dir)
{
    union bpf_attr load;
    memset(&load, 0, sizeof load);
    load.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
    load.insn_cnt = (uint32_t)p->n;
    load.insns = (uint64_t)(uintptr_t)p->insn;
    load.license = (uint64_t)(uintptr_t) "Apache-2.0"; /* no helper is called, so none is asked for */
    scoped_fd int prog = bpf(BPF_PROG_LOAD, &load);
    if (prog < 0)
        return prog;

    union bpf_attr attach;
    memset(&attach, 0, sizeof attach);
    attach.target_fd = (uint32_t)dir;
    attach.attach_bpf_fd = (uint32_t)prog;
    attach.attach_type = BPF_CGROUP_DEVICE;
    attach.attach_flags = BPF_F_ALLOW_MULTI; /* beside systemd's own, and both have to agree */
    return bpf(BPF_PROG_ATTACH, &attach);
}

int cg_devices_v2(const struct cgroup *cg, const struct spec_resources *res, struct err *e UNUSED)
{
    struct program p = {0};

    build(&p, res);
    int r = load_and_attach(&p, cg_core(cg)->dir);
    free(p.insn);
    if (r < 0)
        log_debug("no device program for the control group", "reason=%s", strerror(-r));
    return 0;
}
