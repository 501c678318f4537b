/*
 * gyre.h - the whole host API of Gyre, a collective-communication library over TCP/IP.
 *
 * Clean as C99 and as C++; needs no header of another library. Words used throughout:
 *   rank          one member of a communicator, 0 <= rank < world size
 *   communicator  a fixed group of ranks that run collectives together
 *   collective    an operation that every rank of a communicator calls, in the same order
 *   count         a number of elements (never bytes) of the given type
 *
 * Threads: every function may be called from any thread unless its comment says otherwise.
 *          Collectives on ONE communicator must be called in the same order on every rank; threads
 *          that share a communicator must agree on that order themselves. Different communicators
 *          need no common order.
 *
 * Fork:    a child made by fork() owns nothing that its parent has made: in it every function that is
 *          given a context, a communicator or a request of the parent's returns GYRE_ERR_STATE with
 *          a text that says so, and those without a status (destroy, free) do nothing; memory is
 *          not freed, and the parent and its peers notice nothing. The library's sockets are closed
 *          in the child at once, so that a child that outlives its parent hides no death. The child
 *          may create a context of its own. system(), posix_spawn() and exec need no care: every
 *          descriptor is close-on-exec.
 *
 * Errors: a function returns a gyre_status; the full text of this thread's last failure is in
 *         gyre_last_error(). What ended a communicator is in gyre_comm_status(), the same on every
 *         rank. The library prints nothing but its log: warnings and errors on standard error,
 *         unless GYRE_LOG=off or GYRE_LOG_FILE says otherwise. It never exits and never raises a
 *         signal.
 */
#ifndef GYRE_GYRE_H
#define GYRE_GYRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GYRE_VERSION_MAJOR 0
#define GYRE_VERSION_MINOR 1
#define GYRE_VERSION_PATCH 0
/* 10000 * major + 100 * minor + patch of this header; compare with gyre_version(). */
#define GYRE_VERSION (GYRE_VERSION_MAJOR * 10000 + GYRE_VERSION_MINOR * 100 + GYRE_VERSION_PATCH)

#if defined(__GNUC__) || defined(__clang__)
#define GYRE_API __attribute__((visibility("default")))
#else
#define GYRE_API
#endif

/* ---------------------------------------------------------------------------------- types --- */

typedef struct gyre_context gyre_context; /* process-wide: loop, progress thread, listening port */
typedef struct gyre_comm gyre_comm;       /* one group of ranks */
typedef struct gyre_request gyre_request; /* one operation in flight; freed by wait or free */

typedef enum gyre_status {
  GYRE_OK = 0,
  GYRE_IN_PROGRESS = 1,     /* not an error: the operation has not finished */
  GYRE_ERR_ARG = -1,        /* an argument or a setting is out of its range */
  GYRE_ERR_NOMEM = -2,      /* out of memory */
  GYRE_ERR_SYS = -3,        /* a system call failed; errno text is in gyre_last_error() */
  GYRE_ERR_CUDA = -4,       /* a CUDA call failed */
  GYRE_ERR_VERBS = -5,      /* a verbs call failed */
  GYRE_ERR_PROTO = -6,      /* malformed or unexpected bytes from a peer */
  GYRE_ERR_VERSION = -7,    /* no wire version in common with a peer */
  GYRE_ERR_AUTH = -8,       /* a peer failed the challenge, or a secret is missing */
  GYRE_ERR_MISMATCH = -9,   /* ranks called different collectives, or differ in an agreed setting */
  GYRE_ERR_TIMEOUT = -10,   /* a deadline expired; the text names who was missing */
  GYRE_ERR_PEER_LOST = -11, /* a rank died, left or was cut off */
  GYRE_ERR_ABORTED = -12,   /* gyre_comm_abort, or the communicator was destroyed */
  GYRE_ERR_STATE = -13,     /* the call is not legal now (inside a callback, already set, ...) */
  GYRE_ERR_UNSUPPORTED = -14, /* the combination is not implemented */
  GYRE_ERR_INTERNAL = -15     /* a bug in Gyre */
} gyre_status;

/* The verdict on a communicator: equal on every rank that could still be told. */
typedef struct gyre_error {
  size_t size;        /* set by the caller to sizeof(gyre_error) */
  gyre_status status; /* GYRE_OK while the communicator is usable */
  int culprit_rank;   /* the rank that caused it; -1 if no single rank did */
  int reporter_rank;  /* the rank that noticed first; -1 if unknown */
  uint64_t op_seq;    /* sequence number of the operation concerned, from 1; 0 if none */
  int sys_errno;      /* errno at the reporter; 0 if none */
  char text[512];     /* one line: what, who, where, and what to try */
} gyre_error;
#define GYRE_ERROR_INIT                              \
  {                                                  \
    sizeof(gyre_error), GYRE_OK, -1, -1, 0, 0, { 0 } \
  }

typedef enum gyre_dtype {
  GYRE_F32,
  GYRE_F64,
  GYRE_F16,
  GYRE_BF16,
  GYRE_I8,
  GYRE_U8,
  GYRE_I16,
  GYRE_U16,
  GYRE_I32,
  GYRE_U32,
  GYRE_I64,
  GYRE_U64,
  GYRE_F32_I32, /* a pair: struct { float value; int32_t index; } */
  GYRE_F64_I64, /* struct { double value; int64_t index; } */
  GYRE_I32_I32, /* struct { int32_t value, index; } */
  GYRE_I64_I64, /* struct { int64_t value, index; } */
  GYRE_F8_E4M3, /* the 8-bit types of the OCP specification (2023). Up to 448, no infinity: what is larger
                   becomes NaN (the specification's non-saturating mode) */
  GYRE_F8_E5M2 /* up to 57344; what is larger becomes an infinity */
} gyre_dtype;
#define GYRE_DTYPE_COUNT 18

/* SUM, PROD, MIN, MAX and AVG take numbers: the floating-point and integer types. Integer SUM and
 * PROD wrap. AVG is the sum divided by the world size; for integers the sum wraps, then divides
 * truncating toward zero. MIN and MAX: NaN wins, -0 < +0. F16 and BF16 are combined in F32 and
 * rounded once per step.
 * The bitwise and the logical operators take integers; a logical one gives 1 or 0, and takes
 * anything but 0 for true.
 * MINLOC and MAXLOC take pairs: the one with the least (largest) value, ordered as by MIN and MAX;
 * of equal values, and of two NaNs, that with the lower index.
 * Collectives that combine nothing take every type. */
typedef enum gyre_op {
  GYRE_SUM,
  GYRE_PROD,
  GYRE_MIN,
  GYRE_MAX,
  GYRE_AVG,
  GYRE_BAND, /* bitwise and, or, exclusive or */
  GYRE_BOR,
  GYRE_BXOR,
  GYRE_LAND, /* logical and, or, exclusive or */
  GYRE_LOR,
  GYRE_LXOR,
  GYRE_MINLOC,
  GYRE_MAXLOC,
  GYRE_OP_CREATED_FIRST = 64, /* from here on: what gyre_op_create and its like give */
  GYRE_OP_CREATED_LAST = 255
} gyre_op;
#define GYRE_OP_COUNT 13 /* of the built-in ones */

/* Where rank 0 listens (its context's port), a secret and a nonce: opaque, copy it whole to the
 * other ranks by any means. It holds a key: treat it as a password. */
typedef struct gyre_unique_id {
  uint8_t bytes[128];
} gyre_unique_id;

/* A key-value store of the caller's, for `oob` in gyre_comm_config. Both are called on the driving
 * thread and must not block long nor call Gyre. They return 0 on success, 1 for "not there yet"
 * (get only; it is asked again every few milliseconds until the connect deadline), negative on
 * failure. */
typedef struct gyre_oob {
  void *user;
  int (*put)(void *user, const char *key, const void *value, size_t len);
  int (*get)(void *user, const char *key, void *value, size_t capacity, size_t *len);
} gyre_oob;

/* --------------------------------------------------------------------------------- context --- */

#define GYRE_F_NO_PROGRESS_THREAD (1u << 0) /* context: progress only in gyre_progress and waits */
#define GYRE_F_EAGER_LINKS (1u << 1)        /* communicator: open every link at creation */
#define GYRE_F_CHECKSUM (1u << 2) /* communicator: GYRE_CHECKSUM=1; rank 0's holds for all */

typedef struct gyre_context_config {
  size_t size;       /* sizeof the struct the caller was compiled with */
  const char *iface; /* interface name or CIDR to listen and dial on; NULL: GYRE_IFACE, else all */
  const char *advertise; /* "host[:port]" told to peers; NULL: GYRE_ADVERTISE, else what is bound */
  const char *port;      /* "first[-last]"; NULL: GYRE_PORT, else any free port */
  const char *secret;    /* shared secret; NULL: GYRE_SECRET, GYRE_SECRET_FILE, else none */
  int spin_us;    /* busy-poll before sleeping, in microseconds; -1: GYRE_SPIN_US or automatic,
                            0: never busy-poll */
  uint32_t flags; /* GYRE_F_NO_PROGRESS_THREAD */
} gyre_context_config;
#define GYRE_CONTEXT_CONFIG_INIT \
  { sizeof(gyre_context_config), NULL, NULL, NULL, NULL, -1, 0u }

/* The version of the library that is loaded, encoded as GYRE_VERSION. */
GYRE_API int gyre_version(void);
/* The same as text, "0.1.0". Static storage. */
GYRE_API const char *gyre_version_string(void);
/* A static name for a status, "PEER_LOST"; "UNKNOWN" for a value that is none. */
GYRE_API const char *gyre_status_name(gyre_status status);
/* This thread's last failure in full, one line; "" if none. Valid until this thread's next call. */
GYRE_API const char *gyre_last_error(void);
/* Bytes of one element; 0 for a value that is no type. */
GYRE_API size_t gyre_dtype_size(gyre_dtype type);
/* Static lower-case names, "f32" and "sum"; NULL for a value that is none. A created operator has
 * that of its kind: "user", "user_ordered" (not commutative), "premul_sum". */
GYRE_API const char *gyre_dtype_name(gyre_dtype type);
GYRE_API const char *gyre_op_name(gyre_op op);
/* 1 if the operator combines elements of the type, 0 if not, also for values that are none. */
GYRE_API int gyre_op_accepts(gyre_op op, gyre_dtype type);

/* Creates a context with the environment's settings. On success *out is owned by the caller, who
 * destroys it after its communicators. Errors: ARG (a GYRE_* variable is out of range; the text
 * gives the rule), NOMEM, SYS. No port is opened before a communicator or a unique id needs it. */
GYRE_API gyre_status gyre_context_create(gyre_context **out);
/* The same with explicit settings, which go before the environment. `config` may be NULL. */
GYRE_API gyre_status gyre_context_create_with(const gyre_context_config *config, gyre_context **out);
/* Ends the context: joins the progress thread and closes every socket. Communicators that still
 * exist are destroyed first. Returns after at most GYRE_LINGER_MS, which lets peers read what was
 * sent. NULL is allowed. Requests that still exist stay valid for test, wait and free, and report
 * ABORTED. From a callback it does nothing and sets gyre_last_error(). */
GYRE_API void gyre_context_destroy(gyre_context *ctx);
/* A descriptor that becomes readable when gyre_progress has something to do, deadlines included:
 * for someone else's event loop. Owned by the context; do not read, write or close it. -1 with
 * gyre_last_error() set on failure. */
GYRE_API int gyre_context_fd(gyre_context *ctx);
/* One pass of progress, never blocking. With GYRE_F_NO_PROGRESS_THREAD, call it when the descriptor
 * is readable and after posting. Errors: ARG; STATE from a callback. */
GYRE_API gyre_status gyre_progress(gyre_context *ctx);

/* ---------------------------------------------------------------------------- communicator --- */

typedef struct gyre_comm_config {
  size_t size;              /* sizeof the struct the caller was compiled with */
  const char *rendezvous;   /* "tcp://host:port" (rank 0 listens there), "file:///dir/name" (a path
                                all ranks can reach); NULL: GYRE_RENDEZVOUS, unless id or oob is set */
  const gyre_unique_id *id; /* made by rank 0's context; goes before rendezvous */
  const gyre_oob *oob;      /* the caller's own store; goes before rendezvous */
  const char *transports; /* "tcp", "shm", "tcp,shm"; NULL: GYRE_TRANSPORTS, else all that are usable */
  const char *algo;       /* "all_reduce=ring,broadcast=tree" or one name for all; NULL: GYRE_ALGO,
                                else the cost model */
  uint32_t slice_bytes;        /* 0: GYRE_SLICE_BYTES, else automatic; a multiple of 64 */
  uint32_t window;             /* slices in flight per link; 0: GYRE_WINDOW, else automatic */
  uint32_t connect_timeout_ms; /* 0: GYRE_CONNECT_TIMEOUT_MS */
  uint32_t op_timeout_ms;      /* longest time an operation may go without moving a byte;
                                0: GYRE_OP_TIMEOUT_MS */
  uint32_t flags;              /* GYRE_F_EAGER_LINKS | GYRE_F_CHECKSUM */
  uint32_t heartbeat_ms;       /* how often ranks show that they live; 0: GYRE_HEARTBEAT_MS,
                                GYRE_NO_HEARTBEAT: never */
  uint32_t peer_timeout_ms; /* a rank that is silent for so long is lost; 0: GYRE_PEER_TIMEOUT_MS */
  const char *fault; /* harm to be done to this rank, to rehearse failures: "kill:slice=100"; the
                        kinds are in docs/faults.md; NULL: GYRE_FAULT */
} gyre_comm_config;
#define GYRE_COMM_CONFIG_INIT \
  { sizeof(gyre_comm_config), NULL, NULL, NULL, NULL, NULL, 0u, 0u, 0u, 0u, 0u, 0u, 0u, NULL }
#define GYRE_NO_HEARTBEAT 0xffffffffu

/* Makes an id for a communicator whose rank 0 will be created in THIS context. Opens the context's
 * listening port. Send the id to the other ranks by any means. No secret is needed: the id
 * carries its own. Errors: ARG, NOMEM, SYS. */
GYRE_API gyre_status gyre_unique_id_create(gyre_context *ctx, gyre_unique_id *out);

/* Creates this process's membership as `rank` of `nranks`, 0 <= rank < nranks <= 16384. Blocks
 * until all ranks have met or the connect deadline expires. On success *out is the caller's, to be
 * passed to gyre_comm_destroy; on failure *out is untouched. Errors: ARG (bad rank, size or
 * setting, two processes with one rank), TIMEOUT (names the ranks that never came, on every rank
 * that did), MISMATCH (an agreed setting or the size differs; both values are given, on every
 * rank), AUTH, VERSION, PROTO, SYS, NOMEM. */
GYRE_API gyre_status gyre_comm_create(gyre_context *ctx, int rank, int nranks,
                                      const gyre_comm_config *config, gyre_comm **out);
/* The same without blocking: *out is written when the request completes with GYRE_OK, so one thread
 * may create several ranks. `config` is copied; `out` must stay valid until then. */
GYRE_API gyre_status gyre_comm_create_async(gyre_context *ctx, int rank, int nranks,
                                            const gyre_comm_config *config, gyre_comm **out,
                                            gyre_request **req);
/* Takes rank, size and rendezvous from the environment: GYRE_RANK, GYRE_WORLD_SIZE,
 * GYRE_RENDEZVOUS; or torchrun's RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (plus 1, as its agent
 * owns MASTER_PORT). With none of them set it makes a communicator of one rank. Errors: as
 * gyre_comm_create; ARG names the variable. */
GYRE_API gyre_status gyre_comm_create_from_env(gyre_context *ctx, const gyre_comm_config *config,
                                               gyre_comm **out);
/*
 * Communicators made from others. The new one is independent: it has its own verdict, its own
 * order of operations, and may live longer than the one it was made from; destroy them in any
 * order. It takes over that one's secret, flags, settings and the settings agreed on, needs no
 * rendezvous, and opens no further port. Every rank of `comm` makes these calls, in the same order
 * relative to each other; collectives and other traffic may be in flight meanwhile, before and
 * after, in any order. On success *out is the caller's, to be passed to gyre_comm_destroy; on
 * failure it is untouched. The blocking forms are not for callbacks (STATE); the _async forms
 * return at once, write *out when the request completes with GYRE_OK, and may be called again
 * before.
 *
 * Every wait ends at the connect time-out of the least patient rank. Two kinds of failure:
 * - Ranks do not call in time (TIMEOUT, naming who is missing), left (PEER_LOST) or call something
 *   else of this kind (MISMATCH): that ends `comm`, as with a collective, by one verdict on all.
 * - After all have called, the new communicator's ranks fail to meet: as with gyre_comm_create, and
 *   `comm` stays as it is.
 * When `comm` ends by another failure, or is destroyed here, calls in progress fail with its
 * verdict or ABORTED. Errors: these, ARG, NOMEM, SYS. gyre_comm_shrink has other rules, below.
 */

/* Parts the ranks: those that give the same colour form a new communicator, ranked by `key`, and by
 * their rank in `comm` where keys are equal. A colour below 0 takes part without getting one: *out
 * is NULL. */
GYRE_API gyre_status gyre_comm_split(gyre_comm *comm, int color, int key, gyre_comm **out);
GYRE_API gyre_status gyre_comm_split_async(gyre_comm *comm, int color, int key, gyre_comm **out,
                                           gyre_request **req);
/* The same ranks in the same order once more: for a thread or library that wants an order of
 * operations of its own. */
GYRE_API gyre_status gyre_comm_dup(gyre_comm *comm, gyre_comm **out);
GYRE_API gyre_status gyre_comm_dup_async(gyre_comm *comm, gyre_comm **out, gyre_request **req);
/* Makes a communicator of the ranks that are left of one that has failed or was aborted; ranks keep
 * their order. Every survivor calls it, when its own communicator has ended (gyre_comm_status); it
 * need not be told who is dead. `comm` stays as it is, to be destroyed before or after.
 *
 * The lowest rank that is not known to be dead waits for all that are not, until the connect
 * time-out: who has not called by then is left out. If that rank dies, too, the next one takes its
 * place, and waits anew. At least half of the ranks of `comm` must be left, and if exactly half,
 * rank 0 among them. Every rank either is in the new communicator or gets PEER_LOST "excluded",
 * also one that was only stopped and calls later, as long as the new communicator exists. A rank
 * that dies last may still be in it: it then fails at once on every rank, and can be shrunk again.
 *
 * Errors: ARG; STATE (it has not failed, has been shrunk already, or this is a callback);
 * PEER_LOST (excluded, or too few are left); ABORTED (`comm` was destroyed meanwhile); NOMEM,
 * SYS. */
GYRE_API gyre_status gyre_comm_shrink(gyre_comm *comm, gyre_comm **out);
GYRE_API gyre_status gyre_comm_shrink_async(gyre_comm *comm, gyre_comm **out, gyre_request **req);

/* Ends the communicator on every rank: operations in flight and later ones fail with ABORTED, the
 * text being `why` (may be NULL). Returns at once. Errors: ARG. */
GYRE_API gyre_status gyre_comm_abort(gyre_comm *comm, const char *why);
/* Leaves the communicator and frees it. Never waits for a peer: peers are told, and what was
 * reported OK still reaches them. Operations in flight complete with ABORTED. Returns after the
 * communicator's last callback; a call in another thread returns ABORTED first. NULL is allowed.
 * Not from a callback (it then does nothing and sets gyre_last_error()). */
GYRE_API void gyre_comm_destroy(gyre_comm *comm);
/* Copies the verdict into *out (out->size must be set, see GYRE_ERROR_INIT) and returns its status:
 * GYRE_OK while the communicator is usable. Errors: ARG. */
GYRE_API gyre_status gyre_comm_status(const gyre_comm *comm, gyre_error *out);

/* What a communicator has done so far. Asking costs one turn of the progress engine, recording next
 * to nothing. */
typedef struct gyre_counters {
  size_t size; /* set by the caller, see GYRE_COUNTERS_INIT; on return: bytes filled */
  uint64_t operations_posted;    /* calls that have got a place in the order */
  uint64_t operations_completed; /* with GYRE_OK */
  uint64_t operations_failed;    /* with an error */
  uint64_t bytes_sent;           /* payload, to all peers together */
  uint64_t bytes_received;
} gyre_counters;
#define GYRE_COUNTERS_INIT \
  { sizeof(gyre_counters), 0, 0, 0, 0, 0 }

typedef struct gyre_peer_counters {
  size_t size;         /* set by the caller, see GYRE_PEER_COUNTERS_INIT; on return: bytes filled */
  uint64_t bytes_sent; /* payload, to this rank */
  uint64_t bytes_received; /* from it */
  uint64_t wait_ns; /* nanoseconds in which the earliest unfinished operation waited for this rank.
                       Measured from where the driving thread goes to sleep, or has busy-polled in
                       vain for 1024 passes, until something moves: waits that are shorter than the
                       busy-polling (GYRE_SPIN_US) are not counted. */
} gyre_peer_counters;
#define GYRE_PEER_COUNTERS_INIT \
  { sizeof(gyre_peer_counters), 0, 0, 0 }

/* Fills *out, of which `size` is set. Errors: ARG (NULL, size too small, no such rank); STATE from a
 * callback. Of this rank itself all counters are 0. */
GYRE_API gyre_status gyre_comm_counters(gyre_comm *comm, gyre_counters *out);
GYRE_API gyre_status gyre_comm_peer_counters(gyre_comm *comm, int peer, gyre_peer_counters *out);
/* Writes the flight recorder of this communicator, its last GYRE_TRACE_OPS operations and what those
 * in flight wait for, to a file as JSON (docs/tracing.md has the form). %p
 * in the path is the process id, %r the rank, %% a percent sign. The file appears whole or not at
 * all, and replaces one that is there. Works before and after a failure, while other threads wait.
 * Errors: ARG (NULL, a wrong %, not a regular file), SYS, NOMEM; STATE from a callback. */
GYRE_API gyre_status gyre_comm_dump(gyre_comm *comm, const char *path);
/* -1 if comm is NULL. */
GYRE_API int gyre_comm_rank(const gyre_comm *comm);
GYRE_API int gyre_comm_size(const gyre_comm *comm);

/* --------------------------------------------------------------------- created operators --- */
/*
 * A communicator's own operators, used wherever a built-in one may stand. Creating and freeing send
 * nothing, but must be done in the same order on every rank of the communicator, relative to each
 * other: then equal operators have equal numbers, and ranks that pass different ones to a collective
 * get MISMATCH. At most 64 of each kind exist at a time.
 */

/* dst[i] = left[i] (op) right[i], 0 <= i < count. The operator must be associative. Each buffer is
 * aligned for its type (a pair: for its value); dst may be `left` or `right`, else they do not
 * overlap. How elements are spread over calls is not defined, nor how many calls there are; with
 * one rank there is none. Calls of one communicator never overlap in time, but come from any thread
 * that makes progress, while Gyre's lock is held: be quick, do not block. Calls of Gyre from inside
 * return STATE and do nothing. Rounding is to nearest, whatever the thread's own mode. */
typedef void (*gyre_op_fn)(void *dst, const void *left, const void *right, size_t count,
                           gyre_dtype type, void *user);

/* left (op) right equals right (op) left. Without it operands are combined in the order of ranks:
 * x0 (op) x1 (op) ... (op) x(n-1), with the brackets where the algorithm has them; only some
 * algorithms do that, and naming another one (GYRE_ALGO) makes such a call fail with ARG. */
#define GYRE_OP_COMMUTATIVE (1u << 0)

/* Makes an operator of a function, for every type. `flags`: 0 or GYRE_OP_COMMUTATIVE, equal on
 * every rank. `fn` and `user` must stay valid until the operator is freed and every operation that
 * uses it has completed, or the communicator is destroyed. Errors: ARG, NOMEM, STATE (64 of the kind
 * exist; called from inside an operator's function). */
GYRE_API gyre_status gyre_op_create(gyre_comm *comm, gyre_op_fn fn, void *user, uint32_t flags,
                                    gyre_op *op);
/* Makes a sum of contributions that are first multiplied by this rank's `factor`, which must be
 * finite and may differ between ranks; for floating-point types only. The factor is rounded to the
 * type (F32 for the halves), each product to the element. `in` is not written unless in place. The
 * multiplication is done by the thread that posts; reduce off the root and reduce_scatter take
 * memory of the size of `in` while they run. Errors: as above. */
GYRE_API gyre_status gyre_op_create_premul_sum(gyre_comm *comm, double factor, gyre_op *op);
/* Gives an operator up. Operations in flight go on with it to their end; later calls with it fail
 * with ARG (until its number is given to another operator, after 63 more of its kind). What is left
 * when the communicator is destroyed is freed with it. Errors: ARG; STATE as above. */
GYRE_API gyre_status gyre_op_free(gyre_comm *comm, gyre_op op);

/* ----------------------------------------------------------------------------- collectives --- */
/*
 * Common to all. `in` is read, never written unless in == out. in == out or disjoint: a partial
 * overlap is ARG; ranks may differ in it. Buffers belong to the operation from the call until it
 * completes. count may be 0. Every rank must pass equal count, type, op and root: a difference is
 * MISMATCH, with both calls in the text, on every rank. An error of the posting itself (ARG, STATE,
 * NOMEM) consumes no place in the order and leaves the communicator usable; any later error ends
 * the communicator, and the buffers are undefined. Errors of the operation: MISMATCH, TIMEOUT,
 * PEER_LOST, ABORTED, PROTO, and what the posting returns. Results are bit-identical on every rank
 * and in every run of the same rank count, algorithm and settings (NaN payloads excepted).
 *
 * The blocking form returns when the operation has completed on this rank. The _async form returns
 * at once; *req is the caller's, to be passed to gyre_wait or gyre_request_free.
 */

/* out[i] = op over ranks of in[i], on every rank, 0 <= i < count. */
GYRE_API gyre_status gyre_all_reduce(gyre_comm *comm, const void *in, void *out, size_t count,
                                     gyre_dtype type, gyre_op op);
GYRE_API gyre_status gyre_all_reduce_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                           gyre_dtype type, gyre_op op, gyre_request **req);
/* The sum over ranks of weight * in[i] (SUM), or that divided by the sum of the weights (AVG), on every
 * rank: for contributions that count for more or less, as of batches that differ in length. `weight` is
 * this rank's; 0 or positive, finite, and for types other than F64 in the range of normal F32 numbers. A
 * rank with weight 0 has no part in the result: its `in` is not read and may be NULL. *total becomes
 * the sum of the weights, which travels along; it is written when the operation has completed with OK,
 * equal on every rank to the bit, must stay valid until then, and lie outside of `in` and `out`. If it
 * is 0, so is the result. Floating-point types only. Products are rounded to the type, as are sums; the
 * average is the rounded sum divided in F64. Ranks' weights may differ, all else must be equal. The
 * thread that posts does the multiplication. Errors besides those common to all: ARG (operator, type or
 * weight other than said; total NULL). */
GYRE_API gyre_status gyre_all_reduce_weighted(gyre_comm *comm, const void *in, void *out,
                                              size_t count, gyre_dtype type, gyre_op op,
                                              double weight, double *total);
GYRE_API gyre_status gyre_all_reduce_weighted_async(gyre_comm *comm, const void *in, void *out,
                                                    size_t count, gyre_dtype type, gyre_op op,
                                                    double weight, double *total, gyre_request **req);
/* `in` holds world-size blocks of `count`; rank r gets the reduced block r in out[0..count). In
 * place: out == in + rank * count elements. */
GYRE_API gyre_status gyre_reduce_scatter(gyre_comm *comm, const void *in, void *out, size_t count,
                                         gyre_dtype type, gyre_op op);
GYRE_API gyre_status gyre_reduce_scatter_async(gyre_comm *comm, const void *in, void *out,
                                               size_t count, gyre_dtype type, gyre_op op,
                                               gyre_request **req);
/* Rank r's in[0..count) becomes block r of `out` (world-size blocks of `count`) on every rank. In
 * place: in == out + rank * count elements. */
GYRE_API gyre_status gyre_all_gather(gyre_comm *comm, const void *in, void *out, size_t count,
                                     gyre_dtype type);
GYRE_API gyre_status gyre_all_gather_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                           gyre_dtype type, gyre_request **req);
/* The root's in[0..count) becomes out[0..count) on every rank. On the root `out` may be NULL or
 * equal to `in`; off the root `in` is ignored. 0 <= root < world size. */
GYRE_API gyre_status gyre_broadcast(gyre_comm *comm, const void *in, void *out, size_t count,
                                    gyre_dtype type, int root);
GYRE_API gyre_status gyre_broadcast_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                          gyre_dtype type, int root, gyre_request **req);
/* As all-reduce, but only the root gets `out`; elsewhere `out` is ignored and may be NULL. */
GYRE_API gyre_status gyre_reduce(gyre_comm *comm, const void *in, void *out, size_t count,
                                 gyre_dtype type, gyre_op op, int root);
GYRE_API gyre_status gyre_reduce_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                       gyre_dtype type, gyre_op op, int root, gyre_request **req);
/* Rank r's in[0..count) becomes block r of the root's `out` (world-size blocks of `count`);
 * elsewhere `out` is ignored and may be NULL. In place, on the root: in == out + root * count
 * elements. 0 <= root < world size. */
GYRE_API gyre_status gyre_gather(gyre_comm *comm, const void *in, void *out, size_t count,
                                 gyre_dtype type, int root);
GYRE_API gyre_status gyre_gather_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                       gyre_dtype type, int root, gyre_request **req);
/* Block r of the root's `in` (world-size blocks of `count`) becomes rank r's out[0..count); off the
 * root `in` is ignored. In place, on the root: out == in + root * count elements, or NULL: its own
 * block stays where it is. 0 <= root < world size. */
GYRE_API gyre_status gyre_scatter(gyre_comm *comm, const void *in, void *out, size_t count,
                                  gyre_dtype type, int root);
GYRE_API gyre_status gyre_scatter_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                        gyre_dtype type, int root, gyre_request **req);
/* Block r of `in` becomes block (this rank) of rank r's `out`; both hold world-size blocks of
 * `count`. In place: in == out; what is received replaces what was sent to the same rank. */
GYRE_API gyre_status gyre_all_to_all(gyre_comm *comm, const void *in, void *out, size_t count,
                                     gyre_dtype type);
GYRE_API gyre_status gyre_all_to_all_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                           gyre_dtype type, gyre_request **req);
/* Prefix reduction: rank r gets out[i] = in[i] of rank 0 (op) in[i] of rank 1 (op) ... (op) in[i] of
 * rank r, 0 <= i < count, combined in rank order. AVG has no meaning here and is ARG. */
GYRE_API gyre_status gyre_scan(gyre_comm *comm, const void *in, void *out, size_t count,
                               gyre_dtype type, gyre_op op);
GYRE_API gyre_status gyre_scan_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                     gyre_dtype type, gyre_op op, gyre_request **req);
/* The same without the rank's own contribution: ranks 0 to r - 1. On rank 0, which has none before
 * it, `out` becomes the operator's identity: 0 for SUM, 1 for PROD; for MIN the greatest value of
 * the type and for MAX the least (the infinities in floating-point types), the same with the
 * highest index for MINLOC and MAXLOC; all bits for BAND, 1 for LAND, 0 for the others. A function
 * of gyre_op_create has none that Gyre knows: with it `out` is not written on rank 0. */
GYRE_API gyre_status gyre_exclusive_scan(gyre_comm *comm, const void *in, void *out, size_t count,
                                         gyre_dtype type, gyre_op op);
GYRE_API gyre_status gyre_exclusive_scan_async(gyre_comm *comm, const void *in, void *out,
                                               size_t count, gyre_dtype type, gyre_op op,
                                               gyre_request **req);
/*
 * The _v forms move blocks of different lengths. `counts` has the elements of the block of each rank,
 * `displs` where it starts in the buffer that holds all blocks, in elements; NULL: the blocks lie one
 * right behind the other. Both arrays have world-size entries and are the caller's again when the
 * call (also the _async one) returns. Blocks may be empty. Two ranks that name one block must pass
 * the same count for it, while displacements are each rank's own: a difference is MISMATCH on every
 * rank, with both ranks and both counts in the text. Gaps between blocks are not touched, but belong
 * to a buffer where `in` and `out` are compared for overlap. Further errors of the posting: ARG if
 * counts are NULL, blocks that are written overlap, or one ends beyond the address space.
 */

/* Rank r's in[0..counts[r]) becomes out[displs[r]..displs[r] + counts[r]) on every rank. All ranks
 * pass the same counts. In place: in == out + displs[rank] elements. */
GYRE_API gyre_status gyre_all_gather_v(gyre_comm *comm, const void *in, void *out,
                                       const size_t *counts, const size_t *displs, gyre_dtype type);
GYRE_API gyre_status gyre_all_gather_v_async(gyre_comm *comm, const void *in, void *out,
                                             const size_t *counts, const size_t *displs,
                                             gyre_dtype type, gyre_request **req);
/* Rank r gets in out[0..counts[r]) the reduction of in[displs[r]..displs[r] + counts[r]). All ranks
 * pass the same counts. In place: out == in + displs[rank] elements, and no blocks overlap. */
GYRE_API gyre_status gyre_reduce_scatter_v(gyre_comm *comm, const void *in, void *out,
                                           const size_t *counts, const size_t *displs,
                                           gyre_dtype type, gyre_op op);
GYRE_API gyre_status gyre_reduce_scatter_v_async(gyre_comm *comm, const void *in, void *out,
                                                 const size_t *counts, const size_t *displs,
                                                 gyre_dtype type, gyre_op op, gyre_request **req);
/* in[in_displs[r]..in_displs[r] + in_counts[r]) goes to rank r, and what comes from rank r becomes
 * out[out_displs[r]..out_displs[r] + out_counts[r]): in_counts[r] here is out_counts[this rank] on
 * rank r. In place: in == out, with equal counts and displacements on both sides, so that each pair
 * of ranks exchanges as much as it gets; this needs scratch. */
GYRE_API gyre_status gyre_all_to_all_v(gyre_comm *comm, const void *in, const size_t *in_counts,
                                       const size_t *in_displs, void *out, const size_t *out_counts,
                                       const size_t *out_displs, gyre_dtype type);
GYRE_API gyre_status gyre_all_to_all_v_async(gyre_comm *comm, const void *in, const size_t *in_counts,
                                             const size_t *in_displs, void *out,
                                             const size_t *out_counts, const size_t *out_displs,
                                             gyre_dtype type, gyre_request **req);
/* Rank r's in[0..count) becomes out[displs[r]..displs[r] + counts[r]) on the root; elsewhere `out`,
 * `counts` and `displs` are ignored. `count` is this rank's own, counts[root] on the root. In place,
 * on the root: in == out + displs[root] elements. 0 <= root < world size. */
GYRE_API gyre_status gyre_gather_v(gyre_comm *comm, const void *in, size_t count, void *out,
                                   const size_t *counts, const size_t *displs, gyre_dtype type,
                                   int root);
GYRE_API gyre_status gyre_gather_v_async(gyre_comm *comm, const void *in, size_t count, void *out,
                                         const size_t *counts, const size_t *displs,
                                         gyre_dtype type, int root, gyre_request **req);
/* The root's in[displs[r]..displs[r] + counts[r]) becomes rank r's out[0..count); elsewhere `in`,
 * `counts` and `displs` are ignored. `count` is this rank's own, counts[root] on the root. In place,
 * on the root: out == in + displs[root] elements, or NULL. 0 <= root < world size. */
GYRE_API gyre_status gyre_scatter_v(gyre_comm *comm, const void *in, const size_t *counts,
                                    const size_t *displs, void *out, size_t count, gyre_dtype type,
                                    int root);
GYRE_API gyre_status gyre_scatter_v_async(gyre_comm *comm, const void *in, const size_t *counts,
                                          const size_t *displs, void *out, size_t count,
                                          gyre_dtype type, int root, gyre_request **req);
/* Completes on no rank before it has been called on all. */
GYRE_API gyre_status gyre_barrier(gyre_comm *comm);
GYRE_API gyre_status gyre_barrier_async(gyre_comm *comm, gyre_request **req);

/* ------------------------------------------------------------------------- point to point --- */
/*
 * Messages between two ranks. The k-th send of a rank to another meets the k-th receive there from
 * it: messages match in the order of the calls, for each pair of ranks and direction by itself, with
 * no tags. They have connections of their own, so their order against collectives is free. A rank
 * may send to itself. Count and type must be equal on both ends: a difference is MISMATCH, with both
 * in the text. count may be 0: the message carries nothing but that it was sent.
 *
 * A send is done when the buffer is free again: the system has taken the bytes, or the receiver has.
 * How much the system takes while nobody receives is its own matter, so two ranks that both call
 * gyre_send to each other first may wait for each other, and so does a rank that blocks in a send to
 * itself. Post one direction by the _async form: then both directions at once cannot deadlock,
 * whatever their order.
 *
 * Buffers, requests and errors are as for collectives: an error of the posting (ARG, STATE, NOMEM)
 * takes no place in the order; a later one ends the communicator. A message that nobody sends or
 * receives is TIMEOUT when nothing has moved for the operation time-out, and the text names the peer;
 * one with a rank that has left or died is PEER_LOST.
 */

/* buffer[0..count) goes to rank `to`, 0 <= to < world size. */
GYRE_API gyre_status gyre_send(gyre_comm *comm, const void *buffer, size_t count, gyre_dtype type,
                               int to);
GYRE_API gyre_status gyre_send_async(gyre_comm *comm, const void *buffer, size_t count,
                                     gyre_dtype type, int to, gyre_request **req);
/* buffer[0..count) is filled with what rank `from` sends, 0 <= from < world size. */
GYRE_API gyre_status gyre_recv(gyre_comm *comm, void *buffer, size_t count, gyre_dtype type,
                               int from);
GYRE_API gyre_status gyre_recv_async(gyre_comm *comm, void *buffer, size_t count, gyre_dtype type,
                                     int from, gyre_request **req);

/* -------------------------------------------------------------------------------- requests --- */

/* Called once on the driving thread after the request has completed. Inside it, asynchronous posts,
 * test, gyre_request_free and gyre_comm_abort are legal; anything that waits returns
 * GYRE_ERR_STATE. */
typedef void (*gyre_callback)(gyre_request *req, gyre_status status, void *user);

/* GYRE_IN_PROGRESS, GYRE_OK or the operation's error. Makes a pass of progress if nobody else does.
 * Does not free. A NULL request is GYRE_OK. */
GYRE_API gyre_status gyre_test(gyre_request *req);
/* Waits at most timeout_ms (-1: until the operation's own deadline ends it) and frees the request,
 * except when the time is over first: then GYRE_IN_PROGRESS, and the operation goes on. One thread
 * may wait on a request. A NULL request is GYRE_OK. Errors: the operation's; STATE from a
 * callback. */
GYRE_API gyre_status gyre_wait(gyre_request *req, int timeout_ms);
/* Gives the request up, finished or not. An operation in flight goes on to its end, using its
 * buffers. A callback that is set still runs. NULL is allowed. */
GYRE_API void gyre_request_free(gyre_request *req);
/* Sets the callback of a request, once; if it has completed already the callback runs soon, never
 * inside this call. Errors: ARG; STATE if one is set. */
GYRE_API gyre_status gyre_request_on_complete(gyre_request *req, gyre_callback fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
