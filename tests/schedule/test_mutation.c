/*
 * test_mutation.c - the verifier and the engine against programs with one thing changed.
 *
 * A mutant that the verifier accepts must give right results on the real engine under many seeds;
 * the classes of change that always change the meaning must never be accepted, and the engine must
 * get them wrong. MUTATION_SEEDS in the environment sets the seeds tried for each algorithm and
 * rank count, and has every accepted mutant run, not a sample.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "mutant.h"
#include "status.h"
#include "trial.h"

#define ENGINE_SEEDS 50 /* interleavings that an accepted mutant must survive */

struct tally {
  unsigned refused, rejected, accepted, run;
};

static unsigned seeds_per_case(void) {
  const char *text = getenv("MUTATION_SEEDS");
  return text == NULL ? 200 : (unsigned)strtoul(text, NULL, 10);
}

/* Of those accepted, every so manieth runs on the engine. */
static unsigned sample_stride(void) { return getenv("MUTATION_SEEDS") == NULL ? 16 : 1; }

/* Whether no change of this kind can leave the meaning as it was, as the two ends of a link no
 * longer fit. */
static bool always_wrong(const struct mutant *m) {
  bool message = m->op == GY_SEND || m->op == GY_RECV || m->op == GY_RECV_REDUCE;
  return m->kind == MUTATE_REDIRECT ||
         (message && (m->kind == MUTATE_REMOVE || m->kind == MUTATE_REPEAT));
}

static void try_accepted(const struct gy_algo *algo, const struct mutant *m, uint64_t seed,
                         struct tally *tally) {
  assert_false(always_wrong(m));
  if (tally->accepted++ % sample_stride() != 0) return;
  tally->run++;
  const char *what = trial_engine(m, algo, seed, ENGINE_SEEDS);
  if (what)
    fail_msg("accepted, but wrong on the engine: %s %s, %d ranks, seed %llu: %s: %s",
             gy_coll_name(algo->coll), algo->name, m->nranks, (unsigned long long)seed, m->what,
             what);
}

static void try_mutant(const struct gy_algo *algo, int nranks, uint64_t seed, struct tally *tally) {
  struct mutant m;
  gyre_status status = mutant_make(&m, algo, nranks, (int)(seed % (uint64_t)nranks), seed);
  if (status == GYRE_ERR_UNSUPPORTED) return;
  if (status != GYRE_OK) {
    assert_int_equal(status, GYRE_ERR_ARG);
    tally[m.kind].refused++;
    return;
  }
  status = trial_verify(&m, seed);
  if (status == GYRE_OK) {
    try_accepted(algo, &m, seed, &tally[m.kind]);
  } else {
    assert_int_equal(status, GYRE_ERR_INTERNAL);
    tally[m.kind].rejected++;
  }
  mutant_free(&m);
}

static void accepted_mutants_are_right_on_the_engine(void **state) {
  (void)state;
  struct tally tally[MUTATION_COUNT] = {{0, 0, 0, 0}};
  unsigned refused = 0, rejected = 0, accepted = 0;
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++)
    for (int nranks = 2; nranks <= 6; nranks++)
      for (unsigned k = 0; k < seeds_per_case(); k++)
        try_mutant(all[i], nranks, (uint64_t)i * 1000003 + (uint64_t)nranks * 10007 + k, tally);
  for (unsigned kind = 0; kind < MUTATION_COUNT; kind++) {
    print_message("%-24s refused by form %4u  rejected %4u  accepted %4u, of which run %4u\n",
                  mutation_name((enum mutation)kind), tally[kind].refused, tally[kind].rejected,
                  tally[kind].accepted, tally[kind].run);
    refused += tally[kind].refused;
    rejected += tally[kind].rejected;
    accepted += tally[kind].accepted;
  }
  print_message("%u mutants: refused by form %u, rejected %u, accepted %u\n",
                refused + rejected + accepted, refused, rejected, accepted);
  assert_true(refused + rejected + accepted >= 500);
  assert_true(rejected > accepted);
}

/* Dependencies that hold for a reason that this very program does not have: that an IN which was
 * sent is overwritten, out of place (as weights always are); and, in the last round of a barrier whose rounds overlap,
 * news that has come by another way. */
static bool is_spare(const struct draft *d, unsigned insn, unsigned k) {
  const struct gy_insn *on = &d->insn[d->insn[insn].dep[k]];
  if (d->key.coll == GY_BARRIER)
    return (d->key.nranks & (d->key.nranks - 1)) != 0 && insn == d->n_insn - 2;
  bool apart = !d->key.in_place || gy_is_weight(on->src, d->n_chunk); /* IN and OUT */
  return apart && on->op == GY_SEND && on->src.buf == GY_IN;
}

static void remove_each_dep(const struct gy_algo *algo, struct mutant *m, int rank,
                            unsigned *removed) {
  struct draft original;
  draft_load(&original, m->programs[rank], &m->keys[rank]);
  for (unsigned insn = 0; insn < original.n_insn; insn++)
    for (unsigned k = 0; k < 2; k++) {
      if (original.insn[insn].dep[k] == GY_NODEP || is_spare(&original, insn, k)) continue;
      struct draft changed = original;
      draft_remove_dep(&changed, insn, k);
      gy_program_free(m->programs[rank]);
      assert_int_equal(draft_build(&changed, &m->programs[rank]), GYRE_OK);
      if (trial_verify(m, 1) == GYRE_OK)
        fail_msg("%s %s, %d ranks: rank %d insn %u does not need its dependency %u",
                 gy_coll_name(algo->coll), algo->name, m->nranks, rank, insn, k);
      ++*removed;
    }
  gy_program_free(m->programs[rank]);
  assert_int_equal(draft_build(&original, &m->programs[rank]), GYRE_OK);
}

/* Every dependency of every program is there for a reason, and the verifier knows the reason. */
static void removing_any_dependency_is_noticed(void **state) {
  (void)state;
  size_t n;
  unsigned removed = 0;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++)
    for (int nranks = 2; nranks <= 6; nranks++)
      for (uint8_t in_place = 0; in_place < 2; in_place++) {
        struct mutant m = {.nranks = nranks};
        for (int rank = 0; rank < nranks; rank++) {
          m.keys[rank] = (struct gy_key){
              .coll = all[i]->coll, .in_place = in_place, .nranks = nranks, .rank = rank};
          assert_int_equal(gy_program_build(all[i], &m.keys[rank], &m.programs[rank]), GYRE_OK);
        }
        for (int rank = 0; rank < nranks; rank++) remove_each_dep(all[i], &m, rank, &removed);
        mutant_free(&m);
      }
  assert_true(removed > 500);
}

/* The engine has no mercy that the verifier lacks: a change that is always wrong is wrong there
 * too, most of the time at the first seed. This also shows that the engine runs the mutant, and not
 * a program of its own. */
static void mutants_that_cannot_be_right_are_wrong_on_the_engine(void **state) {
  (void)state;
  size_t n;
  unsigned wrong = 0;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++)
    for (int nranks = 2; nranks <= 5; nranks++) {
      unsigned tried = 0;
      for (uint64_t seed = 1; tried < 4 && seed < 200; seed++) {
        struct mutant m;
        if (mutant_make(&m, all[i], nranks, (int)(seed % (uint64_t)nranks), seed)) continue;
        if (always_wrong(&m)) {
          tried++;
          if (trial_engine(&m, all[i], seed, 4) == NULL)
            fail_msg("right on the engine: %s %s, %d ranks, seed %llu: %s",
                     gy_coll_name(all[i]->coll), all[i]->name, nranks, (unsigned long long)seed,
                     m.what);
          wrong++;
        }
        mutant_free(&m);
      }
    }
  assert_true(wrong > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(accepted_mutants_are_right_on_the_engine),
      cmocka_unit_test(mutants_that_cannot_be_right_are_wrong_on_the_engine),
      cmocka_unit_test(removing_any_dependency_is_noticed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
