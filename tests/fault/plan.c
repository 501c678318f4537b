/* plan.c - see plan.h. */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "checked.h"
#include "hosts.h"

#define DIES_MS 2000 /* a death is known to all */
#define OP_MS 2000
#define PEER_MS 4000
#define MEET_MS 4000
#define BIG (256 << 10)

static int below(unsigned *state, int limit) { return rand_r(state) % limit; }

/* ---------------------------------------------------------------------------------- drawing --- */

static struct harm *harm(struct plan *p, enum act act, int victim) {
  struct harm *h = &p->harm[p->n_harm++];
  h->act = act;
  h->victim = victim;
  h->other = -1;
  return h;
}

static int any(const struct plan *p, unsigned *state) { return below(state, p->nranks); }

static int not_root(const struct plan *p, unsigned *state) {
  return 1 + below(state, p->nranks - 1);
}

static int other_than(const struct plan *p, int rank, unsigned *state) {
  return (rank + 1 + below(state, p->nranks - 1)) % p->nranks;
}

/* So many ranks that an agreement is one. */
static void at_least(struct plan *p, int nranks, unsigned *state) {
  if (p->nranks < nranks) p->nranks = nranks + below(state, 7 - nranks);
}

static void draw_kill(struct plan *p, unsigned *s) {
  harm(p, KILL, not_root(p, s))->delay_ms = below(s, 60);
}

static void draw_root(struct plan *p, unsigned *s) { harm(p, KILL, 0)->delay_ms = below(s, 60); }

static void draw_idle(struct plan *p, unsigned *s) {
  p->stage = IDLE;
  harm(p, KILL, any(p, s));
}

static void draw_meeting(struct plan *p, unsigned *s) {
  p->stage = MEETING;
  at_least(p, 3, s);
  harm(p, KILL, any(p, s))->delay_ms = below(s, 40);
}

static void draw_shrinking(struct plan *p, unsigned *s) {
  p->stage = SHRINKING;
  at_least(p, 4, s);
  int first = any(p, s);
  harm(p, KILL, first)->delay_ms = below(s, 40);
  harm(p, KILL, other_than(p, first, s))->delay_ms = below(s, 2) ? below(s, 6) : below(s, 30);
}

static void stop_by(struct plan *p, unsigned *s) {
  if (below(s, 3)) {
    harm(p, STOP, any(p, s))->delay_ms = below(s, 40);
    return;
  }
  struct harm *h = harm(p, RULE, any(p, s));
  snprintf(h->rule, sizeof h->rule, "stop:slice=%d", 1 + below(s, 60));
}

static void draw_stop(struct plan *p, unsigned *s) {
  stop_by(p, s);
  p->config.op_timeout_ms = (uint32_t)patience(OP_MS);
}

static void draw_silence(struct plan *p, unsigned *s) {
  stop_by(p, s);
  p->config.peer_timeout_ms = (uint32_t)patience(PEER_MS / 2);
  p->config.heartbeat_ms = 100;
}

static void draw_cut(struct plan *p, unsigned *s) {
  struct harm *h = harm(p, RULE, any(p, s));
  h->other = other_than(p, h->victim, s);
  snprintf(h->rule, sizeof h->rule, "cut:bytes=%d,peer=%d", below(s, 300000), h->other);
}

/* With two hosts nobody can tell which of them is cut off. */
static struct harm *cable(struct plan *p, unsigned *s) {
  p->hosts = true;
  if (below(s, 8)) at_least(p, 3, s);
  p->max_count = 16 << 10;
  p->config.flags |= GYRE_F_EAGER_LINKS;
  p->config.peer_timeout_ms = (uint32_t)patience(PEER_MS);
  p->config.heartbeat_ms = 200;
  struct harm *h = harm(p, CABLE, any(p, s));
  if (p->nranks == 2) h->other = 1 - h->victim;
  h->delay_ms = below(s, 200);
  return h;
}

static void draw_cable(struct plan *p, unsigned *s) { cable(p, s); }

/* Rank 0 hears both. Half of them have an operation time-out that is the shorter one. */
static void draw_apart(struct plan *p, unsigned *s) {
  at_least(p, 3, s);
  struct harm *h = cable(p, s);
  h->act = APART;
  h->victim = not_root(p, s);
  h->other = h->victim % (p->nranks - 1) + 1;
  p->config.connect_timeout_ms = (uint32_t)patience(PEER_MS);
  if (below(s, 2)) p->config.op_timeout_ms = (uint32_t)patience(OP_MS);
}

/* The kernel doubles the time between its tries up to a limit that it has to know of. */
static void draw_flap(struct plan *p, unsigned *s) {
  int ms = hosts_retry_soon() ? patience(PEER_MS) * 3 / 5 : patience(PEER_MS) / 3;
  cable(p, s)->hold_ms = ms / 5 + below(s, ms - ms / 5);
}

static void draw_long_flap(struct plan *p, unsigned *s) {
  int ms = patience(PEER_MS);
  cable(p, s)->hold_ms = ms + ms / 3 + below(s, ms / 2);
}

static void draw_flip(struct plan *p, unsigned *s) {
  struct harm *h = harm(p, RULE, any(p, s));
  p->config.flags |= GYRE_F_CHECKSUM;
  snprintf(h->rule, sizeof h->rule, "flip:byte=%d,bit=%d", below(s, 200000), below(s, 8));
}

static void draw_slice(struct plan *p, unsigned *s) {
  struct harm *h = harm(p, RULE, any(p, s));
  snprintf(h->rule, sizeof h->rule, "kill:slice=%d", 1 + below(s, 100));
}

static void draw_delay(struct plan *p, unsigned *s) {
  struct harm *h = harm(p, RULE, any(p, s));
  h->hold_ms = 300;
  snprintf(h->rule, sizeof h->rule, "delay:us=%d,seed=%u", 1 + below(s, 3000), p->seed);
}

static void draw_reorder(struct plan *p, unsigned *s) {
  struct harm *h = harm(p, RULE, any(p, s));
  h->hold_ms = 300;
  snprintf(h->rule, sizeof h->rule, "reorder:seed=%u", p->seed);
}

static void draw_short(struct plan *p, unsigned *s) {
  struct harm *h = harm(p, RULE, any(p, s));
  h->hold_ms = 300;
  p->max_count = 16 << 10;
  snprintf(h->rule, sizeof h->rule, "short:bytes=%d,seed=%u", 1 + below(s, 2000), p->seed);
}

static void draw_descriptors(struct plan *p, unsigned *s) {
  harm(p, LIMIT, any(p, s))->limit = below(s, 30);
  p->config.connect_timeout_ms = (uint32_t)patience(MEET_MS);
}

static void draw_fork(struct plan *p, unsigned *s) { harm(p, CHILD, any(p, s)); }

static void draw_exit(struct plan *p, unsigned *s) {
  harm(p, EXIT, any(p, s))->round = (unsigned)below(s, 20);
}

static void draw_leave(struct plan *p, unsigned *s) {
  harm(p, LEAVE, any(p, s))->round = (unsigned)below(s, 20);
}

static void draw_abort(struct plan *p, unsigned *s) {
  harm(p, ABORT, any(p, s))->round = (unsigned)below(s, 20);
}

/* It comes late, or calls late, by less than the time-out. */
static void draw_late(struct plan *p, unsigned *s) {
  struct harm *h = harm(p, below(s, 2) ? LATE : PAUSE, any(p, s));
  h->hold_ms = 100 + below(s, 700);
  h->round = (unsigned)below(s, 20);
  p->config.op_timeout_ms = (uint32_t)patience(2 * OP_MS);
}

static void draw_absent(struct plan *p, unsigned *s) {
  p->stage = MEETING;
  harm(p, ABSENT, any(p, s));
}

static void draw_mute(struct plan *p, unsigned *s) {
  harm(p, PAUSE, any(p, s))->round = (unsigned)below(s, 20);
  p->config.op_timeout_ms = (uint32_t)patience(OP_MS);
}

static void draw_signals(struct plan *p, unsigned *s) {
  harm(p, SIGNALS, any(p, s))->hold_ms = 200 + below(s, 200);
}

/* The first is always a death, so that there is one to name. */
static void draw_overlap(struct plan *p, unsigned *s) {
  at_least(p, 3, s);
  int first = any(p, s), second = other_than(p, first, s);
  if (first && below(s, 3) == 0) second = 0; /* who is about to judge */
  struct harm *h = harm(p, below(s, 2) ? KILL : EXIT, first);
  h->delay_ms = below(s, 20);
  h->round = (unsigned)below(s, 12);
  h = harm(p, NOTHING, second);
  h->delay_ms = below(s, 20);
  h->round = (unsigned)below(s, 12);
  p->config.flags |= GYRE_F_CHECKSUM;
  /* With rank 0 gone ranks judge by themselves, and one that has left may be taken for the dead one
   * by who sees nothing else. */
  if (plan_culprits(p) & 1) p->leaves_early = false;
  switch (below(s, 6)) {
    case 0: h->act = KILL; break;
    case 1:
      h->act = STOP;
      p->config.op_timeout_ms = (uint32_t)patience(OP_MS);
      break;
    case 2: h->act = ABORT; break;
    case 3: h->act = EXIT; break;
    case 4:
      h->act = RULE;
      h->other = other_than(p, second, s);
      snprintf(h->rule, sizeof h->rule, "cut:bytes=%d,peer=%d", below(s, 100000), h->other);
      break;
    default: h->act = RULE; snprintf(h->rule, sizeof h->rule, "flip:byte=%d", below(s, 100000));
  }
}

/* ----------------------------------------------------------------------------------- bounds --- */

static int at_once(const struct plan *p) {
  (void)p;
  return patience(DIES_MS);
}

static int deadline(const struct plan *p) { return (int)p->config.op_timeout_ms + patience(2000); }

static int peer_time_out(const struct plan *p) {
  return (int)(p->config.peer_timeout_ms + p->config.heartbeat_ms) + patience(DIES_MS);
}

static int meeting(const struct plan *p) {
  return (int)p->config.connect_timeout_ms + patience(1000);
}

static int dead_meeting(const struct plan *p) {
  return (int)p->config.connect_timeout_ms + patience(3000 + DIES_MS);
}

static int apart(const struct plan *p) {
  return p->config.op_timeout_ms ? deadline(p) : peer_time_out(p);
}

static int overlapping(const struct plan *p) {
  for (int i = 0; i < p->n_harm; i++)
    if (p->harm[i].act == STOP) return deadline(p);
  return at_once(p);
}

const struct fault_kind kinds[] = {
    {"kill", "a rank is killed in an operation", "2 s", 0, 0, draw_kill, at_once},
    {"root", "rank 0 is killed in an operation", "2 s", 0, 0, draw_root, at_once},
    {"idle", "a rank is killed before the first operation", "2 s", 0, 0, draw_idle, at_once},
    {"meeting", "a rank is killed while the ranks meet", "connect time-out + 5 s", 0, 0,
     draw_meeting, dead_meeting},
    {"shrinking", "a rank is killed, and another while the rest shrinks", "connect time-out + 1 s",
     0, 0, draw_shrinking, meeting},
    {"stop", "a rank is stopped, and goes on when all is over", "operation time-out + 2 s", 0, 0,
     draw_stop, deadline},
    {"silence", "the same, where the peer time-out is the shorter one",
     "peer time-out + heartbeat + 2 s", 0, 0, draw_silence, peer_time_out},
    {"cut", "a data link is cut after so many bytes", "2 s", 0, 0, draw_cut, at_once},
    {"cable", "packets of a host are dropped", "peer time-out + heartbeat + 2 s", 0, 1, draw_cable,
     peer_time_out},
    {"apart", "packets between two hosts are dropped, not those of rank 0",
     "peer time-out + heartbeat + 2 s, or operation time-out + 2 s", 0, 1, draw_apart, apart},
    {"flap", "packets are dropped for less than the peer time-out", "", 1, 1, draw_flap, NULL},
    {"long-flap", "the same for longer than the peer time-out", "peer time-out + heartbeat + 2 s",
     0, 1, draw_long_flap, peer_time_out},
    {"flip", "a bit is flipped, under GYRE_CHECKSUM=1", "2 s", 0, 0, draw_flip, at_once},
    {"slice", "a rank dies before it sends a drawn slice", "2 s", 0, 0, draw_slice, at_once},
    {"delay", "slices start late", "", 1, 0, draw_delay, NULL},
    {"reorder", "links are served in a drawn order", "", 1, 0, draw_reorder, NULL},
    {"short", "reads and writes move few bytes", "", 1, 0, draw_short, NULL},
    {"descriptors", "a rank runs out of descriptors", "connect time-out + 5 s", 0, 0,
     draw_descriptors, dead_meeting},
    {"fork", "a rank with a sleeping child is killed", "2 s", 0, 0, draw_fork, at_once},
    {"exit", "a rank exits without destroying anything", "2 s", 0, 0, draw_exit, at_once},
    {"leave", "a rank leaves before the others", "2 s", 0, 0, draw_leave, at_once},
    {"abort", "a rank aborts", "2 s", 0, 0, draw_abort, at_once},
    {"late", "a rank comes late, or calls late", "", 1, 0, draw_late, NULL},
    {"absent", "a rank never comes", "connect time-out + 1 s", 0, 0, draw_absent, meeting},
    {"mute", "a rank does not call", "operation time-out + 2 s", 0, 0, draw_mute, deadline},
    {"signals", "signals interrupt system calls", "", 1, 0, draw_signals, NULL},
    {"overlap", "a rank dies, and another fault strikes", "2 s, with a stop as there", 0, 0,
     draw_overlap, overlapping}};
const int n_kinds = sizeof kinds / sizeof *kinds;

struct plan plan_draw(const struct fault_kind *kind, unsigned seed) {
  struct plan p = {.seed = seed, .kind = kind, .config = GYRE_COMM_CONFIG_INIT};
  unsigned state = (unsigned)mix(seed, (uint64_t)(kind - kinds));
  p.nranks = 2 + below(&state, 5);
  p.max_count = below(&state, 3) ? 4 << 10 : BIG / (size_t)p.nranks;
  p.pace_ms = below(&state, 4);
  p.leaves_early = below(&state, 2);
  p.config.connect_timeout_ms = (uint32_t)patience(2 * MEET_MS);
  kind->draw(&p, &state);
  if (p.stage == MEETING) p.config.connect_timeout_ms = (uint32_t)patience(MEET_MS);
  return p;
}

static const char *const acts[] = {"nothing", "kill",   "stop", "cable", "apart",
                                   "signals", "rule",   "exit", "leave", "abort",
                                   "pause",   "absent", "late", "limit", "child"};

const char *plan_text(const struct plan *p, char *out, size_t capacity) {
  size_t n = (size_t)snprintf(out, capacity, "%d ranks, up to %zu elements, pace %d ms", p->nranks,
                              p->max_count, p->pace_ms);
  for (int i = 0; i < p->n_harm && n < capacity; i++) {
    const struct harm *h = &p->harm[i];
    n += (size_t)snprintf(
        out + n, capacity - n,
        "; %s of rank %d, other %d, delay %d ms, hold %d ms, round %u, limit %d %s", acts[h->act],
        h->victim, h->other, h->delay_ms, h->hold_ms, h->round, h->limit, h->rule);
  }
  return out;
}

const struct harm *plan_harm_of(const struct plan *p, int rank) {
  for (int i = 0; i < p->n_harm; i++)
    if (p->harm[i].victim == rank) return &p->harm[i];
  return NULL;
}

uint32_t plan_culprits(const struct plan *p) {
  uint32_t set = 0;
  for (int i = 0; i < p->n_harm; i++) {
    set |= 1u << p->harm[i].victim;
    if (p->harm[i].other >= 0) set |= 1u << p->harm[i].other;
  }
  return set;
}

static bool is_rule(const struct harm *h, char first) {
  return h->act == RULE && h->rule[0] == first;
}

static bool harm_allows(const struct plan *p, const struct harm *h, gyre_status st) {
  switch (h->act) {
    case ABORT: return st == GYRE_ERR_ABORTED;
    case PAUSE:
    case ABSENT: return st == GYRE_ERR_TIMEOUT;
    case APART: /* a link that is opened then times out, too */
      return st == GYRE_ERR_TIMEOUT || st == GYRE_ERR_PEER_LOST;
    case LIMIT: return st == GYRE_ERR_SYS || st == GYRE_ERR_PEER_LOST || st == GYRE_ERR_TIMEOUT;
    default: break;
  }
  if (is_rule(h, 'f')) return st == GYRE_ERR_PROTO;
  if (h->act == STOP || is_rule(h, 's'))
    return st == (p->config.peer_timeout_ms ? GYRE_ERR_PEER_LOST : GYRE_ERR_TIMEOUT);
  if (p->stage == MEETING && st == GYRE_ERR_TIMEOUT) return true; /* it had not found rank 0 yet */
  return st == GYRE_ERR_PEER_LOST;
}

bool plan_allows(const struct plan *p, gyre_status status) {
  for (int i = 0; i < p->n_harm; i++)
    if (harm_allows(p, &p->harm[i], status)) return true;
  return false;
}

bool plan_survives(const struct plan *p, int rank) {
  const struct harm *h = plan_harm_of(p, rank);
  if (!h) return true;
  switch (h->act) {
    case CABLE:
    case APART:
    case SIGNALS:
    case ABORT:
    case LATE: return true;
    case PAUSE: return h->hold_ms > 0;
    case RULE: return !is_rule(h, 'k') && !(is_rule(h, 's') && h->rule[1] == 't');
    default: return false;
  }
}
