#pragma once
/* What the ttrpc methods of the shim share: the runtime they call, and how they answer. */
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <time.h>

#include "shim/ttrpc/server.h"
#include "types.pb-c.h"

struct events;
struct loop;
struct rt_event_info;
struct runtime;
enum rt_event;

struct service {
    struct loop *loop;
    struct runtime *rt;
    struct events *events;
    const char *ns;
    bool closing;                 /* no new containers */
    bool shutdown_due;            /* Shutdown came while the last containers were being deleted */
    void (*shutdown)(void *data); /* the last container is gone and Shutdown was called */
    void (*created)(void *data);  /* a container was created: the pod has a name now */
    void *data;
};

/* All methods of all services on the socket; data of each is the struct service. */
extern const struct ttrpc_method service_methods[];
extern const size_t service_n_methods;

/* msg may be NULL: the empty message. */
void service_reply(struct ttrpc_call *call, const ProtobufCMessage *msg);
void service_error(struct ttrpc_call *call, int code, const struct err *e);
/* NULL: the bytes are no such message, and the call is answered. */
ProtobufCMessage *service_unpack(struct ttrpc_call *call, const ProtobufCMessageDescriptor *type,
                                 const uint8_t *payload, size_t len);
Google__Protobuf__Timestamp service_time(const struct timespec *t);
/* Packs msg; the caller frees. */
uint8_t *service_pack(const ProtobufCMessage *msg, size_t *ret_len);

/* Runtime events to containerd's; data is the struct service. */
void service_publish(void *data, enum rt_event event, const struct rt_event_info *info);

/*
 * A method body with its arguments unpacked and freed around it:
 * METHOD(State, containerd__task__v2__state_request, Containerd__Task__V2__StateRequest) { ... s, call, req
 * ... }
 */
#define METHOD(name, prefix, type)                                                                           \
    static void do_##name(struct service *s, struct ttrpc_call *call, const type *req);                      \
    static void on_##name(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len)           \
    {                                                                                                        \
        ProtobufCMessage *msg = service_unpack(call, &prefix##__descriptor, payload, len);                   \
        if (!msg)                                                                                            \
            return;                                                                                          \
        do_##name(data, call, (const type *)(const void *)msg);                                              \
        protobuf_c_message_free_unpacked(msg, NULL);                                                         \
    }                                                                                                        \
    static void do_##name(struct service *s UNUSED, struct ttrpc_call *call, const type *req UNUSED)
