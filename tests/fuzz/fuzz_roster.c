/*
 * fuzz_roster.c - any bytes as JOIN, ROSTER, FAIL, unique id, and as the line of a rendezvous
 * file.
 *
 * The first byte chooses the reader. What a reader accepts must be within bounds, and writing and
 * reading it again must give the same. With GY_LIBFUZZER defined libFuzzer drives it; otherwise
 * main runs it over generated inputs, after those of a corpus.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bootstrap.h"
#include "rendezvous.h"
#include "replay.h"

#define require(condition)                                                    \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

static void check_member(const struct gy_member *m) {
  require(m->n_address <= GY_ADDRESS_MAX);
  require(memchr(m->host_name, 0, sizeof m->host_name) != NULL);
  for (uint32_t i = 0; i < m->n_address; i++)
    require(m->address[i].sa.any.sa_family == AF_INET || m->address[i].sa.any.sa_family == AF_INET6);
}

static void fuzz_join(const uint8_t *data, size_t size) {
  static struct gy_join join, back;
  struct gy_writer w = {0};
  if (gy_join_read(data, size, &join) != GYRE_OK) return;
  check_member(&join.member);
  require(join.n_demand <= GY_DEMAND_MAX);
  gy_join_write(&w, &join);
  require(!w.failed && gy_join_read(w.data, w.len, &back) == GYRE_OK);
  require(memcmp(&join, &back, sizeof join) == 0);
  gy_w_free(&w);
}

static void fuzz_roster(const uint8_t *data, size_t size) {
  struct gy_roster *roster, *back;
  struct gy_writer w = {0}, again = {0};
  if (gy_roster_read(data, size, &roster) != GYRE_OK) return;
  require(roster->nranks >= 1 && (size_t)roster->nranks <= size);
  for (int i = 0; i < roster->nranks; i++) check_member(&roster->member[i]);
  gy_roster_write(&w, roster);
  require(!w.failed && gy_roster_read(w.data, w.len, &back) == GYRE_OK);
  gy_roster_write(&again, back);
  require(w.len == again.len && memcmp(w.data, again.data, w.len) == 0);
  gy_w_free(&w);
  gy_w_free(&again);
  gy_roster_free(roster);
  gy_roster_free(back);
}

static void fuzz_fail(const uint8_t *data, size_t size) {
  gyre_status status;
  char text[GY_FAIL_TEXT];
  if (gy_fail_read(data, size, &status, text) != GYRE_OK) return;
  require(status <= GYRE_ERR_ARG && status >= GYRE_ERR_INTERNAL);
  require(memchr(text, 0, sizeof text) != NULL);
}

static void fuzz_id(const uint8_t *data, size_t size) {
  gyre_unique_id id, again;
  struct gy_place place, back;
  uint8_t secret[GY_ID_SECRET];
  memset(&id, 0, sizeof id);
  memcpy(&id, data, size < sizeof id ? size : sizeof id);
  if (gy_id_read(&id, &place, secret) != GYRE_OK) return;
  require(place.n_address >= 1 && place.n_address <= GY_ADDRESS_MAX);
  gy_id_write(&place, secret, &again);
  require(gy_id_read(&again, &back, secret) == GYRE_OK && gy_place_equal(&place, &back));
}

static void fuzz_place(const uint8_t *data, size_t size) {
  char text[2 * GY_PLACE_TEXT], line[GY_PLACE_TEXT];
  struct gy_place place, back;
  size_t len = size < sizeof text - 1 ? size : sizeof text - 1;
  memcpy(text, data, len);
  text[len] = '\0';
  if (!gy_place_scan(text, &place)) return;
  require(place.n_address <= GY_ADDRESS_MAX);
  gy_place_print(&place, line);
  require(gy_place_scan(line, &back) && gy_place_equal(&place, &back));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static void (*const readers[])(const uint8_t *data, size_t size) = {
      fuzz_join, fuzz_roster, fuzz_fail, fuzz_id, fuzz_place};
  if (size < 1) return 0;
  uint8_t *exact = malloc(size); /* so that a read beyond the end is seen */
  require(exact != NULL);
  memcpy(exact, data + 1, size - 1);
  readers[data[0] % 5](exact, size - 1);
  free(exact);
  return 0;
}

#ifndef GY_LIBFUZZER
static uint32_t draw(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

static void draw_place(uint32_t *seed, struct gy_place *place) {
  memset(place, 0, sizeof *place);
  for (size_t i = 0; i < 16; i++) place->key[i] = place->host[i] = (uint8_t)draw(seed);
  place->n_address = draw(seed) % (GY_ADDRESS_MAX + 1);
  for (uint32_t i = 0; i < place->n_address; i++)
    gy_address_numeric(draw(seed) % 2 ? "10.0.0.1" : "2001:db8::1", (uint16_t)draw(seed),
                       &place->address[i]);
}

static void draw_member(uint32_t *seed, struct gy_member *m) {
  struct gy_place place;
  draw_place(seed, &place);
  memcpy(m->host, place.host, sizeof m->host);
  m->n_address = place.n_address;
  memcpy(m->address, place.address, sizeof m->address);
  snprintf(m->host_name, sizeof m->host_name, "host-%u", draw(seed));
  m->pid = draw(seed);
  m->unattended = draw(seed) % 2;
}

static void valid_join(uint32_t *seed, struct gy_writer *w) {
  static struct gy_join join;
  memset(&join, 0, sizeof join);
  join.rank = (int32_t)draw(seed);
  draw_member(seed, &join.member);
  join.n_demand = draw(seed) % 4;
  for (uint32_t i = 0; i < join.n_demand; i++)
    snprintf(join.demand[i].name, sizeof join.demand[i].name, "N%u", draw(seed));
  gy_join_write(w, &join);
}

static void valid_roster(uint32_t *seed, struct gy_writer *w) {
  struct gy_roster *roster;
  int n = 1 + (int)(draw(seed) % 6);
  require(gy_roster_create(n, &roster) == GYRE_OK);
  for (int i = 0; i < n; i++) draw_member(seed, &roster->member[i]);
  gy_roster_write(w, roster);
  gy_roster_free(roster);
}

/* A valid body, then a few bytes are changed, and sometimes the end is cut off. */
static void generate(uint32_t seed, struct gy_writer *w) {
  struct gy_place place;
  uint8_t secret[GY_ID_SECRET] = {0}, which = (uint8_t)(draw(&seed) % 5);
  gyre_unique_id id;
  char line[GY_PLACE_TEXT];
  draw_place(&seed, &place);
  gy_w_u8(w, which);
  if (which == 0) valid_join(&seed, w);
  if (which == 1) valid_roster(&seed, w);
  if (which == 2) gy_fail_write(w, (gyre_status)(2 - (int)(draw(&seed) % 20)), "a text");
  if (which == 3) {
    gy_id_write(&place, secret, &id);
    gy_w_bytes(w, &id, sizeof id);
  }
  if (which == 4) gy_w_bytes(w, line, gy_place_print(&place, line));
  require(!w->failed);
  for (uint32_t n = draw(&seed) % 4; n > 0; n--)
    w->data[1 + draw(&seed) % (w->len - 1)] ^= (uint8_t)(1u << draw(&seed) % 8);
  if (draw(&seed) % 4 == 0) w->len -= draw(&seed) % w->len;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (!replay_folder(argv[i])) return 1;
  for (uint32_t seed = 1; seed <= 50000; seed++) {
    struct gy_writer w = {0};
    generate(seed, &w);
    LLVMFuzzerTestOneInput(w.data, w.len);
    gy_w_free(&w);
  }
  return 0;
}
#endif
