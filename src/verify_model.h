/*
 * verify_model.h - the symbolic model that verify.c judges: all ranks' programs, their memory and
 * their links.
 *
 * Role:   a unit is one slice of one instruction; a cell is one slice of memory and says which
 *         contributions stand in it. A run takes steps (post, move, complete, local) in the order
 *         of its policy until none is possible.
 * Thread: pure.
 * Owner:  everything hangs on one struct model, given back with gy_model_clear. Private to
 *         verify.c.
 */
#ifndef GY_VERIFY_MODEL_H
#define GY_VERIFY_MODEL_H

#include "geometry.h"
#include "status.h"
#include "verify.h"

#define GY_MODEL_LINE 64u /* bytes of a model slice: the smallest that geometry allows */
#define GY_MODEL_NONE UINT32_MAX

/* What stands in a cell. Contributions are told apart by 64-bit fingerprints, which add up. */
struct value {
  uint64_t parts;    /* the multiset of contributions: the sum of their fingerprints */
  uint64_t shape;    /* the expression: operands' order and grouping */
  uint32_t count;    /* contributions */
  uint16_t finished; /* how often FINISH was applied */
  uint16_t defined;
  int first, last; /* ranks of the leftmost and the rightmost operand */
  bool ordered;    /* the operands are those of the ranks from first to last, in this order */
};

struct cell {
  struct value value;
  uint32_t version; /* counts writes */
};

struct member { /* one rank */
  const struct gy_program *p;
  const struct gy_key *key;
  struct gy_geometry geometry; /* GY_VARY: of this rank's own call */
  uint32_t *slices;            /* by instruction */
  uint32_t *base;              /* by instruction: its first unit; n_insn + 1 */
  uint32_t *issued, *done;     /* by instruction, as in the engine */
  uint16_t *insn;              /* by unit */
  uint32_t *previous; /* by unit: the one before it in link (local: slice) order, or GY_MODEL_NONE */
  uint32_t *version;  /* by unit: of a SEND's source when it was posted */
  uint32_t *log;      /* of the current run: 2 * unit for a post, 2 * unit + 1 for a completion */
  uint32_t n_unit, n_log;
  struct cell *cells;
  uint32_t n_cell;
};

struct link { /* one direction of one lane between two ranks */
  int from, to;
  uint8_t lane;
  uint32_t length;
  uint32_t *send, *recv; /* units in link order */
  uint32_t sent, posted, moved, completed;
};

struct local { /* a COPY or LOCAL_REDUCE */
  int rank;
  uint16_t insn;
};

struct move { /* a message of the current run */
  uint32_t link, index;
};

struct block { /* memory of the model */
  struct block *next;
};

struct model {
  int n;
  struct gy_verify_options options;
  uint32_t chunk_slices; /* of the longest chunk */
  uint32_t n_range;      /* chunks, and as many weights where the collective has them */
  struct member *members;
  uint64_t *sums; /* by chunk and slice: the fingerprints of all ranks' contributions */
  struct link *links;
  struct local *locals;
  uint32_t n_link, n_local;
  struct move *moves;
  uint32_t n_move;
  uint32_t *actions; /* a permutation of 4 * n_link + n_local actions */
  uint64_t random;
  struct block *blocks;
  gyre_status status; /* the first failure; its text is in gyre_last_error() */
};

enum policy {
  IN_ORDER, /* every step as soon as it can */
  REVERSED, /* last ranks first, and sends complete only when nothing else can happen */
  SHUFFLED  /* any step or none, at random; runs of eager and of late completion */
};

/* Lays out memory and pairs the links; a failure is in m->status, as everywhere. GY_VARY: `count` is
 * that of the longest block; the others' are drawn, unless `even`. */
void gy_model_set_up(struct model *m, const struct gy_program *const *programs,
                     const struct gy_key *keys, size_t count, bool even);
/* Starts over and runs until nothing can happen. */
void gy_model_run(struct model *m, enum policy policy);
void gy_model_clear(struct model *m);

/* Zeroed memory that lives as long as the model. Sets m->status and returns NULL where there is
 * none. */
void *gy_model_take(struct model *m, size_t n, size_t bytes);
/* Keeps the first failure: "rank 2 insn 7 slice 1: ...". */
void gy_model_wrong(struct model *m, int rank, uint32_t unit, const char *fmt, ...) GY_PRINTF(4, 5);
/* How many slices of dependency k must be done before slice s of x. */
uint32_t gy_model_needed(const struct model *m, const struct member *r, const struct gy_insn *x,
                         unsigned k, uint32_t slice);
uint32_t gy_model_cell_index(const struct model *m, const struct member *r, struct gy_ref name,
                             uint32_t slice);
struct cell *gy_model_cell(const struct model *m, int rank, struct gy_ref ref, uint32_t slice);
/* Whether an instruction reads the sum of the weights. */
bool gy_model_divides(const struct member *r, const struct gy_insn *x);
/* Of one rank's contribution to a slice. */
uint64_t gy_model_fingerprint(int rank, uint32_t chunk, uint32_t slice);

/* The finalizer of splitmix64 (Steele, Lea and Flood, 2014). */
static inline uint64_t gy_model_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static inline const struct gy_insn *gy_model_insn(const struct member *r, uint32_t unit) {
  return &r->p->insn[r->insn[unit]];
}
static inline uint32_t gy_model_slice(const struct member *r, uint32_t unit) {
  return unit - r->base[r->insn[unit]];
}

#endif
