/* conformance.c - see conformance.h. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 64
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Sanitizers keep freed memory, and find leaks themselves. */
static bool sanitized(void) {
#ifdef __SANITIZE_ADDRESS__
  return true;
#else
  const char *of_the_build = getenv("TEST_SANITIZE");
  return of_the_build != NULL && *of_the_build != '\0';
#endif
}

bool conformance_is_sanitized(void) { return !getenv("CONFORMANCE_WHOLE") && sanitized(); }

bool conformance_is_brief(void) {
  return !getenv("CONFORMANCE_WHOLE") && (conformance->brief || sanitized());
}

static void in_both_modes(void (*test)(struct world *w), int nranks, uint32_t window) {
  for (int spin = 0; spin < 2; spin++) {
    static struct world w;
    world_open(&w, conformance->ops, nranks, window);
    w.spin = spin != 0;
    w.roster.agreed.checksum = conformance->checksum;
    for (int r = 0; r < nranks && conformance->fault; r++)
      assert_int_equal(gy_settings_set(&w.rank[r].settings, "GYRE_FAULT", conformance->fault), 0);
    world_open_transports(&w);
    test(&w);
    world_close(&w);
  }
}

/* ------------------------------------------------------------------------------------- sizes --- */

/* A received area between guard bytes. */
struct area {
  uint8_t *memory, *at;
  size_t bytes;
};

static struct area area_make(size_t bytes, size_t offset) {
  struct area a = {.bytes = bytes};
  a.memory = malloc(bytes + 2 * GUARD + offset);
  assert_non_null(a.memory);
  memset(a.memory, 0xA5, bytes + 2 * GUARD + offset);
  a.at = a.memory + GUARD + offset;
  return a;
}

/* Nothing beside the area was written; frees it. */
static void area_end(struct area *a) {
  for (int i = 1; i <= GUARD; i++) {
    assert_int_equal(a->at[-i], 0xA5);
    assert_int_equal(a->at[a->bytes + (size_t)i - 1], 0xA5);
  }
  free(a->memory);
}

/* Both ways at once, with source and destination at these places within a line. */
static void exchange(struct end *e[2], size_t bytes, size_t from_offset, size_t to_offset) {
  struct world *w = e[0]->world;
  struct transfer send[2], recv[2];
  struct area from[2], to[2];
  for (unsigned r = 0; r < 2; r++) {
    from[r] = area_make(bytes, from_offset);
    to[r] = area_make(bytes, to_offset);
    pattern_fill(from[r].at, bytes, r, e[r]->posted[0]);
    post_recv(e[r], &recv[r], to[r].at, bytes);
  }
  for (unsigned r = 0; r < 2; r++) post_send(e[r], &send[r], from[r].at, bytes);
  WORLD_UNTIL(w, recv[0].done && recv[1].done && send[0].done && send[1].done);
  for (unsigned r = 0; r < 2; r++) {
    pattern_check(to[r].at, bytes, 1 - r, recv[r].x.index);
    pattern_check(from[r].at, bytes, r, send[r].x.index);
    area_end(&from[r]);
    area_end(&to[r]);
  }
}

static void pair_open(struct world *w, struct end *e[2]) {
  e[0] = end_open(w, 0, 1, 0);
  e[1] = end_open(w, 1, 0, 0);
}

static void nobody_complained(const struct world *w) {
  for (unsigned i = 0; i < w->n_end; i++) {
    if (w->end[i].downs) fail_msg("link down: %s", w->end[i].text);
    assert_int_equal(w->end[i].mismatches, 0);
  }
}

static void test_sizes(struct world *w) {
  static const size_t offsets[][2] = {{0, 0}, {1, 0}, {0, 1}, {33, 59}};
  struct end *e[2];
  pair_open(w, e);
  for (size_t o = 0; o < COUNT(offsets); o += conformance_is_brief() ? 3 : 1) {
    static const size_t small[] = {0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097};
    for (size_t s = 0; s < COUNT(small); s++) exchange(e, small[s], offsets[o][0], offsets[o][1]);
    for (size_t b = 0; b < conformance->n_borders; b++) {
      for (size_t d = 0; d < 3; d++)
        exchange(e, conformance->borders[b] + d - 1, offsets[o][0], offsets[o][1]);
    }
  }
  exchange(e, conformance_is_brief() ? 700005 : (3u << 20) + 5, 0, 0);
  nobody_complained(w);
}

void conformance_sizes(void **state) {
  (void)state;
  in_both_modes(test_sizes, 2, 4);
}

/* -------------------------------------------------------------------------------- reductions --- */

/* Small whole numbers, so that no type overflows. */
static void fill_values(void *to, gyre_dtype type, size_t n, unsigned who) {
  for (size_t i = 0; i < n; i++) {
    int v = (int)((i * 7 + who * 3) % 9) + 1;
    switch (type) {
      case GYRE_F32: ((float *)to)[i] = (float)v; break;
      case GYRE_F64: ((double *)to)[i] = (double)v; break;
      case GYRE_F16: ((uint16_t *)to)[i] = gy_f32_to_f16((float)v); break;
      case GYRE_BF16: ((uint16_t *)to)[i] = gy_f32_to_bf16((float)v); break;
      case GYRE_F8_E4M3: ((uint8_t *)to)[i] = gy_f32_to_e4m3((float)v); break;
      case GYRE_F8_E5M2: ((uint8_t *)to)[i] = gy_f32_to_e5m2((float)v); break;
      case GYRE_I8:
      case GYRE_U8: ((uint8_t *)to)[i] = (uint8_t)v; break;
      case GYRE_I16:
      case GYRE_U16: ((uint16_t *)to)[i] = (uint16_t)v; break;
      case GYRE_I32:
      case GYRE_U32: ((uint32_t *)to)[i] = (uint32_t)v; break;
      case GYRE_F32_I32:
      case GYRE_F64_I64:
      case GYRE_I32_I32:
      case GYRE_I64_I64:
        memset((char *)to + i * gyre_dtype_size(type), v, gyre_dtype_size(type));
        break;
      default: ((uint64_t *)to)[i] = (uint64_t)v; break;
    }
  }
}

static void reduce_once(struct end *e[2], const struct reduction *r, size_t n, bool in_place) {
  size_t bytes = n * gyre_dtype_size(r->type);
  struct transfer send, recv;
  struct area in = area_make(bytes, 0), mine = area_make(bytes, 0), out = area_make(bytes, 0),
              want = area_make(bytes, 0);
  fill_values(in.at, r->type, n, 0);
  fill_values(mine.at, r->type, n, 1);
  gy_reduce_reference(r->type, r->op)(want.at, r->swap ? in.at : mine.at, r->swap ? mine.at : in.at,
                                      n, r->finish);
  uint8_t *to = in_place ? mine.at : out.at;
  post_reduce(e[1], &recv, r, to, mine.at, bytes);
  post_send(e[0], &send, in.at, bytes);
  WORLD_UNTIL(e[0]->world, send.done && recv.done);
  if (bytes) assert_memory_equal(to, want.at, bytes);
  area_end(&in);
  area_end(&mine);
  area_end(&out);
  area_end(&want);
}

static void test_reductions(struct world *w) {
  struct end *e[2];
  pair_open(w, e);
  for (int type = 0; type < GYRE_DTYPE_COUNT; type++) {
    size_t esize = gyre_dtype_size((gyre_dtype)type);
    struct reduction sum = {.type = (gyre_dtype)type, .op = GYRE_SUM};
    struct reduction mean = {.type = (gyre_dtype)type, .op = GYRE_AVG, .finish = 3};
    struct reduction swapped = {.type = (gyre_dtype)type, .op = GYRE_MAX, .swap = true};
    if (!gyre_op_accepts(GYRE_SUM, (gyre_dtype)type)) { /* a pair */
      sum.op = GYRE_MINLOC;
      swapped.op = GYRE_MAXLOC;
      mean = sum;
    }
    for (size_t n = 0; n < 20; n++) reduce_once(e, n % 2 ? &sum : &mean, n, n % 3 == 0);
    if (conformance_is_brief() && type % 7 != 0) continue; /* f32, u16 and a pair, large */
    for (size_t b = 0; b < conformance->n_borders; b++) {
      size_t n = conformance->borders[b] / esize;
      reduce_once(e, &sum, n - 1, true);
      reduce_once(e, &mean, n, false);
      reduce_once(e, &swapped, n + 1, b % 2);
    }
    reduce_once(e, &sum, (1u << 20) / esize + 3, true);
  }
  nobody_complained(w);
}

void conformance_reductions(void **state) {
  (void)state;
  in_both_modes(test_reductions, 2, 4);
}

/* ---------------------------------------------------------------------------- random traffic --- */

enum { MESSAGES = 150, BRIEFLY = 40, WINDOW = 4 };

struct slot { /* a message under way */
  struct transfer t;
  int32_t *data, *operand;
};

struct stream { /* from one rank to another */
  struct end *from, *to;
  unsigned sender, messages;
  size_t count[MESSAGES]; /* of i32 */
  bool reduced[MESSAGES];
  struct slot send[WINDOW], recv[WINDOW];
  unsigned freed, checked;
};

static int32_t value_of(unsigned sender, unsigned index, size_t i) {
  return (int32_t)(i * 31 + sender * 1009 + index * 17);
}

static void stream_init(struct stream *s, struct end *from, struct end *to, unsigned sender,
                        uint64_t *seed) {
  *s = (struct stream){.from = from, .to = to, .sender = sender};
  s->messages = conformance_is_brief() ? BRIEFLY : MESSAGES;
  for (unsigned k = 0; k < s->messages; k++) {
    static const uint64_t limits[] = {20, 20, 3000, 12000, 80000};
    s->count[k] = (size_t)test_random(seed, limits[test_random(seed, COUNT(limits))]);
    s->reduced[k] = test_random(seed, 2);
  }
}

static void stream_send(struct stream *s) {
  unsigned k = s->from->posted[0];
  if (k == s->messages || k - s->freed == WINDOW) return;
  struct slot *slot = &s->send[k % WINDOW];
  slot->data = malloc(s->count[k] * sizeof(int32_t) + 1);
  for (size_t i = 0; i < s->count[k]; i++) slot->data[i] = value_of(s->sender, k, i);
  post_send(s->from, &slot->t, slot->data, s->count[k] * sizeof(int32_t));
}

static void stream_receive(struct stream *s) {
  static const struct reduction sum = {.type = GYRE_I32, .op = GYRE_SUM};
  unsigned k = s->to->posted[1];
  if (k == s->messages || k - s->checked == WINDOW) return;
  struct slot *slot = &s->recv[k % WINDOW];
  size_t bytes = s->count[k] * sizeof(int32_t);
  slot->data = malloc(bytes + 1);
  slot->operand = malloc(bytes + 1);
  for (size_t i = 0; i < s->count[k]; i++) slot->operand[i] = (int32_t)i;
  if (s->reduced[k]) post_reduce(s->to, &slot->t, &sum, slot->data, slot->operand, bytes);
  else post_recv(s->to, &slot->t, slot->data, bytes);
}

static void stream_collect(struct stream *s) {
  while (s->freed < s->from->done[0]) free(s->send[s->freed++ % WINDOW].data);
  while (s->checked < s->to->done[1]) {
    unsigned k = s->checked++;
    struct slot *slot = &s->recv[k % WINDOW];
    for (size_t i = 0; i < s->count[k]; i++) {
      int32_t want = value_of(s->sender, k, i) + (s->reduced[k] ? (int32_t)i : 0);
      if (slot->data[i] != want)
        fail_msg("message %u of rank %u: element %zu is %d, not %d", k, s->sender, i, slot->data[i],
                 want);
    }
    free(slot->data);
    free(slot->operand);
  }
}

static void on_tick(uv_timer_t *t) { (void)t; }
static void on_tick_closed(uv_handle_t *h) { *(bool *)h->data = true; }

/* Ranks that post as the dice say: neither end knows how far the other is. */
static void test_random_traffic(struct world *w) {
  static struct stream s[6];
  uint64_t seed = w->spin ? 11 : 22;
  unsigned n = 0, over = 0;
  for (int a = 0; a < 3; a++) {
    for (int b = a + 1; b < 3; b++) {
      struct end *ab = end_open(w, a, b, 0), *ba = end_open(w, b, a, 0);
      stream_init(&s[n++], ab, ba, (unsigned)a, &seed);
      stream_init(&s[n++], ba, ab, (unsigned)b, &seed);
    }
  }
  uv_timer_t tick; /* everybody may sleep because the dice were against posting */
  bool gone = false;
  uv_timer_init(&w->loop, &tick);
  tick.data = &gone;
  uv_timer_start(&tick, on_tick, 1, 1);
  while (over < n) {
    over = 0;
    for (unsigned i = 0; i < n; i++) {
      if (test_random(&seed, 2)) stream_send(&s[i]);
      if (test_random(&seed, 2)) stream_receive(&s[i]);
      stream_collect(&s[i]);
      over += s[i].checked == s[i].messages && s[i].freed == s[i].messages;
    }
    assert_false(w->late);
    world_step(w);
  }
  nobody_complained(w);
  uv_close((uv_handle_t *)&tick, on_tick_closed);
  WORLD_UNTIL(w, gone);
}

void conformance_random_traffic(void **state) {
  (void)state;
  in_both_modes(test_random_traffic, 3, WINDOW);
}

/* -------------------------------------------------------------------------- lanes and windows --- */

/* What is not received on one lane stops no other. */
static void test_lanes(struct world *w) {
  struct end *from[3], *to[3];
  struct transfer send[3], recv[3];
  static uint8_t out[3][5000], in[3][5000];
  for (uint16_t lane = 0; lane < 3; lane++) {
    from[lane] = end_open(w, 0, 1, lane);
    to[lane] = end_open(w, 1, 0, lane);
    pattern_fill(out[lane], sizeof out[lane], lane, 0);
    post_send(from[lane], &send[lane], out[lane], sizeof out[lane]);
  }
  for (int lane = 2; lane >= 0; lane--) {
    post_recv(to[lane], &recv[lane], in[lane], sizeof in[lane]);
    WORLD_UNTIL(w, recv[lane].done && send[lane].done);
    pattern_check(in[lane], sizeof in[lane], (unsigned)lane, 0);
  }
  nobody_complained(w);
}

void conformance_lanes(void **state) {
  (void)state;
  in_both_modes(test_lanes, 2, 4);
}

/* Of the rank that dials, and of the rank that is dialled; what they post waits. */
static void test_late_peer(struct world *w) {
  for (int first = 0; first < 2; first++) {
    struct end *e[2] = {NULL, NULL};
    struct transfer send[2], recv[2];
    uint8_t out[2][300], in[2][300];
    e[first] = end_open(w, first, 1 - first, (uint16_t)first);
    for (int turn = 0; turn < 2; turn++) {
      int r = turn == 0 ? first : 1 - first;
      if (turn == 1) {
        world_idle(w, 30);
        assert_false(recv[first].done);
        e[r] = end_open(w, r, 1 - r, (uint16_t)first);
      }
      pattern_fill(out[r], sizeof out[r], (unsigned)r, 0);
      post_send(e[r], &send[r], out[r], sizeof out[r]);
      post_recv(e[r], &recv[r], in[r], sizeof in[r]);
    }
    WORLD_UNTIL(w, recv[0].done && recv[1].done && send[0].done && send[1].done);
    pattern_check(in[0], sizeof in[0], 1, 0);
    pattern_check(in[1], sizeof in[1], 0, 0);
  }
  nobody_complained(w);
}

void conformance_posts_before_the_peer_is_there(void **state) {
  (void)state;
  in_both_modes(test_late_peer, 2, 4);
}

/* As many as the window allows at once, several times over, sends and receives of any two ranks out
 * of step. */
static void test_window(struct world *w) {
  enum { MOST = 64 };
  const unsigned total = conformance_is_brief() ? 100 : 200;
  static struct transfer send[MOST], recv[MOST];
  static uint8_t out[MOST][700], in[MOST][700];
  uint32_t window = w->roster.agreed.window;
  struct end *e[2];
  unsigned checked = 0;
  pair_open(w, e);
  while (checked < total) {
    while (e[0]->posted[0] < total && e[0]->posted[0] - e[0]->done[0] < window) {
      unsigned k = e[0]->posted[0], slot = k % window;
      pattern_fill(out[slot], sizeof out[slot], 0, k);
      post_send(e[0], &send[slot], out[slot], (size_t)k * 13 % 700);
    }
    while (e[1]->posted[1] < total && e[1]->posted[1] - checked < window) {
      unsigned k = e[1]->posted[1];
      post_recv(e[1], &recv[k % window], in[k % window], (size_t)k * 13 % 700);
    }
    WORLD_UNTIL(w, e[1]->done[1] > checked ||
                       (e[0]->posted[0] < total && e[0]->posted[0] - e[0]->done[0] < window));
    for (; checked < e[1]->done[1]; checked++)
      pattern_check(in[checked % window], (size_t)checked * 13 % 700, 0, checked);
  }
  WORLD_UNTIL(w, e[0]->done[0] == total);
  nobody_complained(w);
}

void conformance_windows(void **state) {
  (void)state;
  in_both_modes(test_window, 2, 1);
  in_both_modes(test_window, 2, 2);
  in_both_modes(test_window, 2, 64);
}

/* ----------------------------------------------------------------------- back-pressure, sleep --- */

/* What was under way may take its time to settle on a busy machine; then the loop sleeps. */
static void asleep(struct world *w) {
  unsigned turns = 0;
  if (w->spin) return;
  for (int i = 0; i < 50; i++) {
    unsigned before = w->turns;
    world_idle(w, 60);
    turns = w->turns - before;
    if (turns <= 20) return;
  }
  fail_msg("%u turns of the loop in 60 ms of nothing, again and again", turns);
}

static void test_back_pressure(struct world *w) {
  enum { N = 8 };
  size_t bytes = 6u << 20;
  struct transfer send[N], recv;
  struct end *e[2];
  uint8_t *out = malloc(bytes), *in = malloc(bytes);
  pair_open(w, e);
  pattern_fill(out, bytes, 0, 0);
  for (int k = 0; k < N; k++) post_send(e[0], &send[k], out, bytes);
  for (uint64_t before = UINT64_MAX; before != e[0]->link->bytes_out;) { /* until no more goes in */
    before = e[0]->link->bytes_out;
    world_idle(w, 100);
  }
  assert_true(e[0]->done[0] < N); /* it was not swallowed by a buffer without bounds */
  asleep(w);
  for (unsigned k = 0; k < N; k++) {
    memset(in, 0, bytes);
    post_recv(e[1], &recv, in, bytes);
    WORLD_UNTIL(w, recv.done);
    pattern_check(in, bytes, 0, 0);
  }
  WORLD_UNTIL(w, e[0]->done[0] == N);
  nobody_complained(w);
  free(out);
  free(in);
}

void conformance_back_pressure(void **state) {
  (void)state;
  in_both_modes(test_back_pressure, 2, 8);
}

static void test_idle(struct world *w) {
  struct end *e[2];
  struct transfer send, recv;
  uint8_t out[100], in[100];
  pair_open(w, e);
  exchange(e, 1000, 0, 0);
  asleep(w);
  pattern_fill(out, sizeof out, 0, 1);
  post_send(e[0], &send, out, sizeof out); /* unreceived */
  WORLD_UNTIL(w, send.done);
  asleep(w);
  post_recv(e[1], &recv, in, sizeof in);
  WORLD_UNTIL(w, recv.done);
  pattern_check(in, sizeof in, 0, 1);
  post_recv(e[1], &recv, in, sizeof in); /* unsent */
  asleep(w);
  assert_false(recv.done);
  post_send(e[0], &send, out, sizeof out);
  WORLD_UNTIL(w, recv.done && send.done);
  nobody_complained(w);
}

void conformance_idle_links_sleep(void **state) {
  (void)state;
  in_both_modes(test_idle, 2, 4);
}

/* -------------------------------------------------------------------------------------- ends --- */

static void test_graceful(struct world *w) {
  enum { N = 4 };
  /* As much as a transport takes without a receiver, which is less where it is made to do so bit by bit. */
  const size_t bytes = conformance->fault ? 150 : 20000;
  struct end *e[2];
  struct transfer send[N], recv[N + 1];
  static uint8_t out[N][20000], in[N + 1][20000];
  pair_open(w, e);
  for (unsigned k = 0; k < N; k++) {
    pattern_fill(out[k], bytes, 0, k);
    post_send(e[0], &send[k], out[k], bytes);
  }
  WORLD_UNTIL(w, e[0]->done[0] == N);
  end_close(e[0], true);
  memset(out, 0, sizeof out); /* theirs no longer */
  world_idle(w, 20);
  for (unsigned k = 0; k < N; k++) {
    post_recv(e[1], &recv[k], in[k], bytes);
    WORLD_UNTIL(w, recv[k].done);
    pattern_check(in[k], bytes, 0, k);
  }
  post_recv(e[1], &recv[N], in[N], bytes);
  WORLD_UNTIL(w, e[1]->downs);
  assert_int_equal(e[1]->why, GYRE_ERR_PEER_LOST);
  assert_int_equal(e[1]->sys_errno, 0);
  assert_false(recv[N].done);
}

void conformance_graceful_close_loses_nothing(void **state) {
  (void)state;
  in_both_modes(test_graceful, 2, 8);
}

/* After link_close returns nobody touches a buffer: they are freed, or must stay as they are. */
static void test_close_posted(struct world *w) {
  enum { N = 3 };
  struct transfer send[N], recv[N];
  size_t bytes = conformance_is_brief() ? 1u << 20 : 5u << 20;
  for (uint16_t lane = 0; lane < 6; lane++) {
    struct end *a = end_open(w, 0, 1, lane), *b = end_open(w, 1, 0, lane);
    struct end *closer = lane % 2 ? a : b, *other = lane % 2 ? b : a;
    uint8_t *out = malloc(bytes), *in = malloc(bytes);
    memset(out, 0x11, bytes);
    memset(in, 0xAA, bytes);
    for (int k = 0; k < N; k++) post_send(closer, &send[k], out, bytes);
    for (int k = 0; k < N; k++) post_recv(closer, &recv[k], in, bytes);
    if (lane > 1) WORLD_UNTIL(w, closer->link->bytes_out > 0); /* else not connected yet */
    if (lane > 3) world_idle(w, 10);
    end_close(closer, lane % 3 == 0);
    free(out); /* the sanitizer knows if it is read */
    struct transfer theirs, mine;
    uint8_t *data = calloc(1, bytes), *got = malloc(bytes);
    post_send(other, &theirs, data, bytes);
    post_recv(other, &mine, got, bytes);
    if (lane > 1) WORLD_UNTIL(w, other->downs || mine.done);
    else world_idle(w, 20);
    for (int k = 0; k < N; k++) assert_false(recv[k].done);
    for (size_t i = 0; i < bytes; i++) {
      if (in[i] != 0xAA)
        fail_msg("lane %u: byte %zu was written after the link was closed", lane, i);
    }
    end_close(other, false);
    free(in);
    free(data);
    free(got);
  }
}

void conformance_close_with_posted_work(void **state) {
  (void)state;
  in_both_modes(test_close_posted, 2, 4);
}

/* What was sent is received first; the end is told once, and nothing happens on that link
 * afterwards. */
static void test_leaves(struct world *w) {
  struct end *e[2];
  struct transfer send, recv[3], late;
  static uint8_t out[3000], in[3][3000];
  pair_open(w, e);
  pattern_fill(out, sizeof out, 0, 0);
  for (int k = 0; k < 3; k++) post_recv(e[1], &recv[k], in[k], sizeof in[k]);
  post_send(e[0], &send, out, sizeof out);
  WORLD_UNTIL(w, send.done);
  end_close(e[0], false);
  WORLD_UNTIL(w, e[1]->downs);
  assert_int_equal(e[1]->why, GYRE_ERR_PEER_LOST);
  assert_true(recv[0].done);
  pattern_check(in[0], sizeof in[0], 0, 0);
  assert_false(recv[1].done || recv[2].done);
  post_send(e[1], &late, out, sizeof out);
  world_idle(w, 20);
  assert_int_equal(e[1]->downs, 1);
  assert_false(late.done);
  asleep(w);
}

void conformance_peer_leaves(void **state) {
  (void)state;
  in_both_modes(test_leaves, 2, 4);
}

/* Whenever the peer closes its transport while this end dials, it is lost, or not there yet. */
static void test_leaves_meanwhile(struct world *w) {
  unsigned lost = 0;
  for (unsigned steps = 0; steps < 30; steps++) {
    struct transfer recv;
    uint8_t byte;
    if (steps) world_open_transports(w);
    struct end *e = end_open(w, 0, 1, 0);
    post_recv(e, &recv, &byte, 1);
    for (unsigned k = 0; k < steps; k++) world_step(w);
    w->ops->close(w->rank[1].tl);
    w->rank[1].tl = NULL;
    for (unsigned k = 0; k < 200 && !e->downs; k++) world_step(w);
    if (e->downs && e->why != GYRE_ERR_PEER_LOST)
      fail_msg("after %u steps: %s: %s", steps, gyre_status_name(e->why), e->text);
    lost += e->downs;
    world_close_transports(w);
  }
  assert_true(lost > 0);
}

void conformance_peer_leaves_meanwhile(void **state) {
  (void)state;
  static struct world w;
  world_open(&w, conformance->ops, 2, 4);
  w.spin = true; /* never sleeps: perhaps nothing is under way */
  w.roster.agreed.checksum = conformance->checksum;
  world_open_transports(&w);
  test_leaves_meanwhile(&w);
  world_close(&w);
}

/* ----------------------------------------------------------------------------- other matters --- */

static void test_other_call(struct world *w) {
  for (uint16_t lane = 0; lane < 7; lane++) {
    struct end *a = end_open(w, 0, 1, lane), *b = end_open(w, 1, 0, lane);
    struct transfer send, recv;
    uint8_t out[24] = {1}, in[24] = {0};
    struct gy_descriptor *d = &a->call;
    switch (lane) {
      case 0: d->seq++; break;
      case 1: d->count += UINT64_C(1) << 40; break;
      case 2: d->root = 70000; break;
      case 3: d->coll = GY_BROADCAST; break;
      case 4: d->dtype = GYRE_U8; break;
      case 5: d->op = GYRE_MAX; break;
      default: d->algo = 9; break;
    }
    post_recv(b, &recv, in, sizeof in);
    post_send(a, &send, out, sizeof out);
    WORLD_UNTIL(w, b->mismatches);
    assert_memory_equal(&b->mine, &b->call, sizeof b->mine);
    assert_memory_equal(&b->theirs, &a->call, sizeof b->theirs);
    world_idle(w, 5);
    assert_int_equal(b->mismatches, 1);
    assert_int_equal(b->downs, 0);
    assert_false(recv.done);
    end_close(a, false);
    end_close(b, false);
    w->n_end = 0;
  }
}

void conformance_other_call(void **state) {
  (void)state;
  in_both_modes(test_other_call, 2, 4);
}

static void describe(const struct world *w, const struct end *e) {
  char text[256], tiny[8];
  memset(tiny, 'x', sizeof tiny);
  assert_true(w->ops->describe(e->link, text, sizeof text) == strlen(text));
  assert_true(strlen(text) > 3);
  assert_true(w->ops->describe(e->link, tiny, 5) <= 4);
  assert_int_equal(tiny[4], '\0');
  assert_int_equal(tiny[5], 'x');
}

static void test_describe(struct world *w) {
  struct end *e[2];
  struct transfer recv;
  uint8_t byte;
  pair_open(w, e);
  describe(w, e[0]);
  describe(w, e[1]);
  exchange(e, 10, 0, 0);
  assert_true(e[0]->link->bytes_in >= 10 && e[0]->link->bytes_out >= 10);
  describe(w, e[0]);
  end_close(e[1], false);
  post_recv(e[0], &recv, &byte, 1);
  WORLD_UNTIL(w, e[0]->downs);
  describe(w, e[0]);
}

void conformance_describe(void **state) {
  (void)state;
  char why[200] = "";
  static struct world w;
  world_open(&w, conformance->ops, 2, 4);
  assert_true(w.ops->reach(&w.rank[0].core, 1, why, sizeof why) > 0);
  assert_true(strlen(why) > 3);
  assert_int_equal(w.ops->abi, GY_TL_ABI);
  assert_true(w.ops->caps & GY_CAP_HOST_MEM);
  world_close(&w);
  in_both_modes(test_describe, 2, 4);
}

static void one_round(struct world *w, unsigned round) {
  struct end *e[2];
  world_open_transports(w);
  if (round % 3 == 0) { /* closed before anything has happened, or half way */
    end_open(w, (int)(round & 1), 1 - (int)(round & 1), 0);
    if (round % 2) world_step(w);
  } else {
    pair_open(w, e);
    exchange(e, round % 3 == 1 ? 8 : 5000, 0, 0);
    end_close(e[round % 2], round % 4 < 2);
  }
  world_close_transports(w);
}

void conformance_open_and_close(void **state) {
  (void)state;
  static struct world w;
  world_open(&w, conformance->ops, 2, 4);
  w.rank[0].settings.linger_ms = w.rank[1].settings.linger_ms = 100;
  for (unsigned k = 0; k < (conformance_is_brief() ? 40 : 200); k++) one_round(&w, k);
  world_idle(&w, 300); /* what lingers ends */
  unsigned fds = count_fds();
  size_t kib = resident_kib();
  unsigned rounds = sanitized() ? conformance->rounds / 5 : conformance->rounds;
  for (unsigned k = 0; k < rounds; k++) one_round(&w, k);
  world_idle(&w, 300);
  assert_int_equal(count_fds(), fds);
  if (!sanitized() && resident_kib() > kib + 1024)
    fail_msg("%zu KiB resident became %zu in %u rounds", kib, resident_kib(), rounds);
  world_close(&w);
}
