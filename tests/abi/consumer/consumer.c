/*
 * consumer.c - a program as a user of the installed library writes it: one rank, one all-reduce.
 */
#include <gyre/gyre.h>
#include <stdio.h>

int main(void) {
  gyre_context *ctx = NULL;
  gyre_comm *comm = NULL;
  float mine[3] = {1.0f, 2.0f, 3.0f}, sum[3] = {0.0f, 0.0f, 0.0f};

  if (gyre_version() != GYRE_VERSION) {
    fprintf(stderr, "header is %d, library is %d\n", GYRE_VERSION, gyre_version());
    return 1;
  }
  gyre_status status = gyre_context_create(&ctx);
  if (status == GYRE_OK) status = gyre_comm_create(ctx, 0, 1, NULL, &comm);
  if (status == GYRE_OK) status = gyre_all_reduce(comm, mine, sum, 3, GYRE_F32, GYRE_SUM);
  if (status != GYRE_OK) fprintf(stderr, "%s: %s\n", gyre_status_name(status), gyre_last_error());
  gyre_comm_destroy(comm);
  gyre_context_destroy(ctx);
  if (status != GYRE_OK) return 1;
  if (sum[0] != 1.0f || sum[1] != 2.0f || sum[2] != 3.0f) {
    fprintf(stderr, "wrong sum: %g %g %g\n", sum[0], sum[1], sum[2]);
    return 1;
  }
  puts(gyre_version_string());
  return 0;
}
