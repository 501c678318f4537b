/* collective.c - the collectives that can be measured. See collective.h. */
#include "collective.h"

#include <string.h>

/* busbw = algbw * factor is what the busiest link carries: it compares with the link's own speed,
 * whatever the collective and the number of ranks. */
static double bus_all_reduce(int n) { return 2.0 * (n - 1) / n; }
static double bus_blocks(int n) { return (double)(n - 1) / n; }
static double bus_rooted(int n) {
  (void)n;
  return 1.0;
}

static gyre_status run_all_reduce(const struct perf_call *c) {
  return gyre_all_reduce(c->comm, c->in, c->out, c->count, c->type, c->op);
}

static gyre_status run_reduce_scatter(const struct perf_call *c) {
  return gyre_reduce_scatter(c->comm, c->in, c->out, c->count, c->type, c->op);
}

static gyre_status run_all_gather(const struct perf_call *c) {
  return gyre_all_gather(c->comm, c->in, c->out, c->count, c->type);
}

static gyre_status run_broadcast(const struct perf_call *c) {
  return gyre_broadcast(c->comm, c->in, c->out, c->count, c->type, c->root);
}

static gyre_status run_reduce(const struct perf_call *c) {
  return gyre_reduce(c->comm, c->in, c->out, c->count, c->type, c->op, c->root);
}

static gyre_status run_scan(const struct perf_call *c) {
  return gyre_scan(c->comm, c->in, c->out, c->count, c->type, c->op);
}

static gyre_status run_exclusive_scan(const struct perf_call *c) {
  return gyre_exclusive_scan(c->comm, c->in, c->out, c->count, c->type, c->op);
}

static gyre_status run_gather(const struct perf_call *c) {
  return gyre_gather(c->comm, c->in, c->out, c->count, c->type, c->root);
}

static gyre_status run_scatter(const struct perf_call *c) {
  return gyre_scatter(c->comm, c->in, c->out, c->count, c->type, c->root);
}

static gyre_status run_all_to_all(const struct perf_call *c) {
  return gyre_all_to_all(c->comm, c->in, c->out, c->count, c->type);
}

static gyre_status run_all_gather_v(const struct perf_call *c) {
  return gyre_all_gather_v(c->comm, c->in, c->out, c->counts, NULL, c->type);
}

static gyre_status run_reduce_scatter_v(const struct perf_call *c) {
  return gyre_reduce_scatter_v(c->comm, c->in, c->out, c->counts, NULL, c->type, c->op);
}

static gyre_status run_all_to_all_v(const struct perf_call *c) {
  return gyre_all_to_all_v(c->comm, c->in, c->counts, NULL, c->out, c->counts, NULL, c->type);
}

static gyre_status run_gather_v(const struct perf_call *c) {
  return gyre_gather_v(c->comm, c->in, c->counts[c->rank], c->out, c->counts, NULL, c->type, c->root);
}

static gyre_status run_scatter_v(const struct perf_call *c) {
  return gyre_scatter_v(c->comm, c->in, c->counts, NULL, c->out, c->counts[c->rank], c->type,
                        c->root);
}

/* A shift around the ring: to the next rank, from the one before. */
static gyre_status run_send_recv(const struct perf_call *c) {
  int n = gyre_comm_size(c->comm), rank = gyre_comm_rank(c->comm);
  gyre_request *request = NULL;
  gyre_status st = gyre_recv_async(c->comm, c->out, c->count, c->type, (rank + n - 1) % n, &request);
  if (st != GYRE_OK) return st;
  gyre_request *sent = NULL;
  st = gyre_send_async(c->comm, c->in, c->count, c->type, (rank + 1) % n, &sent);
  if (st != GYRE_OK) {
    gyre_request_free(request);
    return st;
  }
  st = gyre_wait(request, -1);
  gyre_status st_sent = gyre_wait(sent, -1);
  return st != GYRE_OK ? st : st_sent;
}

static gyre_status run_barrier(const struct perf_call *c) { return gyre_barrier(c->comm); }

static const struct perf_collective collectives[] = {
    {.name = "all_reduce",
     .has_data = true,
     .has_op = true,
     .synchronises = true,
     .bus_factor = bus_all_reduce,
     .run = run_all_reduce},
    {.name = "reduce_scatter",
     .has_data = true,
     .has_op = true,
     .in_blocks = true,
     .synchronises = true,
     .bus_factor = bus_blocks,
     .run = run_reduce_scatter},
    {.name = "all_gather",
     .has_data = true,
     .out_blocks = true,
     .synchronises = true,
     .bus_factor = bus_blocks,
     .run = run_all_gather},
    {.name = "broadcast",
     .has_data = true,
     .has_root = true,
     .from_root = true,
     .bus_factor = bus_rooted,
     .run = run_broadcast},
    {.name = "reduce",
     .has_data = true,
     .has_op = true,
     .has_root = true,
     .to_root = true,
     .bus_factor = bus_rooted,
     .run = run_reduce},
    {.name = "scan",
     .has_data = true,
     .has_op = true,
     .scope = PERF_UP_TO_ITSELF,
     .bus_factor = bus_rooted,
     .run = run_scan},
    {.name = "exclusive_scan",
     .has_data = true,
     .has_op = true,
     .scope = PERF_RANKS_BEFORE,
     .bus_factor = bus_rooted,
     .run = run_exclusive_scan},
    {.name = "gather",
     .has_data = true,
     .has_root = true,
     .to_root = true,
     .out_blocks = true,
     .bus_factor = bus_blocks,
     .run = run_gather},
    {.name = "scatter",
     .has_data = true,
     .has_root = true,
     .from_root = true,
     .in_blocks = true,
     .bus_factor = bus_blocks,
     .run = run_scatter},
    {.name = "all_to_all",
     .has_data = true,
     .in_blocks = true,
     .out_blocks = true,
     .pairs = true,
     .synchronises = true,
     .bus_factor = bus_blocks,
     .run = run_all_to_all},
    {.name = "all_gather_v",
     .has_data = true,
     .out_blocks = true,
     .varies = true,
     .synchronises = true,
     .bus_factor = bus_blocks,
     .run = run_all_gather_v},
    {.name = "reduce_scatter_v",
     .has_data = true,
     .has_op = true,
     .in_blocks = true,
     .varies = true,
     .synchronises = true,
     .bus_factor = bus_blocks,
     .run = run_reduce_scatter_v},
    {.name = "all_to_all_v",
     .has_data = true,
     .in_blocks = true,
     .out_blocks = true,
     .varies = true,
     .pairs = true,
     .synchronises = true,
     .bus_factor = bus_blocks,
     .run = run_all_to_all_v},
    {.name = "gather_v",
     .has_data = true,
     .has_root = true,
     .to_root = true,
     .out_blocks = true,
     .varies = true,
     .bus_factor = bus_blocks,
     .run = run_gather_v},
    {.name = "scatter_v",
     .has_data = true,
     .has_root = true,
     .from_root = true,
     .in_blocks = true,
     .varies = true,
     .bus_factor = bus_blocks,
     .run = run_scatter_v},
    {.name = "send_recv",
     .has_data = true,
     .scope = PERF_RANK_BEFORE,
     .not_in_place = true,
     .bus_factor = bus_rooted,
     .run = run_send_recv},
    {.name = "barrier", .synchronises = true, .bus_factor = bus_rooted, .run = run_barrier},
};

const struct perf_collective *perf_collective_find(const char *name) {
  for (size_t i = 0; i < sizeof(collectives) / sizeof(collectives[0]); i++)
    if (strcmp(collectives[i].name, name) == 0) return &collectives[i];
  return NULL;
}

const char *perf_collective_names(void) {
  return "all_reduce reduce_scatter all_gather broadcast reduce scan exclusive_scan gather scatter "
         "all_to_all all_gather_v reduce_scatter_v all_to_all_v gather_v scatter_v send_recv "
         "barrier";
}

size_t perf_block_count(const struct perf_collective *coll, size_t count, int nranks, int rank,
                        int other) {
  int number = coll->pairs ? (rank + other) % nranks : other;
  if (!coll->varies || (number == nranks - 1 && nranks % 2 != 0)) return count;
  return number % 2 == 0 ? count + count / 2 : count - count / 2;
}

size_t perf_block_start(const struct perf_collective *coll, size_t count, int nranks, int rank,
                        int other) {
  size_t start = 0;
  for (int r = 0; r < other; r++) start += perf_block_count(coll, count, nranks, rank, r);
  return start;
}

bool perf_in_is_part(const struct perf_collective *coll) {
  return coll->out_blocks && !coll->in_blocks;
}

bool perf_out_is_part(const struct perf_collective *coll) {
  return coll->in_blocks && !coll->out_blocks;
}

bool perf_collective_takes(const struct perf_collective *coll, gyre_dtype type, gyre_op op) {
  if (!coll->has_op) return true;
  return gyre_op_accepts(op, type) && (coll->scope == PERF_ALL_RANKS || op != GYRE_AVG);
}

int perf_collective_sides(const struct perf_collective *coll) {
  return coll->has_data && !coll->not_in_place ? 2 : 1;
}

size_t perf_collective_grain(const struct perf_collective *coll, size_t esize, int nranks) {
  if (!coll->has_data) return 1;
  return coll->in_blocks || coll->out_blocks ? esize * (size_t)nranks : esize;
}
