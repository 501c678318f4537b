/*
 * handshake.h - how the two ends of a fresh connection agree on a wire version and prove that they
 * share the secret.
 *
 * Role:   the messages, their encoding, and one end's state machine. Knows sockets but no loop;
 *         net.c and dial.c drive it.
 * Thread: the driving thread. Owner: whoever embeds it; it holds no resource, so there is nothing
 *         to free.
 *
 *   dialler                                      acceptor
 *   HELLO: versions, features, identity, nonce ->
 *                                             <- CHALLENGE: version, features, nonce,
 *   HMAC("acceptor", transcript) RESPONSE: HMAC("dialler", transcript) ->
 *                                             <- WELCOME
 *   and in place of any answer, from either end: REJECT: status, text
 *
 * The transcript is the HELLO and the CHALLENGE up to its HMAC, byte for byte: versions, features,
 * identity and both nonces cannot be changed on the way, and the role in the HMAC keeps one end's
 * proof from being played back as the other's. An end without a secret uses the empty one; whether
 * an end has one is said in its first message, and both must agree.
 *
 * Every message has a fixed size, given by its type, and exactly that many bytes are read: the peer
 * may send data right behind the handshake. Layouts (little-endian, reserved bytes are sent as
 * zero):
 *
 *   all 0 magic "GYRE", 4 type u8 HELLO 5 kind u8, 6 min version u16, 8 max version u16, 10 lane
 *   u16, 12 features u32, 16 from i32, 20 to i32,
 *              24 has secret u8, 25 reserved[7], 32 key[16], 48 nonce[32] CHALLENGE 5 has secret
 *   u8, 6 version u16, 8 features u32, 12 reserved[4], 16 nonce[32], 48 hmac[32] RESPONSE 5
 *   reserved[3], 8 hmac[32] WELCOME 5 reserved[3] REJECT 5 reserved u8, 6 text length u16, 8 status
 *   i32, 12 text[256], zero-padded
 */
#ifndef GY_HANDSHAKE_H
#define GY_HANDSHAKE_H

#include "net.h"

#define GY_WIRE_MIN 1u /* wire versions this library speaks */
#define GY_WIRE_MAX 1u
#define GY_WIRE_FEATURES 0u /* optional features it knows, as bits */

enum gy_handshake_type {
  GY_HELLO = 1,
  GY_CHALLENGE = 2,
  GY_RESPONSE = 3,
  GY_WELCOME = 4,
  GY_REJECT = 5
};
enum {
  GY_NONCE_BYTES = 32,
  GY_HMAC_BYTES = 32,
  GY_PREFIX_BYTES = 8, /* enough of any message to know its type */
  GY_HELLO_BYTES = 80,
  GY_CHALLENGE_SIGNED = 48, /* the part of a CHALLENGE that is in the transcript */
  GY_CHALLENGE_BYTES = GY_CHALLENGE_SIGNED + GY_HMAC_BYTES,
  GY_RESPONSE_BYTES = 40,
  GY_WELCOME_BYTES = 8,
  GY_REJECT_TEXT = 256,
  GY_REJECT_BYTES = 12 + GY_REJECT_TEXT,
  GY_TRANSCRIPT_BYTES = GY_HELLO_BYTES + GY_CHALLENGE_SIGNED
};

struct gy_hello {
  uint16_t min_version, max_version;
  uint32_t features;
  bool has_secret;
  struct gy_identity id;
  uint8_t nonce[GY_NONCE_BYTES];
};

struct gy_challenge {
  bool has_secret;
  uint16_t version;
  uint32_t features;
  uint8_t nonce[GY_NONCE_BYTES];
  uint8_t hmac[GY_HMAC_BYTES];
};

/* Encoders fill the whole message; decoders get a message whose magic, type and size are right, and
 * check the rest. */
void gy_hello_encode(const struct gy_hello *h, uint8_t out[GY_HELLO_BYTES]);
bool gy_hello_decode(const uint8_t in[GY_HELLO_BYTES], struct gy_hello *h);
void gy_challenge_encode(const struct gy_challenge *c, uint8_t out[GY_CHALLENGE_BYTES]);
bool gy_challenge_decode(const uint8_t in[GY_CHALLENGE_BYTES], struct gy_challenge *c);
void gy_response_encode(const uint8_t hmac[GY_HMAC_BYTES], uint8_t out[GY_RESPONSE_BYTES]);
void gy_welcome_encode(uint8_t out[GY_WELCOME_BYTES]);
void gy_reject_encode(gyre_status status, const char *text, uint8_t out[GY_REJECT_BYTES]);
/* The text is made printable: it will stand in messages and logs. */
bool gy_reject_decode(const uint8_t in[GY_REJECT_BYTES], gyre_status *status,
                      char text[GY_REJECT_TEXT + 1]);
/* Bytes of a whole message that begins with this prefix; 0 if no message does. */
size_t gy_handshake_size(const uint8_t prefix[GY_PREFIX_BYTES]);

enum gy_handshake_event {
  GY_EVENT_WAIT, /* nothing to decide yet */
  GY_EVENT_HELLO, /* acceptor: ->hello is in; answer by gy_handshake_challenge, at any later time, or refuse */
  GY_EVENT_CHALLENGED, /* dialler: the acceptor has proven itself; answer by gy_handshake_respond, or close */
  GY_EVENT_PROVEN, /* acceptor: the dialler has proven itself; the caller itself sends WELCOME or REJECT */
  GY_EVENT_WELCOME, /* dialler: done */
  GY_EVENT_FAILED   /* ->failure says how, gyre_last_error() why */
};

enum gy_handshake_state {
  GY_AWAIT_HELLO,
  GY_PARKED,
  GY_AWAIT_RESPONSE, /* acceptor */
  GY_AWAIT_CHALLENGE,
  GY_COMMITTING,
  GY_AWAIT_WELCOME, /* dialler */
  GY_HANDSHAKE_OVER
};

enum gy_handshake_failure {
  GY_FAIL_SYSTEM = 1, /* a system call or OpenSSL */
  GY_FAIL_CLOSED,     /* the peer closed the connection */
  GY_FAIL_FOREIGN, /* not a message of ours, or not one that may come now: perhaps another program */
  GY_FAIL_VERSION, /* no common wire version; the peer should be told */
  GY_FAIL_SECRET,  /* the peer's proof is wrong; the peer should be told */
  GY_FAIL_REJECTED /* the peer sent REJECT: ->status and gyre_last_error() are its words */
};

struct gy_handshake {
  uint8_t state;      /* enum gy_handshake_state */
  uint8_t failure;    /* enum gy_handshake_failure; 0 until FAILED */
  gyre_status status; /* of the failure */
  struct gy_hello hello;
  const struct gy_secret *secret; /* dialler: borrowed until the end */
  uint8_t transcript[GY_TRANSCRIPT_BYTES];
  uint8_t expected[GY_HMAC_BYTES]; /* acceptor: the only RESPONSE that counts */
  uint8_t in[GY_REJECT_BYTES];     /* the message being read */
  size_t have;
  uint8_t out[GY_CHALLENGE_BYTES]; /* the message being sent */
  size_t out_len, out_sent;
};

void gy_handshake_accept(struct gy_handshake *h);
gyre_status gy_handshake_dial(struct gy_handshake *h, const struct gy_identity *id,
                              const struct gy_secret *secret);
/* AUTH if only one end has a secret; the text, made for both ends, says which. */
gyre_status gy_handshake_challenge(struct gy_handshake *h, const struct gy_secret *secret);
gyre_status gy_handshake_respond(struct gy_handshake *h);

/* Sends what is to be sent, reads what is to be read, until it would block or something happens. */
enum gy_handshake_event gy_handshake_pump(struct gy_handshake *h, int fd);
/* The events (UV_READABLE, UV_WRITABLE) to wait for before the next pump. Always readable: a parked
 * peer may leave. */
int gy_handshake_poll(const struct gy_handshake *h);
/* The reading side alone, below the socket: how many bytes may be appended at h->in + h->have (0:
 * none), and what came of n of them. */
size_t gy_handshake_want(const struct gy_handshake *h);
enum gy_handshake_event gy_handshake_take(struct gy_handshake *h, size_t n);

#endif
