#pragma once
/*
 * Leads new TCP connections of a network namespace to one listener, when they come from an address of
 * this node: a program at the socket look-up (BPF_PROG_TYPE_SK_LOOKUP, Linux 5.9).  It touches no packet
 * filter, and it is gone when the last descriptor is, whatever becomes of the shim.
 */
#include "base/err.h"

struct steer {
    int socks, addresses, program, link; /* -1: none */
};
#define STEER_NONE                                                                                           \
    {                                                                                                        \
        -1, -1, -1, -1                                                                                       \
    }

/* listener: listening, IPv6 for both families, or IPv4.  Both descriptors stay the caller's. */
int steer_init(struct steer *s, int net_ns, int listener, struct err *e);
void steer_done(struct steer *s);
