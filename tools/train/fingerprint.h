/*
 * fingerprint.h - do all ranks have the same bytes? A 64-bit hash of them, compared across ranks.
 *
 * Role: finds ranks that were started with other data or options, and weights that differ in any
 * bit. Thread: the trainer's only one.
 */
#ifndef TRAIN_FINGERPRINT_H
#define TRAIN_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

#include "gyre/gyre.h"

#define FINGERPRINT_INIT UINT64_C(0xcbf29ce484222325)

uint64_t fingerprint_add(uint64_t fingerprint, const void *bytes, size_t n);
/* A collective. *odd is the first rank whose fingerprint is not rank 0's, -1 if all are equal: the
 * same on every rank. */
gyre_status fingerprint_compare(gyre_comm *comm, uint64_t fingerprint, int *odd);

#endif
