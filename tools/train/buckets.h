/*
 * buckets.h - sums one flat array over all ranks, piece by piece, while it is still being computed.
 *
 * Role: the only file of the trainer that moves gradients. Thread: the trainer's only one. Owner of
 * the array and of the requests in flight.
 *
 * The array is cut into buckets of equal size. The trainer fills it from the front and says how far
 * it has got (buckets_ready); each bucket that is complete is posted at once as an asynchronous
 * all-reduce in place. Gyre moves it while the trainer computes on. At the end the trainer waits
 * for the buckets in the same order (buckets_wait) and uses each as it arrives.
 *
 * Every rank posts the same buckets in the same order, which is the rule of Gyre: the cuts depend
 * on the array's length and the bucket's size alone, never on timing.
 */
#ifndef TRAIN_BUCKETS_H
#define TRAIN_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>

#include "gyre/gyre.h"

struct buckets {
  gyre_comm *comm; /* NULL: a trainer alone, nothing to sum */
  float *data;     /* count elements; owned */
  size_t count;
  size_t each;            /* elements of a bucket; the last may be shorter */
  size_t total;           /* number of buckets */
  size_t posted;          /* buckets [0, posted) have been posted in this step */
  gyre_request **request; /* one per bucket, NULL when none is in flight; owned */
  double waited;          /* seconds spent in gyre_wait since creation: what was not overlapped */
};

/* A bucket's size in bytes when the user names none: a quarter of the array, between 32 KiB (below
 * it latency counts more than bandwidth) and 4 MiB (above it nothing is gained). It is a rule and
 * not a measurement because the cuts decide the order of summation: a measured size would give
 * other last bits in every run. */
size_t buckets_default_bytes(size_t count);

bool buckets_create(struct buckets *b, gyre_comm *comm, size_t count, size_t bucket_bytes);
/* Elements [0, end) of `data` are final in this step. Posts every bucket that this completes. */
gyre_status buckets_ready(struct buckets *b, size_t end);
/* Waits until bucket i holds the sum over all ranks; *first and *count say which elements it is.
 * After the last bucket the next step may begin. */
gyre_status buckets_wait(struct buckets *b, size_t i, size_t *first, size_t *count);
/* With operations in flight, abort the communicator first: then they end at once. */
void buckets_destroy(struct buckets *b);

#endif
