/*
 * frame.h - the header in front of every slice on a TCP link.
 *
 * Wire (little-endian). A frame is header, padding, payload, padding; its length is the next
 * multiple of 64 bytes.
 *    0  u8  type (1: slice)
 *    1  u8  flags: bit 0: checksums follow at 32, on every frame of a communicator or on none
 *    2  u16 payload offset from the start of the frame: the end of the header and up to 63 more; the
 *           former if the payload has at most GY_FRAME_SMALL bytes
 *    4  u32 payload bytes
 *    8  u32 message index on this link and direction
 *   12  u8  collective  13 u8 type  14 u8 operator  15 u8 algorithm
 *   16  u32 sequence number of the operation, low half
 *   20  u32 root
 *   24  u64 count
 *   32  u32 CRC-32C of the payload
 *   36  u32 CRC-32C of the 36 bytes before
 *
 * The header has a checksum of its own, because the receiver must believe the length before it can
 * know where a payload ends.
 *
 * Why the padding: the kernel copies with `rep movsb`, which runs at two thirds of its speed unless
 * source and destination are equal modulo 64. A frame starts on a line of the kernel's buffer, so
 * the sender lets its payload start where its own buffer does within a line; buffers that are alike
 * on both ends are then copied fast on both.
 */
#ifndef GY_TCP_FRAME_H
#define GY_TCP_FRAME_H

#include "../transport.h"

#define GY_FRAME_BYTES 32u  /* header without checksums */
#define GY_FRAME_SUMMED 40u /* and with them */
#define GY_FRAME_MAX_OFFSET (GY_FRAME_SUMMED + GY_FRAME_LINE - 1)
#define GY_FRAME_LINE 64u
#define GY_FRAME_SMALL 32768u
#define GY_FRAME_SLICE 1u

struct gy_frame {
  uint8_t type;
  uint16_t offset;
  uint32_t bytes, index;
  uint32_t payload_sum;      /* with checksums */
  struct gy_descriptor call; /* call.seq is the low half only */
};

/* Writes a header of `head` bytes, GY_FRAME_BYTES or GY_FRAME_SUMMED. */
void gy_frame_encode(const struct gy_frame *f, size_t head, uint8_t *out);
/* Bytes of padding behind a payload. */
static inline size_t gy_frame_tail(size_t offset, size_t bytes) {
  return -(offset + bytes) % GY_FRAME_LINE;
}
/* The checksum that a header of GY_FRAME_SUMMED bytes should have, and the one it has. */
uint32_t gy_frame_sum(const uint8_t *in);
uint32_t gy_frame_stated_sum(const uint8_t *in);
/* False: not a frame with a header of this length. Checksums are the caller's to compare. */
bool gy_frame_decode(const uint8_t *in, size_t head, struct gy_frame *f);

#endif
