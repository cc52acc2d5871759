#pragma once
/* The handlers, by system call.  Each answers its call. */
#include "shim/sentry/call.h"

void calls_answer(struct call *call);

void on_socket(struct call *call);
void on_connect(struct call *call);
void on_bind(struct call *call);
void on_listen(struct call *call);
void on_sendto(struct call *call);
void on_sendmsg(struct call *call);
void on_sendmmsg(struct call *call);
void on_sendfile(struct call *call);
void on_sysinfo(struct call *call);
void on_getaffinity(struct call *call);
