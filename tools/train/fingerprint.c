/*
 * fingerprint.c - see fingerprint.h. The hash is FNV-1a's, a word at a time, so that a data set
 * costs milliseconds; the shift brings each word's upper bits back down.
 */
#include "fingerprint.h"

#include <stdlib.h>
#include <string.h>

uint64_t fingerprint_add(uint64_t fingerprint, const void *bytes, size_t n) {
  const uint8_t *b = bytes;
  while (n > 0) {
    uint64_t word = 0;
    size_t step = n < sizeof word ? n : sizeof word;
    memcpy(&word, b, step);
    fingerprint = (fingerprint ^ word) * UINT64_C(0x100000001b3);
    fingerprint ^= fingerprint >> 29;
    b += step;
    n -= step;
  }
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
