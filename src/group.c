/*
 * group.c - see group.h.
 *
 * Calls are matched by their number: the k-th of a rank belongs to the k-th of every other. Several
 * may be open at once. A call that does not get all ranks in time, or gets different ones, ends the
 * communicator: its root judges (fault.h). A member judges the root alone, by a deadline somewhat
 * later than the root's.
 */
#include "group.h"

#include <stdlib.h>
#include <string.h>

/* Messages on a control channel. */
enum {
  MSG_ENTER = GY_MESSAGE_GROUP, /* u64 number, u8 kind, i32 color, i32 key, u32 patience in ms */
  MSG_GROUP                     /* u64 number, i32 rank, i32 nranks, i32 root, 16 bytes key */
};

#define GRACE_MS 1500 /* how much longer than its own deadline a member waits for the root's word */
#define RECHECK_MS 50 /* from a deadline until it counts: the sockets are read meanwhile */
#define MISSING_TEXT 160

struct entry { /* at the root */
  bool entered;
  int rank;
  int32_t color, key;
};

struct collection { /* at the root: one call */
  struct collection *next;
  uint64_t number, deadline;
  enum gy_group_kind kind;
  int first; /* who came first, and gives the kind */
  int hasty; /* whose deadline it is */
  uint32_t limit_ms;
  int n_entered;
  struct entry entry[]; /* by rank */
};

struct gy_groups {
  struct gy_comm_core *core;
  struct gy_fault *const *fault;
  uint64_t number;                /* calls on this rank so far */
  struct gy_group_call *calls;    /* that wait for the root */
  struct collection *collections; /* at the root */
  struct alarm {                  /* the timer outlives the groups until libuv has closed it */
    uv_timer_t timer;
    struct gy_groups *groups;
  } * alarm;
  bool ripe; /* a deadline was over at the last look */
};

static const char *const names[] = {"gyre_comm_split", "gyre_comm_dup"};

static bool is_root(const struct gy_groups *g) { return g->core->rank == 0; }
static uint64_t now(const struct gy_groups *g) { return uv_now(g->core->uv); }
static uint32_t patience(const struct gy_groups *g) {
  return (uint32_t)g->core->settings->connect_timeout_ms;
}

/* ------------------------------------------------------------------------------------ alarm --- */

static void on_alarm(uv_timer_t *timer);

/* Sets the timer to the first deadline. */
static void set_alarm(struct gy_groups *g) {
  uint64_t first = UINT64_MAX, t;
  for (const struct gy_group_call *c = g->calls; c; c = c->next)
    if (c->deadline < first) first = c->deadline;
  for (const struct collection *c = g->collections; c; c = c->next)
    if (c->deadline < first) first = c->deadline;
  g->ripe = false;
  if (first == UINT64_MAX) {
    uv_timer_stop(&g->alarm->timer);
    return;
  }
  uv_update_time(g->core->uv); /* the loop may have slept outside uv_run: its clock is then old */
  t = now(g);
  uv_timer_start(&g->alarm->timer, on_alarm, first > t ? first - t : 0, 0);
}

/* ---------------------------------------------------------------------------- a rank's calls --- */

static void answer(struct gy_groups *g, uint64_t number, const struct gy_group *group) {
  for (struct gy_group_call **p = &g->calls, *c; (c = *p); p = &c->next) {
    if (c->number != number) continue;
    *p = c->next;
    set_alarm(g);
    c->done(c, group);
    return;
  }
}

void gy_groups_cancel(struct gy_groups *g, struct gy_group_call *call) {
  for (struct gy_group_call **p = &g->calls; *p; p = &(*p)->next) {
    if (*p != call) continue;
    *p = call->next;
    break;
  }
  set_alarm(g);
}

/* -------------------------------------------------------------------------------- the root --- */

static size_t list_missing(const struct gy_groups *g, const struct collection *c, char *out,
                           size_t capacity, int *only) {
  int n = g->core->nranks, missing = 0;
  bool *in = calloc((size_t)n, sizeof *in);
  *only = -1;
  if (!in) return gy_format(out, capacity, "some ranks");
  for (int r = 0; r < n; r++) {
    in[r] = !c->entry[r].entered;
    if (in[r] && missing++ == 0) *only = r;
  }
  size_t len = missing == 1 ? strlen(gy_fault_name(*g->fault, *only, out, capacity))
                            : gy_fault_list(in, n, out, capacity);
  if (missing > 1) *only = -1;
  free(in);
  return len;
}

static void judge_late(struct gy_groups *g, const struct collection *c) {
  char missing[MISSING_TEXT], whose[64] = "", text[512];
  int only;
  list_missing(g, c, missing, sizeof missing, &only);
  if (c->hasty != 0)
    gy_format(whose, sizeof whose, ", when the connect time-out of rank %d ended", c->hasty);
  gy_format(text, sizeof text,
            "%s did not call %s (split or duplicate %llu) within %u ms%s; every rank of a "
            "communicator must, in the same order",
            missing, names[c->kind], (unsigned long long)c->number, c->limit_ms, whose);
  gy_fault_judge(*g->fault, GYRE_ERR_TIMEOUT, only, text);
}

static void judge_left(struct gy_groups *g, uint64_t number, enum gy_group_kind kind, int rank) {
  char who[128], text[512];
  gy_format(text, sizeof text, "%s left; %s (split or duplicate %llu) needs it",
            gy_fault_name(*g->fault, rank, who, sizeof who), names[kind], (unsigned long long)number);
  gy_fault_judge(*g->fault, GYRE_ERR_PEER_LOST, rank, text);
}

static int by_group(const void *a, const void *b) {
  const struct entry *x = a, *y = b;
  if (x->color != y->color) return x->color < y->color ? -1 : 1;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->rank - y->rank;
}

static void tell(struct gy_groups *g, uint64_t number, int rank, const struct gy_group *group) {
  struct gy_writer w = {0};
  if (rank == 0) return; /* it gets its answer without a message, when all others have theirs */
  gy_w_u64(&w, number);
  gy_w_i32(&w, group->rank);
  gy_w_i32(&w, group->nranks);
  gy_w_i32(&w, group->root);
  gy_w_bytes(&w, group->key, sizeof group->key);
  gy_fault_send(*g->fault, rank, MSG_GROUP, &w);
}

/* All have entered: their entries, sorted, are the groups one after the other. */
static gyre_status form_groups(struct gy_groups *g, struct collection *c, struct gy_group *mine) {
  int n = g->core->nranks;
  qsort(c->entry, (size_t)n, sizeof *c->entry, by_group);
  for (int first = 0, end; first < n; first = end) {
    const struct entry *e = &c->entry[first];
    struct gy_group group = {.root = e->rank};
    gyre_status st = gy_random(group.key, sizeof group.key);
    if (st) return st;
    for (end = first; end < n && c->entry[end].color == e->color;) end++;
    for (int i = first; i < end; i++) {
      group.rank = e->color < 0 ? -1 : i - first;
      group.nranks = end - first;
      if (c->entry[i].rank == 0) *mine = group;
      tell(g, c->number, c->entry[i].rank, &group);
    }
  }
  return GYRE_OK;
}

static void complete(struct gy_groups *g, struct collection *c) {
  struct gy_group mine = {.rank = -1};
  uint64_t number = c->number;
  struct collection **p = &g->collections;
  while (*p != c) p = &(*p)->next;
  *p = c->next;
  gyre_status st = form_groups(g, c, &mine);
  free(c);
  if (st) {
    char text[256];
    gy_format(text, sizeof text, "rank 0 cannot put ranks into groups: %s", gyre_last_error());
    gy_fault_judge(*g->fault, st, 0, text);
    return;
  }
  answer(g, number, &mine);
}

static struct collection *find(struct gy_groups *g, uint64_t number) {
  struct collection *c = g->collections;
  while (c && c->number != number) c = c->next;
  return c;
}

static struct collection *open_collection(struct gy_groups *g, uint64_t number,
                                          enum gy_group_kind kind, int rank, uint32_t patience_ms) {
  struct collection *c = calloc(1, sizeof *c + (size_t)g->core->nranks * sizeof(struct entry));
  if (!c) return NULL;
  c->number = number;
  c->kind = kind;
  c->first = c->hasty = rank;
  c->deadline = UINT64_MAX;
  c->limit_ms = patience_ms;
  c->next = g->collections;
  g->collections = c;
  return c;
}

/* Who gives up first ends it for all: then rather the root speaks, which knows who is missing. */
static void hurry(struct gy_groups *g, struct collection *c, int rank, uint32_t patience_ms) {
  uv_update_time(g->core->uv);
  uint64_t deadline = now(g) + patience_ms;
  if (deadline < c->deadline) {
    c->deadline = deadline;
    c->hasty = rank;
    c->limit_ms = patience_ms;
  }
  set_alarm(g);
}

static void enter(struct gy_groups *g, uint64_t number, enum gy_group_kind kind, int rank,
                  int32_t color, int32_t key, uint32_t patience_ms) {
  struct collection *c = find(g, number);
  if (!c) c = open_collection(g, number, kind, rank, patience_ms);
  if (!c) {
    gy_fault_judge(*g->fault, GYRE_ERR_NOMEM, 0, "rank 0 has no memory to put ranks into groups");
    return;
  }
  if (c->kind != kind) {
    char text[256];
    bool rising = c->first < rank;
    gy_format(text, sizeof text, "rank %d called %s, rank %d called %s (split or duplicate %llu)",
              rising ? c->first : rank, names[rising ? c->kind : kind], rising ? rank : c->first,
              names[rising ? kind : c->kind], (unsigned long long)number);
    gy_fault_judge(*g->fault, GYRE_ERR_MISMATCH, -1, text);
    return;
  }
  if (c->entry[rank].entered) return;
  c->entry[rank] = (struct entry){true, rank, color < 0 ? -1 : color, key};
  if (++c->n_entered == g->core->nranks) {
    complete(g, c);
    return;
  }
  hurry(g, c, rank, patience_ms);
  for (int r = 0; r < g->core->nranks; r++) {
    if (c->entry[r].entered || !gy_fault_has_left(*g->fault, r)) continue;
    judge_left(g, number, kind, r);
    return;
  }
}

/* ------------------------------------------------------------------------------- interface --- */

void gy_groups_enter(struct gy_groups *g, struct gy_group_call *call) {
  call->number = ++g->number;
  call->next = g->calls;
  g->calls = call;
  uv_update_time(g->core->uv);
  if (is_root(g)) {
    call->deadline = UINT64_MAX; /* the collection has one */
    enter(g, call->number, call->kind, 0, call->color, call->key, patience(g));
    return;
  }
  struct gy_writer w = {0};
  call->deadline = now(g) + patience(g) + GRACE_MS;
  set_alarm(g);
  gy_w_u64(&w, call->number);
  gy_w_u8(&w, (uint8_t)call->kind);
  gy_w_i32(&w, call->color);
  gy_w_i32(&w, call->key);
  gy_w_u32(&w, patience(g));
  gy_fault_send(*g->fault, 0, MSG_ENTER, &w);
  if (gy_fault_has_left(*g->fault, 0)) judge_left(g, call->number, call->kind, 0);
}

void gy_groups_message(struct gy_groups *g, int from, uint8_t type, struct gy_reader *r) {
  if (is_root(g) && type == MSG_ENTER) {
    uint64_t number = gy_r_u64(r);
    uint8_t kind = gy_r_u8(r);
    int32_t color = gy_r_i32(r), key = gy_r_i32(r);
    uint32_t patience_ms = gy_r_u32(r);
    if (kind > GY_GROUP_DUP) r->failed = true;
    if (!r->failed) enter(g, number, (enum gy_group_kind)kind, from, color, key, patience_ms);
  } else if (!is_root(g) && type == MSG_GROUP) {
    struct gy_group group;
    uint64_t number = gy_r_u64(r);
    group.rank = gy_r_i32(r);
    group.nranks = gy_r_i32(r);
    group.root = gy_r_i32(r);
    gy_r_bytes(r, group.key, sizeof group.key);
    if (group.rank < -1 || group.rank >= group.nranks || group.nranks > g->core->nranks ||
        group.root < 0 || group.root >= g->core->nranks)
      r->failed = true;
    if (!r->failed) answer(g, number, &group);
  } else {
    r->failed = true;
  }
}

void gy_groups_left(struct gy_groups *g, int rank) {
  if (rank == 0 && g->calls) judge_left(g, g->calls->number, g->calls->kind, 0);
  for (struct collection *c = g->collections; c; c = c->next) {
    if (c->entry[rank].entered) continue;
    judge_left(g, c->number, c->kind, rank);
    return;
  }
}

static void judge_due(struct gy_groups *g) {
  uint64_t t = now(g);
  for (struct collection *c = g->collections; c; c = c->next) {
    if (t < c->deadline) continue;
    c->deadline = UINT64_MAX;
    judge_late(g, c);
  }
  for (struct gy_group_call *c = g->calls; c; c = c->next) {
    char who[128], text[512];
    if (t < c->deadline) continue;
    c->deadline = UINT64_MAX;
    gy_format(text, sizeof text,
              "%s did not answer %s (split or duplicate %llu) within %u ms; is it stopped?",
              gy_fault_name(*g->fault, 0, who, sizeof who), names[c->kind],
              (unsigned long long)c->number, patience(g));
    gy_fault_judge(*g->fault, GYRE_ERR_TIMEOUT, 0, text);
  }
}

/* Blames nobody before the sockets have been read once after the deadline. */
static void on_alarm(uv_timer_t *timer) {
  struct gy_groups *g = ((struct alarm *)timer->data)->groups;
  if (!g->ripe) {
    g->ripe = true;
    uv_timer_start(timer, on_alarm, RECHECK_MS, 0);
    return;
  }
  judge_due(g);
  set_alarm(g);
}

static void free_alarm(uv_handle_t *h) { free(h->data); }

gyre_status gy_groups_create(struct gy_comm_core *core, struct gy_fault *const *fault,
                             struct gy_groups **out) {
  struct gy_groups *g = calloc(1, sizeof *g);
  struct alarm *alarm = calloc(1, sizeof *alarm);
  if (!g || !alarm) {
    free(g);
    free(alarm);
    return gy_fail(GYRE_ERR_NOMEM, "out of memory for a communicator's groups");
  }
  g->core = core;
  g->fault = fault;
  g->alarm = alarm;
  alarm->groups = g;
  uv_timer_init(core->uv, &alarm->timer);
  alarm->timer.data = alarm;
  *out = g;
  return GYRE_OK;
}

void gy_groups_free(struct gy_groups *g) {
  if (!g) return;
  while (g->collections) {
    struct collection *next = g->collections->next;
    free(g->collections);
    g->collections = next;
  }
  uv_close((uv_handle_t *)&g->alarm->timer, free_alarm);
  free(g);
}
