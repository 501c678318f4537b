/*
 * ran.h - which algorithm an operation ran by.
 *
 * Role:   reads it off the communicator's flight recorder; the cost model chooses for each size, so
 *         that what was asked for does not say it.
 * Thread: the caller's. Owner: nobody.
 */
#ifndef PERF_RAN_H
#define PERF_RAN_H

#include <stdbool.h>
#include "gyre/gyre.h"

#define PERF_ALGO_BYTES 64

/* The algorithm of the last operation whose description begins so: "all_reduce(f32 x 1024". False
 * if it is not recorded (any more, or GYRE_TRACE_OPS=0). */
bool perf_algorithm_that_ran(gyre_comm *comm, const char *what, char out[PERF_ALGO_BYTES]);

#endif
