#include "shim/ttrpc/frame.h"

static void put_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void ttrpc_frame_encode(const struct ttrpc_frame *f, uint8_t out[TTRPC_HEADER])
{
    put_u32(out, f->len);
    put_u32(out + 4, f->stream);
    out[8] = f->type;
    out[9] = f->flags;
}

struct ttrpc_frame ttrpc_frame_decode(const uint8_t in[TTRPC_HEADER])
{
    return (struct ttrpc_frame){.len = get_u32(in), .stream = get_u32(in + 4), .type = in[8], .flags = in[9]};
}
