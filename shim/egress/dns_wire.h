#pragma once
/*
 * DNS messages (RFC 1035, EDNS RFC 6891) as the pod's answerer needs them: questions of hostile clients,
 * answers of the cluster's resolver.  Nothing is copied through: what goes out is built from scratch.
 * Pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/egress/grants.h"
#include "shim/egress/name.h"

#define DNS_MESSAGE_MAX   1232 /* UDP, both ways (DNS flag day 2020) */
#define DNS_ADDRESSES_MAX 16
#define DNS_CNAMES_MAX    8
enum dns_type { DNS_A = 1, DNS_PTR = 12, DNS_AAAA = 28, DNS_SVCB = 64, DNS_HTTPS = 65 };
enum dns_rcode { DNS_NOERROR, DNS_FORMERR, DNS_SERVFAIL, DNS_NXDOMAIN, DNS_NOTIMP, DNS_REFUSED };

struct dns_question {
    uint16_t id, type;
    bool recursion_desired, edns, bad_name; /* bad_name: well-formed, but no host name */
    char name[NAME_MAX_BYTES];              /* canonical */
    uint8_t wire[256];                      /* the name as the client wrote it, to echo it */
    size_t wire_len;
};
struct dns_answer {
    enum dns_rcode rcode;
    struct ip addresses[DNS_ADDRESSES_MAX];
    size_t n;
    uint32_t ttl; /* the smallest on the way */
};

/* 0; a positive rcode to answer with (*ret has id and flags); -EBADMSG: not worth an answer. */
int dns_question_parse(const uint8_t *msg, size_t len, struct dns_question *ret);
/* Bytes written, 0 = does not fit. */
size_t dns_query_build(const struct dns_question *q, uint16_t id, uint8_t *out, size_t size);
size_t dns_reply_build(const struct dns_question *q, const struct dns_answer *a, uint8_t *out, size_t size);
/* An upstream reply to a query built with this q and id.  -EBADMSG: not an answer to it. */
int dns_answer_parse(const uint8_t *msg, size_t len, const struct dns_question *q, uint16_t id,
                     struct dns_answer *ret);
