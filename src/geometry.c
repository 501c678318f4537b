/*
 * geometry.c - from (chunk, slice) to bytes.
 *
 * Role:   see geometry.h.
 * Thread: pure functions.
 */
#include "geometry.h"

#define LINE_BYTES 64u

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

void gy_geometry_init(struct gy_geometry *g, const struct gy_program *p, size_t count, size_t esize,
                      size_t slice_bytes) {
  g->count = count;
  g->esize = esize;
  g->slice_bytes = slice_bytes;
  g->n_chunk = p->n_chunk;
  g->layout = p->layout;
  g->chunk_elems = count;
  g->blocks = (struct gy_blocks){NULL, {NULL, NULL}};
  if (p->layout == GY_SPLIT && p->n_chunk > 1) {
    size_t line = LINE_BYTES / esize;
    size_t even = count / p->n_chunk + (count % p->n_chunk != 0);
    g->chunk_elems = (even + line - 1) / line * line;
  }
}

/* The element at which a chunk starts; `count` or less for a split buffer, whose last chunks may
 * be empty. */
static size_t chunk_start(const struct gy_geometry *g, unsigned chunk) {
  size_t start = chunk * g->chunk_elems;
  return g->layout == GY_BLOCK ? start : min_size(start, g->count);
}

size_t gy_chunk_offset(const struct gy_geometry *g, unsigned buf, unsigned chunk) {
  if (g->layout == GY_VARY) return g->blocks.start[buf][chunk] * g->esize;
  return chunk_start(g, chunk) * g->esize;
}

size_t gy_chunk_bytes(const struct gy_geometry *g, unsigned range) {
  if (range >= g->n_chunk) return sizeof(double); /* a weight */
  if (g->layout == GY_VARY) return g->blocks.length[range] * g->esize;
  if (g->layout == GY_BLOCK) return g->count * g->esize;
  return (chunk_start(g, range + 1) - chunk_start(g, range)) * g->esize;
}

size_t gy_longest_bytes(const struct gy_geometry *g) {
  if (g->layout != GY_VARY) return gy_chunk_bytes(g, 0);
  size_t longest = 0;
  for (unsigned r = 0; r < g->n_chunk; r++)
    if (g->blocks.length[r] > longest) longest = g->blocks.length[r];
  return longest * g->esize;
}

uint32_t gy_chunk_slices(const struct gy_geometry *g, unsigned range) {
  size_t bytes = gy_chunk_bytes(g, range);
  return bytes == 0 ? 1u : (uint32_t)((bytes - 1) / g->slice_bytes + 1);
}

size_t gy_slice_bytes(const struct gy_geometry *g, unsigned range, uint32_t slice) {
  size_t bytes = gy_chunk_bytes(g, range), start = slice * g->slice_bytes;
  return start < bytes ? min_size(g->slice_bytes, bytes - start) : 0;
}
