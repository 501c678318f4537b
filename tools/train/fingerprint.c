/*
 * fingerprint.c - see fingerprint.h. The hash is FNV-1a.
 */
#include "fingerprint.h"

#include <stdlib.h>

uint64_t fingerprint_add(uint64_t fingerprint, const void *bytes, size_t n) {
  const uint8_t *b = bytes;
  for (size_t i = 0; i < n; i++) fingerprint = (fingerprint ^ b[i]) * UINT64_C(0x100000001b3);
  return fingerprint;
}

gyre_status fingerprint_compare(gyre_comm *comm, uint64_t fingerprint, int *odd) {
  int world = gyre_comm_size(comm);
  uint64_t *all = calloc((size_t)world, sizeof *all);
  if (!all) return GYRE_ERR_NOMEM;
  gyre_status s = gyre_all_gather(comm, &fingerprint, all, 1, GYRE_U64);
  if (s == GYRE_OK) {
    *odd = -1;
    for (int r = world - 1; r > 0; r--)
      if (all[r] != all[0]) *odd = r;
  }
  free(all);
  return s;
}
