/*
 * test_header_c99.c - gyre.h compiles as C99, needs no other header, and its initialisers fill
 * every member.
 *
 * Compiled once by the build as C11; test_header.sh compiles it as pedantic C99 and, with its C++
 * twin, in both orders of inclusion.
 */
#include "gyre/gyre.h"
#include "gyre/gyre.h" /* twice: the guard holds */

int main(void) {
  gyre_error error = GYRE_ERROR_INIT;
  gyre_context_config context = GYRE_CONTEXT_CONFIG_INIT;
  gyre_comm_config comm = GYRE_COMM_CONFIG_INIT;
  gyre_unique_id id = {{0}};

  if (error.size != sizeof error || error.status != GYRE_OK || error.culprit_rank != -1 ||
      error.text[0] != '\0')
    return 1;
  if (context.size != sizeof context || context.spin_us != -1 || context.flags != 0u) return 2;
  if (comm.size != sizeof comm || comm.rendezvous != NULL || comm.flags != 0u) return 3;
  if (sizeof id.bytes != 128) return 4;
  if (GYRE_VERSION != 10000 * GYRE_VERSION_MAJOR + 100 * GYRE_VERSION_MINOR + GYRE_VERSION_PATCH)
    return 5;
  if (GYRE_F8_E5M2 + 1 != GYRE_DTYPE_COUNT || GYRE_MAXLOC + 1 != GYRE_OP_COUNT) return 6;
  return 0;
}
