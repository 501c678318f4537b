/*
 * geometry.h - from (chunk, slice) to bytes.
 *
 * Role:   the one place that knows how a count of elements is cut into chunks and a chunk into
 *         slices. Both ends of a link compute the same cuts from the same agreed numbers.
 * Thread: pure functions.
 */
#ifndef GY_GEOMETRY_H
#define GY_GEOMETRY_H

#include <stddef.h>
#include <stdint.h>
#include "schedule.h"

struct gy_blocks {        /* GY_VARY, in elements */
  const size_t *length;   /* by range */
  const size_t *start[2]; /* of IN, of OUT: by chunk */
};

struct gy_geometry {
  size_t count;       /* elements of the call */
  size_t esize;       /* bytes of an element */
  size_t chunk_elems; /* GY_SPLIT: elements of every chunk but the last ones; GY_BLOCK: count */
  size_t slice_bytes; /* a multiple of 64, so of every element size */
  struct gy_blocks blocks; /* GY_VARY: set by the caller after init, who keeps the arrays */
  uint16_t n_chunk;
  uint8_t layout;
};

/* A whole number of 64-byte lines per chunk, so later chunks may be short or empty. */
void gy_geometry_init(struct gy_geometry *g, const struct gy_program *p, size_t count, size_t esize,
                      size_t slice_bytes);
/* Byte offset of a chunk of GY_IN or GY_OUT, and bytes of a chunk's length; ranges from n_chunk on are
 * weights (weights.h). */
size_t gy_chunk_offset(const struct gy_geometry *g, unsigned buf, unsigned chunk);
size_t gy_chunk_bytes(const struct gy_geometry *g, unsigned range);
size_t gy_longest_bytes(const struct gy_geometry *g);
/* At least 1: an empty chunk still has slice 0, which carries the call's descriptor. */
uint32_t gy_chunk_slices(const struct gy_geometry *g, unsigned range);
/* Bytes of slice s of a chunk. */
size_t gy_slice_bytes(const struct gy_geometry *g, unsigned range, uint32_t slice);

#endif
