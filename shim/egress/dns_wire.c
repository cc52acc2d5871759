#include "shim/egress/dns_wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macro.h"

#define HEADER     12
#define CLASS_IN   1
#define TYPE_CNAME 5
#define TYPE_OPT   41
#define QR         0x8000
#define TC         0x0200
#define RD         0x0100
#define RA         0x0080
#define OPCODE     0x7800

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

/* A name without compression, as in a question. Its length on the wire, or 0. */
static size_t plain_name(const uint8_t *p, size_t len, char *dotted, size_t size, size_t *ret_len)
{
    size_t at = 0, n = 0;

    while (at < len && p[at]) {
        size_t label = p[at];
        if (label > 63 || at + 1 + label >= len || n + label + 1 > size)
            return 0;
        memcpy(dotted + n, p + at + 1, label);
        n += label;
        dotted[n++] = '.';
        at += 1 + label;
    }
    if (at >= len || at + 1 > 255)
        return 0;
    *ret_len = n;
    return at + 1;
}

int dns_question_parse(const uint8_t *msg, size_t len, struct dns_question *ret)
{
    char dotted[256];
    size_t n;

    memset(ret, 0, sizeof *ret);
    if (len < HEADER || get16(msg + 2) & QR)
        return -EBADMSG;
    ret->id = get16(msg);
    ret->recursion_desired = get16(msg + 2) & RD;
    if (get16(msg + 2) & OPCODE)
        return DNS_NOTIMP;
    /* One question, no answers, no authority; the additional section may hold the OPT record. */
    if (get16(msg + 4) != 1 || get16(msg + 6) || get16(msg + 8) || get16(msg + 10) > 2)
        return DNS_FORMERR;
    size_t wire = plain_name(msg + HEADER, len - HEADER, dotted, sizeof dotted, &n);
    if (!wire || len < HEADER + wire + 4)
        return DNS_FORMERR;
    const uint8_t *end = msg + HEADER + wire;
    ret->type = get16(end);
    ret->wire_len = wire;
    memcpy(ret->wire, msg + HEADER, wire);
    ret->edns =
        get16(msg + 10) > 0 && len >= HEADER + wire + 4 + 11 && end[4] == 0 && get16(end + 5) == TYPE_OPT;
    if (get16(end + 2) != CLASS_IN)
        return DNS_REFUSED;
    /* A dot or a NUL inside a label makes dotted text that would read as another name; canonical form rejects
     * it. */
    for (size_t i = 0, label = 0; i < wire - 1; i += label + 1) {
        label = msg[HEADER + i];
        if (memchr(msg + HEADER + i + 1, '.', label) || memchr(msg + HEADER + i + 1, 0, label))
            ret->bad_name = true;
    }
    if (ret->bad_name || name_canonical(dotted, n, ret->name) < 0)
        ret->bad_name = true;
    return 0;
}

static size_t put_name(const char *name, uint8_t *out, size_t size)
{
    size_t at = 0;

    for (const char *p = name; *p;) {
        size_t label = strcspn(p, ".");
        if (at + label + 2 > size)
            return 0;
        out[at++] = (uint8_t)label;
        memcpy(out + at, p, label);
        at += label;
        p += label + (p[label] == '.');
    }
    out[at++] = 0;
    return at;
}

size_t dns_query_build(const struct dns_question *q, uint16_t id, uint8_t *out, size_t size)
{
    if (size < HEADER + 4 + 11)
        return 0;
    memset(out, 0, HEADER);
    put16(out, id);
    put16(out + 2, RD);
    put16(out + 4, 1);
    put16(out + 10, 1);
    size_t name = put_name(q->name, out + HEADER, size - HEADER - 4 - 11);
    if (!name)
        return 0;
    uint8_t *p = out + HEADER + name;
    put16(p, q->type);
    put16(p + 2, CLASS_IN);
    memset(p + 4, 0, 11); /* OPT: root name, our UDP size, no flags, no options of the client's */
    put16(p + 5, TYPE_OPT);
    put16(p + 7, DNS_MESSAGE_MAX);
    return HEADER + name + 4 + 11;
}

size_t dns_reply_build(const struct dns_question *q, const struct dns_answer *a, uint8_t *out, size_t size)
{
    size_t at = HEADER + q->wire_len + (q->wire_len ? 4 : 0);
    unsigned count = 0;

    if (size < at + 11)
        return 0;
    memset(out, 0, HEADER);
    put16(out, q->id);
    put16(out + 2, (unsigned)QR | RA | (q->recursion_desired ? RD : 0U) | a->rcode);
    if (q->wire_len) {
        put16(out + 4, 1);
        memcpy(out + HEADER, q->wire, q->wire_len);
        put16(out + HEADER + q->wire_len, q->type);
        put16(out + HEADER + q->wire_len + 2, CLASS_IN);
    }
    for (size_t i = 0; i < a->n; i++) {
        bool v6 = a->addresses[i].family == AF_INET6;
        size_t bytes = v6 ? 16 : 4;
        if (at + 12 + bytes + 11 > size)
            break;
        put16(out + at, 0xc000 | HEADER); /* the question's name */
        put16(out + at + 2, v6 ? DNS_AAAA : DNS_A);
        put16(out + at + 4, CLASS_IN);
        put16(out + at + 6, a->ttl >> 16);
        put16(out + at + 8, a->ttl & 0xffff);
        put16(out + at + 10, (unsigned)bytes);
        memcpy(out + at + 12, a->addresses[i].bytes, bytes);
        at += 12 + bytes;
        count++;
    }
    put16(out + 6, count);
    if (q->edns) {
        memset(out + at, 0, 11);
        put16(out + at + 1, TYPE_OPT);
        put16(out + at + 3, DNS_MESSAGE_MAX);
        put16(out + 10, 1);
        at += 11;
    }
    return at;
}

/*
 * A possibly compressed name at msg[at]: its canonical form and where it ends.  Pointers must go back,
 * which bounds them. 0 or -EBADMSG; 1: well-formed, but no host name.
 */
static int read_name(const uint8_t *msg, size_t len, size_t at, char out[NAME_MAX_BYTES], size_t *ret_end)
{
    char dotted[256];
    size_t n = 0, end = 0, limit = at;

    for (;;) {
        if (at >= len)
            return -EBADMSG;
        unsigned c = msg[at];
        if ((c & 0xc0) == 0xc0) {
            if (at + 1 >= len)
                return -EBADMSG;
            size_t to = (size_t)(c & 0x3f) << 8 | msg[at + 1];
            end = end ? end : at + 2;
            if (to >= limit)
                return -EBADMSG;
            at = limit = to;
            continue;
        }
        if (c == 0)
            break;
        if (c > 63 || at + 1 + c > len || n + c + 1 > sizeof dotted)
            return -EBADMSG;
        memcpy(dotted + n, msg + at + 1, c);
        n += c;
        dotted[n++] = '.';
        at += 1 + c;
    }
    *ret_end = end ? end : at + 1;
    if (n == 0) {
        out[0] = '\0';
        return 1;
    }
    return name_canonical(dotted, n, out) < 0 ? 1 : 0;
}

struct record {
    char name[NAME_MAX_BYTES];
    uint16_t type, class;
    uint32_t ttl;
    size_t data, data_len;
    bool has_name;
};

/* The record at *at; 0, or -EBADMSG. */
static int read_record(const uint8_t *msg, size_t len, size_t *at, struct record *ret)
{
    size_t end;
    int r = read_name(msg, len, *at, ret->name, &end);

    if (r < 0 || end + 10 > len)
        return -EBADMSG;
    ret->has_name = r == 0;
    ret->type = get16(msg + end);
    ret->class = get16(msg + end + 2);
    ret->ttl = (uint32_t)get16(msg + end + 4) << 16 | get16(msg + end + 6);
    ret->data_len = get16(msg + end + 8);
    ret->data = end + 10;
    if (ret->data + ret->data_len > len)
        return -EBADMSG;
    *at = ret->data + ret->data_len;
    return 0;
}

/* The name that `name` is an alias of, 0 = none. One pass over the answer section. */
static int find_alias(const uint8_t *msg, size_t len, size_t at, unsigned count, char name[NAME_MAX_BYTES],
                      uint32_t *ttl)
{
    struct record rec;
    size_t end;

    for (unsigned i = 0; i < count; i++) {
        if (read_record(msg, len, &at, &rec) < 0)
            return -EBADMSG;
        if (rec.type != TYPE_CNAME || rec.class != CLASS_IN || !rec.has_name || strcmp(rec.name, name) != 0)
            continue;
        if (read_name(msg, len, rec.data, name, &end) != 0)
            return -EBADMSG;
        *ttl = MIN(*ttl, rec.ttl);
        return 1;
    }
    return 0;
}

static int collect(const uint8_t *msg, size_t len, size_t at, unsigned count, const char *name, uint16_t type,
                   struct dns_answer *ret)
{
    size_t bytes = type == DNS_AAAA ? 16 : 4;
    struct record rec;

    for (unsigned i = 0; i < count; i++) {
        if (read_record(msg, len, &at, &rec) < 0)
            return -EBADMSG;
        if (rec.type != type || rec.class != CLASS_IN || !rec.has_name || strcmp(rec.name, name) != 0 ||
            rec.data_len != bytes)
            continue;
        if (ret->n == DNS_ADDRESSES_MAX)
            break;
        struct ip *ip = &ret->addresses[ret->n++];
        *ip = (struct ip){.family = type == DNS_AAAA ? AF_INET6 : AF_INET};
        memcpy(ip->bytes, msg + rec.data, bytes);
        ret->ttl = MIN(ret->ttl, rec.ttl);
    }
    return 0;
}

int dns_answer_parse(const uint8_t *msg, size_t len, const struct dns_question *q, uint16_t id,
                     struct dns_answer *ret)
{
    char name[NAME_MAX_BYTES];
    size_t at;

    *ret = (struct dns_answer){.ttl = UINT32_MAX};
    if (len < HEADER || get16(msg) != id || !(get16(msg + 2) & QR) || get16(msg + 2) & OPCODE ||
        get16(msg + 4) != 1)
        return -EBADMSG;
    if (read_name(msg, len, HEADER, name, &at) != 0 || at + 4 > len || strcmp(name, q->name) != 0 ||
        get16(msg + at) != q->type || get16(msg + at + 2) != CLASS_IN)
        return -EBADMSG;
    at += 4;
    ret->rcode = get16(msg + 2) & 0xf;
    if (get16(msg + 2) & TC) /* what there is may be half a set */
        ret->rcode = DNS_SERVFAIL;
    if (ret->rcode != DNS_NOERROR)
        return 0;
    unsigned count = get16(msg + 6);
    for (int hops = 0;; hops++) {
        int r = find_alias(msg, len, at, count, name, &ret->ttl);
        if (r < 0 || hops > DNS_CNAMES_MAX)
            return -EBADMSG;
        if (r == 0)
            break;
    }
    return collect(msg, len, at, count, name, q->type, ret);
}
