/*
 * wire.c - writing and reading message bodies: little-endian, bounds-checked (declared in
 * channel.h).
 *
 * Role:   a writer grows by itself and a reader never leaves its bytes; both remember a failure,
 *         so that a message is written or read straight through and checked once at its end.
 * Thread: any; plain data.
 */
#include <stdlib.h>
#include <string.h>
#include "channel.h"

enum { FAMILY_V4 = 4, FAMILY_V6 = 6 }; /* on the wire; AF_* differ between systems */

/* --------------------------------------------------------------------------------- writer --- */

void gy_w_free(struct gy_writer *w) {
  if (w->data != w->own) free(w->data);
  w->data = NULL;
  w->len = w->capacity = 0;
  w->failed = false;
}

/* Never smaller than `own`. */
static bool reserve(struct gy_writer *w, size_t capacity) {
  if (!w->data && capacity <= sizeof w->own) {
    w->data = w->own;
    w->capacity = sizeof w->own;
    return true;
  }
  bool moves = w->data == w->own;
  if (capacity < 2 * w->capacity) capacity = 2 * w->capacity;
  uint8_t *data = realloc(moves ? NULL : w->data, capacity);
  if (!data) return false;
  if (moves) memcpy(data, w->own, w->len);
  w->data = data;
  w->capacity = capacity;
  return true;
}

static uint8_t *grow(struct gy_writer *w, size_t len) {
  if (w->failed) return NULL;
  if (len > w->capacity - w->len && !reserve(w, w->len + len)) {
    w->failed = true;
    return NULL;
  }
  uint8_t *at = w->data + w->len;
  w->len += len;
  return at;
}

static void put(struct gy_writer *w, uint64_t v, size_t bytes) {
  uint8_t *at = grow(w, bytes);
  for (size_t i = 0; at && i < bytes; i++) at[i] = (uint8_t)(v >> (8 * i));
}

void gy_w_u8(struct gy_writer *w, uint8_t v) { put(w, v, 1); }
void gy_w_u16(struct gy_writer *w, uint16_t v) { put(w, v, 2); }
void gy_w_u32(struct gy_writer *w, uint32_t v) { put(w, v, 4); }
void gy_w_u64(struct gy_writer *w, uint64_t v) { put(w, v, 8); }
void gy_w_i32(struct gy_writer *w, int32_t v) { put(w, (uint32_t)v, 4); }

void gy_w_bytes(struct gy_writer *w, const void *data, size_t len) {
  uint8_t *at = grow(w, len);
  if (at && len > 0) memcpy(at, data, len);
}

void gy_w_text(struct gy_writer *w, const char *text) {
  size_t len = strnlen(text, UINT16_MAX);
  gy_w_u16(w, (uint16_t)len);
  gy_w_bytes(w, text, len);
}

void gy_w_address(struct gy_writer *w, const struct gy_address *a) {
  if (a->sa.any.sa_family == AF_INET6) {
    gy_w_u8(w, FAMILY_V6);
    gy_w_u16(w, gy_address_port(a));
    gy_w_bytes(w, &a->sa.v6.sin6_addr, 16);
    gy_w_u32(w, a->sa.v6.sin6_scope_id);
  } else {
    gy_w_u8(w, FAMILY_V4);
    gy_w_u16(w, gy_address_port(a));
    gy_w_bytes(w, &a->sa.v4.sin_addr, 4);
  }
}

/* --------------------------------------------------------------------------------- reader --- */

static const uint8_t *take(struct gy_reader *r, size_t len) {
  if (r->failed || len > r->len - r->pos) {
    r->failed = true;
    return NULL;
  }
  const uint8_t *at = r->data + r->pos;
  r->pos += len;
  return at;
}

static uint64_t get(struct gy_reader *r, size_t bytes) {
  const uint8_t *at = take(r, bytes);
  uint64_t v = 0;
  for (size_t i = 0; at && i < bytes; i++) v |= (uint64_t)at[i] << (8 * i);
  return v;
}

uint8_t gy_r_u8(struct gy_reader *r) { return (uint8_t)get(r, 1); }
uint16_t gy_r_u16(struct gy_reader *r) { return (uint16_t)get(r, 2); }
uint32_t gy_r_u32(struct gy_reader *r) { return (uint32_t)get(r, 4); }
uint64_t gy_r_u64(struct gy_reader *r) { return get(r, 8); }
int32_t gy_r_i32(struct gy_reader *r) { return (int32_t)(uint32_t)get(r, 4); }

void gy_r_bytes(struct gy_reader *r, void *out, size_t len) {
  const uint8_t *at = take(r, len);
  if (len == 0) return;
  if (at) memcpy(out, at, len);
  else memset(out, 0, len);
}

void gy_r_text(struct gy_reader *r, char *out, size_t capacity) {
  size_t len = gy_r_u16(r);
  const uint8_t *at = take(r, len);
  size_t kept = !at ? 0 : len < capacity ? len : capacity - 1;
  if (kept > 0) memcpy(out, at, kept);
  out[kept] = '\0';
}

void gy_r_address(struct gy_reader *r, struct gy_address *out) {
  struct gy_address a;
  memset(&a, 0, sizeof a);
  uint8_t family = gy_r_u8(r);
  uint16_t port = gy_r_u16(r);
  if (family == FAMILY_V6) {
    a.sa.v6.sin6_family = AF_INET6;
    gy_r_bytes(r, &a.sa.v6.sin6_addr, 16);
    a.sa.v6.sin6_scope_id = gy_r_u32(r);
  } else {
    if (family != FAMILY_V4) r->failed = true;
    a.sa.v4.sin_family = AF_INET;
    gy_r_bytes(r, &a.sa.v4.sin_addr, 4);
  }
  if (r->failed) {
    memset(&a, 0, sizeof a);
    a.sa.v4.sin_family = AF_INET;
  } else {
    gy_address_set_port(&a, port);
  }
  *out = a;
}
