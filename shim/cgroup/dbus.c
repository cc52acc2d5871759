#include "shim/cgroup/dbus.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/scoped.h"

#define MESSAGE_MAX  (1u << 20)
#define HEADER_FIXED 16
#define AUTH_MS      5000

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are written in the order of the machine");

struct dbus {
    int fd;
    uint32_t serial;
    struct strbuf in; /* received, beginning with a message */
    size_t done;      /* length of the message that was handed out last */
};
SCOPED_DEFINE(struct dbus, dbus_free)

/* Codes of header fields. */
enum {
    FIELD_PATH = 1,
    FIELD_INTERFACE,
    FIELD_MEMBER,
    FIELD_ERROR_NAME,
    FIELD_REPLY_SERIAL,
    FIELD_DESTINATION,
    FIELD_SENDER,
    FIELD_SIGNATURE
};

void dbus_free(struct dbus *d)
{
    if (!d)
        return;
    fd_close(d->fd);
    strbuf_done(&d->in);
    free(d);
}

/* ---- out ------------------------------------------------------------------------------------------------
 */

void dbus_align(struct strbuf *b, size_t n)
{
    while (b->len % n && !b->overflow)
        strbuf_putc(b, '\0');
}

void dbus_put_u32(struct strbuf *b, uint32_t v)
{
    dbus_align(b, 4);
    strbuf_add(b, &v, sizeof v);
}

static void put_u64(struct strbuf *b, uint64_t v)
{
    dbus_align(b, 8);
    strbuf_add(b, &v, sizeof v);
}

void dbus_put_string(struct strbuf *b, const char *s)
{
    size_t n = strlen(s);
    dbus_put_u32(b, (uint32_t)n);
    strbuf_add(b, s, n + 1);
}

void dbus_put_signature(struct strbuf *b, const char *s)
{
    size_t n = strlen(s);
    strbuf_putc(b, (char)n);
    strbuf_add(b, s, n + 1);
}

size_t dbus_array_begin(struct strbuf *b, size_t n)
{
    dbus_put_u32(b, 0);
    size_t at = b->len - 4;
    dbus_align(b, n); /* not counted in the length */
    return at;
}

void dbus_array_end(struct strbuf *b, size_t begin, size_t n)
{
    size_t first = (begin + 4 + n - 1) / n * n;
    uint32_t len = (uint32_t)(b->len - first);
    if (!b->overflow)
        memcpy(b->data + begin, &len, sizeof len);
}

static void prop(struct strbuf *b, const char *name, const char *signature)
{
    dbus_align(b, 8);
    dbus_put_string(b, name);
    dbus_put_signature(b, signature);
}

void dbus_prop_string(struct strbuf *b, const char *name, const char *value)
{
    prop(b, name, "s");
    dbus_put_string(b, value);
}

void dbus_prop_bool(struct strbuf *b, const char *name, bool value)
{
    prop(b, name, "b");
    dbus_put_u32(b, value);
}

void dbus_prop_u64(struct strbuf *b, const char *name, uint64_t value)
{
    prop(b, name, "t");
    put_u64(b, value);
}

void dbus_prop_pids(struct strbuf *b, const char *name, uint32_t pid)
{
    prop(b, name, "au");
    size_t list = dbus_array_begin(b, 4);
    dbus_put_u32(b, pid);
    dbus_array_end(b, list, 4);
}

void dbus_prop_bytes(struct strbuf *b, const char *name, const uint8_t *bytes, size_t n)
{
    prop(b, name, "ay");
    size_t list = dbus_array_begin(b, 1);
    strbuf_add(b, bytes, n);
    dbus_array_end(b, list, 1);
}

static void put_field(struct strbuf *b, unsigned char code, const char *type, const char *value)
{
    if (!value)
        return;
    dbus_align(b, 8);
    strbuf_putc(b, (char)code);
    dbus_put_signature(b, type);
    if (type[0] == 'g')
        dbus_put_signature(b, value);
    else
        dbus_put_string(b, value);
}

int dbus_send(struct dbus *d, const struct dbus_call *call, uint32_t *ret_serial, struct err *e)
{
    scoped_strbuf struct strbuf m;
    strbuf_init(&m, MESSAGE_MAX);

    strbuf_add(&m, (const char[]){'l', DBUS_CALL, 0, 1}, 4);
    dbus_put_u32(&m, (uint32_t)call->body->len);
    dbus_put_u32(&m, ++d->serial);
    size_t fields = dbus_array_begin(&m, 8);
    put_field(&m, FIELD_PATH, "o", call->path);
    put_field(&m, FIELD_DESTINATION, "s", call->destination);
    put_field(&m, FIELD_INTERFACE, "s", call->interface);
    put_field(&m, FIELD_MEMBER, "s", call->member);
    put_field(&m, FIELD_SIGNATURE, "g", call->signature);
    dbus_array_end(&m, fields, 8);
    dbus_align(&m, 8);
    strbuf_add(&m, call->body->data, call->body->len);
    if (m.overflow || call->body->overflow)
        return err_set(e, -E2BIG, "message to systemd is too long");

    int r = fd_write_all(d->fd, m.data, m.len);
    if (r < 0)
        return err_set(e, r, "write to systemd: %s", strerror(-r));
    *ret_serial = d->serial;
    return 0;
}

/* ---- in --------------------------------------------------------------------------------------------------
 */

struct cursor {
    const uint8_t *data;
    size_t len, at;
};

static bool get_u32(struct cursor *c, uint32_t *ret)
{
    size_t at = (c->at + 3) & ~(size_t)3;
    if (at > c->len || c->len - at < 4)
        return false;
    memcpy(ret, c->data + at, 4);
    c->at = at + 4;
    return true;
}

/* n bytes and a NUL. */
static const char *get_text(struct cursor *c, size_t n)
{
    if (c->at >= c->len || n >= c->len - c->at || c->data[c->at + n] != '\0')
        return NULL;
    const char *text = (const char *)c->data + c->at;
    c->at += n + 1;
    return text;
}

static const char *get_string(struct cursor *c)
{
    uint32_t n;
    return get_u32(c, &n) ? get_text(c, n) : NULL;
}

static const char *get_signature(struct cursor *c)
{
    if (c->at >= c->len)
        return NULL;
    size_t n = c->data[c->at++];
    return get_text(c, n);
}

const char *dbus_get_string(const struct dbus_in *m, size_t *at)
{
    struct cursor c = {.data = m->body, .len = m->len, .at = *at};
    const char *s = get_string(&c);
    *at = c.at;
    return s;
}

bool dbus_get_u32(const struct dbus_in *m, size_t *at, uint32_t *ret)
{
    struct cursor c = {.data = m->body, .len = m->len, .at = *at};
    bool good = get_u32(&c, ret);
    *at = c.at;
    return good;
}

/* One header field: a code and a value with its type. */
static bool parse_field(struct cursor *c, struct dbus_in *m)
{
    c->at = (c->at + 7) & ~(size_t)7;
    if (c->at >= c->len)
        return false;
    uint8_t code = c->data[c->at++];
    const char *type = get_signature(c), *value = NULL;
    uint32_t number = 0;

    if (!type)
        return false;
    if (strcmp(type, "u") == 0   ? !get_u32(c, &number)
        : strcmp(type, "g") == 0 ? !(value = get_signature(c))
                                 : !(value = get_string(c)))
        return false;
    if (code == FIELD_REPLY_SERIAL)
        m->reply_to = number;
    else if (code == FIELD_MEMBER && value)
        m->member = value;
    else if (code == FIELD_ERROR_NAME && value)
        m->error_name = value;
    else if (code == FIELD_SIGNATURE && value)
        m->signature = value;
    return true;
}

int dbus_parse(const uint8_t *data, size_t len, struct dbus_in *ret, size_t *ret_size)
{
    uint32_t body, fields;

    if (len < HEADER_FIXED)
        return 1;
    memcpy(&body, data + 4, 4);
    memcpy(&fields, data + 12, 4);
    if (data[0] != 'l' || data[3] != 1 || body > MESSAGE_MAX || fields > MESSAGE_MAX)
        return -EPROTO;
    size_t header = (HEADER_FIXED + (size_t)fields + 7) & ~(size_t)7;
    if (len < header + body)
        return 1;

    *ret = (struct dbus_in){
        .type = data[1], .member = "", .error_name = "", .signature = "", .body = data + header, .len = body};
    struct cursor c = {.data = data, .len = HEADER_FIXED + fields, .at = HEADER_FIXED};
    while (c.at < c.len)
        if (!parse_field(&c, ret))
            return -EPROTO;
    *ret_size = header + body;
    return 0;
}

static int wait_readable(int fd, int64_t deadline_ms, struct err *e)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t left = deadline_ms - clock_mono_ms();
    int r = left > 0 ? poll(&p, 1, (int)MIN(left, INT64_C(60000))) : 0;

    if (r < 0 && errno != EINTR)
        return err_sys(e, "poll");
    if (r == 0)
        return err_set(e, -ETIMEDOUT, "systemd does not answer");
    return 0;
}

/* Whatever is there goes to the end of d->in. */
static int receive_more(struct dbus *d, int64_t deadline_ms, struct err *e)
{
    int r = wait_readable(d->fd, deadline_ms, e);
    if (r < 0)
        return r;
    char *room = strbuf_reserve(&d->in, 4096);
    if (!room)
        return err_set(e, -EMSGSIZE, "message of systemd is too long");
    ssize_t n = recv(d->fd, room, 4096, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n < 0)
        return err_sys(e, "read from systemd");
    if (n == 0)
        return err_set(e, -ECONNRESET, "systemd closed the connection");
    d->in.len += (size_t)n;
    return 0;
}

int dbus_receive(struct dbus *d, int64_t deadline_ms, struct dbus_in *ret, struct err *e)
{
    strbuf_drop(&d->in, d->done);
    d->done = 0;
    for (;;) {
        int r = dbus_parse((const uint8_t *)d->in.data, d->in.len, ret, &d->done);
        if (r == 0)
            return 0;
        if (r < 0)
            return err_set(e, r, "systemd sent what is no D-Bus message");
        r = receive_more(d, deadline_ms, e);
        if (r < 0)
            return r;
    }
}

/* ---- connection ------------------------------------------------------------------------------------------
 */

/*
 * "I am the user that the kernel says I am", and no descriptors are passed.  BEGIN goes along at once, as
 * systemd's own clients do it: when it comes together with the first message instead, systemd (252) reads
 * both, and looks at the message only when more arrives.
 */
static int authenticate(struct dbus *d, struct err *e)
{
    char line[64], uid[16];
    int n = snprintf(uid, sizeof uid, "%u", (unsigned)geteuid());
    int at = 1 + snprintf(line, sizeof line, "%cAUTH EXTERNAL ", 0) - 1;
    for (int i = 0; i < n; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, "%02x", (unsigned)uid[i]);
    at += snprintf(line + at, sizeof line - (size_t)at, "\r\nBEGIN\r\n");
    int r = fd_write_all(d->fd, line, (size_t)at);

    int64_t deadline = clock_mono_ms() + AUTH_MS;
    while (r == 0 && !memmem(d->in.data, d->in.len, "\r\n", 2))
        r = receive_more(d, deadline, e);
    if (r < 0)
        return r;
    if (strncmp(d->in.data, "OK ", 3) != 0)
        return err_set(e, -EACCES, "systemd refuses the connection");
    const char *end = memmem(d->in.data, d->in.len, "\r\n", 2);
    strbuf_drop(&d->in, (size_t)(end + 2 - d->in.data)); /* a first message may have come with it */
    return 0;
}

int dbus_connect(const char *socket_path, struct dbus **ret, struct err *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    scoped(dbus_free) struct dbus *d = xcalloc(1, sizeof *d);

    strbuf_init(&d->in, 2 * MESSAGE_MAX);
    d->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (d->fd < 0)
        return err_sys(e, "socket");
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", socket_path);
    if (connect(d->fd, (struct sockaddr *)&to, sizeof to) < 0)
        return err_sys(e, "connect to %s", socket_path);
    int r = authenticate(d, e);
    if (r < 0)
        return r;
    *ret = take(d);
    return 0;
}
