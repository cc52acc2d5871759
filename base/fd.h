#pragma once
/*
 * Descriptors: whole reads and writes, passing over AF_UNIX, flags.  Every descriptor made here is
 * close-on-exec; -1 means none.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

void fd_close(int fd); /* negative is fine; errno is kept; never retried (Linux frees the fd even on EINTR) */
void fd_close_all(int *fds, size_t n);

/* 0 or -errno. -EPIPE when the other side ended first. */
int fd_write_all(int fd, const void *buf, size_t n);
/* Exactly n bytes. 1: end of file before the first byte. -EPIPE: end of file in the middle. */
int fd_read_exact(int fd, void *buf, size_t n);
/* Reads to the end, at most max bytes (-EFBIG above). *ret is NUL-terminated and the caller's. */
int fd_read_all(int fd, size_t max, char **ret, size_t *ret_len, struct err *e);
int file_read(int dir, const char *path, size_t max, char **ret, size_t *ret_len, struct err *e);
/* One write(2) of the whole text to an existing file (cgroup, procfs). */
int file_write(int dir, const char *path, const char *text, struct err *e);
/* New file by temporary name and rename, so that readers see all or nothing. */
int file_replace(int dir, const char *path, const char *text, mode_t mode, struct err *e);

int fd_set_nonblock(int fd, bool on);
int fd_set_cloexec(int fd, bool on);

/* One message with descriptors over a SOCK_SEQPACKET or SOCK_DGRAM pair. The fds stay the caller's. */
int fd_send_msg(int sock, const void *buf, size_t n, const int *fds, size_t n_fds);
/*
 * Receives one message. *ret_n gets its length; fds beyond *n_fds are closed and give -EMSGSIZE;
 * *n_fds is set to the number received, which become the caller's. 1: the peer closed.
 */
int fd_recv_msg(int sock, void *buf, size_t size, size_t *ret_n, int *fds, size_t *n_fds);

int parse_u64(const char *text, uint64_t max, uint64_t *ret); /* decimal, whole string; -EINVAL/-ERANGE */
