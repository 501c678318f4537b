/*
 * schedule.h - an algorithm is data: programs, the builder that makes them, and the table of
 * algorithms.
 *
 * Role:   a program is what one rank does in one collective: a list of fixed-size instructions over
 *         chunks, the same for every message size. A builder file in collectives/ makes it; the
 *         engine runs it slice by slice; verify.c proves it for all ranks together without a
 *         network.
 * Thread: programs are immutable once finished; builders are used by one thread.
 * Owner:  a program is freed with gy_program_free by whoever holds it (the communicator's cache, a
 *         test).
 */
#ifndef GY_SCHEDULE_H
#define GY_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "coll.h"
#include "gyre/gyre.h"

enum gy_insn_op {
  GY_SEND,        /* src -> peer */
  GY_RECV,        /* peer -> dst */
  GY_RECV_REDUCE, /* dst = src (op) incoming; with GY_REF_SWAP dst = incoming (op) src */
  GY_COPY,        /* dst = src; nothing to do where both are the same address */
  GY_LOCAL_REDUCE /* dst = dst (op) src; with GY_REF_SWAP dst = src (op) dst */
};

#define GY_REF_SWAP 1u   /* on dst: the other operand stands left */
#define GY_REF_FINISH 2u /* on dst: this instruction completes the reduction: AVG divides here */
#define GY_REF_IDENTITY \
  4u /* on dst of a COPY: the operator's identity is written, src is not read */

struct gy_ref {
  uint8_t buf;    /* enum gy_buf */
  uint8_t flags;  /* GY_REF_* */
  uint16_t chunk; /* which chunk of the buffer; for GY_TMP which scratch slot */
  uint16_t range; /* the chunk whose LENGTH this transfer has (differs from `chunk` only for GY_TMP, and
                     where a buffer holds this rank's own block alone); n_chunk + c: the weight of chunk c
                     (weights.h) */
};

/* Whether a reference is to the weight of the chunk or scratch slot that it names, and the one to
 * that weight. */
static inline bool gy_is_weight(struct gy_ref r, unsigned n_chunk) { return r.range >= n_chunk; }
static inline struct gy_ref gy_weight_of(struct gy_ref r, unsigned n_chunk) {
  r.flags &= (uint8_t)~GY_REF_FINISH;
  r.range = (uint16_t)(r.range + n_chunk);
  return r;
}

#define GY_NODEP UINT16_MAX
/* Values of dep_lag. Slice s may start once done[dep] > s, counting a finished instruction as done
 * for all s. GY_LAG_WINDOW: once done[dep] + tmp_window > s, for reuse of a windowed scratch slot.
 * GY_LAG_WHOLE: once every slice of dep is done, for instructions over different ranges. */
enum gy_lag { GY_LAG_NONE, GY_LAG_WINDOW, GY_LAG_WHOLE };

struct gy_insn { /* runs once per slice, slices strictly in order */
  uint8_t op;    /* enum gy_insn_op */
  uint8_t lane;
  uint16_t peer; /* the rank at the other end; unused by COPY and LOCAL_REDUCE */
  struct gy_ref src, dst;
  uint16_t dep[2]; /* GY_NODEP or the index of an earlier instruction (for GY_LAG_WINDOW also a later one) */
  uint8_t dep_lag[2]; /* enum gy_lag */
  uint16_t phase;     /* messages on one link direction go in (phase, slice, index) order */
};

/* All instructions for one direction of one link, in link order. Local instructions have no
 * queue. */
struct gy_queue {
  uint16_t peer;
  uint8_t lane;
  uint8_t recv;          /* 0: sends, 1: receives */
  uint16_t first, count; /* into gy_program.order */
};

struct gy_program {
  uint16_t n_insn, n_chunk, n_tmp;
  uint16_t n_queue;
  uint8_t layout; /* enum gy_layout */
  uint8_t tmp_whole; /* 0: a scratch slot is a window of slices (slice s at s % window), 1: a whole chunk */
  uint16_t n_local; /* COPY and LOCAL_REDUCE instructions */
  const uint16_t *order; /* n_insn indices: those of queue 0 in link order, queue 1, ..., then the local ones */
  const struct gy_queue *queue;
  struct gy_insn insn[];
};

struct gy_key { /* what a program depends on; also the key of the cache */
  uint8_t coll; /* enum gy_coll */
  uint8_t in_place; /* this rank's in == out (see gyre.h for the collective); affects local steps only */
  uint8_t ordered; /* operands are to be combined in rank order; narrows the choice, not the program */
  int nranks, rank, root;
};

/* Constants of the cost model; agreed by all ranks (rank 0's values). */
struct gy_cost {
  double latency_us;  /* one message, end to end */
  double us_per_byte; /* moving one byte over a link */
  double reduce_us_per_byte;
  double step_us;    /* engine and system-call cost of one more message */
  double contention; /* ranks on this host per core, at least 1 */
  size_t slice_bytes;
};

/* How many chunks of IN or OUT this rank has, in a program of n_chunk chunks. */
unsigned gy_buffer_chunks(const struct gy_key *key, unsigned buf, unsigned n_chunk);
/* The range whose length such a chunk has. GY_VARY: range r is the block of rank r; in an all-to-all
 * the block that goes to rank r, and nranks + r the one that comes from it, unless it is the same
 * (this rank's own; in place). */
unsigned gy_chunk_range(const struct gy_key *key, unsigned buf, unsigned chunk);

struct gy_builder;

/* What a file in collectives/ exports; one or more of these, listed in algorithms.c. */
struct gy_algo {
  const char *name; /* "ring" */
  uint8_t coll;     /* enum gy_coll */
  int max_ranks;    /* 0: no limit */
  gyre_status (*build)(const struct gy_key *key, struct gy_builder *b);
  /* Estimated time in microseconds by the alpha-beta-gamma model of select.h. */
  double (*cost_us)(const struct gy_key *key, size_t bytes, const struct gy_cost *cost);
  /* Of a reduction: operands always stand in rank order, as operators that are not commutative
   * need it. verify.h proves it. */
  bool ordered;
};

/* ------------------------------------------------------------------------------- builder --- */

struct gy_builder *gy_builder_create(const struct gy_key *key);
void gy_builder_free(struct gy_builder *b);

/* References. gy_tmp(slot, range): scratch slot `slot` holding data as long as chunk `range`. */
struct gy_ref gy_in(unsigned chunk);
struct gy_ref gy_in_as(unsigned chunk, unsigned range);
struct gy_ref gy_out(unsigned chunk);
struct gy_ref gy_out_as(unsigned chunk, unsigned range);
struct gy_ref gy_tmp(unsigned slot, unsigned range);
struct gy_ref gy_swap(struct gy_ref r);   /* r with GY_REF_SWAP */
struct gy_ref gy_finish(struct gy_ref r); /* r with GY_REF_FINISH */

void gy_b_layout(struct gy_builder *b, enum gy_layout layout, unsigned n_chunk);
/* The layout of a collective that moves a block for each rank. References to IN and OUT may leave
 * the range to the builder. */
void gy_b_blocks(struct gy_builder *b);
void gy_b_tmp_whole(struct gy_builder *b);
/* Each appends an instruction and returns its index. A failure (too many, bad reference, no memory)
 * is kept and returned by gy_b_finish, so builders need not check each step. Peers are given for
 * the real ranks. */
unsigned gy_b_send(struct gy_builder *b, int peer, struct gy_ref src);
unsigned gy_b_recv(struct gy_builder *b, int peer, struct gy_ref dst);
unsigned gy_b_recv_reduce(struct gy_builder *b, int peer, struct gy_ref dst, struct gy_ref src);
unsigned gy_b_copy(struct gy_builder *b, struct gy_ref dst, struct gy_ref src);
unsigned gy_b_reduce(struct gy_builder *b, struct gy_ref dst, struct gy_ref src);
unsigned gy_b_identity(struct gy_builder *b, struct gy_ref dst); /* dst = the operator's identity */
/* Instruction `insn` may run slice s only when `on` allows it (see gy_lag). `on` may be GY_NODEP:
 * nothing. At most two for each instruction. */
void gy_b_after(struct gy_builder *b, unsigned insn, unsigned on);
void gy_b_after_window(struct gy_builder *b, unsigned insn, unsigned on);
void gy_b_after_whole(struct gy_builder *b, unsigned insn, unsigned on);
/* Default phase: the instruction's own index. */
void gy_b_phase(struct gy_builder *b, unsigned insn, unsigned phase);
/* Checks the program's form, sorts its queues, and hands it over in *out; ARG/NOMEM/INTERNAL
 * otherwise. */
gyre_status gy_b_finish(struct gy_builder *b, struct gy_program **out);
void gy_program_free(struct gy_program *p);
/* One line an instruction, as in: "3 RECV_REDUCE from 2  OUT[1] = IN[1] + incoming  after 1". */
void gy_program_print(const struct gy_program *p, const struct gy_key *key, FILE *to);

/* ---------------------------------------------------------------------------- algorithms --- */

/* All algorithms; *n is their number. Order within a collective is the order of the documentation.
 * Index into this table is what travels on the wire, so entries are only ever appended. */
const struct gy_algo *const *gy_algorithms(size_t *n);
const struct gy_algo *gy_algo_find(enum gy_coll coll, const char *name); /* NULL if none */
/* Builds the program of one rank: builder, algo->build, finish. */
gyre_status gy_program_build(const struct gy_algo *algo, const struct gy_key *key,
                             struct gy_program **out);

#endif
