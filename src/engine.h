/*
 * engine.h - runs programs slice by slice.
 *
 * Role:   a posted call becomes a run: a program, its buffers, and one pair of counters for each
 *         instruction. A pass issues every message whose dependencies are met to its link, in link
 *         order, and does the local steps.
 * Thread: gy_engine_post: any thread. All else: the driving thread, locked.
 * Owner:  the communicator.
 */
#ifndef GY_ENGINE_H
#define GY_ENGINE_H

#include "../transport/transport.h"
#include "loop.h"
#include "request.h"

#define GY_WINDOW_MAX 64

struct gy_engine;
struct gy_trace;

struct gy_call {     /* one operation as its caller states it, arguments already checked */
  enum gy_coll coll; /* or GY_MESSAGE: a send, or if it `receives` a receive, and root is the peer */
  bool receives;
  gyre_dtype dtype;
  gyre_op op;
  int root;
  const void *in;
  void *out;
  size_t count; /* GY_VARY: of all blocks where every rank passes the same; rooted: of this rank's own block */
  /* GY_VARY: by rank, of GY_IN and GY_OUT where this rank has all blocks; read during the post only */
  const size_t *counts[2];
  const size_t *displs[2];     /* in elements; NULL: one block right behind the other */
  struct gy_operator *created; /* of op, or NULL */
  double weight;               /* of a weighted collective: this rank's; */
  double *total;               /* where the sum of all goes on success */
};

/* A descriptor's count where ranks do not pass the same; then each message has its own. */
#define GY_COUNT_VARIES UINT64_MAX

/* The address of this rank's block in the buffer that holds all blocks. */
uintptr_t gy_call_own(const struct gy_call *call, enum gy_buf buf, int rank);
/* in == out; an own block lies in the other buffer where this rank's block belongs. */
bool gy_call_in_place(const struct gy_call *call, int rank);

struct gy_engine_config {
  struct gy_comm_core *core;
  struct gy_loop *loop;
  struct gy_request_pool *requests;
  const struct gy_tl_ops *const *peer_ops; /* the transport for each peer; nranks */
  /* (locked) A link broke, or carried another call: the communicator judges. */
  void (*link_down)(void *user, int peer, gyre_status why, int sys_errno);
  void (*mismatch)(void *user, int peer, const struct gy_descriptor *mine,
                   const struct gy_descriptor *theirs);
  void *user;
};

gyre_status gy_engine_create(const struct gy_engine_config *config, struct gy_engine **out);
/* Posts a call. On GYRE_OK it has a place in the order and *req will complete, and the reference to
 * call->created is the engine's. Any error consumes nothing. */
gyre_status gy_engine_post(struct gy_engine *e, const struct gy_call *call, bool will_wait,
                           gyre_request **req);
/* Puts a program into the cache for a key and an algorithm, instead of what its builder makes: for
 * tests of hand-made ones. Takes the program on success. */
gyre_status gy_engine_install(struct gy_engine *e, const struct gy_algo *algo,
                              const struct gy_key *key, struct gy_program *program);
unsigned gy_engine_pass(struct gy_engine *e, bool spin);
bool gy_engine_arm(struct gy_engine *e);
/* Opens the links that the usual programs need, or all. */
gyre_status gy_engine_warm(struct gy_engine *e);
/* Every run in flight completes with this; later posts are refused with it; links are closed. */
void gy_engine_fail(struct gy_engine *e, gyre_status status, const char *text, bool graceful);
/* Frees it; after gy_engine_fail, when no thread can post any more. */
void gy_engine_free(struct gy_engine *e);

/* What became of the operation `seq`, for stall queries. */
enum gy_op_state { GY_OP_NOT_CALLED, GY_OP_RUNNING, GY_OP_DONE, GY_OP_FORGOTTEN };
struct gy_op_report {
  enum gy_op_state state;
  struct gy_descriptor call; /* unless FORGOTTEN; NOT_CALLED: only seq, that of an earlier collective that is still in flight, or 0 */
  int waiting_for; /* RUNNING: the peer whose message the earliest unfinished instruction needs; NOT_CALLED: that of the earlier collective, or of a message in flight; -1: none */
  uint16_t insn;   /* RUNNING: that instruction, and its slice */
  uint32_t slice;
  bool sends;                   /* of a message: this is the sending end */
  uint64_t bytes_in, bytes_out; /* RUNNING: payload of whole slices moved so far */
};
void gy_engine_report(struct gy_engine *e, uint64_t seq, struct gy_op_report *out);
/* The oldest message in flight, with `peer` or (peer -1) with anybody; false if there is none. */
bool gy_engine_message(const struct gy_engine *e, int peer, struct gy_op_report *out);
/* The oldest collective in flight; false if there is none. Sequence numbers here are those of
 * collectives: messages are counted apart. */
bool gy_engine_oldest(struct gy_engine *e, struct gy_op_report *out);
/* The state of the link to a peer in one line, "" if there is none; for stall reports. Returns
 * out. */
const char *gy_engine_describe(const struct gy_engine *e, int peer, char *out, size_t capacity);
/* Milliseconds since the peer's host was last heard of on any link to it, UINT32_MAX if that is not
 * known; *awaited: it was expected to answer since. */
uint32_t gy_engine_silence(const struct gy_engine *e, int peer, bool *awaited);
/* Bytes and transfers moved so far, in any direction: a stall is when this stands still. */
uint64_t gy_engine_moved(const struct gy_engine *e);
/* Sequence number of the first operation that has not completed here (that of the next call if all
 * have). */
uint64_t gy_engine_frontier(struct gy_engine *e);
/* Sequence number of the first operation in flight that still needs messages from or to this peer;
 * 0: none does. */
uint64_t gy_engine_needs(const struct gy_engine *e, int peer);

/* What has been recorded of past operations and messages. */
const struct gy_trace *gy_engine_trace(const struct gy_engine *e);
const struct gy_trace *gy_engine_message_trace(const struct gy_engine *e);
/* Payload of whole slices that the message of this record, which is in flight, has moved. */
void gy_engine_message_moved(const struct gy_engine *e, uint64_t number, uint64_t *in, uint64_t *out);
struct gy_engine_counts {
  uint64_t posted, completed, failed;
  uint64_t started;  /* sequence number of the operation that started last */
  uint64_t messages; /* started so far, in both directions */
};
void gy_engine_count(struct gy_engine *e, struct gy_engine_counts *out);
struct gy_peer_counts {
  uint64_t bytes_in, bytes_out; /* payload */
  uint64_t wait_ns;             /* see gyre_peer_counters */
};
void gy_engine_count_peer(const struct gy_engine *e, int peer, struct gy_peer_counts *out);

/* "all_reduce(f32 x 1024, sum)", "broadcast(u8 x 7, root 2)"; returns out. */
const char *gy_descriptor_text(const struct gy_descriptor *d, char *out, size_t capacity);
bool gy_descriptor_equal(const struct gy_descriptor *a, const struct gy_descriptor *b);

#endif
