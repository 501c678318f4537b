/*
 * fork.h - what a child made by fork() inherits and must not use.
 *
 * Role:   a child has copies of the descriptors and of the memory of its parent, but not its
 *         threads. A socket that it keeps open would hide its parent's death from the peers, so all
 *         that were announced here are closed in the child; and whatever was made before the fork
 *         is recognised by its birth. (exec closes the descriptors by itself, they are
 *         close-on-exec; system() and posix_spawn() need nothing.)
 * Thread: any.
 */
#ifndef GY_FORK_H
#define GY_FORK_H

#include <stdbool.h>
#include <sys/types.h>

#include "status.h"

struct gy_birth { /* in which process something was made */
  unsigned generation;
  pid_t pid;
};

struct gy_birth gy_birth_now(void);
/* STATE, with the other process in the text, if this process is a fork of the one it was made in. */
gyre_status gy_birth_check(const struct gy_birth *birth, const char *function);
/* How many forks lie between this process and the one that loaded the library. */
unsigned gy_fork_generation(void);

/* The descriptor is to be closed in children. A socket need not be disowned when it is closed: the
 * file behind the number is compared before a child closes it. Others, of which the system tells no
 * two apart, must be. Returns fd, -1 and errno included. */
int gy_fork_own(int fd);
/* No fork happens between these, so that a descriptor may be made and owned without a child that has
 * it in between. For a few instructions. */
void gy_fork_hold(void);
void gy_fork_release(void);
void gy_fork_disown(int fd);
/* Has `fn` run in every child, once for each distinct function; for locks that another thread of
 * the parent may have held. False: there is no room. */
bool gy_fork_in_child(void (*fn)(void));

#endif
