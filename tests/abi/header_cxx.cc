/*
 * header_cxx.cc - the C++ twin of test_header_c99.c: gyre.h compiles as C++ and its functions have C linkage.
 */
#include "gyre/gyre.h"
#include "gyre/gyre.h"

int main() {
  gyre_error error = GYRE_ERROR_INIT;
  gyre_context_config context = GYRE_CONTEXT_CONFIG_INIT;
  gyre_comm_config comm = GYRE_COMM_CONFIG_INIT;

  if (error.size != sizeof error || error.culprit_rank != -1) return 1;
  if (context.size != sizeof context || context.spin_us != -1) return 2;
  if (comm.size != sizeof comm || comm.rendezvous != nullptr) return 3;
  /* Linked with the library: a mangled name would not resolve. */
  return gyre_version() == GYRE_VERSION ? 0 : 4;
}
