/*
 * dump_signal.h - has the flight recorder written on a signal (GYRE_TRACE_SIGNAL).
 *
 * Role:   one handler for the process wakes the loop of every context that asked for this signal;
 *         the file is written there, so it comes whether the application waits in Gyre or sits in
 *         its own code. What handled the signal before is called afterwards, and is back when the
 *         last of these contexts has ended.
 * Thread: the driving thread, locked. The handler: any.
 * Owner:  the context.
 */
#ifndef GY_DUMP_SIGNAL_H
#define GY_DUMP_SIGNAL_H

#include "context.h"

struct gy_dump_signal;

/* *out NULL: the setting asks for none. NOMEM, SYS; STATE: too many contexts have asked. */
gyre_status gy_dump_signal_open(gyre_context *ctx, struct gy_dump_signal **out);
void gy_dump_signal_close(struct gy_dump_signal *s); /* NULL is fine */

#endif
