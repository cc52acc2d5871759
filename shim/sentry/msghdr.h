#pragma once
/* A message as the workload laid it out in its memory (x86-64), checked before anything is done with it.
 * Pure. */
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/macro.h"

struct wire_msghdr { /* struct user_msghdr of the kernel */
    uint64_t name;
    int32_t name_len;
    uint32_t pad0;
    uint64_t iov, iov_len;
    uint64_t control, control_len;
    uint32_t flags, pad1;
};
struct wire_mmsghdr {
    struct wire_msghdr h;
    uint32_t sent, pad;
};
_Static_assert(sizeof(struct wire_msghdr) == 56 && sizeof(struct wire_mmsghdr) == 64, "x86-64 ABI");
_Static_assert(sizeof(struct iovec) == 16, "x86-64 ABI");

#define MSG_IOV_MAX      1024  /* UIO_MAXIOV */
#define MSG_DATAGRAM_MAX 65535 /* larger ones the kernel refuses as well */
#define MSG_CONTROL_MAX  512

/* 0, or the errno that the kernel gives: -EINVAL, -EMSGSIZE, -ENOBUFS. */
int msghdr_check(const struct wire_msghdr *h);
/* The sum of the parts: bytes, or -EINVAL, -EMSGSIZE. */
int64_t msghdr_data_bytes(const struct iovec *iov, size_t n);
/* Control messages of datagrams: source address and header fields only. 0 or -EINVAL. */
int msghdr_control_check(const void *control, size_t n);
