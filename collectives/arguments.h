/*
 * arguments.h - what a caller of a collective may pass.
 *
 * Role:   the checks that this rank can make alone, and what is left out of the buffers where a rank
 *         has no part in them. What ranks must pass equally is compared on the wire.
 * Thread: any; nothing is kept.
 */
#ifndef GY_ARGUMENTS_H
#define GY_ARGUMENTS_H

#include "../src/comm.h"

/* ARG, with the function, the argument and the rule. */
gyre_status gy_check_call(const gyre_comm *comm, const struct gy_call *call);
/* After the check: buffers that this rank has nothing of become NULL, and where the root may leave
 * `out` away it becomes the place of its own data in `in`. */
void gy_settle_call(const gyre_comm *comm, struct gy_call *call);

#endif
