/*
 * inject.h - memory, descriptors and other system calls that fail where a test says so.
 *
 * Role:   stands between the library (with libuv and OpenSSL) and the C library. What is to fail is
 *         counted in the threads of one rank only: those marked by inject_rank, and those they start.
 * Thread: inject_begin and inject_end from the test's own; the rest from any.
 */
#ifndef SCARCITY_INJECT_H
#define SCARCITY_INJECT_H

#include <stdbool.h>

enum scarce {
  MEMORY,      /* allocations: NULL; a look-up of names or interfaces that needs memory, too */
  DESCRIPTORS, /* whatever makes a descriptor: EMFILE */
  OTHER_CALLS, /* setsockopt, bind, listen, connect, getsockname: ENOBUFS; pthread_create: EAGAIN */
  N_SCARCE
};

enum extent {
  ONE,   /* that call alone */
  SPELL, /* all from there on, until the rank's call of the library has failed, or for a while */
  N_EXTENT
};

#define SPELL_MS 150

/* Before anything else in the process. */
void inject_open(void);
/* The calling thread is of this rank. */
void inject_rank(int rank);
/* The k-th such call of the rank is to fail, counted from 1; 0: none. */
void inject_begin(enum scarce what, int rank, unsigned k, enum extent extent);
/* The spell is over. */
void inject_rest(void);
/* How many such calls there were. */
unsigned inject_end(void);
bool inject_struck(void);
/* Which call was the first to fail, and from where it was called: for messages. */
const char *inject_where(void);
/* Memory of the library and of libuv that has not been given back, in blocks. */
long inject_blocks(void);

#endif
