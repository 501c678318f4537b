/*
 * hosts.h - ranks of a world on hosts of their own: network namespaces on a switch that is this
 * process's namespace. A cable that is cut behind the switch closes nothing.
 *
 * All of it ends with the processes; nothing has a name outside.
 */
#ifndef FAULT_HOSTS_H
#define FAULT_HOSTS_H

#include "world.h"

/* In the process that will start the world, before that: its own namespace and a switch. NULL, or
 * why it cannot be done here (a static text). */
const char *hosts_open(void);
/* Whether hosts_open would succeed, tried in another process; else why not. */
const char *hosts_missing(void);
/* In a rank, as the first thing: a network of its own, with nothing in it, and a name. */
bool hosts_enter(int rank);
/* In the parent: a cable from the switch to the host of each rank, with an address. */
bool hosts_connect(const struct world *w);
void hosts_cut(int rank);
void hosts_mend(int rank);
/* These two do not hear each other any more; all others do. */
bool hosts_part(const struct world *w, int a, int b);
/* Whether this kernel can be told how long to wait between its tries at most. */
bool hosts_retry_soon(void);

#endif
