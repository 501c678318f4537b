/*
 * transport.h - the function table of a transport, and what it may call.
 *
 * Role:   a link is an ordered FIFO pipe of slices between two ranks: the k-th posted send meets
 *         the k-th posted receive. No tags, no matching: collectives are static, so matching is
 *         static.
 * Thread: every entry runs on the driving thread, so transports have no locks. Nothing here blocks.
 * Owner:  gy_xfer storage is the engine's, valid from post until gy_on_xfer_done.
 */
#ifndef GY_TRANSPORT_H
#define GY_TRANSPORT_H

#include "bootstrap.h"
#include "operator.h"

struct gy_tl;   /* an open transport of one communicator */
struct gy_link; /* one pipe; transports embed it first in their own struct */
struct gy_run;
struct gy_tamper;

#define GY_TL_ABI 1u

enum {
  GY_CAP_HOST_MEM = 1u << 0,
  GY_CAP_RECV_REDUCE =
      1u << 2, /* applies the operator while data lands; a transport without is not chosen */
  GY_CAP_SAME_HOST = 1u << 5 /* only within a host */
};

struct gy_comm_core { /* a communicator as its transports see it */
  uv_loop_t *uv;
  struct gy_net *net;
  int rank, nranks;
  const struct gy_roster *roster;
  struct gy_secret secret;
  const struct gy_settings *settings;
};

/* The call as it is described on the wire: carried by every frame, compared with the receiver's
 * own. */
struct gy_descriptor {
  uint64_t seq; /* position in the communicator's order, from 1 */
  uint64_t count;
  uint32_t root;
  uint8_t coll, dtype, op, algo; /* algo: index in gy_algorithms() */
};

struct gy_xfer {       /* one slice on one link */
  void *addr;          /* send: source; receive: destination */
  const void *operand; /* reduce: the local operand, may equal addr */
  size_t bytes;
  const struct gy_reducer *reducer; /* NULL: plain receive; else addr = operand (op) incoming */
  uint8_t esize;
  bool swap;      /* addr = incoming (op) operand */
  bool completes; /* the reduction, see gy_reduce */
  bool more;      /* send: the next is likely to follow at once, and both may leave together */
  uint32_t index; /* k: carried and checked, never used to match */
  uint16_t insn;  /* and which slice of it: for messages */
  uint32_t slice;
  const struct gy_descriptor *call;
  struct gy_run *run;
  struct gy_xfer *next; /* the transport's queue link */
  size_t moved;         /* the transport's: bytes done so far */
};

struct gy_link { /* common head of every transport's link */
  struct gy_tl *tl;
  int peer;
  uint16_t lane;
  void *owner;                  /* the engine */
  void *end;                    /* its side of this link, set by it */
  uint64_t bytes_in, bytes_out; /* payload moved so far: the deadline watches these */
  struct gy_tamper *tamper;     /* harm asked for (transport/fault/fault.h); NULL: none */
};

struct gy_tl_ops {
  const char *name;
  uint32_t abi;  /* GY_TL_ABI */
  uint32_t caps; /* GY_CAP_* */
  /* 0: cannot reach that rank; else a score, the highest wins. `why` gets one line of reason.
   * Pure. */
  int (*reach)(const struct gy_comm_core *core, int peer, char *why, size_t capacity);
  /* Opens the transport for a communicator whose roster is known. */
  gyre_status (*open)(struct gy_comm_core *core, struct gy_tl **out);
  /* Both ends call it; the lower rank dials. The link may be used (posts queue) at once. */
  gyre_status (*link_open)(struct gy_tl *tl, int peer, uint16_t lane, void *owner,
                           struct gy_link **out);
  /* Fails nothing by itself: drops queued transfers without completing them (the engine has already
   * failed the runs) and returns only when no kernel or peer can touch their buffers. graceful:
   * what was accepted still goes out (linger). Frees the link. */
  void (*link_close)(struct gy_link *l, bool graceful);
  void (*close)(struct gy_tl *tl); /* after all links */
  /* Never fail, never complete inside the call: bytes may move at once, completion is reported by
   * the next poll. */
  void (*post_send)(struct gy_link *l, struct gy_xfer *x);
  void (*post_recv)(struct gy_link *l, struct gy_xfer *x);
  /* Moves what can be moved without blocking; completions by gy_on_xfer_done. Returns events
   * handled. `spin`: the caller is busy-polling, so try the sockets directly; otherwise only what
   * the loop has flagged. */
  unsigned (*poll)(struct gy_tl *tl, bool spin);
  /* Before sleeping: has the loop watch everything that is waited for. False: poll again instead of
   * sleeping. Completes nothing. */
  bool (*arm)(struct gy_tl *tl);
  /* One line of state for stall reports and debuggers. */
  size_t (*describe)(const struct gy_link *l, char *out, size_t capacity);
  /* Milliseconds since anything of the peer's host was received on this link, be it only an
   * acknowledgement, as far as its kernel knows without the peer's process; UINT32_MAX: unknown.
   * *awaited: something that was sent waits for an acknowledgement. May be NULL. */
  uint32_t (*silence)(const struct gy_link *l, bool *awaited);
};

extern const struct gy_tl_ops gy_tcp_ops;
extern const struct gy_tl_ops gy_shm_ops;  /* within a host */
extern const struct gy_tl_ops gy_self_ops; /* a rank to itself, always */

/* ---- called by transports, on the driving thread; none re-enters the transport ---- */
void gy_on_xfer_done(struct gy_link *l, struct gy_xfer *x);
/* The link broke: the peer closed (sys_errno 0), an errno, or another status with gyre_last_error()
 * as text. NOMEM, and SYS without an errno, mean that it could not be had at this end. */
void gy_on_link_down(struct gy_link *l, gyre_status why, int sys_errno);
/* A frame's descriptor differs from the posted receive's. */
void gy_on_mismatch(struct gy_link *l, const struct gy_descriptor *mine,
                    const struct gy_descriptor *theirs);
/* While nothing is posted on a link a frame has come, of which the descriptor is known, of its seq
 * the low 32 bits. May be called from arm, too. */
void gy_on_unclaimed(struct gy_link *l, const struct gy_descriptor *theirs);

#endif
