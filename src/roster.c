/*
 * roster.c - the message bodies of the bootstrap: JOIN, ROSTER and FAIL (declared in bootstrap.h).
 *
 * Role:   each body begins with the format's number, so that a later format is told apart from
 *         garbage. Whatever a reader accepts has its sizes within bounds, whoever sent it.
 * Thread: any; plain data.
 */
#include <stdlib.h>
#include <string.h>
#include "bootstrap.h"
#include "status.h"

#define RANKS_MAX 16384
#define MEMBER_BYTES_MIN \
  (16u + GY_LOCAL_BYTES + 2u + 4u + 1u + 1u) /* with no name and no address */
#define MEMBER_UNATTENDED 1u                 /* of a member's flags */

/* ---------------------------------------------------------------------------------- pieces --- */

static void write_f64(struct gy_writer *w, double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  gy_w_u64(w, bits);
}

static double read_f64(struct gy_reader *r) {
  uint64_t bits = gy_r_u64(r);
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static void write_member(struct gy_writer *w, const struct gy_member *m) {
  gy_w_bytes(w, m->host, sizeof m->host);
  gy_w_bytes(w, m->local, sizeof m->local);
  gy_w_text(w, m->host_name);
  gy_w_u32(w, m->pid);
  gy_w_u8(w, m->unattended ? MEMBER_UNATTENDED : 0);
  gy_w_u8(w, (uint8_t)m->n_address);
  for (uint32_t i = 0; i < m->n_address; i++) gy_w_address(w, &m->address[i]);
}

static void read_member(struct gy_reader *r, struct gy_member *m) {
  gy_r_bytes(r, m->host, sizeof m->host);
  gy_r_bytes(r, m->local, sizeof m->local);
  gy_r_text(r, m->host_name, sizeof m->host_name);
  m->pid = gy_r_u32(r);
  uint8_t flags = gy_r_u8(r);
  m->unattended = flags & MEMBER_UNATTENDED;
  if (flags & ~MEMBER_UNATTENDED) r->failed = true;
  m->n_address = gy_r_u8(r);
  if (m->n_address > GY_ADDRESS_MAX) {
    m->n_address = 0;
    r->failed = true;
  }
  for (uint32_t i = 0; i < m->n_address; i++) gy_r_address(r, &m->address[i]);
}

static void write_agreed(struct gy_writer *w, const struct gy_agreed *a) {
  gy_w_text(w, a->transports);
  gy_w_text(w, a->algo);
  gy_w_u32(w, a->slice_bytes);
  gy_w_u32(w, a->window);
  gy_w_u32(w, a->op_timeout_ms);
  gy_w_u32(w, a->stall_ms);
  gy_w_u32(w, a->verdict_ms);
  gy_w_u32(w, a->heartbeat_ms);
  gy_w_u32(w, a->peer_timeout_ms);
  gy_w_text(w, a->tcp_congestion);
  gy_w_u8(w, a->checksum);
  write_f64(w, a->cost.latency_us);
  write_f64(w, a->cost.us_per_byte);
  write_f64(w, a->cost.reduce_us_per_byte);
  write_f64(w, a->cost.step_us);
  write_f64(w, a->cost.contention);
  gy_w_u64(w, a->cost.slice_bytes);
}

static void read_agreed(struct gy_reader *r, struct gy_agreed *a) {
  gy_r_text(r, a->transports, sizeof a->transports);
  gy_r_text(r, a->algo, sizeof a->algo);
  a->slice_bytes = gy_r_u32(r);
  a->window = gy_r_u32(r);
  a->op_timeout_ms = gy_r_u32(r);
  a->stall_ms = gy_r_u32(r);
  a->verdict_ms = gy_r_u32(r);
  a->heartbeat_ms = gy_r_u32(r);
  a->peer_timeout_ms = gy_r_u32(r);
  gy_r_text(r, a->tcp_congestion, sizeof a->tcp_congestion);
  a->checksum = gy_r_u8(r);
  a->cost.latency_us = read_f64(r);
  a->cost.us_per_byte = read_f64(r);
  a->cost.reduce_us_per_byte = read_f64(r);
  a->cost.step_us = read_f64(r);
  a->cost.contention = read_f64(r);
  a->cost.slice_bytes = (size_t)gy_r_u64(r);
}

static gyre_status read_format(struct gy_reader *r, const char *what) {
  uint16_t format = gy_r_u16(r);
  if (r->failed) return gy_fail(GYRE_ERR_PROTO, "an empty %s message", what);
  if (format == GY_BOOTSTRAP_FORMAT) return GYRE_OK;
  return gy_fail(GYRE_ERR_VERSION,
                 "a %s message of format %u, where %u is known; use one version of Gyre everywhere",
                 what, format, GY_BOOTSTRAP_FORMAT);
}

/* The whole body, and nothing beyond it, has been understood. */
static gyre_status read_end(const struct gy_reader *r, const char *what) {
  if (!r->failed && r->pos == r->len) return GYRE_OK;
  return gy_fail(GYRE_ERR_PROTO, "a malformed %s message: %zu bytes, %s at %zu", what, r->len,
                 r->failed ? "not understood" : "left over", r->pos);
}

/* ------------------------------------------------------------------------------------ JOIN --- */

void gy_join_write(struct gy_writer *w, const struct gy_join *join) {
  gy_w_u16(w, GY_BOOTSTRAP_FORMAT);
  gy_w_i32(w, join->rank);
  gy_w_i32(w, join->nranks);
  gy_w_u32(w, join->version);
  gy_w_u32(w, join->patience_ms);
  write_member(w, &join->member);
  gy_w_u8(w, (uint8_t)join->n_demand);
  for (uint32_t i = 0; i < join->n_demand; i++) {
    gy_w_text(w, join->demand[i].name);
    gy_w_text(w, join->demand[i].value);
  }
}

gyre_status gy_join_read(const void *body, size_t len, struct gy_join *out) {
  struct gy_reader r = {.data = body, .len = len};
  memset(out, 0, sizeof *out);
  gyre_status status = read_format(&r, "JOIN");
  if (status != GYRE_OK) return status;
  out->rank = gy_r_i32(&r);
  out->nranks = gy_r_i32(&r);
  out->version = gy_r_u32(&r);
  out->patience_ms = gy_r_u32(&r);
  read_member(&r, &out->member);
  out->n_demand = gy_r_u8(&r);
  if (out->n_demand > GY_DEMAND_MAX) {
    out->n_demand = 0;
    r.failed = true;
  }
  for (uint32_t i = 0; i < out->n_demand; i++) {
    gy_r_text(&r, out->demand[i].name, sizeof out->demand[i].name);
    gy_r_text(&r, out->demand[i].value, sizeof out->demand[i].value);
  }
  return read_end(&r, "JOIN");
}

/* ---------------------------------------------------------------------------------- ROSTER --- */

gyre_status gy_roster_create(int nranks, struct gy_roster **out) {
  struct gy_roster *roster = calloc(1, sizeof *roster);
  struct gy_member *member = calloc((size_t)nranks, sizeof *member);
  if (!roster || !member) {
    free(roster);
    free(member);
    return gy_fail(GYRE_ERR_NOMEM, "no memory for the addresses of %d ranks", nranks);
  }
  roster->nranks = nranks;
  roster->member = member;
  *out = roster;
  return GYRE_OK;
}

void gy_roster_free(struct gy_roster *r) {
  if (!r) return;
  free(r->member);
  free(r);
}

void gy_roster_write(struct gy_writer *w, const struct gy_roster *roster) {
  gy_w_u16(w, GY_BOOTSTRAP_FORMAT);
  gy_w_i32(w, roster->nranks);
  gy_w_bytes(w, roster->epoch, sizeof roster->epoch);
  write_agreed(w, &roster->agreed);
  for (int i = 0; i < roster->nranks; i++) write_member(w, &roster->member[i]);
}

gyre_status gy_roster_read(const void *body, size_t len, struct gy_roster **out) {
  struct gy_reader r = {.data = body, .len = len};
  struct gy_roster *roster = NULL;
  gyre_status status = read_format(&r, "ROSTER");
  if (status != GYRE_OK) return status;
  int32_t nranks = gy_r_i32(&r);
  if (nranks < 1 || nranks > RANKS_MAX || (size_t)nranks > len / MEMBER_BYTES_MIN)
    return gy_fail(GYRE_ERR_PROTO, "a malformed ROSTER message: %zu bytes for %d ranks", len, nranks);
  status = gy_roster_create(nranks, &roster);
  if (status != GYRE_OK) return status;
  gy_r_bytes(&r, roster->epoch, sizeof roster->epoch);
  read_agreed(&r, &roster->agreed);
  for (int i = 0; i < nranks; i++) read_member(&r, &roster->member[i]);
  status = read_end(&r, "ROSTER");
  if (status != GYRE_OK) gy_roster_free(roster);
  else *out = roster;
  return status;
}

/* ------------------------------------------------------------------------------------ FAIL --- */

void gy_fail_write(struct gy_writer *w, gyre_status status, const char *text) {
  gy_w_u16(w, GY_BOOTSTRAP_FORMAT);
  gy_w_i32(w, status);
  gy_w_text(w, text);
}

gyre_status gy_fail_read(const void *body, size_t len, gyre_status *status, char text[GY_FAIL_TEXT]) {
  struct gy_reader r = {.data = body, .len = len};
  gyre_status read = read_format(&r, "FAIL");
  if (read != GYRE_OK) return read;
  int32_t code = gy_r_i32(&r);
  if (code > GYRE_ERR_ARG || code < GYRE_ERR_INTERNAL) r.failed = true;
  gy_r_text(&r, text, GY_FAIL_TEXT);
  read = read_end(&r, "FAIL");
  if (read == GYRE_OK) *status = (gyre_status)code;
  return read;
}
