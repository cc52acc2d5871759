#include "shim/service/service.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "shim/ttrpc/code.h"

uint8_t *service_pack(const ProtobufCMessage *msg, size_t *ret_len)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    uint8_t *buf = xcalloc(1, n + 1);

    *ret_len = protobuf_c_message_pack(msg, buf);
    return buf;
}

void service_reply(struct ttrpc_call *call, const ProtobufCMessage *msg)
{
    size_t len = 0;
    scoped_free uint8_t *buf = msg ? service_pack(msg, &len) : NULL;

    ttrpc_reply(call, buf, len);
}

void service_error(struct ttrpc_call *call, int code, const struct err *e)
{
    ttrpc_reply_error(call, ttrpc_code_from_errno(code), err_text(e));
}

ProtobufCMessage *service_unpack(struct ttrpc_call *call, const ProtobufCMessageDescriptor *type,
                                 const uint8_t *payload, size_t len)
{
    ProtobufCMessage *msg = protobuf_c_message_unpack(type, NULL, len, payload);

    if (!msg)
        ttrpc_reply_error(call, TTRPC_INVALID_ARGUMENT, "the request is malformed: invalid argument");
    return msg;
}

Google__Protobuf__Timestamp service_time(const struct timespec *t)
{
    Google__Protobuf__Timestamp out;

    google__protobuf__timestamp__init(&out);
    out.seconds = t->tv_sec;
    out.nanos = (int32_t)t->tv_nsec;
    return out;
}
