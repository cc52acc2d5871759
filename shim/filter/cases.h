#pragma once
/* Register conditions of the rows in rules.tbl.  Included by rule.c only. */
#include <errno.h>
#include <stdint.h>

#include "shim/filter/condition.h"

/* clang-format off */
#define O_CLOEXEC_  0x80000U
#define O_NONBLOCK_ 0x800U

/* ---- memory ---- */
/* SHARED PRIVATE FIXED ANONYMOUS 32BIT DENYWRITE EXECUTABLE NORESERVE POPULATE NONBLOCK STACK FIXED_NOREPLACE
 * UNINITIALIZED. Not: GROWSDOWN (stack-growth bugs), LOCKED, HUGETLB, SYNC, DROPPABLE. */
CASES(mmap) = {
    NATIVE(BITS64(2, 0x7), BITS64(3, 0x1 | 0x2 | 0x10 | 0x20 | 0x40 | 0x800 | 0x1000 | 0x4000 | 0x8000 | 0x10000 |
                                     0x20000 | 0x100000 | 0x4000000)),
    DENY(ENOMEM, HAS(3, 0x40000)), /* HUGETLB: as with an empty pool */
    DENY(EAGAIN, HAS(3, 0x2000)),  /* LOCKED: as over RLIMIT_MEMLOCK */
    DENY(EOPNOTSUPP, HAS(3, 0x80000)), /* SYNC */
};
CASES(mprotect) = {NATIVE(BITS64(2, 0x7))};
CASES(mremap) = {NATIVE(BITS64(3, 0x3))}; /* MAYMOVE FIXED */
/* NORMAL RANDOM SEQUENTIAL WILLNEED DONTNEED FREE DONTFORK DOFORK HUGEPAGE NOHUGEPAGE DONTDUMP DODUMP WIPEONFORK
 * KEEPONFORK POPULATE_READ POPULATE_WRITE. Not: REMOVE, MERGEABLE (a side channel), poisoning, COLD/PAGEOUT
 * (page cache shared with others), guard regions (glibc falls back to mprotect). */
static const uint32_t advice[] = {0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19, 22, 23};
CASES(madvise) = {NATIVE(IN(2, advice))};
CASES(shmget) = {NATIVE(BITS(2, 0777 | 01000 | 02000 | 010000))}; /* mode CREAT EXCL NORESERVE; not HUGETLB */
CASES(shmat) = {NATIVE(BITS(2, 010000 | 020000))};                /* RDONLY RND */
static const uint32_t shm_commands[] = {0, 1, 2, 3, 13, 14, 15}; /* RMID SET STAT INFO SHM_STAT SHM_INFO STAT_ANY */
CASES(shmctl) = {NATIVE(IN_MASK(1, ~0x100U, shm_commands))};      /* 0x100: IPC_64, set by some libcs */
CASES(memfd_create) = {NATIVE(BITS(1, 0x1 | 0x2 | 0x8 | 0x10))};  /* CLOEXEC ALLOW_SEALING NOEXEC_SEAL EXEC */
/* QUERY GLOBAL PRIVATE_EXPEDITED(+REGISTER) SYNC_CORE(+REGISTER) GET_REGISTRATIONS; not the global expedited ones */
static const uint32_t membarriers[] = {0, 1, 8, 16, 32, 64, 512};
CASES(membarrier) = {NATIVE(IN(0, membarriers), IS(1, 0))};

/* ---- descriptors ---- */
CASES(pipe2) = {NATIVE(BITS(1, O_CLOEXEC_ | O_NONBLOCK_))}; /* not NOTIFICATION_PIPE (O_EXCL), not O_DIRECT */
CASES(dup3) = {NATIVE(BITS(2, O_CLOEXEC_))};
CASES(eventfd2) = {NATIVE(BITS(1, O_CLOEXEC_ | O_NONBLOCK_ | 1))};
CASES(epoll_create1) = {NATIVE(BITS(0, O_CLOEXEC_))};
CASES(signalfd4) = {NATIVE(BITS(3, O_CLOEXEC_ | O_NONBLOCK_))};
CASES(inotify_init1) = {NATIVE(BITS(0, O_CLOEXEC_ | O_NONBLOCK_))};
CASES(accept4) = {NATIVE(BITS(3, O_CLOEXEC_ | O_NONBLOCK_))};
CASES(close_range) = {NATIVE(BITS(2, 0x4))}; /* CLOEXEC; UNSHARE would split the descriptor table */
/* DUPFD GETFD SETFD GETFL SETFL GETLK SETLK SETLKW SETOWN GETOWN SETSIG GETSIG SETOWN_EX GETOWN_EX OFD_* DUPFD_QUERY
 * CREATED_QUERY DUPFD_CLOEXEC SETPIPE_SZ GETPIPE_SZ ADD_SEALS GET_SEALS. Not: SETLEASE, NOTIFY (stall other openers). */
static const uint32_t fcntl_commands[] = {0,  1,  2,  3,  4,    5,    6,    7,    8,    9,    10,  11,
                                          15, 16, 36, 37, 38, 1027, 1028, 1030, 1031, 1032, 1033, 1034};
CASES(fcntl) = {NATIVE(IN(1, fcntl_commands))};
CASES(fallocate) = {NATIVE(BITS(1, 0x1 | 0x2 | 0x10))};    /* KEEP_SIZE PUNCH_HOLE ZERO_RANGE */
CASES(preadv2) = {NATIVE(BITS(5, 0x2 | 0x4 | 0x8 | 0x10))}; /* DSYNC SYNC NOWAIT APPEND */
CASES(renameat2) = {NATIVE(BITS(4, 0x1 | 0x2))};            /* NOREPLACE EXCHANGE; not WHITEOUT */
/* Regular files, FIFOs and sockets; the kernel's mode is 16 bits wide. */
static const uint32_t node_types[] = {0, 0100000, 0010000, 0140000};
CASES(mknod) = {NATIVE(IN_MASK(1, 0170000, node_types))};
CASES(mknodat) = {NATIVE(IN_MASK(2, 0170000, node_types))};
static const uint32_t ioctls[] = {
    0x2,                                                        /* FIGETBSZ */
    0x5401, 0x5402, 0x5403, 0x5404,                             /* TCGETS TCSETS TCSETSW TCSETSF */
    0x5409, 0x540a, 0x540b,                                     /* TCSBRK TCXONC TCFLSH */
    0x540c, 0x540d, 0x540e, 0x540f, 0x5410, 0x5411,             /* TIOC: EXCL NXCL SCTTY GPGRP SPGRP OUTQ */
    0x5413, 0x5414, 0x541b, 0x5420, 0x5421, 0x5422,             /* GWINSZ SWINSZ FIONREAD TIOCPKT FIONBIO NOTTY */
    0x5425, 0x5429, 0x5441, 0x5450, 0x5451, 0x5452, 0x5460,     /* TCSBRKP GSID GPTPEER FION/FIOCLEX ASYNC QSIZE */
    0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d,             /* TCGETS2 TCSETS2 TCSETSW2 TCSETSF2 */
    0x80045430, 0x40045431, 0x80045438, 0x80045439, 0x80045440, /* GPTN SPTLCK GPKT GPTLCK GEXCL */
    /* Interfaces, read only, as the descriptor's own network namespace has them: NAME CONF FLAGS ADDR DSTADDR
     * BRDADDR NETMASK METRIC MTU HWADDR INDEX TXQLEN */
    0x8910, 0x8912, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x8921, 0x8927, 0x8933, 0x8942,
};
static const uint32_t clone_ioctls[] = {0x40049409, 0x4020940d}; /* FICLONE FICLONERANGE */
CASES(ioctl) = {NATIVE(IN(1, ioctls)), DENY(EOPNOTSUPP, IN(1, clone_ioctls))};

/* ---- processes ---- */
/* CSIGNAL VM FS FILES SIGHAND PIDFD VFORK THREAD SYSVSEM SETTLS PARENT_SETTID CHILD_CLEARTID DETACHED CHILD_SETTID IO.
 * Not: NEW*, PTRACE, UNTRACED, and PARENT, which would make a child of our own runtime. A thread must share the
 * descriptor table, or the sentry would judge the wrong descriptor. */
#define CLONE_BITS 0x817d5fffULL
#define CLONE_FILES_ 0x400U
#define CLONE_THREAD_ 0x10000U
static const uint32_t thread_with_files[] = {CLONE_THREAD_ | CLONE_FILES_};
CASES(clone) = {
    NATIVE(BITS64(0, CLONE_BITS), IN_MASK(0, CLONE_THREAD_ | CLONE_FILES_, thread_with_files)),
    NATIVE(BITS64(0, CLONE_BITS & ~(uint64_t)CLONE_THREAD_)),
};
/* The caller itself: the pod's CPUs. Another process, by a number that only the kernel can translate: its real mask. */
CASES(sched_getaffinity) = {EMULATE(IS(0, 0)), NATIVE(GIVEN(0))};
CASES(unshare) = {NATIVE(BITS64(0, 0x200 | 0x40000))}; /* FS SYSVSEM */
CASES(execveat) = {NATIVE(BITS(4, 0x1000 | 0x100))};   /* AT_EMPTY_PATH AT_SYMLINK_NOFOLLOW */
static const uint32_t id_types[] = {0, 1, 2, 3};       /* ALL PID PGID PIDFD */
CASES(waitid) = {NATIVE(IN(0, id_types))};
static const uint32_t personalities[] = {0, 0xffffffff, 0x40000}; /* query; ADDR_NO_RANDOMIZE */
CASES(personality) = {NATIVE(IN(0, personalities))};
static const uint32_t policies[] = {0, 3, 5}; /* OTHER BATCH IDLE */
CASES(sched_setscheduler) = {NATIVE(IN_MASK(1, ~0x40000000U, policies))};
/* PDEATHSIG DUMPABLE KEEPCAPS NAME GET_SECCOMP CAPBSET_READ CAPBSET_DROP GET_TSC SECUREBITS TIMERSLACK
 * CHILD_SUBREAPER NO_NEW_PRIVS GET_TID_ADDRESS THP_DISABLE CAP_AMBIENT SPECULATION_CTRL MDWE SET_VMA GET_AUXV */
static const uint32_t prctls[] = {1,  2,  3,  4,  7,  8,  15, 16, 21, 23, 24, 25, 27,         28,        29,
                                  30, 36, 37, 38, 39, 40, 41, 42, 47, 52, 53, 65, 66, 0x53564d41, 0x41555856};
static const uint32_t seccomp_modes[] = {1, 2};
CASES(prctl) = {
    NATIVE(IN(0, prctls)),
    NATIVE(IS(0, 22), IN(1, seccomp_modes)), /* SET_SECCOMP: only narrows */
    DENY(0, IS(0, 0x59616d61)),              /* SET_PTRACER: nobody traces here */
};
/* SET_GS SET_FS GET_FS GET_GS GET_XCOMP_SUPP GET_XCOMP_PERM REQ_XCOMP_PERM */
static const uint32_t arch_prctls[] = {0x1001, 0x1002, 0x1003, 0x1004, 0x1021, 0x1022, 0x1023};
CASES(arch_prctl) = {NATIVE(IN(0, arch_prctls))};
static const uint32_t seccomp_queries[] = {2, 3}; /* GET_ACTION_AVAIL GET_NOTIF_SIZES */
CASES(seccomp) = {
    NATIVE(IS(0, 0)),                                   /* strict mode */
    NATIVE(IS(0, 1), BITS64(1, 0x1 | 0x2 | 0x4 | 0x10)), /* filter: TSYNC LOG SPEC_ALLOW TSYNC_ESRCH */
    NATIVE(IN(0, seccomp_queries)),
    DENY(EBUSY, IS(0, 1), HAS(1, 0x8)), /* a second listener: what the kernel would say */
};
CASES(rseq) = {NATIVE(BITS(2, 0x1))};
CASES(getrandom) = {NATIVE(BITS(2, 0x7))};
CASES(pidfd_open) = {NATIVE(BITS(1, O_NONBLOCK_))};
CASES(pidfd_send_signal) = {NATIVE(IS(3, 0))};

/* ---- futex, time ---- */
static const uint32_t futex_ops[] = {0, 1, 3, 4, 5, 9, 10}; /* WAIT WAKE REQUEUE CMP_REQUEUE WAKE_OP *_BITSET */
CASES(futex) = {NATIVE(IN_MASK(1, ~0x180U, futex_ops))};   /* PRIVATE, CLOCK_REALTIME; PI operations: ENOSYS */
static const uint32_t clocks[] = {0, 1, 7};                 /* REALTIME MONOTONIC BOOTTIME: no CPU-time timers */
CASES(timer_create) = {NATIVE(IN(0, clocks))};
CASES(timerfd_create) = {NATIVE(IN(0, clocks), BITS(1, O_CLOEXEC_ | O_NONBLOCK_))};
CASES(timerfd_settime) = {NATIVE(BITS(1, 0x1))}; /* ABSTIME; not CANCEL_ON_SET */
CASES(clock_nanosleep) = {NATIVE(IN(0, clocks))};
CASES(setitimer) = {NATIVE(IS(0, 0))}; /* REAL */

/* ---- sockets ---- */
#define TYPE_MASK (~(O_CLOEXEC_ | O_NONBLOCK_))
static const uint32_t unix_types[] = {1, 2, 5};
static const uint32_t unix_protocols[] = {0, 1};
static const uint32_t inet_families[] = {2, 10};
static const uint32_t stream[] = {1}, dgram[] = {2}, raw[] = {3}, netlink_types[] = {2, 3};
static const uint32_t tcp_protocols[] = {0, 6}, udp_protocols[] = {0, 17};
static const uint32_t filtered_families[] = {2, 10, 16};
#define SOCKET_CASE(family, types, protocols) family, IN_MASK(1, TYPE_MASK, types), IN(2, protocols)
static const uint32_t route[] = {0};
CASES(socket) = {
    NATIVE(SOCKET_CASE(IS(0, 1), unix_types, unix_protocols)),
    BROKER(SOCKET_CASE(IN(0, inet_families), stream, tcp_protocols)),
    BROKER(SOCKET_CASE(IN(0, inet_families), dgram, udp_protocols)),
    EMULATE(SOCKET_CASE(IS(0, 16), netlink_types, route)),
    DENY(EPERM, IN(0, inet_families), IN_MASK(1, TYPE_MASK, raw)),
    DENY(EPROTONOSUPPORT, IN(0, filtered_families)),
    DENY(EPROTONOSUPPORT, IS(0, 1)),
};
CASES(socketpair) = {NATIVE(SOCKET_CASE(IS(0, 1), unix_types, unix_protocols))};
/* DONTWAIT EOR CONFIRM NOSIGNAL MORE. Not: OOB, FASTOPEN (an unseen connect), ZEROCOPY. */
#define SEND_FLAGS (0x40 | 0x80 | 0x800 | 0x4000 | 0x8000)
/* PEEK TRUNC DONTWAIT WAITALL ERRQUEUE NOSIGNAL CMSG_CLOEXEC. Not: OOB. */
#define RECV_FLAGS (0x2 | 0x20 | 0x40 | 0x100 | 0x2000 | 0x4000 | 0x40000000)
CASES(sendto) = {NATIVE(BITS(3, SEND_FLAGS), IS64(4, 0)), BROKER(BITS(3, SEND_FLAGS))};
CASES(sendmsg) = {BROKER(BITS(2, SEND_FLAGS))};
CASES(sendmmsg) = {BROKER(BITS(3, SEND_FLAGS))};
CASES(recvfrom) = {NATIVE(BITS(3, RECV_FLAGS))};
CASES(recvmsg) = {NATIVE(BITS(2, RECV_FLAGS))};
CASES(recvmmsg) = {NATIVE(BITS(3, RECV_FLAGS | 0x10000))}; /* WAITFORONE */

/* REUSEADDR BROADCAST SNDBUF RCVBUF KEEPALIVE PRIORITY LINGER REUSEPORT PASSCRED RCVLOWAT RCVTIMEO SNDTIMEO TIMESTAMP
 * TIMESTAMPNS PEEK_OFF TIMESTAMP_NEW TIMESTAMPNS_NEW RCVTIMEO_NEW SNDTIMEO_NEW PASSPIDFD PASSRIGHTS */
#define SOCKET_SET 2, 6, 7, 8, 9, 12, 13, 15, 16, 18, 20, 21, 29, 35, 42, 63, 64, 66, 67, 76, 83
static const uint32_t socket_set[] = {SOCKET_SET};
/* TYPE ERROR PEERCRED ACCEPTCONN PROTOCOL DOMAIN INCOMING_CPU COOKIE PEERGROUPS PEERPIDFD, and SO_OOBINLINE (10),
 * whose value is always 0 here */
static const uint32_t socket_get[] = {SOCKET_SET, 3, 4, 10, 17, 19, 30, 38, 39, 49, 57, 59, 77};
/* NODELAY CORK KEEPIDLE KEEPINTVL KEEPCNT SYNCNT LINGER2 DEFER_ACCEPT QUICKACK USER_TIMEOUT NOTSENT_LOWAT */
#define TCP_SET 1, 3, 4, 5, 6, 7, 8, 9, 12, 18, 25
static const uint32_t tcp_set[] = {TCP_SET};
static const uint32_t tcp_get[] = {TCP_SET, 2, 10, 11, 13}; /* MAXSEG WINDOW_CLAMP INFO CONGESTION */
/* TOS TTL PKTINFO MTU_DISCOVER RECVERR RECVTTL RECVTOS BIND_ADDRESS_NO_PORT MULTICAST_{IF,TTL,LOOP,ALL} */
#define IP_SET 1, 2, 8, 10, 11, 12, 13, 24, 32, 33, 34, 49
static const uint32_t ip_set[] = {IP_SET};
static const uint32_t ip_get[] = {IP_SET, 14}; /* MTU */
/* UNICAST_HOPS MULTICAST_{IF,HOPS,LOOP,ALL} MTU_DISCOVER MTU RECVERR V6ONLY RECVPKTINFO RECVHOPLIMIT DONTFRAG RECVTCLASS TCLASS */
#define IPV6_SET 16, 17, 18, 19, 23, 24, 25, 26, 29, 49, 51, 62, 66, 67
static const uint32_t ipv6_set[] = {IPV6_SET};
static const uint32_t privileged_options[] = {25, 32, 33, 36}; /* BINDTODEVICE SNDBUFFORCE RCVBUFFORCE MARK */
CASES(setsockopt) = {
    NATIVE(IS(1, 1), IN(2, socket_set)),
    NATIVE(IS(1, 6), IN(2, tcp_set)),
    NATIVE(IS(1, 0), IN(2, ip_set)),
    NATIVE(IS(1, 41), IN(2, ipv6_set)),
    DENY(ENOENT, IS(1, 6), IS(2, 31)), /* TCP_ULP: what a kernel without the protocol module says */
    DENY(EPERM, IS(1, 1), IN(2, privileged_options)),
    DENY(EPERM, IS(1, 6), IS(2, 19)), /* TCP_REPAIR */
};
CASES(getsockopt) = {
    NATIVE(IS(1, 1), IN(2, socket_get)),
    NATIVE(IS(1, 6), IN(2, tcp_get)),
    NATIVE(IS(1, 0), IN(2, ip_get)),
    NATIVE(IS(1, 41), IN(2, ipv6_set)),
};
/* clang-format on */
