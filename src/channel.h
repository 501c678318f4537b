/*
 * channel.h - a stream of typed messages over one control connection.
 *
 * Role:   length-prefixed messages, little-endian, at most GY_MESSAGE_MAX bytes; sending never
 *         blocks (it queues).
 * Thread: the driving thread only. Callbacks run from uv_run, never from inside gy_channel_send.
 * Owner:  whoever opened it; gy_channel_close or gy_channel_finish ends it.
 */
#ifndef GY_CHANNEL_H
#define GY_CHANNEL_H

#include "net.h"

#define GY_MESSAGE_MAX (64u << 20)

struct gy_channel;

struct gy_channel_events {
  /* The body is only valid during the call. May close or finish the channel. */
  void (*message)(void *user, struct gy_channel *ch, uint8_t type, const void *body, size_t len);
  /* The peer closed (sys_errno 0), the connection broke (its errno), or sent malformed bytes
   * (EBADMSG). Runs at most once, after every complete message has been delivered; the channel is
   * then dead, but still the owner's to close. */
  void (*closed)(void *user, struct gy_channel *ch, int sys_errno);
};

/* Takes conn->fd on success. `events` must outlive the channel. */
gyre_status gy_channel_open(uv_loop_t *loop, const struct gy_conn *conn,
                            const struct gy_channel_events *events, void *user,
                            struct gy_channel **out);
/* For passing an open channel from bootstrap to the communicator: messages that arrive later go to
 * the new owner. */
void gy_channel_rebind(struct gy_channel *ch, const struct gy_channel_events *events, void *user);
/* Tries at once (MSG_NOSIGNAL), queues the rest. NOMEM; a dead channel accepts and drops (its
 * `closed` tells). */
gyre_status gy_channel_send(struct gy_channel *ch, uint8_t type, const void *body, size_t len);
/* Ends it at once; no more callbacks. */
void gy_channel_close(struct gy_channel *ch);
/* Ends it for the owner; queued messages still go out and the socket lingers (gy_net_linger). No
 * more callbacks. */
void gy_channel_finish(struct gy_channel *ch, struct gy_net *net, uint32_t linger_ms);
/* See gy_socket_peer_timeout. `always_read`: the peer has a thread that reads at all times. */
void gy_channel_peer_timeout(struct gy_channel *ch, uint32_t timeout_ms, bool always_read);
/* "127.0.0.1:4000", the peer's address. */
const char *gy_channel_peer(const struct gy_channel *ch);
/* Monotonic milliseconds (uv_now) when the last byte was received. */
uint64_t gy_channel_last_heard(const struct gy_channel *ch);

/* ---- writing and reading message bodies (wire.c): little-endian, bounds-checked ---- */
struct gy_writer {
  uint8_t *data;
  size_t len, capacity;
  bool failed;
  uint8_t own[1024]; /* what must be said when memory is short fits in here: verdicts, goodbyes */
};                   /* grows by itself, and is not to be copied; failed: out of memory */
void gy_w_free(struct gy_writer *w);
void gy_w_u8(struct gy_writer *w, uint8_t v);
void gy_w_u16(struct gy_writer *w, uint16_t v);
void gy_w_u32(struct gy_writer *w, uint32_t v);
void gy_w_u64(struct gy_writer *w, uint64_t v);
void gy_w_i32(struct gy_writer *w, int32_t v);
void gy_w_bytes(struct gy_writer *w, const void *data, size_t len); /* raw */
void gy_w_text(struct gy_writer *w, const char *text);              /* u16 length + bytes */
void gy_w_address(struct gy_writer *w,
                  const struct gy_address *a); /* family, port, 4 or 16 bytes, scope */

struct gy_reader {
  const uint8_t *data;
  size_t len, pos;
  bool failed;
}; /* failed: short or malformed; reads give 0 */
uint8_t gy_r_u8(struct gy_reader *r);
uint16_t gy_r_u16(struct gy_reader *r);
uint32_t gy_r_u32(struct gy_reader *r);
uint64_t gy_r_u64(struct gy_reader *r);
int32_t gy_r_i32(struct gy_reader *r);
void gy_r_bytes(struct gy_reader *r, void *out, size_t len);
void gy_r_text(struct gy_reader *r, char *out, size_t capacity); /* truncates, always terminates */
void gy_r_address(struct gy_reader *r, struct gy_address *out);

#endif
