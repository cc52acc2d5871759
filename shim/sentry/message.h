#pragma once
/*
 * What the shim and the sentry say to each other over their SOCK_SEQPACKET pair: one fixed struct per
 * message, so that neither side parses anything.
 */
#include <stdint.h>

enum message_type {
    MESSAGE_NONE,
    /* sentry -> shim */
    MESSAGE_READY,      /* value 0, or -errno with text; a descriptor: a test socket for the guard */
    MESSAGE_DONE,       /* answers the request with the same cookie: value 0 or -errno */
    MESSAGE_TASK_QUERY, /* value: a thread id; what is it, and does it have a signal to take? */
    MESSAGE_CUT, /* a socket to destroy; value: family << 16 | protocol, a: local port << 16 | remote port,
                    text: the two addresses, 16 bytes each */
    /* shim -> sentry */
    MESSAGE_LISTENER, /* a descriptor; text: the container's id */
    MESSAGE_QUIESCE,  /* DONE when nothing short is in flight */
    MESSAGE_RELEASE,  /* text: a container, no answer; or none: of all, DONE when nothing at all is in flight
                       */
    MESSAGE_RESUME,
    MESSAGE_LIMITS,  /* a: thousandths of a CPU, b: bytes */
    MESSAGE_POLICY,  /* a descriptor with `a` bytes of JSON; none: no policy any more */
    MESSAGE_CONFIRM, /* the policy's lease starts anew */
    MESSAGE_DNS,     /* a descriptor: a socket of the answerer; value: enum dns_socket, a: family; text: the
                        address it listens on */
    MESSAGE_SEARCH,  /* text: a search domain of the pod's resolv.conf */
    MESSAGE_TASK,    /* answers TASK_QUERY: value: the process id or -errno, a: a signal is pending */
};

struct message {
    uint32_t type;
    int32_t value;
    uint64_t cookie;
    int64_t a, b;
    char text[96]; /* terminated */
};
