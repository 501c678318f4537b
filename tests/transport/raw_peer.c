/* raw_peer.c - see raw_peer.h. */
#include "raw_peer.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "crc32c.h"
#include "status.h"

struct outcome {
  bool over;
  int fd;
};

static void dialled(void *user, gyre_status status, const struct gy_conn *conn) {
  struct outcome *o = user;
  o->over = true;
  o->fd = status ? -1 : conn->fd;
}

int raw_dial(struct world *w, int from, int to, uint16_t lane) {
  struct gy_dial *dial;
  struct outcome o = {.fd = -1};
  struct gy_dial_target target = {.candidate = w->member[to].address,
                                  .n_candidate = w->member[to].n_address};
  struct gy_identity id = {.kind = GY_CONN_DATA, .lane = lane, .from = from, .to = to};
  memcpy(id.key, w->roster.epoch, sizeof id.key);
  assert_int_equal(gy_dial_start(w->rank[from].net, &target, &id, &w->rank[from].core.secret, 20000,
                                 dialled, &o, &dial),
                   GYRE_OK);
  WORLD_UNTIL(w, o.over);
  return o.fd;
}

static gyre_status accepted(void *user, const struct gy_conn *conn) {
  struct outcome *o = user;
  if (o->over) return gy_fail(GYRE_ERR_PROTO, "one connection is enough");
  o->over = true;
  o->fd = conn->fd;
  return GYRE_OK;
}

int raw_accept(struct world *w, int to) {
  struct gy_expect *expect;
  struct outcome o = {.fd = -1};
  assert_int_equal(gy_net_expect(w->rank[to].net, GY_CONN_DATA, w->roster.epoch, to,
                                 &w->rank[to].core.secret, accepted, &o, &expect),
                   GYRE_OK);
  WORLD_UNTIL(w, o.over);
  gy_net_unexpect(expect);
  return o.fd;
}

static size_t write_frame(uint8_t *out, size_t head, const struct gy_descriptor *call,
                          uint32_t index, size_t offset, const void *payload, size_t bytes) {
  struct gy_frame f = {.type = GY_FRAME_SLICE,
                       .offset = (uint16_t)offset,
                       .bytes = (uint32_t)bytes,
                       .index = index,
                       .payload_sum = gy_crc32c_portable(0, payload, bytes),
                       .call = *call};
  size_t end = offset + bytes, whole = (end + 63) / 64 * 64;
  gy_frame_encode(&f, head, out);
  memset(out + head, 0xEE, offset - head); /* padding may be anything */
  if (bytes) memcpy(out + offset, payload, bytes);
  memset(out + end, 0xDD, whole - end);
  return whole;
}

size_t raw_frame(uint8_t *out, const struct gy_descriptor *call, uint32_t index, size_t offset,
                 const void *payload, size_t bytes) {
  return write_frame(out, GY_FRAME_BYTES, call, index, offset, payload, bytes);
}

size_t raw_frame_summed(uint8_t *out, const struct gy_descriptor *call, uint32_t index,
                        size_t offset, const void *payload, size_t bytes) {
  return write_frame(out, GY_FRAME_SUMMED, call, index, offset, payload, bytes);
}

void raw_write(struct world *w, int fd, const void *data, size_t bytes) {
  for (const char *p = data; bytes;) {
    ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    assert_true(n > 0 || errno == EAGAIN);
    assert_false(w->late);
    if (n > 0) {
      p += n;
      bytes -= (size_t)n;
    }
    world_step(w);
  }
}

void raw_read(struct world *w, int fd, void *data, size_t bytes, size_t piece) {
  for (char *p = data; bytes;) {
    ssize_t n = recv(fd, p, bytes < piece ? bytes : piece, MSG_DONTWAIT);
    assert_true(n > 0 || (n < 0 && errno == EAGAIN));
    assert_false(w->late);
    if (n > 0) {
      p += n;
      bytes -= (size_t)n;
    }
    if (n <= 0 || bytes % 16 == 0) world_step(w);
  }
}
