#include <gyre/gyre.h>
#include <stdio.h>

int main(void) {
  gyre_context *ctx = NULL;
  gyre_comm *comm = NULL;
  float mine = 1.0f, sum = 0.0f;
  int ok = gyre_context_create(&ctx) == GYRE_OK &&
           gyre_comm_create_from_env(ctx, NULL, &comm) == GYRE_OK &&
           gyre_all_reduce(comm, &mine, &sum, 1, GYRE_F32, GYRE_SUM) == GYRE_OK;
  if (ok) printf("rank %d of %d: sum %g\n", gyre_comm_rank(comm), gyre_comm_size(comm), sum);
  else fprintf(stderr, "%s\n", gyre_last_error());
  gyre_comm_destroy(comm);
  gyre_context_destroy(ctx);
  return !ok;
}
