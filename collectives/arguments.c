/*
 * arguments.c - see arguments.h.
 *
 * Thread: any.
 */
#include "arguments.h"

#include <stdlib.h>
#include "weights.h"

struct extent { /* what of a buffer the call touches on this rank; bytes 0: nothing */
  const char *at;
  size_t bytes;
};

static const char *const buffer_names[] = {[GY_IN] = "in", [GY_OUT] = "out"};

static const char *base_of(const struct gy_call *call, enum gy_buf buf) {
  return buf == GY_IN ? call->in : call->out;
}

static enum gy_share share_of(const gyre_comm *comm, const struct gy_call *call, enum gy_buf buf) {
  return gy_coll_share(call->coll, buf, comm->core.rank == call->root);
}

static bool varies(const struct gy_call *call) {
  return gy_coll_traits(call->coll)->layout == GY_VARY;
}

static bool overlap(struct extent a, struct extent b) {
  return a.bytes && b.bytes && (uintptr_t)a.at < (uintptr_t)b.at + b.bytes &&
         (uintptr_t)b.at < (uintptr_t)a.at + a.bytes;
}

/* The root of a broadcast or a scatter may say with `out` NULL that it wants no copy of its own. */
static bool may_leave_out_away(const gyre_comm *comm, const struct gy_call *call) {
  return call->root == comm->core.rank &&
         (call->coll == GY_BROADCAST || call->coll == GY_SCATTER || call->coll == GY_SCATTER_V);
}

/* ---------------------------------------------------------------------- blocks that vary --- */

/* Elements of this rank's own block. */
static size_t own_count(const gyre_comm *comm, const struct gy_call *call) {
  for (int buf = GY_IN; buf <= GY_OUT && varies(call); buf++)
    if (call->counts[buf]) return call->counts[buf][comm->core.rank];
  return call->count;
}

/* From the first to behind the last block, gaps included. */
static gyre_status measure(const gyre_comm *comm, const struct gy_call *call, enum gy_buf buf,
                           struct extent *out) {
  const size_t *counts = call->counts[buf], *displs = call->displs[buf];
  size_t esize = gyre_dtype_size(call->dtype), first = SIZE_MAX, last = 0, packed = 0;
  for (int r = 0; r < comm->core.nranks; r++) {
    size_t start = displs ? displs[r] : packed, end;
    if (__builtin_add_overflow(start, counts[r], &end) || end > PTRDIFF_MAX / esize ||
        __builtin_add_overflow(packed, counts[r], &packed) || packed > PTRDIFF_MAX / esize) {
      return gy_fail(GYRE_ERR_ARG,
                     "gyre_%s: the block of rank %d in %s, %zu elements of %zu bytes at %zu, ends "
                     "beyond the address space",
                     gy_coll_name(call->coll), r, buffer_names[buf], counts[r], esize, start);
    }
    if (counts[r] == 0) continue;
    if (start < first) first = start;
    if (end > last) last = end;
  }
  if (last == 0) return GYRE_OK; /* all are empty */
  const char *base = base_of(call, buf);
  *out = (struct extent){base ? base + first * esize : NULL, (last - first) * esize};
  return GYRE_OK;
}

struct block {
  size_t start, end;
  int rank;
};

static int compare_blocks(const void *pa, const void *pb) {
  const struct block *a = pa, *b = pb;
  return (a->start > b->start) - (a->start < b->start);
}

static gyre_status check_disjoint(const gyre_comm *comm, const struct gy_call *call, enum gy_buf buf) {
  const size_t *counts = call->counts[buf], *displs = call->displs[buf];
  if (!counts || !displs) return GYRE_OK;
  struct block *block = malloc((size_t)comm->core.nranks * sizeof *block);
  if (!block) return gy_fail(GYRE_ERR_NOMEM, "out of memory for %d blocks", comm->core.nranks);
  int n = 0;
  for (int r = 0; r < comm->core.nranks; r++)
    if (counts[r]) block[n++] = (struct block){displs[r], displs[r] + counts[r], r};
  qsort(block, (size_t)n, sizeof *block, compare_blocks);
  gyre_status st = GYRE_OK;
  for (int i = 1; i < n && !st; i++) {
    if (block[i].start >= block[i - 1].end) continue;
    st = gy_fail(GYRE_ERR_ARG, "gyre_%s: the blocks of ranks %d and %d overlap in %s",
                 gy_coll_name(call->coll), block[i - 1].rank, block[i].rank, buffer_names[buf]);
  }
  free(block);
  return st;
}

/* What this rank keeps to itself has one length, whatever names it. */
static gyre_status check_own(const gyre_comm *comm, const struct gy_call *call) {
  int rank = comm->core.rank;
  const char *name = gy_coll_name(call->coll);
  for (int buf = GY_IN; buf <= GY_OUT; buf++) {
    size_t other = call->coll == GY_ALL_TO_ALL_V ? call->counts[GY_IN][rank] : call->count;
    bool twice = call->coll == GY_ALL_TO_ALL_V || gy_coll_traits(call->coll)->rooted;
    if (!call->counts[buf] || !twice || call->counts[buf][rank] == other) continue;
    return gy_fail(
        GYRE_ERR_ARG,
        "gyre_%s: rank %d's block for itself has %zu elements in one argument and %zu in "
        "another",
        name, rank, other, call->counts[buf][rank]);
  }
  return GYRE_OK;
}

/* All-to-all in place: what comes from a rank takes the place of what goes to it. */
static gyre_status check_same_blocks(const gyre_comm *comm, const struct gy_call *call) {
  const size_t *in_counts = call->counts[GY_IN], *out_counts = call->counts[GY_OUT];
  size_t in_packed = 0, out_packed = 0;
  if (!in_counts || !out_counts) return GYRE_OK;
  for (int r = 0; r < comm->core.nranks; r++) {
    size_t in = in_counts[r], out = out_counts[r];
    size_t in_at = call->displs[GY_IN] ? call->displs[GY_IN][r] : in_packed;
    size_t out_at = call->displs[GY_OUT] ? call->displs[GY_OUT][r] : out_packed;
    in_packed += in;
    out_packed += out;
    if (in == out && (in_at == out_at || !in)) continue;
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_%s: in place, but the blocks to and from rank %d differ in count or place",
                   gy_coll_name(call->coll), r);
  }
  return GYRE_OK;
}

static gyre_status check_blocks(const gyre_comm *comm, const struct gy_call *call) {
  gyre_status st = GYRE_OK;
  for (int buf = GY_IN; buf <= GY_OUT; buf++) {
    if (share_of(comm, call, (enum gy_buf)buf) != GY_ALL || call->counts[buf]) continue;
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: the counts of %s are NULL", gy_coll_name(call->coll),
                   buffer_names[buf]);
  }
  for (int buf = GY_IN; buf <= GY_OUT && !st; buf++) {
    struct extent whole;
    if (call->counts[buf]) st = measure(comm, call, (enum gy_buf)buf, &whole);
  }
  if (!st) st = check_own(comm, call);
  if (st) return st;
  bool in_place = gy_call_in_place(call, comm->core.rank);
  if (share_of(comm, call, GY_OUT) == GY_ALL) st = check_disjoint(comm, call, GY_OUT);
  if (!st && in_place && call->coll == GY_REDUCE_SCATTER_V) st = check_disjoint(comm, call, GY_IN);
  if (!st && in_place && call->coll == GY_ALL_TO_ALL_V) st = check_same_blocks(comm, call);
  return st;
}

/* --------------------------------------------------------------------------------- buffers --- */

/* After the counts have been checked, so that nothing overflows. */
static struct extent extent_of(const gyre_comm *comm, const struct gy_call *call, enum gy_buf buf) {
  size_t own = own_count(comm, call) * gyre_dtype_size(call->dtype);
  struct extent e = {base_of(call, buf), own};
  enum gy_share share = share_of(comm, call, buf);
  bool unread = buf == GY_IN && gy_coll_traits(call->coll)->weighted && call->weight == 0;
  if (share == GY_NOTHING || unread || (!e.at && buf == GY_OUT && may_leave_out_away(comm, call)))
    e.bytes = 0;
  if (share != GY_ALL) return e;
  if (gy_coll_traits(call->coll)->layout == GY_BLOCK) e.bytes = own * (size_t)comm->core.nranks;
  if (varies(call)) {
    e.bytes = 0;
    measure(comm, call, buf, &e);
  }
  return e;
}

static gyre_status check_buffers(const gyre_comm *comm, const struct gy_call *call) {
  const char *name = gy_coll_name(call->coll);
  struct extent part[2];
  for (int buf = GY_IN; buf <= GY_OUT; buf++) {
    part[buf] = extent_of(comm, call, (enum gy_buf)buf);
    if (!part[buf].bytes || base_of(call, (enum gy_buf)buf)) continue;
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: %s is NULL with %zu bytes", name, buffer_names[buf],
                   part[buf].bytes);
  }
  if (overlap(part[GY_IN], part[GY_OUT]) && !gy_call_in_place(call, comm->core.rank)) {
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_%s: in and out overlap in part; they must be disjoint or in place", name);
  }
  return GYRE_OK;
}

gyre_status gy_check_call(const gyre_comm *comm, const struct gy_call *call) {
  const struct gy_coll_traits *traits = gy_coll_traits(call->coll);
  const char *name = traits->name;
  if (!comm) return gy_fail(GYRE_ERR_ARG, "gyre_%s: the communicator is NULL", name);
  if (gy_birth_check(&comm->ctx->birth, name)) return GYRE_ERR_STATE;
  size_t esize = gyre_dtype_size(call->dtype), block;
  if (!esize) return gy_fail(GYRE_ERR_ARG, "gyre_%s: %d is no type", name, (int)call->dtype);
  if (gy_coll_is_scan(call->coll) && call->op == GYRE_AVG)
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: there is no average of a scan; use GYRE_SUM", name);
  if (call->root < 0 || call->root >= comm->core.nranks) {
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: root %d: must be from 0 to %d", name, call->root,
                   comm->core.nranks - 1);
  }
  if (traits->weighted && gy_weight_check(name, call->dtype, call->op, call->weight))
    return GYRE_ERR_ARG;
  if (traits->weighted && !call->total)
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: the total is NULL", name);
  size_t blocks = traits->layout == GY_BLOCK ? (size_t)comm->core.nranks : 1;
  size_t limit = PTRDIFF_MAX / blocks;
  if (__builtin_mul_overflow(call->count, esize, &block) || block > limit) {
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_%s: count %zu of %zu bytes on %d ranks is more than the address space",
                   name, call->count, esize, comm->core.nranks);
  }
  gyre_status st = varies(call) ? check_blocks(comm, call) : GYRE_OK;
  return st ? st : check_buffers(comm, call);
}

void gy_settle_call(const gyre_comm *comm, struct gy_call *call) {
  bool all_know = varies(call) && !gy_coll_traits(call->coll)->rooted;
  if (!call->out && call->in && may_leave_out_away(comm, call)) {
    bool whole = call->coll == GY_BROADCAST;
    call->out =
        whole ? (void *)(uintptr_t)call->in : (void *)gy_call_own(call, GY_IN, comm->core.rank);
  }
  for (int buf = GY_IN; buf <= GY_OUT && all_know; buf++)
    for (int r = 0; call->counts[buf] && r < comm->core.nranks; r++)
      call->count += call->counts[buf][r];
  if (share_of(comm, call, GY_IN) == GY_NOTHING) call->in = NULL;
  if (share_of(comm, call, GY_OUT) == GY_NOTHING) call->out = NULL;
}
