/*
 * net_core.h - what the files behind net.h share: the net itself, and watches.
 *
 * Role:   a watch is a socket on the loop: a poll handle and a timer that live and die together.
 *         Listeners, handshakes and lingering sockets are watches with something added.
 * Thread: the driving thread.
 * Owner:  a watch owns its descriptor until gy_watch_close gives it back; its memory goes when
 *         libuv has let go of it.
 */
#ifndef GY_NET_CORE_H
#define GY_NET_CORE_H

#include <sys/queue.h>
#include "net.h"

struct inbound;   /* net.c */
struct lingering; /* linger.c */

enum {
  GY_HELLO_MS = 10000,      /* longest wait for a message of a peer that is not authenticated */
  GY_INBOUND_MAX = 1024,    /* inbound connections whose handshake is not over */
  GY_ACCEPT_PAUSE_MS = 100, /* rest of a listener when the process is out of descriptors */
  GY_REJECT_LINGER_MS = 1000
};

struct gy_net {
  uv_loop_t *loop;
  const struct gy_settings *settings;
  uint16_t port;                 /* of the process; 0: not open yet */
  uint8_t local[GY_LOCAL_BYTES]; /* its name within this host; all zero: not open */
  bool local_tried;
  bool closing;
  unsigned held;     /* handles and requests of which libuv has still to call back */
  uv_timer_t anchor; /* closed last, so that `closed` always runs from the loop */
  void (*closed)(void *user);
  void *closed_user;
  TAILQ_HEAD(, gy_listen) listeners;
  TAILQ_HEAD(, gy_expect) expects;
  TAILQ_HEAD(, inbound) inbound; /* in order of arrival */
  unsigned n_inbound;
  TAILQ_HEAD(, gy_dial) dials;
  TAILQ_HEAD(, lingering) lingering;
  unsigned n_lingering;
};

/* One more, one less callback to wait for before the net may be freed. */
void gy_net_hold(struct gy_net *net);
void gy_net_release(struct gy_net *net);
void gy_linger_close_all(struct gy_net *net);
/* Tells the peer why in a REJECT, then closes the socket, which must have no handle on it. */
void gy_net_reject(struct gy_net *net, int fd, gyre_status status, const char *text);

struct gy_watch { /* must be the first member of a struct from malloc; that is what gets freed */
  struct gy_net *net;
  int fd;
  unsigned open_handles;
  uv_poll_t poll; /* .data and timer.data: the watch */
  uv_timer_t timer;
};

/* On failure (SYS) nothing has been taken: descriptor and memory are still the caller's. */
gyre_status gy_watch_open(struct gy_watch *w, struct gy_net *net, int fd);
/* Ends it, returns the descriptor, and frees the memory later: `w` must not be used any more. The
 * descriptor may at once be closed or given to someone who makes a handle of his own for it. */
int gy_watch_close(struct gy_watch *w);

/* A stream socket of this family: non-blocking, close-on-exec, TCP without delay. -1 with errno. */
int gy_socket(int family);

#endif
