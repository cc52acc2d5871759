#pragma once
/*
 * The frame of ttrpc: a ten byte header (length and stream big endian, type, flags), then `length`
 * bytes.  Pure: no descriptors, no allocation.
 */
#include <stdint.h>

#define TTRPC_HEADER      10
#define TTRPC_PAYLOAD_MAX (4u << 20) /* both directions, as the Go implementation has it */

enum { TTRPC_REQUEST = 1, TTRPC_RESPONSE = 2, TTRPC_DATA = 3 };
/* Bits that say how a stream goes on after its first frame; all clear for a plain call. */
enum { TTRPC_REMOTE_CLOSED = 1, TTRPC_REMOTE_OPEN = 2, TTRPC_NO_DATA = 4 };

struct ttrpc_frame {
    uint32_t len, stream;
    uint8_t type, flags;
};

void ttrpc_frame_encode(const struct ttrpc_frame *f, uint8_t out[TTRPC_HEADER]);
struct ttrpc_frame ttrpc_frame_decode(const uint8_t in[TTRPC_HEADER]);
