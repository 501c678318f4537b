/*
 * handshake.c - the handshake's messages and one end's state machine; see handshake.h.
 *
 * Thread: the driving thread. Owner: whoever embeds the struct.
 */
#include "handshake.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include "status.h"

/* -------------------------------------------------------------------------------- encoding --- */

static void put_u16(uint8_t *p, uint16_t v) {
  p[0] = (uint8_t)v;
  p[1] = (uint8_t)(v >> 8);
}

static void put_u32(uint8_t *p, uint32_t v) {
  put_u16(p, (uint16_t)v);
  put_u16(p + 2, (uint16_t)(v >> 16));
}

static uint16_t get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t get_u32(const uint8_t *p) { return get_u16(p) | (uint32_t)get_u16(p + 2) << 16; }

static const uint8_t magic[4] = {'G', 'Y', 'R', 'E'};

static void begin(uint8_t *out, size_t bytes, uint8_t type) {
  memset(out, 0, bytes);
  memcpy(out, magic, sizeof magic);
  out[4] = type;
}

void gy_hello_encode(const struct gy_hello *h, uint8_t out[GY_HELLO_BYTES]) {
  begin(out, GY_HELLO_BYTES, GY_HELLO);
  out[5] = h->id.kind;
  put_u16(out + 6, h->min_version);
  put_u16(out + 8, h->max_version);
  put_u16(out + 10, h->id.lane);
  put_u32(out + 12, h->features);
  put_u32(out + 16, (uint32_t)h->id.from);
  put_u32(out + 20, (uint32_t)h->id.to);
  out[24] = h->has_secret;
  memcpy(out + 32, h->id.key, GY_KEY_BYTES);
  memcpy(out + 48, h->nonce, GY_NONCE_BYTES);
}

bool gy_hello_decode(const uint8_t in[GY_HELLO_BYTES], struct gy_hello *h) {
  struct gy_hello v = {.min_version = get_u16(in + 6),
                       .max_version = get_u16(in + 8),
                       .features = get_u32(in + 12),
                       .has_secret = in[24] == 1};
  v.id = (struct gy_identity){.kind = in[5],
                              .lane = get_u16(in + 10),
                              .from = (int32_t)get_u32(in + 16),
                              .to = (int32_t)get_u32(in + 20)};
  memcpy(v.id.key, in + 32, GY_KEY_BYTES);
  memcpy(v.nonce, in + 48, GY_NONCE_BYTES);
  if (in[24] > 1 || v.min_version > v.max_version || v.id.from < 0 || v.id.to < 0) return false;
  if (v.id.kind < GY_CONN_CONTROL || v.id.kind > GY_CONN_SHARED) return false;
  *h = v;
  return true;
}

void gy_challenge_encode(const struct gy_challenge *c, uint8_t out[GY_CHALLENGE_BYTES]) {
  begin(out, GY_CHALLENGE_BYTES, GY_CHALLENGE);
  out[5] = c->has_secret;
  put_u16(out + 6, c->version);
  put_u32(out + 8, c->features);
  memcpy(out + 16, c->nonce, GY_NONCE_BYTES);
  memcpy(out + GY_CHALLENGE_SIGNED, c->hmac, GY_HMAC_BYTES);
}

bool gy_challenge_decode(const uint8_t in[GY_CHALLENGE_BYTES], struct gy_challenge *c) {
  if (in[5] > 1) return false;
  c->has_secret = in[5] == 1;
  c->version = get_u16(in + 6);
  c->features = get_u32(in + 8);
  memcpy(c->nonce, in + 16, GY_NONCE_BYTES);
  memcpy(c->hmac, in + GY_CHALLENGE_SIGNED, GY_HMAC_BYTES);
  return true;
}

void gy_response_encode(const uint8_t hmac[GY_HMAC_BYTES], uint8_t out[GY_RESPONSE_BYTES]) {
  begin(out, GY_RESPONSE_BYTES, GY_RESPONSE);
  memcpy(out + 8, hmac, GY_HMAC_BYTES);
}

void gy_welcome_encode(uint8_t out[GY_WELCOME_BYTES]) { begin(out, GY_WELCOME_BYTES, GY_WELCOME); }

void gy_reject_encode(gyre_status status, const char *text, uint8_t out[GY_REJECT_BYTES]) {
  size_t len = strnlen(text, GY_REJECT_TEXT);
  begin(out, GY_REJECT_BYTES, GY_REJECT);
  put_u16(out + 6, (uint16_t)len);
  put_u32(out + 8, (uint32_t)(int32_t)status);
  memcpy(out + 12, text, len);
}

bool gy_reject_decode(const uint8_t in[GY_REJECT_BYTES], gyre_status *status,
                      char text[GY_REJECT_TEXT + 1]) {
  size_t len = get_u16(in + 6);
  int32_t code = (int32_t)get_u32(in + 8);
  if (len > GY_REJECT_TEXT || code > GYRE_ERR_ARG || code < GYRE_ERR_INTERNAL) return false;
  for (size_t i = 0; i < len; i++)
    text[i] = (char)(in[12 + i] < ' ' || in[12 + i] == 0x7f ? '?' : in[12 + i]);
  text[len] = '\0';
  *status = (gyre_status)code;
  return true;
}

size_t gy_handshake_size(const uint8_t prefix[GY_PREFIX_BYTES]) {
  if (memcmp(prefix, magic, sizeof magic) != 0) return 0;
  switch (prefix[4]) {
    case GY_HELLO: return GY_HELLO_BYTES;
    case GY_CHALLENGE: return GY_CHALLENGE_BYTES;
    case GY_RESPONSE: return GY_RESPONSE_BYTES;
    case GY_WELCOME: return GY_WELCOME_BYTES;
    case GY_REJECT: return GY_REJECT_BYTES;
    default: return 0;
  }
}

/* ---------------------------------------------------------------------------- the two ends --- */

void gy_handshake_accept(struct gy_handshake *h) {
  memset(h, 0, sizeof *h);
  h->state = GY_AWAIT_HELLO;
}

gyre_status gy_handshake_dial(struct gy_handshake *h, const struct gy_identity *id,
                              const struct gy_secret *secret) {
  memset(h, 0, sizeof *h);
  h->state = GY_AWAIT_CHALLENGE;
  h->secret = secret;
  h->hello = (struct gy_hello){.min_version = GY_WIRE_MIN,
                               .max_version = GY_WIRE_MAX,
                               .features = GY_WIRE_FEATURES,
                               .has_secret = secret->len != 0,
                               .id = *id};
  gyre_status st = gy_random(h->hello.nonce, sizeof h->hello.nonce);
  if (st != GYRE_OK) return st;
  gy_hello_encode(&h->hello, h->out);
  memcpy(h->transcript, h->out, GY_HELLO_BYTES);
  h->out_len = GY_HELLO_BYTES;
  return GYRE_OK;
}

static gyre_status prove(const struct gy_handshake *h, const struct gy_secret *secret,
                         const char role[8], uint8_t out[GY_HMAC_BYTES]) {
  return gy_hmac(secret, role, 8, h->transcript, sizeof h->transcript, out);
}

static const char role_acceptor[8] = {'a', 'c', 'c', 'e', 'p', 't', 'o', 'r'};
static const char role_dialler[8] = {'d', 'i', 'a', 'l', 'l', 'e', 'r', 0};

static gyre_status fail_one_secret(const struct gy_identity *id, bool dialler_has) {
  return gy_fail(
      GYRE_ERR_AUTH, "rank %d has no secret but rank %d has one; set GYRE_SECRET or GYRE_SECRET_FILE on every rank",
      dialler_has ? id->to : id->from, dialler_has ? id->from : id->to);
}

gyre_status gy_handshake_challenge(struct gy_handshake *h, const struct gy_secret *secret) {
  struct gy_challenge c = {.has_secret = secret->len != 0,
                           .features = h->hello.features & GY_WIRE_FEATURES};
  c.version = h->hello.max_version < GY_WIRE_MAX ? h->hello.max_version : (uint16_t)GY_WIRE_MAX;
  if (h->hello.has_secret != c.has_secret)
    return fail_one_secret(&h->hello.id, h->hello.has_secret);
  gyre_status st = gy_random(c.nonce, sizeof c.nonce);
  if (st != GYRE_OK) return st;
  gy_challenge_encode(&c, h->out);
  memcpy(h->transcript + GY_HELLO_BYTES, h->out, GY_CHALLENGE_SIGNED);
  st = prove(h, secret, role_acceptor, h->out + GY_CHALLENGE_SIGNED);
  if (st == GYRE_OK) st = prove(h, secret, role_dialler, h->expected);
  if (st != GYRE_OK) return st;
  h->out_len = GY_CHALLENGE_BYTES;
  h->out_sent = 0;
  h->state = GY_AWAIT_RESPONSE;
  return GYRE_OK;
}

gyre_status gy_handshake_respond(struct gy_handshake *h) {
  uint8_t hmac[GY_HMAC_BYTES];
  gyre_status st = prove(h, h->secret, role_dialler, hmac);
  if (st != GYRE_OK) return st;
  gy_response_encode(hmac, h->out);
  h->out_len = GY_RESPONSE_BYTES;
  h->out_sent = 0;
  h->state = GY_AWAIT_WELCOME;
  return GYRE_OK;
}

/* --------------------------------------------------------------------- what messages do --- */

static enum gy_handshake_event fail(struct gy_handshake *h, enum gy_handshake_failure failure,
                                    gyre_status status) {
  h->state = GY_HANDSHAKE_OVER;
  h->failure = (uint8_t)failure;
  h->status = status;
  return GY_EVENT_FAILED;
}

static enum gy_handshake_event fail_version(struct gy_handshake *h, const char *who, unsigned min,
                                            unsigned max) {
  return fail(h, GY_FAIL_VERSION,
              gy_fail(GYRE_ERR_VERSION,
                      "the %s speaks wire versions %u to %u, the other end %u to %u; run the same "
                      "release of Gyre on every rank",
                      who, min, max, GY_WIRE_MIN, GY_WIRE_MAX));
}

static enum gy_handshake_event on_hello(struct gy_handshake *h) {
  uint16_t min = get_u16(h->in + 6), max = get_u16(h->in + 8);
  bool possible = gy_hello_decode(h->in, &h->hello);
  /* Versions first: what else is wrong with a HELLO is only known for those we speak. */
  if (min > GY_WIRE_MAX || max < GY_WIRE_MIN) return fail_version(h, "dialler", min, max);
  if (!possible)
    return fail(h, GY_FAIL_FOREIGN, gy_fail(GYRE_ERR_PROTO, "a hello with impossible contents"));
  memcpy(h->transcript, h->in, GY_HELLO_BYTES);
  h->state = GY_PARKED;
  return GY_EVENT_HELLO;
}

static enum gy_handshake_event on_challenge(struct gy_handshake *h) {
  struct gy_challenge c;
  uint8_t hmac[GY_HMAC_BYTES];
  if (!gy_challenge_decode(h->in, &c) || (c.features & ~h->hello.features) != 0)
    return fail(h, GY_FAIL_FOREIGN, gy_fail(GYRE_ERR_PROTO, "a challenge with impossible contents"));
  if (c.version < GY_WIRE_MIN || c.version > GY_WIRE_MAX)
    return fail_version(h, "acceptor", c.version, c.version);
  if (c.has_secret != h->hello.has_secret)
    return fail(h, GY_FAIL_SECRET, fail_one_secret(&h->hello.id, h->hello.has_secret));
  memcpy(h->transcript + GY_HELLO_BYTES, h->in, GY_CHALLENGE_SIGNED);
  gyre_status st = prove(h, h->secret, role_acceptor, hmac);
  if (st != GYRE_OK) return fail(h, GY_FAIL_SYSTEM, st);
  if (!gy_equal_const_time(hmac, c.hmac, sizeof hmac))
    return fail(
        h, GY_FAIL_SECRET,
        gy_fail(GYRE_ERR_AUTH,
                "rank %d failed the challenge: the secrets of rank %d and rank %d differ; set the "
                "same GYRE_SECRET or GYRE_SECRET_FILE on every rank",
                h->hello.id.to, h->hello.id.from, h->hello.id.to));
  h->state = GY_COMMITTING;
  return GY_EVENT_CHALLENGED;
}

static enum gy_handshake_event on_response(struct gy_handshake *h) {
  if (!gy_equal_const_time(h->in + 8, h->expected, GY_HMAC_BYTES))
    return fail(h, GY_FAIL_SECRET,
                gy_fail(GYRE_ERR_AUTH,
                        "rank %d failed the challenge: its secret differs from rank %d's",
                        h->hello.id.from, h->hello.id.to));
  h->state = GY_HANDSHAKE_OVER;
  return GY_EVENT_PROVEN;
}

static enum gy_handshake_event on_reject(struct gy_handshake *h) {
  char text[GY_REJECT_TEXT + 1];
  gyre_status status;
  if (!gy_reject_decode(h->in, &status, text))
    return fail(h, GY_FAIL_FOREIGN, gy_fail(GYRE_ERR_PROTO, "a reject with impossible contents"));
  return fail(h, GY_FAIL_REJECTED,
              gy_fail_text(status, text[0] != '\0' ? text : "it gives no reason"));
}

static bool may_come(const struct gy_handshake *h, uint8_t type) {
  switch (h->state) {
    case GY_AWAIT_HELLO: return type == GY_HELLO;
    case GY_AWAIT_RESPONSE: return type == GY_RESPONSE || type == GY_REJECT;
    case GY_AWAIT_CHALLENGE: return type == GY_CHALLENGE || type == GY_REJECT;
    case GY_AWAIT_WELCOME: return type == GY_WELCOME || type == GY_REJECT;
    default: return false;
  }
}

size_t gy_handshake_want(const struct gy_handshake *h) {
  if (h->state == GY_PARKED || h->state == GY_COMMITTING || h->state == GY_HANDSHAKE_OVER) return 0;
  if (h->have < GY_PREFIX_BYTES) return GY_PREFIX_BYTES - h->have;
  return gy_handshake_size(h->in) - h->have;
}

enum gy_handshake_event gy_handshake_take(struct gy_handshake *h, size_t n) {
  h->have += n;
  if (h->have < GY_PREFIX_BYTES) return GY_EVENT_WAIT;
  size_t size = gy_handshake_size(h->in);
  if (size == 0)
    return fail(h, GY_FAIL_FOREIGN, gy_fail(GYRE_ERR_PROTO, "it does not speak Gyre's protocol"));
  if (!may_come(h, h->in[4]))
    return fail(h, GY_FAIL_FOREIGN,
                gy_fail(GYRE_ERR_PROTO, "handshake message %u out of turn", h->in[4]));
  if (h->have < size) return GY_EVENT_WAIT;
  h->have = 0;
  switch (h->in[4]) {
    case GY_HELLO: return on_hello(h);
    case GY_CHALLENGE: return on_challenge(h);
    case GY_RESPONSE: return on_response(h);
    case GY_REJECT: return on_reject(h);
    default: h->state = GY_HANDSHAKE_OVER; return GY_EVENT_WELCOME;
  }
}

/* -------------------------------------------------------------------------------- the socket --- */

static enum gy_handshake_event fail_io(struct gy_handshake *h, int sys_errno, const char *doing) {
  if (sys_errno == ECONNRESET || sys_errno == EPIPE)
    return fail(h, GY_FAIL_CLOSED,
                gy_fail_errno(GYRE_ERR_PEER_LOST, sys_errno, "the peer cut the connection"));
  return fail(h, GY_FAIL_SYSTEM,
              gy_fail_errno(GYRE_ERR_SYS, sys_errno, "cannot %s in the handshake", doing));
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK; }

/* A peer that is to be silent can only close, or break the rules. */
static enum gy_handshake_event check_silence(struct gy_handshake *h, int fd) {
  uint8_t byte;
  ssize_t got;
  do got = recv(fd, &byte, 1, MSG_PEEK);
  while (got < 0 && errno == EINTR);
  if (got < 0) return would_block() ? GY_EVENT_WAIT : fail_io(h, errno, "receive");
  if (got == 0)
    return fail(h, GY_FAIL_CLOSED, gy_fail(GYRE_ERR_PEER_LOST, "the peer closed the connection"));
  return fail(h, GY_FAIL_FOREIGN, gy_fail(GYRE_ERR_PROTO, "bytes out of turn in the handshake"));
}

enum gy_handshake_event gy_handshake_pump(struct gy_handshake *h, int fd) {
  int send_errno = 0; /* a failed send does not end it: the peer may have said why before it closed */
  while (h->out_sent < h->out_len) {
    ssize_t sent = send(fd, h->out + h->out_sent, h->out_len - h->out_sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      send_errno = would_block() ? 0 : errno;
      break;
    }
    h->out_sent += (size_t)sent;
  }
  for (;;) {
    size_t want = gy_handshake_want(h);
    if (want == 0) return check_silence(h, fd);
    ssize_t got = recv(fd, h->in + h->have, want, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block())
      return send_errno == 0 ? GY_EVENT_WAIT : fail_io(h, send_errno, "send");
    if (got < 0) return fail_io(h, errno, "receive");
    if (got == 0)
      return fail(h, GY_FAIL_CLOSED,
                  gy_fail(GYRE_ERR_PEER_LOST, "the peer closed the connection in the handshake"));
    enum gy_handshake_event event = gy_handshake_take(h, (size_t)got);
    if (event != GY_EVENT_WAIT) return event;
  }
}

int gy_handshake_poll(const struct gy_handshake *h) {
  return UV_READABLE | (h->out_sent < h->out_len ? UV_WRITABLE : 0);
}
