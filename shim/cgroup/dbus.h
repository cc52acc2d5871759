#pragma once
/*
 * As much of D-Bus as a request to systemd takes: one blocking connection over a Unix socket to a peer
 * (systemd's own socket, no bus daemon between), messages out by appending values, messages in one by one.
 * Little-endian only.  Internal to shim/cgroup.
 */
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"

struct dbus;
int dbus_connect(const char *socket, struct dbus **ret, struct err *e);
void dbus_free(struct dbus *d);

/* ---- out: append the values of a body in the order of its signature ---- */
void dbus_put_u32(struct strbuf *b, uint32_t v);
void dbus_put_string(struct strbuf *b, const char *s); /* also an object path */
void dbus_put_signature(struct strbuf *b, const char *s);
void dbus_align(struct strbuf *b, size_t n);
/* An array whose elements are aligned to n: begin gives what end needs. */
size_t dbus_array_begin(struct strbuf *b, size_t n);
void dbus_array_end(struct strbuf *b, size_t begin, size_t n);
/* One element of an a(sv). */
void dbus_prop_string(struct strbuf *b, const char *name, const char *value);
void dbus_prop_bool(struct strbuf *b, const char *name, bool value);
void dbus_prop_u64(struct strbuf *b, const char *name, uint64_t value);
void dbus_prop_pids(struct strbuf *b, const char *name, uint32_t pid);
void dbus_prop_bytes(struct strbuf *b, const char *name, const uint8_t *bytes, size_t n);

struct dbus_call {
    const char *destination, *path, *interface, *member, *signature;
    const struct strbuf *body;
};
/* Sends a method call; *ret_serial is what the answer refers to. */
int dbus_send(struct dbus *d, const struct dbus_call *call, uint32_t *ret_serial, struct err *e);

/* ---- in ---- */
enum dbus_type { DBUS_CALL = 1, DBUS_RETURN, DBUS_ERROR, DBUS_SIGNAL };
struct dbus_in {
    enum dbus_type type;
    uint32_t reply_to;
    const char *member, *error_name, *signature; /* "" when absent; all of it valid until the next call */
    const uint8_t *body;
    size_t len;
};
/* The next message, whatever it is; -ETIMEDOUT at the deadline (clock_mono_ms). */
int dbus_receive(struct dbus *d, int64_t deadline_ms, struct dbus_in *ret, struct err *e);
/* Reads one value at *at, which moves on; NULL or false: the body is too short. */
const char *dbus_get_string(const struct dbus_in *m, size_t *at);
bool dbus_get_u32(const struct dbus_in *m, size_t *at, uint32_t *ret);
/* Pure: the message at the start of data. 0: *ret, *ret_size; 1: more bytes are needed; -EPROTO: no message.
 */
int dbus_parse(const uint8_t *data, size_t len, struct dbus_in *ret, size_t *ret_size);
