#include "shim/sentry/guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/mount.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"

#define UNIFIED     "/sys/fs/cgroup/unified"
#define PARENT      "glovebox"
#define CLEAN_TRIES 50

struct guard {
    int dir;
    bool own;
    char *pod_id;
};

static const struct {
    enum bpf_attach_type type;
    const char *name;
} hooks[] = {
    {BPF_CGROUP_INET4_CONNECT, "connect4"}, {BPF_CGROUP_INET6_CONNECT, "connect6"},
    {BPF_CGROUP_INET4_BIND, "bind4"},       {BPF_CGROUP_INET6_BIND, "bind6"},
    {BPF_CGROUP_UDP4_SENDMSG, "sendmsg4"},  {BPF_CGROUP_UDP6_SENDMSG, "sendmsg6"},
};

static long sys_bpf(int command, union bpf_attr *attr)
{
    return syscall(SYS_bpf, command, attr, sizeof *attr);
}

/* return bpf_get_current_cgroup_id() == id; the helper is there for these programs since 5.7. */
static int load_program(uint64_t id, enum bpf_attach_type type)
{
    const struct bpf_insn program[] = {
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_cgroup_id},
        {.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .imm = (int32_t)(uint32_t)id},
        {.imm = (int32_t)(uint32_t)(id >> 32)},
        {.code = BPF_JMP | BPF_JEQ | BPF_X, .dst_reg = 0, .src_reg = 1, .off = 2},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0},
        {.code = BPF_JMP | BPF_EXIT},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 1},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr attr = {
        .prog_type = BPF_PROG_TYPE_CGROUP_SOCK_ADDR,
        .expected_attach_type = type,
        .insns = (uintptr_t)program,
        .insn_cnt = ARRAY_LEN(program),
        .license = (uintptr_t) "Dual BSD/GPL",
    };
    return (int)sys_bpf(BPF_PROG_LOAD, &attr);
}

/* The attachment belongs to the cgroup and needs no descriptor afterwards. */
static int attach_all(int dir, struct err *e)
{
    struct stat st;
    if (fstat(dir, &st) < 0)
        return err_sys(e, "socket guard: stat cgroup");
    for (size_t i = 0; i < ARRAY_LEN(hooks); i++) {
        scoped_fd int prog = load_program(st.st_ino, hooks[i].type); /* a cgroup's inode number is its id */
        if (prog < 0)
            return err_sys(e,
                           "socket guard: the kernel refuses the BPF program %s (it needs CONFIG_CGROUP_BPF)",
                           hooks[i].name);
        union bpf_attr attr = {
            .target_fd = (uint32_t)dir,
            .attach_bpf_fd = (uint32_t)prog,
            .attach_type = hooks[i].type,
            .attach_flags = BPF_F_ALLOW_MULTI, /* an administrator's programs keep running as well */
        };
        if (sys_bpf(BPF_PROG_ATTACH, &attr) < 0)
            return err_sys(e, "socket guard: attach %s", hooks[i].name);
    }
    return 0;
}

/* The v2 hierarchy: where hybrid hosts mount it, else by an unattached mount of our own. */
static int open_unified(void)
{
    int dir = open(UNIFIED, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0)
        return dir;
    scoped_fd int fs = (int)syscall(SYS_fsopen, "cgroup2", FSOPEN_CLOEXEC);
    if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

static int make_dir(int parent, const char *name)
{
    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
        return -1;
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static int make_own_dir(const char *pod_id, struct err *e)
{
    scoped_fd int root = open_unified();
    if (root < 0)
        return err_sys(e, "socket guard: this host has no cgroup v2 hierarchy");
    scoped_fd int parent = make_dir(root, PARENT);
    if (parent < 0)
        return err_sys(e, "socket guard: make cgroup %s", PARENT);
    int dir = make_dir(parent, pod_id);
    if (dir < 0)
        return err_sys(e, "socket guard: make cgroup %s/%s", PARENT, pod_id);
    return dir;
}

int guard_install(int v2_dir, const char *pod_id, struct guard **ret, struct err *e)
{
    if (strchr(pod_id, '/') || pod_id[0] == '.' || pod_id[0] == '\0')
        return err_set(e, -EINVAL, "socket guard: \"%s\" is no pod id", pod_id);
    scoped(guard_free) struct guard *g = xcalloc(1, sizeof *g);
    g->dir = -1;
    g->own = v2_dir < 0;
    g->pod_id = xstrdup(pod_id);

    g->dir = g->own ? make_own_dir(pod_id, e) : fcntl(v2_dir, F_DUPFD_CLOEXEC, 3);
    if (g->dir < 0)
        return g->own ? g->dir : err_sys(e, "socket guard: dup cgroup");
    int r = attach_all(g->dir, e);
    if (r < 0)
        return r;
    *ret = take(g);
    return 0;
}

int guard_dir(const struct guard *g)
{
    return g->dir;
}

int guard_remove(const char *pod_id)
{
    scoped_fd int root = open_unified();
    if (root < 0)
        return 0;
    scoped_fd int parent = openat(root, PARENT, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (parent < 0)
        return 0;
    if (unlinkat(parent, pod_id, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return -errno;
    /* The parent goes with the last pod; another pod being made right now keeps it (ENOTEMPTY, EBUSY). */
    (void)unlinkat(root, PARENT, AT_REMOVEDIR);
    return 0;
}

void guard_free(struct guard *g)
{
    if (!g)
        return;
    int saved = errno;
    fd_close(g->dir);
    /* A killed task leaves its cgroup a moment after it can be waited for. */
    for (int i = 0; g->own && g->dir >= 0 && i < CLEAN_TRIES && guard_remove(g->pod_id) == -EBUSY; i++)
        (void)usleep(1000);
    free(g->pod_id);
    free(g);
    errno = saved;
}

int guard_check(int sock, struct err *e)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (connect(sock, (struct sockaddr *)&to, sizeof to) == 0)
        return err_set(e, -EPERM, "socket guard: the kernel accepts the programs but does not run them");
    if (errno != EPERM)
        return err_sys(e, "socket guard: unexpected answer");
    return 0;
}
