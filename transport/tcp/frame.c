/* frame.c - see frame.h. */
#include "frame.h"

#include "../../src/crc32c.h"

#define FLAG_SUMS 1u
#define SUM_AT 36u /* of the header's checksum */

static void put(uint8_t *out, uint64_t v, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++) out[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *in, unsigned bytes) {
  uint64_t v = 0;
  for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)in[i] << (8 * i);
  return v;
}

void gy_frame_encode(const struct gy_frame *f, size_t head, uint8_t *out) {
  out[0] = f->type;
  out[1] = head == GY_FRAME_SUMMED ? FLAG_SUMS : 0;
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
  if (head < GY_FRAME_SUMMED) return;
  put(out + 32, f->payload_sum, 4);
  put(out + SUM_AT, gy_crc32c(0, out, SUM_AT), 4);
}

uint32_t gy_frame_sum(const uint8_t *in) { return gy_crc32c(0, in, SUM_AT); }
uint32_t gy_frame_stated_sum(const uint8_t *in) { return (uint32_t)get(in + SUM_AT, 4); }

bool gy_frame_decode(const uint8_t *in, size_t head, struct gy_frame *f) {
  *f = (struct gy_frame){.type = in[0],
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
  uint8_t flags = head == GY_FRAME_SUMMED ? FLAG_SUMS : 0;
  if (flags) f->payload_sum = (uint32_t)get(in + 32, 4);
  return f->type == GY_FRAME_SLICE && in[1] == flags && f->offset >= head &&
         f->offset < head + GY_FRAME_LINE && (f->bytes > GY_FRAME_SMALL || f->offset == head);
}
