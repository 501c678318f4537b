/*
 * job.c - see job.h.
 *
 * A rank's position is twice the number of its first operation that is not over, plus one if it is in
 * it. So positions are ordered, and who has not called an operation is behind those who wait in it.
 */
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

#define LINES_MAX 8 /* of one kind */
#define TEXT 512

struct group { /* a communicator */
  struct group *next;
  const char *id;
  int size, seen;
  const struct view **view; /* by rank; NULL: not seen */
  const struct view *first; /* has the members */
};

struct job {
  struct document **documents;
  size_t n_documents;
  struct group *groups, **tail;
  char notes[4096]; /* ranks that are there twice */
};

/* --------------------------------------------------------------------------------- gathering --- */

struct job *job_new(void) {
  struct job *job = calloc(1, sizeof *job);
  if (job) job->tail = &job->groups;
  return job;
}

void job_free(struct job *job) {
  if (!job) return;
  while (job->groups) {
    struct group *next = job->groups->next;
    free(job->groups->view);
    free(job->groups);
    job->groups = next;
  }
  for (size_t i = 0; i < job->n_documents; i++) document_free(job->documents[i]);
  free(job->documents);
  free(job);
}

static struct group *find_group(struct job *job, const struct view *v) {
  for (struct group *g = job->groups; g; g = g->next)
    if (strcmp(g->id, v->id) == 0) return g;
  struct group *g = calloc(1, sizeof *g);
  if (g) g->view = calloc((size_t)v->size, sizeof *g->view);
  if (!g || !g->view) {
    free(g);
    return NULL;
  }
  g->id = v->id;
  g->size = v->size;
  *job->tail = g;
  job->tail = &g->next;
  return g;
}

/* Times of day are written so that their order is that of the alphabet. */
static void keep_later(struct job *job, struct group *g, const struct view *v) {
  const struct view *old = g->view[v->rank];
  bool later = strcmp(v->document->now, old->document->now) >= 0;
  const struct view *kept = later ? v : old;
  size_t n = strlen(job->notes);
  gy_format(job->notes + n, sizeof job->notes - n,
            "Rank %d of %.8s is in %s and %s: %s is used, which was written later.\n", v->rank,
            g->id, old->document->name, v->document->name, kept->document->name);
  g->view[v->rank] = kept;
}

static bool add_view(struct job *job, struct view *v, char *why, size_t capacity) {
  if (!*v->id) return true; /* being created: told from the document */
  struct group *g = find_group(job, v);
  if (!g || g->size != v->size) {
    if (g)
      gy_format(why, capacity, "%s: communicator %.32s has %d ranks, and %d in another document",
                v->document->name, v->id, v->size, g->size);
    else gy_format(why, capacity, "%s: out of memory", v->document->name);
    return false;
  }
  if (!g->first && v->members) g->first = v;
  else view_drop_members(v);
  if (g->view[v->rank]) {
    keep_later(job, g, v);
    return true;
  }
  g->view[v->rank] = v;
  g->seen++;
  return true;
}

bool job_add(struct job *job, struct document *d, char *why, size_t capacity) {
  size_t n = job->n_documents + 1;
  struct document **more = realloc(job->documents, n * sizeof(struct document *));
  if (!more) {
    gy_format(why, capacity, "%s: out of memory", d->name);
    document_free(d);
    return false;
  }
  job->documents = more;
  job->documents[job->n_documents++] = d;
  bool good = true;
  for (size_t i = 0; i < d->n_views; i++) good &= add_view(job, &d->views[i], why, capacity);
  return good;
}

/* --------------------------------------------------------------------------------- positions --- */

static bool is_in(const struct view *v) { return v->started >= v->first_unfinished; }

static uint64_t position(const struct view *v) { return 2 * v->first_unfinished + is_in(v); }

/* What the operation is, from whoever has recorded it. */
static const char *what(const struct group *g, uint64_t number) {
  for (int r = 0; r < g->size; r++) {
    const struct operation *o = g->view[r] ? view_operation(g->view[r], number) : NULL;
    if (o && *o->what) return o->what;
  }
  return "";
}

static const struct operation *oldest_message(const struct view *v) {
  for (size_t i = 0; i < v->n_messages; i++)
    if (v->messages[i].in_flight) return &v->messages[i];
  return NULL;
}

/* What the rank waits in: its first operation, else a message; NULL: in none that was recorded. */
static const struct operation *waits_in(const struct view *v) {
  const struct operation *o = is_in(v) ? view_operation(v, v->first_unfinished) : NULL;
  return o && o->in_flight ? o : is_in(v) ? NULL : oldest_message(v);
}

static bool is_message(const struct view *v, const struct operation *o) {
  return o >= v->messages && o < v->messages + v->n_messages;
}

static int64_t age(const struct view *v, const struct operation *o) {
  int64_t since = o->finished_ns ? o->finished_ns : o->started_ns;
  return since && v->document->now_ns > since ? v->document->now_ns - since : 0;
}

static const char *seconds(int64_t ns, char out[32]) {
  gy_format(out, 32, "%lld.%lld s", (long long)(ns / 1000000000), (long long)(ns / 100000000 % 10));
  return out;
}

/* --------------------------------------------------------------------------------- rank sets --- */

static const char *rank_name(const struct group *g, int rank, char *out) {
  return view_member(g->first ? g->first : NULL, rank, out, TEXT);
}

/* "rank 3 (host, pid 5)" or "ranks 0-3 7 9", the ranks for which in[r] is true. */
static const char *rank_set(const struct group *g, const bool *in, char *out) {
  size_t n = 0;
  int count = 0, only = 0;
  for (int r = 0; r < g->size; r++) {
    if (!in[r]) continue;
    count++;
    only = r;
  }
  if (count == 1) return rank_name(g, only, out);
  n += gy_format(out, TEXT, "ranks");
  for (int r = 0; r < g->size; r++) {
    int last = r;
    if (!in[r]) continue;
    while (last + 1 < g->size && in[last + 1]) last++;
    if (n > TEXT - 40) {
      gy_format(out + n, TEXT - n, " ... (%d)", count);
      break;
    }
    n += last == r ? gy_format(out + n, TEXT - n, " %d", r)
                   : gy_format(out + n, TEXT - n, last > r + 1 ? " %d-%d" : " %d %d", r, last);
    r = last;
  }
  return out;
}

/* ------------------------------------------------------------------------------- who is there --- */

static void report_seen(const struct group *g, FILE *out, bool *in) {
  char text[TEXT];
  for (int r = 0; r < g->size; r++) in[r] = g->view[r] != NULL;
  fprintf(out, "  seen     %s\n", g->seen == g->size && g->size > 1 ? "all" : rank_set(g, in, text));
  if (g->seen == g->size) return;
  for (int r = 0; r < g->size; r++) in[r] = !in[r];
  fprintf(out, "  missing  %s\n", rank_set(g, in, text));
}

/* Each verdict once. True: there is one. */
static bool report_verdicts(const struct group *g, FILE *out, bool *in) {
  char text[TEXT];
  bool any = false;
  for (int r = 0; r < g->size; r++) {
    if (!g->view[r] || !*g->view[r]->verdict) continue;
    bool told = false;
    for (int k = 0; k < g->size; k++) {
      in[k] = g->view[k] && strcmp(g->view[k]->verdict, g->view[r]->verdict) == 0;
      told |= in[k] && k < r;
    }
    any = true;
    if (!told) fprintf(out, "  failed   %s: %s\n", rank_set(g, in, text), g->view[r]->verdict);
  }
  return any;
}

/* -------------------------------------------------------------------------------- agreement --- */

/* The first operation that another rank has recorded otherwise; 0: none. */
static uint64_t disagreement(const struct group *g) {
  const struct view *reference = NULL; /* who has recorded most of what was called */
  uint64_t first = 0;
  for (int r = 0; r < g->size; r++) {
    const struct view *v = g->view[r];
    if (v && (!reference || v->n_operations > reference->n_operations)) reference = v;
  }
  for (int r = 0; r < g->size; r++) {
    const struct view *v = g->view[r];
    for (size_t i = 0, k = 0; v && i < v->n_operations; i++) {
      const struct operation *mine = &v->operations[i];
      while (k < reference->n_operations && reference->operations[k].number < mine->number) k++;
      if (k == reference->n_operations) break;
      if (reference->operations[k].number != mine->number) continue;
      if (strcmp(reference->operations[k].what, mine->what) == 0) continue;
      if (!first || mine->number < first) first = mine->number;
      break;
    }
  }
  return first;
}

static bool report_agreement(const struct group *g, FILE *out, bool *in) {
  char text[TEXT];
  uint64_t number = disagreement(g);
  if (!number) return true;
  int lines = 0;
  for (int r = 0; r < g->size && lines < LINES_MAX; r++) {
    const struct operation *o = g->view[r] ? view_operation(g->view[r], number) : NULL;
    bool told = !o;
    for (int k = 0; o && k < g->size; k++) {
      const struct operation *other = g->view[k] ? view_operation(g->view[k], number) : NULL;
      in[k] = other && strcmp(other->what, o->what) == 0;
      told |= in[k] && k < r;
    }
    if (told) continue;
    fprintf(out, "  differ   operation %" PRIu64 " of %s is %s\n", number, rank_set(g, in, text),
            o->what);
    lines++;
  }
  return false;
}

/* ---------------------------------------------------------------------------- where they are --- */

static int by_position(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* Of `in`, whose position is the same: how long they have been there, and what has moved. */
static void put_position(const struct group *g, const bool *in, const struct view *v, FILE *out) {
  int64_t longest = 0;
  uint64_t least = UINT64_MAX, most = 0;
  char time[32];
  uint64_t number = v->first_unfinished - (!is_in(v) && v->first_unfinished > 0);
  for (int r = 0; r < g->size; r++) {
    const struct operation *o = in[r] ? view_operation(g->view[r], number) : NULL;
    if (!o) continue;
    if (age(g->view[r], o) > longest) longest = age(g->view[r], o);
    if (o->moved < least) least = o->moved;
    if (o->moved > most) most = o->moved;
  }
  seconds(longest, time);
  if (is_in(v)) {
    fprintf(out, "in operation %" PRIu64 " %s, for %s; moved ", number, what(g, number), time);
    if (least < most) fprintf(out, "%" PRIu64 " to ", least);
    fprintf(out, "%" PRIu64 " bytes", most);
  } else if (number == 0) {
    fprintf(out, "called no operation yet");
  } else {
    fprintf(out, "between operations: %" PRIu64 " %s ended %s ago", number, what(g, number), time);
    if (v->posted > v->started) fprintf(out, ", the next is posted");
  }
}

/* One line for each position, the last first. */
static void report_positions(const struct group *g, FILE *out, bool *in, uint64_t *sorted) {
  char text[TEXT];
  int n = 0, lines = 0, rest = 0;
  for (int r = 0; r < g->size; r++)
    if (g->view[r]) sorted[n++] = position(g->view[r]);
  qsort(sorted, (size_t)n, sizeof *sorted, by_position);
  uint64_t most_reached = sorted[n / 2]; /* by more than half, or half */
  for (int i = 0; i < n; i++) {
    const struct view *one = NULL;
    if (i > 0 && sorted[i] == sorted[i - 1]) continue;
    if (lines++ >= LINES_MAX) {
      rest++;
      continue;
    }
    for (int r = 0; r < g->size; r++) {
      in[r] = g->view[r] && position(g->view[r]) == sorted[i];
      if (in[r]) one = g->view[r];
    }
    if (!one) continue;
    fprintf(out, "  %s  %s: ", sorted[i] < most_reached ? "behind " : "at     ",
            rank_set(g, in, text));
    put_position(g, in, one, out);
    fputc('\n', out);
  }
  if (rest) fprintf(out, "           and %d more positions, further on\n", rest);
}

static void report_messages(const struct group *g, FILE *out) {
  char time[32];
  int n = 0;
  for (int r = 0; r < g->size; r++) {
    const struct operation *m = g->view[r] ? oldest_message(g->view[r]) : NULL;
    if (!m || age(g->view[r], m) < LATE_NS || n++ >= LINES_MAX) continue;
    fprintf(out, "  message  rank %d %s %s, for %s\n", r, m->receives ? "receives" : "sends",
            m->what, seconds(age(g->view[r], m), time));
  }
  if (n > LINES_MAX) fprintf(out, "           and %d more ranks\n", n - LINES_MAX);
}

/* ------------------------------------------------------------------------------------- causes --- */

enum reason {
  NONE,
  UNSEEN,     /* there is no document of it */
  NOT_CALLED, /* it has not called what is waited for, and waits for nobody itself */
  NO_MESSAGE, /* the other end of a message */
  PAST,       /* it is past that: what it sent has not arrived */
  IDLE,       /* it is in the same or an earlier operation, but waits for nobody that is known */
  CYCLE,      /* the ranks wait for each other */
  REASONS
};

struct cause {                /* of a rank for which others wait in the end */
  const struct operation *op; /* in which the rank before it waits */
  const struct view *waiter;  /* that rank */
  enum reason reason;
  bool messages; /* CYCLE: there is one in it */
};

/* Whether the other end of the message has finished it. */
static bool has_finished(const struct view *v, const struct operation *message) {
  for (size_t i = 0; i < v->n_messages; i++) {
    const struct operation *o = &v->messages[i];
    if (o->ok && o->receives != message->receives && strcmp(o->what, message->what) == 0)
      return true;
  }
  return false;
}

/* What it means that `waiter` waits in `o` for a rank; NONE: that rank waits itself. */
static enum reason judge(const struct view *waiter, const struct operation *o,
                         const struct view *awaited) {
  if (!awaited) return UNSEEN;
  const struct operation *own = waits_in(awaited);
  bool waits = own && own->waiting_for >= 0;
  if (is_message(waiter, o)) {
    if (has_finished(awaited, o)) return PAST;
    return waits && awaited != waiter ? NONE : NO_MESSAGE;
  }
  if (awaited->first_unfinished > o->number) return PAST;
  if (waits) return NONE;
  return is_in(awaited) ? IDLE : NOT_CALLED;
}

/* Follows whom the rank waits for; returns the rank at the end. */
static int follow(const struct group *g, int rank, bool *passed, struct cause *out) {
  *out = (struct cause){0};
  memset(passed, 0, (size_t)g->size * sizeof *passed);
  for (;;) {
    const struct view *v = g->view[rank];
    const struct operation *o = waits_in(v);
    passed[rank] = true;
    out->messages |= is_message(v, o);
    out->op = o;
    out->waiter = v;
    out->reason = judge(v, o, g->view[o->waiting_for]);
    rank = o->waiting_for;
    if (out->reason == NONE && passed[rank]) out->reason = CYCLE;
    if (out->reason != NONE) return rank;
  }
}

/* The same for all ranks of the cycle. */
static int least_of_cycle(const struct group *g, int rank) {
  int least = rank;
  for (int r = waits_in(g->view[rank])->waiting_for; r != rank; r = waits_in(g->view[r])->waiting_for)
    if (r < least) least = r;
  return least;
}

/* Whether it is that rank's doing. */
static bool is_lag(const struct cause *c) {
  return c->reason == UNSEEN || c->reason == NOT_CALLED || c->reason == NO_MESSAGE ||
         (c->reason == CYCLE && c->messages);
}

static void put_cause(const struct group *g, int rank, const struct cause *c, const char *since,
                      const char *waiters, FILE *out) {
  char name[TEXT];
  rank_name(g, rank, name);
  const char *it = is_message(c->waiter, c->op) ? "" : " operation";
  char op[TEXT];
  if (*it) gy_format(op, sizeof op, "operation %" PRIu64 " %s", c->op->number, c->op->what);
  else gy_format(op, sizeof op, "%s", c->op->what);
  switch (c->reason) {
    case UNSEEN: fprintf(out, "%s is not seen here and is waited for in %s", name, op); break;
    case NOT_CALLED:
      fprintf(out, "%s has not called operation %" PRIu64 "%s%s", name,
              g->view[rank]->first_unfinished, *what(g, g->view[rank]->first_unfinished) ? " " : "",
              what(g, g->view[rank]->first_unfinished));
      break;
    case NO_MESSAGE:
      fprintf(out, "%s has not %s %s", name, c->op->receives ? "sent" : "received", op);
      break;
    case PAST:
      fprintf(
          out, "%s is past %s, of which not all has arrived: the link between them, or one that has just moved",
          name, op);
      break;
    case IDLE:
      fprintf(out, "%s is in %s and waits for nobody: it works, or nobody drives it", name, op);
      break;
    case CYCLE:
      fprintf(out,
              c->messages ? "%s and the others wait for each other, in %s"
                          : "%s and the others are in %s and wait for each other: ask again, "
                            "whether bytes move",
              name, op);
      break;
    case NONE:
    case REASONS: break;
  }
  fprintf(out, "; it keeps waiting: %s, since %s\n", waiters, *since ? since : "an unknown time");
}

/* True: nobody lags. */
static bool report_causes(const struct group *g, FILE *out, bool *in, struct cause *cause, int *end) {
  char text[TEXT];
  bool good = true;
  for (int r = 0; r < g->size; r++) {
    const struct operation *o = g->view[r] ? waits_in(g->view[r]) : NULL;
    end[r] = -1;
    if (!o || o->waiting_for < 0 || age(g->view[r], o) < LATE_NS) continue;
    struct cause c;
    int at = follow(g, r, in, &c);
    if (c.reason == CYCLE) at = least_of_cycle(g, at);
    end[r] = at * REASONS + (int)c.reason;
    if (cause[end[r]].reason == NONE) cause[end[r]] = c;
  }
  for (int i = 0, lines = 0; i < g->size * REASONS; i++) {
    const struct cause *c = &cause[i];
    const char *since = "";
    if (c->reason == NONE) continue;
    good &= !is_lag(c);
    if (lines++ >= LINES_MAX) continue;
    for (int r = 0; r < g->size; r++) {
      in[r] = end[r] == i;
      const char *started = in[r] ? waits_in(g->view[r])->started : "";
      if (*started && (!*since || strcmp(started, since) < 0)) since = started;
    }
    fprintf(out, "  %s  ", is_lag(c) ? "cause  " : "waiting");
    put_cause(g, i / REASONS, c, since, rank_set(g, in, text), out);
  }
  return good;
}

/* ------------------------------------------------------------------------------------ report --- */

struct scratch { /* for a communicator */
  bool *in;
  uint64_t *sorted;
  struct cause *cause; /* by rank and reason */
  int *end;            /* by rank: which of them it waits for; -1: none */
};

static bool report_group(const struct group *g, FILE *out) {
  size_t n = (size_t)g->size;
  struct scratch s = {calloc(n, sizeof *s.in), calloc(n, sizeof *s.sorted),
                      calloc(n * REASONS, sizeof *s.cause), calloc(n, sizeof *s.end)};
  bool good = false;
  fprintf(out, "Communicator %.32s, %d rank%s\n", g->id, g->size, g->size == 1 ? "" : "s");
  if (!s.in || !s.sorted || !s.cause || !s.end) {
    fprintf(out, "  out of memory\n");
    goto free_scratch;
  }
  report_seen(g, out, s.in);
  bool failed = report_verdicts(g, out, s.in), agree = report_agreement(g, out, s.in);
  report_positions(g, out, s.in, s.sorted);
  report_messages(g, out);
  bool prompt = report_causes(g, out, s.in, s.cause, s.end);
  good = !failed && agree && prompt;
  if (good) fprintf(out, "  well     the ranks seen agree, and none keeps the others waiting\n");
free_scratch:
  free(s.in);
  free(s.sorted);
  free(s.cause);
  free(s.end);
  return good;
}

bool job_report(const struct job *job, FILE *out) {
  bool good = true;
  fputs(job->notes, out);
  for (const struct group *g = job->groups; g; g = g->next) good &= report_group(g, out);
  for (size_t i = 0; i < job->n_documents; i++) {
    const struct document *d = job->documents[i];
    for (size_t k = 0; k < d->n_views; k++) {
      const struct view *v = &d->views[k];
      if (!*v->id)
        fprintf(out, "A communicator is being created: rank %d of %d (%s, pid %lld)\n", v->rank,
                v->size, d->host, (long long)d->pid);
    }
    if (d->n_views == 0)
      fprintf(out, "No communicator: %s (%s, pid %lld)\n", d->name, d->host, (long long)d->pid);
  }
  return good;
}
