/*
 * checked.h - collectives whose results are compared with what they must be.
 *
 * Role:   the work of ranks under faults. What round k is follows from a seed, equal on all ranks.
 * Thread: any, one at a time for each communicator.
 */
#ifndef FAULT_CHECKED_H
#define FAULT_CHECKED_H

#include "world.h"

/* One collective, or a message to each neighbour, of up to max_count elements; its status. A result
 * that was returned as OK and is wrong ends the process with status WRONG_RESULT and a message. */
gyre_status checked_round(gyre_comm *comm, unsigned seed, unsigned round, size_t max_count);
#define WRONG_RESULT 7

/* Well mixed bits of two numbers. */
uint64_t mix(uint64_t a, uint64_t b);

#endif
