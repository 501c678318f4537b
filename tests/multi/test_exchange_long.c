/*
 * test_exchange_long.c - blocks of more than 2 GiB, on sparse memory: what is sent is untouched zero
 * pages but for its ends, and what is received goes to one small file that is mapped again and again.
 * The ends are compared; a length or an offset that is cut to 32 bits ends elsewhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ranks.h"

#define MIB ((size_t)1 << 20)
#define PIECE (16 * MIB) /* of the file */
#define LARGE (((size_t)2 << 30) + 3 * MIB + 5)
#define SPACE (3072 * MIB)

static unsigned char *zeros(void) {
  void *at =
      mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

static unsigned char *folded(void) {
  unsigned char *at =
      mmap(NULL, SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  int fd = memfd_create("exchange", MFD_CLOEXEC);
  bool ok = at != MAP_FAILED && fd >= 0 && ftruncate(fd, (off_t)PIECE) == 0;
  for (size_t done = 0; ok && done < SPACE; done += PIECE)
    ok = mmap(at + done, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  close(fd);
  return ok ? at : NULL;
}

/* The last bytes of a block come last, so they stand in the file when it is complete. */
static bool ends_with(const unsigned char *end, int rank) {
  return end[-1] == 0x40 + rank && end[-2] == 0x50 + rank;
}

static void mark_end(unsigned char *end, int rank) {
  end[-1] = (unsigned char)(0x40 + rank);
  end[-2] = (unsigned char)(0x50 + rank);
}

static int exchange(struct rank_env *env) {
  int other = 1 - env->rank;
  unsigned char *in = zeros(), *out = folded();
  if (!in || !out) return RANK_FAIL(env, "no address space");
  /* All-to-all: the large block is the one that goes to the other rank. */
  size_t counts[2] = {LARGE, LARGE}, displs[2];
  counts[env->rank] = 7;
  displs[other] = 11;
  displs[env->rank] = 11 + LARGE + 9;
  mark_end(in + 11 + LARGE, env->rank);
  if (gyre_all_to_all_v(env->comm, in, counts, displs, out, counts, displs, GYRE_U8))
    return RANK_FAIL(env, "all_to_all_v: %s", gyre_last_error());
  if (!ends_with(out + 11 + LARGE, other)) return RANK_FAIL(env, "all_to_all_v: the end is wrong");
  /* Gather: as many bytes in elements of 2. */
  size_t few = LARGE / 2;
  memset(out, 0, PIECE);
  mark_end(in + 2 * few, env->rank);
  size_t parts[2] = {3, few}, starts[2] = {0, 17};
  if (gyre_gather_v(env->comm, in, parts[env->rank], out, parts, starts, GYRE_I16, 0))
    return RANK_FAIL(env, "gather_v: %s", gyre_last_error());
  if (env->rank == 0 && !ends_with(out + 2 * (17 + few), 1))
    return RANK_FAIL(env, "gather_v: the end is wrong");
  /* A scatter of equal blocks, in elements of 8 bytes: the second starts in the middle. */
  size_t half = LARGE / 16;
  memset(out, 0, PIECE);
  mark_end(in + 16 * half, 0);
  if (gyre_scatter(env->comm, in, out, half, GYRE_F64, 0))
    return RANK_FAIL(env, "scatter: %s", gyre_last_error());
  if (env->rank == 1 && !ends_with(out + 8 * half, 0))
    return RANK_FAIL(env, "scatter: the end is wrong");
  return 0;
}

static void more_than_two_gigabytes(void **state) {
  (void)state;
  struct ranks_options options = {.timeout_s = 1500};
  assert_int_equal(ranks_run(2, exchange, &options), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(more_than_two_gigabytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
