/*
 * inprocess.h - several ranks' real engines in one thread, joined by links whose every step a
 * seeded scheduler decides.
 *
 * The links have no buffer: bytes move only from a posted send into a posted receive. The scheduler
 * chooses which link moves, how many bytes (splitting at any element), which engine makes a pass,
 * and how late a send is reported done. A send's source is checksummed when its bytes have moved
 * and again when it is reported: a program that overwrites it in between is caught.
 */
#ifndef TEST_INPROCESS_H
#define TEST_INPROCESS_H

#include "engine.h"

struct world;

struct world_config {
  int nranks;
  uint32_t slice_bytes, window;
  uint64_t seed;
};

struct world *world_create(const struct world_config *config);
void world_free(struct world *w);
struct gy_engine *world_engine(struct world *w, int rank);
/* Makes rank use this program for (algo, key); takes it. */
void world_install(struct world *w, int rank, const struct gy_algo *algo, const struct gy_key *key,
                   struct gy_program *program);
/* All calls use this algorithm from now on. */
void world_algo(struct world *w, const char *name);
/* Runs until every request is done. NULL if all went well, else what went wrong: a deadlock
 * (nothing can move), a source overwritten while its send was in flight, frames that do not
 * match. */
const char *world_run(struct world *w, gyre_request **req, int n);

#endif
