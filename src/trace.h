/*
 * trace.h - the flight recorder: the last operations of a communicator, or its last messages.
 *
 * Role:   a ring of fixed entries, written when an operation starts and when it ends, so that
 *         recording allocates nothing. An entry's number is that of the operation, or of a message
 *         among all that this rank has started, in both directions and with any peer. What an operation in flight waits for is not recorded but
 *         asked of the engine when somebody wants to know (gy_engine_report).
 * Thread: the driving thread, locked.
 * Owner:  the engine.
 */
#ifndef GY_TRACE_H
#define GY_TRACE_H

#include "../transport/transport.h"

struct gy_trace_entry {
  uint64_t number; /* 0: never used */
  struct gy_descriptor call;
  bool receives;                              /* a message: this is the receiving end */
  int64_t posted_ns, started_ns, finished_ns; /* gy_trace_now; finished 0: in flight */
  uint64_t bytes_in, bytes_out;               /* payload of whole slices, once it has finished */
  gyre_status status;                         /* GYRE_IN_PROGRESS until it has finished */
};

struct gy_trace;

/* Room for the last n operations; 0: nothing is recorded. NOMEM. */
gyre_status gy_trace_create(uint32_t n, struct gy_trace **out);
void gy_trace_free(struct gy_trace *t);
int64_t gy_trace_now(void); /* monotonic, in nanoseconds */
/* Numbers start at 1 and go up by one. */
void gy_trace_start(struct gy_trace *t, uint64_t number, const struct gy_descriptor *call,
                    bool receives, int64_t posted_ns);
/* Nothing if the entry has been overwritten since. */
void gy_trace_finish(struct gy_trace *t, uint64_t number, gyre_status status, uint64_t bytes_in,
                     uint64_t bytes_out);
/* NULL if it was never recorded or is overwritten. */
const struct gy_trace_entry *gy_trace_find(const struct gy_trace *t, uint64_t number);
uint32_t gy_trace_room(const struct gy_trace *t);

#endif
