/*
 * fault.h - transports that do harm on request, and what a transport does for them.
 *
 * A transport whose link has a gy_tamper obeys it in each of its reads and writes; one whose link
 * has none pays a comparison with NULL. docs/faults.md is the page for users.
 *
 * Thread: the driving thread.
 */
#ifndef GY_FAULT_TRANSPORT_H
#define GY_FAULT_TRANSPORT_H

#include "../transport.h"

#define GY_TAMPER_NEVER UINT64_MAX

struct gy_tamper {  /* of one link */
  uint32_t most;    /* bytes of one read or write at most, drawn anew for each; 0: no limit */
  uint8_t flip;     /* the bits to be flipped in byte flip_at */
  bool struck;      /* the cut or the flip has happened: once is enough */
  uint64_t dice;    /* of this link */
  uint64_t sent;    /* bytes so far; kept by the transport */
  uint64_t cut_at;  /* the link is cut when so many bytes are sent */
  uint64_t flip_at; /* counted like `sent`; moved on if it is padding */
};

/* xorshift64* (Vigna 2016). */
static inline uint64_t gy_tamper_draw(uint64_t *dice, uint64_t below) {
  *dice ^= *dice >> 12;
  *dice ^= *dice << 25;
  *dice ^= *dice >> 27;
  return (*dice * UINT64_C(2685821657736338717) >> 16) % below;
}

static inline uint64_t gy_tamper_seed(uint64_t seed, int rank, int peer, unsigned lane) {
  uint64_t dice = (seed + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)rank << 40 ^
                  (uint64_t)peer << 20 ^ lane;
  if (!dice) dice = 1;
  for (int i = 0; i < 8; i++) gy_tamper_draw(&dice, 2);
  return dice;
}

/* A transport with the faults of settings->fault. */
extern const struct gy_tl_ops gy_fault_tcp_ops, gy_fault_shm_ops;

#endif
