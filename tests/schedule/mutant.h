/*
 * mutant.h - programs with one thing changed, for testing the verifier and the engine.
 *
 * Role:   a draft is an editable copy of a program that goes through the builder again, so a
 *         changed program passes the same form check and gets its own queues. A mutant is a whole
 *         set of programs, one of them changed at random.
 * Thread: any.
 * Owner:  a mutant's programs are freed with mutant_free.
 */
#ifndef MUTANT_H
#define MUTANT_H

#include "schedule.h"

#define MUTANT_MAX_RANKS 16
#define DRAFT_MAX_INSN 128

struct draft {
  struct gy_key key;
  uint16_t n_chunk;
  uint8_t layout, tmp_whole;
  unsigned n_insn;
  struct gy_insn insn[DRAFT_MAX_INSN];
};

void draft_load(struct draft *d, const struct gy_program *p, const struct gy_key *key);
/* Takes one instruction out; what depended on it depends on nothing instead. */
void draft_remove(struct draft *d, unsigned insn);
/* Takes out dependency k of an instruction. */
void draft_remove_dep(struct draft *d, unsigned insn, unsigned k);
/* Errors: what the builder's form check says. */
gyre_status draft_build(const struct draft *d, struct gy_program **out);

enum mutation {
  MUTATE_REMOVE_DEP,
  MUTATE_LAG,      /* another enum gy_lag */
  MUTATE_RETARGET, /* a dependency on another instruction */
  MUTATE_SWAP_PEERS,
  MUTATE_SWAP_CHUNKS, /* two instructions exchange their references */
  MUTATE_SWAP_ORDER,  /* two neighbouring instructions change places, dependencies following */
  MUTATE_REDIRECT,    /* another peer */
  MUTATE_CHUNK,       /* another chunk, on one side */
  MUTATE_BUFFER,      /* IN, OUT or TMP instead of another, on one side */
  MUTATE_FLAG,        /* SWAP or FINISH on or off */
  MUTATE_PHASE,       /* another place in link order */
  MUTATE_REMOVE,
  MUTATE_REPEAT, /* the instruction once more, at the end */
  MUTATION_COUNT
};

const char *mutation_name(enum mutation kind);

struct mutant {
  int nranks, rank; /* rank: whose program was changed */
  enum mutation kind;
  enum gy_insn_op op; /* of the instruction that was changed */
  char what[128];     /* "rank 1 insn 3: peer 2 becomes 0" */
  struct gy_key keys[MUTANT_MAX_RANKS];
  struct gy_program *programs[MUTANT_MAX_RANKS];
};

/* Makes the mutant that `seed` means, 2 <= nranks <= MUTANT_MAX_RANKS; each rank is in or out of
 * place by seed too (in place where the engine always is). GYRE_OK; GYRE_ERR_ARG where the builder refuses the changed program
 * (m->what is set, nothing is to be freed); GYRE_ERR_UNSUPPORTED where this seed found nothing
 * to change. */
gyre_status mutant_make(struct mutant *m, const struct gy_algo *algo, int nranks, int root,
                        uint64_t seed);
void mutant_free(struct mutant *m);

#endif
