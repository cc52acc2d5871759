#pragma once
/* glovebox.shim.v1.Control: the whole pod, for the node agent.  data is the struct service. */
#include "shim/ttrpc/server.h"

void control_pause(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len);
void control_resume(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len);
void control_status(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len);
void control_set_egress(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len);
