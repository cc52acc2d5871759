#pragma once
/* Internet addresses as a decision needs them, made from bytes that the workload wrote.  Pure. */
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/macro.h"

/* A private copy of what the caller passed; never read again from the caller. */
struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage space;
    } u;
    socklen_t len;
};

enum address_use { ADDRESS_CONNECT, ADDRESS_BIND, ADDRESS_SEND };

/* Where it really points: IPv4-mapped IPv6 is IPv4. */
struct endpoint {
    int family;     /* AF_INET, AF_INET6; AF_UNSPEC: no destination (connect: disconnect) */
    uint8_t ip[16]; /* network order; AF_INET uses the first 4 */
    uint16_t port;
    uint32_t scope;
    bool has_v4;   /* IPv6 that carries an IPv4 address (NAT64, 6to4, v4-compatible): */
    uint8_t v4[4]; /* a policy must look at both */
};

/*
 * Reads the address the way the kernel will for a socket of `domain`.  0; 1: the kernel takes it as "no
 * address"; -EINVAL: too short; -EAFNOSUPPORT.  What is refused here must not be passed on.
 */
int address_parse(const struct address *a, int domain, enum address_use use, struct endpoint *ret);
#define ENDPOINT_TEXT_MAX 64
void endpoint_format(const struct endpoint *p, char out[ENDPOINT_TEXT_MAX]); /* "1.2.3.4:80", "[::1]:80" */
