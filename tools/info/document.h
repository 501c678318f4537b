/*
 * document.h - what one process said of its communicators (docs/tracing.md), read from its JSON.
 *
 * Role:   takes what the report needs and trusts nothing: numbers are in their ranges, texts have no
 *         control characters. What is missing in a document has its empty value.
 * Thread: one. Owner: the caller, until document_free.
 */
#ifndef INFO_DOCUMENT_H
#define INFO_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

struct operation { /* a collective, or a message */
  uint64_t number;
  const char *what;
  bool in_flight, ok;
  int64_t started_ns, finished_ns; /* 0: not yet */
  const char *started;             /* as time of day */
  uint64_t moved;                  /* bytes, both ways */
  int waiting_for;                 /* -1: nobody. A message: its peer */
  bool receives;                   /* a message: to be received */
};

struct view { /* one rank's view of a communicator */
  const struct document *document;
  const char *id; /* "": its ranks have not met */
  int rank, size;
  uint64_t posted, started, first_unfinished;
  const char *verdict; /* "PEER_LOST: text"; "": none */
  struct operation *operations, *messages;
  size_t n_operations, n_messages;
  json_t *members; /* NULL: dropped */
};

struct document {
  const char *name; /* "process 5", "a.json" */
  const char *host, *now;
  int64_t pid, now_ns;
  struct view *views;
  size_t n_views;
  struct text *texts;
};

/* NULL, and the reason in `why`, if that is no document that this program understands. */
struct document *document_read(const char *name, const char *json, size_t len, char *why,
                               size_t capacity);
void document_free(struct document *d);

/* "rank 3 (host, pid 5)" as the view's members have it; returns out. */
const char *view_member(const struct view *v, int rank, char *out, size_t capacity);
void view_drop_members(struct view *v);
/* NULL: not recorded. */
const struct operation *view_operation(const struct view *v, uint64_t number);

#endif
