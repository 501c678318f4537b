/* frame.c - see frame.h. */
#include "frame.h"

static void put(uint8_t *out, uint64_t v, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++) out[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *in, unsigned bytes) {
  uint64_t v = 0;
  for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)in[i] << (8 * i);
  return v;
}

void gy_frame_encode(const struct gy_frame *f, uint8_t out[GY_FRAME_BYTES]) {
  out[0] = f->type;
  out[1] = f->flags;
  put(out + 2, f->offset, 2);
  put(out + 4, f->bytes, 4);
  put(out + 8, f->index, 4);
  out[12] = f->call.coll;
  out[13] = f->call.dtype;
  out[14] = f->call.op;
  out[15] = f->call.algo;
  put(out + 16, f->call.seq & UINT32_MAX, 4);
  put(out + 20, f->call.root, 4);
  put(out + 24, f->call.count, 8);
}

bool gy_frame_decode(const uint8_t in[GY_FRAME_BYTES], struct gy_frame *f) {
  *f = (struct gy_frame){.type = in[0],
                         .flags = in[1],
                         .offset = (uint16_t)get(in + 2, 2),
                         .bytes = (uint32_t)get(in + 4, 4),
                         .index = (uint32_t)get(in + 8, 4),
                         .call = {.seq = get(in + 16, 4),
                                  .count = get(in + 24, 8),
                                  .root = (uint32_t)get(in + 20, 4),
                                  .coll = in[12],
                                  .dtype = in[13],
                                  .op = in[14],
                                  .algo = in[15]}};
  return f->type == GY_FRAME_SLICE && f->flags == 0 && f->offset >= GY_FRAME_BYTES &&
         f->offset <= GY_FRAME_MAX_OFFSET &&
         (f->bytes > GY_FRAME_SMALL || f->offset == GY_FRAME_BYTES);
}
