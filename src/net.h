/*
 * net.h - authenticated connections: one listening port per process, dialling, and the handshake
 * between them.
 *
 * Role:   everything that turns "rank 3 of job K wants lane 0 of rank 1" into a connected,
 *         authenticated, non-blocking socket, or into an error that names both ends. Files: net.c
 *         (the object, listeners, parking, matching), dial.c (candidates, racing, back-off),
 *         handshake.c (hello and challenge on one socket), auth.c (HMAC), linger.c (sockets whose
 *         owner is done), watch.c (a socket with its timer on the loop); net_core.h is what they
 *         share.
 * Thread: the driving thread only (whoever may run the loop); every callback runs there, from
 *         inside uv_run or from the call itself only where said.
 * Owner:  the context owns the gy_net. A delivered descriptor belongs to the callback's receiver.
 *
 * An inbound connection is never trusted before the handshake is over: it has a deadline (10 s
 * without a complete hello), a byte limit (the fixed sizes of the handshake) and there is a limit
 * on their number (1,024 unauthenticated ones; the oldest without a complete hello is dropped
 * first). None of them can stall, crash or fail a job.
 */
#ifndef GY_NET_H
#define GY_NET_H

#include <uv.h>
#include "address.h"
#include "settings.h"

struct gy_net;
struct gy_listen;
struct gy_expect;
struct gy_dial;

enum gy_conn_kind {
  GY_CONN_CONTROL = 1,
  GY_CONN_DATA = 2,
  GY_CONN_SHARED = 3 /* leads to shared memory */
};

#define GY_KEY_BYTES 16
#define GY_SECRET_MAX 256

struct gy_secret { /* len 0: no secret; only loopback is then dialled or accepted, unless settings->insecure */
  uint8_t bytes[GY_SECRET_MAX];
  size_t len;
};

struct gy_identity { /* what a dialler says it is and whom it wants; travels in the hello, covered by the HMAC */
  uint8_t kind;              /* enum gy_conn_kind */
  uint8_t key[GY_KEY_BYTES]; /* CONTROL: the job's key; DATA: the communicator's epoch */
  uint16_t lane;
  int32_t from, to; /* ranks */
};

struct gy_conn { /* a connection whose handshake is over; every handshake byte has been consumed, none beyond */
  int fd; /* non-blocking, close-on-exec, TCP_NODELAY */
  struct gy_identity id;
  struct gy_address local, peer;
};

/* `settings` must outlive the net. Opens nothing. */
gyre_status gy_net_create(uv_loop_t *loop, const struct gy_settings *settings, struct gy_net **out);
/* Closes all listeners, parked connections, dials (their callbacks do not run) and expectations.
 * The handles' close callbacks need uv_run; `closed` runs from there when the last is gone, and the
 * net is freed. A name look-up that already runs cannot be stopped: `closed` waits until the
 * resolver gives up. */
void gy_net_close(struct gy_net *net, void (*closed)(void *user), void *user);

/* What the table of settings cannot say of GYRE_ADVERTISE and GYRE_TCP_CONGESTION: ARG with the rule
 * otherwise. */
gyre_status gy_net_check(const struct gy_settings *settings);
/* Opens the process's listening port if it is not open: on the chosen interface addresses only
 * (without a secret on loopback only), all with one port, from settings->port if given. has_secret:
 * whether this communicator has one. A later call with has_secret after one without adds the
 * missing addresses. */
gyre_status gy_net_listen(struct gy_net *net, bool has_secret);
/* What peers should dial: settings->advertise if given and, for ranks of this host, loopback where
 * that is bound; otherwise what is bound. */
size_t gy_net_advertised(const struct gy_net *net, struct gy_address out[GY_ADDRESS_MAX]);
/* Opens, once, the listener for the other processes of this host, and gives its name. That it cannot be had is logged,
 * and the name is all zero. */
void gy_net_listen_local(struct gy_net *net, uint8_t name[GY_LOCAL_BYTES]);
/* An additional listener, for a rendezvous at a given address; the same (address, port) is shared
 * and counted. SYS with both address and hint, and errno EADDRINUSE, when it is taken. SO_REUSEADDR is set, SO_REUSEPORT
 * never. */
gyre_status gy_net_listen_at(struct gy_net *net, const struct gy_address *at, struct gy_listen **out);
void gy_net_unlisten(struct gy_listen *l);

/* Connections of this kind, key and `to` go to `cb`, in order of arrival; those that came early and
 * were parked (up to the connect time-out) are delivered from the loop soon after, never inside
 * this call. The callback takes conn->fd and returns GYRE_OK, or an error whose gyre_last_error()
 * text is sent to the dialler; the fd is then closed for it. It must not send on the fd before it
 * has returned: the handshake's last message follows then. ARG for a kind, key and `to` that are
 * expected already. */
typedef gyre_status (*gy_accept_cb)(void *user, const struct gy_conn *conn);
gyre_status gy_net_expect(struct gy_net *net, enum gy_conn_kind kind,
                          const uint8_t key[GY_KEY_BYTES], int to, const struct gy_secret *secret,
                          gy_accept_cb cb, void *user, struct gy_expect **out);
void gy_net_unexpect(struct gy_expect *e);
/* How many inbound handshakes for this expectation have failed, or could not be accepted, and a text
 * about the last ("a process at 10.0.0.2:5000 that says it is rank 1 was refused: its secret
 * differs"), for time-out messages. A process tries more than once, so it counts more than once. */
unsigned gy_net_refused(const struct gy_expect *e, char *text, size_t capacity);

struct gy_dial_target {
  const struct gy_address *candidate; /* in order of preference; copied */
  size_t n_candidate;
  bool was_there;   /* it has listened there before: when all candidates refuse, it is PEER_LOST */
  const char *host; /* or, with n_candidate 0: a name or number to resolve (thread pool), copied */
  uint16_t port;
};
/* Connects, races the candidates (250 ms apart; a wrong peer behind an address is dropped and the
 * next is tried), authenticates. Refused, unreachable and "not here" answers are retried with
 * back-off (20 ms doubling to 1 s) until timeout_ms. The callback runs once, from the loop: with
 * GYRE_OK and conn (its fd now the receiver's), or with an error (TIMEOUT, AUTH, VERSION, PROTO,
 * SYS, or the status with which the acceptor refused) whose text is gyre_last_error(): what was
 * dialled, every address tried with its last errno, and for how long. AUTH, VERSION and the
 * acceptor's own refusal are final and not retried (from an acceptor that has not proven itself
 * after up to 1 s for the other candidates). Without a secret addresses other than loopback are
 * left out; if none remains, that is AUTH from the call itself, and for a name from the
 * callback. */
typedef void (*gy_dial_cb)(void *user, gyre_status status, const struct gy_conn *conn);
gyre_status gy_dial_start(struct gy_net *net, const struct gy_dial_target *target,
                          const struct gy_identity *id, const struct gy_secret *secret,
                          uint32_t timeout_ms, gy_dial_cb cb, void *user, struct gy_dial **out);
/* The callback will not run. */
void gy_dial_cancel(struct gy_dial *d);

/* Takes over a socket whose owner is done: sends what is left of `tail` (copied), shuts down
 * writing, reads and discards until the peer's EOF, at most linger_ms, then closes (at once when
 * the net is closing, or for 0). So what was sent is never lost to a reset. */
void gy_net_linger(struct gy_net *net, int fd, const void *tail, size_t tail_len, uint32_t linger_ms);
/* How many sockets still linger. */
unsigned gy_net_lingering(const struct gy_net *net);

/* The kernel's part in noticing a host that has vanished: it probes the connection while that is
 * idle, and ends it with ETIMEDOUT when nothing has answered for about timeout_ms. `always_read`: the
 * peer reads whatever comes at once, so what is sent and not taken for so long ends it, too. That
 * must not be asked where a peer may be late: a full window counts as not taken. */
void gy_socket_peer_timeout(int fd, uint32_t timeout_ms, bool always_read);

/* ------------------------------------------------------------------------------------ auth.c --- */

/* HMAC-SHA-256 of the concatenation of two areas. */
gyre_status gy_hmac(const struct gy_secret *secret, const void *a, size_t a_len, const void *b,
                    size_t b_len, uint8_t out[32]);
gyre_status gy_random(void *out, size_t len);
/* First 16 bytes of SHA-256 of a text: job keys from rendezvous names. */
gyre_status gy_digest16(const void *data, size_t len, uint8_t out[16]);
bool gy_equal_const_time(const void *a, const void *b, size_t len);

#endif
