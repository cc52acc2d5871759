#include "shim/runtime/probe_steer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macro.h"

#define ADDRESSES_MAX 256
#define KEY_AT        (-16) /* on the program's stack: the peer's address, IPv4 mapped into IPv6 */
#define ZERO_AT       (-20)

static long bpf(int cmd, union bpf_attr *attr)
{
    return syscall(SYS_bpf, cmd, attr, sizeof *attr);
}

static int map_new_fd(enum bpf_map_type type, uint32_t key, uint32_t value, uint32_t n)
{
    union bpf_attr a = {.map_type = type, .key_size = key, .value_size = value, .max_entries = n};

    return (int)bpf(BPF_MAP_CREATE, &a);
}

static int map_set(int map, const void *key, const void *value)
{
    union bpf_attr a = {
        .map_fd = (uint32_t)map, .key = (uintptr_t)key, .value = (uintptr_t)value, .flags = BPF_ANY};

    return (int)bpf(BPF_MAP_UPDATE_ELEM, &a);
}

/* A few instructions of the eBPF set (linux/bpf.h), named as in the kernel's own samples. */
#define INSN(c, d, s, o, i)                                                                                  \
    {                                                                                                        \
        .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i)                                  \
    }
#define MOV_REG(d, s)         INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define MOV_IMM(d, i)         INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ADD_IMM(d, i)         INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define LOAD32(d, s, o)       INSN(BPF_LDX | BPF_MEM | BPF_W, d, s, (short)(o), 0)
#define STORE32(d, o, s)      INSN(BPF_STX | BPF_MEM | BPF_W, d, s, o, 0)
#define STORE32_IMM(d, o, i)  INSN(BPF_ST | BPF_MEM | BPF_W, d, 0, o, i)
#define JUMP(o)               INSN(BPF_JMP | BPF_JA, 0, 0, o, 0)
#define JUMP_IMM(op, r, i, o) INSN(BPF_JMP | (op) | BPF_K, r, 0, o, i)
#define MAP_FD(d, fd)         INSN(BPF_LD | BPF_DW | BPF_IMM, d, BPF_PSEUDO_MAP_FD, 0, fd), INSN(0, 0, 0, 0, 0)
#define CALL(f)               INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define EXIT                  INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define CTX(member)           offsetof(struct bpf_sk_lookup, member)

/*
 * key = the peer's address; if it is in `addresses`, the connection goes to socks[0].  Every way ends in
 * SK_PASS: what is not ours is looked up as ever.
 */
static int load(const struct steer *s)
{
    const struct bpf_insn program[] = {
        MOV_REG(BPF_REG_6, BPF_REG_1),
        LOAD32(BPF_REG_2, BPF_REG_6, CTX(protocol)),
        JUMP_IMM(BPF_JNE, BPF_REG_2, IPPROTO_TCP, 38),
        LOAD32(BPF_REG_2, BPF_REG_6, CTX(family)),
        JUMP_IMM(BPF_JEQ, BPF_REG_2, 10 /* AF_INET6 */, 6),
        STORE32_IMM(BPF_REG_10, KEY_AT, 0),
        STORE32_IMM(BPF_REG_10, KEY_AT + 4, 0),
        STORE32_IMM(BPF_REG_10, KEY_AT + 8, (int)htonl(0xffff)),
        LOAD32(BPF_REG_2, BPF_REG_6, CTX(remote_ip4)),
        STORE32(BPF_REG_10, KEY_AT + 12, BPF_REG_2),
        JUMP(8), /* to the look-up */
        LOAD32(BPF_REG_2, BPF_REG_6, CTX(remote_ip6)),
        STORE32(BPF_REG_10, KEY_AT, BPF_REG_2),
        LOAD32(BPF_REG_2, BPF_REG_6, CTX(remote_ip6) + 4),
        STORE32(BPF_REG_10, KEY_AT + 4, BPF_REG_2),
        LOAD32(BPF_REG_2, BPF_REG_6, CTX(remote_ip6) + 8),
        STORE32(BPF_REG_10, KEY_AT + 8, BPF_REG_2),
        LOAD32(BPF_REG_2, BPF_REG_6, CTX(remote_ip6) + 12),
        STORE32(BPF_REG_10, KEY_AT + 12, BPF_REG_2),
        MAP_FD(BPF_REG_1, s->addresses),
        MOV_REG(BPF_REG_2, BPF_REG_10),
        ADD_IMM(BPF_REG_2, KEY_AT),
        CALL(BPF_FUNC_map_lookup_elem),
        JUMP_IMM(BPF_JEQ, BPF_REG_0, 0, 16),
        STORE32_IMM(BPF_REG_10, ZERO_AT, 0),
        MAP_FD(BPF_REG_1, s->socks),
        MOV_REG(BPF_REG_2, BPF_REG_10),
        ADD_IMM(BPF_REG_2, ZERO_AT),
        CALL(BPF_FUNC_map_lookup_elem),
        JUMP_IMM(BPF_JEQ, BPF_REG_0, 0, 9),
        MOV_REG(BPF_REG_7, BPF_REG_0),
        MOV_REG(BPF_REG_1, BPF_REG_6),
        MOV_REG(BPF_REG_2, BPF_REG_7),
        MOV_IMM(BPF_REG_3, 0),
        CALL(BPF_FUNC_sk_assign),
        MOV_REG(BPF_REG_1, BPF_REG_7),
        CALL(BPF_FUNC_sk_release),
        MOV_IMM(BPF_REG_0, SK_PASS),
        EXIT,
        MOV_IMM(BPF_REG_0, SK_PASS),
        EXIT,
    };
    union bpf_attr a = {.prog_type = BPF_PROG_TYPE_SK_LOOKUP,
                        .expected_attach_type = BPF_SK_LOOKUP,
                        .insns = (uintptr_t)program,
                        .insn_cnt = ARRAY_LEN(program),
                        .license = (uintptr_t) "Apache-2.0"};

    return (int)bpf(BPF_PROG_LOAD, &a);
}

static bool key_of(const struct sockaddr *a, struct in6_addr *ret)
{
    if (a && a->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
        *ret = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
        memcpy(&ret->s6_addr[12], &v4->sin_addr, 4);
        return true;
    }
    if (a && a->sa_family == AF_INET6)
        *ret = ((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return a && a->sa_family == AF_INET6;
}

/* The addresses of the namespace that we are in: the node's. */
static int add_addresses(int map)
{
    struct ifaddrs *list;
    struct in6_addr key;
    const uint8_t one = 1;
    int r = 0;

    if (getifaddrs(&list) < 0)
        return -errno;
    for (const struct ifaddrs *a = list; a && r == 0; a = a->ifa_next)
        if (!(a->ifa_flags & IFF_LOOPBACK) && key_of(a->ifa_addr, &key) && map_set(map, &key, &one) < 0)
            r = errno == E2BIG ? 0 : -errno; /* more addresses than any node has: the first ones do */
    freeifaddrs(list);
    return r;
}

int steer_init(struct steer *s, int net_ns, int listener, struct err *e)
{
    const uint32_t zero = 0;
    const uint64_t socket = (uint64_t)listener;

    *s = (struct steer)STEER_NONE;
    s->socks = map_new_fd(BPF_MAP_TYPE_SOCKMAP, sizeof zero, sizeof socket, 1);
    s->addresses = map_new_fd(BPF_MAP_TYPE_HASH, sizeof(struct in6_addr), 1, ADDRESSES_MAX);
    int r = s->socks < 0 || s->addresses < 0 || map_set(s->socks, &zero, &socket) < 0
                ? err_sys(e, "maps for the look-up of sockets")
                : 0;
    if (r == 0 && (r = add_addresses(s->addresses)) < 0)
        err_set(e, r, "addresses of the node: %s", strerror(-r));
    if (r == 0 && (s->program = load(s)) < 0)
        r = err_sys(e, "program for the look-up of sockets");
    if (r == 0) {
        union bpf_attr a = {.link_create = {.prog_fd = (uint32_t)s->program,
                                            .target_fd = (uint32_t)net_ns,
                                            .attach_type = BPF_SK_LOOKUP}};
        s->link = (int)bpf(BPF_LINK_CREATE, &a);
        if (s->link < 0)
            r = err_sys(e, "attach the look-up of sockets");
    }
    if (r < 0)
        steer_done(s);
    return r;
}

void steer_done(struct steer *s)
{
    int *const all[] = {&s->link, &s->program, &s->addresses, &s->socks};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        fd_close(*all[i]);
        *all[i] = -1;
    }
}
