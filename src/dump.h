/*
 * dump.h - what this process knows of its communicators, as JSON.
 *
 * Role:   the one document of flight recorder files and live queries, described in
 *         docs/tracing.md.
 * Thread: the driving thread, locked.
 */
#ifndef GY_DUMP_H
#define GY_DUMP_H

#include "comm.h"
#include "json.h"

#define GY_DUMP_FORMAT 1 /* goes up when a reader of the old form would misunderstand the new one */

/* `only`: that communicator; NULL: all of the context. `reason` says why now: "call", "failure",
 * "signal", "query". At most the last `most` operations of each communicator, and as many messages.
 * NOMEM leaves *j for the caller to free, too. */
gyre_status gy_dump_write(struct gy_json *j, gyre_context *ctx, const gyre_comm *only,
                          const char *reason, uint64_t most);
/* Into a file, whole or not at all; a file that is there is replaced. ARG, SYS, NOMEM. */
gyre_status gy_dump_file(gyre_context *ctx, const gyre_comm *only, const char *reason,
                         const char *path);
/* The same into GYRE_TRACE_FILE, if it is set; what goes wrong is logged. `rank` stands for %r. */
void gy_dump_by_setting(gyre_context *ctx, int rank, const char *reason);
/* What the table of settings cannot say of GYRE_TRACE_FILE and GYRE_TRACE_SIGNAL: ARG with the rule
 * otherwise. */
gyre_status gy_dump_check(const struct gy_settings *settings);

#endif
